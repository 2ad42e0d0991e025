"""Chunks that are small until the first decision about the order: those that run before it gain nothing from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.shape.costs import rows_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.policies import ShapePolicy, ShapeRequest


class CappedUntilReordered:
    """A shape decision whose tasks take at most so long until the order of their category was decided."""

    def __init__(self, shape: ShapePolicy, most_s: Callable[[str], float | None], *, one_unit: bool = False) -> None:
        self._shape = shape
        self._one_unit = one_unit  #: tasks have one unit while nothing is known of their cost
        self._most_s = most_s  #: category -> seconds of a task at most; None: no limit

    def rows(self, request: ShapeRequest) -> int:
        rows = self._shape.rows(request)
        most = self._most_s(request.category)
        costs = request.costs
        if most is None:
            return rows
        if not costs.rows_in:
            # What it teaches comes too late for all that is under way by then.
            return min(rows, request.unit) if self._one_unit else rows
        return max(int(min(rows, rows_within(request, costs, most))), 1 if request.parts else request.unit)

    def window(self, task_s: float | None) -> int:
        return self._shape.window(task_s)
