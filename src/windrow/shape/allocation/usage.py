"""What tasks of one kind used of a resource: ``fixed + per_row * rows``, and an upper bound that a share of them keeps to.

The line is that of Theil and Sen (the median of slopes between points, doi:10.1080/01621459.1968.10480934; of many, between each
and the one half of them further on): a fifth may be anything if the rest differ in size. The bound is the line times a quantile of
measured over expected, so that it grows as noise does; memory counts from a little under that of an idle worker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil, inf
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from windrow.core.records import Measurement

#: Points that are kept, the newest: enough for a quantile of one in fifty, and a change in the data is seen within a handful.
KEPT = 200
#: Share of tasks that keep to the upper bound: what one task in fifty loses is within what a run may lose (a twentieth).
SHARE = 0.98
#: Up to so many points the slopes between all pairs are taken: 276 of them.
ALL_PAIRS = 24
#: Sizes that differ by less than this share tell noise from slope no better than one size does; and so many that differ.
APART, LEAST_PAIRS = 0.1, 3
#: Share of an idle worker's memory that counts as the task's: it varies by some percent too.
IDLE_NOISE = 0.05
#: A fit is made anew when there are so many times the points of the last one, and after so many more at the latest.
REFIT, REFIT_LATEST = 1.2, 100
#: Rows that stand for "as many as there are".
ANY_ROWS = 1 << 40


class Point(NamedTuple):
    """What one task used."""

    rows: int
    memory: float  #: bytes of its whole process tree at most; 0: not measured
    disk: float  #: bytes written
    seconds: float
    cores: float  #: processors that were busy on average
    idle: float  #: bytes of its worker with nothing running
    ended: bool = False  #: at a limit: it would have used more


class UsageFit(NamedTuple):
    """A line through what tasks used of one resource, and how they lie about it."""

    fixed: float
    per_row: float
    base: float  #: what counts as no task's: most of an idle worker's memory
    ratios: Sequence[float]  #: sorted: measured over expected, above the base

    def expected(self, rows: float) -> float:
        return self.fixed + self.per_row * rows

    def upper(self, rows: float, share: float = SHARE) -> float:
        """Give what a share of tasks with so many rows keep to."""
        return self._times(quantile(self.ratios, share), rows)

    def upper_beyond(self, rows: float, used: float, share: float = SHARE) -> float | None:
        """Give what a task keeps to that was seen to use more than ``used``; None if none like it has been seen."""
        larger = self.ratios[bisect_right(self.ratios, self._ratio(rows, used)) :]
        return self._times(quantile(larger, share), rows) if larger else None

    def least(self, rows: float, used: float) -> float:
        """Give what one row would take of a task that used more than ``used`` with so many."""
        return self._times(max(self._ratio(rows, used), 1.0), 1)

    def most_rows(self, amount: float, share: float = SHARE) -> int:
        """Give the rows of a task whose upper bound is within an amount; 0 if not even the fixed part is."""
        room, slope = amount - self.upper(0, share), quantile(self.ratios, share) * self.per_row
        if room < 0 or room >= slope * ANY_ROWS:
            return 0 if room < 0 else ANY_ROWS
        rows = int(room / slope)
        return max(rows - (self.upper(rows, share) > amount), 1)  # by rounding

    def _times(self, ratio: float, rows: float) -> float:
        return self.base + ratio * (self.expected(rows) - self.base)

    def _ratio(self, rows: float, used: float) -> float:
        expected = self.expected(rows) - self.base
        return (used - self.base) / expected if expected > 0 else inf


class TaskUsage:
    """What the newest tasks of one kind used, and the lines through it, made when asked for and seldom."""

    def __init__(self, points: Iterable[Sequence[Any]] = (), count: int = 0) -> None:
        self.points: deque[Point] = deque((Point(*one) for one in points), maxlen=KEPT)
        self.count = max(count, len(self.points))  #: of all tasks so far
        #: bytes of a worker with nothing running at most
        self.idle = max((one.idle for one in self.points), default=0.0)
        self.refit = True  #: lines are made anew when they are next asked for
        self._fits: dict[str, UsageFit | None] = {}
        self._at = 0.0  #: tasks at which that is due

    def add(self, rows: int, measured: Measurement, *, ended: bool = False) -> bool:
        """Take in what a task used, or had used when it was ended; True: lines are made anew."""
        wall, cpu, _, memory, _, written, _, idle = measured
        self.points.append(Point(rows, memory, written, wall, cpu / wall if wall > 0 else 0.0, idle, ended))
        self.count, self.idle = self.count + 1, max(self.idle, idle)
        self.refit = self.refit or self.count >= self._at
        return self.refit

    def fit(self, resource: str = "memory") -> UsageFit | None:
        """Give the line of memory, disk, seconds or cores; None where nothing was measured."""
        if self.refit:
            self._fits.clear()
            self.refit, self._at = False, min(self.count * REFIT, self.count + REFIT_LATEST)
        if resource not in self._fits:
            self._fits[resource] = self._line(resource)
        return self._fits[resource]

    def most(self, name: str) -> float:
        """Give the most of a resource, or of rows."""
        return max((getattr(one, name) for one in self.points), default=0)

    def plain(self) -> dict[str, Any]:
        """Give all that is known as numbers and lists, of which ``TaskUsage(**plain)`` makes it again."""
        return {"points": [list(one) for one in self.points], "count": self.count}

    def _line(self, resource: str) -> UsageFit | None:
        points = [one for one in self.points if one.memory > 0 or resource != "memory"]
        if not points:
            return None
        idle = 0.0
        if resource == "memory":
            ran = [one for one in points if not one.ended] or points
            idle = min(median(one.idle for one in ran), *(one.memory for one in points))
        done = _pairs([one for one in points if not one.ended], resource)
        if len(_slopes(done)) >= LEAST_PAIRS:  # then what was ended counts only where it is above what the others say
            fixed, per_row = fit_line(done, idle)
            points = [p for p in points if not p.ended or getattr(p, resource) > fixed + per_row * p.rows]
        pairs = _pairs(points, resource)
        fixed, per_row = fit_line(pairs, idle)
        if not fixed and not per_row:  # most used nothing: those that did are all there is to go by
            fixed = quantile(sorted(used for _, used in pairs), SHARE)
        base = idle * (1 - IDLE_NOISE)
        scales = [(used - base, fixed + per_row * rows - base) for rows, used in pairs]
        return UsageFit(fixed, per_row, base, sorted(above / scale for above, scale in scales if scale > 0))


def _pairs(points: Iterable[Point], resource: str) -> list[tuple[int, float]]:
    return sorted((one.rows, float(getattr(one, resource))) for one in points)


def _slopes(points: Sequence[tuple[int, float]]) -> list[float]:
    """Give the slopes between sorted points that differ in size."""
    half = len(points) // 2
    pairs = zip(points, points[half:], strict=False) if len(points) > ALL_PAIRS else combinations(points, 2)
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] - a[0] > APART * b[0]]


def fit_line(points: Sequence[tuple[int, float]], least: float = 0.0) -> tuple[float, float]:
    """Fit (fixed, per row) to sorted points; the fixed part is at least ``least``, and no row takes less than nothing.

    Tasks of one size cannot tell the two apart: then all above the least is the rows'.
    """
    slopes = _slopes(points)
    if len(slopes) >= LEAST_PAIRS:
        per_row = max(median(slopes), 0.0)
        fixed = median(used - per_row * rows for rows, used in points)
        if fixed >= least:
            return fixed, per_row
    by_row = [(used - least) / rows for rows, used in points if rows]
    return (least, max(median(by_row), 0.0)) if by_row else (max(median(used for _, used in points), least), 0.0)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Give what the next value keeps to by chance; if too few tell that, beyond the largest as far as that is beyond the middle."""
    count = len(ordered)
    place = ceil(share * (count + 1))
    if not count:
        return 1.0
    return ordered[max(place, 1) - 1] if place <= count else 2 * ordered[-1] - ordered[count // 2]
