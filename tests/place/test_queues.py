"""Queues of a loop: filling, victims, stealing; whoever steals from whom, each row is taken once."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engines.cores import read_cores
from windrow.errors import UnknownNameError, UsageError
from windrow.loops.options import LoopOptions
from windrow.place.loop_simulation import simulate_loop
from windrow.place.loop_trace import LoopChunk
from windrow.place.queues import LAYOUTS, VICTIMS, Thief, pre_partitioned
from windrow.place.topology import Topology, parse_topology
from windrow.shape.partition.schemes import names

FOUR = Topology((0, 0, 1, 1))


def drained(queues: Any, worker: int) -> list[int]:
    """What one worker takes if nobody else does."""
    return [taken.stop - taken.start for taken in iter(lambda: queues.take(worker, 0.0), None)]


def test_chunks_go_round_the_queues() -> None:
    queues = LoopOptions(partition="GSS", queues="percpu").make_queues(1000, FOUR)
    filled = [[stop - start for start, stop in queue.rest()] for queue in queues._queues]  # type: ignore[union-attr]
    assert filled == [[250, 79, 25, 8, 3, 1], [188, 59, 19, 6, 2, 1], [141, 45, 14, 4, 1], [106, 33, 11, 3, 1]]


def test_rows_are_divided_beforehand_and_the_first_queue_gets_what_is_over() -> None:
    assert [stop - start for start, stop in pre_partitioned(1003, 4)] == [253, 250, 250, 250]
    queues = LoopOptions(partition="STATIC", queues="percpu", pre_partition=True).make_queues(1000, FOUR)
    assert drained(queues, 0)[:5] == [62, 62, 62, 62, 2]


@pytest.mark.parametrize(
    ("victims", "visited"), [("seq", [2, 3, 0]), ("seqpri", [0, 2, 3, 0])], ids=["the next ones", "near ones first"]
)
def test_whom_a_thief_visits(victims: str, visited: list[int]) -> None:
    thief = Thief(victims, 1, 4, {0, 1}, Random(0).randrange)
    found = []
    while (queue := thief.victim()) is not None:
        found.append(queue)
        thief.is_empty(queue)
    assert found == visited


@pytest.mark.parametrize("seed", range(20))
def test_random_thieves_visit_all_and_near_ones_first(seed: int) -> None:
    for victims, near in (("random", set[int]()), ("randompri", {0, 1})):
        thief = Thief(victims, 1, 4, near, Random(seed).randrange)
        found = []
        while (queue := thief.victim()) is not None:
            found.append(queue)
            thief.is_empty(queue)
        assert sorted(found) == [0, 1, 2, 3]
        assert not near or set(found[:2]) == near


@given(data=st.data(), count=st.integers(0, 400), workers=st.integers(1, 9), grain=st.integers(1, 30))
def test_every_row_is_taken_once_whoever_steals(data: st.DataObject, count: int, workers: int, grain: int) -> None:
    groups = Topology(tuple(sorted(data.draw(st.lists(st.integers(0, 2), min_size=workers, max_size=workers)))))
    groups = parse_topology(groups.groups)
    queues = LoopOptions(
        partition=data.draw(st.sampled_from(names())),
        queues=data.draw(st.sampled_from(LAYOUTS)),
        victims=data.draw(st.sampled_from(VICTIMS)),
        pre_partition=data.draw(st.booleans()),
        grain=grain,
        seed=data.draw(st.integers(0, 5)),
    ).make_queues(count, groups)
    seen = [0] * count
    busy = list(range(workers))
    while busy:
        worker = data.draw(st.sampled_from(busy))
        if data.draw(st.integers(0, 19)) == 0:
            for start, stop in queues.rest():
                for row in range(start, stop):
                    seen[row] += 1
        taken = queues.take(worker, 0.0)
        if taken is None:
            busy.remove(worker)
            continue
        for row in range(taken.start, taken.stop):
            seen[row] += 1
        queues.done(LoopChunk(worker, taken.start, taken.stop, 0.1, 1.1, 0.0, taken.queue))
    assert seen == [1] * count


def test_stolen_ranges() -> None:
    queues = LoopOptions(partition="STATIC-STEAL").make_queues(1000, Topology((0,) * 4))
    trace = simulate_loop(queues, range(1001), 4, slower=(1.0, 1.0, 1.0, 2.0))
    stolen = [(one.asked, one.worker, one.queue, one.stolen) for one in trace.chunks if one.stolen]
    stolen.sort()
    assert len(stolen) == 13
    assert stolen[:3] == [(250, 0, 3, 31), (250, 1, 3, 23), (250, 2, 3, 17)]
    executed = [sum(one.stop - one.start for one in trace.chunks if one.worker == worker) for worker in range(4)]
    assert executed == [286, 285, 285, 144]
    assert trace.makespan == 288
    even = simulate_loop(LoopOptions(partition="STATIC-STEAL").make_queues(1000, Topology((0,) * 4)), range(1001), 4)
    assert (even.steals, even.makespan) == (0, 250)


def test_near_victims_gain_where_far_stealing_costs() -> None:
    """Two groups of ten: a queue each, or one for each worker with near ones first, is better than any victim."""
    sums = [0.0, *accumulate(1e-5 * (1 + 9 * (row % 977 == 0)) * (row / 20_000 + 0.1) for row in range(20_000))]

    def makespan(layout: str, victims: str) -> tuple[float, int]:
        queues = LoopOptions(partition="MFSC", queues=layout, victims=victims).make_queues(
            20_000, parse_topology("2x10")
        )
        trace = simulate_loop(queues, sums, 20, overhead_s=1e-6, steal_s=1e-6, far_steal_s=5e-5)
        return trace.makespan, sum(one.begin - one.asked > 4e-5 for one in trace.chunks)

    assert makespan("percpu", "seqpri")[1] <= makespan("percpu", "random")[1]
    assert makespan("pergroup", "seq")[1] <= makespan("percpu", "random")[1]


def test_measuring_schemes_divide_rows_among_queues() -> None:
    queues = LoopOptions(partition="auto", queues="percpu").make_queues(100, FOUR)
    assert sorted(queues.rest()) == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'percpu'"):
        LoopOptions(queues="percpuu").make_queues(10, FOUR)
    with pytest.raises(UnknownNameError, match="seqpri"):
        LoopOptions(victims="nearest").make_queues(10, FOUR)


# --- topology -----------------------------------------------------------------------------------------


def machine(root: Path, cpus: dict[int, tuple[int, int]], nodes: dict[int, int] | None = None) -> str:
    for number, (package, core) in cpus.items():
        folder = root / f"sys/devices/system/cpu/cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
        (folder / "topology/core_id").write_text(f"{core}\n")
        if nodes:
            (folder / f"node{nodes[number]}").mkdir()
    return str(root)


def test_a_worker_for_each_core_or_hyperthread(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: (0, 0), 1: (1, 0), 2: (0, 0), 3: (1, 0)})
    assert read_cores(root=root) == [(0, 0), (1, 1)]
    assert read_cores(root=root, hyperthreads=True) == [(0, 0), (0, 2), (1, 1), (1, 3)]


def test_memory_domains_are_groups(tmp_path: Path) -> None:
    root = machine(tmp_path, {n: (0, n) for n in range(4)}, {0: 0, 1: 0, 2: 1, 3: 1})
    assert [group for group, _ in read_cores(root=root)] == [0, 0, 1, 1]


def test_this_machine_has_cores() -> None:
    assert len(read_cores()) >= 1


def test_given_topologies() -> None:
    assert parse_topology("2x3").groups == (0, 0, 0, 1, 1, 1)
    assert parse_topology([5, 7, 5]).groups == (0, 1, 0)
    for wrong in ("2x", "x", "2x0", [], [-1], 3, "ten"):
        with pytest.raises(UsageError, match='such as "2x10"'):
            parse_topology(wrong)
