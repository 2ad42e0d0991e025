"""Rows that are shown to all cuts: which ones, what is learned of them, and that nothing else notices."""

from __future__ import annotations

import builtins
import warnings
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.blocks import calls, columns, cutflow_counts
from windrow.blocks.chunk import Chunk, ChunkRun, Stopped
from windrow.blocks.failing import quiet
from windrow.blocks.probe import lot, places, probe, terrain
from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED, Plan
from windrow.errors import StepError
from windrow.pipeline.binding.bind import bind

# --- which rows -----------------------------------------------------------------------------------


def chunks(borders: list[int], clusters: list[int], cuts: list[int]) -> list[Chunk]:
    """The chunks that unit borders ``cuts`` make of a file."""
    ends = [borders[0], *cuts, borders[-1]]
    return [
        Chunk(
            0,
            "f",
            borders.index(a),
            tuple(b for b in borders if a <= b <= z),
            tuple(sorted({c for c in {*clusters, *borders} if a <= c <= z})),
        )
        for a, z in pairwise(sorted(set(ends)))
    ]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    borders = [0]
    for _ in range(draw(st.integers(1, 12))):
        borders.append(borders[-1] + draw(st.integers(1, 60)))
    clusters = sorted(draw(st.sets(st.integers(0, borders[-1]), max_size=20)))
    return borders, clusters


@given(layouts(), st.integers(1, 70), st.floats(0, 1), st.integers(0, 99), st.data())
def test_the_same_rows_are_chosen_however_a_file_is_cut(
    layout: tuple[list[int], list[int]], rows: int, share: float, seed: int, data: st.DataObject
) -> None:
    borders, clusters = layout
    inner = borders[1:-1]
    cuts = sorted(data.draw(st.sets(st.sampled_from(inner)))) if inner else []

    def chosen(cuts: list[int]) -> list[Any]:
        return [
            place
            for chunk in chunks(borders, clusters, cuts)
            for place in places(chunk, borders, seed, "file", share, rows)
        ]

    whole = chosen([])
    assert chosen(cuts) == whole
    assert {place.share for place in whole} <= {share}
    for unit, unit_rows, start, stop, _ in whole:
        first, last = borders[unit], borders[unit + 1]
        assert unit_rows == last - first
        assert stop - start == min(rows, last - first)
        assert first <= start < stop <= last
        # No more clusters are touched than rows of that number have to touch.
        edges = [first, *[c for c in clusters if first < c < last], last]
        inside = [c for c in edges if start < c < stop]
        if inside:
            assert start in edges
    assert {p.unit for p in whole} == {unit for unit in range(len(borders) - 1) if lot(seed, "file", unit)[0] < share}


def test_units_that_a_chunk_has_in_part_are_not_looked_at() -> None:
    borders = (0, 10, 20, 30)
    chunk = Chunk(0, "f", 0, (5, 10, 20, 27), (5, 10, 20, 27))
    assert [p.unit for p in places(chunk, borders, 0, "f", 1.0, 4)] == [1]
    assert places(chunk, borders, 0, "f", 0.0, 4) == []
    assert places(chunk, borders, 0, "f", 1.0, 0) == []


def test_lots_are_even_and_depend_on_all_there_is() -> None:
    drawn = np.array([lot(7, "file", unit) for unit in range(4000)])
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts, _, _ = np.histogram2d(drawn[:, 0], drawn[:, 1], bins=4, range=[[0, 1], [0, 1]])
    # 250 expected in each of 16 cells; five standard deviations.
    assert (np.abs(counts - 250) < 5 * np.sqrt(250)).all()
    assert len({lot(7, "file", 1), lot(8, "file", 1), lot(7, "other", 1), lot(7, "file", 11)}) == 4


def test_all_places_of_a_cluster_are_chosen() -> None:
    borders = tuple(range(0, 30 * 3000 + 1, 30))
    chunk = Chunk(0, "f", 0, borders, tuple(range(0, borders[-1] + 1, 15)))
    starts = [p.start % 15 for p in places(chunk, borders, 1, "f", 1.0, 5)]
    counts = np.bincount(starts, minlength=11)
    assert len(counts) == 11  # a window of five lies in a cluster of fifteen
    assert counts.min() > 3000 / 11 * 0.6


# --- what is seen ---------------------------------------------------------------------------------


def opened(
    analysis: wr.Pipeline, columns: dict[str, Any], unit: int = 40, order: Any = None
) -> tuple[ChunkRun, Plan, tuple[int, ...]]:
    reader = wr.data.open(columns).open(0)
    definition = analysis.definition(5)
    program = bind(definition, "data", {}, reader.info, "file.root")
    rows = reader.info.rows
    borders = (*range(0, rows, unit), rows)
    chunk = Chunk(0, "file.root", 0, borders, borders)
    run = ChunkRun(program, reader, chunk, order or definition.written, {})
    plan = Plan(
        id=0, category="data", order=run.order, written=definition.written, sample=1.0,
        sample_rows=16,
    )  # fmt: skip
    return run, plan, borders


def look(run: ChunkRun, plan: Plan, borders: Any, after: Any) -> Any:
    """Look at the chosen rows of a chunk; return the guards that were learned."""
    seen = probe(run, plan, borders, after)
    run.windows = seen.windows
    return seen.guards


def declared(analysis: wr.Pipeline) -> list[tuple[str, str]]:
    steps = analysis.definition(5).steps.values()
    return [(step.name, cut) for step in steps for cut in step.after]


def patterns(window: Any) -> dict[tuple[int, ...], int]:
    return dict(zip(map(tuple, window.verdicts.tolist()), window.rows.tolist(), strict=True))


def counted(rows: Any) -> dict[tuple[int, ...], int]:
    found: dict[tuple[int, ...], int] = {}
    for row in rows:
        key = tuple(int(one) for one in row)
        found[key] = found.get(key, 0) + 1
    return found


def counting_pipeline() -> wr.Pipeline:
    analysis = wr.Pipeline("seen")
    analysis.weight(lambda x: 1.0 + x / 8, name="early")
    analysis.cut(lambda x: x > 3, name="big")
    analysis.column(lambda x, y: x + y, name="both")
    analysis.cut(lambda J: ak.firsts(J) > 2, name="first")
    analysis.weight(lambda y: wr.updown(y / 4, y / 2, y / 8), name="late")
    analysis.cut(lambda both: both % 2 == 0, name="even")
    analysis.cut(lambda x: x > 100, name="unused")
    analysis.region("A", "big", "first", "even")
    analysis.region("B", "!big", "even")
    analysis.output(lambda x, weight: float((x * weight).sum()), name="out")
    return analysis


def numbers(rows: int = 200) -> dict[str, Any]:
    random = np.random.default_rng(3)
    counts = random.integers(0, 4, rows)
    return {
        "x": random.integers(0, 8, rows).astype(float),
        "y": random.integers(1, 5, rows).astype(float),
        "J": ak.unflatten(random.integers(0, 5, counts.sum()).astype(float), counts),
    }


def test_a_window_has_what_numpy_says_of_its_rows() -> None:
    columns = numbers()
    run, plan, borders = opened(counting_pipeline(), columns)
    assert look(run, plan, borders, ()) == ()
    assert sorted(run.windows) == [0, 1, 2, 3, 4]
    x, y = columns["x"], columns["y"]
    firsts = ak.to_list(ak.firsts(columns["J"]))
    for unit, window in run.windows.items():
        assert (window.unit, window.unit_rows, window.size, window.input) == (unit, 40, 16, 0)
        assert 40 * unit <= window.start < window.stop <= 40 * unit + 40
        assert window.cuts == ("big", "first", "even")
        assert window.weights == ("early", "late")
        assert window.order == run.order
        assert window.share == min(plan.sample, 1.0)
        part = range(window.start, window.stop)
        rows = [
            (
                PASSED if x[n] > 3 else FAILED,
                UNDEFINED if firsts[n] is None else PASSED if firsts[n] > 2 else FAILED,
                PASSED if (x[n] + y[n]) % 2 == 0 else FAILED,
            )
            for n in part
        ]
        assert patterns(window) == counted(rows)
        assert window.sums is not None
        for number, pattern in enumerate(window.verdicts.tolist()):
            mine = [n for n, row in zip(part, rows, strict=True) if list(row) == pattern]
            early = 1 + x[mine] / 8
            # The second weight is asked for rows that cuts above it let pass: region A's or B's.
            asked = (pattern[0] == PASSED and pattern[1] == PASSED) or pattern[0] == FAILED
            both = early * (y[mine] / 4 if asked else 1)
            expected = [[w.sum(), (w * w).sum()] for w in (np.ones(len(mine)), early, both)]
            np.testing.assert_allclose(window.sums[number], expected)


def test_a_guarded_cut_is_asked_only_where_its_guard_passes() -> None:
    columns = numbers()
    asked: list[int] = []

    def second(J: Any) -> Any:
        asked.append(len(J))
        return J[:, 1] > 2

    def build(**options: Any) -> wr.Pipeline:
        analysis = wr.Pipeline("guarded")
        analysis.cut(lambda x: x > 3, name="big")
        analysis.cut(lambda J: ak.num(J) >= 2, name="two")
        analysis.column(lambda y: y * 2, name="twice")
        analysis.cut(second, name="second", **options)
        analysis.cut(lambda twice: twice > 2, name="last")
        analysis.region("A", "big", "two", "second", "last")
        analysis.region("B", "two", "second")
        analysis.output(lambda x: len(x), name="out")
        return analysis

    expected = []
    lists = ak.to_list(columns["J"])
    for n, values in enumerate(lists):
        two = len(values) >= 2
        last = PASSED if columns["y"][n] > 1 else FAILED
        mine = NOT_ASKED if not two else PASSED if values[1] > 2 else FAILED
        expected.append((PASSED if columns["x"][n] > 3 else FAILED, PASSED if two else FAILED, mine, last))
    # Declared by the user, known from before, or learned on the spot: the window is the same.
    for options, guards in (({"after": "two"}, ()), ({}, (("second", "two"),)), ({}, ())):
        analysis = build(**options)
        run, plan, borders = opened(analysis, columns)
        known = [*declared(analysis), *guards]
        learned = look(run, plan, borders, known)
        assert learned == (() if known else (("second", "two"),))
        for window in run.windows.values():
            assert patterns(window) == counted(expected[window.start : window.stop])


def test_a_guard_of_one_region_does_not_guard_in_another() -> None:
    """Region C has the step without the cut: there it is asked about every row."""
    analysis = wr.Pipeline("lanes")
    analysis.cut(lambda x: x > 3, name="big")
    analysis.cut(lambda x: x % 2 == 0, name="even", after="big")
    analysis.region("A", "big", "even")
    analysis.region("B", "!big", "even")
    analysis.output(lambda x: len(x), name="out")
    x = np.arange(40.0) % 8
    for more in (False, True):  # both sides of the guard together are all rows, too
        if more:
            analysis.region("C", "even")
        run, plan, borders = opened(analysis, {"x": x})
        look(run, plan, borders, declared(analysis))
        (window,) = run.windows.values()
        part = x[window.start : window.stop]
        assert patterns(window) == counted(zip(part > 3, part % 2 == 0, strict=True))
    lonely = wr.Pipeline("lonely")
    lonely.cut(lambda x: x > 3, name="big")
    lonely.cut(lambda x: x % 2 == 0, name="even", after="big")
    lonely.region("A", "!big", "even")
    lonely.output(lambda x: len(x), name="out")
    run, plan, borders = opened(lonely, {"x": x})
    look(run, plan, borders, declared(lonely))
    (window,) = run.windows.values()
    part = x[window.start : window.stop]
    assert patterns(window) == counted(
        (big, NOT_ASKED if big else even) for big, even in zip(part > 3, part % 2 == 0, strict=True)
    )


def test_two_guards_are_learned_where_one_does_not_explain_all() -> None:
    def fragile(x: Any) -> Any:
        if ((x < 2) | (x > 5)).any():
            raise ValueError("out of range")
        return x == 3

    analysis = wr.Pipeline("two guards")
    analysis.cut(lambda x: x >= 2, name="low")
    analysis.cut(lambda x: x % 2 == 0, name="other")
    analysis.cut(lambda x: x <= 5, name="high")
    analysis.cut(fragile)
    analysis.output(lambda x: len(x), name="out")
    x = np.arange(80.0) % 8
    run, plan, borders = opened(analysis, {"x": x})
    assert set(look(run, plan, borders, ())) == {("fragile", "low"), ("fragile", "high")}
    for window in run.windows.values():
        part = x[window.start : window.stop]
        asked = (part >= 2) & (part <= 5)
        fragile_says = np.where(asked, part == 3, NOT_ASKED)
        columns = (part >= 2, part % 2 == 0, part <= 5, fragile_says)
        assert patterns(window) == counted(zip(*columns, strict=True))


def test_what_raises_for_all_rows_together_is_kept_below_every_cut() -> None:
    def whole(x: Any) -> Any:
        if len(x) > 3 and x.min() < 4:
            raise ValueError("too many small ones")
        return x > 5

    analysis = wr.Pipeline("whole")
    analysis.cut(lambda x: x >= 0, name="idle")
    analysis.cut(lambda x: x >= 4, name="large")
    analysis.cut(whole)
    analysis.cut(lambda x: x >= 0, name="below")
    analysis.region("A", "idle", "large", "whole", "below")
    analysis.output(lambda x: len(x), name="out")
    run, plan, borders = opened(analysis, {"x": np.arange(40.0) % 8})
    assert set(look(run, plan, borders, ())) == {("whole", "idle"), ("whole", "large")}


def test_what_raises_in_the_written_order_too_teaches_nothing() -> None:
    def broken(x: Any) -> Any:
        if (x == 7).any():
            raise ValueError("seven")
        return x > 1

    analysis = wr.Pipeline("broken")
    analysis.cut(lambda x: x >= 0, name="idle")
    analysis.cut(broken)
    analysis.cut(lambda x: x > 2, name="fine")
    analysis.output(lambda x: len(x), name="out")
    x = np.arange(40.0) % 8
    run, plan, borders = opened(analysis, {"x": x})
    assert look(run, plan, borders, ()) == ()
    (window,) = run.windows.values()
    part = x[window.start : window.stop]
    expected = [(1, NOT_ASKED if v == 7 else v > 1, v > 2) for v in part]
    assert patterns(window) == counted(expected)


# --- and nothing else notices ---------------------------------------------------------------------


class Broken:
    """A reader that cannot read one column."""

    def __init__(self, reader: Any, column: str) -> None:
        self._reader, self._column = reader, column

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, columns: Any, start: int, stop: int) -> Any:
        if self._column in columns:
            raise OSError("gone")
        return self._reader.read(columns, start, stop)


def test_unreadable_columns_give_no_window_and_are_met_again_by_the_run() -> None:
    analysis = counting_pipeline()
    run, plan, borders = opened(analysis, numbers())
    run.store.reader = Broken(run.store.reader, "y")
    assert look(run, plan, borders, ()) == ()
    assert run.windows == {}
    with pytest.raises(OSError, match="gone"):
        run.run()


def test_a_run_that_ends_does_not_wait_for_a_look() -> None:
    run, plan, borders = opened(counting_pipeline(), numbers())
    run._stopping = lambda: True
    with pytest.raises(Stopped):
        look(run, plan, borders, ())


def test_looking_leaves_the_run_as_it_was_and_reads_nothing_twice() -> None:
    plain, _, _ = opened(counting_pipeline(), numbers())
    expected = plain.run()
    run, plan, borders = opened(counting_pipeline(), numbers())
    run.run_steps()
    meters, made = dict(run.meters), dict(run.store._made)
    stored = {name: one.array for name, one in run.store._stored.items()}
    seen = probe(run, plan, borders, ())
    assert (run.meters, run.store._made) == (meters, made)
    assert all(one.array is stored[name] for name, one in run.store._stored.items())  # no column is put together anew
    assert {name: meter.calls for name, meter in seen.costs.items()} == dict.fromkeys(run.program.steps, 5)
    partial = run.finish()
    leaves = {place: leaf.outputs for place, leaf in partial.nodes.values.items()}
    assert leaves.keys() == expected.nodes.values.keys()
    for place, outputs in leaves.items():
        for key, value in outputs.items():
            assert value.value == expected.nodes.values[place].outputs[key].value
    reads = [(c, row) for c, start, stop in run.store.reader.reads for row in range(start, stop)]
    assert len(reads) == len(set(reads))


def test_another_attempt_keeps_the_windows_and_says_in_which_order_it_ran() -> None:
    run, plan, borders = opened(counting_pipeline(), numbers())
    look(run, plan, borders, ())
    order = tuple(reversed(run.order))
    again = run.again(order, run.rows)
    assert again.windows.keys() == run.windows.keys()
    assert {window.order for window in again.windows.values()} == {order}


def test_random_numbers_are_those_of_the_run() -> None:
    analysis = wr.Pipeline("random", identity=("event",))
    analysis.cut(lambda x, *, rng: rng("keep").uniform() < 0.5, name="keep")
    analysis.output(lambda event: event.tolist(), name="out")
    columns = {"x": np.zeros(120), "event": np.arange(1000, 1120)}
    run, plan, borders = opened(analysis, columns)
    look(run, plan, borders, ())
    run.run()
    kept = set(run.selections[0].positions().tolist())
    for window in run.windows.values():
        passed = sum(row in kept for row in range(window.start, window.stop))
        assert patterns(window).get((PASSED,), 0) == passed
    assert sum(window.size for window in run.windows.values()) == 48


def test_patterns_of_more_cuts_than_fit_a_number() -> None:
    analysis = wr.Pipeline("many")
    random = np.random.default_rng(9)
    table = random.random((60, 50)) < 0.9
    for number in range(50):
        analysis.cut(lambda row, *, number=number: table[row.astype(int), number], name=f"cut{number}")
    analysis.output(lambda row: len(row), name="out")
    run, plan, borders = opened(analysis, {"row": np.arange(60)}, unit=60)
    look(run, plan, borders, ())
    (window,) = run.windows.values()
    assert patterns(window) == counted(table[window.start : window.stop])


# --- terrain and costs ----------------------------------------------------------------------------


def test_terrain_says_what_steps_read_and_what_that_weighs() -> None:
    columns = numbers()
    run, _, _ = opened(counting_pipeline(), columns)
    info = run.store.reader.info
    found = terrain(run.program, info)
    steps = {step.name: step for step in found.steps}
    assert list(steps) == ["early", "big", "both", "first", "late", "even"]
    assert steps["both"].columns == (("x", 8.0), ("y", 8.0))
    assert steps["even"] == ("even", "cut", (0, 1), ())
    assert steps["first"].lanes == (0,)
    assert steps["first"].columns == (("J", info.columns["J"].stored_bytes / 200),)
    assert found.lanes == ((("big", False), ("first", False), ("even", False)), (("big", True), ("even", False)))
    free = terrain(run.program, info, in_memory=True)
    assert {size for step in free.steps for _, size in step.columns} == {0.0}


def test_reading_is_timed_apart_from_the_step() -> None:
    run, _, _ = opened(counting_pipeline(), numbers())
    run.run()
    costs = {name: meter.cost() for name, meter in run.meters.items()}
    assert costs["early"].read_s > 0
    assert costs["early"].bytes_read > 0
    assert costs["even"].read_s == 0 == costs["even"].bytes_read
    again = run.again(run.order, run.rows)
    assert again.meters["early"].read_s == costs["early"].read_s


@pytest.mark.parametrize("each", [False, True])
def test_identities_read_for_random_numbers_are_no_cost_of_the_step(
    monkeypatch: pytest.MonkeyPatch, each: bool
) -> None:
    analysis = wr.Pipeline("drawing", identity=("event",))
    step = analysis.column(each=each, name="y")

    @step
    def y(x: Any, *, rng: Any) -> Any:
        return x + rng("a").normal()

    analysis.output(lambda y: len(y), name="out")
    now = [0.0]
    for module in (calls, columns):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
        monkeypatch.setattr(module, "thread_time", lambda: 0.0)
    run, _, _ = opened(analysis, {"x": np.arange(80.0), "event": np.arange(80)})
    read = run.store.reader.read

    def slow(names: Any, start: int, stop: int) -> Any:
        now[0] += 1.0
        return read(names, start, stop)

    monkeypatch.setattr(run.store.reader, "read", slow)
    run.run()
    cost = run.meters["y"].cost()
    assert cost.read_s == now[0] >= 2.0
    assert cost.wall == 0.0


def test_what_all_units_have_in_common_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    known = cutflow_counts.initial_weights

    def noted(program: Any) -> Any:
        asked.append(program)
        return known(program)

    monkeypatch.setattr(cutflow_counts, "initial_weights", noted)
    run, _, _ = opened(counting_pipeline(), numbers(), unit=2)
    assert len(run.borders) > 100
    run.run()
    assert len(asked) < 10


# --- floating-point warnings ----------------------------------------------------------------------


@pytest.mark.filterwarnings("always")
def test_what_would_be_printed_is_not_and_the_rest_is_the_users() -> None:
    zero = np.zeros(3)
    with warnings.catch_warnings(record=True) as caught:
        with quiet():
            assert np.isnan(zero / zero).all()
        with np.errstate(divide="raise"), quiet(), pytest.raises(FloatingPointError):
            1 / zero
        heard: list[str] = []
        with np.errstate(divide="call", call=lambda kind, _: heard.append(kind)), quiet():
            1 / zero
        assert len(heard) == 1
        assert not caught
        with quiet(moved=False):
            1 / zero
    assert caught


@pytest.mark.parametrize(
    ("filters", "raises"),
    [
        (["error"], True),
        (["error::RuntimeWarning"], True),
        (["error", "ignore::DeprecationWarning"], True),
        (["default", "error:divide by zero"], True),
        (["error", "ignore:something else"], True),
        (["error", "default"], False),  # the last one given is the first that is asked
        (["error", "ignore::RuntimeWarning"], False),
        (["default", "error::DeprecationWarning"], False),
        (["default"], False),
        ([], False),
    ],
)
def test_warnings_that_are_exceptions_stay_exceptions(filters: list[str], raises: bool) -> None:
    zero = np.zeros(3)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for one in filters:
            action, text, category = (*one.split(":"), "", "")[:3]
            kind = getattr(builtins, category) if category else Warning
            warnings.filterwarnings(action, text, kind)  # type: ignore[arg-type]
        expected = pytest.raises(RuntimeWarning, match="divide") if raises else nullcontext()
        with quiet(), expected:
            1 / zero


@pytest.mark.parametrize("order", ["written", ["inverse", "first"]])
def test_a_moved_order_raises_what_the_user_asked_for(order: Any) -> None:
    analysis = wr.Pipeline("strict")
    analysis.cut(lambda y: y > 0, name="first")
    analysis.cut(lambda x: 1 / x > 0.3, name="inverse")
    analysis.output(lambda x: len(x), name="out")
    data = {"x": np.arange(40.0) % 4, "y": np.arange(40.0) % 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StepError, match="divide by zero"):
            analysis.run(data, order=order, engine="inline", progress=False)


def test_a_moved_order_is_silent_and_the_written_one_warns() -> None:
    analysis = wr.Pipeline("floating")
    analysis.cut(lambda x: x > 0, name="positive")
    analysis.cut(lambda x: 1 / x > 0.3, name="inverse")
    analysis.cut(lambda x: np.log(x - 1) > -9, name="own")
    analysis.output(lambda x: x.tolist(), name="out")
    for order, warns in ((("inverse", "positive", "own"), False), (None, True)):
        run, _, _ = opened(analysis, {"x": np.arange(40.0) % 4}, order=order)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run.run()
        assert ["log" in str(one.message) for one in caught] == [True] * warns
