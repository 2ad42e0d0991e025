"""Partitioners against the tables of the sources, and every scheme against what holds of all."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import UnknownNameError, UsageError
from windrow.loops.options import LoopOptions
from windrow.place.loop_simulation import simulate_loop
from windrow.place.topology import Topology
from windrow.shape.partition import partition, register
from windrow.shape.partition.adaptive import adaptive_factoring_rows
from windrow.shape.partition.partitioner import Partitioner
from windrow.shape.partition.schemes import FLAVOURS, _registered, names
from windrow.shape.partition.state import Costs, LoopState


def rows(text: str) -> list[int]:
    """Read "125x4 63"."""
    found: list[int] = []
    for part in text.split():
        size, _, times = part.partition("x")
        found += [int(size)] * int(times or 1)
    return found


#: 1,000 rows, 4 workers: how many chunks, how they begin, and the last one.
DAPHNE = {
    "STATIC": (4, "250x4", 250),
    "SS": (1000, "1x12", 1),
    "GSS": (22, "250 188 141 106 79 59 45 33 25 19 14 11 8 6 4 3 3 2 1x4", 1),
    "TSS": (13, "125 117 109 101 93 85 77 69 61 53 45 37 28", 28),
    "FAC2": (28, "125x4 63x4 32x4 16x4 8x4 4x4 2x4", 2),
    "TFSS": (41, "125 110 96 84 74 64 56 49 43 38 33 29", 1),
    "FISS": (12, "28 40 52 64 76 88 100 112 124 136 148 32", 32),
    "VISS": (24, "1x4 28x4 56x4", 44),
    "PLS": (24, "125x5 94 71 53 40 30 22 17", 1),
    "PSS": (32, "167 139 116 97 81 67 56 47 39 32 27 22", 1),
    "MSTATIC": (16, "63x15 55", 55),
    "MFSC": (32, "32x31 8", 8),
    "AUTO": (16, "63x15 55", 55),
}
LITERATURE = {
    "STATIC": (4, "250x4", 250),
    "GUIDED": (48, "125 109 95 83 73 64 56 49 43 37 33 29", 1),
    "TSS": (13, "125 117 109 101 93 85 77 69 61 53 45 37", 28),
    "FAC2": (28, "125x4 63x4 32x4", 2),
    "FAC2-BATCH": (32, "125x4 63x4 31x4", 1),
    "TFSS": (14, "113x4 81x4 49x4", 11),
    "FISS": (13, "50x4 83x4 116x4", 4),
    "VISS": (12, "62x4 93x4 108x3 56", 56),
    "MFSC": (33, "31x32", 8),
    "PLS": (19, "125x5 94 71 53 40 30 23 17", 3),
    "AUTO": (143, "7x142", 6),
}
#: Rows, workers, grain.
SMALL = {
    ("GSS", 1000, 4, 10): "250 188 141 106 79 59 45 33 25 19 14 11 10x3",
    ("FAC2", 1000, 4, 10): "125x4 63x4 32x4 16x4 10x5 6",
    ("VISS", 1000, 4, 10): "10x4 28x4 56x15 8",
    ("SS", 1000, 4, 10): "10x100",
    ("TSS", 10, 1, 1): "5 4 1",
    ("FAC2", 10, 1, 1): "5 3 2",
    ("FISS", 10, 1, 1): "2 6 2",
    ("VISS", 10, 1, 1): "1 2 4 3",
    ("PLS", 10, 1, 1): "5 5",
    ("PSS", 10, 1, 1): "7 2 1",
    ("MSTATIC", 10, 1, 1): "3 3 3 1",
    ("MFSC", 10, 1, 1): "4 4 2",
    ("GSS", 8, 4, 1): "2 2 1 1 1 1",
    ("FISS", 8, 4, 1): "1 3 4",
    ("MFSC", 8, 4, 1): "2 2 2 2",
    ("MFSC", 3, 4, 1): "3",
    ("STATIC", 250, 4, 1): "62x4 2",
    ("GSS", 250, 4, 1): "63 47 35 27 20 15 11 8 6 5 4 3 2 1x4",
    ("TSS", 250, 4, 1): "32 30 28 26 24 22 20 18 16 14 12 8",
    ("FAC2", 250, 4, 1): "31x4 16x4 8x4 4x4 2x4 1x6",
}


@pytest.mark.parametrize("name", DAPHNE)
def test_the_table_of_daphne(name: str) -> None:
    count, begin, last = DAPHNE[name]
    chunks = partition(1000, 4, name)
    assert (len(chunks), chunks[-1], sum(chunks)) == (count, last, 1000)
    assert chunks[: len(rows(begin))] == rows(begin)


@pytest.mark.parametrize("name", LITERATURE)
def test_the_table_of_the_literature(name: str) -> None:
    count, begin, last = LITERATURE[name]
    chunks = partition(1000, 4, name, flavour="literature")
    assert (len(chunks), chunks[-1], sum(chunks)) == (count, last, 1000)
    assert chunks[: len(rows(begin))] == rows(begin)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_few_rows_and_grains(case: tuple[str, int, int, int]) -> None:
    name, count, workers, grain = case
    assert partition(count, workers, name, grain=grain) == rows(SMALL[case])


@pytest.mark.parametrize("name", sorted(set(DAPHNE) - {"MFSC"}))
def test_fewer_rows_than_workers(name: str) -> None:
    assert partition(3, 4, name) == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "sigma", "begin", "count"),
    [
        ("FAC", 0.3, "244x4 3x4 2x4", 16),
        ("FAC", 0.0, "250x4", 4),
        ("FAC", 1.0, "229x4 9x4 5x4", 28),
        ("TAP", 0.3, "244 184 138 105 79 60 45 34 26 20 15 12", 24),
        ("AF", 0.0, "100x4 150 113 85 63 48 36 27 20 15 11", 24),
        ("AF", 0.3, "100x4 143 109 82 62 47 36 28 21 16 12", 28),
        ("AF", 1.0, "100x4 128 99 76 59 46 36 29 23 18 15", 37),
    ],
)
def test_chunks_by_mean_and_deviation(name: str, sigma: float, begin: str, count: int) -> None:
    made = Partitioner(name, 1000, 4, costs=Costs(1.0, sigma))
    chunks = [stop - start for start, stop in iter(made.cut, None)]
    assert chunks[: len(rows(begin))] == rows(begin)
    assert len(chunks) == count


def test_the_size_of_fsc() -> None:
    assert partition(1000, 4, "FSC", costs=Costs(1.0, 0.3, 0.5))[0] == 63


@pytest.mark.parametrize(
    ("left", "means", "sigmas", "first", "last"),
    [
        (600, (1, 1, 1, 2), (0.1, 0.1, 0.1, 0.2), 169, 85),
        (600, (1, 1, 1, 2), (0.5, 0.5, 0.5, 1), 158, 79),
        (600, (1, 1, 1, 1), (0, 0, 0, 0), 150, 150),
        (1000, (1, 1, 1, 1), (0.3, 0.3, 0.3, 0.3), 241, 241),
    ],
)
def test_the_formula_of_adaptive_factoring(
    left: int, means: tuple[float, ...], sigmas: tuple[float, ...], first: int, last: int
) -> None:
    each = list(zip(means, sigmas, strict=True))
    assert adaptive_factoring_rows(left, means[0], each) == first
    assert adaptive_factoring_rows(left, means[-1], each) == last


def simulated(name: str, slower: tuple[float, ...], overhead_s: float = 0.0) -> Any:
    queues = LoopOptions(partition=name).make_queues(1000, Topology((0,) * 4))
    return simulate_loop(queues, range(1001), 4, overhead_s=overhead_s, slower=slower)


SLOW = (1.0, 1.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("name", "overhead", "makespan", "count"),
    [
        ("AWF-B", 0, 286, 24),
        ("AWF-D", 0, 286, 24),
        ("AWF-C", 0, 286, 35),
        ("AWF-E", 0, 286, 35),
        ("AWF-B", 5, 322, 26),
        ("AWF-C", 5, 334, 35),
        ("AWF-D", 5, 323, 26),
        ("AWF-E", 5, 334, 35),
    ],
)
def test_weighted_factoring_where_one_worker_is_slow(name: str, overhead: int, makespan: int, count: int) -> None:
    trace = simulated(name, SLOW, overhead)
    assert round(trace.makespan) == makespan
    assert len(trace.chunks) == count


def test_weighted_factoring_in_the_order_of_requests() -> None:
    chunks = sorted(simulated("AWF-B", SLOW).chunks, key=lambda one: (one.asked, one.worker))
    found = [(one.stop - one.start, one.worker) for one in chunks]
    assert found[:4] == [(125, 0), (125, 1), (125, 2), (125, 3)]
    assert found[4:10] == [(63, 0), (63, 1), (63, 2), (63, 0), (32, 1), (32, 2)]
    assert (10, 3) in found
    by_chunk = sorted(simulated("AWF-C", SLOW).chunks, key=lambda one: (one.asked, one.worker))
    assert [one.stop - one.start for one in by_chunk][4:10] == [63, 55, 48, 42, 37, 32]


def test_weighted_factoring_of_equal_workers_is_factoring() -> None:
    assert [one.stop - one.start for one in simulated("AWF-B", (1.0,) * 4).chunks] == partition(1000, 4, "FAC2")
    assert len(simulated("AWF-C", (1.0,) * 4).chunks) == 40


@given(
    name=st.sampled_from(names()),
    flavour=st.sampled_from(FLAVOURS),
    count=st.integers(1, 3000),
    workers=st.integers(1, 70),
    grain=st.integers(1, 400),
    sigma=st.sampled_from([0.0, 0.2, 3.0]),
)
def test_every_scheme_gives_all_rows_once(
    name: str, flavour: str, count: int, workers: int, grain: int, sigma: float
) -> None:
    costs = Costs(1e-3, sigma * 1e-3, 1e-4) if sigma else None
    chunks = partition(count, workers, name, grain=grain, flavour=flavour, costs=costs)
    assert sum(chunks) == count
    assert all(size > 0 for size in chunks)
    assert all(size >= grain for size in chunks[:-1])


def test_no_rows_are_no_chunks() -> None:
    assert all(partition(0, 4, name) == [] for name in names())


# --- schemes of users, and mistakes -------------------------------------------------------------------


@pytest.fixture
def thirds() -> Any:
    register("THIRDS", lambda state: -(-state.left // 3))
    yield "THIRDS"
    del _registered["THIRDS"]


def test_a_registered_scheme_is_known_by_its_name(thirds: str) -> None:
    assert partition(10, 2, thirds) == [4, 2, 2, 1, 1]
    assert partition(10, 2, lambda state: 5) == [5, 5]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _: 0, "gave 0 rows for chunk 0; it has to be 1 to the 10"),
        (lambda _: -3, "gave -3 rows"),
        (lambda _: 11, "gave 11 rows"),
        (lambda _: 2.5, "a whole number of rows, and gave 2.5"),
        (lambda _: None, "gave None"),
        (lambda state: state.nothing, "raised for chunk 0: AttributeError"),
    ],
)
def test_what_a_scheme_may_not_answer(answer: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        partition(10, 2, answer)


def test_unknown_names_are_told_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'GSS'.*STATIC, SS, GSS"):
        partition(10, 2, "GSSS")
    with pytest.raises(UnknownNameError, match="flavour"):
        partition(10, 2, "GSS", flavour="dahpne")
    assert partition(10, 2, "gss") == partition(10, 2, "GSS")


@pytest.mark.parametrize(("what", "value"), [("rows", -1), ("workers", 0), ("grain", 0), ("rows", 1.5)])
def test_numbers_that_make_no_sense(what: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{what}="):
        partition(**{"rows": 10, "workers": 2, "scheme": "GSS", "grain": 1, what: value})


def test_names_are_not_registered_twice_over_ours() -> None:
    with pytest.raises(UsageError, match="there is a partitioner 'GSS' already"):
        register("GSS", lambda state: 1)
    with pytest.raises(UsageError, match="has to be a function"):
        register("MINE", 3)  # type: ignore[arg-type]


# --- ours ---------------------------------------------------------------------------------------------


def auto_trace(cost: Any, workers: int = 4, count: int = 20_000, **options: Any) -> tuple[Any, Any]:
    queues = LoopOptions(partition="auto").make_queues(count, Topology((0,) * workers))
    sums = [0.0, *itertools.accumulate(cost(row) for row in range(count))]
    return simulate_loop(queues, sums, workers, **options), queues


def best(cost: Any, workers: int = 4, count: int = 20_000, **options: Any) -> float:
    found = []
    sums = [0.0, *itertools.accumulate(cost(row) for row in range(count))]
    for name in names():
        queues = LoopOptions(partition=name).make_queues(count, Topology((0,) * workers))
        found.append(simulate_loop(queues, sums, workers, **options).makespan)
    return min(found)


LOOPS = {
    "even": lambda row: 1e-5,
    "rising": lambda row: 2e-9 * row,
    "falling": lambda row: 2e-9 * (20_000 - row),
    "the first rows are the heaviest": lambda row: 1e-2 / (row + 1) + 1e-6,
    "alternating": lambda row: 1e-5 if row % 7 else 1e-4,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("workers", [2, 6, 20])
def test_ours_is_within_five_percent_of_the_best(loop: str, workers: int) -> None:
    options: dict[str, Any] = {"overhead_s": 2e-6}
    trace, _ = auto_trace(LOOPS[loop], workers, **options)
    assert trace.makespan <= 1.05 * best(LOOPS[loop], workers, **options)


@pytest.mark.parametrize("workers", [4, 20])
@pytest.mark.parametrize("part", [20, 40, 100])
def test_ours_cuts_little_where_cutting_costs_much(part: int, workers: int) -> None:
    """Cutting takes a part of a worker's share of the work: a cut for each worker is best, and ours does not know it before."""
    overhead_s = 20_000 * 1e-5 / workers / part
    trace, _ = auto_trace(LOOPS["even"], workers, overhead_s=overhead_s)
    assert trace.makespan <= 1.3 * best(LOOPS["even"], workers, overhead_s=overhead_s)
    assert len(trace.chunks) <= 8 * workers


def test_ours_says_when_it_changes_and_stays_where_it_gains_nothing() -> None:
    _, even = auto_trace(LOOPS["even"])
    assert even.said == []
    _, slow = auto_trace(LOOPS["even"], slower=(1.0, 1.0, 1.0, 3.0))
    assert len(slow.said) == 1
    assert "AWF-C" in slow.said[0]
    assert "3.0 times as long" in slow.said[0]
    _, dear = auto_trace(LOOPS["even"], overhead_s=2e-3)
    assert any("STATIC" in text for text in dear.said)
    _, uneven = auto_trace(LOOPS["alternating"])
    assert uneven.said == []


def test_the_state_tells_what_was_measured() -> None:
    loop = LoopState(100, 2)
    assert loop.costs().mean == 0
    loop.times[0].add(10, 1.0, 0.5)
    loop.times[1].add(10, 3.0, 0.5)
    assert loop.costs().mean == pytest.approx(0.2)
    assert loop.costs().sigma == pytest.approx(0.1 * 2**0.5)
    assert loop.costs().overhead == 0.5
