"""Rows per block: the smallest size at which a step's fixed cost does not matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from windrow.shape.costs import enough_rows

if TYPE_CHECKING:
    from windrow.core.records import StepCost


StepKind = Literal["flat", "awkward"]

#: 16 Ki rows of a float64 column are 128 KiB: a handful of them fit the second-level cache.
SMALLEST_BLOCK = 1 << 14
#: The memory of a block is bounded; awkward steps reach their full speed at about a million rows.
MOST_BLOCK = 1 << 20

#: Before anything was measured: flat steps cost microseconds per call, awkward ones milliseconds.
UNMEASURED: dict[StepKind, int] = {"flat": 1 << 16, "awkward": 1 << 20}


def block_rows(kind: StepKind, cost: StepCost | None = None) -> int:
    """Give the smallest power of two of rows at which the step's fixed cost is under 5 %."""
    if cost is None or not cost.calls:
        return UNMEASURED[kind]
    enough = enough_rows(cost)
    rows = SMALLEST_BLOCK
    while rows < enough and rows < MOST_BLOCK:
        rows *= 2
    return rows
