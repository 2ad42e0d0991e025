"""Bucketing: values that tasks used, in a few buckets chosen so that an allocation from them wastes least.

Greedy and exhaustive bucketing of "Adaptive Task-Oriented Resource Allocation for Large Dynamic Workflows on Opportunistic
Resources" (doi:10.1109/IPDPS57955.2024.00034), each with a drawn bucket or with the smallest that may do. Newer tasks weigh more:
a point's weight is its number.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import floor, log2
from typing import TypeAlias

#: Points before buckets are made; until then the first value holds, doubled after failures.
SAMPLING = 10
#: Values at first, and by how much they grow beyond all that was seen.
FIRST, GROWTH = 1000.0, 2.0
#: Bytes of a unit of values: the candidate borders of the exhaustive way are powers of two of megabytes.
UNIT = 1e6
#: Buckets that the exhaustive way tries at most.
MOST_BUCKETS = 10
#: Points that are kept, the newest.
KEPT = 500

#: Sorted (value, weight).
Points: TypeAlias = Sequence[tuple[float, float]]
#: Borders of buckets, sorted, the last the largest value; True: a bucket is drawn.
Breaks: TypeAlias = Callable[[Points, bool], list[float]]


class Buckets:
    """A strategy that gives the border of a bucket."""

    def __init__(self, breaks: Breaks, *, draws: bool, unit: float = UNIT) -> None:
        self._breaks, self._draws, self._unit = breaks, draws, unit
        self._sorted: list[tuple[float, float]] = []
        self._newest: deque[tuple[float, float]] = deque()
        self._count = 0
        self._buckets: list[tuple[float, float]] | None = None

    def add(self, value: float, seconds: float) -> None:  # noqa: ARG002 - a Protocol's
        self._count += 1
        point = value / self._unit, float(self._count)
        insort(self._sorted, point)
        self._newest.append(point)
        if len(self._newest) > KEPT:
            self._sorted.remove(self._newest.popleft())
        self._buckets = None

    def predict(self, previous: float | None, u: float) -> float | None:
        before = None if previous is None else previous / self._unit
        if self._count < SAMPLING:
            return self._unit * (FIRST if before is None else grow(before))
        larger = [one for one in self.buckets() if before is None or one[0] > before]
        if not larger:
            assert before is not None
            return self._unit * grow(before)
        if not self._draws:
            return self._unit * larger[0][0]
        sums = list(accumulate(share for _, share in larger))
        chosen = next((place for place, total in enumerate(sums) if total > u * sums[-1]), -1)
        return self._unit * larger[chosen][0]

    def buckets(self) -> list[tuple[float, float]]:
        """List borders with the share of weight that is in each bucket."""
        if self._buckets is None:
            borders = self._breaks(self._sorted, self._draws)
            self._buckets = [(border, share) for border, share, _ in fill(self._sorted, borders)]
        return self._buckets


def grow(previous: float) -> float:
    """Double the first value until it is more than the previous one."""
    return FIRST * GROWTH ** max(floor(log2(previous / FIRST)) + 1, 0) if previous > 0 else FIRST


def fill(points: Points, borders: Sequence[float]) -> list[tuple[float, float, float]]:
    """List for each border with points in its bucket: the largest of these, their share of weight, their mean."""
    total = sum(weight for _, weight in points)
    found = []
    place = 0
    for border in borders:
        begin = place
        while place < len(points) and points[place][0] <= border:
            place += 1
        inside = points[begin:place]
        weight = sum(one for _, one in inside)
        if inside:
            mean = sum(value * one for value, one in inside) / weight
            found.append((inside[-1][0], weight / total, mean))
    return found


# -- greedy


def greedy_breaks(points: Points, draws: bool) -> list[float]:
    """Break in two where that costs least, and both parts again, until not to break costs least."""
    weights = [0.0, *accumulate(weight for _, weight in points)]
    sums = [0.0, *accumulate(value * weight for value, weight in points)]

    def cost(low: int, at: int, high: int) -> float:
        total = weights[high + 1] - weights[low]
        left = weights[at + 1] - weights[low]
        right = total - left
        mean1 = (sums[at + 1] - sums[low]) / left
        mean2 = (sums[high + 1] - sums[at + 1]) / right if at < high else 0.0
        p1, p2 = left / total, right / total
        here, most = points[at][0], points[high][0]
        if not draws:
            return p1 * (here - mean1) + p2 * (here + most - mean2)
        return (
            p1 * p1 * (here - mean1)
            + p1 * p2 * (most - mean1)
            + p2 * p1 * (here + most - mean2)
            + p2 * p2 * (most - mean2)
        )

    borders = {points[-1][0]}
    open_ = [(0, len(points) - 1)]
    while open_:
        low, high = open_.pop()
        at = min(range(high, low - 1, -1), key=lambda place: cost(low, place, high))
        if at < high:
            borders.add(points[at][0])
            open_ += [(begin, end) for begin, end in ((low, at), (at + 1, high)) if begin < end]
    return sorted(borders)


# -- exhaustive


def exhaustive_breaks(points: Points, draws: bool) -> list[float]:
    """Of one to ten equal divisions, below the first of which are powers of two, take the one that costs least."""
    most = points[-1][0]
    best: tuple[float, list[float]] | None = None
    for count in range(1, MOST_BUCKETS + 1):
        powers = max(0, floor(log2(most / count))) if most > 0 else 0
        borders = [2.0**power for power in range(powers)] + [most * one / count for one in range(1, count)] + [most]
        filled = fill(points, borders)
        cost = drawn_cost(filled) if draws else fixed_cost(filled)
        if best is None or cost < best[0]:
            best = cost, [border for border, _, _ in filled]
    assert best is not None
    return best[1]


def drawn_cost(buckets: Sequence[tuple[float, float, float]]) -> float:
    """What is wasted of a task on average where its bucket is drawn, and a larger one after each failure."""
    cost = 0.0
    for place, (_, share, mean) in enumerate(buckets):
        weight = expected = 0.0  # of the buckets above: their share, and what they cost by it
        for other in range(len(buckets) - 1, -1, -1):
            border, drawn, _ = buckets[other]
            one = border - mean if other >= place else border + expected / weight
            cost += share * drawn * one
            weight, expected = weight + drawn, expected + drawn * one
    return cost


def fixed_cost(buckets: Sequence[tuple[float, float, float]]) -> float:
    """What is wasted of a task on average where it is given the smallest bucket, and the next after each failure."""
    tried = accumulate(border for border, _, _ in buckets)
    return sum(share * (total - mean) for total, (_, share, mean) in zip(tried, buckets, strict=True))
