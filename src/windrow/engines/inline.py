"""The serial engine: does one command at a time inside ``wait``, in the caller's thread.

It is the reference for all others, and what tiny runs use. Several workers take turns.
"""

from __future__ import annotations

import threading
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Cancel, Discard, Fetch, Inspect, Launch, Merge, StopWorker
from windrow.core.events import Cancelled, Event, Fetched, Started, WorkerJoined, WorkerLost
from windrow.core.records import Failure, FailureKind, Handle, Worker
from windrow.engines.base import Capabilities
from windrow.engines.outputs import Outputs
from windrow.engines.shelf import Shelf, at_least_one, failure_event, warn_unclosed
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload

__all__ = ["InlineEngine"]


class InlineEngine:
    """Workers that share the caller's thread."""

    capabilities = Capabilities()

    def __init__(self, workers: int = 1) -> None:
        self.work_cpu_s = 0.0
        self._count = at_least_one(workers)
        self._shelves: dict[int, Shelf] = {}
        self._commands: deque[EngineCommand] = deque()
        self._events: list[Event] = []
        self._cancelled: set[int] = set()
        self._fetched: dict[int, Any] = {}
        self._outputs = Outputs()  #: of graphs
        self._workload: Workload | None = None
        self._woken = threading.Event()

    def start(self, workload: Workload) -> None:
        """Make the workers' sides."""
        self._workload = workload
        for worker in range(self._count):
            self._shelves[worker] = Shelf(workload, worker, 0)
            self._events.append(WorkerJoined(Worker(worker, 0)))

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Queue commands; cancelling takes effect at once."""
        for command in commands:
            if isinstance(command, Cancel):
                self._cancelled.add(command.attempt)
            else:
                self._commands.append(command)

    def wait(self, timeout: float | None) -> list[Event]:
        """Do commands until one of them has something to report."""
        before = thread_time()
        try:
            while not self._events and self._commands:
                self._do_one(self._commands.popleft())
        finally:
            self.work_cpu_s += thread_time() - before
        if not self._events:
            if timeout is None and not self._woken.is_set():
                raise EngineError(
                    "the inline engine was asked to wait, but it has nothing to do: its caller "
                    "waits for an event that cannot come"
                )
            self._woken.wait(timeout)
        self._woken.clear()
        events, self._events = self._events, []
        return events

    def _do_one(self, command: EngineCommand) -> None:
        events = self._events
        if isinstance(command, Launch):
            number, worker, incarnation = command.attempt, command.worker, command.incarnation
            if number in self._cancelled:
                self._cancelled.discard(number)
                events.append(Cancelled(number, worker, incarnation))
                return
            events.append(Started(number, worker, incarnation))
            self._do_job(command)
            self._cancelled.discard(number)
        elif isinstance(command, Inspect | Merge):
            self._do_job(command)
        elif isinstance(command, Fetch):
            handle = command.handle
            self._fetched[handle.id] = self._shelves[handle.worker].partials.pop(handle.id)
            events.append(Fetched(handle))
        elif isinstance(command, Discard) and not command.handle.rows:
            self._outputs.discard(command.handle)
        elif isinstance(command, Discard):
            self._shelves[command.handle.worker].partials.pop(command.handle.id, None)
            self._fetched.pop(command.handle.id, None)
        elif isinstance(command, StopWorker):
            warn_unclosed({command.worker: self._shelves.pop(command.worker).close()})
            events.append(WorkerLost(command.worker, command.incarnation))

    def _do_job(self, command: Launch | Inspect | Merge) -> None:
        shelf = self._shelves[command.worker]
        try:
            if isinstance(command, Launch) and not command.task.inputs:
                assert self._workload is not None
                tell = self._events.append
                self._events.append(self._outputs.run(shelf, command, self._workload, tell))
            else:
                self._events.append(shelf.do(command))
        except KeyboardInterrupt as error:
            if threading.current_thread() is not threading.main_thread():
                # No signal comes here: it was raised by the user's code.
                self._events.append(failure_event(command, shelf.classify(error)))
                return
            lost = Failure(FailureKind.LOST, "KeyboardInterrupt", "interrupted")
            self._events.append(failure_event(command, lost))
            raise

    def wake(self) -> None:
        """Make ``wait`` return."""
        self._woken.set()

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        return self._fetched.pop(handle.id) if handle.rows else self._outputs.get(handle)

    def stop(self) -> None:
        """Close the workers' sides."""
        self._commands.clear()
        errors = {worker: shelf.close() for worker, shelf in self._shelves.items()}
        self._shelves.clear()
        warn_unclosed(errors)
