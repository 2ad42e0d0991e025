"""Evidence of many attempts, added up: what their steps cost, what was seen of sampled rows, what people are told.

Every task brings some, so it is taken in unread and added up many tasks at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from windrow.core.records import Evidence, StepCost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.core.records import Terrain, Window

__all__ = ["Learned"]

#: Notes are for people; a step that writes a new one for every block must not fill the memory.
MAX_NOTES = 100

#: Evidence is added up so many tasks at a time: column by column it costs half of task by task.
UNREAD = 128

#: Windows that are kept, the latest: a decision looks at the newest of them (``order.drift``).
MAX_WINDOWS = 512

NOTHING = StepCost()


class Learned:
    """What accepted attempts of a category learned, but guards, which are needed at once."""

    __slots__ = ("_looked", "_notes", "_probed", "_steps", "_terrain", "_unread", "_windows")

    def __init__(self) -> None:
        self._unread: list[Evidence] = []
        self._steps: dict[str, StepCost] = {}
        self._notes: dict[str, None] = {}
        self._windows: deque[Window] = deque(maxlen=MAX_WINDOWS)
        self._terrain: Terrain | None = None
        self._probed: dict[str, StepCost] = {}
        self._looked = (0, 0, 0.0)

    def add(self, evidence: Evidence) -> None:
        """Take in what one attempt learned."""
        self._unread.append(evidence)
        if len(self._unread) >= UNREAD:
            self._read()

    def evidence(self, guards: Iterable[tuple[str, str]]) -> Evidence:
        """Give everything learned so far as a record, with the guards."""
        self._read()
        return Evidence(
            tuple(self._steps.items()),
            tuple(guards),
            tuple(self._notes),
            tuple(self._windows),
            self._terrain,
            tuple(self._probed.items()),
            self._looked,
        )

    def _read(self) -> None:
        """Add up what was left unread; steps are the same in most, so column by column."""
        tables: dict[tuple[str, ...], list[tuple[StepCost, ...]]] = {}
        for evidence in self._unread:
            if evidence.steps:
                names, costs = zip(*evidence.steps, strict=True)
                tables.setdefault(names, []).append(costs)
            for note in evidence.notes:
                if len(self._notes) < MAX_NOTES:
                    self._notes[note] = None
            if evidence.windows or evidence.probed:
                self._read_probes(evidence)
        self._unread.clear()
        for names, table in tables.items():
            for name, column in zip(names, zip(*table, strict=True), strict=True):
                total = StepCost(*map(sum, zip(*column, strict=True)))
                self._steps[name] = self._steps.get(name, NOTHING).merge(total)

    def _read_probes(self, evidence: Evidence) -> None:
        """Take in what was seen where rows were shown to all cuts; few tasks have that."""
        self._windows.extend(evidence.windows)
        count, rows, seconds = self._looked
        for window in evidence.windows:
            count, rows, seconds = count + 1, rows + window.size, seconds + window.seconds
        self._looked = count, rows, seconds
        self._terrain = evidence.terrain or self._terrain
        for name, cost in evidence.probed:
            self._probed[name] = self._probed.get(name, NOTHING).merge(cost)
