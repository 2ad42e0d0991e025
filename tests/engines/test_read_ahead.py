"""Threads that set up ahead of the workers: each chunk once, memory bounded, and nothing left behind."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from row_workload import RowSide, RowWork
from searching import examples
from windrow.core.commands import Cancel, Launch, StopWorker
from windrow.core.events import Cancelled, CancelRequested, Finished, Started, WorkerLost
from windrow.core.policies import Policies
from windrow.core.records import Evidence, InputSpec, Life, Measurement, Plan, Rows, RunRows, Task
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.base import Reading
from windrow.engines.read_ahead import CHUNKS_AHEAD, ReadAhead
from windrow.engines.threads import ThreadsEngine
from windrow.place.read_ahead_split import FixedSplit, Pool
from windrow.run.loop import run
from windrow.shape.fixed import Fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLAN = Plan(id=0, category="a")
MUCH = 1 << 40


class Parcel:
    """What a fake ahead gives: it knows its rows, and how many there are of its kind."""

    def __init__(self, rows: Rows, memory: int, living: weakref.WeakSet[Parcel]) -> None:
        self.rows = rows
        self.memory = memory
        living.add(self)


class Side(RowSide):
    """A worker's side that watches how it is used."""

    reading = Reading(0.01, 0.001)

    def __init__(self, work: Work) -> None:
        self.work = work
        self.thread = threading.current_thread()
        self.closed = False

    def check(self) -> None:
        assert threading.current_thread() is self.thread, "used by another thread than its own"
        assert not self.closed, "used after it was closed"

    def open_input(self, number: int) -> tuple[int, tuple[int, ...]]:
        self.check()
        return self.work.rows, tuple(range(0, self.work.rows + 1, 5))

    def prepare(self, task: Task, plan: Plan) -> Parcel | None:
        self.check()
        assert plan.category in "ab"
        (part,) = task.payload.rows
        with self.work.lock:
            self.work.prepared.append(part)
        self.work.while_preparing(part)
        return Parcel(part, self.work.memory, self.work.living)

    def run_rows(self, rows: tuple[Rows, ...], plan: Plan, prepared: Any) -> tuple[Any, Measurement, Evidence]:
        self.check()
        assert plan.category in "ab"
        (part,) = rows
        assert all(one.rows == part for one in prepared)
        with self.work.lock:
            self.work.ran.append((part, bool(prepared)))
            self.work.most_living = max(self.work.most_living, len(self.work.living))
        if prepared:
            prepared.pop()
        self.work.while_running(part)
        partial = [(part.input, row) for row in range(part.start, part.stop)]
        return partial, Measurement(), Evidence()

    def merge(self, partials: Sequence[Any]) -> Any:
        self.check()
        return [row for partial in partials for row in partial]

    def close(self) -> None:
        assert threading.current_thread() is self.thread
        self.closed = True


class Work(RowWork):
    """A workload; what happens while it prepares and runs can be replaced."""

    def __init__(self, rows: int = 40, memory: int = 100) -> None:
        self.rows = rows
        self.memory = memory
        self.lock = threading.Lock()
        self.prepared: list[Rows] = []
        self.ran: list[tuple[Rows, bool]] = []
        self.living: weakref.WeakSet[Parcel] = weakref.WeakSet()
        self.most_living = 0
        self.sides: list[Any] = []
        self.while_preparing: Callable[[Rows], object] = lambda part: None
        self.while_running: Callable[[Rows], object] = lambda part: None

    def open_worker(self, worker: int) -> Any:
        side = Side(self)
        with self.lock:
            self.sides.append(side)
        return side


class Eager:
    """A split that changes whenever it is told something."""

    waits = False

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = itertools.cycle(pools)
        self.pool = next(self._pools)
        self.told: list[Any] = []

    def set_up(self, rows: int, wall_s: float, cpu_s: float) -> None:
        assert wall_s >= 0
        assert cpu_s >= 0
        self.told.append(rows)

    def processed(self, rows: int, wall_s: float, reading_s: float, waited_s: float, now: float) -> None:
        assert rows > 0
        assert now > 0
        assert wall_s >= 0
        assert 0 <= waited_s <= reading_s
        self.pool = next(self._pools)

    def said(self) -> str:
        return ""


pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Deep(Fixed):
    """Queues deep enough to read ahead of."""

    def window(self, task_s: float | None) -> int:
        return 1 + CHUNKS_AHEAD


def go(ahead: ReadAhead, work: Work, workers: int, inputs: int = 3, **options: Any) -> Any:
    specs = [InputSpec(id=number, category="ab"[number % 2]) for number in range(inputs)]
    feeder = RowFeeder(specs, Policies(Deep(5)), RowOptions(**options))
    scheduler = Scheduler(feeder)
    engine = ThreadsEngine(workers, ahead)
    outcome = run(scheduler, engine, work)
    check_clean(ahead, work)
    return outcome


def check_clean(ahead: ReadAhead, work: Work) -> None:
    assert ahead.held == 0
    assert not ahead._ready
    assert not ahead._pending
    assert not ahead._at_work
    assert all(side.closed for side in work.sides)
    assert not work.living, "what was set up is still in memory"


def all_rows(outcome: Any) -> list[Any]:
    return sorted(row for parts in outcome.partials.values() for part in parts for row in part)


def expected(work: Work, inputs: int = 3) -> list[Any]:
    return [(number, row) for number in range(inputs) for row in range(work.rows)]


pools = st.builds(Pool, st.integers(0, 5), st.integers(1, 4))


@settings(max_examples=examples(25))
@given(st.lists(pools, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
def test_every_row_is_done_once_however_the_split_changes(changes: list[Pool], workers: int, inputs: int) -> None:
    work = Work()
    ahead = ReadAhead(Eager(changes), workers, MUCH)
    outcome = go(ahead, work, workers, inputs)
    assert outcome.status == "complete"
    assert all_rows(outcome) == expected(work, inputs)
    assert len(work.prepared) == len(set(work.prepared)), "set up twice"
    assert {part for part, had in work.ran if had} <= set(work.prepared)


@pytest.mark.parametrize("split", [(1, 1), (1, 3), (2, 2), (3, 1)])
def test_in_a_fixed_split_everything_is_set_up_apart(split: tuple[int, int]) -> None:
    work = Work(rows=100)
    now: dict[str, int] = {"preparing": 0, "running": 0}
    most = dict(now)

    def counted(what: str) -> Callable[[Rows], None]:
        def at_work(part: Rows) -> None:
            with work.lock:
                now[what] += 1
                most[what] = max(most[what], now[what])
            threading.Event().wait(0.002)
            with work.lock:
                now[what] -= 1

        return at_work

    work.while_preparing, work.while_running = counted("preparing"), counted("running")
    ahead = ReadAhead(FixedSplit(*split), sum(split), MUCH)
    outcome = go(ahead, work, sum(split))
    assert all_rows(outcome) == expected(work)
    assert all(had for _, had in work.ran)
    assert most["preparing"] <= split[0]


def test_the_buffer_is_bounded_and_what_is_used_is_let_go() -> None:
    work = Work(rows=400, memory=100)
    ahead = ReadAhead(FixedSplit(3, 1), 4, memory=350)
    go(ahead, work, 4)
    # Each worker may wait for one although there is no room; it takes it as soon as it is there.
    assert ahead.most_held <= 350 + 4 * 100
    assert work.most_living <= 3 + 4 + 4


def test_the_buffer_is_bounded_exactly_where_nobody_waits_for_it() -> None:
    work = Work(rows=400, memory=100)
    ahead = ReadAhead(Eager([Pool(3, 1)]), 4, memory=350)
    go(ahead, work, 4)
    assert 0 < ahead.most_held <= 300


def test_no_more_than_some_chunks_are_ahead_where_they_are_small() -> None:
    work = Work(rows=400, memory=0)
    work.while_running = lambda part: threading.Event().wait(0.001)
    ahead = ReadAhead(FixedSplit(2, 1), 2, MUCH)
    go(ahead, work, 2)
    assert work.most_living <= CHUNKS_AHEAD * 2 + 2


def test_a_chunk_larger_than_the_buffer_is_set_up_by_itself() -> None:
    work = Work(rows=50, memory=1000)
    ahead = ReadAhead(FixedSplit(2, 2), 4, memory=10)
    outcome = go(ahead, work, 4)
    assert all_rows(outcome) == expected(work)
    assert any(had for _, had in work.ran)


def test_what_cannot_be_set_up_is_read_by_the_worker() -> None:
    work = Work()

    def fail(part: Rows) -> None:
        if part.input == 1:
            raise OSError("not now")

    work.while_preparing = fail
    outcome = go(ReadAhead(FixedSplit(1, 1), 2, MUCH), work, 2)
    assert outcome.status == "complete"
    assert all_rows(outcome) == expected(work)
    assert {had for part, had in work.ran if part.input == 1} == {False}
    assert {had for part, had in work.ran if part.input != 1} == {True}


def test_a_failing_run_leaves_nothing_behind() -> None:
    work = Work(rows=200)

    def fail(part: Rows) -> None:
        if part.start == 50:
            raise ValueError("bad row")

    work.while_running = fail
    outcome = go(ReadAhead(FixedSplit(2, 2), 4, MUCH), work, 4)
    assert outcome.status == "failed"
    assert str(outcome.failure.exception) == "bad row"


def test_rows_that_fail_are_left_out_and_the_rest_is_done() -> None:
    work = Work(rows=40)

    def fail(part: Rows) -> None:
        if part == Rows(0, 10, 15):
            raise ValueError("bad row")

    work.while_running = fail
    outcome = go(ReadAhead(FixedSplit(1, 1), 2, MUCH), work, 2, on_error="skip")
    assert outcome.status == "incomplete"
    gone = {(0, row) for row in range(10, 15)}
    assert all_rows(outcome) == [row for row in expected(work) if row not in gone]


def test_a_cancelled_run_ends_although_setting_up_takes_long() -> None:
    work = Work(rows=500)
    engine = ThreadsEngine(2, ReadAhead(FixedSplit(1, 1), 2, MUCH))
    wait = engine.wait
    seen: list[Any] = []

    def waiting(timeout: float | None) -> list[Any]:
        events = wait(timeout)
        seen.extend(event for event in events if isinstance(event, Finished) and event.made)
        if len(seen) >= 5:
            events.append(CancelRequested("enough"))
        return events

    engine.wait = waiting  # type: ignore[method-assign]
    specs = [InputSpec(id=number, category="a") for number in range(3)]
    scheduler = Scheduler(RowFeeder(specs, Policies(Deep(5))))
    outcome = run(scheduler, engine, work)
    assert outcome.cancelled
    assert engine.read_ahead is not None
    check_clean(engine.read_ahead, work)


def test_a_workload_that_cannot_read_ahead_is_none_the_worse_for_it() -> None:
    class Unable(Side):
        def prepare(self, task: Task, plan: Plan) -> None:
            return None

    class Plain(Work):
        def open_worker(self, worker: int) -> Any:
            side = Unable(self)
            with self.lock:
                self.sides.append(side)
            return side

    work = Plain()
    outcome = go(ReadAhead(FixedSplit(1, 1), 2, MUCH), work, 2)
    assert all_rows(outcome) == expected(work)
    assert not any(had for _, had in work.ran)


# -- the engine by hand ----------------------------------------------------------------------------


def launch(number: int, worker: int) -> Launch:
    rows = Rows(0, 5 * number, 5 * number + 5)
    return Launch(Task(number, "a", 5, RunRows((rows,)), makes=("p",)), number, Life(worker, 0), PLAN)


def until(engine: ThreadsEngine, wanted: Callable[[list[Any]], bool]) -> list[Any]:
    seen: list[Any] = []
    for _ in range(400):
        seen += engine.wait(0.05)
        if wanted(seen):
            return seen
    raise AssertionError(f"it did not happen: {seen}")


def test_a_launch_that_is_cancelled_before_it_begins_is_forgotten_in_the_buffer() -> None:
    work, running = Work(), threading.Event()
    work.while_running = lambda part: running.wait(10)
    ahead = ReadAhead(FixedSplit(1, 1), 1, MUCH)
    engine = ThreadsEngine(1, ahead)
    engine.start(work)
    engine.do([launch(1, 0), launch(2, 0), launch(3, 0)])
    until(engine, lambda _: len(work.prepared) == 3 and ahead.held == 200)
    engine.do([Cancel(2, Life(0, 0))])
    running.set()
    seen = until(engine, lambda seen: sum(isinstance(e, Finished) for e in seen) == 2)
    assert Cancelled(2, Life(0, 0)) in seen
    assert [event.attempt for event in seen if isinstance(event, Started)] in ([1, 3], [3])
    engine.stop()
    check_clean(ahead, work)


def test_what_a_lost_worker_had_before_it_is_forgotten() -> None:
    work = Work()
    ahead = ReadAhead(FixedSplit(1, 2), 2, MUCH)
    engine = ThreadsEngine(2, ahead)
    engine.start(work)
    engine.do([launch(1, 0)])
    until(engine, lambda seen: any(isinstance(e, Finished) for e in seen))
    engine.do([StopWorker(Life(0, 0)), launch(2, 0), launch(3, 1)])
    seen = until(
        engine,
        lambda seen: (
            any(isinstance(e, WorkerLost) for e in seen)
            and any(isinstance(e, Finished) and e.attempt == 3 for e in seen)
        ),
    )
    assert all(event.attempt != 2 for event in seen if isinstance(event, Started))
    for _ in range(400):
        if not ahead.held and not ahead._at_work:
            break
        threading.Event().wait(0.01)
    assert ahead.held == 0
    assert not ahead._pending
    engine.stop()
    check_clean(ahead, work)


def test_stopping_does_not_wait_for_what_nobody_has_begun() -> None:
    work, preparing = Work(), threading.Event()
    work.while_preparing = lambda part: preparing.wait(10)
    ahead = ReadAhead(FixedSplit(1, 1), 2, MUCH)
    engine = ThreadsEngine(2, ahead)
    engine.start(work)
    engine.do([launch(number, number % 2) for number in range(1, 7)])
    until(engine, lambda _: len(work.prepared) == 1)
    threading.Timer(0.05, preparing.set).start()
    engine.stop()
    assert len(work.prepared) == 1
    assert not work.ran
    check_clean(ahead, work)


def test_workers_that_wait_do_not_wake_each_other_for_ever() -> None:
    work, preparing = Work(), threading.Event()
    work.while_preparing = lambda part: preparing.wait(10)
    ahead = ReadAhead(FixedSplit(1, 3), 4, MUCH)
    notify, woken = ahead._changed.notify_all, itertools.count(1)

    def counted() -> None:
        next(woken)
        notify()

    ahead._changed.notify_all = counted  # type: ignore[method-assign]
    engine = ThreadsEngine(4, ahead)
    engine.start(work)
    engine.do([launch(number, number % 4) for number in range(1, 9)])
    until(engine, lambda _: len(ahead._urgent) == 3)
    threading.Event().wait(0.1)
    assert next(woken) < 50
    preparing.set()
    engine.stop()
    check_clean(ahead, work)
