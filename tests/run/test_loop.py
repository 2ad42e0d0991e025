"""The loop: it carries events and commands, answers questions, and always stops the engine."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.policies import Options, Policies
from windrow.core.records import (
    Evidence,
    Failure,
    FailureKind,
    Handle,
    InputSpec,
    Life,
    Made,
    Measurement,
    MergePartials,
    Opened,
    OpenInput,
    Plan,
    PlanJob,
    RowsReport,
    Task,
    Worker,
)
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.engines.base import NO_READING, Capabilities, Job, Outcome, Reading
from windrow.engines.inline import InlineEngine
from windrow.engines.threads import ThreadsEngine
from windrow.errors import EngineError, UsageError
from windrow.run.loop import run
from windrow.shape.fixed import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable


class Work:
    """A workload whose run is a function of the rows and the plan."""

    reading: Reading = NO_READING
    used: tuple[float, int] | None = None

    def __init__(self, function: Callable[[Any, Plan], Any]) -> None:
        self.function = function

    def open_worker(self, worker: int) -> Work:
        return self

    def content(self, task: Task) -> Any:
        return task.payload or ()

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.USER, type(error).__name__, str(error), "", error)

    def describe(self, task: Task) -> str:
        return f"task {task.id}"

    def hear(self, news: Any) -> None: ...

    def is_own(self, module: Any) -> bool:
        return False

    def run(self, job: Job) -> Outcome:
        payload = job.task.payload
        if isinstance(payload, OpenInput):
            return Outcome({}, Opened(40, (0, 10, 20, 30, 40)))
        (name,) = job.task.makes
        if isinstance(payload, MergePartials):
            return Outcome({name: [one for partial in job.values for one in partial]})
        found = self.function(payload.rows[0], job.plan)
        if isinstance(found, Evidence):
            return Outcome({name: []}, RowsReport(found))
        return Outcome({name: [found]}, RowsReport())

    def prepare(self, task: Task, plan: Plan) -> None:
        return None

    def news(self) -> None:
        return None

    def close(self) -> None:
        pass


LIFE = Life(0, 0)


class Scripted:
    """An engine that answers launches at once and whose waits can be made to raise."""

    capabilities = Capabilities()
    work_cpu_s = 0.0

    def __init__(self, script: dict[int, BaseException]) -> None:
        self.script = script
        self.waits = 0
        self.stopped = 0
        self.timeouts: list[float | None] = []
        self.events: deque[happened.Event] = deque()

    def start(self, workload: Any) -> None:
        self.events.append(happened.WorkerJoined(Worker(LIFE)))

    def do(self, commands: Any) -> None:
        for command in commands:
            if isinstance(command, orders.Launch):
                made = tuple(Made(name) for name in command.task.makes)
                self.events.append(happened.Finished(command.attempt, LIFE, made, Measurement(wall=1.0)))
            elif isinstance(command, orders.Fetch):
                self.events.append(happened.Held(command.handle))

    def wait(self, timeout: float | None) -> list[happened.Event]:
        self.timeouts.append(timeout)
        self.waits += 1
        if self.waits in self.script:
            raise self.script[self.waits]
        return [self.events.popleft()] if self.events else []

    def wake(self) -> None:
        pass

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        return [handle, mine]

    def stop(self) -> None:
        self.stopped += 1


def scheduler(rows: int = 40) -> Scheduler:
    borders = tuple(range(0, rows + 1, 10))
    spec = InputSpec(id=0, category="data", rows=rows, borders=borders)
    return Scheduler(RowFeeder([spec], Policies(Fixed(10))))


def test_partials_come_in_the_order_of_their_rows() -> None:
    specs = [InputSpec(id=number, category="data", rows=40, borders=(0, 10, 20, 30, 40)) for number in (0, 1)]
    made = Scheduler(RowFeeder(specs, Policies(Fixed(10))))
    outcome = run(made, ThreadsEngine(4), Work(lambda rows, plan: rows.start))
    assert list(outcome.partials) == [0, 1]
    for partials in outcome.partials.values():
        first = [partial[0] for partial in partials]
        assert first == sorted(first)
        assert sorted(one for partial in partials for one in partial) == [0, 10, 20, 30]


def test_later_tasks_run_under_the_plan_that_was_asked_for() -> None:
    plans: list[int] = []

    def work(rows: Any, plan: Plan) -> Evidence:
        plans.append(plan.id)
        return Evidence(guards=(("step", "cut"),) if rows.start == 0 else ())

    def planner(job: PlanJob) -> Plan:
        assert job.category == "data"
        return replace(job.plan, id=8, guards=job.guards)

    outcome = run(scheduler(400), InlineEngine(), Work(work), planner=planner)
    assert plans[0] == 0
    assert plans[-1] == 8
    assert outcome.rows is not None
    assert [plan.id for plan in outcome.rows.accounts["data"].plans] == [0, 8]
    assert outcome.evidence["data"].guards == (("step", "cut"),)


def test_without_a_planner_the_policy_is_asked() -> None:
    def work(rows: Any, plan: Plan) -> Evidence:
        return Evidence(guards=(("step", f"cut{rows.start}"),))

    outcome = run(scheduler(), InlineEngine(), Work(work))
    assert outcome.rows is not None
    assert outcome.rows.accounts["data"].plans[-1].guards == tuple(("step", f"cut{start}") for start in (0, 10, 20, 30))


def test_observers_see_every_event_and_every_command() -> None:
    batches: list[tuple[list[happened.Event], list[orders.Command], float]] = []
    times = []

    def first(events: Any, commands: Any, now: float) -> None:
        batches.append((list(events), list(commands), now))

    def second(events: Any, commands: Any, now: float) -> None:
        times.append(now)

    work = Work(lambda rows, plan: 0)
    run(scheduler(), ThreadsEngine(2), work, observers=[first, second])
    assert times == sorted(now for _, _, now in batches)
    assert isinstance(batches[-1][1][-1], orders.Resolve)
    # What was seen is a log from which the run can be replayed.
    again = scheduler()
    for events, commands, now in batches:
        assert again.on(events, now) == commands
    assert isinstance(again.feeder, RowFeeder)
    assert again.feeder.ledger.done_rows == 40


def test_one_interrupt_while_waiting_ends_the_run_with_what_is_done() -> None:
    engine = Scripted({3: KeyboardInterrupt()})
    outcome = run(scheduler(), engine, Work(lambda rows, plan: 0))
    assert outcome.status == "cancelled"
    assert outcome.reason == "interrupted"
    assert outcome.ledger.done_rows == 20  # one was done, one ran to its end
    assert engine.stopped == 1


def test_a_second_interrupt_is_raised_after_the_engine_is_stopped() -> None:
    engine = Scripted({2: KeyboardInterrupt(), 3: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run(scheduler(), engine, Work(lambda rows, plan: 0))
    assert engine.stopped == 1


def test_two_signals_while_a_step_runs_end_it_at_once() -> None:
    def work(rows: Any, plan: Plan) -> Any:
        signal.raise_signal(signal.SIGINT)  # noted; the step goes on
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second interrupt did not end the step")

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(scheduler(), InlineEngine(), Work(work))
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_host_with_its_own_interrupt_handler_keeps_it() -> None:
    seen: list[int] = []
    former = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:

        def work(rows: Any, plan: Plan) -> int:
            signal.raise_signal(signal.SIGINT)
            return 0

        assert run(scheduler(10), InlineEngine(), Work(work)).status == "complete"
    finally:
        signal.signal(signal.SIGINT, former)
    assert seen == [signal.SIGINT]


def test_what_a_hosts_handler_raises_does_not_break_into_the_run() -> None:
    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def interrupted(most: int) -> Any:
        signals: list[int] = []

        def observe(events: Any, commands: Any, now: float) -> None:
            if len(signals) < most and any(isinstance(one, happened.Finished) for one in events):
                signals.append(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)  # while the scheduler and the log are at work

        return run(scheduler(), Scripted({}), Work(lambda rows, plan: 0), observers=[observe])

    former = signal.signal(signal.SIGINT, handler)
    try:
        outcome = interrupted(1)
        assert outcome.status == "cancelled"
        assert 10 <= outcome.ledger.done_rows < 40
        with pytest.raises(KeyboardInterrupt):
            interrupted(2)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, former)


def test_a_run_outside_the_main_thread_works() -> None:
    results: list[str] = []

    def target() -> None:
        results.append(run(scheduler(), ThreadsEngine(2), Work(lambda rows, plan: 0)).status)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert results == ["complete"]


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(1)])
def test_the_engine_is_stopped_however_the_loop_ends(error: BaseException) -> None:
    engine = Scripted({2: error})
    with pytest.raises(type(error)):
        run(scheduler(), engine, Work(lambda rows, plan: 0))
    assert engine.stopped == 1


def test_an_observer_that_raises_ends_the_run() -> None:
    def broken(events: Any, commands: Any, now: float) -> None:
        raise ValueError("no disk")

    before = threading.active_count()
    with pytest.raises(ValueError, match="no disk"):
        run(scheduler(), ThreadsEngine(2), Work(lambda rows, plan: 0), observers=[broken])
    assert threading.active_count() == before


def test_work_done_inside_wait_is_not_the_drivers() -> None:
    def work(rows: Any, plan: Plan) -> int:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return 0

    engine = InlineEngine()
    outcome = run(scheduler(), engine, Work(work))
    assert engine.work_cpu_s >= 0.08
    assert outcome.driver_cpu_s < engine.work_cpu_s


def test_one_signal_lets_the_step_finish() -> None:
    def work(rows: Any, plan: Plan) -> int:
        signal.raise_signal(signal.SIGINT) if rows.start == 10 else None
        return 0

    outcome = run(scheduler(), InlineEngine(), Work(work))
    assert outcome.status == "cancelled"
    assert outcome.ledger.done_rows >= 20


def test_an_interrupt_raised_by_the_step_itself_loses_only_that_step() -> None:
    def work(rows: Any, plan: Plan) -> int:
        if rows.start == 10:
            raise KeyboardInterrupt
        return 0

    outcome = run(scheduler(), InlineEngine(), Work(work))
    assert outcome.status == "cancelled"
    assert outcome.ledger.done_rows == 10


@pytest.mark.parametrize("engine", [InlineEngine(1), ThreadsEngine(1)])
def test_files_that_cannot_be_released_are_a_warning(engine: Any) -> None:
    class Stuck(Work):
        def close(self) -> None:
            raise OSError("stuck")

    with pytest.warns(ResourceWarning, match="worker 0 could not release.*stuck"):
        outcome = run(scheduler(10), engine, Stuck(lambda rows, plan: 0))
    assert outcome.status == "complete"


def test_a_worker_thread_that_breaks_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, *given: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("windrow.engines.job_runner.JobRunner.run", broken)
    with pytest.raises(EngineError, match="a bug"):
        run(scheduler(), ThreadsEngine(2), Work(lambda rows, plan: 0))


def test_waiting_for_what_cannot_come_is_an_engine_error() -> None:
    engine = InlineEngine()
    with pytest.raises(EngineError, match="nothing to do"):
        engine.wait(None)


@pytest.mark.parametrize("kind", [InlineEngine, ThreadsEngine])
def test_no_workers_is_a_usage_error(kind: Any) -> None:
    with pytest.raises(UsageError, match="workers=0"):
        kind(0)


class Said:
    """An inbox whose owner says something while the loop waits: before the worker ends what it is at."""

    def __init__(self, *first: happened.Event) -> None:
        self.news: list[happened.Event] = list(first)

    def open(self, wake: Callable[[], None]) -> None: ...

    def events(self) -> list[happened.Event]:
        found, self.news = self.news, []
        return found

    def stop(self) -> None: ...

    def close(self) -> None: ...


def test_what_was_said_before_a_report_holds_when_that_is_heard() -> None:
    """Or a task that was cancelled while it waited for a worker would be launched by that worker's report."""
    said = Said(happened.Submitted((), tuple(Task(n, "a") for n in (1, 2))))
    launched: list[int] = []

    class Engine(Scripted):
        def wait(self, timeout: float | None) -> list[happened.Event]:
            found = super().wait(timeout)
            if found and isinstance(found[0], happened.Finished) and len(launched) == 1:
                said.news += [happened.CancelRequested("enough", task=2), happened.Closed()]
            return found

    def note(_: Any, commands: Any, __: float) -> None:
        launched.extend(one.task.id for one in commands if isinstance(one, orders.Launch))

    run(
        Scheduler(options=Options(open=True)),
        Engine({}), Work(lambda *_: None), observers=[note], inbox=said,
    )  # fmt: skip
    assert launched == [1]
