"""What steps cost and drop in one chunk, as sums that add up over chunks."""

from __future__ import annotations

from windrow.core.records import StepCost

__all__ = ["Meter"]


class Meter:
    """Sums for one step: enough to fit its fixed and its per-row cost later."""

    __slots__ = ("bytes_read", "calls", "rows_in", "rows_out", "rows_squared", "rows_wall", "wall")

    def __init__(self) -> None:
        self.calls = 0
        self.rows_in = 0
        self.rows_out = 0
        self.wall = 0.0
        self.rows_squared = 0.0
        self.rows_wall = 0.0
        self.bytes_read = 0

    def call(self, rows: int, seconds: float) -> None:
        """Count one call of the user's function."""
        self.calls += 1
        self.rows_in += rows
        self.wall += seconds
        self.rows_squared += float(rows) * rows
        self.rows_wall += rows * seconds

    def cost(self) -> StepCost:
        """Return the sums as a record."""
        return StepCost(
            calls=self.calls,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            wall=self.wall,
            rows_squared=self.rows_squared,
            rows_wall=self.rows_wall,
            bytes_read=self.bytes_read,
        )
