"""Wrong answers and misleading errors that were found by using it, each kept from coming back."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import windrow as wr
from windrow import errors
from windrow.pipeline.run import run as running

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 2000
X = np.random.default_rng(3).normal(size=ROWS)


def source(**columns: Any) -> Any:
    return wr.data.open({"x": X.copy(), **columns}, grid=500)


def counting(analysis: wr.Pipeline) -> wr.Pipeline:
    @analysis.output
    def n(weight: Any) -> Any:
        return float(weight.sum())

    return analysis


def test_a_step_that_is_not_row_pure_is_refused_every_time() -> None:
    analysis = wr.Pipeline("impure")

    @analysis.column
    def z(x: Any) -> Any:
        return x - x.mean()

    @analysis.output
    def s(z: Any) -> Any:
        return float(z.sum())

    for on_error in ("stop", "stop", "skip", "skip"):
        with pytest.raises(errors.RowPurityError, match="'z'"):
            analysis.run(source(), on_error=on_error, progress=False)


def test_an_output_that_cannot_be_merged_is_refused_every_time() -> None:
    analysis = wr.Pipeline("text")

    @analysis.output
    def s(x: Any) -> Any:
        return "text"

    for _ in range(2):
        with pytest.raises(errors.MergeError, match="'s'"):
            analysis.run({"x": X[:10]}, progress=False)


def test_a_variation_of_some_files_has_the_nominal_of_the_others(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": X}), tmp_path / "f1.parquet")
    pq.write_table(pa.table({"x": X, "up": np.full(ROWS, 2.0)}), tmp_path / "f2.parquet")
    analysis = wr.Pipeline("some")

    @analysis.weight
    def pu(x: Any, up: Any = None) -> Any:
        ones = np.ones(len(x))
        return ones if up is None else wr.updown(ones, up, up)

    result = counting(analysis).run([tmp_path / "f1.parquet", tmp_path / "f2.parquet"], progress=False)
    assert result["n"] == 2 * ROWS
    assert result["n", "pu_up"] == result["n", "pu_down"] == 3 * ROWS


@pytest.mark.parametrize("block", [None, 7])
def test_a_variation_of_some_blocks_has_the_nominal_of_the_others(block: int | None) -> None:
    analysis = wr.Pipeline("some")

    @analysis.weight
    def pu(event: Any) -> Any:
        ones = np.ones(len(event))
        return wr.updown(ones, 2 * ones, ones) if event[0] >= 700 else ones

    data = wr.data.open({"event": np.arange(1400)}, grid=70)
    result = counting(analysis).run(data, chunk=70, progress=False, _block_rows=block)
    assert result["n", "pu_up"] == 700 + 2 * 700


def test_a_weight_that_is_named_counts_before_any_cut_too() -> None:
    analysis = wr.Pipeline("named")

    @analysis.cut
    def c(x: Any) -> Any:
        return x > 0

    @analysis.weight
    def w(x: Any) -> Any:
        return np.full(len(x), 2.0)

    @analysis.output(region=None, weights=["w"])
    def named(weight: Any) -> Any:
        return float(weight.sum())

    @analysis.output(region=None)
    def every(weight: Any) -> Any:
        return float(weight.sum())

    result = analysis.run(source(), progress=False)
    assert result["named"] == 2 * ROWS
    assert result["every"] == ROWS


def test_row_functions_see_the_metadata_of_this_run() -> None:
    analysis = wr.Pipeline("metadata")

    @analysis.column(each=True)
    def z(x: Any, *, dataset: Any) -> Any:
        return x * dataset["k"]

    @analysis.output
    def s(z: Any) -> Any:
        return float(z[0])

    for k in (2, 3):
        data = wr.data.open({"x": np.ones(4)}, metadata={"k": k})
        assert analysis.run(data, progress=False)["s"] == k


def test_a_file_replaced_during_a_run_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "b.parquet"

    def write(value: float) -> None:
        pq.write_table(pa.table({"x": np.full(400_000, value)}), path, row_group_size=140_000)

    write(0.0)
    analysis = wr.Pipeline("replaced")

    @analysis.cut
    def c(x: Any) -> Any:
        return x >= 0

    @analysis.output
    def s(x: Any) -> Any:
        write(1.0)
        return float(x.sum())

    data = wr.data.open(path)
    with pytest.raises(errors.CorruptFileError, match="replaced"):
        # The workers take turns: the last opens the file after another has written to it.
        analysis.run(data, engine="inline", workers=3, chunk=140_000, progress=False)


def test_steps_cannot_write_into_what_others_read() -> None:
    analysis = wr.Pipeline("writes")

    @analysis.column
    def z(x: Any) -> Any:
        return np.abs(x)

    @analysis.column
    def q(z: Any) -> Any:
        z[z > 1] = 1
        return z

    @analysis.output
    def s(q: Any) -> Any:
        return float(q.max())

    with pytest.raises(errors.StepError, match="read-only"):
        analysis.run(source(), progress=False)

    mine = {"x": X.copy()}
    careless = wr.Pipeline("careless")

    @careless.cut
    def c(x: Any) -> Any:
        x[x < 0] = 0
        return x >= 0

    @careless.output
    def n(x: Any) -> Any:
        return len(x)

    with pytest.raises(errors.StepError, match="read-only"):
        careless.run(mine, progress=False)
    assert np.array_equal(mine["x"], X)
    mine["x"][0] = 0  # still the user's to write


@pytest.mark.parametrize("suffix", ["root", "parquet"])
def test_what_an_output_keeps_is_read_before_the_file_is_closed(tmp_path: Path, suffix: str) -> None:
    counts = np.arange(100) % 4
    field = ak.unflatten(np.arange(counts.sum(), dtype=np.float32), counts)
    path = tmp_path / f"late.{suffix}"
    if suffix == "root":
        with uproot.recreate(path) as file:
            tree = file.mktree("Events", {"M": "var * {pt: float32, eta: float32}"})
            tree.extend({"M": ak.zip({"pt": field, "eta": field})})
    else:
        ak.to_parquet(ak.Array({"M_pt": field, "M_eta": field}), path)
    analysis = wr.Pipeline("late")

    @analysis.column
    def mus(M: Any) -> Any:
        return M[M.pt > 10]

    @analysis.output
    def keep(mus: Any) -> Any:
        return [{"mus": mus}, mus]

    result = pickle.loads(pickle.dumps(analysis.run(path, progress=False)))
    expected = ak.sum(field[field > 10])
    assert ak.sum(result["keep"][1].eta) == ak.sum(result["keep"][0]["mus"].eta) == expected


def test_a_column_may_have_a_name_like_a_pattern() -> None:
    analysis = wr.Pipeline("brackets")

    @analysis.output(reads={"p": "n[0]"})
    def s(p: Any) -> Any:
        return float(p.sum())

    assert analysis.run(source(**{"n[0]": np.ones(ROWS)}), progress=False)["s"] == ROWS


def test_the_same_object_for_several_units_is_refused() -> None:
    analysis = wr.Pipeline("global")
    shared = np.zeros(3)

    @analysis.output
    def s(x: Any) -> Any:
        np.add(shared, len(x), out=shared)
        return shared

    with pytest.raises(errors.MergeError, match="same object"):
        analysis.run(source(), progress=False)


def test_the_row_that_fails_is_found_in_a_collection_of_several_clusters(tmp_path: Path) -> None:
    counts = np.ones(20_000, dtype=int)
    counts[15_000] = 0
    field = ak.unflatten(np.arange(counts.sum(), dtype=np.float64), counts)
    path = tmp_path / "mu.parquet"
    ak.to_parquet(ak.Array({"Muon_pt": field, "Muon_eta": field}), path, row_group_size=5000)
    analysis = wr.Pipeline("row")

    @analysis.column
    def lead(Muon: Any) -> Any:
        return Muon.pt[:, 0]

    @analysis.output
    def s(lead: Any) -> Any:
        return float(ak.sum(lead))

    with pytest.raises(errors.StepError, match="row 15000"):
        analysis.run(path, progress=False)


def test_branches_with_counters_of_their_own_are_one_collection(tmp_path: Path) -> None:
    field = ak.unflatten(np.arange(30.0), np.arange(20) % 4)
    with uproot.recreate(tmp_path / "own.root") as file:
        tree = file.mktree("t", {"Muon_pt": "var * float64", "Muon_eta": "var * float64"})
        tree.extend({"Muon_pt": field, "Muon_eta": field * 2})
    analysis = wr.Pipeline("own")

    @analysis.output
    def s(Muon: Any) -> Any:
        return float(ak.sum(Muon.pt) + ak.sum(Muon.eta))

    assert analysis.run(tmp_path / "own.root", progress=False)["s"] == 3 * np.arange(30.0).sum()


def test_a_step_does_not_end_the_program() -> None:
    analysis = wr.Pipeline("exit")

    @analysis.cut
    def c(x: Any) -> Any:
        sys.exit(3)

    @analysis.output
    def n(x: Any) -> Any:
        return len(x)

    with pytest.raises(errors.StepError, match=r"'c'.*sys\.exit\(3\)"):
        analysis.run(source(), progress=False)


def test_a_default_is_one_value() -> None:
    analysis = wr.Pipeline("default")
    with pytest.raises(errors.DefinitionError, match="default of 'z'"):

        @analysis.cut
        def c(x: Any, z: Any = []) -> Any:  # noqa: B006
            return x > 0


def test_a_run_that_ends_does_not_wait_for_long_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment of patience, chunks end before their next step; their rows are missing, nothing else."""
    analysis = wr.Pipeline("patience")
    stopped = threading.Event()
    seen: list[str] = []

    @analysis.column
    def first(x: Any) -> Any:
        seen.append("first")
        if len(seen) == 1:
            os.kill(os.getpid(), signal.SIGINT)  # to the main thread, as from a keyboard
            # Longer than anybody is patient here, whatever else the machine does.
            done.start()
        stopped.wait(20)
        return x

    @analysis.column
    def second(first: Any) -> Any:
        if len(first):  # an empty result is filled in on no rows
            seen.append("second")
        return first

    @analysis.output
    def n(second: Any) -> Any:
        return len(second)

    done = threading.Timer(8.0, stopped.set)
    monkeypatch.setattr(running, "PATIENCE_S", 0.1)
    try:
        result = analysis.run(source(), engine="threads", workers=1, chunk=500, progress=False)
    finally:
        done.cancel()
    assert set(seen) == {"first"}
    assert result.interrupted
    assert (result.ledger.done, result.ledger.missing) == (0, ROWS)


def test_a_limited_run_says_so_and_counts_only_its_rows() -> None:
    analysis = wr.Pipeline("limited")

    @analysis.cut
    def positive(x: Any, y: Any = 1.0) -> Any:
        return (x > -1) & (y > 0)

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    result = analysis.run({"x": np.arange(1000)}, max_rows=200, progress=False)
    assert result["count"] == 200
    assert "only the first 200 rows" in result.notes[0]
    assert any("default used for 200 rows" in note for note in result.notes)


def test_a_step_region_or_save_can_be_taken_away() -> None:
    analysis = wr.Pipeline("renamed")

    @analysis.cut
    def old(x: Any) -> Any:
        return x > 5

    @analysis.cut
    def kept(x: Any) -> Any:
        return x > 1

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    analysis.region("SR", "old", "kept")
    analysis.save("nowhere/{dataset}.parquet")
    analysis.remove("old")
    analysis.remove("nowhere/{dataset}.parquet")
    result = analysis.run({"x": np.arange(10)}, progress=False)
    assert result["count"] == 8
    assert list(result.regions["SR"]) == ["kept"]
    assert result.saved == ()
    with pytest.raises(errors.UnknownNameError, match="'kep' to remove; did you mean 'kept'"):
        analysis.remove("kep")


def test_an_output_that_is_absent_has_a_reason_of_its_own() -> None:
    """The first step that failed on no rows was held against every output, also against those that have a value."""
    analysis = wr.Pipeline("absent")
    analysis.cut(lambda x: x > 10, name="none")
    analysis.column(lambda x: x / x.max(), name="share")
    analysis.output(lambda x: len(x), name="fine")
    analysis.output(lambda x: float(np.min(x)), name="least")
    analysis.output(lambda share: float(share.max()), name="most")
    result = analysis.run({"x": np.arange(4.0)}, engine="inline", progress=False)
    assert result["fine"] == 0
    assert set(result.reasons_absent) == {"least", "most"}
    assert "output 'least' fails on zero rows" in result.reasons_absent["least"]
    assert "column 'share' fails on zero rows" in result.reasons_absent["most"]
