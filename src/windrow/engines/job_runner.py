"""Runs launches for one life of a worker with the workload's side, and measures what they use.

A runner belongs to the thread that made it; no other touches it, so it needs no lock. Exceptions of the workload become failures
here, and nowhere else.
"""

from __future__ import annotations

import os
import resource
import time
import warnings
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from windrow.core.events import Failed, WorkerJoined
from windrow.core.records import NO_NEEDS, ONE_CORE, Failure, FailureKind, Measurement, RunRows, Worker, make_record
from windrow.engines.base import NO_READING, Outcome
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.core.commands import Launch
    from windrow.core.records import Life
    from windrow.engines.base import Job, Reading, WorkerSide, Workload
    from windrow.engines.supervisor.status_page import StatusPage

#: Seconds of a short task: the next one is taken to be short too, and what it uses is not looked up, unless it has limits or runs
#: rows. That takes four system calls in a thread, two of which let go of the interpreter lock, and some 0.03 ms in a process, which
#: is longer than many a task.
BRIEF_S = 0.005
#: Of short tasks one in so many is measured, where the session chooses between threads and processes by what tasks take.
SAMPLE = 8


class RunQueue:
    """How long the calling thread was ready to run and had no processor; only Linux tells."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1
        self.known = self._file >= 0

    def delay_s(self) -> float:
        """Give the seconds waited since the thread began, if they are known."""
        return int(os.pread(self._file, 80, 0).split()[1]) * 1e-9

    def close(self) -> None:
        if self.known:
            os.close(self._file)
            self.known = False


def _cpu_s() -> float:
    """Give the CPU of all threads of the process and of the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class JobRunner:
    """Runs launches for one life of one worker.

    Where the worker is a process and has a ``page``, all CPU of the process is spent on the attempt; the wait for the interpreter lock
    is always that of the worker's thread alone.
    """

    def __init__(self, workload: Workload, life: Life, page: StatusPage | None = None) -> None:
        self.brief = False  #: the last task was short
        self.samples = False  #: some short ones are measured nevertheless
        self._workload = workload
        self._life = life
        self._page = page
        self._side: WorkerSide | None = None
        self._queue = RunQueue()

    @property
    def reading(self) -> Reading:
        return NO_READING if self._side is None else self._side.reading

    def run(self, launch: Launch, job: Job) -> Outcome | Failed:
        """Run a launch: what it gave, with what it used, or how it failed; KeyboardInterrupt alone passes through.

        What it used beside time is told as zero, which is "not known", after a short one.
        """
        try:
            return self._measured(self.open(), launch, job)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - translated: the worker must outlive its jobs
            return self.failed(launch, error)

    def open(self) -> WorkerSide:
        """Give the worker's side, which is made when it is first asked for; raises what that raises."""
        if self._side is None:
            self._side = self._workload.open_worker(self._life.worker)
        return self._side

    def failed(self, launch: Launch, error: BaseException) -> Failed:
        """Say that a launch failed, and whose fault that is."""
        return Failed(launch.attempt, self._life, self.classify(error))

    def news(self) -> Any:
        """Ask the worker's side what home should know; None if there is nothing."""
        return None if self._side is None else self._side.news()

    def classify(self, error: BaseException) -> Failure:
        """Ask the workload whose fault it is; if that fails too, it is ours."""
        try:
            return self._workload.classify(error)
        except Exception as second:  # noqa: BLE001 - translated into an INTERNAL failure
            message = f"{error!r} could not be classified: {second!r}"
            return Failure(FailureKind.INTERNAL, type(second).__name__, message, "", second)

    def _measured(self, side: WorkerSide, launch: Launch, job: Job) -> Outcome:
        queue, page = self._queue, self._page
        # What rows use is always wanted: orders, chunks and read-ahead are decided by it.
        rows = type(launch.task.payload) is RunRows
        short = self.brief and not rows and not (self.samples and launch.attempt % SAMPLE == 0)
        watched = queue.known and not short
        metered = page is not None and (not short or bool(launch.limits.amounts))
        delay = cpu = before = lock_wait = 0.0
        peak = baseline = 0
        if page is not None:
            limits = dict(launch.limits.amounts)
            page.begin(launch.attempt, int(limits.get("memory", 0)), float(limits.get("seconds", 0.0)), metered=metered)
        if metered:
            before = _cpu_s()
        try:
            begin = perf_counter()
            if watched:
                delay, cpu = queue.delay_s(), thread_time()
            # With samples the lock that was let go of just now is waited for as part of the task, and likewise at its end: where
            # others are busy, those who wait for the lock also wait for a processor, and it changes hands at these places only.
            if not self.samples:
                begin = perf_counter()
            outcome = side.run(job)
            wall = perf_counter() - begin
            if watched:
                cpu, delay = thread_time() - cpu, queue.delay_s() - delay
                if self.samples:
                    wall = perf_counter() - begin
                lock_wait = max(0.0, wall - cpu - delay)
            self.brief = wall < BRIEF_S and not rows
        finally:
            if metered:
                cpu = _cpu_s() - before
            if page is not None:
                peak, baseline = page.end(metered=metered)
        if side.used is not None:
            programs, side.used = side.used, None
            if not peak:  # by programs that it waited for; a meter that looked has seen that itself
                cpu, peak, lock_wait = cpu + programs[0], programs[1], 0.0
        outputs, report, told = outcome
        used = make_record(Measurement, (wall, cpu, lock_wait, peak, told[4], told[5], told[6], baseline))
        return make_record(Outcome, (outputs, report, used))

    def close(self) -> BaseException | None:
        """Let the workload release its files; return what it raised, if it did."""
        self._queue.close()
        try:
            if self._side is not None:
                self._side.close()
        except Exception as error:  # noqa: BLE001 - handed to warn_unclosed: results are not at stake
            return error
        return None


def at_least_one(workers: int) -> int:
    """Refuse a number of workers with which nothing would ever be done."""
    if workers < 1:
        raise UsageError(f"an engine needs at least one worker, got workers={workers}")
    return workers


def joined(life: Life, *, io: bool, shares: bool = False) -> WorkerJoined:
    """Say that a worker is there: one with a core, or one for input and output."""
    return WorkerJoined(Worker(life, NO_NEEDS if io else ONE_CORE, io=io, shares=shares))


def warn_unclosed(errors: dict[int, BaseException | None]) -> None:
    """Say which workers could not be closed: what they made is whole, but a file may stay open."""
    for worker, error in errors.items():
        if error is not None:
            warnings.warn(f"worker {worker} could not release its files: {error!r}", ResourceWarning, stacklevel=3)
