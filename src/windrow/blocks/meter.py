"""What steps cost and drop in one chunk, as sums that add up over chunks."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from windrow.core.records import StepCost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.blocks.columns import ColumnStore

__all__ = ["Meter", "Stopwatch"]

#: What computes less than this share of its time waits for something of its own; the rest of others' time is theirs.
WAITS = 0.1


class Stopwatch:
    """Seconds that something takes, without reading: of the processor, unless it does little but wait.

    Other threads and programs make everything take longer, a step that drops no row as much as one that drops all: what
    they take is no cost of a step.
    """

    __slots__ = ("_computed", "_store", "_wall")

    def __init__(self, store: ColumnStore | None = None) -> None:
        self._store = store
        self._wall, self._computed = self._now()

    def _now(self) -> tuple[float, float]:
        store = self._store
        if store is None:
            return perf_counter(), thread_time()
        return perf_counter() - store.read_seconds, thread_time() - store.read_cpu_s

    def seconds(self) -> float:
        """Give the seconds since it was made."""
        wall, computed = self._now()
        wall, computed = max(wall - self._wall, 0.0), max(computed - self._computed, 0.0)
        return computed if computed > WAITS * wall else wall


class Meter:
    """Sums for one step: enough to fit its fixed and its per-row cost later."""

    __slots__ = ("bytes_read", "calls", "read_s", "rows_in", "rows_out", "rows_squared", "rows_wall", "wall")

    def __init__(self) -> None:
        self.calls = 0
        self.rows_in = 0
        self.rows_out = 0
        self.wall = 0.0
        self.rows_squared = 0.0
        self.rows_wall = 0.0
        self.bytes_read = 0
        self.read_s = 0.0

    def call(self, rows: int, seconds: float) -> None:
        """Count one call of the user's function."""
        self.calls += 1
        self.rows_in += rows
        self.wall += seconds
        self.rows_squared += float(rows) * rows
        self.rows_wall += rows * seconds

    @contextmanager
    def reading(self, store: ColumnStore) -> Iterator[None]:
        """Count what is read from the file meanwhile, wherever that happens, and how long it takes."""
        size, seconds = store.reader.bytes_read, store.read_seconds
        try:
            yield
        finally:
            self.bytes_read += store.reader.bytes_read - size
            self.read_s += store.read_seconds - seconds

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
            read_s=self.read_s,
        )
