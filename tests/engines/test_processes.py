"""Worker processes: every way in which one ends, limits, cancelling, and that nothing is left behind."""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import psutil
import pytest

from process_jobs import NAMES, Stubborn, StubbornError, Work, rows_of
from windrow.core.commands import Cancel, Discard, Fetch, Inspect, Launch, Merge, Shrink, StartWorker, StopWorker
from windrow.core.events import (
    Cancelled,
    Discovered,
    Event,
    Exhausted,
    Failed,
    Fetched,
    FetchFailed,
    Finished,
    Merged,
    Started,
    WorkerJoined,
    WorkerLost,
)
from windrow.core.records import FailureKind, Handle, Needs, Plan, Rows, Task, Worker
from windrow.engines.processes.engine import ProcessesEngine
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAN = Plan(id=0, category="data")
#: Longer than anything here takes on a busy machine.
PATIENCE_S = 60.0
AnEvent = TypeVar("AnEvent", bound=Event)


class Bench:
    """An engine and what it has reported."""

    def __init__(self, workers: int, work: Any = None, **options: Any) -> None:
        options.setdefault("preload", ())
        self.engine = ProcessesEngine(workers, **options)
        self.events: list[Event] = []  #: that nobody asked for yet
        self._numbers = count(1)
        try:
            self.engine.start(work or Work())
            for _ in range(workers):
                self.until(WorkerJoined)
        except EngineError:
            self.engine.stop()
            raise

    def do(self, *commands: Any) -> None:
        self.engine.do(commands)

    def until(self, kind: type[AnEvent]) -> AnEvent:
        """Wait for an event; those before it are passed over."""
        while True:
            while self.events:
                event = self.events.pop(0)
                if isinstance(event, kind):
                    return event
            self.events = self.engine.wait(PATIENCE_S)
            assert self.events, f"no {kind.__name__} came"

    def ends(self) -> list[Event]:
        """All events up to the loss of a worker."""
        found: list[Event] = []
        while not (found and isinstance(found[-1], WorkerLost)):
            if not self.events:
                self.events = self.engine.wait(PATIENCE_S)
                assert self.events, f"no worker was lost: {found}"
            found.append(self.events.pop(0))
        return found

    def launch(self, job: str, worker: int = 0, incarnation: int = 0, rows: int = 10, **limits: float) -> int:
        number = next(self._numbers)
        task = Task(number, "data", (Rows(NAMES.index(job), 0, rows),), rows)
        needs = Needs.of(limits)
        self.do(Launch(task, number, worker, incarnation, PLAN, needs))
        return number

    def result(self, job: str, worker: int = 0, rows: int = 10) -> Any:
        self.launch(job, worker, rows=rows)
        return self.fetch(self.until(Finished).handle)

    def fetch(self, handle: Handle) -> Any:
        self.do(Fetch(handle))
        self.until(Fetched)
        return self.engine.take(handle)


def descendants() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def memory_files() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:windrow ")


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Makes engines, and sees that they leave no process, file or memory behind."""
    gc.collect()
    files = sorted(file.name for file in Path("/proc/self/fd").iterdir())
    processes, maps = descendants(), memory_files()
    made: list[Bench] = []

    def make(workers: int = 1, work: Any = None, **options: Any) -> Bench:
        made.append(Bench(workers, work, **options))
        return made[-1]

    yield make
    for one in made:
        one.engine.stop()
        one.events.clear()
    gc.collect()
    assert sorted(file.name for file in Path("/proc/self/fd").iterdir()) == files
    assert descendants() == processes
    assert memory_files() == maps


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not our child is gone."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([file], [], [], PATIENCE_S)[0], f"process {pid} lives on"
    finally:
        os.close(file)


# -- how a worker ends


@pytest.mark.parametrize(
    ("job", "kind", "words"),
    [
        ("exit", FailureKind.CRASHED, "exited with code 3"),
        ("segfault", FailureKind.CRASHED, "ended by signal 11 (SIGSEGV)"),
        ("abort", FailureKind.CRASHED, "ended by signal 6 (SIGABRT)"),
        ("bus", FailureKind.CRASHED, "ended by signal 7 (SIGBUS)"),
        ("terminate", FailureKind.LOST, "ended by signal 15 (SIGTERM)"),
        ("stop", FailureKind.LOST, "somebody stopped it (SIGSTOP)"),
        ("write to the socket", FailureKind.CRASHED, "not from Windrow"),
    ],
)
def test_an_end_is_classified_and_the_worker_lives_again(
    bench: Callable[..., Bench], job: str, kind: FailureKind, words: str
) -> None:
    here = bench()
    here.launch("rows")
    number = here.launch(job, rows=1000)
    here.launch("rows")  # waits behind it, and is never begun
    first, done, started, lost = here.ends()
    assert first == Started(number - 1, 0, 0)
    assert isinstance(done, Finished), "what was sent before the end is reported before it"
    assert started == Started(number, 0, 0)
    assert isinstance(lost, WorkerLost)
    assert lost.failure is not None
    assert lost.failure.kind is kind
    assert words in lost.failure.message
    place = f"rows 0-1000 of input {NAMES.index(job)}"
    assert lost.failure.message.endswith(f"while it ran {place}")
    assert lost.failure.place == place
    # Whatever is meant for the former life is dropped.
    here.do(Fetch(done.handle), Discard(done.handle), Cancel(number, 0, 0), StopWorker(0, 0))
    here.do(StartWorker(0, 1))
    assert here.until(WorkerJoined) == WorkerJoined(Worker(0, 1))
    here.launch("rows", incarnation=1)
    assert here.until(Finished).handle.incarnation == 1


def test_a_worker_killed_from_outside_is_lost_and_nobody_is_to_blame(bench: Callable[..., Bench]) -> None:
    here = bench(2)
    pid = here.result("pid", worker=1)
    os.kill(pid, signal.SIGKILL)
    (lost,) = here.ends()
    assert isinstance(lost, WorkerLost)
    assert lost.failure is not None
    assert (lost.worker, lost.failure.kind) == (1, FailureKind.LOST)
    assert lost.failure.message.endswith("while it ran none of the user's rows")
    assert here.result("rows", worker=0) == rows_of(Rows(0, 0, 10)), "the other one is undisturbed"


def test_a_system_exit_is_an_exception_like_any_other(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.launch("system exit")
    assert here.until(Failed).failure.type == "SystemExit"
    assert here.result("rows") == rows_of(Rows(0, 0, 10))


def test_a_stopped_worker_closes_its_side_and_what_that_raises_is_a_warning(bench: Callable[..., Bench]) -> None:
    here = bench(1, Work("cannot close"))
    here.launch("rows")
    here.do(StopWorker(0, 0))
    assert here.ends()[-1] == WorkerLost(0, 0, None)
    with pytest.warns(ResourceWarning, match="a file that stays open"):
        here.engine.stop()


# -- limits


@pytest.mark.parametrize("job", ["hog", "hog in a child"])
def test_too_much_memory_ends_the_attempt_wherever_it_is(bench: Callable[..., Bench], job: str) -> None:
    here = bench(2)
    here.launch("hang", worker=1)
    number = here.launch(job, memory=300e6)
    *_, exhausted, lost = here.ends()
    assert isinstance(exhausted, Exhausted)
    assert exhausted[:5] == (number, 0, 0, "memory", 300e6)
    assert 300e6 < exhausted.used < 3000e6
    assert isinstance(lost, WorkerLost)
    assert lost.failure is not None
    assert lost.failure.kind is FailureKind.LOST
    assert "of memory, with 300 MB allowed" in lost.failure.message


def test_too_much_time_ends_the_attempt_and_what_it_started(bench: Callable[..., Bench]) -> None:
    here = bench()
    number = here.launch("hang with children", seconds=0.2)
    *_, exhausted, lost = here.ends()
    assert isinstance(exhausted, Exhausted)
    assert exhausted[:5] == (number, 0, 0, "seconds", 0.2)
    assert exhausted.used >= 0.2
    assert isinstance(lost, WorkerLost)
    here.do(StartWorker(0, 1))
    here.until(WorkerJoined)
    here.launch("rows", incarnation=1, seconds=PATIENCE_S, memory=2e9)
    assert here.until(Finished), "limits that are not reached do nothing"


# -- measuring


def test_memory_is_measured_for_each_attempt_and_the_whole_tree(bench: Callable[..., Bench]) -> None:
    here = bench()
    peaks = {}
    for job in ("rows", "peak", "burn in a child", "hold in a child", "rows"):
        # With a limit the tree is looked at from the start; otherwise once a second.
        here.launch(job, memory=8e9)
        measured = here.until(Finished).measurement
        assert measured.peak_memory >= measured.baseline > 5e6
        assert measured.bytes_read == 7
        peaks[job] = measured.peak_memory
    assert peaks["peak"] > peaks["rows"] + 90e6, "the last small one is small again"
    assert peaks["hold in a child"] > peaks["rows"] + 120e6


def test_cpu_of_children_counts(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.launch("burn in a child")
    measured = here.until(Finished).measurement
    assert measured.cpu >= 0.05
    assert measured.wall >= 0.05
    here.launch("rows")
    assert here.until(Finished).measurement.cpu < 0.05


def test_metering_can_be_switched_off(bench: Callable[..., Bench]) -> None:
    here = bench(metering=False)
    here.launch("rows")
    measured = here.until(Finished).measurement
    assert measured.peak_memory == 0
    assert measured.wall > 0


# -- what comes back


def test_a_large_partial_comes_in_shared_memory(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.launch("array", rows=25_000_000)
    handle = here.until(Finished).handle
    here.do(Fetch(handle))
    fetched = here.until(Fetched)
    assert fetched.handle == handle
    assert fetched.bytes > 200e6
    assert fetched.seconds > 0
    values = here.engine.take(handle)["values"]
    values += 1  # private memory
    assert int(values[0]) == 1
    assert int(values[-1]) == 25_000_000
    assert int(values.sum(dtype=np.int64)) == 25_000_000 * 25_000_001 // 2


def test_a_result_that_cannot_be_pickled_is_named(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.launch("lock")
    handle = here.until(Finished).handle
    here.do(Fetch(handle))
    failed = here.until(FetchFailed)
    assert failed.handle == handle
    assert failed.failure.kind is FailureKind.USER
    assert "the result['in'][0] (_thread.lock) cannot be pickled" in failed.failure.message
    assert 'engine="threads"' in failed.failure.message
    assert isinstance(failed.failure.exception, EngineError)
    assert here.result("rows") == rows_of(Rows(0, 0, 10)), "its worker goes on"


def test_a_result_that_cannot_be_unpickled_is_a_failure(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.launch("stubborn")
    here.do(Fetch(here.until(Finished).handle))
    failed = here.until(FetchFailed)
    assert "cannot be unpickled here (ValueError: only at home)" in failed.failure.message
    Stubborn()  # it can be made, though


def test_functions_and_classes_of_no_module_go_and_come_back(bench: Callable[..., Bench]) -> None:
    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    here = bench(1, Work(lambda part: Local(part.stop)))
    found = here.result("lambda", rows=33)
    assert type(found) is Local, "the very class"
    assert found.value == 33
    assert bench().result("lambda", rows=4)(1) == 5


def test_large_arrays_of_the_workload_are_packed_once_and_are_private(bench: Callable[..., Bench]) -> None:
    values = np.arange(1_000_000)

    def change(part: Any) -> Any:
        values[:5] += 1
        return values[:5].tolist()

    here = bench(2, Work(change))
    for worker in (0, 1, 0):
        found = here.result("lambda", worker)
    assert found == [2, 3, 4, 5, 6]
    assert values[:5].tolist() == [0, 1, 2, 3, 4]


def test_merges_inspections_and_discards(bench: Callable[..., Bench]) -> None:
    here, maps = bench(), memory_files()
    here.launch("rows")
    first = here.until(Finished).handle
    here.launch("rows")
    second = here.until(Finished).handle
    into = Handle(99, 99, 0, 0, first.rows)
    here.do(Merge((first, second), into, 0, 0), Shrink(1, 0, 0, 5), Inspect(4, 0, 0))
    assert here.until(Merged) == Merged(into, (first.id, second.id), 0, 0)
    assert here.until(Discovered) == Discovered(4, 10, (0, 10), 0, 0)
    assert here.fetch(into) == rows_of(Rows(0, 0, 10)) * 2
    here.launch("array", rows=100_000)
    handle = here.until(Finished).handle
    here.do(Fetch(handle), Discard(handle))
    assert here.until(Fetched).handle == handle
    assert memory_files() == maps, "nobody wanted it any more"
    with pytest.raises(KeyError):
        here.engine.take(handle)


@pytest.mark.parametrize(
    ("job", "type_", "words"),
    [
        ("raise stubborn", StubbornError, "1 and 2"),
        ("raise locked", EngineError, "LockedError: ('has a lock'"),
        ("raise deep", KeyError, "deep"),
    ],
)
def test_an_exception_tells_where_it_was_raised(
    bench: Callable[..., Bench], job: str, type_: type[Exception], words: str
) -> None:
    here = bench(2)
    here.launch(job, worker=1)
    error = here.until(Failed).failure.exception
    assert type(error) is type_
    assert words in str(error)
    story = error.__notes__[-1]
    assert "In the process of worker 1:" in story
    assert "process_jobs.py" in story
    assert job.replace(" ", "_") in story
    if job == "raise deep":
        assert isinstance(error.__cause__, ValueError)


def test_workers_do_not_draw_the_same_numbers(bench: Callable[..., Bench]) -> None:
    here = bench(2, preload=["numpy.random"])
    assert here.result("numpy draw", 0) != here.result("numpy draw", 1)


def test_prints_go_where_the_drivers_go(bench: Callable[..., Bench], capfd: pytest.CaptureFixture[str]) -> None:
    here = bench()
    here.launch("say")
    here.until(Finished)
    assert capfd.readouterr().out == "a word from a step\n"


def test_ctrl_c_is_the_drivers(bench: Callable[..., Bench]) -> None:
    pid, session, handler = bench().result("where")
    assert session != os.getsid(0)
    assert handler == signal.SIG_IGN
    assert pid != os.getpid()


# -- cancelling


def test_a_cancel_overtakes_what_waits(bench: Callable[..., Bench]) -> None:
    here = bench(grace_s=0.0)
    number = here.launch("hold in a child")  # runs for a while
    here.until(Started)
    waiting = [here.launch("exit") for _ in range(5)]
    for one in waiting:
        here.do(Cancel(one, 0, 0))
    assert here.until(Finished).attempt == number
    for one in waiting:
        assert here.until(Cancelled) == Cancelled(one, 0, 0)
    here.do(Cancel(number, 0, 0))  # has ended
    assert here.result("rows") == rows_of(Rows(0, 0, 10))


def test_a_cancelled_attempt_that_runs_on_is_killed_with_all_it_started(bench: Callable[..., Bench]) -> None:
    here = bench(2, grace_s=0.1)
    number = here.launch("hang with children")
    second = here.launch("rows")
    here.until(Started)
    here.do(Cancel(number, 0, 0), Cancel(second, 0, 0))
    first, then, lost = here.ends()
    assert [first, then] == [Cancelled(number, 0, 0), Cancelled(second, 0, 0)]
    assert isinstance(lost, WorkerLost)
    assert lost.failure is not None
    assert lost.failure.kind is FailureKind.LOST
    assert here.result("rows", worker=1) == rows_of(Rows(0, 0, 10))


def test_a_cancelled_attempt_may_end_by_itself(bench: Callable[..., Bench]) -> None:
    here = bench(grace_s=PATIENCE_S)
    number = here.launch("hold in a child")
    here.until(Started)
    here.do(Cancel(number, 0, 0))
    assert here.until(Finished).attempt == number
    assert here.result("rows") == rows_of(Rows(0, 0, 10))


# -- beginning and end


def test_a_workload_that_cannot_be_pickled_is_refused_at_once(bench: Callable[..., Bench]) -> None:
    lock = threading.Lock()
    words = r"workload\.extra -> its variable 'lock' \(_thread\.lock\) cannot be pickled"
    with pytest.raises(EngineError, match=words) as caught:
        bench(2, Work(lambda part: lock))
    assert 'engine="threads"' in str(caught.value)


def test_a_workload_that_cannot_be_unpickled_is_refused_by_the_workers(bench: Callable[..., Bench]) -> None:
    with pytest.raises(EngineError, match="only at home") as caught:
        bench(2, Work(Stubborn()))
    assert "no worker process could begin" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_workers_that_are_ended_from_outside_before_they_are_ready_may_begin_again() -> None:
    engine = ProcessesEngine(2, preload=())
    before = set(psutil.Process().children())
    try:
        engine.start(Work())
        (server,) = set(psutil.Process().children()) - before
        server.kill()
        lost: list[Event] = []
        while len(lost) < 2:
            events = engine.wait(PATIENCE_S)
            assert events, f"no worker was lost: {lost}"
            lost += [event for event in events if isinstance(event, WorkerLost)]
        engine.do([StartWorker(0, 1)])
        assert engine.wait(PATIENCE_S) == [WorkerJoined(Worker(0, 1))]
    finally:
        engine.stop()


def test_stopping_while_busy_ends_everybody(bench: Callable[..., Bench]) -> None:
    here = bench(2)
    here.launch("hang with children", worker=0)
    here.launch("hang", worker=1)
    here.until(Started)
    here.until(Started)
    assert len(descendants()) >= 3
    here.engine.stop()
    here.engine.stop()


def test_what_a_finished_attempt_left_running_ends_with_the_worker(bench: Callable[..., Bench]) -> None:
    here = bench()
    worker, child = here.result("leave a child")
    here.do(StopWorker(0, 0))
    here.ends()
    for pid in (worker, child):
        wait_for_end(pid)


def test_an_engine_that_was_never_started_has_nothing_to_stop() -> None:
    engine = ProcessesEngine(1)
    engine.wake()
    engine.stop()


def test_a_wake_from_a_signal_handler_ends_the_wait(bench: Callable[..., Bench]) -> None:
    here = bench()
    former = signal.signal(signal.SIGUSR1, lambda number, frame: here.engine.wake())
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert here.engine.wait(None) == []
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_a_driver_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            from test_processes import *

            here = Bench(2)
            for worker in (0, 1):
                here.launch("hang with children", worker)
            here.until(Started), here.until(Started)
            while len(pids := descendants()) < 5:  # a server, two workers, a child of each
                pass
            print(*pids, flush=True)
            here.engine.wait(None)
            """
        )
    )
    path = os.pathsep.join(sys.path)
    driver = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    assert len(pids) == 5
    driver.kill()
    driver.wait()
    driver.stdout.close()
    for pid in pids:
        wait_for_end(pid)
