"""Which rows each region has, kept with a result, and columns of such rows read again from the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import DataError, MissingColumnError, WindrowError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from windrow.blocks.selection import RowSet
    from windrow.data.base import Source
    from windrow.pipeline.results.ledger import Ledger

#: Rows read at once: a few numbers each.
PIECE = 1_000_000
#: Rows closer than this are read in one request: seeking costs more than reading a few thousand numbers.
GAP = 65_536


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One input whose rows are kept."""

    index: int  #: of the input in the result's source
    label: str
    dataset: str
    identity: str  #: file uuid, footer digest or dataset name


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of every region, by file."""

    files: tuple[KeptFile, ...]
    regions: tuple[str, ...]
    #: (region, position in ``files``) -> rows of its chunks, in ascending order
    sets: Mapping[tuple[str, int], tuple[RowSet, ...]]

    def rows(self, region: str, file: int) -> NDArray[np.int64]:
        """Return the rows of a region in the file at this position of ``files``, in ascending order."""
        parts = [part.rows() for part in self.sets.get((region, file), ())]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def done_rows(ledger: Ledger, dataset: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Give the rows of a dataset that were processed, piece by piece, each with its file."""
    for entry in ledger.entries:
        if entry.dataset == dataset and entry.state == "done":
            for start in range(entry.start, entry.stop or 0, PIECE):
                yield entry.file, np.arange(start, min(start + PIECE, entry.stop or 0))


def read_rows(
    source: Source | None, index: int, columns: Sequence[str], rows: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
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
        if rows[-1] >= reader.info.rows:
            raise DataError(f"{label} has {reader.info.rows} rows, and row {rows[-1]} is asked for")
        parts: list[dict[str, Any]] = []
        for piece in np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1):
            start = int(piece[0])
            values = reader.read(columns, start, int(piece[-1]) + 1)
            parts.append({c: np.asarray(values[c])[piece - start] for c in columns})
    except OSError as error:
        if isinstance(error, WindrowError):
            raise
        raise DataError(f"{label} cannot be read ({error})", file=label) from error
    finally:
        reader.close()
    return {column: np.concatenate([part[column] for part in parts]) for column in columns}
