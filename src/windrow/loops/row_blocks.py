"""Blocks of rows of an array: cut without copying, and what a function gave for each of them put together again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from windrow.errors import StepResultError, UsageError


def count_rows(array: Any) -> int:
    """Count the rows of something that blocks can be cut from."""
    if _is_sparse(array) and array.format != "csr":
        raise UsageError(
            f"rows of a sparse matrix are cut from CSR; this one is {array.format.upper()}: give matrix.tocsr()"
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
    if _is_sparse(values[0]):
        return sys.modules["scipy.sparse"].vstack(values, format="csr")
    if _is_awkward(values[0]):
        return sys.modules["awkward"].concatenate(values)
    return np.concatenate(values)


def _rows_of(value: Any) -> int | None:
    if _is_sparse(value):
        return int(value.shape[0])
    has_rows = _is_awkward(value) or (isinstance(value, np.ndarray) and value.ndim)
    return len(value) if has_rows else None


def _is_sparse(array: Any) -> bool:
    return "scipy.sparse" in sys.modules and sys.modules["scipy.sparse"].issparse(array)


def _is_awkward(array: Any) -> bool:
    return "awkward" in sys.modules and isinstance(array, sys.modules["awkward"].Array)
