"""Threads and processes at once, for tasks that say which of them they need; what one side made is brought to the other.

No worker counts as there before one of the processes is: a task that needs one would be taken to be impossible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.commands import Discard, Fetch, Launch
from windrow.core.events import Event, Failed
from windrow.engines.base import Capabilities
from windrow.engines.processes.engine import ProcessesEngine
from windrow.engines.processes.transport import store
from windrow.engines.processes.values import is_small, own_copy
from windrow.engines.threads import ThreadsEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.core.records import Handle
    from windrow.engines.base import Workload


class ThreadsBeside(ThreadsEngine):
    """Threads that keep the rules of processes: tasks get values of their own. ``ring`` wakes the driver."""

    isolates = True

    def __init__(self, workers: int, ring: Callable[[], None]) -> None:
        super().__init__(workers)
        self.wake = ring  # type: ignore[method-assign]


class BothEngines(ProcessesEngine):
    """As many threads as processes; the processes' workers have the numbers behind those of the threads."""

    capabilities = Capabilities(can_restart=True)

    def __init__(self, workers: int, *, preload: Sequence[str] | None = None) -> None:
        super().__init__(workers, number=workers, preload=preload)
        self._threads = ThreadsBeside(workers, self.wake)

    def start(self, workload: Workload) -> None:
        super().start(workload)
        self._threads.start(workload)

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Give each command to the side that has the worker, and to both what may be for both."""
        sides: tuple[list[EngineCommand], list[EngineCommand]] = [], []
        for command in commands:
            if isinstance(command, Discard):
                sides[0].append(command)
                sides[1].append(command)
                continue
            life = command.source if isinstance(command, Fetch) else command.life
            if not (isinstance(command, Launch) and command.inputs) or self._hand_over(command):
                sides[life.worker >= self._number].append(command)
        self._threads.do(sides[0])
        super().do(sides[1])

    def _hand_over(self, launch: Launch) -> bool:
        """Give the side of a launch what the other side made and it reads; False if that cannot be pickled or made again."""
        outputs = self._threads.outputs
        try:
            if launch.life.worker < self._number:
                for handle in launch.inputs:
                    if handle not in outputs and self.has(handle):
                        outputs[handle] = super().take(handle)
                return True
            for handle in [launch.inputs[position] for position in launch.bring]:
                if not self.has(handle):
                    value = outputs[handle]
                    self.give(handle, value if is_small(value) else store(value) or value)
        except Exception as error:  # noqa: BLE001 - of a user's object, told as the failure of the task that reads it
            error.add_note("raised while what a task reads was brought to where it runs")
            self._events.append(Failed(launch.attempt, launch.life, self._workload.classify(error)))
            return False
        return True

    def wait(self, timeout: float | None) -> list[Event]:
        events = super().wait(timeout)  # threads ring there, too
        return events + self._threads.wait(0.0) if self._anybody else events

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        if not self.has(handle):
            value = self._threads.take(handle, mine=mine)
            return value if mine else own_copy(value, {})
        if mine:
            self._threads.outputs.pop(handle, None)
        return super().take(handle, mine=mine)

    def stop(self) -> None:
        try:
            self._threads.stop()  # first: they ring as long as they run
        finally:
            super().stop()
