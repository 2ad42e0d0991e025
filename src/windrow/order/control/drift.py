"""Which of the past still counts: the newest windows, and the newest costs of a step that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.records import StepCost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.records import Window

#: Windows that are looked at: more would tell little news, take their time at every decision, and outlive a change.
MOST_WINDOWS = 32
#: A step whose newest calls cost this many times more or less per row than the earlier ones has changed.
CHANGED = 1.5


def recent_windows(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the newest windows; they come in the order in which they were taken."""
    return tuple(windows[-MOST_WINDOWS:])


def recent_cost(before: StepCost, total: StepCost) -> StepCost:
    """Return what calls since ``before`` cost if that has changed, else what all of them cost."""
    new = StepCost._make(b - a for a, b in zip(before, total, strict=True))
    if new.rows_in <= 0 or before.rows_in <= 0 or new.calls <= 0 or before.wall <= 0:
        return total
    ratio = (new.wall / new.rows_in) / (before.wall / before.rows_in)
    return new if not 1 / CHANGED < ratio < CHANGED else total
