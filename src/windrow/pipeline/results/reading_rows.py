"""Reading a few columns of given rows again from what a result was made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import DataError, MissingColumnError, WindrowError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from windrow.data.base import Source


#: Rows closer than this are read in one request: seeking costs more than reading a few thousand numbers.
GAP = 65_536


def read_rows(
    source: Source | None, index: int, columns: Sequence[str], rows: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Return flat columns of ascending rows of one input."""
    if source is None:
        raise DataError("what was read is not kept with this result")
    reader = source.open(index)
    label = source.inputs[index].label
    try:
        for column in columns:
            info = reader.info.columns.get(column)
            if info is None:
                hint = nearest(column, reader.info.columns)
                raise MissingColumnError(f"{label} has no column {column!r}{hint}", file=label)
            if info.kind != "flat":
                raise DataError(f"{label}: column {column!r} has no single number for each row")
        if not len(rows):
            return {c: np.empty(0, dtype=reader.info.columns[c].dtype) for c in columns}
        breaks = np.flatnonzero(np.diff(rows) > GAP) + 1
        parts: list[dict[str, Any]] = []
        for piece in np.split(rows, breaks):
            start, stop = int(piece[0]), int(piece[-1]) + 1
            if stop > reader.info.rows:
                raise DataError(f"{label} has {reader.info.rows} rows, and row {stop - 1} is asked for")
            values = reader.read(columns, start, stop)
            parts.append({c: np.asarray(values[c])[piece - start] for c in columns})
    except OSError as error:
        if isinstance(error, WindrowError):
            raise
        raise DataError(f"{label} cannot be read ({error})", file=label) from error
    finally:
        reader.close()
    return {column: np.concatenate([part[column] for part in parts]) for column in columns}
