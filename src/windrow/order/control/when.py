"""When to think about the order again, and which of the past still counts then.

The period doubles after two checkpoints that changed nothing and halves after two that changed something (A. Pereira
and A. Proença, "HEP-Frame: Improving the efficiency of pipelined data transformation & filtering for scientific analyses",
sec. 3). Time is what tasks took, added up: an argument, not a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.core.records import StepCost

if TYPE_CHECKING:
    from windrow.core.records import Window

#: Windows that are looked at: more would tell little news, take their time at every decision, and outlive a change.
MOST_WINDOWS = 32
#: A step whose newest calls cost this many times more or less per row than the earlier ones has changed.
CHANGED = 1.5


@dataclass(slots=True)
class Checkpoints:
    """The next time to think, in seconds of work."""

    period_s: float
    shortest_s: float = 0.0
    next_s: float = 0.0
    _quiet: int = 0
    _busy: int = 0

    def due(self, spent_s: float) -> bool:
        """Say whether it is time."""
        return spent_s >= self.next_s

    def wait(self, spent_s: float) -> None:
        """No plan was made: look again after the same time."""
        self.next_s = spent_s + self.period_s

    def passed(self, spent_s: float, *, changed: bool) -> None:
        """Note how a checkpoint ended, and set the next."""
        self._busy = self._busy + 1 if changed else 0
        self._quiet = 0 if changed else self._quiet + 1
        if self._quiet == 2:
            self.period_s, self._quiet = self.period_s * 2, 0
        elif self._busy == 2:
            self.period_s, self._busy = max(self.period_s / 2, self.shortest_s), 0
        self.next_s = spent_s + self.period_s


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
