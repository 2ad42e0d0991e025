"""One thread per worker, each with its own inbox and shelf, and one outbox for all.

Only the thread that owns a shelf touches it: fetching and discarding go through its inbox like any
job, so there is no lock and no order to think about. A thread cannot be killed: a cancelled attempt
that runs holds its worker until it returns.

Waking the driver is what costs: its code and data have left the caches by then. So a worker with
more to do in its inbox leaves its report in the outbox and rings when it is about to run dry. Of tasks
that are queued most have ended when the driver looks: it is told of the beginning of the others alone.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.core.commands import (
    Cancel,
    Discard,
    Fetch,
    Inspect,
    Launch,
    Merge,
    Recall,
    Shrink,
    StartWorker,
    StopWorker,
)
from windrow.core.events import Cancelled, Event, Fetched, Started, WorkerJoined, WorkerLost
from windrow.core.records import Handle, Worker
from windrow.engines.base import Capabilities
from windrow.engines.outputs import Outputs
from windrow.engines.shelf import Shelf, at_least_one, failure_event, warn_unclosed
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload
    from windrow.engines.read_ahead import SetupAhead

__all__ = ["ThreadsEngine"]

#: Commands left in a worker's inbox when it rings: one keeps it busy until the driver has answered.
LOW_WATER = 1
#: The same for tasks of graphs that are queued: busy ones of 1 ms took 1.13 times as long as in a ThreadPoolExecutor with
#: one left, and 1.01 times with eight (two workers, one noisy machine).
LOW_WATER_TASKS = 8

#: Seconds waited at a time. A signal may be delivered to any thread, but Python hears it in the main one, which has to be
#: awake for that.
LISTEN_S = 0.25


class ThreadsEngine:
    """Workers that share the interpreter; with ``setup``, others may read ahead of them."""

    capabilities = Capabilities()
    work_cpu_s = 0.0

    def __init__(self, workers: int, setup: SetupAhead | None = None) -> None:
        self.outbox: deque[Event] = deque()  #: appended to by all threads
        self.broken: BaseException | None = None  #: what went wrong in one of them
        self.setup = setup
        self.fetched: dict[int, Any] = {}  #: handle id -> partial; single atomic operations only
        self.outputs = Outputs()  #: of graphs: every thread can read all of them
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._threads = [_WorkerThread(self, number) for number in range(at_least_one(workers))]

    def start(self, workload: Workload) -> None:
        """Start the threads."""
        if self.setup is not None:
            self.setup.start(workload)
        for thread in self._threads:
            self.outbox.append(WorkerJoined(Worker(thread.number, 0)))
            thread.workload = workload
            thread.start()
        self.wake()

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Put commands into the workers' inboxes."""
        threads, setup = self._threads, self.setup
        for command in commands:
            if isinstance(command, Launch):  # by far the most
                if setup is not None:
                    setup.queued(command)
                thread = threads[command.worker]
                if command.queued:
                    thread.waiting[command.attempt] = command
                thread.inbox.put(command)
            elif isinstance(command, Discard) and not command.handle.rows:
                self.outputs.discard(command.handle)
            elif isinstance(command, (Fetch, Discard)):
                threads[command.handle.worker].inbox.put(command)
            elif isinstance(command, Cancel):
                threads[command.worker].cancelled.add(command.attempt)
            elif isinstance(command, Recall):
                self._recall(threads[command.worker], command.attempt)
            else:
                threads[command.worker].inbox.put(command)

    def _recall(self, thread: _WorkerThread, attempt: int) -> None:
        """Take an attempt out of a queue, unless its thread was quicker: one of them can have it."""
        if thread.waiting.pop(attempt, None) is not None:
            self.outbox.append(Cancelled(attempt, thread.number, 0))
            self.wake()

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what the workers reported."""
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
        for thread in self._threads:
            number = thread.current  # after taking the reports: that of its end is not among them
            if number != thread.told and number:
                thread.told = number
                events.append(Started(number, thread.number, 0))
        return events

    def wake(self) -> None:
        """Make ``wait`` return."""
        self._bell.put(None)  # reentrant, so allowed in a signal handler

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        return self.fetched.pop(handle.id) if handle.rows else self.outputs.get(handle)

    def stop(self) -> None:
        """Tell all threads to end after the job they are at, and wait for them."""
        for thread in self._threads:
            thread.ending = True
            thread.inbox.put(None)
        if self.setup is not None:
            self.setup.end()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        errors = {thread.number: thread.unclosed for thread in self._threads}
        if self.setup is not None:
            errors |= self.setup.join()
        self._threads.clear()
        warn_unclosed(errors)


class _WorkerThread(threading.Thread):
    """Takes commands from its inbox until told to end."""

    workload: Workload

    def __init__(self, engine: ThreadsEngine, number: int) -> None:
        # Daemon: an interpreter that exits must never wait for a user's endless loop.
        super().__init__(name=f"windrow-worker-{number}", daemon=True)
        self.number = number
        self.inbox: SimpleQueue[EngineCommand | None] = SimpleQueue()
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
            shelf = Shelf(self.workload, self.number, 0)
            try:
                self._work(shelf)
            finally:
                self.unclosed = shelf.close()
                self._leave()
        except BaseException as error:  # noqa: BLE001 - raised again in the driver's thread
            self._engine.broken = error
            self._engine.wake()

    def _work(self, shelf: Shelf) -> None:
        inbox, engine = self.inbox, self._engine
        unheard = False  # reports were left for which nobody rang
        low = LOW_WATER
        while not self.ending:
            if unheard and inbox.qsize() <= low:
                unheard = False
                engine.wake()
            command = inbox.get()
            if command is None:
                return
            if type(command) is Launch:  # by far the most
                event = self._launch(shelf, command)
                low = LOW_WATER_TASKS if command.queued else LOW_WATER
            else:
                event = self._do(shelf, command)
                low = LOW_WATER
            if event is not None:
                engine.outbox.append(event)
                unheard = True
                if isinstance(event, WorkerLost):
                    engine.wake()
                    return

    def _tell(self, event: Event) -> None:
        """Report while a job goes on."""
        self._engine.outbox.append(event)
        self._engine.wake()

    def _leave(self) -> None:
        """Nobody will do what is still in the inbox."""
        setup = self._engine.setup
        while setup is not None and not self.inbox.empty():
            command = self.inbox.get()
            if isinstance(command, Launch):
                setup.forget(command.attempt)

    def _do(self, shelf: Shelf, command: EngineCommand) -> Event | None:
        """Do a command; return what there is to report."""
        if isinstance(command, Fetch):
            handle = command.handle
            self._engine.fetched[handle.id] = shelf.partials.pop(handle.id)
            return Fetched(handle)
        if isinstance(command, Discard):
            shelf.partials.pop(command.handle.id, None)
            self._engine.fetched.pop(command.handle.id, None)
            return None
        if isinstance(command, StopWorker):
            return WorkerLost(self.number, 0)
        if isinstance(command, (Cancel, Recall, Shrink, StartWorker)):
            return None  # a cancel overtakes what waits here; threads cannot do the others
        return self._job(shelf, command)

    def _launch(self, shelf: Shelf, command: Launch) -> Event | None:
        number, setup = command.attempt, self._engine.setup
        if command.queued and self.waiting.pop(number, None) is None:
            self.cancelled.discard(number)
            return None  # it was given back
        if number in self.cancelled:
            self.cancelled.discard(number)
            if setup is not None:
                setup.forget(number)
            return Cancelled(number, self.number, 0)
        if setup is None:
            if command.queued:
                self.current = number
            else:
                self._engine.outbox.append(Started(number, self.number, 0))
            try:
                return self._job(shelf, command)
            finally:
                self.current = 0
                if self.cancelled:
                    self.cancelled.discard(number)
        shelf.prepared = setup.begin(number)
        event: Event | None = None
        try:
            # It may have waited for its turn until the end, or until nobody wanted it any more.
            if number in self.cancelled:
                self.cancelled.discard(number)
                event = Cancelled(number, self.number, 0)
            elif not self.ending:
                self._engine.outbox.append(Started(number, self.number, 0))
                event = self._job(shelf, command)
        finally:
            shelf.prepared = None
            setup.done(command.task.size, event, shelf.reading)
        return event

    def _job(self, shelf: Shelf, command: Launch | Inspect | Merge) -> Event:
        try:
            if isinstance(command, Launch) and not command.task.inputs:
                return self._engine.outputs.run(shelf, command, self.workload, self._tell, self.cancelled)
            return shelf.do(command)
        except KeyboardInterrupt as error:
            # A signal only ever reaches the main thread: this one was raised by the user's code.
            return failure_event(command, shelf.classify(error))
