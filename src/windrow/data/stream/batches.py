"""Batches of a stream, in whatever form they come, as tables of named arrays of one shape.

The first batch says which columns there are and of what type; every later one has to agree, because
the steps were bound to the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.data.arrays import ArrayTable
from windrow.errors import DataError, SpecError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


def table_of(batch: Any, where: str, columns: Sequence[str] | None = None) -> ArrayTable:
    """Make a table of a batch; ``columns`` are the only ones that are taken, if it says so."""
    arrays = _named_arrays(batch, where)
    if columns is not None:
        names = list(arrays) if isinstance(arrays, Mapping) else list(arrays.fields)
        for name in columns:
            if name not in names:
                raise DataError(f"{where} has no column {name!r}{nearest(name, names)}")
        arrays = {name: arrays[name] for name in columns}
    try:
        table = ArrayTable(arrays, where)
        return ArrayTable({name: _own(column) for name, column in table.columns.items()}, where)
    except SpecError as error:
        raise DataError(error.message) from error


def _named_arrays(batch: Any, where: str) -> Any:
    if isinstance(batch, Mapping):
        return batch
    if isinstance(batch, np.ndarray) and batch.dtype.names:
        return {name: batch[name] for name in batch.dtype.names}
    if isinstance(batch, ak.Array) and batch.fields:
        return batch
    if hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__"):
        return _from_arrow(batch)
    raise DataError(
        f"{where} is {_said(batch)}; a batch is a mapping of arrays, an awkward array of records, or a record batch or "
        "table of Arrow"
    )


def _said(batch: Any) -> str:
    return f"a {type(batch).__name__} ({batch!r:.60})"


def _own(column: Any) -> Any:
    """Return a column in memory of its own: who fills the same memory again cannot know when this batch is done.

    Awkward and Arrow arrays may be views of such memory as well, and do not tell.
    """
    if isinstance(column, np.ndarray):
        safe = column.flags.owndata and not column.flags.writeable
        return column if safe else column.copy()
    return ak.copy(ak.to_packed(column))  # packed first: of a slice only what it shows


def _from_arrow(batch: Any) -> dict[str, Any]:
    import pyarrow as pa

    from windrow.data.formats.parquet import convert, find_leaves

    if isinstance(batch, pa.RecordBatch):
        table = pa.Table.from_batches([batch])
    else:
        table = batch if isinstance(batch, pa.Table) else pa.table(batch)
    leaves = find_leaves(table.schema, _InMemory())
    return {name: convert(leaf, table) for name, leaf in leaves.items()}


class _InMemory:
    """Stands for the stored columns of a file, whose paths nobody asks for in memory."""

    path = ""

    def column(self, index: int) -> _InMemory:  # noqa: ARG002 - all are alike
        return self


class Columns:
    """What the batches of a stream have in common."""

    def __init__(self, first: ArrayTable, where: str) -> None:
        self.where = where  #: the batch that decided
        self.kinds = {name: _kind(column) for name, column in first.columns.items()}
        for name, column in first.columns.items():
            if isinstance(column, ak.Array) and _is_unknown(column.type.content):
                raise DataError(
                    f"column {name!r} has no values in {where}, the first of the stream, so that its type is not known "
                    f"({self.kinds[name]}): begin with a batch that has some, or say the type, for instance with "
                    'ak.enforce_type(array, "var * float64")'
                )
        self.empty = packed(part(first, 0, 0))  #: no rows, of the right types
        self.infos = first.infos
        self.first_rows = first.rows

    def checked(self, table: ArrayTable, where: str) -> ArrayTable:
        """Return a later batch with the types of the first; raise where it has others."""
        if differing := sorted(self.kinds.keys() ^ table.columns.keys()):
            name = differing[0]
            has, lacks = (self.where, where) if name in self.kinds else (where, self.where)
            raise DataError(
                f"{has} has the column {name!r} and {lacks} has not: all batches of a stream have the same columns; "
                "name those you need with columns=[...]"
            )
        changed: dict[str, Any] = {}
        for name, wanted in self.kinds.items():
            column = table.columns[name]
            found = _kind(column)
            if found != wanted:
                changed[name] = self._converted(name, column, found, where)
        return ArrayTable({**table.columns, **changed}, where) if changed else table

    def _converted(self, name: str, column: Any, found: str, where: str) -> Any:
        """Convert what only says less about its type: no missing values among it, or no values at all."""
        wanted = self.kinds[name]
        if wanted == f"?{found}" or "unknown" in found:
            same = ak.concatenate([self.empty.columns[name], column])
            if _kind(same) == wanted:
                return same
        raise DataError(
            f"column {name!r} is of type {found} in {where} and of type {wanted} in {self.where}: it has one type in all "
            "batches of a stream"
        )


def _kind(column: Any) -> str:
    return _name(column.dtype) if isinstance(column, np.ndarray) else str(column.type.content)


def _is_unknown(kind: Any) -> bool:
    inside = getattr(kind, "contents", None) or [getattr(kind, "content", None)]
    return isinstance(kind, ak.types.UnknownType) or any(_is_unknown(one) for one in inside if one is not None)


@lru_cache(maxsize=64)  # numpy takes 20 us to write one down, for each column of each batch
def _name(dtype: np.dtype[Any]) -> str:
    return str(dtype.newbyteorder("="))


def part(table: ArrayTable, start: int, stop: int) -> ArrayTable:
    return ArrayTable({n: c[start:stop] for n, c in table.columns.items()}, "a part of a batch")


def packed(table: ArrayTable) -> ArrayTable:
    """Return the same rows in memory of their own, so that those around them can go."""
    columns = {
        name: column.copy() if isinstance(column, np.ndarray) else ak.to_packed(column)
        for name, column in table.columns.items()
    }
    return ArrayTable(columns, "a part of a batch")


def size_of(tables: Iterable[ArrayTable]) -> int:
    return sum(int(column.nbytes) for table in tables for column in table.columns.values())
