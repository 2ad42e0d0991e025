"""Chunk sizes as coffea's Work Queue executor takes them, for comparison: a fit of events on memory and time, in powers of two.

"Dynamic Task Shaping for High Throughput Data Analysis Applications in High Energy Physics" (Tovar and others 2022,
doi:10.1109/IPDPS53621.2022.00041), section IV, with the details that coffea 0.7 has. Our own sizes are those of ``guided``, bounded by
what ``allocation`` learns of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.shape.guided import Queued

if TYPE_CHECKING:
    from windrow.core.policies import ShapeRequest


class TaskReport(NamedTuple):
    """What one task used."""

    rows: int
    seconds: float
    memory: float  #: megabytes


class Targets(NamedTuple):
    """What a task is to use; None: no matter."""

    seconds: float | None = None
    memory: float | None = None  #: megabytes


def next_chunk_size(base: int, targets: Targets, reports: Sequence[TaskReport]) -> int:
    """Give the rows of the next tasks, a power of two."""
    if not reports:
        return base
    found = []
    for target, used in (
        (targets.seconds, [one.seconds for one in reports]),
        (targets.memory, [one.memory for one in reports]),
    ):
        rows = _rows_for(target, used, [one.rows for one in reports]) if target else None
        if rows is not None:
            found.append(rows)
    size = min(found, default=float(base))
    return 1 << int(math.log2(size)) if size >= 1 else 1


def _rows_for(target: float, used: Sequence[float], rows: Sequence[int]) -> float | None:
    if len(rows) < 2 or used[0] < 0:
        return None
    per_unit = np.asarray(rows) / np.maximum(1, used)
    low, median = np.quantile(per_unit, [0.25, 0.5], method="nearest")
    kept = per_unit >= low
    x, y = np.asarray(used, dtype=float)[kept], np.asarray(rows, dtype=float)[kept]
    slope, intercept = float(median), 0.0
    spread = float(((x - x.mean()) ** 2).sum())
    if spread > 0:
        steep = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
        level = float(y.mean() - steep * x.mean())
        if steep >= 0 and level <= 0:  # else a negative time or memory for no rows
            slope, intercept = steep, level
    return slope * target + intercept or None


class CoffeaChunks(Queued):
    """The shape decision of coffea: the same for all rows, until a task reports what it used."""

    def __init__(self, base: int, targets: Targets) -> None:
        self.size = base
        self._base, self._targets = base, targets
        self._reports: dict[str, list[TaskReport]] = {}
        self._asked = 0

    def report(self, category: str, report: TaskReport) -> None:
        reports = self._reports.setdefault(category, [])
        reports.append(report)
        self.size = next_chunk_size(self._base, self._targets, reports)

    def rows(self, request: ShapeRequest) -> int:
        self._asked += 1
        size = max(self.size - self._asked % 2, 1)  # c and c - 1, so that the fit has more than one size
        return min(size, max(request.known, 1))
