"""Simulated nodes: tasks packed by cores and memory, memory with noise and limits, tasks on several cores."""

from __future__ import annotations

import hashlib
import io
import math
import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invariants import validate
from searching import examples
from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.policies import LaunchPolicy, Options, Policies
from windrow.core.records import Life, Needs, Rows
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.simulated.engine import SimulatedEngine
from windrow.engines.simulated.model import PEAK, AffineCosts, DriverCosts, Fleet, Model, SimulatedInput, SimulatedNode
from windrow.errors import UsageError
from windrow.run.loop import run
from windrow.run.simulate import simulate
from windrow.shape.fixed import Fixed
from windrow.watch.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.run.simulate import Simulated

GB = 10**9
FREE = DriverCosts(event_s=0.0, command_s=0.0, latency_s=0.0)
#: A machine with a processor a core and two gigabytes for each, and half of one.
LARGE, SMALL = SimulatedNode(cores=4, memory=8 * GB), SimulatedNode(cores=2, memory=4 * GB)


def model(costs: AffineCosts, *nodes: SimulatedNode, rows: int = 1000, unit: int = 10, **more: Any) -> Model:
    """One input whose tasks cost that, on such nodes, with a driver that takes no time."""
    inputs = (SimulatedInput.even("data", rows, unit),)
    return Model(inputs=inputs, costs={"data": costs}, nodes=nodes, driver=FREE, **more)


def needs(cores: float, memory: float) -> Needs:
    return Needs.of({"cores": cores, "memory": memory})


def go(made: Model, nodes: int, each: Needs, *, chunk: int = 10, limit: float = math.inf, **more: Any) -> Simulated:
    """Run tasks of so many rows that each need so much, and may use so much memory."""
    launches = LaunchPolicy(Needs() if limit == math.inf else Needs.of({"memory": limit}))
    rows = RowOptions(needs=each)
    return simulate(made, nodes, rows=rows, policies=Policies(shape=Fixed(chunk)), launches=launches, **more)


class Packing:
    """An observer that counts how many tasks run on each node at a time, and keeps every measurement and limit met."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.measured: list[Any] = []
        self.exhausted: list[tuple[float, happened.Exhausted]] = []
        self._nodes: dict[Life, str] = {}
        self._at: dict[int, str] = {}

    def __call__(self, events: Sequence[Any], commands: Sequence[Any], now: float) -> None:
        for event in events:
            if isinstance(event, happened.WorkerJoined):
                (self._nodes[event.worker.life],) = event.worker.pools
            elif isinstance(event, happened.Finished | happened.Exhausted):
                self._at.pop(event.attempt)
                if isinstance(event, happened.Exhausted):
                    self.exhausted.append((now, event))
                elif event.made and event.measurement.cpu:  # rows, not a merge of them
                    self.measured.append(event.measurement)
        for command in commands:
            if isinstance(command, orders.Launch):
                self._at[command.attempt] = self._nodes[command.life]
        for node, many in Counter(self._at.values()).items():
            self.most[node] = max(self.most[node], many)


# -- packing


@given(cores=st.integers(1, 4), memory=st.integers(1, 80))
def test_a_node_takes_as_many_tasks_as_its_cores_and_its_memory_allow(cores: int, memory: int) -> None:
    packing = Packing()
    done = go(model(AffineCosts(per_row_s=0.1), LARGE, SMALL), 2, needs(cores, memory * GB / 10), observers=[packing])
    room = {
        f"node {number}": min(int(one.cores // cores), int(one.memory * 10 // GB // memory))
        for number, one in enumerate((LARGE, SMALL))
    }
    assert packing.most == Counter({node: many for node, many in room.items() if many})
    assert done.outcome.status == "complete"
    rounds = math.ceil(100 / sum(room.values()))
    assert done.seconds == pytest.approx(rounds * 1.0)


def test_two_point_one_gigabytes_three_times_on_eight() -> None:
    packing = Packing()
    go(model(AffineCosts(per_row_s=0.1), LARGE), 2, needs(1, 2.1 * GB), observers=[packing])
    assert packing.most == {"node 0": 3, "node 1": 3}


def test_a_task_that_no_node_can_hold_is_told() -> None:
    done = go(model(AffineCosts(per_row_s=0.1), LARGE, SMALL), 2, needs(1, 9 * GB))
    assert done.outcome.status == "failed"
    assert done.outcome.failure is not None
    assert "9 GB" in done.outcome.failure.message
    assert "8 GB" in done.outcome.failure.message


def test_a_node_leaves_with_all_its_workers_and_comes_back_with_them() -> None:
    """Four nodes, six more later, all gone at once, and some of them back: nothing is lost."""
    fleet = Fleet(
        joins=(0.0,) * 4 + (5.0,) * 6,
        leaves=tuple((20.0, node) for node in range(3)),
        losses=tuple((20.0, node) for node in range(3, 10)),
        rejoin_s=15.0,
    )
    here: dict[float, int] = {}
    workers: set[Life] = set()

    def look(events: Sequence[Any], _: object, now: float) -> None:
        for event in events:
            if isinstance(event, happened.WorkerJoined):
                workers.add(event.worker.life)
            elif isinstance(event, happened.WorkerLost):
                workers.discard(event.life)  # one that left for good is told of again when it is to be started
        here[now] = len(workers)

    made = model(AffineCosts(per_row_s=0.1), SMALL, rows=6000, fleet=fleet)
    done = go(made, 10, needs(1, GB), observers=[look])
    assert [here[time] for time in (0.0, 5.0, 20.0, 35.0)] == [8, 20, 0, 14]
    assert done.outcome.status == "complete"
    assert done.outcome.ledger.done_rows == 6000
    assert done.tally.lost_s > 0


# -- memory

noisy = st.builds(AffineCosts, per_row_s=st.just(0.1), memory_per_row=st.just(1e6), memory_sigma=st.floats(0.05, 1.0))


@given(costs=noisy, start=st.integers(0, 10**6), seed=st.integers(0, 10**6))
def test_memory_belongs_to_the_rows_and_to_the_seed(costs: AffineCosts, start: int, seed: int) -> None:
    rows = Rows(3, start, start + 100)
    first = costs.demand(rows, 0, seed).memory
    assert first == costs.demand(rows, 5, seed).memory
    assert first != costs.demand(rows, 0, seed + 1).memory
    assert first != costs.demand(rows._replace(start=start + 1, stop=start + 101), 0, seed).memory


@pytest.mark.parametrize("sigma", [0.1, 0.31])
def test_what_is_stated_is_the_upper_end_of_memory(sigma: float) -> None:
    """The median is three standard deviations below, and one in 740 above."""
    costs = AffineCosts(memory_fixed=5e6, memory_per_row=1e6, memory_sigma=sigma)
    seen = [(costs.demand(Rows(0, start, start + 10), 0, 0).memory - 5e6) / 1e7 for start in range(20_000)]
    assert statistics.median(seen) == pytest.approx(math.exp(-PEAK * sigma), rel=0.01)
    assert 0.0005 < sum(one > 1 for one in seen) / len(seen) < 0.003


def test_memory_without_noise_is_what_is_stated() -> None:
    packing = Packing()
    costs = AffineCosts(per_row_s=0.1, memory_fixed=GB, memory_per_row=1e6)
    go(model(costs, LARGE), 1, needs(1, 2 * GB), observers=[packing])
    assert {one.peak_memory for one in packing.measured} == {GB + 10_000_000}


def test_a_task_ends_where_it_crosses_its_limit_and_its_units_run_alone() -> None:
    """Four units need 400 MB of 300; memory grows with the work, so three quarters of it were in vain."""
    packing = Packing()
    costs = AffineCosts(per_row_s=0.1, memory_per_row=1e7)
    made = model(costs, SimulatedNode(cores=1, memory=GB), rows=40)
    done = go(made, 1, needs(1, GB), chunk=40, limit=3e8, observers=[packing])
    ((time, event),) = packing.exhausted
    assert time == pytest.approx(3.0)
    assert (event.resource, event.limit) == ("memory", 3e8)
    assert event.used == pytest.approx(4e8)
    assert done.tally.lost_s == pytest.approx(3.0)
    assert done.seconds == pytest.approx(3.0 + 4.0)
    assert done.outcome.ledger.done_rows == 40
    assert [one.peak_memory for one in packing.measured] == [100_000_000] * 4


def test_a_node_is_a_limit_by_itself() -> None:
    packing = Packing()
    costs = AffineCosts(per_row_s=0.1, memory_per_row=1e8)
    go(model(costs, SMALL, rows=80), 1, needs(1, 0), chunk=80, observers=[packing])
    ((_, event),) = packing.exhausted
    assert event.limit == 4 * GB
    assert event.used == pytest.approx(8 * GB)


def test_what_cannot_be_divided_fails_with_what_it_took() -> None:
    made = model(AffineCosts(per_row_s=0.1, memory_per_row=1e9), SMALL, rows=10)
    done = go(made, 1, needs(1, GB), limit=2 * GB)
    assert done.outcome.status == "failed"
    assert done.outcome.failure is not None
    assert "10 GB" in done.outcome.failure.message
    assert "2 GB" in done.outcome.failure.message


# -- cores


@given(
    cores=st.integers(1, 16),
    fixed_parallel=st.floats(0, 1),
    row_parallel=st.floats(0, 1),
    lock=st.floats(0, 1),
    speed=st.floats(0.5, 2),
)
def test_more_cores_are_faster_as_stated(
    cores: int, fixed_parallel: float, row_parallel: float, lock: float, speed: float
) -> None:
    """Amdahl's law for what a task costs by itself and for its rows; the processor time stays."""
    packing = Packing()
    costs = AffineCosts(
        fixed_s=20.0, per_row_s=0.5, fixed_parallel=fixed_parallel, per_row_parallel=row_parallel, lock_share=lock
    )
    made = model(costs, SimulatedNode(cores=16), rows=10, fleet=Fleet(speeds=(speed,)))
    done = go(made, 1, needs(cores, 0), observers=[packing])
    wall = 20.0 * (1 - fixed_parallel + fixed_parallel / cores) + 5.0 * (1 - row_parallel + row_parallel / cores)
    assert done.seconds == pytest.approx(wall / speed)
    (measured,) = packing.measured
    assert measured.cpu == pytest.approx(25.0 / speed)


def test_noise_and_stragglers_are_on_all_cores_alike() -> None:
    plain = AffineCosts(fixed_s=2.0, per_row_s=0.5, sigma=0.5, straggler_share=0.3, straggler_factor=3.0)
    shared = replace(plain, fixed_parallel=0.25, per_row_parallel=0.5)
    for start in range(50):
        one, other = (costs.demand(Rows(0, start, start + 10), 0, 1) for costs in (plain, shared))
        assert other.free_s + other.parallel_s == pytest.approx(one.free_s)
        assert other.parallel_s / one.free_s == pytest.approx((0.25 * 2.0 + 0.5 * 5.0) / 7.0)


# -- whole runs


@st.composite
def machines(draw: st.DrawFn) -> Model:
    """Nodes of different sizes whose workers are lost now and then, and tasks whose memory is not known beforehand."""
    sizes = st.builds(
        SimulatedNode, cores=st.integers(1, 4), memory=st.sampled_from([2 * GB, 4 * GB]), places=st.integers(0, 3)
    )
    costs = AffineCosts(
        fixed_s=draw(st.floats(0, 1)), per_row_s=0.01, sigma=draw(st.sampled_from([0.0, 0.5])), per_row_parallel=0.5,
        memory_per_row=draw(st.sampled_from([1e6, 1e7])), memory_sigma=draw(st.sampled_from([0.0, 0.5])),
        merge_s=0.1, fetch_s=0.1,
    )  # fmt: skip
    fleet = Fleet(life_s=draw(st.none() | st.floats(5.0, 50.0)), rejoin_s=1.0, joins=(0.0, 3.0), speeds=(1.0, 0.5))
    inputs = tuple(SimulatedInput.even("data", draw(st.integers(0, 2000)), 50) for _ in range(draw(st.integers(1, 3))))
    return Model(
        inputs=inputs, costs={"data": costs}, nodes=tuple(draw(st.lists(sizes, min_size=1, max_size=3))), fleet=fleet
    )


@settings(max_examples=examples(50))
@given(made=machines(), nodes=st.integers(1, 4), seed=st.integers(0, 3), chunk=st.sampled_from([50, 300, 1000]))
def test_every_row_is_done_once_and_one_seed_gives_one_log(made: Model, nodes: int, seed: int, chunk: int) -> None:
    def logged() -> str:
        text = io.StringIO()
        log = EventLog(text)
        engine = SimulatedEngine(made, nodes, seed=seed)
        feeder = RowFeeder(made.specs(), Policies(shape=Fixed(chunk)), RowOptions(needs=needs(1, GB)))
        launches = LaunchPolicy(Needs.of({"memory": GB}))
        scheduler = Scheduler(feeder, launches, Options(restart=True, speculate=True))
        outcome = run(scheduler, engine, None, clock=engine.clock, observers=[log])  # type: ignore[arg-type]
        validate(scheduler)
        assert outcome.status == "complete"
        assert outcome.ledger.done_rows == sum(one.rows for one in made.inputs)
        log.flush()
        return hashlib.sha256(text.getvalue().encode()).hexdigest()

    assert logged() == logged()


def test_nodes_that_make_no_sense_are_refused() -> None:
    for wrong in ({"cores": 0}, {"memory": -1}, {"places": -1}):
        with pytest.raises(UsageError, match="a node has"):
            SimulatedNode(**wrong)
    with pytest.raises(UsageError, match="per_row_parallel is a share"):
        AffineCosts(per_row_parallel=1.5)
