"""What every engine must do; one suite for all of them."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from core_world import missing_rows
from dask_cluster import local_client
from invariants import validate
from row_workload import RowSide, RowWork
from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.policies import Policies
from windrow.core.records import (
    DRIVER,
    NO_NEEDS,
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
    Rows,
    RunRows,
    StepCost,
    Task,
    Worker,
)
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.both import BothEngines
from windrow.engines.dask.engine import DaskEngine
from windrow.engines.inline import InlineEngine
from windrow.engines.processes.engine import ProcessesEngine
from windrow.engines.threads import ThreadsEngine
from windrow.run.loop import RunOutcome, run
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from windrow.engines.base import Engine

ENGINES: dict[str, Callable[[], Engine]] = {
    "inline-1": InlineEngine,
    "inline-3": lambda: InlineEngine(3),
    "threads-1": lambda: ThreadsEngine(1),
    "threads-2": lambda: ThreadsEngine(2),
    "threads-4": lambda: ThreadsEngine(4),
    # Importing this file takes longer than most tests: the workers' server does it once.
    "processes-2": lambda: ProcessesEngine(2, preload=["test_conformance"]),
    "both-1": lambda: BothEngines(1, preload=["test_conformance"]),
    "dask-3": lambda: DaskEngine(local_client(3), load=["test_conformance"]),
}
PLAN = Plan(id=0, category="data")
FIRST = Life(0, 0)
Row = tuple[int, int]


class Partial(list[Row]):
    """Rows, in a list that can be weakly referred to."""


class Side(RowSide):
    """A worker's side that watches how it is used."""

    def __init__(self, work: Work, worker: int) -> None:
        self.work = work
        self.worker = worker
        self.thread = threading.get_ident()
        self.closed = 0

    def _check(self) -> None:
        assert threading.get_ident() == self.thread, "used by another thread than its own"
        assert not self.closed, "used after it was closed"

    def open_input(self, number: int) -> tuple[int, tuple[int, ...]]:
        self._check()
        self.work.raise_for(("inspect", number))
        return self.work.rows, tuple(range(0, self.work.rows + 1, 5))

    def run_rows(self, rows: tuple[Rows, ...], plan: Plan, prepared: Any) -> tuple[Any, Measurement, Evidence]:
        self._check()
        (part,) = rows
        for row in range(part.start, part.stop):
            self.work.raise_for((part.input, row))
        partial = Partial((part.input, row) for row in range(part.start, part.stop))
        evidence = Evidence((("step", StepCost.of_call(len(partial), 0, 0.0)),))
        return partial, Measurement(bytes_read=len(partial)), evidence

    def merge(self, partials: Sequence[Any]) -> Any:
        self._check()
        for partial in partials:
            for row in partial:
                self.work.raise_for(("merge", row))
        return Partial(row for partial in partials for row in partial)

    def close(self) -> None:
        assert threading.get_ident() == self.thread
        self.closed += 1


class Always:
    """An error that is raised every time."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def next(self) -> BaseException | None:
        return self.error


class Times(Always):
    """An error that is raised so many times, by all workers together, whatever processes they are in."""

    def __init__(self, error: BaseException, times: int, directory: Path) -> None:
        super().__init__(error)
        self.times = times
        self.directory = directory

    def next(self) -> BaseException | None:
        for number in range(self.times):
            try:
                (self.directory / f"{self.error}-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return self.error
        return None


class Work(RowWork):
    """A workload with errors where they are wanted."""

    def __init__(self, rows: int = 40, errors: dict[Any, Always] | None = None) -> None:
        self.rows = rows
        self.errors = errors or {}
        self.sides: list[Side] = []

    def open_worker(self, worker: int) -> Side:
        self.raise_for("open")
        self.sides.append(Side(self, worker))
        return self.sides[-1]

    def raise_for(self, key: Any) -> None:
        error = self.errors[key].next() if key in self.errors else None
        if error is not None:
            raise error

    def classify(self, error: BaseException) -> Failure:
        if isinstance(error, ZeroDivisionError):
            raise error
        kind = FailureKind.USER
        if isinstance(error, TimeoutError):
            kind = FailureKind.TRANSIENT_IO
        elif isinstance(error, OSError):
            kind = FailureKind.BAD_FILE
        return Failure(kind, type(error).__name__, str(error), "", error)


def is_same(found: BaseException | None, error: BaseException, engine: Engine) -> bool:
    """Whether it is the error; one that came from another process is its likeness."""
    if not (engine.capabilities.isolates or isinstance(engine, BothEngines)):
        return found is error
    return type(found) is type(error) and found.args == error.args


WORKERS = {name: int(name.rpartition("-")[2]) for name in ENGINES}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = ENGINES[request.param]()
    threads = threading.active_count()
    yield made
    made.stop()
    assert threading.active_count() == threads, "threads were left behind"


@pytest.fixture
def workers(request: pytest.FixtureRequest, engine: Engine) -> int:
    return WORKERS[request.node.callspec.params["engine"]]


def go(engine: Engine, work: Work, inputs: int = 3, shape: Any = None, **more: Any) -> tuple[RunOutcome, Scheduler]:
    options: RowOptions = more.pop("options", RowOptions())
    specs = [InputSpec(id=number, category="ab"[number % 2]) for number in range(inputs)]
    feeder = RowFeeder(specs, Policies(shape or Fixed(10)), options)
    scheduler = Scheduler(feeder)
    # Every look at this clock is ten seconds later: whatever waits for a time is due at once.
    more.setdefault("clock", itertools.count(step=10.0).__next__)
    outcome = run(scheduler, engine, work, **more)
    validate(scheduler)
    return outcome, scheduler


def rows_of(outcome: RunOutcome) -> list[Row]:
    return [row for partials in outcome.partials.values() for partial in partials for row in partial]


def everything(work: Work, inputs: int = 3) -> list[Row]:
    return [(number, row) for number in range(inputs) for row in range(work.rows)]


# -- whole runs


@pytest.mark.parametrize("shape", [Fixed(5), Fixed(10), Fixed(1000), Guided()])
@pytest.mark.parametrize("rows", [0, 5, 200])
def test_every_row_comes_back_once(engine: Engine, shape: Any, rows: int) -> None:
    work = Work(rows)
    outcome, _ = go(engine, work, shape=shape)
    assert outcome.status == "complete"
    assert sorted(rows_of(outcome)) == everything(work)
    assert outcome.ledger.done_rows == 3 * rows
    assert outcome.bytes_read == 3 * rows
    assert sum(dict(e.steps)["step"].rows_in for e in outcome.evidence.values() if e.steps) == (3 * rows)
    assert all(side.closed == 1 for side in work.sides)  # of this process


def test_an_error_stops_the_run_and_is_handed_over(engine: Engine) -> None:
    error = ValueError("row 17")
    outcome, _ = go(engine, Work(errors={(1, 17): Always(error)}))
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert is_same(outcome.failure.exception, error, engine)
    assert outcome.failure.kind is FailureKind.USER


@pytest.mark.parametrize("shape", [Fixed(5), Fixed(20), Guided()])
def test_skipping_leaves_out_the_units_at_fault(engine: Engine, shape: Any) -> None:
    error = ValueError("bad row")
    work = Work(errors={(1, 17): Always(error), (2, 0): Always(error)})
    outcome, _ = go(engine, work, shape=shape, options=RowOptions(on_error="skip"))
    assert outcome.status == "incomplete"
    left_out = {(1, row) for row in range(15, 20)} | {(2, row) for row in range(5)}
    assert sorted(rows_of(outcome)) == sorted(set(everything(work)) - left_out)
    assert [(f.rows, f.failure.message) for f in outcome.ledger.failures[1]] == [(Rows(1, 15, 20), "bad row")]


def test_reads_are_retried_and_then_given_up(engine: Engine, tmp_path: Path) -> None:
    first, second = TimeoutError("first"), TimeoutError("second")
    work = Work(
        errors={
            (0, 3): Times(first, 2, tmp_path),
            ("inspect", 1): Times(second, 2, tmp_path),
            (2, 12): Always(TimeoutError("still")),
        }
    )
    outcome, _ = go(engine, work, options=RowOptions(on_error="skip"))
    done = rows_of(outcome)
    assert {row for row in done if row[0] < 2} == set(everything(work, 2))
    assert (2, 12) not in done
    assert outcome.status == "incomplete"


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_file_that_cannot_be_opened(engine: Engine, on_error: Any) -> None:
    error = OSError("no such file")
    work = Work(errors={("inspect", 1): Always(error)})
    outcome, _ = go(engine, work, options=RowOptions(on_error=on_error))
    if on_error == "stop":
        assert outcome.status == "failed"
        assert outcome.failure is not None
        assert is_same(outcome.failure.exception, error, engine)
    else:
        assert outcome.status == "incomplete"
        assert sorted(rows_of(outcome)) == [row for row in everything(work) if row[0] != 1]
        assert list(outcome.ledger.failed_inputs) == [1]


def test_outputs_that_cannot_be_merged_stop_the_run(engine: Engine) -> None:
    error = TypeError("cannot add")
    work = Work(errors={("merge", row): Always(error) for row in everything(Work())})
    outcome, _ = go(engine, work, inputs=1, shape=Fixed(5))
    assert outcome.status == "failed"  # eight tasks and four workers at most: somebody merges
    assert outcome.failure is not None
    assert is_same(outcome.failure.exception, error, engine)


def test_a_worker_that_cannot_begin_is_a_failure_of_its_job(engine: Engine) -> None:
    outcome, _ = go(engine, Work(errors={"open": Always(ValueError("no worker"))}))
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert outcome.failure.message == "no worker"


def test_an_error_that_cannot_be_classified_is_ours(engine: Engine) -> None:
    work = Work(errors={(0, 0): Always(ZeroDivisionError())})
    outcome, _ = go(engine, work, options=RowOptions(on_error="skip"))
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert outcome.failure.kind is FailureKind.INTERNAL


def test_a_system_exit_of_the_users_code_does_not_end_a_worker(engine: Engine) -> None:
    work = Work(errors={(0, 0): Always(SystemExit(3))})
    outcome, _ = go(engine, work, options=RowOptions(on_error="skip"))
    assert sorted(rows_of(outcome)) == [r for r in everything(work) if r not in everything(work)[:5]]


def test_a_row_limit(engine: Engine) -> None:
    work = Work()
    outcome, _ = go(engine, work, options=RowOptions(row_limit=47))
    limited = [row for row in everything(work) if row[0] < 2 or row[1] < 7]
    assert sorted(rows_of(outcome)) == [row for row in limited if row[0] != 1 or row[1] < 47]
    assert outcome.status == "complete"


def test_an_interrupt_ends_the_run_with_what_is_done(engine: Engine) -> None:
    seen: Counter[type] = Counter()

    def interrupt(events: Any, commands: Any, now: float) -> None:
        seen.update(type(event) for event in events if getattr(event, "made", ()))
        if seen[happened.Finished] >= 3 and not seen["raised"]:  # type: ignore[index]
            seen["raised"] = 1  # type: ignore[index]
            signal.raise_signal(signal.SIGINT)

    work = Work(rows=2000)
    outcome, _ = go(engine, work, observers=[interrupt])
    assert outcome.status == "cancelled"
    assert outcome.cancelled
    done = rows_of(outcome)
    assert 30 <= len(done) == len(set(done)) < 6000
    missing = [(p.input, row) for p in missing_rows(outcome.ledger) for row in range(p.start, p.stop)]
    assert not set(done) & set(missing)
    known = {number for number in range(3) if number not in outcome.ledger.unopened}
    assert sorted([*done, *missing]) == [r for r in everything(work) if r[0] in known]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# -- single commands


def collect(engine: Engine, count: int) -> list[happened.Event]:
    """Wait for so many events, the beginnings of attempts not counted."""
    found: list[happened.Event] = []
    for _ in range(1000):
        found += [e for e in engine.wait(5.0) if not isinstance(e, happened.Started)]
        if len(found) >= count:
            return found
    raise AssertionError(f"{count} events expected, got {found}")


def launch(attempt: int, start: int, stop: int) -> orders.Launch:
    task = Task(attempt, "data", stop - start, RunRows((Rows(0, start, stop),)), makes=("p",))
    return orders.Launch(task, attempt, FIRST, PLAN)


def merge(attempt: int, *inputs: Handle) -> orders.Launch:
    reads = tuple(str(handle) for handle in inputs)
    task = Task(attempt, "data", 1, MergePartials(0), reads=reads, makes=("m",), consumes=True)
    return orders.Launch(task, attempt, FIRST, PLAN, inputs=inputs)


def begin(engine: Engine, work: Work, workers: int) -> None:
    engine.start(work)
    joined: list[happened.Event] = []
    shares = [not engine.capabilities.isolates] * workers
    if isinstance(engine, BothEngines):
        shares += [False] * workers  # processes, behind the threads
    while len(joined) < len(shares):
        joined += engine.wait(5.0)
    assert sorted(joined) == [
        happened.WorkerJoined(Worker(Life(number, 0), shares=one)) for number, one in enumerate(shares)
    ]  # fmt: skip


def finish_two(engine: Engine) -> list[Handle]:
    engine.do([launch(1, 0, 5), launch(2, 5, 10)])
    assert {event.attempt for event in collect(engine, 2) if isinstance(event, happened.Finished)} == {1, 2}
    return [Handle("p", 1), Handle("p", 2)]


def brought(engine: Engine, handle: Handle) -> Any:
    """What an output is, once it is with the driver."""
    engine.do([orders.Fetch(handle, FIRST, open=True)])
    (held,) = collect(engine, 1)
    assert isinstance(held, happened.Held)
    assert (held.handle, held.holder) == (handle, DRIVER)
    return engine.take(handle, mine=True)


def test_a_launch_reports_its_beginning_and_its_end(engine: Engine, workers: int) -> None:
    begin(engine, Work(), workers)
    engine.do([launch(7, 0, 5)])
    events: list[happened.Event] = []
    while not any(isinstance(event, happened.Finished) for event in events):
        events += engine.wait(5.0)
    started, done = events
    assert started == happened.Started(7, FIRST)
    assert isinstance(done, happened.Finished)
    assert done.life == FIRST
    assert done.made == (Made("p", 0, here=not engine.capabilities.isolates),)
    assert done.report.evidence.steps
    assert done.measurement.bytes_read == 5
    assert 0 <= done.measurement.lock_wait <= done.measurement.wall
    assert done.measurement.cpu >= 0


def test_a_merge_makes_one_of_several_and_a_fetch_brings_it(engine: Engine, workers: int) -> None:
    begin(engine, Work(), workers)
    engine.do([merge(3, *finish_two(engine))])
    (merged,) = collect(engine, 1)
    assert isinstance(merged, happened.Finished)
    assert [one.output for one in merged.made] == ["m"]
    assert brought(engine, Handle("m", 3)) == [(0, row) for row in range(10)]


def test_a_merge_that_raises_is_reported_and_what_it_read_is_gone(engine: Engine, workers: int) -> None:
    error = TypeError("cannot add")
    begin(engine, Work(errors={("merge", (0, 0)): Always(error)}), workers)
    first, second = finish_two(engine)
    engine.do([merge(3, first, second), merge(4, second)])
    failed, again = collect(engine, 2)
    assert isinstance(failed, happened.Failed)
    assert is_same(failed.failure.exception, error, engine)
    assert isinstance(again, happened.Failed)
    assert (again.failure.kind, again.failure.type) == (FailureKind.LOST, "OutputLost")


def test_what_is_discarded_is_gone(engine: Engine, workers: int) -> None:
    work = Work()
    begin(engine, work, workers)
    first, second = finish_two(engine)
    partial = brought(engine, first)
    alive = weakref.ref(partial)
    del partial
    gc.collect()
    assert alive() is None, "the engine keeps what was taken"
    # One that was fetched and one that was not; discarding what is unknown does nothing.
    engine.do([launch(3, 10, 15)])
    (event,) = collect(engine, 1)
    assert isinstance(event, happened.Finished)
    third = Handle("p", 3)
    engine.do([orders.Fetch(third, FIRST), orders.Discard(third, (FIRST, DRIVER))])
    collect(engine, 1)
    engine.do([orders.Discard(second, (FIRST,)), orders.Discard(first, (FIRST, DRIVER, Life(9, 9)))])
    engine.do([merge(4, second)])
    assert isinstance(collect(engine, 1)[0], happened.Failed)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is Partial]


def test_a_cancelled_attempt_that_waits_is_not_run(engine: Engine, workers: int) -> None:
    work = Work(errors={(0, 5): Always(AssertionError("it ran"))})
    begin(engine, work, workers)
    engine.do([orders.Cancel(2, FIRST), launch(1, 0, 5), launch(2, 5, 10)])
    first, second = collect(engine, 2)
    assert isinstance(first, happened.Finished)
    assert second == happened.Cancelled(2, FIRST)


def test_an_attempt_is_given_back_or_run_but_not_both(engine: Engine, workers: int) -> None:
    begin(engine, Work(), workers)
    engine.do([launch(1, 0, 5), launch(2, 5, 10)._replace(queued=True), orders.Recall(2, FIRST)])
    events = collect(engine, 2)
    assert [type(event) for event in events if event.attempt == 1] == [happened.Finished]  # type: ignore[union-attr]
    (second,) = [event for event in events if event.attempt == 2]  # type: ignore[union-attr]
    assert isinstance(second, (happened.Finished, happened.Cancelled))


def test_an_input_that_is_opened_reports_rows_and_borders(engine: Engine, workers: int) -> None:
    begin(engine, Work(rows=10), workers)
    engine.do([orders.Launch(Task(1, "data", 1, OpenInput(4)), 1, FIRST, PLAN)])
    (opened,) = collect(engine, 1)
    assert isinstance(opened, happened.Finished)
    assert (opened.made, opened.report) == ((), Opened(10, (0, 5, 10)))


def test_a_worker_for_input_and_output_joins_when_it_is_started(engine: Engine, workers: int) -> None:
    begin(engine, Work(rows=10), workers)
    life, shares = Life(40, 0), not (engine.capabilities.isolates or isinstance(engine, BothEngines))
    engine.do([orders.StartWorker(life, io=True)])
    assert collect(engine, 1) == [happened.WorkerJoined(Worker(life, NO_NEEDS, io=True, shares=shares))]
    engine.do([launch(1, 0, 5)._replace(life=life)])
    assert collect(engine, 1)[0].life == life  # type: ignore[union-attr]


def test_a_worker_that_is_stopped_is_lost(engine: Engine, workers: int) -> None:
    work = Work()
    begin(engine, work, workers)
    engine.do([launch(1, 0, 5), orders.StopWorker(FIRST)])
    assert collect(engine, 2)[-1] == happened.WorkerLost(FIRST)


def test_waiting_ends_when_told(engine: Engine, workers: int) -> None:
    begin(engine, Work(), workers)
    assert engine.wait(0.0) == []
    engine.wake()
    assert engine.wait(None) == []


def test_stopping_twice_or_before_starting_is_allowed(engine: Engine) -> None:
    engine.stop()
    engine.stop()


def test_capabilities_are_honest(engine: Engine) -> None:
    processes = type(engine) in (ProcessesEngine, DaskEngine)  # of both kinds, threads have neither
    capabilities = engine.capabilities
    assert capabilities.can_kill is processes
    assert capabilities.isolates is processes


def test_a_signal_that_reached_another_thread_is_heard() -> None:
    """The kernel may give a signal to any thread; Python's handler runs in the main one, which must not sleep on."""
    engine = ThreadsEngine(1)
    heard = threading.Event()

    def handler(number: int, frame: Any) -> None:
        heard.set()
        engine.wake()

    former = signal.signal(signal.SIGUSR1, handler)
    try:
        engine._bell.put(None)
        engine.wait(None)

        def send() -> None:
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # to this thread, not to the main one

        sender = threading.Thread(target=send)
        sender.start()
        assert engine.wait(None) == []  # returns because the handler rang
        sender.join()
        assert heard.is_set()
    finally:
        signal.signal(signal.SIGUSR1, former)
        engine.stop()
