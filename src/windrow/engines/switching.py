"""Two engines one after the other: threads first, processes from the moment somebody says so.

The workers of the second engine join under numbers of their own. Once one is there, those of the first are drained, so that
what they have done is kept. While that goes on, both are listened to.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Discard, Fetch
from windrow.core.events import DrainRequested, Event, Finished, WorkerJoined, WorkerLost
from windrow.engines.base import Capabilities
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.core.records import Handle, Measurement
    from windrow.engines.base import Engine, Workload

__all__ = ["SwitchingEngine"]

#: Seconds that each of two engines is listened to in turn.
TURN_S = 0.005


class SwitchingEngine:
    """Runs on ``first`` until ``reason`` gives one to change over to what ``make_second`` makes.

    ``reason`` is shown what every finished attempt used. ``make_second`` is given the number of its first worker.
    """

    capabilities = Capabilities()

    def __init__(
        self, first: Engine, make_second: Callable[[int], Engine], reason: Callable[[Measurement, float], str]
    ) -> None:
        self._first = first
        self._make_second = make_second
        self._reason = reason
        self._second: Engine | None = None
        self._workload: Workload | None = None
        self._lives: dict[int, int] = {}  #: workers of the first engine -> incarnation
        self._begin = 0  #: number of the second engine's first worker
        self.why = ""  #: why it changed over, or why it could not
        self.switched = False

    @property
    def work_cpu_s(self) -> float:
        """CPU seconds that work took inside ``wait``."""
        return self._first.work_cpu_s + (0.0 if self._second is None else self._second.work_cpu_s)

    def start(self, workload: Workload) -> None:
        """Start the first engine."""
        self._workload = workload
        self._first.start(workload)

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Give each command to the engine that has the worker."""
        if self._second is None:
            self._first.do(commands)
            return
        first = [command for command in commands if _worker(command) < self._begin]
        second = [command for command in commands if _worker(command) >= self._begin]
        if first:
            self._first.do(first)
        if second:
            self._second.do(second)

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what happened in either engine."""
        if self._second is None:
            return self._looked_at(self._first.wait(timeout))
        if not self._lives:
            return self._second.wait(timeout)
        until = None if timeout is None else monotonic() + timeout
        while True:
            events = self._from_second()
            events += self._from_first(0.0 if events else TURN_S)
            if events or (until is not None and monotonic() >= until):
                return events

    def _from_first(self, timeout: float) -> list[Event]:
        events = self._first.wait(timeout)
        for event in events:
            if isinstance(event, WorkerLost):
                self._lives.pop(event.worker, None)
        return events

    def _from_second(self) -> list[Event]:
        """Listen to the second engine; once one of its workers is there, the first engine's are drained."""
        assert self._second is not None
        try:
            events = self._second.wait(TURN_S)
        except EngineError as error:
            if self.switched:
                raise
            self._give_up(error)
            return []
        if not self.switched and any(isinstance(event, WorkerJoined) for event in events):
            self.switched = True
            events += [DrainRequested(n, life, self.why) for n, life in self._lives.items()]
        return events

    def _looked_at(self, events: list[Event]) -> list[Event]:
        """Look for a reason to change over in what happened."""
        now = monotonic()
        for event in events:
            if isinstance(event, WorkerJoined):
                self._lives[event.worker.id] = event.worker.incarnation
                self._begin = max(self._begin, event.worker.id + 1)
            elif isinstance(event, Finished) and not self.why:
                self.why = self._reason(event.measurement, now)
                if self.why:
                    self._start_second()
        return events

    def _start_second(self) -> None:
        assert self._workload is not None
        second = self._make_second(self._begin)
        try:
            second.start(self._workload)
        except EngineError as error:
            self._give_up(error)
        else:
            self._second = second

    def _give_up(self, error: EngineError) -> None:
        """Go on as before: the second engine cannot be used."""
        self.why = f"{self.why}; yet they stay, as processes cannot be used: {error}"
        if self._second is not None:
            second, self._second = self._second, None
            second.stop()

    def wake(self) -> None:
        """Make ``wait`` return."""
        self._first.wake()
        if self._second is not None:
            self._second.wake()

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        if self._second is not None and handle.worker >= self._begin:
            return self._second.take(handle)
        return self._first.take(handle)

    def stop(self) -> None:
        """End both engines."""
        try:
            if self._second is not None:
                self._second.stop()
        finally:
            self._first.stop()


def _worker(command: EngineCommand) -> int:
    if isinstance(command, (Fetch, Discard)):
        return command.handle.worker
    return command.worker
