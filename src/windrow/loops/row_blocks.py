"""Blocks of rows of an array: cut without copying, and what a function gave for each of them put together again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from windrow.errors import MergeError, StepResultError, UsageError


def count_rows(array: Any) -> int:
    """Count the rows of something that blocks can be cut from."""
    if _is_sparse(array) and array.format != "csr":
        raise UsageError(
            f"rows of a sparse matrix are cut from CSR; this one is {array.format.upper()}: give matrix.tocsr()"
        )
    if isinstance(array, np.ma.MaskedArray):  # its mask could not be shared with processes
        raise UsageError(
            "blocks are not cut from masked arrays: give array.filled(np.nan), or the data and the mask side by side"
        )
    rows = _rows_of(array)
    if rows is None:
        what = "an array without dimensions" if isinstance(array, np.ndarray) else type(array).__name__
        raise UsageError(f"blocks are cut from the rows of NumPy and awkward arrays and of CSR matrices, got {what}")
    return rows


def block(array: Any, start: int, stop: int) -> Any:
    """Cut a block of rows; those of a sparse matrix share its data."""
    if not _is_sparse(array):
        return array[start:stop]
    first, last = array.indptr[start], array.indptr[stop]
    parts = array.data[first:last], array.indices[first:last], array.indptr[start : stop + 1] - first
    made = type(array)((stop - start, array.shape[1]), dtype=array.dtype)
    made.data, made.indices, made.indptr = parts
    return made


def concatenate(name: str, made: Mapping[int, Any], last: int) -> Any:
    """Put together what a function gave for blocks, by their first rows and in their order."""
    for (start, value), stop in zip(made.items(), [*list(made)[1:], last], strict=True):
        rows = _rows_of(value)
        if rows != stop - start:
            what = f"{rows} rows" if rows is not None else f"{type(value).__name__} {value!r:.60}"
            raise StepResultError(
                f"{name} has to return a row for each row of its block, and gave {what} for {stop - start} rows (from {start} on); "
                "for one value of each block give reduce=, such as operator.add"
            )
    values = list(made.values())
    try:
        if _is_sparse(values[0]):
            return sys.modules["scipy.sparse"].vstack(values, format="csr")
        if _is_awkward(values[0]):
            return sys.modules["awkward"].concatenate(values)
        if any(isinstance(value, np.ma.MaskedArray) for value in values):
            return np.ma.concatenate(values)  # type: ignore[no-untyped-call]
        return np.concatenate(values)
    except (ValueError, TypeError) as error:
        raise StepResultError(f"{name} gave blocks that are no parts of one array: {error}") from error


def fold_values(name: str, fold: Callable[[Any, Any], Any], made: Mapping[int, Any]) -> Any:
    """Put together one value of each block, by their first rows and in their order."""
    values = iter(made.items())
    _, total = next(values)
    for start, value in values:
        try:
            total = fold(total, value)
        except Exception as error:
            raise MergeError(
                f"reduce= cannot put together what {name} gave for the rows before {start}, {total!r:.60}, and for those from there "
                f"on, {value!r:.60}: {type(error).__name__}: {error}"
            ) from error
    return total


def check_fold(fold: Any) -> None:
    if fold is not None and not callable(fold):
        raise UsageError(f"reduce= is a function of two values, such as operator.add; got {fold!r}")


def _rows_of(value: Any) -> int | None:
    if _is_sparse(value):
        return int(value.shape[0])
    has_rows = _is_awkward(value) or (isinstance(value, np.ndarray) and value.ndim)
    return len(value) if has_rows else None


def _is_sparse(array: Any) -> bool:
    return "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(array)


def _is_awkward(array: Any) -> bool:
    return "awkward" in sys.modules and isinstance(array, sys.modules["awkward"].Array)
