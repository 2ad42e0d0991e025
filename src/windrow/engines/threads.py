"""One thread per worker, each with its own inbox and shelf, and one outbox for all.

Only the thread that owns a shelf touches it: fetching and discarding go through its inbox like
any job, so there is no lock and no order to think about. A thread cannot be killed: a cancelled
attempt that runs holds its worker until it returns.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from windrow.core.commands import Cancel, Discard, Fetch, Launch, StopWorker
from windrow.core.events import Cancelled, Event, Fetched, Started, WorkerJoined, WorkerLost
from windrow.core.records import Handle, Worker
from windrow.engines.base import Capabilities
from windrow.engines.shelf import Shelf, failure_event
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload

__all__ = ["ThreadsEngine"]

#: What comes out: an event, a failure of the machinery itself, or None, which only wakes.
_Report: TypeAlias = "Event | BaseException | None"


class ThreadsEngine:
    """Workers that share the interpreter."""

    capabilities = Capabilities()
    work_cpu_s = 0.0

    def __init__(self, workers: int) -> None:
        self._outbox: SimpleQueue[_Report] = SimpleQueue()
        #: events that need not wake the driver: they go along with the next one that does
        self._quiet: deque[Event] = deque()
        self._fetched: dict[int, Any] = {}
        self._threads = [_WorkerThread(self, number) for number in range(workers)]

    def start(self, workload: Workload) -> None:
        """Start the threads."""
        for thread in self._threads:
            self._outbox.put(WorkerJoined(Worker(thread.number, 0)))
            thread.workload = workload
            thread.start()

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Put commands into the workers' inboxes."""
        threads = self._threads
        for command in commands:
            if isinstance(command, Fetch | Discard):
                threads[command.handle.worker].inbox.put(command)
            elif isinstance(command, Cancel):
                threads[command.worker].cancelled.add(command.attempt)
            else:
                threads[command.worker].inbox.put(command)

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what the workers reported."""
        outbox = self._outbox
        try:
            reports = [outbox.get(timeout=timeout)]
        except Empty:
            reports = []
        for _ in range(outbox.qsize()):
            reports.append(outbox.get())
        # Drained after the outbox: what began before it ended is told before it ended.
        quiet = self._quiet
        events: list[Event] = [quiet.popleft() for _ in range(len(quiet))]
        for report in reports:
            if isinstance(report, BaseException):
                raise EngineError(f"a worker thread broke: {report!r}") from report
            if report is not None:
                events.append(report)
        return events

    def wake(self) -> None:
        """Make ``wait`` return."""
        self._outbox.put(None)  # reentrant, so allowed in a signal handler

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        return self._fetched.pop(handle.id)

    def stop(self) -> None:
        """Tell all threads to end after the job they are at, and wait for them."""
        for thread in self._threads:
            thread.ending = True
            thread.inbox.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._threads.clear()

    def report(self, report: _Report) -> None:
        """Take a report of a worker thread."""
        self._outbox.put(report)

    def report_quietly(self, event: Event) -> None:
        """Take a report that can wait."""
        self._quiet.append(event)

    def keep(self, handle: Handle, partial: Any) -> None:
        """Take a fetched partial until the driver takes it."""
        self._fetched[handle.id] = partial

    def forget(self, handle: Handle) -> None:
        """Drop a fetched partial that nobody wants."""
        self._fetched.pop(handle.id, None)


class _WorkerThread(threading.Thread):
    """Takes commands from its inbox until told to end."""

    workload: Workload

    def __init__(self, engine: ThreadsEngine, number: int) -> None:
        # Daemon: an interpreter that exits must never wait for a user's endless loop.
        super().__init__(name=f"windrow-worker-{number}", daemon=True)
        self.number = number
        self.inbox: SimpleQueue[EngineCommand | None] = SimpleQueue()
        self.cancelled: set[int] = set()  #: attempts; written by the driver, one atomic operation
        self.ending = False
        self._engine = engine

    def run(self) -> None:
        """Work; a failure of the machinery is reported, or the driver would wait for ever."""
        try:
            shelf = Shelf(self.workload, self.number, 0)
            try:
                while not self.ending:
                    command = self.inbox.get()
                    if command is None or not self._do(shelf, command):
                        return
            finally:
                shelf.close()
        except BaseException as error:  # noqa: BLE001 - raised again in the driver's thread
            self._engine.report(error)

    def _do(self, shelf: Shelf, command: EngineCommand) -> bool:
        """Do a command; False to end."""
        engine = self._engine
        if isinstance(command, Launch):
            number = command.attempt
            if number in self.cancelled:
                self.cancelled.discard(number)
                engine.report(Cancelled(number, self.number, 0))
                return True
            engine.report_quietly(Started(number, self.number, 0))
        if isinstance(command, Fetch):
            engine.keep(command.handle, shelf.partials.pop(command.handle.id))
            engine.report(Fetched(command.handle))
        elif isinstance(command, Discard):
            shelf.partials.pop(command.handle.id, None)
            engine.forget(command.handle)
        elif isinstance(command, StopWorker):
            engine.report(WorkerLost(self.number, 0))
            return False
        elif not isinstance(command, Cancel):
            try:
                event = shelf.do(command)
            except KeyboardInterrupt as error:
                # A signal only ever reaches the main thread: this one was raised by the user's
                # code.
                event = failure_event(command, shelf.classify(error))
            engine.report(event)
        return True
