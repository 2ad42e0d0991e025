"""Parquet files through pyarrow.

Structs and lists of structs are exposed leaf by leaf (``Muon.pt``), and only the leaves asked for
are read. A column with missing values arrives as an awkward option array.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.data.arrays import concatenate, lists_of, native_lists
from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.formats.reader import FileReader, describe_file, translated
from windrow.data.paths import is_remote
from windrow.data.remote.file import RemoteFile, RemoteHandle
from windrow.data.skim.record import record_of_parquet

if TYPE_CHECKING:
    from windrow.data.base import Input


#: Above this many (column, row group) pairs the stored sizes are taken from the first row group: each costs 2 us.
_EXACT_SIZES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetLayout:
    """All that is known of a file without its data; shared between threads, never changed."""

    info: FileInfo
    leaves: Mapping[str, Leaf]
    groups: tuple[int, ...]  #: first row of each row group, and the end
    metadata: Any  #: pyarrow's own, so that a second reader need not parse it
    size: int  #: bytes in the file


class ParquetReader(FileReader):
    """One open Parquet file."""

    FORMAT = "Parquet"

    def __init__(self, source: Input, grid: int | None = None, layout: ParquetLayout | None = None) -> None:
        location = str(source.location)
        remote = RemoteFile(location, layout.size if layout else None) if is_remote(location) else None
        super().__init__(source.label, remote)
        #: column -> (row group, values) of a row group that the last read used in part
        self._kept: dict[str, tuple[int, Any]] = {}
        with translated(self._label, self.FORMAT):
            self._file = RemoteHandle(self._remote) if self._remote else pa.OSFile(location, "rb")
            try:
                known = layout.metadata if layout else None
                self._parquet = pq.ParquetFile(self._file, metadata=known, pre_buffer=False)
                self.layout = layout or _layout(self._file, self._parquet, grid)
            except BaseException:
                self._file.close()
                raise
        self.info = self.layout.info

    def _read_rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        if start == stop and self.info.rows:
            return self._nothing(names)
        groups = self.layout.groups
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for number in self._groups(start, stop):
            low = max(start - groups[number], 0)
            high = min(stop, groups[number + 1]) - groups[number]
            group = self._read_group(number, names, keep=stop < groups[number + 1])
            for name in names:
                parts[name].append(group[name][low:high])
        return {name: joined(self.layout.leaves[name], parts[name]) for name in names}

    def _groups(self, start: int, stop: int) -> Iterator[int]:
        groups = self.layout.groups
        number = max(bisect_right(groups, start) - 1, 0)
        while number < len(groups) - 1 and groups[number] < stop:
            yield number
            number += 1

    def _locate(self, name: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the bytes of the column chunks that reading these rows would fetch."""
        kept = self._kept.get(name)
        for number in self._groups(start, stop):
            if kept is None or kept[0] != number:
                for offset, size in self._chunks(number, name):
                    yield offset, offset + size

    def _chunks(self, number: int, name: str) -> Iterator[tuple[int, int]]:
        group = self.layout.metadata.row_group(number)
        for index in self.layout.leaves[name].indices:
            chunk = group.column(index)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            yield first, chunk.total_compressed_size

    def _read_group(self, number: int, names: Sequence[str], *, keep: bool) -> dict[str, Any]:
        """Read a whole row group, the smallest thing Parquet decodes, in one request."""
        out: dict[str, Any] = {}
        for name in names:
            kept = self._kept.get(name)
            if kept is not None and kept[0] == number:
                out[name] = kept[1]
        missing = [name for name in names if name not in out]
        if missing:
            paths = [path for name in missing for path in self.layout.leaves[name].paths]
            table = self._parquet.read_row_group(number, columns=paths, use_threads=False)
            self._bytes += sum(size for name in missing for _, size in self._chunks(number, name))
            for name in missing:
                out[name] = convert(self.layout.leaves[name], table)
        for name in names:
            if keep:
                self._kept[name] = (number, out[name])
            else:
                self._kept.pop(name, None)
        return out

    def _nothing(self, names: Sequence[str]) -> dict[str, Any]:
        """Return no rows of the right type; only types that are not numbers take a look at data."""
        odd = [name for name in names if self.layout.leaves[name].kind == "other"]
        first = self._read_rows(odd, 0, 1) if odd else {}
        leaves = self.layout.leaves
        return {name: first[name][:0] if name in first else empty(leaves[name]) for name in names}

    def close(self) -> None:
        self._kept.clear()
        self._parquet.close()
        self._file.close()


def _layout(file: Any, parquet: Any, grid: int | None) -> ParquetLayout:
    metadata = parquet.metadata
    groups = [0]
    for number in range(metadata.num_row_groups):
        groups.append(groups[-1] + metadata.row_group(number).num_rows)
    leaves = find_leaves(parquet.schema_arrow, parquet.schema)
    sizes = _stored_bytes(metadata)
    for name, leaf in leaves.items():
        if _has_nulls(leaf, metadata):
            leaves[name] = replace(leaf, kind="other", dtype=None)
    columns = {
        name: ColumnInfo(
            name=name, kind=leaf.kind, dtype=leaf.dtype, stored_bytes=sum(sizes[index] for index in leaf.indices)
        )
        for name, leaf in leaves.items()
    }
    record = record_of_parquet(metadata.metadata)
    info = describe_file(groups[-1], groups, grid, columns, _footer_digest(file), record)
    return ParquetLayout(info=info, leaves=leaves, groups=tuple(groups), metadata=metadata, size=file.seek(0, 2))


def _has_nulls(leaf: Leaf, metadata: Any) -> bool:
    """Say whether the statistics of a flat column count missing values.

    For lists they count empty ones, too, and say nothing; those are looked at when they are read.
    """
    if leaf.kind != "flat" or not leaf.nullable:
        return False
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(leaf.indices[0]).statistics
        if statistics is not None and statistics.has_null_count and statistics.null_count:
            return True
    return False


def _stored_bytes(metadata: Any) -> list[int]:
    count, groups = metadata.num_columns, metadata.num_row_groups
    looked_at = groups if count * groups <= _EXACT_SIZES else min(groups, 1)
    sizes = [0] * count
    for number in range(looked_at):
        group = metadata.row_group(number)
        for index in range(count):
            sizes[index] += group.column(index).total_compressed_size
    return [size * groups // looked_at for size in sizes] if looked_at else sizes


def _footer_digest(file: Any) -> str:
    """Identify the file by its footer, which records where and how large everything is."""
    end = file.seek(0, 2)
    file.seek(end - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(end - 8 - length)
    return hashlib.blake2b(file.read(length), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A column a user can name, and where it is in the file."""

    name: str
    kind: Literal["flat", "jagged", "other"]
    dtype: np.dtype[Any] | None
    top: str  #: the file's own column it is part of
    fields: tuple[str, ...]  #: of the structs on the way down
    indices: tuple[int, ...]  #: numbers of the stored columns
    paths: tuple[str, ...]  #: and their names, as pyarrow wants them
    nullable: bool
    whole: Any = None  #: Arrow's type of ``top``


def find_leaves(schema: Any, stored: Any = None) -> dict[str, Leaf]:
    """Return the columns by the names a user writes, in file order; ``stored`` is the schema of the file, if there is one."""
    found: dict[str, Leaf] = {}
    first = 0
    for written in schema:
        field = written.with_type(_plain_type(written.type))
        if not _readable(field.type):
            first += _width(field.type)
            continue
        for leaf in _expand(field, field.name, field.name, (), False, False, first):
            paths = tuple(stored.column(index).path for index in leaf.indices) if stored is not None else ()
            found.setdefault(leaf.name, replace(leaf, paths=paths, whole=field.type))
        first += _width(field.type)
    return found


def _expand(
    field: Any, name: str, top: str, fields: tuple[str, ...], in_list: bool, nullable: bool, first: int
) -> Iterator[Leaf]:
    kind = field.type
    nullable = nullable or field.nullable
    if pa.types.is_struct(kind) and kind.num_fields:
        for number in range(kind.num_fields):
            child = kind.field(number)
            inside = f"{name}.{child.name}"
            yield from _expand(child, inside, top, (*fields, child.name), in_list, nullable, first)
            first += _width(child.type)
        return
    if (
        _is_list(kind)
        and not in_list
        and (number_type(kind.value_type) is not None or pa.types.is_struct(kind.value_type))
    ):
        yield from _expand(kind.value_field, name, top, fields, True, nullable, first)
        return
    dtype = number_type(kind)
    shape: Literal["flat", "jagged", "other"] = "other"
    if dtype is not None:
        shape = "jagged" if in_list else "flat"
    yield Leaf(
        name=name,
        kind=shape,
        dtype=dtype,
        top=top,
        fields=fields,
        indices=tuple(range(first, first + _width(kind))),
        paths=(),
        nullable=nullable,
    )


def _plain_type(kind: Any) -> Any:
    """Return the type as it is stored: extension types, such as awkward's own, only say more about it."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([field.with_type(_plain_type(field.type)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


@lru_cache(maxsize=256)  # files have thousands of columns of a few types
def _readable(kind: Any) -> bool:
    try:
        ak.from_arrow(pa.array([], kind))
    except (NotImplementedError, TypeError, ValueError):  # ArrowInvalid is a ValueError
        return False
    return True


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def number_type(kind: Any) -> np.dtype[Any] | None:
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if plain else None


def _width(kind: Any) -> int:
    if pa.types.is_dictionary(kind) or kind.num_fields == 0:
        return 1
    return sum(_width(kind.field(number).type) for number in range(kind.num_fields))


# -- values ---------------------------------------------------------------------------------------


def convert(leaf: Leaf, table: Any) -> Any:
    """Take a leaf out of a table: a NumPy array if flat, an awkward one otherwise."""
    array = table.column(leaf.top).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if array.type != leaf.whole:
        array = array.cast(_plain_type(array.type))
    offsets: np.ndarray[Any, Any] | None = None
    if leaf.kind != "other":
        inner, offsets, complete = _descend(leaf, array)
        if complete:
            numbers = np.ascontiguousarray(inner.to_numpy(zero_copy_only=False))
            if offsets is None:
                return numbers
            return lists_of(offsets, numbers)
    whole = ak.from_arrow(array)
    for field in leaf.fields:
        whole = whole[field]
    return whole


def _descend(leaf: Leaf, array: Any) -> tuple[Any, np.ndarray[Any, Any] | None, bool]:
    """Return the numbers, the list borders and whether nothing is missing on the way."""
    offsets: np.ndarray[Any, Any] | None = None
    fields = list(leaf.fields)
    while True:
        if array.null_count:
            return array, offsets, False
        if _is_list(array.type):
            borders = np.asarray(array.offsets).astype(np.int64)
            array = array.values.slice(int(borders[0]), int(borders[-1] - borders[0]))
            offsets = borders - borders[0]
        elif pa.types.is_struct(array.type):
            array = array.field(fields.pop(0))
        else:
            return array, offsets, True


def joined(leaf: Leaf, parts: Sequence[Any]) -> Any:
    if not parts:
        return empty(leaf)
    whole = concatenate(parts)
    if leaf.kind == "flat" and isinstance(whole, np.ndarray):
        return np.ascontiguousarray(whole)
    # Arrays with missing values are left as they are.
    plain = leaf.kind == "jagged" and whole.layout.is_list and whole.layout.content.is_numpy
    return native_lists(whole) if plain else whole


def empty(leaf: Leaf) -> Any:
    if leaf.dtype is None:
        nothing = ak.from_arrow(pa.array([], leaf.whole))
        for field in leaf.fields:
            nothing = nothing[field]
        return nothing
    numbers = np.empty(0, leaf.dtype)
    if leaf.kind == "flat":
        return numbers
    return lists_of(np.zeros(1, np.int64), numbers)
