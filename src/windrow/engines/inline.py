"""The serial engine: does one command at a time inside ``wait``, in the caller's thread.

It is the reference for all others, and what tiny runs use. Several workers take turns.
"""

from __future__ import annotations

import threading
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Cancel, Discard, Launch, Recall, StartWorker, StopWorker
from windrow.core.events import Cancelled, Event, Failed, Started, WorkerJoined, WorkerLost
from windrow.core.records import NO_NEEDS, ONE_CORE, Failure, FailureKind, Handle, Life, Worker
from windrow.engines.base import Capabilities
from windrow.engines.job_runner import JobRunner, at_least_one, warn_unclosed
from windrow.engines.shared_outputs import SharedOutputs
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload


class InlineEngine:
    """Workers that share the caller's thread."""

    capabilities = Capabilities()

    def __init__(self, workers: int = 1) -> None:
        self.work_cpu_s = 0.0
        self._count = at_least_one(workers)
        self._runners: dict[int, JobRunner] = {}
        self._commands: deque[EngineCommand] = deque()
        self._events: list[Event] = []
        self._cancelled: set[int] = set()
        self._outputs = SharedOutputs()
        self._workload: Workload | None = None
        self._woken = threading.Event()

    def start(self, workload: Workload) -> None:
        """Make the workers."""
        self._workload = workload
        for worker in range(self._count):
            self._join(Life(worker, 0), io=False)

    def _join(self, life: Life, *, io: bool) -> None:
        assert self._workload is not None
        self._runners[life.worker] = JobRunner(self._workload, life)
        self._events.append(WorkerJoined(Worker(life, NO_NEEDS if io else ONE_CORE, io=io, shares=True)))

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Queue commands; cancelling and giving back take effect at once."""
        for command in commands:
            if isinstance(command, Cancel):
                self._cancelled.add(command.attempt)
            elif isinstance(command, Recall):
                self._give_back(command.attempt)
            else:
                self._commands.append(command)

    def _give_back(self, attempt: int) -> None:
        for command in self._commands:
            if isinstance(command, Launch) and command.attempt == attempt:
                self._commands.remove(command)
                self._events.append(Cancelled(attempt, command.life))
                return

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
            if command.attempt in self._cancelled:
                self._cancelled.discard(command.attempt)
                events.append(Cancelled(command.attempt, command.life))
                return
            events.append(Started(command.attempt, command.life))
            self._run(command)
            self._cancelled.discard(command.attempt)
        elif isinstance(command, Discard):
            self._outputs.discard(command.handle)
        elif isinstance(command, StartWorker):
            self._join(command.life, io=command.io)
        elif isinstance(command, StopWorker):
            worker = command.life.worker
            warn_unclosed({worker: self._runners.pop(worker).close()})
            events.append(WorkerLost(command.life))

    def _run(self, launch: Launch) -> None:
        assert self._workload is not None
        runner = self._runners[launch.life.worker]
        try:
            tell = self._events.append
            self._events.append(self._outputs.run(runner, launch, self._workload, tell, self._cancelled))
        except KeyboardInterrupt as error:
            if threading.current_thread() is not threading.main_thread():
                # No signal comes here: it was raised by the user's code.
                self._events.append(runner.failed(launch, error))
                return
            lost = Failure(FailureKind.LOST, "KeyboardInterrupt", "interrupted")
            self._events.append(Failed(launch.attempt, launch.life, lost))
            raise

    def wake(self) -> None:
        """Make ``wait`` return."""
        self._woken.set()

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        """Hand over an output."""
        return self._outputs.get(handle, mine=mine)

    def stop(self) -> None:
        """Close the workers' sides."""
        self._commands.clear()
        errors = {worker: runner.close() for worker, runner in self._runners.items()}
        self._runners.clear()
        warn_unclosed(errors)
