"""Random graphs of tasks in simulated time: who begins when, and how long it takes all together."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.core.commands import Launch
from windrow.core.events import Event, Finished, OutputReady, Submitted
from windrow.core.records import Needs, Rows, Task
from windrow.core.scheduler import Scheduler
from windrow.engines.simulated.engine import SimulatedEngine
from windrow.engines.simulated.model import Costs, Demand, DriverCosts, Model
from windrow.run.loop import run
from windrow.tasks.driver import SessionEngine

#: Sums of times are compared.
ABOUT = 1e-9


@dataclass(frozen=True, kw_only=True)
class GraphCosts(Costs):
    """What tasks take, and after which share of that they release outputs, by task."""

    seconds: dict[int, float]
    early: dict[int, tuple[tuple[float, str], ...]]

    def demand(self, rows: Rows, tries: int, seed: int) -> Demand:
        return Demand(free_s=self.seconds[rows.input])

    def releases(self, task: int) -> tuple[tuple[float, str], ...]:
        return self.early.get(task, ())


@dataclass
class World:
    """A graph, and where it runs."""

    tasks: list[Task]
    costs: GraphCosts
    workers: int
    offers: dict[str, float]
    driver: DriverCosts


@dataclass
class Seen:
    """What happened, in simulated time."""

    begins: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    workers: dict[int, int] = field(default_factory=dict)
    outputs: dict[str, float] = field(default_factory=dict)
    launched: dict[int, Task] = field(default_factory=dict)  #: by attempt


FREE = DriverCosts(event_s=0.0, command_s=0.0, latency_s=0.0)


@st.composite
def worlds(draw: st.DrawFn, *, bounded: bool = True) -> World:
    """Draw a graph; ``bounded``: with named resources, copies that take time, and a driver that does."""
    tasks: list[Task] = []
    made: list[str] = []
    seconds: dict[int, float] = {}
    early: dict[int, tuple[tuple[float, str], ...]] = {}
    for number in range(1, draw(st.integers(1, 40)) + 1):
        reads = draw(st.lists(st.sampled_from(made), max_size=3, unique=True)) if made else []
        outputs = [f"{number}.{one}" for one in range(draw(st.integers(1, 3)))]
        seconds[number] = draw(st.integers(1, 40)) / 8
        shares = draw(st.lists(st.sampled_from([0.25, 0.5, 0.75]), max_size=len(outputs) - 1))
        early[number] = tuple(zip(sorted(shares), outputs, strict=False))
        after = draw(st.lists(st.integers(1, number - 1), max_size=2, unique=True)) if number > 1 else []
        needs: dict[str, float] = {"cores": 1}
        if bounded:
            needs["licence"] = draw(st.integers(0, 2))
            needs["cores"] = draw(st.integers(0, 2))
        priority = draw(st.integers(-1, 1))
        tasks.append(
            Task(
                number, "t", needs=Needs.of(needs), makes=tuple(outputs), priority=priority, reads=tuple(reads),
                after=tuple(after),
            )
        )  # fmt: skip
        made += outputs
    workers = draw(st.integers(1, 4))
    fetch_s = draw(st.sampled_from([0.0, 0.5])) if bounded else 0.0
    offers: dict[str, float] = {"cores": max(2, workers) if bounded else workers, "licence": 2}
    driver = draw(st.sampled_from([FREE, DriverCosts()])) if bounded else FREE
    return World(tasks, GraphCosts(seconds=seconds, early=early, fetch_s=fetch_s), workers, offers, driver)


def simulated(world: World) -> Seen:
    model = Model(inputs=(), costs={"t": world.costs}, driver=world.driver)
    simulator = SimulatedEngine(model, world.workers)
    engine: Any = SessionEngine(simulator, Needs.of(world.offers))
    scheduler = Scheduler()
    assert scheduler.on([Submitted((), tuple(world.tasks))], 0.0) == []
    seen = Seen()

    def watch(events: Any, commands: Any, now: float) -> None:
        # What the driver is told took its latency to get here, and its handling some time since.
        for event in events:
            _note(seen, event, told[id(event)])
        seen.launched.update({one.attempt: one.task for one in commands if isinstance(one, Launch)})

    told: dict[int, float] = {}
    reports = simulator.world._report

    def report(event: Event, now: float) -> None:
        told[id(event)] = now
        kept.append(event)
        reports(event, now)

    kept: list[Event] = []  # so that each has a number of its own
    simulator.world._report = report
    staffed = engine.wait

    def wait(timeout: float | None) -> list[Event]:
        found: list[Event] = staffed(timeout)
        for event in found:
            told.setdefault(id(event), 0.0)  # of the crew: not timed here
        kept.extend(found)
        return found

    engine.wait = wait
    outcome = run(scheduler, engine, Nothing(), clock=simulator.clock, observers=[watch])
    assert outcome.status == "complete", outcome
    return seen


def _note(seen: Seen, event: Event, now: float) -> None:
    if isinstance(event, OutputReady):
        seen.outputs.setdefault(event.made.output, now)
    elif isinstance(event, Finished):
        task = seen.launched[event.attempt]
        assert task.id not in seen.ends, "it ran twice, and nobody was lost"
        seen.ends[task.id] = now
        seen.begins[task.id] = now - event.measurement.wall
        seen.workers[task.id] = event.life.worker
        for name in task.makes:
            seen.outputs.setdefault(name, now)


class Nothing:
    """No workload: nothing is really run."""

    def open_worker(self, worker: int) -> Any:
        raise NotImplementedError

    def content(self, task: Task) -> Any:
        return task.payload

    def classify(self, error: BaseException) -> Any:
        raise NotImplementedError

    def describe(self, task: Task) -> str:
        raise NotImplementedError

    def hear(self, news: Any) -> None:
        raise NotImplementedError

    def is_own(self, module: Any) -> bool:
        raise NotImplementedError


# -- what must hold ----------------------------------------------------------------------------------


def check_order(world: World, seen: Seen) -> None:
    """A task begins when all that it reads is there, and all that it comes after has ended; a worker does one at a time."""
    assert sorted(seen.ends) == [task.id for task in world.tasks]
    for task in world.tasks:
        begin = seen.begins[task.id]
        assert seen.ends[task.id] - begin == pytest.approx(world.costs.seconds[task.id])
        assert all(seen.outputs[name] <= begin + ABOUT for name in task.reads)
        assert all(seen.ends[number] <= begin + ABOUT for number in task.after)
        for share, name in world.costs.early[task.id]:
            assert seen.outputs[name] == pytest.approx(begin + share * world.costs.seconds[task.id])
    for worker in set(seen.workers.values()):
        own = sorted((seen.begins[n], seen.ends[n]) for n in seen.ends if seen.workers[n] == worker)
        assert all(one[1] <= other[0] + ABOUT for one, other in pairwise(own))


def check_amounts(world: World, seen: Seen) -> None:
    """What is used at a time is never more than there is."""
    for now in seen.begins.values():
        moment = now + 1e-6
        running = [t for t in world.tasks if seen.begins[t.id] <= moment < seen.ends[t.id]]
        for name, most in world.offers.items():
            assert sum(dict(task.needs.amounts).get(name, 0) for task in running) <= most


def critical_path(world: World) -> float:
    """The least time with any number of workers."""
    there: dict[str, float] = {}
    ends: dict[int, float] = {}
    for task in world.tasks:
        begin = max([0.0, *(there[name] for name in task.reads), *(ends[one] for one in task.after)])
        took = world.costs.seconds[task.id]
        ends[task.id] = begin + took
        there |= dict.fromkeys(task.makes, begin + took)
        there |= {name: begin + share * took for share, name in world.costs.early[task.id]}
    return max(ends.values())


@settings(max_examples=examples(50))
@given(world=worlds())
def test_nobody_begins_before_what_he_needs_is_there(world: World) -> None:
    seen = simulated(world)
    check_order(world, seen)
    check_amounts(world, seen)
    work = sum(world.costs.seconds.values())
    assert max(seen.ends.values()) >= max(critical_path(world), work / world.workers) - ABOUT


@settings(max_examples=examples(50))
@given(world=worlds(bounded=False))
def test_nobody_is_idle_while_there_is_something_to_do(world: World) -> None:
    """Graham (1966): with one kind of place, and all else for nothing."""
    seen = simulated(world)
    check_order(world, seen)
    work, path = sum(world.costs.seconds.values()), critical_path(world)
    most = (work + (world.workers - 1) * path) / world.workers
    assert max(path, work / world.workers) - ABOUT <= max(seen.ends.values()) <= most + ABOUT


def test_the_checks_are_not_blind() -> None:
    tasks = [Task(1, "t", makes=("1.0",)), Task(2, "t", makes=("2.0",), reads=("1.0",))]
    world = World(tasks, GraphCosts(seconds={1: 1.0, 2: 1.0}, early={1: (), 2: ()}), 2, {"cores": 2}, FREE)
    seen = simulated(world)
    check_order(world, seen)
    assert (seen.ends, critical_path(world)) == ({1: 1.0, 2: 2.0}, 2.0)
    seen.begins[2], seen.ends[2] = 0.5, 1.5
    with pytest.raises(AssertionError):
        check_order(world, seen)
