"""One life of a worker process as the driver sees it: what it was told, what it said, how it ended."""

from __future__ import annotations

import signal
import weakref
from collections import deque
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from windrow.core.events import Cancelled, Event, Exhausted, Failed, Finished, Started, WorkerLost
from windrow.core.records import Failure, FailureKind, Life
from windrow.core.retry import EXPLAINED, KILLED
from windrow.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.core.commands import Fetch, Launch
    from windrow.core.records import Plan
    from windrow.engines.base import Workload
    from windrow.engines.processes.transport import Arrival, Link, Parcel
    from windrow.engines.supervisor.client import ProcessEnd, WorkerProcess

#: Signals that are sent to processes that have done nothing wrong (by the machine's own out-of-memory killer, too).
FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM})
#: After how long a worker's page is looked at, at first and at most: short tasks report their beginning with their end.
LOOK_S, LOOK_MOST_S = 0.005, 0.1


class Connection:
    """The driver's side of one life of a worker."""

    def __init__(self, process: WorkerProcess, link: Link, workload: Workload, grace_s: float, *, io: bool) -> None:
        self.process = process
        self.link = link
        self.life = Life(process.worker, process.incarnation)
        self.io = io  #: its place is for input and output
        self.joined = False
        self.ending = False  #: it was told to stop
        self.refused: Failure | None = None  #: why it cannot begin
        self.fetching: deque[tuple[Fetch, bool]] = deque()  #: in order; whether it is still wanted
        self.released: deque[Arrival] = deque()  #: outputs of which a report will tell
        self.late: list[tuple[str, int]] = []  #: outputs that it forgets when it is told something else
        self._workload = workload
        self._plans: dict[int, tuple[int, Plan]] = {}  #: that it was sent, by identity, with the numbers
        self._common: set[int] = set()  #: what calls have in common, that it was sent
        self._gone: deque[int] = deque()  #: of that: what no call will need again
        self._launched: dict[int, Launch] = {}  #: attempts that have not ended
        self._running: int | None = None
        self._cancelled: dict[int, float] = {}  #: attempt -> since when
        self._look_at: float | None = None  #: when to look whether an attempt has begun
        self._look_s = LOOK_S
        self._grace_s = grace_s
        self.killed = False  #: because an attempt that was cancelled ran on

    @property
    def busy(self) -> bool:
        """Whether the end of something it was told to do is still to come."""
        return bool(self._launched or self.fetching)

    def name_plan(self, plan: Plan) -> int | tuple[int, Plan]:
        """Give the number of a plan, with the plan itself if it was not sent before."""
        known = self._plans.get(id(plan))
        if known is not None:
            return known[0]
        self._plans[id(plan)] = (len(self._plans), plan)
        return self._plans[id(plan)]

    def missing_common(self, common: Mapping[int, Parcel], engine: weakref.ref[Any]) -> list[Parcel]:
        """Give what calls have in common and it was not sent yet; from now on it was. When a large one is gone the engine is woken."""
        missing = [number for number in common if number not in self._common]
        for number in missing:
            large = common[number].file >= 0
            weakref.finalize(common[number], _note_gone, self._gone, number, engine if large else None).atexit = False
        self._common.update(missing)
        return [common[number] for number in missing]

    def take_gone(self) -> tuple[int, ...]:
        """Give what it may forget, since no call has it any more; from now on it has none of it."""
        numbers = []
        while self._gone:
            numbers.append(self._gone.popleft())
            self._common.discard(numbers[-1])
        return tuple(numbers)

    # -- what it is told and says

    def launch(self, launch: Launch, now: float) -> None:
        self._launched[launch.attempt] = launch
        if self._running is None and self._look_at is None:
            self._look_at, self._look_s = now + LOOK_S, LOOK_S

    def cancel(self, attempt: int, now: float) -> None:
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
        return True

    def look(self) -> Started | None:
        """Look at the page: the attempt that runs, if it did not say so itself."""
        seen = self.process.page.attempt()
        if seen is None or seen.number == self._running or seen.number not in self._launched:
            return None
        if next(iter(self._launched)) != seen.number:
            return None  # of those that it was sent before it has not told yet
        return Started(seen.number, self.life)

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
        if self.killed or self._running is None or self._running not in self._cancelled:
            return None
        return self._cancelled[self._running] + self._grace_s

    # -- its end

    def passed(self) -> list[Cancelled]:
        """Look at the page of one that is gone: attempts that were to run before the one that ran have ended, untold."""
        seen = self.process.page.attempt()
        if seen is None or seen.number not in self._launched:
            return []
        before = takewhile(lambda number: number != seen.number, self._launched)
        return [Cancelled(number, self.life) for number in before]

    def end(self, ended: ProcessEnd) -> list[Event]:
        events: list[Event] = []
        if ended.kind == "exceeded" and self._running is not None:
            events.append(Exhausted(self._running, self.life, ended.resource, ended.limit, ended.used))
        elif self.killed:
            events += [Cancelled(attempt, self.life) for attempt in self._cancelled]
        failure = self.explain_end(ended)
        if events and failure is not None:
            failure = replace(failure, type=EXPLAINED)
        events.append(WorkerLost(self.life, failure))
        return events

    def explain_end(self, ended: ProcessEnd) -> Failure | None:
        """Say why it ended; None: it was told to."""
        if self.refused is not None:
            return self.refused
        if self.ending and ended.kind == "exit" and ended.code == 0:
            return None
        kind, how = _how(ended)
        if self.link.garbled:
            kind, how = (FailureKind.CRASHED, f"was ended because of what it sent: {self.link.garbled}")
        launch = None if self._running is None else self._launched.get(self._running)
        place = "" if launch is None else self._workload.describe(launch.task)
        doing = f"while it ran {place}" if place else "while it ran none of the user's rows"
        if not self.joined:
            doing = "before it was ready"
        killed = ended.kind == "signal" and ended.code == signal.SIGKILL
        message = f"worker {self.life.worker} {how} {doing}"
        return Failure(kind, KILLED if killed else "WorkerLost", message, place)


def _note_gone(gone: deque[int], number: int, engine: weakref.ref[Any] | None) -> None:
    gone.append(number)
    found = None if engine is None else engine()
    if found is not None:
        found.wake()


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
