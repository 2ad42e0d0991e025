"""What tasks of one kind used of a resource: ``fixed + per_row * rows``, and an upper bound that a share of them keeps to.

The line is that of Theil and Sen (the median of the slopes between points, doi:10.1080/01621459.1968.10480934; where there are
many, between each and the one half of them further on): a fifth of the points may be anything as long as the rest have different
sizes. The bound is the line times a quantile of measured over expected, so that it grows with the rows as noise does; memory
counts from a little under that of an idle worker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from windrow.core.records import Measurement

Resource: TypeAlias = Literal["memory", "disk", "seconds", "cores"]

#: Points that are kept, the newest: enough for a quantile of one in fifty, and a change in the data is seen within a handful.
KEPT = 200
#: Share of tasks that keep to the upper bound: what one task in fifty loses is within what a run may lose (a twentieth).
SHARE = 0.98
#: Up to so many points the slopes between all pairs are taken: 276 of them.
ALL_PAIRS = 24
#: Sizes that differ by less than this share tell noise from slope no better than one size does.
APART = 0.1
#: Pairs so far apart that there must be: fewer are chance.
LEAST_PAIRS = 3
#: Share of an idle worker's memory that counts as the task's: it varies by some percent too.
IDLE_NOISE = 0.05
#: A fit is made anew when there are so many more points than at the last one, and after so many at the latest.
REFIT, REFIT_LATEST = 1.2, 50
#: Rows that stand for "as many as there are", which a float holds exactly.
ANY_ROWS = 1 << 52


class Point(NamedTuple):
    """What one task used."""

    rows: int
    memory: float  #: bytes of its whole process tree at most; 0: not measured
    disk: float  #: bytes written
    seconds: float
    cores: float  #: processors that were busy on average
    idle: float  #: bytes of its worker with nothing running


class UsageFit(NamedTuple):
    """A line through what tasks used of one resource, and how they lie about it."""

    fixed: float
    per_row: float
    base: float  #: what counts as no task's: most of an idle worker's memory
    ratios: tuple[float, ...]  #: sorted: measured over expected, above the base

    def expected(self, rows: float) -> float:
        return self.fixed + self.per_row * rows

    def upper(self, rows: float, share: float = SHARE) -> float:
        """Give what a share of tasks with so many rows keep to."""
        return self.base + _quantile(self.ratios, share) * (self.expected(rows) - self.base)

    def upper_beyond(self, rows: float, used: float, share: float = SHARE) -> float | None:
        """Give what a task keeps to that was seen to use more than ``used``; None if none like it has been seen."""
        larger = self.ratios[bisect_right(self.ratios, self._ratio(rows, used)) :]
        if not larger:
            return None
        return self.base + _quantile(larger, share) * (self.expected(rows) - self.base)

    def least(self, rows: float, used: float) -> float:
        """Give what one row would take of a task that used more than ``used`` with so many."""
        return self.base + max(self._ratio(rows, used), 1.0) * (self.expected(1) - self.base)

    def most_rows(self, amount: float, share: float = SHARE) -> int:
        """Give the rows of a task whose upper bound is within an amount; 0 if not even the fixed part is."""
        if self.upper(0, share) > amount:
            return 0
        slope = _quantile(self.ratios, share) * self.per_row
        room = amount - self.upper(0, share)
        if room >= slope * ANY_ROWS:
            return ANY_ROWS
        rows = max(int(room / slope), 1)
        while rows > 1 and self.upper(rows, share) > amount:  # by rounding
            rows -= max(rows >> 50, 1)
        return rows

    def _ratio(self, rows: float, used: float) -> float:
        expected = self.expected(rows) - self.base
        return (used - self.base) / expected if expected > 0 else float("inf")


class Usage:
    """What the newest tasks of one kind used, and the lines through it, made when asked for and seldom."""

    __slots__ = ("_at", "_fits", "_points", "count", "refit")

    def __init__(self, points: Iterable[Sequence[float]] = (), count: int = 0) -> None:
        self._points: deque[Point] = deque((Point(int(one[0]), *one[1:]) for one in points), maxlen=KEPT)
        self.count = max(count, len(self._points))  #: of all tasks so far
        self._fits: dict[Resource, UsageFit | None] = {}
        self._at = 0.0  #: tasks at which fits are made anew
        self.refit = True  #: they will be, when next asked for

    def add(self, rows: int, measured: Measurement) -> bool:
        """Take in what a task used; True: fits are made anew."""
        cores = measured.cpu / measured.wall if measured.wall > 0 else 0.0
        self._points.append(
            Point(rows, measured.peak_memory, measured.bytes_written, measured.wall, cores, measured.baseline)
        )
        self.count += 1
        if self.count >= self._at:
            self.refit = True
        return self.refit

    def fit(self, resource: Resource = "memory") -> UsageFit | None:
        """Give the line of a resource; None where nothing was measured."""
        if self.refit:
            self._fits.clear()
            self.refit, self._at = False, min(self.count * REFIT, self.count + REFIT_LATEST)
        if resource not in self._fits:
            self._fits[resource] = self._line(resource)
        return self._fits[resource]

    @property
    def idle(self) -> float:
        """The most memory that a worker had with nothing running."""
        return max((one.idle for one in self._points), default=0.0)

    @property
    def rows(self) -> int:
        """Rows of the largest task that is kept."""
        return max((one.rows for one in self._points), default=0)

    def most(self, resource: Resource = "memory") -> float:
        place = Point._fields.index(resource)
        return max((one[place] for one in self._points), default=0.0)

    def plain(self) -> dict[str, object]:
        """Give all that is known as numbers and lists; ``from_plain`` makes it again."""
        return {"count": self.count, "points": [list(one) for one in self._points]}

    @classmethod
    def from_plain(cls, data: dict[str, object]) -> Usage:
        return cls(data["points"], data["count"])  # type: ignore[arg-type]

    def _line(self, resource: Resource) -> UsageFit | None:
        place = Point._fields.index(resource)
        points = list(self._points)
        if resource == "memory":
            points = [one for one in points if one.memory > 0]
        if not points:
            return None
        idle = (
            min(median(one.idle for one in points), min(one.memory for one in points)) if resource == "memory" else 0.0
        )
        pairs = sorted((float(one.rows), float(one[place])) for one in points)
        fixed, per_row = fit_line(pairs, idle)
        if not fixed and not per_row:  # most used nothing: those that did are all there is to go by
            fixed = _quantile(sorted(used for _, used in pairs), SHARE)
        base = idle * (1 - IDLE_NOISE)
        scales = [(used - base, fixed + per_row * rows - base) for rows, used in pairs]
        return UsageFit(fixed, per_row, base, tuple(sorted(above / scale for above, scale in scales if scale > 0)))


def fit_line(points: Sequence[tuple[float, float]], least: float = 0.0) -> tuple[float, float]:
    """Fit (fixed, per row) to sorted points; the fixed part is at least ``least``, and no row takes less than nothing.

    Tasks of one size cannot tell the two apart: then all above the least is the rows'.
    """
    count = len(points)
    step = count // 2 if count > ALL_PAIRS else 0
    pairs = (
        [(points[i], points[i + step]) for i in range(count - step)]
        if step
        else [(points[i], points[j]) for i in range(count) for j in range(i + 1, count)]
    )
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] - a[0] > APART * b[0]]
    if len(slopes) >= LEAST_PAIRS:
        per_row = max(median(slopes), 0.0)
        fixed = median(used - per_row * rows for rows, used in points)
        if fixed >= least:
            return fixed, per_row
    with_rows = [(used - least) / rows for rows, used in points if rows]
    if not with_rows:
        return max(median(used for _, used in points), least), 0.0
    return least, max(median(with_rows), 0.0)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Give what the next value keeps to with a probability; where there are too few to tell, more than the largest.

    By so much more as that is beyond the middle.
    """
    count = len(ordered)
    if not count:
        return 1.0
    place = ceil(share * (count + 1))
    return ordered[max(place, 1) - 1] if place <= count else 2 * ordered[-1] - ordered[count // 2]
