"""When to think about the order again: more rarely while nothing changes, more often while something does.

The period doubles after two checkpoints that changed nothing and halves after two that changed something (A. Pereira
and A. Proença, "HEP-Frame: Improving the efficiency of pipelined data transformation & filtering for scientific analyses",
sec. 3). Time is what tasks took, added up: an argument, not a clock.
"""

from __future__ import annotations

from dataclasses import dataclass


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
        """Nobody has thought: look again after the same time."""
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
