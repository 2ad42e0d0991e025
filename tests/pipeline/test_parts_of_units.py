"""Units that are run in parts give what whole units give, bit for bit, whatever becomes of the parts on the way."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

import small_analysis
import windrow as wr
from comparing import bits
from description import MemorySource, build
from searching import examples
from strategies import analyses, filesets
from windrow.blocks import pilot
from windrow.core import rows as feeding
from windrow.core.records import PASSED, StepCost, StepFacts, Terrain
from windrow.errors import DefinitionError, StepError
from windrow.order.control.assumed import LEAST_SEEN, assumed_windows
from windrow.pipeline.run import worker
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from description import Analysis


TWO_CUTS = Terrain(
    steps=tuple(StepFacts(name=name, kind="cut", lanes=(0,), columns=()) for name in "ab"),
    lanes=((("a", False), ("b", False)),),
)


@pytest.fixture(params=[1e-12, 1e9])
def heavy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is found to take long: units are tried, and cut into parts of a few rows; in long runs, and in short ones."""
    monkeypatch.setattr(feeding, "SHORT_S", request.param)
    monkeypatch.setattr(feeding, "PART_S", 1e-12)
    monkeypatch.setattr(worker, "PART_S", 1e-12)
    monkeypatch.setattr(pilot, "_row_s", lambda _: 0.01)


def same(found: wr.Result, expected: wr.Result) -> None:
    assert found.complete
    assert bits(found.outputs) == bits(expected.outputs)
    for region in expected.cutflow:
        for dataset in expected.cutflow.datasets:
            assert found.cutflow[region, dataset].written == expected.cutflow[region, dataset].written
    assert found.ledger == expected.ledger


def ran(analysis: wr.Pipeline | None = None, **options: Any) -> wr.Result:
    source = wr.data.open(small_analysis.arrays(), metadata=small_analysis.METADATA)
    analysis = analysis or small_analysis.analysis()
    return analysis.run(source, order="written", progress=False, **options)


def whole(analysis: wr.Pipeline | None = None) -> wr.Result:
    return ran(analysis, engine="inline")


@settings(max_examples=examples(8))
@given(st.integers(4, 450), st.sampled_from(["inline", "threads"]), st.integers(1, 3))
def test_any_chunk_gives_the_bits_of_whole_units(chunk: int, engine: str, workers: int) -> None:
    same(ran(engine=engine, workers=workers, chunk=chunk), whole())


# --- whole units are the oracle ---------------------------------------------------------------------------------


def accounts(result: wr.Result) -> dict[tuple[str, int], str]:
    """What became of each row."""
    return {
        (entry.file, row): entry.state
        for entry in result.ledger.entries
        for row in range(entry.start, entry.start if entry.stop is None else entry.stop)
    }


def tables(result: wr.Result) -> dict[Any, str]:
    """All counts of rows and weights, to the last digit."""
    found: dict[Any, str] = {}
    for key in [(region, dataset) for region in result.cutflow for dataset in result.cutflow.datasets]:
        table = result.cutflow[key]
        found[key] = repr((table.written, table.executed))
        if len(result.nminus1):
            found["N-1", key] = repr((result.nminus1[key].counts, sorted(result.nminus1[key].failures)))
    return found


def ran_and_saved(analysis: Analysis, datasets: Any, **options: Any) -> tuple[wr.Result, dict[str, str]] | None:
    """Run an analysis that also saves the rows of its regions; None if it is no analysis for these data."""
    pipeline = build(analysis)
    made = [step.name for step in analysis.steps if step.kind != "cut" and not step.when]
    with tempfile.TemporaryDirectory() as folder:
        for number, region in enumerate(analysis.regions):
            name = f"{folder}/{{dataset}}-{number}.parquet"
            pipeline.save(name, columns=["f", "Jet_pt", *made], region=region)
        try:
            result = pipeline.run(MemorySource(datasets), progress=False, order="written", **options)
        except (StepError, DefinitionError) as error:
            note(repr(error))
            return None
        saved = sorted(one for one in Path(folder).iterdir() if one.is_file())
        return result, {one.name: repr(pq.read_table(one).to_pydict()) for one in saved}


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    data=st.data(), chunk=st.integers(1, 12), engine=st.sampled_from(["inline", "threads"]), skip=st.booleans(),
    nminus1=st.booleans(), most=st.none() | st.integers(1, 200),
)  # fmt: skip
def test_random_analyses_in_parts_of_any_size_are_those_of_whole_units(
    data: st.DataObject, chunk: int, engine: str, skip: bool, nminus1: bool, most: int | None
) -> None:
    analysis, datasets = data.draw(analyses()), data.draw(filesets())
    note(analysis.source())
    options: dict[str, Any] = {"max_rows": most, "on_error": "skip" if skip else "stop", "nminus1": nminus1}
    expected = ran_and_saved(analysis, datasets, engine="inline", **options)
    found = ran_and_saved(analysis, datasets, engine=engine, workers=2, chunk=chunk, **options)
    assert (expected is None) == (found is None)
    if expected is None or found is None:
        return
    assert accounts(found[0]) == accounts(expected[0])
    assert bits(found[0].outputs) == bits(expected[0].outputs)
    assert tables(found[0]) == tables(expected[0])
    assert found[1] == expected[1]


def test_the_log_has_the_evaluations_and_counts_every_row_once() -> None:
    result = ran(engine="inline", chunk=100)
    assert result.log is not None
    attempts = read_log(result.log.splitlines()).attempts
    assert sorted(attempts.input.tolist()) == [-1, -1, -1, *[0] * 4, *[1] * 4, *[2] * 4]
    assert attempts.rows.sum() == result.ledger.done == 1200


@pytest.mark.usefixtures("heavy")
@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_what_would_take_long_is_given_back(engine: str) -> None:
    result = ran(engine=engine, workers=2)
    same(result, whole())
    assert result.log is not None
    assert result.log.count('"event":"attempt"') > 5  # of three datasets with a unit each


@pytest.mark.parametrize(("fixed", "per_row", "tasks"), [(0.2, 0.0, 3), (0.02, 0.0, 3), (0.0, 0.01, 6)])
def test_what_a_call_takes_whatever_its_rows_is_no_reason_to_cut(
    fixed: float, per_row: float, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "PART_S", 0.5)
    monkeypatch.setattr(worker, "PART_S", 0.5)
    row_s = pilot._row_s
    monkeypatch.setattr(pilot, "_row_s", lambda times: row_s([(rows, fixed + per_row * rows) for rows, _ in times]))
    result = ran(engine="inline", workers=1)
    assert result.log is not None
    attempts = result.log.count('"event":"attempt"')
    assert attempts == 3 if tasks == 3 else attempts >= tasks


@pytest.mark.parametrize(("on_error", "nminus1"), [("stop", False), ("skip", True)])
def test_in_processes_that_are_killed_at_their_steps_and_at_evaluations(
    on_error: str, nminus1: bool, tmp_path: Path
) -> None:
    home = os.getpid()
    analysis = small_analysis.analysis()

    def die_once(where: str) -> None:
        mark = tmp_path / where
        if os.getpid() != home and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    @analysis.column
    def again(x: Any, event: Any) -> Any:
        for row in set(event.tolist()) & {20, 300, 1111}:
            die_once(f"row {row}")
        if on_error == "skip" and (event % 100 == 7).any():
            raise ValueError("a bad row")
        return x * 2

    @analysis.output
    def doubled(again: Any, weight: Any) -> float:
        die_once("evaluation")
        return float(np.sum(again * weight))

    options: dict[str, Any] = {"on_error": on_error, "nminus1": nminus1}
    found = ran(analysis, engine="processes", workers=2, chunk=37, **options)
    expected = ran(analysis, engine="inline", **options)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evaluation", "row 1111", "row 20", "row 300"]
    assert accounts(found) == accounts(expected)
    assert bits(found.outputs) == bits(expected.outputs)
    assert tables(found) == tables(expected)
    assert (on_error == "skip") == bool(expected.ledger.failed)


def test_a_stream_is_cut_as_finely_as_its_chunks_are_asked_for() -> None:
    seen: list[int] = []
    analysis = wr.Pipeline("flowing")

    @analysis.cut
    def high(x: Any) -> Any:
        seen.append(len(x))
        return x > 0.3

    analysis.region("r", "high")

    @analysis.output
    def total(x: Any) -> float:
        return float(np.sum(x))

    values = np.random.default_rng(3).random(500)
    batches = [{"x": part} for part in np.array_split(values, 7)]
    stream = wr.data.stream(iter(batches), dataset="flow")
    found = analysis.run(stream, engine="threads", workers=2, chunk=9, progress=False)
    assert max(seen) <= 9
    whole = analysis.run({"flow": {"x": values}}, engine="inline", progress=False)
    assert bits(found["total", "r"]) == bits(whole["total", "r"])


def test_a_run_that_failed_in_parts_goes_on_after_the_units_that_are_whole(tmp_path: Path) -> None:
    mark = str(tmp_path / "broken")
    rng = np.random.default_rng(4)
    source = wr.data.open({"one": {"x": rng.random(100)}, "two": {"x": np.sort(rng.random(2_000)) + 1.0}})
    analysis = wr.Pipeline("again")

    @analysis.column
    def slow(x: Any) -> Any:
        if Path(mark).exists() and (x > 1.999).any():
            raise ValueError("no more")
        return x * 2

    @analysis.output(region=None)
    def total(slow: Any) -> float:
        return float(np.sum(slow))

    options: dict[str, Any] = {"engine": "inline", "chunk": 7, "progress": False, "rundir": tmp_path / "run"}
    Path(mark).touch()
    with pytest.raises(StepError):
        analysis.run(source, **options)
    Path(mark).unlink()
    found = analysis.run(source, resume=True, **options)
    # The rows of one are written down. Those of two were in parts of its unit, and are run again.
    assert {entry for entry, *_ in found.reads} == {"two"}
    assert bits(found.outputs) == bits(analysis.run(source, engine="inline", progress=False).outputs)


@pytest.mark.parametrize("chunk", [3, 40])
def test_a_skim_has_the_same_rows_and_columns(chunk: int, tmp_path: Path) -> None:
    def save(to: Path, **options: Any) -> Any:
        analysis = wr.Pipeline("skimmed")

        @analysis.column
        def jets(pt: Any) -> Any:
            return pt[pt > 0.5]

        @analysis.weight
        def w(x: Any) -> Any:
            return wr.updown(x, 2 * x, x / 2)

        @analysis.cut
        def two(jets: Any) -> Any:
            return ak.num(jets) > 1

        analysis.region("two", "two")
        analysis.save(str(to), columns=["x", "jets", "w"], region="two")
        rng = np.random.default_rng(3)
        counts = rng.integers(0, 5, 200)
        pt = ak.unflatten(rng.random(counts.sum()), counts)
        analysis.run({"x": np.arange(200.0), "pt": pt}, engine="inline", progress=False, **options)
        return pq.read_table(to)

    expected = save(tmp_path / "whole.parquet")
    assert expected.num_rows > 20
    assert save(tmp_path / "parts.parquet", chunk=chunk).equals(expected)


def test_parts_of_one_unit_that_ran_in_different_orders() -> None:
    """First and last lines have the bits of the written order, and every executed line counts its own rows."""
    analysis = wr.Pipeline("mixed")
    seen: list[int] = []

    @analysis.weight
    def w(x: Any) -> Any:
        return wr.updown(x + 0.1, x + 0.2, x / 3)

    @analysis.column
    def pairs(x: Any) -> Any:
        return ak.unflatten(np.repeat(x, 2), 2)

    @analysis.cut
    def high(x: Any) -> Any:
        return x > 0.3

    @analysis.cut
    def low(x: Any) -> Any:
        seen.append(len(x))
        if len(seen) > 6 and (x < 0.2).any():  # too early from some point on: the rest is done as written
            raise ValueError("not behind its guard")
        return x < 0.8

    analysis.region("r", "high", "low")

    @analysis.output
    def total(x: Any, pairs: Any, weight: Any) -> float:
        return float(np.sum(x * ak.sum(pairs, axis=1) * weight))

    data = {"x": np.random.default_rng(5).random(300)}
    expected = analysis.run(data, engine="inline", order="written", progress=False)
    seen.clear()
    moved = analysis.run(data, engine="inline", order=["w", "pairs", "low", "high"], chunk=20, progress=False)
    assert len(moved.cutflow["r"]._counts) == 3  # two orders, and what is the same in all
    assert bits(moved.outputs) == bits(expected.outputs)
    table, plain = moved.cutflow["r"], expected.cutflow["r"]
    assert table.selected == plain.selected
    (first,) = (lines[0] for order, lines in table._counts.items() if not order)
    assert bits(first) == bits(next(lines[0] for order, lines in plain._counts.items() if not order))
    orders = {order: lines[:, :2] for order, lines in table._counts.items() if order}
    assert sum(lines[0, 1] for lines in orders.values()) == 300
    assert sum(lines[-1, 1] for lines in orders.values()) == plain.passed


@given(st.integers(0, 2000), st.floats(0, 1), st.floats(0, 1))
def test_assumed_windows_have_the_rates_that_were_seen(rows: int, first: float, second: float) -> None:
    costs = {"a": StepCost(1, rows, int(rows * first), 1.0), "b": StepCost(1, 2 * rows, int(2 * rows * second), 1.0)}
    windows = assumed_windows(TWO_CUTS, (), costs, 100, np.random.default_rng(1))
    if rows < LEAST_SEEN:
        assert windows == ()
        return
    passed = sum((window.verdicts == PASSED).T @ window.rows for window in windows)
    size = sum(window.rows.sum() for window in windows)
    for number, share in enumerate((first, second)):
        assert abs(passed[number] / size - share) < 6 * np.sqrt(0.25 / 2048 + 0.25 / rows / 8) + 2 / rows


@given(st.integers(50, 5000), st.floats(0.1, 0.9), st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_what_two_orders_say_of_cuts_holds_for_assumed_rows(rows: int, a: float, b_after_a: float, b: float) -> None:
    """How often b passes by itself, and how often after a, tells how it depends on a."""

    def ran(order: tuple[str, str], first: float, second: float) -> Any:
        passed = int(rows * first)
        costs = (StepCost(1, rows, passed, 1.0), StepCost(1, passed, int(passed * second), 1.0))
        return order, tuple(zip(order, costs, strict=True))

    assume(int(rows * a) >= LEAST_SEEN and int(rows * b) >= LEAST_SEEN)
    both = a * b_after_a
    assume(max(a + b - 1, 0) + 0.03 < both < min(a, b) - 0.03)  # such cuts can be
    orders = (ran(("a", "b"), a, b_after_a), ran(("b", "a"), b, both / b))
    seen = {name: StepCost(2, 2 * rows, rows, 1.0) for name in "ab"}
    windows = assumed_windows(TWO_CUTS, orders, seen, 100, np.random.default_rng(1))
    assert (
        assumed_windows(TWO_CUTS, orders, seen, 100, np.random.default_rng(1))[3].rows.tolist()
        == windows[3].rows.tolist()
    )
    said = np.concatenate([window.verdicts == PASSED for window in windows])
    counts = np.concatenate([window.rows for window in windows]).astype(float)
    assert counts[said[:, 0]].sum() / counts.sum() == pytest.approx(a, abs=0.05 + 2 / rows)
    assert counts[said[:, 1]].sum() / counts.sum() == pytest.approx(b, abs=0.05 + 2 / rows)
    assert counts[said.all(axis=1)].sum() / counts.sum() == pytest.approx(both, abs=0.05 + 2 / rows)


@pytest.mark.slow
@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("policy", ["adaptive", "hepframe", "rank"])
def test_a_heavy_step_comes_after_a_cheap_cut_although_no_row_was_shown_to_both(policy: str) -> None:
    """The evidence is what ran anyway: how many rows passed each cut, and what each step cost."""
    analysis = wr.Pipeline("heavy")
    asked: list[int] = []

    @analysis.column
    def slow(x: Any) -> Any:
        asked.append(len(x))
        until = time.thread_time() + 0.001 * len(x)
        while time.thread_time() < until:
            pass
        return 2 * x

    @analysis.cut
    def high(slow: Any) -> Any:
        return slow > 0.2

    @analysis.cut
    def cheap(y: Any) -> Any:
        return y < 0.3

    analysis.region("r", "high", "cheap")

    @analysis.output
    def rows(x: Any) -> int:
        return len(x)

    rng = np.random.default_rng(1)
    data = {"x": rng.random(5000), "y": rng.random(5000)}
    result = analysis.run(data, engine="threads", workers=2, order=policy, progress=False)
    assert result["rows", "r"] == int(((data["x"] > 0.1) & (data["y"] < 0.3)).sum())
    assert sum(asked) < 0.9 * 5000  # 0.3 in the best order, 1 as written
    assert "cheap" in str(result.explain())


def test_what_an_output_read_is_let_go_of_with_its_unit_without_waiting_for_the_garbage_collector() -> None:
    analysis = wr.Pipeline("released")
    read: list[weakref.ref[Any]] = []

    @analysis.column
    def wide(x: Any) -> Any:
        return np.stack([x] * 50, axis=1)

    @analysis.cut
    def known(x: Any) -> Any:
        return x > -1

    analysis.region("all", "known")

    @analysis.output
    def total(wide: Any) -> Any:
        read.append(weakref.ref(wide if wide.base is None else wide.base))
        return wide.sum(axis=0)

    gc.collect()
    gc.disable()
    try:
        result = analysis.run({"x": np.arange(2_000.0)}, engine="inline", chunk=300, progress=False)
        assert [one() for one in read] == [None]
    finally:
        gc.enable()
    assert result["total", "all"][0] == 1_999_000


def test_an_output_that_needs_more_than_there_is_for_a_unit_is_named_with_all_its_rows_at_once() -> None:
    analysis = wr.Pipeline("hungry")

    @analysis.cut
    def known(x: Any) -> Any:
        return x > -1

    analysis.region("all", "known")

    @analysis.output
    def total(x: Any) -> Any:
        if len(x) > 5_000:
            np.ones((50_000_000,))
            raise MemoryError
        return x.sum()

    with pytest.raises(wr.errors.EngineError) as found:
        analysis.run({"x": np.arange(20_000.0)}, memory="300 MB", workers=1, chunk=2_000, progress=False)
    said = str(found.value)
    assert said.startswith("outputs of data rows 0 to 20000: "), said
    assert "all rows of a unit at once" in said
    assert len(said) < 1_000
