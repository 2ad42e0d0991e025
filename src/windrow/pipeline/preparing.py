"""Setting up a chunk ahead of its worker: the columns that are needed before the first cut can reject anything.

Those are needed for every row, whatever the cuts say. What later steps need is left to the worker, which reads it only where
rows are left - unless it comes over a slow link in the same request anyway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.calls import Caller, Meter
from windrow.blocks.chunk import Chunk, Stopped
from windrow.blocks.columns import ColumnStore
from windrow.blocks.selection import everything
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep, Program
    from windrow.core.records import Rows
    from windrow.data.base import Input, Reader

__all__ = ["PreparedColumns", "chunk_of", "first_steps", "read_ahead"]


@dataclass(slots=True)
class PreparedColumns:
    """Columns of one chunk, and what reading them took, by the step that needs them first."""

    columns: dict[str, Any] = field(default_factory=dict)
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    bytes_read: int = 0
    charges: dict[str, tuple[int, float]] = field(default_factory=dict)  #: step -> (bytes, seconds)
    memory: int = 0  #: bytes that the columns keep

    def hand_over(self, run: ChunkRun) -> None:
        """Give everything to an attempt that has not begun; nothing is left here."""
        run.store.adopt(self.columns)
        self.columns.clear()
        for name, (size, seconds) in self.charges.items():
            meter = run.meters.setdefault(name, Meter())
            meter.bytes_read += size
            meter.read_s += seconds


def chunk_of(source: Input, part: Rows, borders: tuple[int, ...], clusters: tuple[int, ...]) -> Chunk:
    """Describe the rows of a task as whole units of its input."""
    if not part.start < part.stop:
        raise InternalError(f"an empty chunk was launched: {part}")
    first = bisect_right(borders, part.start) - 1
    units = (part.start, *_inside(borders, part), part.stop)
    finer = tuple(sorted({*units, *_inside(clusters, part)}))
    return Chunk(source.index, source.label, first, units, finer)


def _inside(borders: tuple[int, ...], part: Rows) -> tuple[int, ...]:
    return borders[bisect_right(borders, part.start) : bisect_left(borders, part.stop)]


def first_steps(program: Program, order: tuple[str, ...]) -> list[BoundStep]:
    """Return the steps up to the first one that can reject rows."""
    steps = [program.steps[name] for name in program.needed(order)]
    cut = next((n for n, step in enumerate(steps) if step.kind == "cut"), len(steps))
    return steps[: cut + 1]


def read_ahead(
    program: Program, reader: Reader, chunk: Chunk, order: tuple[str, ...], stopping: Callable[[], bool]
) -> PreparedColumns:
    """Read what the first steps of a chunk need; over a slow link also what comes in the same request."""
    prepared = PreparedColumns()
    start = chunk.borders[0]
    rows = everything(chunk.borders[-1] - start)
    store = ColumnStore(reader, start, rows.length, np.asarray(chunk.clusters) - start)
    caller = Caller(program, store, lambda lanes: rows, order)  # noqa: ARG005 - nothing is rejected yet
    begin = reader.bytes_read
    try:
        for step in first_steps(program, order):
            if stopping():
                raise Stopped
            before, spent = reader.bytes_read, store.read_seconds
            caller.prepare(step.name, step.arguments, rows)
            read_s = store.read_seconds - spent
            prepared.charges[step.name] = (reader.bytes_read - before, read_s)
        prepared.columns = store.give_away()
        prepared.memory = sum(int(values.nbytes) for values in prepared.columns.values())
    finally:
        store.clear()
        prepared.bytes_read = reader.bytes_read - begin
        prepared.reads.extend(reader.reads)
        reader.reads.clear()
    return prepared
