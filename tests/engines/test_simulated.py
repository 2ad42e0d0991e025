"""The engine of virtual time: exact where it can be worked out by hand, the same twice, and never losing a row."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invariants import validate
from searching import examples
from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.policies import Options, Policies
from windrow.core.records import (
    DRIVER,
    FailureKind,
    Handle,
    Life,
    Measurement,
    MergePartials,
    Needs,
    Plan,
    Rows,
    RunRows,
    Task,
)
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.engines.simulated.devices import Device
from windrow.engines.simulated.engine import SimulatedEngine
from windrow.engines.simulated.model import AffineCosts, DriverCosts, Fleet, Model, SimulatedInput, drawn, normal
from windrow.errors import EngineError, UsageError
from windrow.run.loop import run
from windrow.run.simulate import simulate
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.watch.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

FREE = DriverCosts(event_s=0.0, command_s=0.0, latency_s=0.0)


def model(*, inputs: int = 1, rows: int = 50, unit: int = 10, driver: DriverCosts = FREE, **more: Any) -> Model:
    costs = more.pop("costs", None) or AffineCosts(per_row_s=0.1)
    return Model(
        inputs=tuple(SimulatedInput.even("data", rows, unit) for _ in range(inputs)),
        costs={"data": costs},
        driver=driver,
        **more,
    )


def fixed(rows: int) -> Policies:
    return Policies(shape=Fixed(rows))


def digest(made: Model, workers: int, seed: int, **more: Any) -> str:
    """Hash the event log of a run."""
    text = io.StringIO()
    log = EventLog(text)
    simulate(made, workers, seed=seed, observers=[log], **more)
    log.flush()
    return hashlib.sha256(text.getvalue().encode()).hexdigest()


# -- worked out by hand


@given(
    tasks=st.integers(1, 7),
    event=st.floats(0, 1e-3),
    command=st.floats(0, 1e-3),
    latency=st.floats(0, 1e-3),
    speed=st.floats(0.25, 4),
)
def test_one_worker_takes_what_its_tasks_take_and_the_driver_is_charged(
    tasks: int, event: float, command: float, latency: float, speed: float
) -> None:
    costs = AffineCosts(fixed_s=0.5, per_row_s=0.1, cold_s=2.0, inspect_s=0.25, merge_s=0.03, fetch_s=0.07)
    made = model(
        rows=10 * tasks,
        costs=costs,
        driver=DriverCosts(event_s=event, command_s=command, latency_s=latency),
        fleet=Fleet(speeds=(speed,)),
    )
    done = simulate(made, 1, policies=fixed(10))
    work = 2.0 + tasks * 1.5 + 0.25 + (tasks - 1) * 0.03 + 0.07
    merges = 1 if tasks > 1 else 0
    # The worker joins; then each thing is ordered, done and reported, one after the other.
    trips = 1 + tasks + merges + 1  # the opening, the tasks, the merge, the fetch
    messages = 1 + 2 * trips
    begun = 1 + tasks + merges  # all but the fetch report their beginning too
    discards = 1  # of what was fetched, when all is done
    charged = command * (trips + discards) + event * (1 + trips + begun)
    assert done.seconds == pytest.approx(work / speed + latency * messages + charged, rel=1e-12)
    assert done.tally.driver_s == pytest.approx(charged)
    assert done.tally.tasks == tasks
    assert done.outcome.status == "complete"


def test_the_driver_is_the_limit_of_many_workers() -> None:
    """Each task costs the driver three things; with a worker each, nothing else takes long."""
    driver = DriverCosts(event_s=0.01, command_s=0.01, latency_s=0.0)
    made = model(rows=10_000, driver=driver, costs=AffineCosts(per_row_s=0.01))
    done = simulate(made, 256, policies=fixed(10))
    assert done.seconds >= 1000 * 0.03
    assert done.tally.driver_s / done.seconds > 0.9


def test_reads_share_a_device() -> None:
    disk = Device(streams=(1, 2, 4), rates=(100.0, 150.0, 200.0), latency_s=0.5)
    costs = AffineCosts(per_row_s=0.1, read_per_row=30.0, device="disk", requests=2)
    made = model(inputs=4, rows=10, costs=costs, devices={"disk": disk})
    done = simulate(made, 4, policies=fixed(10))
    # Opening waits for one request, each task for two; four read 300 bytes each at 50 a second.
    assert done.seconds == pytest.approx(0.5 + 1.0 + 300 / 50 + 1.0)
    assert done.device_busy_s["disk"] == pytest.approx(6.0)
    assert simulate(made, 1, policies=fixed(10)).seconds == pytest.approx(4 * (0.5 + 1 + 3 + 1))


@pytest.mark.parametrize(("overlap", "seconds"), [(0.0, 5.0), (0.5, 3.5), (1.0, 3.0)])
def test_reading_may_go_on_while_computing(overlap: float, seconds: float) -> None:
    """Reading takes 3 s, computing 2 s; half of the reading is hidden, or as much as computing takes."""
    disk = Device(streams=(1,), rates=(100.0,))
    costs = AffineCosts(per_row_s=0.2, read_per_row=30.0, device="disk", overlap=overlap)
    made = model(rows=10, costs=costs, devices={"disk": disk})
    assert simulate(made, 1, policies=fixed(10)).seconds == pytest.approx(seconds)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_threads_that_hold_the_lock_are_no_faster_together(workers: int) -> None:
    made = model(inputs=8, rows=100, costs=AffineCosts(per_row_s=0.1, lock_share=1.0))
    threads = simulate(made, workers, kind="threads", policies=fixed(10))
    assert threads.seconds == pytest.approx(8 * 100 * 0.1)
    processes = simulate(made, workers, kind="processes", policies=fixed(10))
    assert processes.seconds == pytest.approx(8 * 100 * 0.1 / workers)


def test_the_lock_never_takes_more_than_it_holds() -> None:
    """Half the computing needs the lock: eight threads are at most twice as fast, and close to it."""
    made = model(inputs=8, rows=1000, costs=AffineCosts(per_row_s=0.01, lock_share=0.5))
    done = simulate(made, 8, kind="threads", policies=fixed(10))
    assert 40.0 <= done.seconds < 44.0
    assert done.tally.lock_wait_s > 100.0
    alone = simulate(made, 1, kind="threads", policies=fixed(10))
    assert alone.seconds == pytest.approx(80.0)
    assert alone.tally.lock_wait_s == pytest.approx(0.0, abs=1e-9)


def test_workers_share_few_cores() -> None:
    made = model(inputs=6, rows=100, cores=3)
    done = simulate(made, 6, policies=fixed(10))
    assert done.seconds == pytest.approx(6 * 100 * 0.1 / 3)
    assert done.tally.cores_wait_s == pytest.approx(60.0)


def test_measurements_add_up_as_those_of_real_engines_do() -> None:
    """What is neither computing nor waiting for a processor is the lock or a blocking read."""
    disk = Device(streams=(1,), rates=(100.0,))
    costs = AffineCosts(per_row_s=0.1, read_per_row=20.0, device="disk", memory_per_row=7.0)
    made = model(rows=10, costs=costs, devices={"disk": disk})
    seen: list[Measurement] = []

    def look(events: Sequence[happened.Event], commands: object, now: float) -> None:
        seen.extend(e.measurement for e in events if isinstance(e, happened.Finished) and e.made)

    simulate(made, 1, policies=fixed(10), observers=[look])
    (used,) = seen
    assert used.wall == pytest.approx(3.0)
    assert used.cpu == pytest.approx(1.0)
    assert used.lock_wait == pytest.approx(2.0)
    assert (used.bytes_read, used.peak_memory) == (200, 70)


@given(workers=st.integers(1, 12), factor=st.floats(1.0, 5.0))
def test_faster_workers_lose_at_most_a_task(workers: int, factor: float) -> None:
    slow, fast = (
        simulate(model(inputs=3, fleet=Fleet(speeds=(speed,))), workers, policies=fixed(10)) for speed in (1.0, factor)
    )
    assert fast.seconds <= slow.seconds + 1.0


# -- workers come and go


def test_workers_come_when_the_model_says() -> None:
    joined: list[tuple[int, float]] = []

    def look(events: Sequence[happened.Event], commands: object, now: float) -> None:
        joined.extend((e.worker.life.worker, now) for e in events if isinstance(e, happened.WorkerJoined))

    made = model(inputs=4, rows=200, fleet=Fleet(joins=(0.0, 3.0)))
    simulate(made, 3, policies=fixed(10), observers=[look])
    assert joined == [(0, 0.0), (2, 0.0), (1, 3.0)]


def test_a_lost_worker_comes_back_and_one_that_left_does_not() -> None:
    seen: list[tuple[str, int, int]] = []

    def look(events: Sequence[happened.Event], commands: object, now: float) -> None:
        for event in events:
            if isinstance(event, happened.WorkerJoined):
                seen.append(("joined", *event.worker.life))
            elif isinstance(event, happened.WorkerLost):
                seen.append(("lost", *event.life))

    fleet = Fleet(losses=((1.5, 0),), leaves=((2.5, 1),), rejoin_s=4.0)
    made = model(inputs=3, rows=100, fleet=fleet)
    done = simulate(made, 2, policies=fixed(10), observers=[look])
    assert seen[:4] == [("joined", 0, 0), ("joined", 1, 0), ("lost", 0, 0), ("lost", 1, 0)]
    assert [one for one in seen[4:] if one[0] == "joined"] == [("joined", 0, 1)]
    assert done.outcome.ledger.complete
    assert done.tally.lost_s > 0


def test_a_run_that_nobody_is_left_for_fails() -> None:
    made = model(fleet=Fleet(leaves=((0.5, 0), (0.7, 1))))
    done = simulate(made, 2, policies=fixed(10))
    assert done.outcome.status == "failed"
    assert done.outcome.failure is not None
    assert "no worker is left" in done.outcome.failure.message


def test_waiting_for_what_cannot_come_is_an_error() -> None:
    engine = begun(model())
    with pytest.raises(EngineError, match="nothing more will happen"):
        engine.wait(None)


def test_lives_are_drawn_from_the_seed() -> None:
    made = model(inputs=4, rows=1000, fleet=Fleet(life_s=30.0, rejoin_s=1.0))
    assert digest(made, 4, 1, policies=fixed(10)) == digest(made, 4, 1, policies=fixed(10))
    assert digest(made, 4, 1, policies=fixed(10)) != digest(made, 4, 2, policies=fixed(10))


# -- random models

seconds = st.floats(0.0, 2.0)
workers_at_times = st.lists(st.tuples(st.floats(0.0, 60.0), st.integers(0, 4)), max_size=6)


@st.composite
def models(draw: st.DrawFn) -> Model:
    disk = Device(streams=(1, 3), rates=(draw(st.floats(50, 500)), draw(st.floats(50, 500))), latency_s=0.01)
    costs = AffineCosts(
        fixed_s=draw(seconds),
        per_row_s=draw(st.floats(0.001, 0.1)),
        sigma=draw(st.sampled_from([0.0, 0.5])),
        input_sigma=draw(st.sampled_from([0.0, 1.0])),
        straggler_share=draw(st.sampled_from([0.0, 0.1])),
        straggler_factor=5.0,
        lock_share=draw(st.floats(0, 1)),
        read_per_row=draw(st.floats(0, 10)),
        device="disk",
        overlap=draw(st.floats(0, 1)),
        cold_s=draw(seconds),
        inspect_s=draw(seconds),
        merge_s=draw(seconds),
        fetch_s=draw(seconds),
    )
    inputs = draw(st.lists(st.integers(0, 120), min_size=1, max_size=6))
    leaves = draw(st.lists(st.tuples(st.floats(0.0, 60.0), st.integers(1, 4)), max_size=3))
    fleet = Fleet(
        speeds=tuple(draw(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=3))),
        joins=tuple(draw(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=3))),
        losses=tuple(draw(workers_at_times)),
        leaves=tuple(leaves),  # worker 0 always stays
        rejoin_s=draw(st.floats(0.0, 10.0)),
    )
    return Model(
        inputs=tuple(SimulatedInput.even("data", rows, 10) for rows in inputs),
        costs={"data": costs},
        devices={"disk": disk},
        fleet=fleet,
        cores=draw(st.sampled_from([None, 1, 3])),
    )


@settings(deadline=None)
@given(
    made=models(),
    workers=st.integers(1, 5),
    kind=st.sampled_from(["threads", "processes"]),
    chunk=st.sampled_from([None, 10, 35]),
    seed=st.integers(0, 3),
)
def test_whatever_happens_every_row_is_done_once(
    made: Model, workers: int, kind: Any, chunk: int | None, seed: int
) -> None:
    shape = Guided() if chunk is None else Fixed(chunk)
    engine = SimulatedEngine(made, workers, seed=seed, kind=kind)
    options = Options(restart=True, speculate=kind == "processes")
    scheduler = Scheduler(RowFeeder(made.specs(), Policies(shape=shape)), options=options)
    outcome = run(scheduler, engine, None, clock=engine.clock)  # type: ignore[arg-type]
    validate(scheduler)
    assert outcome.status == "complete"
    for number, one in enumerate(made.inputs):
        parts = sorted(part for rows in outcome.partials.get(number, []) for part in rows)
        done = [row for part in parts for row in range(part.start, part.stop)]
        assert done == list(range(one.rows))


@settings(max_examples=examples(25))
@given(made=models(), workers=st.integers(1, 5), kind=st.sampled_from(["threads", "processes"]))
def test_one_seed_one_log(made: Model, workers: int, kind: Any) -> None:
    assert digest(made, workers, 7, kind=kind) == digest(made, workers, 7, kind=kind)


def test_another_seed_another_log() -> None:
    made = model(inputs=3, rows=500, costs=AffineCosts(per_row_s=0.01, sigma=0.5))
    logs = {digest(made, 3, seed, policies=fixed(10)) for seed in range(5)}
    assert len(logs) == 5


def test_a_task_costs_the_same_wherever_and_whenever_it_runs() -> None:
    costs = AffineCosts(per_row_s=0.01, sigma=0.5, straggler_share=0.2, straggler_factor=9.0)
    found: list[dict[tuple[int, int], float]] = []

    for workers in (1, 5):
        walls: dict[tuple[int, int], float] = {}
        launched: dict[int, Rows] = {}

        def look(
            events: Sequence[happened.Event],
            commands: Sequence[orders.Command],
            now: float,
            walls: dict[tuple[int, int], float] = walls,
            launched: dict[int, Rows] = launched,
        ) -> None:
            for command in commands:
                if isinstance(command, orders.Launch) and isinstance(command.task.payload, RunRows):
                    launched[command.attempt] = command.task.payload.rows[0]
            for event in events:
                if isinstance(event, happened.Finished) and event.attempt in launched:
                    rows = launched[event.attempt]
                    walls[rows.input, rows.start] = event.measurement.cpu

        made = model(inputs=3, rows=300, costs=costs)
        simulate(made, workers, policies=fixed(10), observers=[look])
        found.append(walls)
    assert len(found[0]) == 90
    assert found[0] == found[1]


def test_what_is_drawn_is_spread_as_it_should_be() -> None:
    pairs = [drawn(3, 1, number, 10 * number, 0) for number in range(4000)]
    assert all(0 < value < 1 for pair in pairs for value in pair)
    values = [normal(*pair) for pair in pairs]
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / len(values)
    assert abs(mean) < 5 / 4000**0.5
    assert abs(spread - 1) < 0.15
    costs = AffineCosts(fixed_s=1.0, sigma=0.4, straggler_share=0.1, straggler_factor=3.0)
    times = [costs.demand(Rows(n, 0, 1), 0, 1).free_s for n in range(20_000)]
    assert sum(times) / len(times) == pytest.approx(1.2, rel=0.03)  # 0.9 + 0.1 * 3


# -- single commands

PLAN = Plan(id=0, category="data")
FIRST = Life(0, 0)


def launch(attempt: int, start: int, stop: int, **limits: float) -> orders.Launch:
    task = Task(attempt, "data", stop - start, RunRows((Rows(0, start, stop),)), makes=("p",))
    return orders.Launch(task, attempt, FIRST, PLAN, Needs.of(limits))


def begun(made: Model, **more: Any) -> SimulatedEngine:
    engine = SimulatedEngine(made, 1, **more)
    engine.start(None)  # type: ignore[arg-type]
    assert [type(event) for event in engine.wait(0.0)] == [happened.WorkerJoined]
    return engine


def test_too_much_memory_ends_a_task_when_it_has_it() -> None:
    costs = AffineCosts(per_row_s=0.1, memory_fixed=100.0, memory_per_row=10.0)
    engine = begun(model(costs=costs))
    engine.do([launch(1, 0, 10, memory=150.0), launch(2, 10, 20, memory=200.0)])
    events = engine.wait(None)
    assert events[1] == happened.Exhausted(1, FIRST, "memory", 150.0, 200.0)
    assert engine.clock() == pytest.approx(0.75)
    assert isinstance(engine.wait(None)[-1], happened.Finished)  # 200 of 200 are not too much


def test_too_much_time_ends_a_task_and_what_it_used_is_free_again() -> None:
    disk = Device(streams=(1,), rates=(10.0,))
    costs = AffineCosts(read_per_row=1.0, device="disk")
    engine = begun(model(costs=costs, devices={"disk": disk}))
    engine.do([launch(1, 0, 50, seconds=2.0), launch(2, 0, 10, seconds=2.0)])
    events = engine.wait(None)
    assert events[1] == happened.Exhausted(1, FIRST, "seconds", 2.0, 2.0)
    assert isinstance(engine.wait(None)[-1], happened.Finished)
    assert engine.clock() == pytest.approx(3.0)


def test_threads_are_held_to_no_limits() -> None:
    costs = AffineCosts(per_row_s=0.1, memory_per_row=10.0)
    engine = begun(model(costs=costs), kind="threads")
    engine.do([launch(1, 0, 10, memory=1.0, seconds=0.1)])
    event = engine.wait(None)[-1]
    assert isinstance(event, happened.Finished)
    assert event.measurement.peak_memory == 0


@pytest.mark.parametrize(("kind", "ends"), [("processes", 0.4), ("threads", 1.0)])
def test_processes_can_be_stopped_and_threads_cannot(kind: Any, ends: float) -> None:
    engine = begun(model(), kind=kind)
    engine.do([launch(1, 0, 10)])
    assert [type(event) for event in engine.wait(0.4)] == [happened.Started]
    engine.do([orders.Cancel(1, FIRST)])
    (event,) = engine.wait(None)
    expected = happened.Cancelled if kind == "processes" else happened.Finished
    assert isinstance(event, expected)
    assert engine.clock() == pytest.approx(ends)


def merge(attempt: int, *inputs: Handle, bring: tuple[int, ...] = (), life: Life = FIRST) -> orders.Launch:
    reads = tuple(handle.output for handle in inputs)
    task = Task(attempt, "data", 0, MergePartials(0), reads=reads, makes=("merged",), consumes=True)
    return orders.Launch(task, attempt, life, PLAN, inputs=inputs, bring=bring)


def ended(engine: SimulatedEngine, many: int = 1) -> list[Any]:
    found: list[Any] = []
    while len(found) < many:
        found += [event for event in engine.wait(None) if not isinstance(event, happened.Started)]
    return found


def test_a_copy_that_is_discarded_leaves_those_of_others() -> None:
    engine = begun(model())
    part = Handle("p", 1)
    engine.do([launch(1, 0, 10), orders.Fetch(part, FIRST)])
    assert [type(event) for event in ended(engine, 2)] == [happened.Finished, happened.Held]
    engine.do([orders.Discard(part, (DRIVER,)), merge(2, part)])
    assert [type(event) for event in ended(engine)] == [happened.Finished]
    engine.do([orders.Fetch(Handle("merged", 2), FIRST)])
    assert [type(event) for event in ended(engine)] == [happened.Held]
    assert engine.take(Handle("merged", 2)) == (Rows(0, 0, 10),)


def test_an_output_is_gone_when_nobody_has_it() -> None:
    engine = begun(model())
    part = Handle("p", 1)
    engine.do([launch(1, 0, 10), orders.Fetch(part, FIRST)])
    ended(engine, 2)
    assert engine.take(part, mine=True) == (Rows(0, 0, 10),)
    assert engine.take(part) == (Rows(0, 0, 10),)  # the worker's
    engine.do([orders.Discard(part, (FIRST,)), merge(2, part)])
    (event,) = ended(engine)
    assert event.failure.kind is FailureKind.LOST


def test_a_copy_that_is_sent_along_stays_when_its_maker_is_gone() -> None:
    engine = SimulatedEngine(model(), 2)
    engine.start(None)  # type: ignore[arg-type]
    other = Life(1, 0)
    assert len(engine.wait(0.0)) == 2
    part = Handle("p", 1)
    engine.do([launch(1, 0, 10)])
    ended(engine)
    engine.do([merge(2, part, Handle("none", 7), bring=(0,), life=other), orders.StopWorker(FIRST)])
    assert {type(event) for event in ended(engine, 2)} == {happened.Failed, happened.WorkerLost}
    engine.do([merge(3, part, life=other)])
    assert [type(event) for event in ended(engine)] == [happened.Finished]


def test_a_worker_is_stopped_and_started_again() -> None:
    engine = begun(model(fleet=Fleet(start_s=2.0)))
    engine.do([launch(1, 0, 10), orders.StopWorker(FIRST)])
    events = [*engine.wait(None), *engine.wait(0.0)]
    assert [type(e) for e in events] == [
        happened.Started, happened.Finished, happened.WorkerLost,
    ]  # fmt: skip
    engine.do([launch(2, 0, 10), orders.StartWorker(Life(0, 1))])  # the launch is for a life that is over
    (event,) = engine.wait(None)
    assert isinstance(event, happened.WorkerJoined)
    assert event.worker.life == Life(0, 1)
    assert engine.clock() == pytest.approx(3.0)
    engine.do([orders.StartWorker(Life(0, 1))])
    assert engine.wait(10.0) == []


def test_waiting_takes_no_longer_than_it_may() -> None:
    engine = begun(model())
    engine.do([launch(1, 0, 10)])
    assert [type(event) for event in engine.wait(0.25)] == [happened.Started]
    assert engine.clock() == 0.25
    engine.wake()
    assert engine.wait(None) == []
    assert engine.clock() == 0.25


def test_many_jobs_that_take_no_time() -> None:
    """A long queue is worked off in a loop, not deeper and deeper."""
    engine = begun(model(rows=100_000, costs=AffineCosts()))
    engine.do([launch(number, number, number + 1) for number in range(1, 3000)])
    finished = 0
    while finished < 2999:
        finished += sum(isinstance(e, happened.Finished) for e in engine.wait(None))
    assert engine.clock() == 0.0


def test_a_launch_that_has_not_begun_is_given_back() -> None:
    engine = begun(model())
    engine.do([launch(1, 0, 10), launch(2, 10, 20), orders.Recall(2, FIRST), orders.Recall(1, FIRST)])
    events = [*engine.wait(None), *engine.wait(None)]
    assert happened.Cancelled(2, FIRST) in events
    assert [event.attempt for event in events if isinstance(event, happened.Finished)] == [1]


# -- models that cannot be


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"lock_share": 1.5}, "lock_share is a share"),
        ({"overlap": -0.1}, "overlap is a share"),
        ({"per_row_s": -1.0}, "per_row_s is not negative"),
        ({"read_per_row": 1.0}, "needs device="),
    ],
)
def test_costs_that_cannot_be_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AffineCosts(**wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"speeds": ()}, "speeds"), ({"speeds": (0.0,)}, "speeds"), ({"life_s": 0.0}, "life"),
     ({"joins": (-1.0,)}, "join")],
)  # fmt: skip
def test_workers_that_cannot_be_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Fleet(**wrong)


def test_models_that_do_not_fit_together_are_refused() -> None:
    one = SimulatedInput.even("data", 10, 5)
    with pytest.raises(UsageError, match="'data' cost"):
        Model(inputs=(one,), costs={})
    with pytest.raises(UsageError, match="no device"):
        Model(inputs=(one,), costs={"data": AffineCosts(device="disk")})
    with pytest.raises(UsageError, match="at least one core"):
        Model(inputs=(one,), costs={"data": AffineCosts()}, cores=0)
    with pytest.raises(UsageError, match="at least one worker"):
        SimulatedEngine(model(), 0)
    with pytest.raises(UsageError, match="threads"):
        SimulatedEngine(model(), 1, kind="fibres")  # type: ignore[arg-type]
