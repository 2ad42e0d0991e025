"""What a source of rows is: inputs, what is known of an opened one, and a reader of it.

A reader belongs to one thread and holds one file handle. It reads columns of one contiguous range
in one request and counts the bytes it fetched. Nothing here knows of steps, lanes or schedules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np


#: Units larger than this are cut on a fixed grid, so that one unit never decides the memory of a run.
MAX_UNIT_ROWS = 262_144

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
        numbers; others awkward arrays. Callers must not write into them: readers may hand out memory they share.
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
