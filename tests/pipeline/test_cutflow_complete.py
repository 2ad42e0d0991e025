"""``cutflow.complete()``: the cuts run once more, and the table is that of the written order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.blocks.pilot import FIRST_ROWS, MORE_ROWS, MOST_ROWS
from windrow.errors import CorruptFileError, DataError, UsageError
from windrow.pipeline.definition.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.pipeline.cutflow.table import Cutflow

ROWS = 4000
TRIED = FIRST_ROWS + MORE_ROWS + 2 * MOST_ROWS  # rows that steps of which nothing is known are tried on


def columns(seed: int = 0, rows: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    common = rng.random(rows)
    made = {name: 0.6 * rng.random(rows) + 0.4 * common for name in "xyz"}
    made["y"][rng.random(rows) < 0.02] = np.nan
    return {**made, "w": rng.gamma(2.0, 0.5, rows), "n": rng.integers(0, 4, rows)}


class Analysis:
    """An analysis that counts how many rows each step is asked about."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        made = self.pipeline = wr.Pipeline("complete")

        @made.weight
        def gen(w: Any) -> Any:
            return self.count("gen", w)

        @made.cut
        def a(x: Any) -> Any:
            return self.count("a", x) > 0.4

        @made.weight
        def sf(x: Any) -> Any:
            return 1.0 + self.count("sf", x)

        @made.cut
        def b(y: Any) -> Any:
            # None, and so on neither side, where y is large.
            return ak.mask(self.count("b", y) < 0.6, ~(y > 0.9))

        @made.column
        def double(z: Any) -> Any:
            return 2.0 * self.count("double", z)

        @made.cut
        def c(double: Any) -> Any:
            return self.count("c", double) > 0.9

        @made.cut(when="is_mc")
        def d(n: Any) -> Any:
            return self.count("d", n) > 1

        made.region("SR", "a", "b", "c", "d")
        made.region("CR", "a", "!b", "c")
        made.region("loose", "c")

        @made.output
        def rows(x: Any) -> int:
            return len(x)

    def count(self, step: str, values: Any) -> Any:
        self.asked[step] += len(values)
        return values

    def run(self, data: Any = None, grid: int = 500, **options: Any) -> wr.Result:
        given_data = {"mc": columns(1), "data": columns(2)} if data is None else data
        metadata = {name: {"is_mc": name == "mc"} for name in given_data}
        source = wr.data.open(given_data, metadata=metadata, grid=grid)
        # Steps are asked twice about some rows, to see that they are row-pure: once and for all.
        self.pipeline.check(source, rows=100)
        self.asked.clear()
        return self.pipeline.run(source, engine="inline", progress=False, **options)


def same(found: Cutflow, exact: Cutflow) -> None:
    for region in exact.regions:
        for dataset in exact.datasets:
            assert found[region, dataset].written == exact[region, dataset].written is not None


EXACT = Analysis().run(order="written").cutflow
MOVED = ["gen", "sf", "c", "d", "b", "a"]


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow])
@given(st.permutations(["a", "b", "c", "d", "sf"]), st.sampled_from([500, 1300, 4000]))
def test_a_completed_table_is_that_of_the_written_order(order: list[str], chunk: int) -> None:
    done = Analysis().run(order=["gen", *order], chunk=chunk).cutflow.complete()
    same(done, EXACT)
    assert all(done[region].kind == "exact, written order" for region in done)


def test_only_cuts_weights_and_what_they_read_run_and_each_as_often_as_written() -> None:
    analysis = Analysis()
    result = analysis.run({"mc": columns(1)}, order=MOVED)
    analysis.asked.clear()
    result.cutflow.complete()
    paid = Counter(analysis.asked)
    again = Analysis()
    again.run({"mc": columns(1)}, order="written")
    assert paid.keys() == again.asked.keys()
    assert all(0 <= paid[step] - asked <= TRIED for step, asked in again.asked.items())


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_completing_runs_on_the_engine_of_the_run(engine: str) -> None:
    source = {"mc": columns(1), "data": columns(2)}
    options: dict[str, Any] = {"engine": engine, "workers": 2, "progress": False}
    moved = plain().run(source, order=["gen", "b", "a"], **options)
    same(moved.cutflow.complete(), plain().run(source, order="written", **options).cutflow)


def test_an_exact_cutflow_is_complete_already() -> None:
    analysis = Analysis()
    result = analysis.run(order="written")
    analysis.asked.clear()
    assert result.cutflow.complete() is result.cutflow
    assert not analysis.asked


def test_a_dataset_that_ran_as_written_is_left_alone() -> None:
    analysis = Analysis()
    result = analysis.run(order=MOVED, cutflow={"mc": "exact"})
    analysis.asked.clear()
    same(result.cutflow.complete(), EXACT)
    assert analysis.asked["a"] <= ROWS + TRIED


def test_only_the_first_rows() -> None:
    exact = Analysis().run(order="written", max_rows=1700).cutflow
    same(Analysis().run(order=MOVED, max_rows=1700).cutflow.complete(), exact)


def test_a_run_in_several_orders_is_completed() -> None:
    """A guard that is learned on the way changes the order, and one chunk runs as written."""
    made = wr.Pipeline("guarded")
    made.cut(lambda x: x > 0.4, name="a")
    made.cut(lambda n: n > 0, name="some")

    @made.cut
    def deep(n: Any, z: Any) -> Any:
        if len(n) and n.min() == 0:
            raise ValueError("nothing there")
        return z / n > 0.2

    made.output(lambda x: len(x), name="rows")
    data = columns(3)
    data["n"][: ROWS // 2] += 1  # nothing goes wrong in the first chunks
    source = wr.data.open({"mc": data}, grid=250)
    exact = made.run(source, order="written", engine="inline", progress=False).cutflow
    moved = made.run(source, order=["deep", "some", "a"], engine="inline", progress=False, chunk=250)
    assert moved.cutflow["all"].orders > 1
    same(moved.cutflow.complete(), exact)


def test_a_continued_run_is_completed(tmp_path: Path) -> None:
    Analysis().run(order=MOVED, rundir=tmp_path, chunk=1000)
    again = Analysis().run(order=MOVED, rundir=tmp_path, resume=True)
    same(again.cutflow.complete(), EXACT)


def test_grouped_scaled_and_merged_cutflows_are_completed() -> None:
    moved, exact = Analysis().run(order=MOVED), Analysis().run(order="written")
    for result, reference in (
        (moved.scale(2.0), exact.scale(2.0)),
        (moved.group({"both": ["mc", "data"]}), exact.group({"both": ["mc", "data"]})),
    ):
        same(result.cutflow.complete(), reference.cutflow)


def test_merged_cutflows_are_completed() -> None:
    options: dict[str, Any] = {"engine": "inline", "progress": False}
    data = {"mc": columns(1), "data": columns(2)}
    exact = plain().run(data, order="written", **options).cutflow
    parts = [plain().run({name: data[name]}, order=["gen", "b", "a"], **options) for name in data]
    same(wr.merge(*parts).cutflow.complete(), exact)


def test_the_last_line_has_the_weights_above_a_cut_that_does_not_apply() -> None:
    def build() -> wr.Pipeline:
        made = wr.Pipeline("late")
        made.cut(lambda x: x > 0.4, name="a")
        made.cut(lambda z: z > 0.5, name="b")
        made.weight(lambda w: w, name="late")
        made.cut(lambda n: n > 1, name="only_mc", when="is_mc")
        made.output(lambda x: len(x), name="rows")
        return made

    source = wr.data.open({"data": columns(1)}, metadata={"data": {"is_mc": False}})
    options: dict[str, Any] = {"engine": "inline", "progress": False}
    exact = build().run(source, order="written", **options).cutflow["all"]
    moved = build().run(source, order=["only_mc", "b", "a", "late"], **options).cutflow["all"]
    assert exact.written is not None
    assert moved.selected.sumw == exact.selected.sumw == exact.written[-1].sumw


def parquet(path: Path, seed: int = 1) -> str:
    ak.to_parquet(ak.zip(columns(seed)), path, row_group_size=1000)
    return str(path)


def plain(limit: float = 0.4) -> wr.Pipeline:
    """Without a counter: what a step reads from outside is part of what it is."""
    made = wr.Pipeline("plain")
    made.weight(lambda w: w, name="gen")
    made.cut(lambda x, *, low=limit: x > low, name="a")
    made.cut(lambda z: z > 0.5, name="b")
    made.output(lambda x: len(x), name="rows")
    return made


def test_a_loaded_result_needs_the_analysis(tmp_path: Path) -> None:
    data = {"mc": parquet(tmp_path / "mc.parquet")}
    options: dict[str, Any] = {"engine": "inline", "progress": False}
    plain().run(data, order=["gen", "b", "a"], rundir=tmp_path / "run", **options)
    exact = plain().run(data, order="written", **options).cutflow
    loaded = wr.load(tmp_path / "run").cutflow
    with pytest.raises(UsageError, match=r"the analysis, result.cutflow.complete\(analysis\)"):
        loaded.complete()
    same(loaded.complete(plain()), exact)
    with pytest.raises(UsageError, match="as it ran: 'a' changed"):
        loaded.complete(plain(0.5))


def test_a_replaced_file_is_refused(tmp_path: Path) -> None:
    result = Analysis().run({"mc": parquet(tmp_path / "mc.parquet")}, order=MOVED)
    parquet(tmp_path / "mc.parquet", seed=7)
    with pytest.raises(CorruptFileError, match=r"mc.parquet was replaced since the run"):
        result.cutflow.complete()


def test_arrays_that_were_not_kept_are_refused(tmp_path: Path) -> None:
    plain().run(columns(), order=["gen", "b", "a"], rundir=tmp_path, engine="inline", progress=False)
    with pytest.raises(DataError, match="arrays in memory"):
        wr.load(tmp_path).cutflow.complete(plain())


def test_a_stream_is_gone() -> None:
    batches = wr.data.stream(iter([columns(1), columns(2)]))
    result = plain().run(batches, order=["gen", "b", "a"], engine="inline", progress=False)
    with pytest.raises(DataError, match=r"a stream is read once"):
        result.cutflow.complete()


def test_rows_that_were_left_out_stay_out() -> None:
    def build() -> wr.Pipeline:
        made = wr.Pipeline("holes")
        made.weight(lambda w: w, name="gen")
        made.cut(lambda x: x > 0.4, name="a")

        @made.cut
        def b(n: Any, z: Any) -> Any:
            if (np.asarray(z) > 0.97).any():
                raise ValueError("too large")
            return n > 1

        made.output(lambda x: len(x), name="rows")
        return made

    options: dict[str, Any] = {"engine": "inline", "progress": False, "on_error": "skip"}
    source = wr.data.open({"mc": columns(1)}, grid=500)
    moved = build().run(source, **options)
    table = moved.cutflow.complete()["all"].written
    assert table is not None
    data = columns(1)
    assert moved.ledger.failed
    assert table[0].passed == ROWS - moved.ledger.failed
    assert table[-1].passed == moved.cutflow["all"].passed
    gone = {row for entry in moved.ledger.problems for row in range(entry.start, entry.stop or 0)}
    left = np.array([row not in gone for row in range(ROWS)])
    assert table[1].passed == int((left & (data["x"] > 0.4)).sum())
    # Rows that are left out divide no unit: the sums have the bits of the run.
    assert table[-1].sumw == moved.cutflow["all"].selected.sumw
    assert table[0].sumw == moved.cutflow["all"].executed[0].sumw


def test_options_that_were_checked_can_be_made_again() -> None:
    """A run that is done again, by ``complete()`` or on another engine, has the options of the first."""
    checked = Options(workers=2, cutflow="exact", order=["a", "b"], max_rows=10)
    assert replace(checked, engine="threads") == replace(checked, engine="threads", chunk="auto")
