"""Which rows hold NaN: in a number, or anywhere in a list of numbers. Records are not looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from windrow.blocks.columns import ColumnStore
    from windrow.blocks.program import Argument
    from windrow.blocks.selection import Selection

__all__ = ["rows_reading_nan", "rows_with_nan"]


def rows_reading_nan(store: ColumnStore, arguments: Sequence[Argument], rows: Selection) -> NDArray[np.bool_] | None:
    """Return a mask of the rows with NaN in a column that a step reads; None if there are none."""
    found: NDArray[np.bool_] | None = None
    for argument in arguments:
        if argument.kind not in ("file", "made"):
            continue
        read = store.file if argument.kind == "file" else store.made
        mask = rows_with_nan(read(argument.source, rows))
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def rows_with_nan(values: Any) -> NDArray[np.bool_] | None:
    """Return a mask of the rows with NaN; None if there are none, which is nearly always and found by one sum."""
    if isinstance(values, ak.Array):
        # A field of records may not have been read, and looking at it would read it for nothing.
        if values.fields or not values.layout.is_all_materialized:
            return None
        numbers = ak.to_numpy(ak.flatten(values, axis=None))
        if not _any_nan(numbers):
            return None
        bad = np.isnan(values)
        while bad.ndim > 1:
            bad = ak.any(bad, axis=-1)
        mask: NDArray[np.bool_] = ak.to_numpy(ak.fill_none(bad, False))
        return mask
    if not isinstance(values, np.ndarray) or values.ndim != 1 or not _any_nan(values):
        return None
    return np.isnan(values)


def _any_nan(numbers: Any) -> bool:
    if numbers.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        # Infinities of both signs add up to NaN as well.
        return bool(np.isnan(numbers.sum())) and bool(np.isnan(numbers).any())
