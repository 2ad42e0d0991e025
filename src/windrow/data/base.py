"""What a source of rows is: inputs, what is known of an opened one, and a reader of it.

A reader belongs to one thread and holds one file handle. It reads columns of one contiguous range
in one request and counts the bytes it fetched. Nothing here knows of steps, lanes or schedules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

from windrow.errors import SpecError

if TYPE_CHECKING:
    import numpy as np


#: Units larger than this are cut on a fixed grid, so that one unit never decides the memory of a run.
MAX_UNIT_ROWS = 262_144

#: Smaller file units are joined up to this many rows: filling a histogram has a fixed cost of some 0.2 ms, for every
#: output, region and variation. Units of 200 K rows instead of 100 K made a selection with six of them 9 % faster.
MIN_UNIT_ROWS = 131_072

#: Columns may be left out for smaller pieces than outputs are evaluated on, as small as this: below
#: it a request costs as much as what it saves.
MIN_READ_ROWS = 4096

#: Hidden column of a skim: the identity its rows had where they come from.
IDENTITY_COLUMN = "windrow_identity"

Kind = Literal["flat", "jagged", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One file (or array) of one dataset; nothing has been opened yet."""

    index: int
    dataset: str
    label: str  #: what a person calls it: the path, or the dataset's name for arrays
    location: Any = field(compare=False, repr=False)  #: what the format's reader opens
    tree: str | None = None  #: None: the only tree-like object in the file
    format: Literal["root", "parquet", "arrays"]
    rows: int | None = None  #: known without opening (arrays, preprocessed filesets)
    steps: tuple[tuple[int, int], ...] | None = None  #: row ranges to restrict to (coffea's "steps")
    left_out: tuple[tuple[int, int], ...] = ()  #: row ranges that are passed over within their units
    uuid: str | None = None  #: what the file must identify itself as (preprocessed filesets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """What a file says about one of its columns."""

    name: str
    kind: Kind  #: flat: one number per row; jagged: one list of numbers per row; other: anything else
    dtype: np.dtype[Any] | None  #: of the numbers; None for "other"
    counter: str | None = None  #: column holding the list lengths, where the file has one
    stored_bytes: int = 0  #: compressed size in the whole file, 0 where unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What is known of an input once it was opened."""

    rows: int
    borders: tuple[int, ...]  #: canonical unit borders, 0 and rows included; (0,) for an empty file
    clusters: tuple[int, ...] = ()  #: finer borders within them, at which columns can be read apart
    columns: Mapping[str, ColumnInfo]
    identity: str  #: file uuid, footer digest or dataset name: with the row number it identifies a row
    collections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: prefix -> columns "prefix_field" (or "prefix.field") that together are records
    identity_column: str | None = None  #: hidden column with the identity of each row (skims)
    made: frozenset[str] = frozenset()  #: columns that steps made when the file was written (skims)


class Reader(Protocol):
    """One open input: one handle, one thread."""

    @property
    def info(self) -> FileInfo:
        """What the file says about itself."""

    @property
    def bytes_read(self) -> int:
        """Stored (compressed) bytes fetched so far."""

    @property
    def reads(self) -> list[tuple[str, int, int]]:
        """(column, start, stop) of every read so far."""

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        """Read ``columns`` of rows [start, stop) in one request.

        Flat columns are native, contiguous NumPy arrays; jagged ones awkward arrays of offsets from 0 over native
        numbers; columns of another kind awkward arrays. Callers must not write into them: readers may hand out memory they share.
        """

    def close(self) -> None:
        """Release the handle."""


class Source(Protocol):
    """A set of inputs with dataset names and metadata, opened one by one when work reaches them."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The files and arrays, in fileset order."""

    @property
    def datasets(self) -> Mapping[str, Mapping[str, Any]]:
        """Metadata per dataset, in fileset order."""

    def open(self, index: int) -> Reader:
        """Open one input for one thread."""


# -- canonical units: the fixed cuts of a file on which outputs are evaluated ------------------------
#
# Pure functions of what the file says about itself. The choice never depends on the columns that are read, on workers or on
# chunks, because bit-identical outputs rest on it.


def unit_borders(
    rows: int,
    file_borders: Iterable[int] | None = None,
    *,
    grid: int | None = None,
    smallest: int = MIN_UNIT_ROWS,
    largest: int = MAX_UNIT_ROWS,
) -> tuple[int, ...]:
    """Return the unit borders of a file of ``rows`` rows, 0 and ``rows`` included; (0,) for none.

    ``file_borders`` are the file's own (clusters, row groups); None means it has none. ``grid``
    replaces everything by a fixed grid of that many rows.
    """
    if rows == 0:
        return (0,)
    if grid is not None:
        if grid < 1:
            raise SpecError(f"grid is the number of rows of a unit and at least 1, not {grid}")
        return (*range(0, rows, grid), rows)
    inner = {b for b in file_borders or () if 0 < b < rows}
    borders = [0]
    for start, stop in pairwise(_joined([0, *sorted(inner), rows], smallest, largest)):
        borders.extend(range(start + largest, stop, largest))
        borders.append(stop)
    return tuple(borders)


def read_borders(rows: int, file_borders: Iterable[int] | None = None, *, grid: int | None = None) -> tuple[int, ...]:
    """Return the borders of what columns are read or left out for: units or finer."""
    return unit_borders(rows, file_borders, grid=grid, smallest=MIN_READ_ROWS)


def _joined(borders: list[int], smallest: int, largest: int) -> list[int]:
    """Drop borders until each unit has ``smallest`` rows, without making one above ``largest``."""
    kept = [borders[0]]
    for border, following in pairwise(borders[1:]):
        if border - kept[-1] >= smallest or following - kept[-1] > largest:
            kept.append(border)
    return [*kept, borders[-1]]


def common_borders(columns: Iterable[Sequence[int]]) -> tuple[int, ...]:
    common: set[int] | None = None
    seen: set[tuple[int, ...]] = set()
    for column in columns:
        # Most branches of a file are cut alike: each distinct cut is looked at once.
        key = tuple(column)
        if key not in seen:
            seen.add(key)
            common = set(key) if common is None else common.intersection(key)
    return tuple(sorted(common or ()))


def cluster_borders(
    rows: int, range_ends: Sequence[int], range_sizes: Sequence[int], auto_flush: int
) -> tuple[int, ...]:
    """Return the cluster borders a TTree records, or () if it records none.

    ``range_ends[i]`` is the last row of the i-th range of clusters of ``range_sizes[i]`` rows; rows after the last
    range have clusters of ``auto_flush`` rows. A size that is not positive means the range is not cut further.
    """
    if not len(range_ends) and auto_flush <= 0:
        return ()
    borders = {0, rows}
    start = 0
    for last, size in zip(range_ends, range_sizes, strict=True):
        stop = min(int(last) + 1, rows)
        borders.update(range(start, stop, int(size)) if size > 0 else (start,))
        start = stop
    borders.update(range(start, rows, auto_flush) if auto_flush > 0 else (start,))
    return tuple(sorted(borders))


def units_within(borders: Sequence[int], steps: Iterable[tuple[int, int]] | None = None) -> tuple[tuple[int, int], ...]:
    """Return the units as (start, stop), restricted to the row ranges ``steps`` where given.

    Steps that cut through a unit leave its parts; empty parts are left out.
    """
    units = pairwise(borders)
    if steps is None:
        return tuple(units)
    ordered = sorted(steps)
    parts = [
        (max(start, first), min(stop, last))
        for start, stop in units
        for first, last in ordered
        if first < stop and start < last
    ]
    return tuple((start, stop) for start, stop in parts if start < stop)
