"""Why calls were not reusable, or their results not kept: by call as it is asked, by task, and most often."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

__all__ = ["Reasons", "Usual"]

#: Calls that are remembered one by one, and different reasons that are counted.
MOST = 100_000


class Usual(NamedTuple):
    """What was most often the reason that a call was not reusable."""

    why: str
    task: str
    calls: int


class Reasons:
    """What was said of a session's calls."""

    def __init__(self) -> None:
        self.by_task: dict[str, str] = {}  #: the first one of each
        self._by_call: dict[int, str] = {}
        self._refused: Counter[tuple[str, str]] = Counter()

    def refuse(self, call: int, task: str, why: str) -> None:
        """A call was not reusable."""
        if (why, task) in self._refused or len(self._refused) < MOST:
            self._refused[why, task] += 1
        self.note(call, task, f"not reusable: {why}")

    def note(self, call: int, task: str, why: str) -> None:
        """Something is to be said of a call."""
        self.by_task.setdefault(task, why)
        self._by_call[call] = why
        if len(self._by_call) > MOST:
            del self._by_call[next(iter(self._by_call))]

    def of(self, call: int) -> str:
        """Say what there is to be said of a call; nothing if there is nothing."""
        return self._by_call.get(call, "")

    def usual(self) -> Usual | None:
        """Give what was most often the reason that a call was not reusable; None if all were."""
        found = self._refused.most_common(1)
        return Usual(*found[0][0], found[0][1]) if found else None
