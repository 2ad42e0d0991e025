"""One worker's side of an engine: it does jobs with the workload and keeps the partials.

A shelf belongs to the thread that made it; nobody else touches it, so it needs no lock.
Exceptions of the workload become failure events here, and nowhere else.
"""

from __future__ import annotations

import os
import warnings
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Protocol

from windrow.core.commands import Inspect, Launch, Merge
from windrow.core.events import Discovered, Event, Failed, Finished, InspectFailed, Merged, MergeFailed
from windrow.core.records import Failure, FailureKind, Handle, Measurement, Rows
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.engines.base import Call, WorkerSide, Workload

__all__ = ["Meter", "RunQueue", "Shelf", "at_least_one", "failure_event", "warn_unclosed"]


#: Seconds of a task of a graph that is short: the next one is taken to be short too, and what it uses is not looked up,
#: unless it has limits. That takes four system calls in a thread, two of which let go of the interpreter lock, and some
#: 0.03 ms in a process, which is longer than many a task.
BRIEF_S = 0.005


class RunQueue:
    """How long the calling thread was ready to run and had no processor; only Linux tells."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1
        self.known = self._file >= 0

    def delay_s(self) -> float:
        """Give the seconds waited since the thread began; zero where unknown."""
        if not self.known:
            return 0.0
        return int(os.pread(self._file, 80, 0).split()[1]) * 1e-9

    def close(self) -> None:
        """Release the file."""
        if self.known:
            os.close(self._file)
            self.known = False


class Meter(Protocol):
    """Sees what an attempt uses, where an attempt has a process to itself."""

    def begin(self, command: Launch, *, short: bool = False) -> None:
        """An attempt begins, which is probably ``short``."""
        ...

    def end(self) -> tuple[float, int, int]:
        """It has ended, well or badly: its CPU seconds, its peak memory, and the memory that stays."""
        ...


class Shelf:
    """Runs jobs for one life of one worker."""

    def __init__(self, workload: Workload, worker: int, incarnation: int, meter: Meter | None = None) -> None:
        self._workload = workload
        self._meter = meter
        self._worker = worker
        self._incarnation = incarnation
        self._side: WorkerSide | None = None
        self._queue = RunQueue()
        self.brief = False  #: the last task of a graph was short
        self.partials: dict[int, Any] = {}  #: handle id -> partial
        self.prepared: Any = None  #: what others set up for the next launch

    @property
    def reading(self) -> Any:
        """What reading took in the last launch, where the worker's side tells."""
        return getattr(self._side, "reading", None)

    def do(self, command: Launch | Inspect | Merge) -> Event:
        """Do a job and report; KeyboardInterrupt alone passes through."""
        try:
            if self._side is None:
                self._side = self._workload.open_worker(self._worker)
            if isinstance(command, Launch):
                return self._launch(self._side, command)
            if isinstance(command, Inspect):
                rows, borders = self._side.inspect(command.input)
                return Discovered(command.input, rows, borders, self._worker, self._incarnation)
            return self._merge(self._side, command)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - translated: the worker must outlive its jobs
            return failure_event(command, self.classify(error))

    def news(self) -> Any:
        """Ask the worker's side what home should know; None if there is nothing."""
        ask = getattr(self._side, "news", None)
        return None if ask is None else ask()

    def classify(self, error: BaseException) -> Failure:
        """Ask the workload whose fault it is; if that fails too, it is ours."""
        try:
            return self._workload.classify(error)
        except Exception as second:  # noqa: BLE001 - translated into an INTERNAL failure
            message = f"{error!r} could not be classified: {second!r}"
            return Failure(FailureKind.INTERNAL, type(second).__name__, message, "", second)

    def _launch(self, side: WorkerSide, command: Launch) -> Finished | Failed:
        queue, meter = self._queue, self._meter
        peak = baseline = 0
        if meter is not None:
            meter.begin(command)
        try:
            delay, cpu, begin = queue.delay_s(), thread_time(), perf_counter()
            if self.prepared is None:
                outcome = side.run(command.task.inputs, command.plan)
            else:
                run: Any = side.run
                outcome = run(command.task.inputs, command.plan, self._taken())
            partial, used, evidence, skipped = outcome
            wall, cpu = perf_counter() - begin, thread_time() - cpu
            lock_wait = 0.0
            if queue.known:
                lock_wait = max(0.0, wall - cpu - (queue.delay_s() - delay))
        finally:
            if meter is not None:
                cpu, peak, baseline = meter.end()
        rows = _without(command.task.inputs, [gone for gone, _ in skipped])
        if not rows:  # nothing is left to hand over
            return Failed(command.attempt, self._worker, self._incarnation, skipped[0][1])
        number = command.attempt
        self.partials[number] = partial
        return Finished(
            number,
            self._worker,
            self._incarnation,
            Handle(number, number, self._worker, self._incarnation, rows),
            Measurement(wall, cpu, lock_wait, peak, *used[4:7], baseline),
            evidence,
            skipped,
        )

    def call(self, command: Launch, call: Call, *, here: bool = False) -> tuple[Event, dict[str, Any]]:
        """Run a task of a graph; what it made and did not release is returned beside the report.

        What it used beside time is told as zero, which is "not known", after a short one.
        """
        number, queue, meter = command.attempt, self._queue, self._meter
        watched = queue.known and not self.brief
        delay = 0.0
        peak = baseline = 0
        try:
            if self._side is None:
                self._side = self._workload.open_worker(self._worker)
            side: Any = self._side
            if meter is not None:
                meter.begin(command, short=self.brief)
            try:
                cpu = lock_wait = 0.0
                if watched:
                    delay, cpu = queue.delay_s(), thread_time()
                begin = perf_counter()
                outputs = side.call(command.task, call)
                wall = perf_counter() - begin
                if watched:
                    cpu = thread_time() - cpu
                    lock_wait = max(0.0, wall - cpu - (queue.delay_s() - delay))
                self.brief = wall < BRIEF_S
            finally:
                if meter is not None:
                    cpu, peak, baseline = meter.end()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - translated: the worker must outlive its jobs
            return failure_event(command, self.classify(error)), {}
        elsewhere = getattr(side, "used", None)
        if elsewhere is not None:
            side.used = None
            if not peak:  # by programs that it waited for; a meter that looked has seen that itself
                cpu, peak, lock_wait = cpu + elsewhere[0], elsewhere[1], 0.0
        worker, incarnation = self._worker, self._incarnation
        used = Measurement(wall, cpu, lock_wait, peak, 0, 0, 0.0, baseline)
        only = next(iter(outputs)) if here and len(outputs) == 1 else ""
        handle = Handle(number, number, worker, incarnation, (), 0, only, here)
        return Finished(number, worker, incarnation, handle, used), outputs

    def _taken(self) -> Any:
        """Give away what was set up: whoever runs with it is the last to know it."""
        prepared, self.prepared = self.prepared, None
        return prepared

    def _merge(self, side: WorkerSide, command: Merge) -> Merged:
        # Taken off the shelf first: a merge may be done in place, so its inputs do not survive it.
        inputs = [self.partials.pop(handle.id) for handle in command.handles]
        self.partials[command.into.id] = side.merge(inputs)
        ids = tuple(handle.id for handle in command.handles)
        return Merged(command.into, ids, self._worker, self._incarnation)

    def close(self) -> BaseException | None:
        """Let the workload release its files; return what it raised, if it did."""
        self._queue.close()
        self.partials.clear()
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


def warn_unclosed(errors: dict[int, BaseException | None]) -> None:
    """Say which workers could not be closed: what they made is whole, but a file may stay open."""
    for worker, error in errors.items():
        if error is not None:
            warnings.warn(f"worker {worker} could not release its files: {error!r}", ResourceWarning, stacklevel=3)


def _without(rows: tuple[Rows, ...], gone: list[Rows]) -> tuple[Rows, ...]:
    """Take ranges out of rows; both in order."""
    if not gone:
        return rows
    left: list[Rows] = []
    for part in rows:
        start = part.start
        for other in gone:
            if other.input == part.input and part.start <= other.start < part.stop:
                if start < other.start:
                    left.append(Rows(part.input, start, other.start))
                start = other.stop
        if start < part.stop:
            left.append(Rows(part.input, start, part.stop))
    return tuple(left)


def failure_event(command: Launch | Inspect | Merge, failure: Failure) -> Event:
    """Make the event that says a job failed."""
    worker, incarnation = command.worker, command.incarnation
    if isinstance(command, Launch):
        return Failed(command.attempt, worker, incarnation, failure)
    if isinstance(command, Inspect):
        return InspectFailed(command.input, worker, incarnation, failure)
    ids = tuple(handle.id for handle in command.handles)
    return MergeFailed(command.into, ids, worker, incarnation, failure)
