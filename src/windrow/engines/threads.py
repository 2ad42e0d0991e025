"""One thread per worker, each with its own inbox, and one outbox and one store of outputs for all.

A thread cannot be killed: a cancelled attempt that runs holds its worker until it returns.

Waking the driver is what costs: its code and data have left the caches by then. So a worker with more to do in its inbox leaves its
report in the outbox and rings when it is about to run dry. Of tasks that are queued most have ended when the driver looks: it is told
of the beginning of those that run alone.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

from windrow.core.commands import Cancel, Discard, Fetch, Launch, Recall, StartWorker, StopWorker
from windrow.core.events import Cancelled, Event, Held, Started, WorkerLost
from windrow.core.records import DRIVER, Life, RunRows
from windrow.engines.inline import SharedMemoryEngine
from windrow.engines.job_runner import JobRunner, joined, warn_unclosed
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Prepared, Workload
    from windrow.engines.read_ahead import ReadAhead

#: Launches left in a worker's inbox when it rings: one keeps it busy until the driver has answered.
LOW_WATER = 1
#: The same for calls that are queued: busy ones of 1 ms took 1.13 times as long as in a ThreadPoolExecutor with one left, and 1.01
#: times with eight (two workers, one noisy machine).
LOW_WATER_QUEUED = 8

#: Seconds waited at a time. A signal may be delivered to any thread, but Python hears it in the main one, which has to be awake for
#: that.
LISTEN_S = 0.25


class ThreadsEngine(SharedMemoryEngine):
    """Workers that share the interpreter; with ``read_ahead``, other threads may read ahead of them."""

    def __init__(self, workers: int, read_ahead: ReadAhead | None = None, number: int = 0) -> None:
        super().__init__(workers, number)
        self.outbox: deque[Event] = deque()  #: appended to by all threads
        self.broken: BaseException | None = None  #: what went wrong in one of them
        self.read_ahead = read_ahead
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._threads: dict[Life, _WorkerThread] = {}

    def start(self, workload: Workload) -> None:
        if self.read_ahead is not None:
            self.read_ahead.start(workload)
        super().start(workload)

    def _start_worker(self, life: Life, *, io: bool) -> None:
        thread = self._threads[life] = _WorkerThread(self, life)
        self.outbox.append(joined(life, io=io, shares=True))
        thread.start()
        self.wake()

    def do(self, commands: Sequence[EngineCommand]) -> None:
        threads, read_ahead = self._threads, self.read_ahead
        for command in commands:
            if type(command) is Launch:  # by far the most
                if read_ahead is not None:
                    read_ahead.queued(command)
                thread = threads[command.life]
                if command.queued:
                    thread.waiting[command.attempt] = command
                thread.inbox.put(command)
            elif isinstance(command, Discard):
                self.outputs.pop(command.handle, None)
            elif isinstance(command, Cancel):
                threads[command.life].cancelled.add(command.attempt)
            elif isinstance(command, Recall):
                self._recall(threads[command.life], command.attempt)
            elif isinstance(command, Fetch):
                self.outbox.append(Held(command.handle, DRIVER))
                self.wake()
            elif isinstance(command, StartWorker):
                self._start_worker(command.life, io=command.io)
            elif isinstance(command, StopWorker):
                threads[command.life].inbox.put(None)

    def _recall(self, thread: _WorkerThread, attempt: int) -> None:
        """Take an attempt out of a queue, unless its thread was quicker: one of them can have it."""
        if thread.waiting.pop(attempt, None) is not None:
            if self.read_ahead is not None:
                self.read_ahead.forget(attempt)
            self.outbox.append(Cancelled(attempt, thread.life))
            self.wake()

    def wait(self, timeout: float | None) -> list[Event]:
        bell, outbox = self._bell, self.outbox
        until = None if timeout is None else monotonic() + timeout
        while True:
            left = LISTEN_S if until is None else min(LISTEN_S, until - monotonic())
            try:
                bell.get(timeout=max(left, 0.0))
                break
            except Empty:
                if until is not None and monotonic() >= until:
                    break  # beginnings are left without ringing, and somebody may ask what runs
        for _ in range(bell.qsize()):
            bell.get()
        if self.broken is not None:
            raise EngineError(f"a worker thread broke: {self.broken!r}") from self.broken
        events = [outbox.popleft() for _ in range(len(outbox))]
        for thread in self._threads.values():
            number = thread.current  # after taking the reports: that of its end is not among them
            if number != thread.told and number:
                thread.told = number
                events.append(Started(number, thread.life))
        return events

    def wake(self) -> None:
        self._bell.put(None)  # reentrant, so allowed in a signal handler

    def stop(self) -> None:
        """Tell all threads to end after the job they are at, and wait for them."""
        for thread in self._threads.values():
            thread.ending = True
            thread.inbox.put(None)
        if self.read_ahead is not None:
            self.read_ahead.end()
        errors: dict[int, BaseException | None] = {}
        for life, thread in self._threads.items():
            thread.join()
            errors[life.worker] = thread.unclosed
        if self.read_ahead is not None:
            errors |= self.read_ahead.join()
        self._threads.clear()
        self.outputs.clear()
        warn_unclosed(errors)


class _WorkerThread(threading.Thread):
    """Runs launches from its inbox until it takes a None."""

    def __init__(self, engine: ThreadsEngine, life: Life) -> None:
        # Daemon: an interpreter that exits must never wait for a user's endless loop.
        super().__init__(name=f"windrow-worker-{life.worker}", daemon=True)
        self.life = life
        self.inbox: SimpleQueue[Launch | None] = SimpleQueue()
        self.cancelled: set[int] = set()  #: attempts; the driver adds, this thread removes
        self.waiting: dict[int, Launch] = {}  #: those that are queued; who pops one has it
        self.current = 0  #: the queued attempt that runs; its beginning is told if somebody looks
        self.told = 0  #: the latest of which that was told; the driver's
        self.ending = False
        self.unclosed: BaseException | None = None  #: what closing the worker's side raised
        self._engine = engine

    def run(self) -> None:
        """Work; a failure of the machinery is reported, or the driver would wait for ever."""
        try:
            runner = JobRunner(self._engine.workload, self.life)
            runner.samples = self._engine.isolates
            try:
                self._work(runner)
            finally:
                self.unclosed = runner.close()
                self._leave()
            self._engine.outbox.append(WorkerLost(self.life))
        except BaseException as error:  # noqa: BLE001 - raised again in the driver's thread
            self._engine.broken = error
        self._engine.wake()

    def _work(self, runner: JobRunner) -> None:
        inbox, engine = self.inbox, self._engine
        unheard = False  # reports were left for which nobody rang
        low = LOW_WATER
        while not self.ending:
            if unheard and inbox.qsize() <= low:
                unheard = False
                engine.wake()
            launch = inbox.get()
            if launch is None:
                return
            event = self._launch(runner, launch)
            low = LOW_WATER_QUEUED if launch.queued and launch.task.payload is None else LOW_WATER
            if event is not None:
                engine.outbox.append(event)
                unheard = True

    def _tell(self, event: Event) -> None:
        self._engine.outbox.append(event)
        self._engine.wake()

    def _leave(self) -> None:
        read_ahead = self._engine.read_ahead
        while read_ahead is not None and not self.inbox.empty():
            launch = self.inbox.get()
            if launch is not None:
                read_ahead.forget(launch.attempt)

    def _launch(self, runner: JobRunner, launch: Launch) -> Event | None:
        number = launch.attempt
        read_ahead = self._engine.read_ahead
        if read_ahead is not None and not isinstance(launch.task.payload, RunRows):
            read_ahead = None
        event: Event | None = None
        if launch.queued and self.waiting.pop(number, None) is None:
            pass  # it was given back
        elif number in self.cancelled:
            event = Cancelled(number, self.life)
            if read_ahead is not None:
                read_ahead.forget(number)
        elif read_ahead is None:
            event = self._run(runner, launch)
        else:
            prepared = read_ahead.begin(number)
            try:
                # It may have waited for its turn until the end, or until nobody wanted it any more.
                if number in self.cancelled:
                    event = Cancelled(number, self.life)
                elif not self.ending:
                    event = self._run(runner, launch, prepared)
            finally:
                read_ahead.done(launch, event, runner.reading)
        if self.cancelled:
            self.cancelled.discard(number)
        return event

    def _run(self, runner: JobRunner, launch: Launch, prepared: Sequence[Prepared] = ()) -> Event:
        if launch.queued:
            self.current = launch.attempt
        else:
            self._engine.outbox.append(Started(launch.attempt, self.life))
        try:
            return self._engine.run(runner, launch, self._tell, self.cancelled, prepared)
        except KeyboardInterrupt as error:
            # A signal only ever reaches the main thread: this one was raised by the user's code.
            return runner.failed(launch, error)
        finally:
            self.current = 0
