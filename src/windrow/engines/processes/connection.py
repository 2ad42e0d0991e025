"""One life of a worker process as the driver sees it: what it was told, what it said, how it ended."""

from __future__ import annotations

import signal
import weakref
from collections import deque
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from windrow.core.events import (
    Cancelled,
    Event,
    Exhausted,
    Failed,
    FetchFailed,
    Finished,
    OutputReady,
    Started,
    WorkerLost,
)
from windrow.core.failures import EXPLAINED, KILLED
from windrow.core.records import Failure, FailureKind
from windrow.engines.processes.messages import Writer
from windrow.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from windrow.core.commands import EngineCommand, Launch
    from windrow.core.records import Handle
    from windrow.engines.processes.transport import Arrival, Link, Parcel
    from windrow.engines.supervisor.client import ProcessEnd, WorkerProcess

__all__ = ["Life"]

#: Signals that somebody sends to a process that has done nothing wrong (the machine's own out-of-memory killer, too).
FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM})
#: After how long a worker's page is looked at, at first and at most: short tasks report their beginning with their end.
LOOK_S, LOOK_MOST_S = 0.005, 0.1
#: Functions of calls that a worker has at most; of those made for one call each there is no end.
MOST_COMMON = 1000


class Life:
    """What the driver knows of one life of a worker."""

    def __init__(self, child: WorkerProcess, link: Link, grace_s: float) -> None:
        self.child = child
        self.link = link
        self.writer = Writer()
        self.joined = False
        self.ending = False  #: it was told to stop
        self.refused: Failure | None = None  #: why it cannot begin
        self.fetching: dict[int, tuple[Handle, bool]] = {}  #: by id; whether it is still wanted
        self.unanswered = 0  #: inspections and merges
        self.released: deque[Arrival] = deque()  #: of graphs, of which a report will tell
        self.outputs: deque[Handle] = deque()  #: of graphs, that it was told to send, in order
        self.late: list[EngineCommand] = []  #: goes with whatever it is told next
        self._common: dict[int, weakref.ref[Parcel]] = {}  #: what calls have in common, that it was sent
        self._gone: deque[int] = deque()  #: of that: what no call will need again
        self._launched: dict[int, Launch] = {}  #: attempts that have not ended
        self._running: int | None = None
        self._cancelled: dict[int, float] = {}  #: attempt -> since when
        self._look_at: float | None = None  #: when to look whether an attempt has begun
        self._look_s = LOOK_S
        self._grace_s = grace_s
        self._killed = False

    @property
    def worker(self) -> int:
        """Which worker lives."""
        return self.child.worker

    @property
    def incarnation(self) -> int:
        """Which of its lives."""
        return self.child.incarnation

    @property
    def busy(self) -> bool:
        """Whether the end of something it was told to do is still to come."""
        return bool(self._launched or self.fetching or self.outputs or self.unanswered)

    def is_new(self, number: int, parcel: Parcel) -> bool:
        """Whether something that calls have in common has not been sent to it; from now on it has."""
        if number in self._common:
            return False
        self._common[number] = weakref.ref(parcel, lambda _: self._gone.append(number))
        return True

    def take_gone(self) -> tuple[int, ...]:
        """Give what it may forget, since no call has it any more; from now on it has none of it."""
        numbers = []
        while self._gone:
            numbers.append(self._gone.popleft())
            self._common.pop(numbers[-1], None)
        return tuple(numbers)

    def has_too_much(self) -> bool:
        """Whether it is to forget all that calls have in common; from now on it has nothing of it."""
        if len(self._common) < MOST_COMMON:
            return False
        self._common.clear()
        return True

    # -- what it is told and says

    def launch(self, command: Launch, now: float) -> None:
        """It is sent an attempt."""
        self._launched[command.attempt] = command
        if self._running is None and self._look_at is None:
            self._look_at, self._look_s = now + LOOK_S, LOOK_S

    def not_sent(self, command: Launch) -> Cancelled:
        """It is not sent an attempt that it should have been."""
        return Cancelled(command.attempt, self.worker, self.incarnation)

    def cancel(self, attempt: int, now: float) -> None:
        """It is told to stop an attempt."""
        if attempt in self._launched:
            self._cancelled.setdefault(attempt, now)

    def note(self, event: Event, now: float) -> bool:
        """It reported; False if that is known already."""
        if isinstance(event, Started):
            if event.attempt == self._running or event.attempt not in self._launched:
                return False
            self._running, self._look_at = event.attempt, None
            if event.attempt in self._cancelled:
                self._cancelled[event.attempt] = now
        elif isinstance(event, (Finished, Failed, Cancelled)):
            self._launched.pop(event.attempt, None)
            self._cancelled.pop(event.attempt, None)
            if self._running is None or self._running == event.attempt:  # not one that waited
                self._running = None
                self._look_at, self._look_s = (now + LOOK_S if self._launched else None), LOOK_S
        elif isinstance(event, FetchFailed) and not event.handle.rows:
            self.outputs.popleft()
        elif isinstance(event, FetchFailed):
            self.fetching.pop(event.handle.id, None)
        elif isinstance(event, OutputReady):
            return True
        else:
            self.unanswered -= 1
        return True

    def look(self) -> Started | None:
        """Look at the page: the attempt that runs, if it did not say so itself."""
        seen = self.child.page.attempt()
        if seen is None or seen.number == self._running or seen.number not in self._launched:
            return None
        if next(iter(self._launched)) != seen.number:
            return None  # of those that it was sent before it has not told yet
        return Started(seen.number, self.worker, self.incarnation)

    def passed(self) -> list[Cancelled]:
        """Look at the page of one that is gone: what it was sent before the attempt that ran has ended, and nobody knows how."""
        seen = self.child.page.attempt()
        if seen is None or seen.number not in self._launched:
            return []
        before = takewhile(lambda number: number != seen.number, self._launched)
        lost = [number for number in before if not self._launched[number].task.inputs]
        return [Cancelled(number, self.worker, self.incarnation) for number in lost]

    def look_if_due(self, now: float) -> Started | None:
        """The same when it is time for it, and less and less often."""
        if self._look_at is None or now < self._look_at:
            return None
        self._look_s = min(2 * self._look_s, LOOK_MOST_S)
        self._look_at = now + self._look_s
        return self.look()

    def due(self) -> float | None:
        """When to look at it or to kill it, whichever comes first."""
        times = [time for time in (self.kill_at(), self._look_at) if time is not None]
        return min(times, default=None)

    def kill_at(self) -> float | None:
        """When it is to be killed, because an attempt that was cancelled runs on."""
        if self._killed or self._running is None or self._running not in self._cancelled:
            return None
        return self._cancelled[self._running] + self._grace_s

    def killed(self) -> None:
        """It is being killed for that."""
        self._killed = True

    # -- its end

    def end(self, ended: ProcessEnd) -> list[Event]:
        """Say what its end means, after all that it had sent was noted."""
        events: list[Event] = []
        worker, incarnation = self.worker, self.incarnation
        if ended.kind == "exceeded" and self._running is not None:
            events.append(Exhausted(self._running, worker, incarnation, ended.resource, ended.limit, ended.used))
        elif self._killed:
            events += [Cancelled(attempt, worker, incarnation) for attempt in self._cancelled]
        failure = self._failure(ended)
        if events and failure is not None:
            failure = replace(failure, type=EXPLAINED)
        events.append(WorkerLost(worker, incarnation, failure))
        return events

    def _failure(self, ended: ProcessEnd) -> Failure | None:
        if self.refused is not None:
            return self.refused
        if self.ending and ended.kind == "exit" and ended.code == 0:
            return None
        kind, how = _how(ended)
        if self.link.garbled:
            kind, how = (FailureKind.CRASHED, f"was ended because of what it sent: {self.link.garbled}")
        message = f"worker {self.worker} {how} {self._doing()}"
        killed = ended.kind == "signal" and ended.code == signal.SIGKILL
        return Failure(kind, KILLED if killed else "WorkerLost", message, self._place())

    def _doing(self) -> str:
        if not self.joined:
            return "before it was ready"
        place = self._place()
        return f"while it ran {place}" if place else "while it ran none of the user's rows"

    def _place(self) -> str:
        launch = None if self._running is None else self._launched.get(self._running)
        if launch is None:
            return ""
        rows = (f"rows {part.start}-{part.stop} of input {part.input}" for part in launch.task.inputs)
        return ", ".join(rows) or f"task {launch.task.id}"


def _how(ended: ProcessEnd) -> tuple[FailureKind, str]:
    """Whose fault an end is, and how it came, as the middle of a sentence."""
    if ended.kind == "exit":
        return FailureKind.CRASHED, f"exited with code {ended.code}"
    if ended.kind == "signal":
        try:
            name = f" ({signal.Signals(ended.code).name})"
        except ValueError:  # a real-time signal
            name = ""
        kind = FailureKind.LOST if ended.code in FROM_OUTSIDE else FailureKind.CRASHED
        return kind, f"was ended by signal {ended.code}{name}"
    if ended.kind == "exceeded":
        if ended.resource == "memory":
            used, limit = format_bytes(ended.used), format_bytes(ended.limit)
            return FailureKind.LOST, f"was ended for using {used} of memory, with {limit} allowed,"
        used, limit = format_seconds(ended.used), format_seconds(ended.limit)
        return FailureKind.LOST, f"was ended for taking {used}, with {limit} allowed,"
    if ended.kind == "stopped":
        return FailureKind.LOST, "was ended, since somebody stopped it (SIGSTOP),"
    if ended.kind == "killed":
        return FailureKind.LOST, "was ended on purpose"
    return FailureKind.LOST, "was lost together with the process that watches over workers"
