"""Answers of steps, whatever their kind: checked for so many rows, joined from blocks, taken for fewer rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.columns import concatenate, take
from windrow.blocks.results import UpDown, Verdict, check_column, check_cut, check_weight

if TYPE_CHECKING:
    from windrow.blocks.program import BoundStep
    from windrow.blocks.selection import Selection

__all__ = ["checked", "fewer_rows", "joined"]


def checked(step: BoundStep, value: Any, rows: int) -> Any:
    """Check what a step returned for so many rows."""
    if step.kind == "cut":
        return check_cut(step.name, value, rows)
    if step.kind == "weight":
        return check_weight(step.name, value, rows)
    return check_column(step.name, value, rows)


def joined(parts: list[Any]) -> Any:
    """Join the checked answers of several blocks."""
    if isinstance(parts[0], Verdict):
        missing = None
        if any(part.undefined is not None for part in parts):
            missing = np.concatenate(
                [np.zeros(len(p.passed), bool) if p.undefined is None else p.undefined for p in parts]
            )
        return Verdict(np.concatenate([part.passed for part in parts]), missing)
    if any(isinstance(part, UpDown) for part in parts):
        # A block without variations has the nominal for all three.
        whole = [part if isinstance(part, UpDown) else UpDown(part, part, part) for part in parts]
        return UpDown(*(np.concatenate(side) for side in zip(*(p.parts for p in whole), strict=True)))
    return concatenate(parts)


def fewer_rows(value: Any, home: Selection, rows: Selection) -> Any:
    """Take an answer that was given for the rows of ``home`` for those of ``rows``, a subset."""
    where = rows.within(home)
    if where is None:
        return value
    if isinstance(value, Verdict):
        undefined = None if value.undefined is None else value.undefined[where]
        # Where no row is left without an answer, that is said as if nobody had ever been.
        some = undefined is not None and undefined.any()
        return Verdict(value.passed[where], undefined if some else None)
    if isinstance(value, UpDown):
        return UpDown(*(take(part, where) for part in value.parts))
    return take(value, where)
