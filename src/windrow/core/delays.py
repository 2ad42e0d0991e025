"""What waits for a time: tasks and inputs that will be tried again."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from windrow.core.records import Task
    from windrow.core.state import Feed, Tries

__all__ = ["BACK_OFF_S", "Delays", "Restart", "Retry"]

#: Seconds before the first, second, ... retry of a read: a network file system recovers from a
#: hiccup within the first, from a fail-over rather within the second.
BACK_OFF_S = (0.1, 0.4)

#: A task with its failed tries, or an input to be opened again.
Retry: TypeAlias = "tuple[Task, Tries] | Feed"


class Restart(NamedTuple):
    """A life of a worker that begins after a pause."""

    worker: int
    incarnation: int


class Delays:
    """Retries, and workers that pause, by due time."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Retry]] = []
        self.pauses: list[tuple[float, int, Restart]] = []  #: apart: no row waits for them
        self._number = count().__next__  #: equal times keep their order
        self._told: float | None = None  #: the wake-up that was asked for

    def push(self, now: float, tries: int, what: Retry) -> None:
        """Let something wait after its ``tries``-th failure."""
        wait = BACK_OFF_S[min(tries, len(BACK_OFF_S)) - 1]
        heappush(self.heap, (now + wait, self._number(), what))

    def pause(self, time: float, restart: Restart) -> None:
        """Let a worker wait for its next life."""
        heappush(self.pauses, (time, self._number(), restart))

    def due(self, now: float) -> list[Retry]:
        """Take out what need not wait any longer."""
        found = []
        while self.heap and self.heap[0][0] <= now:
            found.append(heappop(self.heap)[2])
        return found

    def rested(self, now: float) -> list[Restart]:
        """Take out the workers that paused long enough."""
        found = []
        while self.pauses and self.pauses[0][0] <= now:
            found.append(heappop(self.pauses)[2])
        return found

    def wake_at(self, other: float | None) -> float | None:
        """Give the next due time, of this or another thing, if it was not given before."""
        times = [heap[0][0] for heap in (self.heap, self.pauses) if heap]
        if other is not None:
            times.append(other)
        due = min(times, default=None)
        news = due if due != self._told else None
        self._told = due
        return news
