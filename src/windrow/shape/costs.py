"""Affine costs: ``fixed + per_row * rows`` seconds, least squares from sums over calls; and the rows per block they ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from windrow.core.records import CostSums

if TYPE_CHECKING:
    from windrow.core.policies import ShapeRequest
    from windrow.core.records import StepCost


#: Calls are made so large that their fixed cost stays under this share of their time.
FIXED_SHARE = 0.05

#: Tasks whose sizes vary by less than this, the square of their deviation over the mean, cannot tell calls from chance: a
#: third, where times vary by a tenth.
ALIKE = 0.1

StepKind = Literal["flat", "awkward"]

#: 16 Ki rows of a float64 column are 128 KiB: a handful of them fit the second-level cache.
SMALLEST_BLOCK = 1 << 14
#: Rows that take long have much in memory, so their blocks are smaller: a call takes at least so long, which is hundreds of times
#: what calling costs. (Rows of 20 KB each: blocks of 500 took half the time of blocks of 16 Ki, and a thirtieth of the memory.)
LEAST_S = 0.008
#: The memory of a block is bounded; awkward steps reach their full speed at about a million rows.
MOST_BLOCK = 1 << 20

#: Before anything was measured: flat steps cost microseconds per call, awkward ones milliseconds.
UNMEASURED: dict[StepKind, int] = {"flat": 1 << 16, "awkward": 1 << 20}


def fit(cost: StepCost | CostSums) -> tuple[float, float]:
    """Fit (fixed seconds per call, seconds per row); neither is negative.

    Calls of one size cannot tell the two apart: then all of it is cost per row.
    """
    calls, rows, wall = cost.calls, cost.rows_in, cost.wall
    if not calls:
        return 0.0, 0.0
    if not rows:
        return wall / calls, 0.0
    spread = calls * cost.rows_squared - float(rows) * rows
    # Rounding of the sums leaves a spread of about 1e-16 of its terms where there is none.
    if spread <= 1e-9 * calls * cost.rows_squared:
        return 0.0, wall / rows
    per_row = (calls * cost.rows_wall - rows * wall) / spread
    if per_row <= 0:
        return wall / calls, 0.0
    fixed = (wall - per_row * rows) / calls
    if fixed <= 0:
        # The best line through the origin.
        return 0.0, cost.rows_wall / cost.rows_squared
    return fixed, per_row


def are_alike(costs: StepCost | CostSums) -> bool:
    """Say whether tasks were of about one size, so that what they take whatever their rows cannot be told."""
    return costs.calls * costs.rows_squared < (1 + ALIKE) * costs.rows_in**2


def with_first(costs: StepCost | CostSums, cold: StepCost | CostSums) -> StepCost:
    """Add the first tasks of workers to the others where these were of one size; sums that are no ``CostSums`` have them already."""
    if not isinstance(costs, CostSums):
        return costs
    first = cold.record() if isinstance(cold, CostSums) else cold
    return costs.record().merge(first) if are_alike(costs) else costs.record()


def rows_within(request: ShapeRequest, costs: StepCost | CostSums, seconds: float, calls: float = 0.5) -> float:
    """Give the rows of a task that takes so long; of a part of a unit, so many that calls take at most such a share of it."""
    if not request.parts:
        return seconds * costs.rows_in / max(costs.wall, 1e-9)
    fixed, per_row = fit(costs)
    if are_alike(costs):
        fixed, per_row = 0.0, costs.wall / costs.rows_in
    if not per_row:
        return float("inf")
    return max(max(seconds - fixed, fixed) / per_row, _least_rows(request.steps) * (1 / calls - 1))


def rows_worth(costs: StepCost | CostSums, share: float, most_s: float) -> float:
    """Give the rows of a task of whose time at most such a share goes into what it takes whatever its rows: ``most_s`` at most.

    Tasks of one size do not tell that: then twice as many rows, so that there is another one. A line through tasks of inputs
    whose rows differ in cost may put it anywhere; no task was shorter than it.
    """
    if are_alike(costs):
        return 2 * costs.rows_in / costs.calls
    fixed = min(fit(costs)[0], most_s)
    per_row = (costs.wall - fixed * costs.calls) / costs.rows_in
    return fixed * (1 / share - 1) / per_row if per_row > 0 else 0.0


def _least_rows(steps: Iterable[tuple[str, StepCost]]) -> float:
    """Give the rows of a task of which half of the steps' time goes into rows, and half into calls.

    By what was measured of the steps alone: a task's own time has that of waiting for a processor in it.
    """
    rows, fixed, rows_s = 0, 0.0, 0.0
    for _, cost in steps:
        call_s, row_s = fit(cost)
        rows, fixed, rows_s = max(rows, cost.rows_in), fixed + call_s, rows_s + row_s * cost.rows_in
    if not fixed or not rows:
        return 0.0
    return fixed * rows / rows_s if rows_s > 0 else float("inf")


def enough_rows(cost: StepCost | CostSums) -> float:
    """Give the rows per call at which the fixed cost is ``FIXED_SHARE`` of the per-row cost."""
    fixed, per_row = fit(cost)
    if not fixed:
        return 0.0
    share = FIXED_SHARE * per_row  # 0 also where the cost per row is next to nothing
    return fixed / share if share else float("inf")


def block_rows(kind: StepKind, cost: StepCost | None = None) -> int:
    """Give the smallest power of two of rows at which the step's fixed cost is under 5 %, and a call is no moment."""
    if cost is None or not cost.calls:
        return UNMEASURED[kind]
    enough, row_s = enough_rows(cost), fit(cost)[1]
    rows = SMALLEST_BLOCK
    while rows // 2 >= max(enough, 1) and rows // 2 * row_s >= LEAST_S:
        rows //= 2
    while rows < enough and rows < MOST_BLOCK:
        rows *= 2
    return rows
