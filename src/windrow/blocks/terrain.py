"""What of a program an order can matter for, as plain facts: steps, what they read and how much of it, lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.blocks.lookahead import needed_columns
from windrow.core.records import StepFacts, Terrain

if TYPE_CHECKING:
    from windrow.blocks.program import BoundStep, Program
    from windrow.data.base import FileInfo

__all__ = ["terrain"]


def terrain(program: Program, info: FileInfo, *, in_memory: bool = False) -> Terrain:
    """Describe a program; the bytes are those of the file at hand, or none for arrays in memory."""
    return Terrain(
        steps=tuple(_facts(program, step, info, in_memory) for step in program.steps.values()),
        lanes=tuple(tuple(lane.cuts.items()) for lane in program.lanes),
    )


def _facts(program: Program, step: BoundStep, info: FileInfo, in_memory: bool) -> StepFacts:
    columns = needed_columns(program, step.name, step.arguments)
    if step.wants_rng:
        hidden = () if info.identity_column is None else (info.identity_column,)
        columns.extend(program.identity or hidden)

    def size(column: str) -> float:
        known = info.columns.get(column)
        return 0.0 if in_memory or known is None else known.stored_bytes / max(info.rows, 1)

    return StepFacts(
        name=step.name,
        kind=step.kind,
        lanes=step.lanes,
        columns=tuple((column, size(column)) for column in dict.fromkeys(columns)),
    )
