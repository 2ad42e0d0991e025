"""First allocations by what tasks used, whatever their size, to compare with: the modes of Work Queue and TaskVine.

"A Job Sizing Strategy for High-Throughput Scientific Workflows" (doi:10.1109/TPDS.2017.2762310). Values are counted in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import NamedTuple, Protocol

from windrow.shape.allocation.buckets import Buckets, exhaustive_breaks, greedy_breaks

#: Width of a bucket of the histograms: 250 MB, as in the sources.
STEP = 250e6


class Strategy(Protocol):
    """What the next task is given, from what those before it used."""

    def add(self, value: float, seconds: float) -> None:
        """Take in what a task used that ended well."""

    def predict(self, previous: float | None, u: float) -> float | None:
        """Give the next allocation, after ``previous`` was too little; ``u`` in [0, 1) decides where chance does.

        None: all that there may be, as nothing is known or what is known was too little.
        """


class MaxSeen:
    """The most that was seen, and a margin of a part of a step in whole megabytes, in whole steps."""

    def __init__(self, parts: int = 3) -> None:
        self._margin, self._most = STEP / 1e6 // parts * 1e6, 0.0

    def add(self, value: float, seconds: float) -> None:  # noqa: ARG002 - a Protocol's
        self._most = max(self._most, value)

    def predict(self, previous: float | None, u: float) -> float | None:  # noqa: ARG002 - a Protocol's
        amount = round_up(self._most + self._margin) if self._most else 0.0
        return amount if amount > (previous or 0.0) else None


class AllocationStep(NamedTuple):
    """A step that first tries may be given; seconds are per task of all."""

    step: float
    within: int  #: tasks that need no more
    beyond: float  #: seconds of those that do
    mean: float  #: seconds


class FirstAllocation:
    """The step at which first tries, and second ones at the top of tasks that need more, have the best score."""

    def __init__(self, score: Callable[[AllocationStep, float, int], float], top: float | None = None) -> None:
        self._score, self._top = score, top
        self._buckets: dict[float, tuple[int, float]] = {}  #: by upper border: tasks, and their seconds
        self._most = 0.0

    def add(self, value: float, seconds: float) -> None:
        key = max(round_up(value), STEP)
        count, total = self._buckets.get(key, (0, 0.0))
        self._buckets[key] = count + 1, total + seconds
        self._most = max(self._most, value)

    def predict(self, previous: float | None, u: float) -> float | None:  # noqa: ARG002 - a Protocol's
        if not self._buckets:
            return None
        top = self._top or self._most
        if previous is not None:  # the second try
            last = round_up(max(top, self._most))
            return last if last > previous else None
        table = self.table()
        best = max(table, key=lambda row: self._score(row, top, table[-1].within)).step
        return round_up(min(best, top))

    def table(self) -> list[AllocationStep]:
        count, total = (sum(part) for part in zip(*self._buckets.values(), strict=True))
        rows: list[AllocationStep] = []
        within, beyond = 0, total
        for key in sorted(self._buckets):
            within, beyond = within + self._buckets[key][0], beyond - self._buckets[key][1]
            rows.append(AllocationStep(key, int(within), beyond / count, total / count))
        return rows


def thrift(row: AllocationStep, top: float, count: int) -> float:  # noqa: ARG001 - called as ``throughput`` is
    """Score by how little is held for how short a time."""
    return -(row.step * row.mean + top * row.beyond)


def throughput(row: AllocationStep, top: float, count: int) -> float:
    """Score by the tasks that end in a time."""
    time = row.mean + row.beyond
    return (row.within * top / row.step + count - row.within) / time if time else 0.0


def round_up(value: float) -> float:
    return ceil(value / STEP) * STEP


#: The names of the policy's own, the line of ``usage`` at the size of the task, and of never learning.
BY_SIZE, FIXED = "by-size", "fixed"
#: By name: what makes a strategy, given the most that a task may have.
STRATEGIES: dict[str, Callable[[float | None], Strategy | None]] = {
    BY_SIZE: lambda _: None,
    FIXED: lambda _: None,
    "max-seen": lambda _: MaxSeen(),
    "max-seen-2021": lambda _: MaxSeen(2),  # the margin at the time of the paper
    "min-waste": lambda top: FirstAllocation(thrift, top),
    "max-throughput": lambda top: FirstAllocation(throughput, top),
    "greedy-buckets": lambda _: Buckets(greedy_breaks, draws=True),
    "exhaustive-buckets": lambda _: Buckets(exhaustive_breaks, draws=True),
    "greedy-buckets-fixed": lambda _: Buckets(greedy_breaks, draws=False),
    "exhaustive-buckets-fixed": lambda _: Buckets(exhaustive_breaks, draws=False),
}
