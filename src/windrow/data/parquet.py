"""Parquet files through pyarrow.

Structs and lists of structs are exposed leaf by leaf (``Muon.pt``), and only the leaves asked for
are read. A column with missing values arrives as an awkward option array.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.data.arrow import Leaf, convert, empty, find_leaves, joined
from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.columns import check_request, find_collections
from windrow.data.paths import is_remote, named_error
from windrow.data.remote import Ahead, FetchesAhead, RemoteFile, RemoteHandle
from windrow.data.skim_record import counters_in, hidden_in, made_in, public, record_of_parquet
from windrow.data.units import read_borders, unit_borders
from windrow.errors import CorruptFileError, DataError, MissingFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from windrow.data.base import Input


#: Above this many (column, row group) pairs the stored sizes are taken from the first row group:
#: each costs 2 us.
_EXACT_SIZES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetLayout:
    """All that is known of a file without its data; shared between threads, never changed."""

    info: FileInfo
    leaves: Mapping[str, Leaf]
    groups: tuple[int, ...]  #: first row of each row group, and the end
    metadata: Any  #: pyarrow's own, so that a second reader need not parse it
    size: int  #: bytes in the file


class ParquetReader(FetchesAhead):
    """One open Parquet file; ``ranges`` are the (offset, size) of the chunks fetched so far."""

    def __init__(self, source: Input, grid: int | None = None, layout: ParquetLayout | None = None) -> None:
        self._label = source.label
        self._bytes = 0
        self.reads: list[tuple[str, int, int]] = []
        self.ranges: list[tuple[int, int]] = []
        #: column -> (row group, values) of a row group that the last read used in part
        self._kept: dict[str, tuple[int, Any]] = {}
        self._remote: RemoteFile | None = None
        location = str(source.location)
        if is_remote(location):
            self._remote = RemoteFile(location, layout.size if layout else None)
            self._ahead = Ahead(self._remote, self.reads, self._locate, self._errors)
        with self._errors():
            self._file = RemoteHandle(self._remote) if self._remote else pa.OSFile(location, "rb")
            try:
                known = layout.metadata if layout else None
                self._parquet = pq.ParquetFile(self._file, metadata=known, pre_buffer=False)
                self.layout = layout or _layout(self._file, self._parquet, grid)
            except BaseException:
                self._file.close()
                raise
        self.info = self.layout.info

    @property
    def bytes_read(self) -> int:
        """Stored bytes fetched so far."""
        return self._remote.bytes_read if self._remote else self._bytes

    def _errors(self) -> AbstractContextManager[None]:
        return _translated(self._label)

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        """Read ``columns`` of rows [start, stop)."""
        check_request(self.info, self._label, public(columns, self.info), start, stop)
        names = list(dict.fromkeys(columns))
        parts: dict[str, list[Any]] = {name: [] for name in names}
        groups = self.layout.groups
        if start == stop and self.info.rows:
            return self._nothing(names)
        ahead = self._ahead.reading(names, start, stop) if self._ahead else nullcontext()
        with self._errors(), ahead:
            for number in self._groups(start, stop):
                low = max(start - groups[number], 0)
                high = min(stop, groups[number + 1]) - groups[number]
                group = self._read_group(number, names, keep=stop < groups[number + 1])
                for name in names:
                    parts[name].append(group[name][low:high])
            out = {name: joined(self.layout.leaves[name], parts[name]) for name in names}
        if self._ahead is None:
            self.reads.extend((name, start, stop) for name in names)
        return out

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
            self._count(number, missing)
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
        first = self.read(odd, 0, 1) if odd else {}
        leaves = self.layout.leaves
        return {name: first[name][:0] if name in first else empty(leaves[name]) for name in names}

    def _count(self, number: int, names: Sequence[str]) -> None:
        for name in names:
            for offset, size in self._chunks(number, name):
                self._bytes += size
                self.ranges.append((offset, size))

    def close(self) -> None:
        """Release the handle."""
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
    record = record_of_parquet(metadata.metadata)
    hidden, counters = hidden_in(record, leaves), counters_in(record)
    columns = {
        name: ColumnInfo(
            name=name,
            kind=leaf.kind,
            dtype=leaf.dtype,
            counter=counters.get(name),
            stored_bytes=sum(sizes[index] for index in leaf.indices),
        )
        for name, leaf in leaves.items()
        if name != hidden
    }
    info = FileInfo(
        rows=groups[-1],
        borders=unit_borders(groups[-1], groups, grid=grid),
        clusters=read_borders(groups[-1], groups, grid=grid),
        columns=columns,
        identity=_footer_digest(file),
        collections=find_collections(columns),
        identity_column=hidden,
        made=made_in(record),
    )
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


@contextmanager
def _translated(label: str) -> Iterator[None]:
    """Turn what pyarrow raises about a file into Windrow's errors; transient ``OSError`` stay."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except ImportError as exc:
        raise UsageError(f"{label} needs a package that is not there: {exc}", file=label) from exc
    except FileNotFoundError as exc:
        raise MissingFileError(f"no such file: {label}", file=label) from exc
    except OSError as exc:
        # Arrow reports damaged data as OSError too, but without an error number; links have one.
        if exc.errno is None and (not is_remote(label) or label.startswith("http")):
            raise _corrupt(label, exc) from exc
        raise named_error(label, exc) from exc
    except (pa.ArrowException, ValueError, KeyError, IndexError, EOFError) as exc:
        raise _corrupt(label, exc) from exc


def _corrupt(label: str, exc: BaseException) -> CorruptFileError:
    lines = str(exc).strip().splitlines()
    reason = lines[0][:200] if lines else type(exc).__name__
    return CorruptFileError(
        f"{label} cannot be read as Parquet: truncated, damaged or of another format ({reason})", file=label
    )
