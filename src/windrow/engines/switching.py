"""Two engines one after the other: threads or the driver itself first, processes from the moment a reason is found.

The second engine starts in the background. Its workers join under numbers of their own; once one is there, those of the first are
drained, so that what they have done is kept. While that goes on, both are listened to.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Discard, Fetch, Launch
from windrow.core.events import DrainRequested, Event, Finished, WorkerJoined, WorkerLost
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.core.records import Handle, Life, Measurement
    from windrow.engines.base import Capabilities, Engine, Workload

#: Seconds that each of two engines is listened to in turn.
TURN_S = 0.005
#: Seconds that the second engine is waited for, when the first one could do something meanwhile: as long as it takes to start
#: where its processes only have to be forked.
PATIENCE_S = 0.08


class SwitchingEngine:
    """Runs on ``first`` until ``reason`` gives one to change over to what ``make_second`` makes.

    ``reason`` is shown what every finished attempt used. ``make_second`` is given the number of its first worker.
    """

    def __init__(
        self, first: Engine, make_second: Callable[[int], Engine], reason: Callable[[Measurement, float], str]
    ) -> None:
        self.why = ""  #: why it changed over, or why it could not
        self.switched = False
        self._first = first
        self._make_second = make_second
        self._reason = reason
        self._starting: tuple[Engine, Future[None]] | None = None  #: the second engine, while it starts
        self._second: Engine | None = None
        self._workload: Any = None
        self._lives: set[Life] = set()  #: of the first engine
        self._begin = 0  #: number of the second engine's first worker
        self._until = 0.0  #: when to go on with the first engine
        self._used: list[
            tuple[Measurement, float]
        ] = []  #: by attempts that have ended since a reason was asked for, and when

    @property
    def capabilities(self) -> Capabilities:
        return self._second.capabilities if self.switched and self._second is not None else self._first.capabilities

    @property
    def work_cpu_s(self) -> float:
        return self._first.work_cpu_s

    def start(self, workload: Workload) -> None:
        self._workload = workload
        self._first.start(workload)

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Give each command to the engine that has the worker, and to both what may be for both."""
        if self._second is None:
            self._first.do(commands)
            return
        first: list[EngineCommand] = []
        second: list[EngineCommand] = []
        for command in commands:
            if isinstance(command, Discard):
                first.append(command)
                second.append(command)
            else:
                life = command.source if isinstance(command, Fetch) else command.life
                (first if life.worker < self._begin else second).append(command)
        self._first.do(first)
        for command in second:
            if isinstance(command, Launch):
                self._hand_over(command, self._second)
        self._second.do(second)

    def _hand_over(self, launch: Launch, second: Any) -> None:
        """Give the second engine what the first one's workers made and a launch reads: parts of a unit of rows."""
        for position in launch.bring:
            handle = launch.inputs[position]
            if not second.has(handle):
                second.give(handle, self._first.take(handle))

    def wait(self, timeout: float | None) -> list[Event]:
        self._ask_for_reason()
        if self._starting is None and self._second is None:
            return self._note(self._first.wait(timeout))
        if self._second is not None and not self._lives:
            return self._second.wait(timeout)
        until = None if timeout is None else monotonic() + timeout
        while True:
            events = self._wait_for_second()
            if not events and not self.switched and monotonic() < self._until:
                continue
            if any(isinstance(event, DrainRequested) for event in events):
                return events  # or those that have come would wait while the first engine works
            for event in self._first.wait(0.0 if events else TURN_S):
                events.append(event)
                if isinstance(event, WorkerLost):
                    self._lives.discard(event.life)
            if events or (until is not None and monotonic() >= until):
                return events

    def _note(self, events: list[Event]) -> list[Event]:
        now = monotonic()
        for event in events:
            if isinstance(event, WorkerJoined):
                self._lives.add(event.worker.life)
                self._begin = max(self._begin, event.worker.life.worker + 1)
            elif isinstance(event, Finished):
                self._used.append((event.measurement, now))
        return events

    def _ask_for_reason(self) -> None:
        """Ask when the run has learned from what has ended, and start the second engine if there is a reason."""
        used, self._used = self._used, []
        for measurement, then in used:
            if self.why:
                break
            self.why = self._reason(measurement, then)
            if self.why:
                second = self._make_second(self._begin)
                starter = ThreadPoolExecutor(1, "windrow-start")
                self._starting = second, starter.submit(second.start, self._workload)
                starter.shutdown(wait=False)
                self._until = monotonic() + PATIENCE_S

    def _wait_for_second(self) -> list[Event]:
        """Listen to the second engine; once one of its workers is there, the first engine's are drained."""
        if self._starting is not None and self._starting[1].done():
            (second, started), self._starting = self._starting, None
            error = started.exception()
            if error is None:
                self._second = second
            else:
                self._give_up(error)
        if self._second is None:
            if monotonic() < self._until and self._starting is not None:
                wait([self._starting[1]], TURN_S)
            return []
        try:
            events = self._second.wait(TURN_S)
        except EngineError as failure:
            if self.switched:
                raise
            self._give_up(failure)
            return []
        if not self.switched and any(isinstance(event, WorkerJoined) for event in events):
            self.switched = True
            events += [DrainRequested(life, self.why) for life in sorted(self._lives)]
        return events

    def _give_up(self, error: BaseException) -> None:
        if not isinstance(error, EngineError):
            raise error
        self.why = f"{self.why}; yet they stay, as processes cannot be used: {error}"
        if self._second is not None:
            second, self._second = self._second, None
            second.stop()

    def wake(self) -> None:
        self._first.wake()
        if self._second is not None:
            self._second.wake()

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        if self._second is not None:
            try:
                return self._second.take(handle, mine=mine)
            except KeyError:
                pass
        return self._first.take(handle, mine=mine)

    def stop(self) -> None:
        try:
            starting, self._starting = self._starting, None
            if starting is not None:  # the run was over before it had begun, or had failed to
                error = starting[1].exception()
                starting[0].stop()
                if isinstance(error, EngineError):
                    self._give_up(error)
            if self._second is not None:
                self._second.stop()
        finally:
            self._first.stop()
