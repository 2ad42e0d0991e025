"""What waits for a time: tasks and inputs that will be tried again."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from windrow.core.records import Task
    from windrow.core.state import Feed

__all__ = ["BACK_OFF_S", "Delays", "Retry"]

#: Seconds before the first, second, ... retry of a read: a network file system recovers from a
#: hiccup within the first, from a fail-over rather within the second.
BACK_OFF_S = (0.1, 0.4)

#: A task with the number of its failed tries, or an input to be opened again.
Retry: TypeAlias = "tuple[Task, int] | Feed"


class Delays:
    """Retries by due time."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Retry]] = []
        self._number = count().__next__  #: equal times keep their order
        self._told: float | None = None  #: the wake-up that was asked for

    def push(self, now: float, tries: int, what: Retry) -> None:
        """Let something wait after its ``tries``-th failure."""
        wait = BACK_OFF_S[min(tries, len(BACK_OFF_S)) - 1]
        heappush(self.heap, (now + wait, self._number(), what))

    def due(self, now: float) -> list[Retry]:
        """Take out what need not wait any longer."""
        found = []
        while self.heap and self.heap[0][0] <= now:
            found.append(heappop(self.heap)[2])
        return found

    def wake_at(self) -> float | None:
        """Give the next due time if it was not given before."""
        due = self.heap[0][0] if self.heap else None
        news = due if due != self._told else None
        self._told = due
        return news
