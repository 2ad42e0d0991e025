"""Bucketing: values that tasks used, in a few buckets chosen so that an allocation from them wastes least.

Greedy and exhaustive bucketing of "Adaptive Task-Oriented Resource Allocation for Large Dynamic Workflows on Opportunistic
Resources" (doi:10.1109/IPDPS57955.2024.00034), with a drawn bucket or the smallest that may do. A point's weight is its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import floor, log2
from typing import NamedTuple, TypeAlias

#: Points before buckets are made. Until then the first value holds; beyond what holds it is doubled.
SAMPLING, FIRST = 10, 1000.0
#: Bytes of a unit of values: candidates for borders of the exhaustive way are powers of two of megabytes.
UNIT = 1e6
#: Points that are kept, the newest.
KEPT = 500

#: Sorted (value, weight).
Points: TypeAlias = Sequence[tuple[float, float]]


class Bucket(NamedTuple):
    """Values up to a border, from the one before."""

    border: float  #: the largest of them
    share: float  #: of all weight
    mean: float


class Buckets:
    """A strategy that gives the border of a bucket."""

    def __init__(self, breaks: Callable[[Points, bool], list[float]], *, draws: bool, unit: float = UNIT) -> None:
        self._breaks, self._draws, self._unit = breaks, draws, unit
        self._points: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._count = 0
        self._buckets: list[Bucket] = []  #: none: to be made

    def add(self, value: float, seconds: float) -> None:  # noqa: ARG002 - a Protocol's
        self._count += 1
        self._points.append((value / self._unit, float(self._count)))
        self._buckets = []

    def predict(self, previous: float | None, u: float) -> float | None:
        before = (previous or 0.0) / self._unit
        larger = [one for one in self.buckets() if one.border > before] if self._count >= SAMPLING else []
        if not larger:
            return self._unit * (FIRST * 2.0 ** max(floor(log2(before / FIRST)) + 1, 0) if before else FIRST)
        if not self._draws:
            return self._unit * larger[0].border
        sums = list(accumulate(one.share for one in larger))
        drawn = next((one for one, total in zip(larger, sums, strict=True) if total > u * sums[-1]), larger[-1])
        return self._unit * drawn.border

    def buckets(self) -> list[Bucket]:
        if not self._buckets:
            points = sorted(self._points)
            self._buckets = fill(points, self._breaks(points, self._draws))
        return self._buckets


def fill(points: Points, borders: Sequence[float]) -> list[Bucket]:
    """Put points into buckets; those that stay empty are left out."""
    total = sum(weight for _, weight in points)
    found, end = [], 0
    for border in borders:
        begin = end
        while end < len(points) and points[end][0] <= border:
            end += 1
        inside = points[begin:end]
        if inside:
            weight = sum(one for _, one in inside)
            found.append(Bucket(inside[-1][0], weight / total, sum(value * one for value, one in inside) / weight))
    return found


# -- greedy


def greedy_breaks(points: Points, draws: bool) -> list[float]:
    """Break in two where that costs least, and both parts again, until not to break costs least."""
    weights = [0.0, *accumulate(weight for _, weight in points)]
    sums = [0.0, *accumulate(value * weight for value, weight in points)]

    def cost(low: int, at: int, high: int) -> float:
        left, right = weights[at + 1] - weights[low], weights[high + 1] - weights[at + 1]
        mean1 = (sums[at + 1] - sums[low]) / left
        mean2 = (sums[high + 1] - sums[at + 1]) / right if right else 0.0
        p1, p2 = left / (left + right), right / (left + right)
        here, most = points[at][0], points[high][0]
        below, above = here - mean1, here + most - mean2  # what each wastes where the smaller is tried first
        if draws:
            below, above = p1 * below + p2 * (most - mean1), p1 * above + p2 * (most - mean2)
        return p1 * below + p2 * above

    borders = {points[-1][0]}
    parts = [(0, len(points) - 1)]
    while parts:
        low, high = parts.pop()
        costs = [cost(low, at, high) for at in range(low, high + 1)]
        at = high - costs[::-1].index(min(costs))  # of equal ones the last
        if at < high:
            borders.add(points[at][0])
            parts += [(low, at), (at + 1, high)]
    return sorted(borders)


# -- exhaustive


def exhaustive_breaks(points: Points, draws: bool) -> list[float]:
    """Of one to ten equal divisions, below the first of which are powers of two, take the one that costs least."""
    most, cost = points[-1][0], drawn_cost if draws else fixed_cost
    tries: list[list[Bucket]] = []
    for count in range(1, 11):
        powers = max(0, floor(log2(most / count))) if most > 0 else 0
        equal = [most * one / count for one in range(1, count)]
        tries.append(fill(points, [*(2.0**power for power in range(powers)), *equal, most]))
    return [bucket.border for bucket in min(tries, key=cost)]


def drawn_cost(buckets: Sequence[Bucket]) -> float:
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


def fixed_cost(buckets: Sequence[Bucket]) -> float:
    """What is wasted of a task on average where it is given the smallest bucket, and the next after each failure."""
    tried = accumulate(one.border for one in buckets)
    return sum(one.share * (total - one.mean) for total, one in zip(tried, buckets, strict=True))
