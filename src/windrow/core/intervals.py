"""A set of rows of one input as sorted, disjoint, coalesced ranges.

Rows finish roughly in order, so the ranges stay few and every operation is a bisection and a short
memory move.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from windrow.errors import InternalError


class Intervals:
    """Half-open ranges of rows; refuses to hold a row twice."""

    __slots__ = ("_starts", "_stops", "total")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.total = 0  #: rows in the set
        for start, stop in ranges:
            if not self.add(start, stop):
                raise InternalError(f"rows [{start}, {stop}) given twice in one set of rows")

    def add(self, start: int, stop: int) -> bool:
        """Put rows in, all or nothing: False, and no change, if one of them is there already."""
        starts, stops = self._starts, self._stops
        at = bisect_right(starts, start)
        if at and stops[at - 1] > start:
            return False
        if at < len(starts) and starts[at] < stop:
            return False
        if stop <= start:
            return True
        self.total += stop - start
        joins_left = at > 0 and stops[at - 1] == start
        joins_right = at < len(starts) and starts[at] == stop
        if joins_left and joins_right:
            stops[at - 1] = stops.pop(at)
            del starts[at]
        elif joins_left:
            stops[at - 1] = stop
        elif joins_right:
            starts[at] = start
        else:
            starts.insert(at, start)
            stops.insert(at, stop)
        return True

    def free(self, start: int, stop: int) -> bool:
        at = bisect_right(self._starts, start)
        if at and self._stops[at - 1] > start:
            return False
        return at >= len(self._starts) or self._starts[at] >= stop

    def remove(self, start: int, stop: int) -> None:
        """Take rows out; all of them must be there."""
        if stop <= start:
            return
        starts, stops = self._starts, self._stops
        at = bisect_right(starts, start) - 1
        if at < 0 or stops[at] < stop:
            raise InternalError(f"cannot take rows [{start}, {stop}) out of a set that holds {list(self)}")
        self.total -= stop - start
        left, right = starts[at], stops[at]
        if left < start and stop < right:
            stops[at] = start
            starts.insert(at + 1, stop)
            stops.insert(at + 1, right)
        elif left < start:
            stops[at] = start
        elif stop < right:
            starts[at] = stop
        else:
            del starts[at]
            del stops[at]

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        result = []
        at = max(bisect_right(self._starts, start) - 1, 0)
        end = bisect_left(self._starts, stop)
        for left, right in zip(self._starts[at:end], self._stops[at:end], strict=True):
            if left > start:
                result.append((start, left))
            start = max(start, right)
        if start < stop:
            result.append((start, stop))
        return result

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __len__(self) -> int:
        return len(self._starts)
