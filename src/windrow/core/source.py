"""Rows of one input that are not cut yet, and how the next task is cut from them.

Cuts follow the input's own units: a task is whole units, at least one, unless the range it comes
from begins or ends inside a unit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from windrow.core.records import Rows

__all__ = ["Cutter"]


class Cutter:
    """Ranges of rows waiting to be cut, lowest first; rows given back come first again."""

    __slots__ = ("_borders", "_input", "_pieces", "rows")

    def __init__(self, input_id: int, borders: tuple[int, ...]) -> None:
        self._input = input_id
        self._borders = borders
        #: (-start, stop, single): sorted, so that the lowest range is the last and cheap to pop
        self._pieces: list[tuple[int, int, bool]] = []
        self.rows = 0  #: rows waiting

    def add(self, start: int, stop: int, *, single: bool = False) -> None:
        """Put rows in; ``single`` ones are cut unit by unit."""
        if start < stop:
            insort(self._pieces, (-start, stop, single))
            self.rows += stop - start

    def next_unit(self) -> tuple[int, int]:
        """Say how many rows the next unit has and how many units its range has."""
        key, stop, single = self._pieces[-1]
        borders = self._borders
        at = bisect_right(borders, -key)
        unit = min(borders[at], stop) + key
        return unit, 1 if single else bisect_left(borders, stop, at) - at + 1

    def cut(self, want: int) -> Rows:
        """Cut the next task: ``want`` rows snapped down to whole units, at least one unit."""
        key, stop, single = self._pieces.pop()
        start = -key
        borders = self._borders
        at = bisect_right(borders, start)
        end = borders[at]
        if not single and end < start + want:
            goal = start + want
            end = stop if goal >= stop else borders[bisect_right(borders, goal, at) - 1]
        if end < stop:
            self._pieces.append((-end, stop, single))
        else:
            end = stop
        self.rows -= end - start
        return Rows(self._input, start, end)

    def units(self, rows: Rows) -> int:
        """Count the units that rows touch."""
        borders = self._borders
        return bisect_left(borders, rows.stop) - bisect_right(borders, rows.start) + 1

    def clear(self) -> list[Rows]:
        """Take out everything, lowest first."""
        pieces = [Rows(self._input, -key, stop) for key, stop, _ in reversed(self._pieces)]
        self._pieces.clear()
        self.rows = 0
        return pieces

    def waiting(self) -> list[Rows]:
        """List what waits, lowest first."""
        return [Rows(self._input, -key, stop) for key, stop, _ in reversed(self._pieces)]
