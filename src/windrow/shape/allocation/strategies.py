"""First allocations by what tasks used at most, whatever their size: the modes of Work Queue and TaskVine categories.

They are there to compare with: "A Job Sizing Strategy for High-Throughput
Scientific Workflows" (doi:10.1109/TPDS.2017.2762310). Values
are histogrammed in steps; ``seconds`` weighs how long a task holds what it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Protocol

from windrow.errors import UnknownNameError, alternatives
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


class Fixed:
    """Never learns: all tasks are given what they may have."""

    def add(self, value: float, seconds: float) -> None:
        pass

    def predict(self, previous: float | None, u: float) -> float | None:  # noqa: ARG002 - a Protocol's
        return None


class MaxSeen:
    """The most that was seen, and a margin of a part of a step, in whole steps."""

    def __init__(self, step: float = STEP, margin: int = 3) -> None:
        self._step, self._margin, self._most = step, step // margin, 0.0

    def add(self, value: float, seconds: float) -> None:  # noqa: ARG002 - a Protocol's
        self._most = max(self._most, value)

    def predict(self, previous: float | None, u: float) -> float | None:  # noqa: ARG002 - a Protocol's
        amount = round_up(self._most + self._margin, self._step) if self._most else None
        return amount if amount is not None and (previous is None or amount > previous) else None


class FirstAllocation:
    """The step at which first tries and the second ones of tasks that need more do best, by a score of each."""

    def __init__(self, best: Callable[[list[Row], float], float], step: float = STEP, top: float | None = None) -> None:
        self._best, self._step, self._top = best, step, top
        self._buckets: dict[float, tuple[int, float]] = {}  #: by upper border: tasks, and their seconds
        self._most = 0.0
        self._first: float | None = None  #: None: to be computed

    def add(self, value: float, seconds: float) -> None:
        key = max(round_up(value, self._step), self._step)
        count, total = self._buckets.get(key, (0, 0.0))
        self._buckets[key] = count + 1, total + seconds
        self._most, self._first = max(self._most, value), None

    def predict(self, previous: float | None, u: float) -> float | None:  # noqa: ARG002 - a Protocol's
        if not self._buckets:
            return None
        top = self._top or self._most
        if previous is not None:
            last = round_up(max(top, self._most), self._step)
            return last if last > previous else None
        if self._first is None:
            self._first = round_up(min(self._best(self.table(), top), top), self._step)
        return self._first

    def table(self) -> list[Row]:
        """List for each step: its border, tasks within it so far, and seconds beyond it per task."""
        count, total = (sum(part) for part in zip(*self._buckets.values(), strict=True))
        rows: list[Row] = []
        within, beyond = 0, total
        for key in sorted(self._buckets):
            within, beyond = within + self._buckets[key][0], beyond - self._buckets[key][1]
            rows.append((key, within, beyond / count, total / count))
        return rows


#: Of a step: its border, tasks within it, and by task of all: seconds of those beyond it, seconds.
Row = tuple[float, int, float, float]


def least_waste(table: list[Row], top: float) -> float:
    """Give the step at which the least is held for the longest: first tries at it, second ones at the top."""
    return min(table, key=lambda row: waste(row, top))[0]


def waste(row: Row, top: float) -> float:
    step, _, beyond, mean = row
    return step * mean + top * beyond


def most_throughput(table: list[Row], top: float) -> float:
    """Give the step at which most tasks end in a time."""
    return max(table, key=lambda row: throughput(row, top, table[-1][1]))[0]


def throughput(row: Row, top: float, count: int) -> float:
    step, within, beyond, mean = row
    time = mean + beyond
    return (within * top / step + count - within) / time if time else 0.0


def round_up(value: float, step: float) -> float:
    return ceil(value / step) * step


#: By name: what makes a strategy, given the most that a task may have.
STRATEGIES: dict[str, Callable[[float | None], Strategy]] = {
    "fixed": lambda _: Fixed(),
    "max-seen": lambda _: MaxSeen(),
    "max-seen-2021": lambda _: MaxSeen(margin=2),  # the margin at the time of the paper
    "min-waste": lambda top: FirstAllocation(least_waste, top=top),
    "max-throughput": lambda top: FirstAllocation(most_throughput, top=top),
    "greedy-buckets": lambda _: Buckets(greedy_breaks, draws=True),
    "exhaustive-buckets": lambda _: Buckets(exhaustive_breaks, draws=True),
    "greedy-buckets-fixed": lambda _: Buckets(greedy_breaks, draws=False),
    "exhaustive-buckets-fixed": lambda _: Buckets(exhaustive_breaks, draws=False),
}
#: The name of the policy's own: the line of ``usage``, at the size of the task.
BY_SIZE = "by-size"


def find_strategy(name: str) -> Callable[[float | None], Strategy] | None:
    """Find what makes a strategy; None for the one by size."""
    if name != BY_SIZE and name not in STRATEGIES:
        said = alternatives("strategies", name, (BY_SIZE, *STRATEGIES))
        raise UnknownNameError(f"there is no allocation strategy {name!r}{said}")
    return STRATEGIES.get(name)
