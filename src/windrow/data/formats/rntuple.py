"""An RNTuple: what it says about itself, and a reader of it.

Columns are looked up in the RNTuple's own records: uproot's ``keys()`` and ``arrays()`` are
quadratic in the number of fields and match the hidden members of projected collections too. Fields
that are not plain numbers, or lists of them, are read by uproot.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import numpy as np
import uproot

from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.columns import check_request, find_collections
from windrow.data.formats.root_files import remote_file, translated
from windrow.data.remote.file import Ahead, FetchesAhead
from windrow.data.skim.record import counters_in, hidden_in, made_in, public, record_of_root
from windrow.data.units import read_borders, unit_borders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from windrow.data.base import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class RNTupleLayout:
    """All that is known of an RNTuple without its data; shared between threads, never changed."""

    info: FileInfo
    fields: Mapping[str, Field]
    clusters: tuple[int, ...]  #: first row of each cluster, and the end


class RNTupleReader(FetchesAhead):
    """One open RNTuple; ``ranges`` are the (offset, size) of the pages fetched so far."""

    def __init__(
        self, source: Input, handle: Any, ntuple: Any, grid: int | None = None, layout: RNTupleLayout | None = None
    ) -> None:
        self._handle = handle
        self._ntuple = ntuple
        self._label = source.label
        self.layout = layout or rntuple_layout(handle, ntuple, grid)
        self.info = self.layout.info
        self._bytes = 0
        self.reads: list[tuple[str, int, int]] = []
        self.ranges: list[tuple[int, int]] = []
        #: column number -> (first cluster, last cluster + 1, numbers) of a read that used its last
        #: cluster in part
        self._kept: dict[int, tuple[int, int, np.ndarray[Any, Any]]] = {}
        self._remote = remote_file(handle)
        if self._remote is not None:
            self._ahead = Ahead(self._remote, self.reads, self._locate, self._errors)

    @property
    def bytes_read(self) -> int:
        return self._remote.bytes_read if self._remote else self._bytes

    def _errors(self) -> AbstractContextManager[None]:
        return translated(self._label)

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        check_request(self.info, self._label, public(columns, self.info), start, stop)
        out: dict[str, Any] = dict.fromkeys(columns)
        clusters = self.layout.clusters
        if start == stop:
            return {name: self._nothing(name) for name in out}
        first, last = self._clusters(start, stop)
        window = _Window(self, first, last, start - clusters[first], stop - clusters[first])
        ahead = self._ahead.reading(columns, start, stop) if self._ahead else nullcontext()
        with self._errors(), ahead:
            for name in out:
                out[name] = window.read(self.layout.fields[name], start, stop)
        window.keep(partial=stop < clusters[last])
        if self._ahead is None:
            self.reads.extend((name, start, stop) for name in out)
        return out

    def _clusters(self, start: int, stop: int) -> tuple[int, int]:
        clusters = self.layout.clusters
        first = max(int(np.searchsorted(clusters, start, side="right")) - 1, 0)
        return first, int(np.searchsorted(clusters, stop, side="left"))

    def _locate(self, name: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        first, last = self._clusters(start, stop)
        field = self.layout.fields[name]
        clusters = self.layout.clusters
        if field.shape == "other" and stop == clusters[last] < clusters[-1]:
            last += 1  # uproot reads the cluster that begins where the rows end, too
        for number in field.all_columns or (field.numbers, field.offsets):
            kept = self._kept.get(number)
            if number >= 0 and (kept is None or kept[:2] != (first, last)):
                for offset, size in self._pages(number, first, last):
                    yield offset, offset + size

    def _pages(self, number: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        for cluster in range(first, last):
            pages = self._ntuple.page_link_list[cluster]
            for page in pages[number].pages if number < len(pages) else ():
                yield int(page.locator.offset), int(page.locator.num_bytes)

    def _nothing(self, name: str) -> Any:
        field = self.layout.fields[name]
        if field.shape == "other":
            with self._errors():
                whole = self._ntuple.all_fields[field.identifier]
                return whole.array(entry_start=0, entry_stop=0, array_cache=None)
        numbers = np.empty(0, field.dtype)
        return _lists(np.zeros(1, np.int64), numbers) if field.shape == "jagged" else numbers

    def close(self) -> None:
        self._kept.clear()
        self._handle.close()
        if self._remote is not None:
            self._remote.close()


class _Window:
    """The clusters of one request; a column that several fields need is read once."""

    def __init__(self, reader: RNTupleReader, first: int, last: int, low: int, high: int) -> None:
        self._reader = reader
        self._first, self._last = first, last
        self._low, self._high = low, high
        self._columns: dict[int, np.ndarray[Any, Any]] = {}

    def read(self, field: Field, start: int, stop: int) -> Any:
        low, high = self._low, self._high
        if field.shape == "flat":
            return np.ascontiguousarray(self._column(field.numbers)[low:high])
        if field.shape == "counts":
            return np.diff(self._column(field.offsets)[low : high + 1]).astype(field.dtype)
        if field.shape == "jagged":
            offsets = self._column(field.offsets)[low : high + 1].astype(np.int64)
            numbers = self._column(field.numbers)[offsets[0] : offsets[-1]]
            offsets -= offsets[0]
            return _lists(offsets, np.ascontiguousarray(numbers))
        return self._through_uproot(field, start, stop)

    def keep(self, *, partial: bool) -> None:
        """Hold decoded clusters only if the next request may begin in the last of them."""
        kept = self._reader._kept
        for number, values in self._columns.items():
            if partial:
                kept[number] = (self._first, self._last, values)
            else:
                kept.pop(number, None)

    def _column(self, number: int) -> np.ndarray[Any, Any]:
        if number not in self._columns:
            kept = self._reader._kept.get(number)
            if kept is not None and kept[:2] == (self._first, self._last):
                self._columns[number] = kept[2]
            else:
                self._count(number)
                self._columns[number] = self._reader._ntuple.read_cluster_range(number, self._first, self._last)
        return self._columns[number]

    def _count(self, number: int) -> None:
        for offset, size in self._reader._pages(number, self._first, self._last):
            self._reader._bytes += size
            self._reader.ranges.append((offset, size))

    def _through_uproot(self, field: Field, start: int, stop: int) -> Any:
        for number in field.all_columns:
            self._count(number)
        whole = self._reader._ntuple.all_fields[field.identifier]
        return whole.array(entry_start=start, entry_stop=stop, array_cache=None)


def _lists(offsets: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> ak.Array:
    content = ak.contents.NumpyArray(numbers)
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), content))


def rntuple_layout(handle: Any, ntuple: Any, grid: int | None) -> RNTupleLayout:
    rows = int(ntuple.num_entries)
    summaries = ntuple.cluster_summaries
    clusters = tuple(sorted({0, rows, *(int(s.num_first_entry) for s in summaries)}))
    record = record_of_root(handle)
    fields = find_fields(ntuple, zipped=(record or {}).get("zipped") or ())
    hidden, known_counters = hidden_in(record, fields), counters_in(record)
    sizes = _stored_bytes(ntuple)
    counters = {f.offsets: name for name, f in fields.items() if f.shape == "counts"}
    columns: dict[str, ColumnInfo] = {}
    for name, field in fields.items():
        if name == hidden:
            continue
        kinds: Mapping[str, Any] = {"flat": "flat", "counts": "flat", "jagged": "jagged"}
        own = field.all_columns if field.shape == "other" else (field.numbers, field.offsets)
        columns[name] = ColumnInfo(
            name=name,
            kind=kinds.get(field.shape, "other"),
            dtype=field.dtype,
            counter=known_counters.get(name) or counters.get(field.offsets) if field.shape == "jagged" else None,
            stored_bytes=sum(sizes.get(number, 0) for number in set(own)),
        )
    info = FileInfo(
        rows=rows,
        borders=unit_borders(rows, clusters, grid=grid),
        clusters=read_borders(rows, clusters, grid=grid),
        columns=columns,
        identity=str(handle.file.uuid),
        collections=find_collections(columns),
        identity_column=hidden,
        made=made_in(record),
    )
    return RNTupleLayout(info=info, fields=fields, clusters=clusters)


def _stored_bytes(ntuple: Any) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for cluster in ntuple.page_link_list:
        for number, column in enumerate(cluster):
            size = sum(page.locator.num_bytes for page in column.pages)
            sizes[number] = sizes.get(number, 0) + int(size)
    return sizes


#: How ROOT's TTree converter names the records behind projected collections; their members have
#: plain names, too.
_HIDDEN = re.compile(r"_collection\d+")
_CARDINALITY = "ROOT::RNTupleCardinality"
#: Collections of at most one element are options, not lists.
_OPTIONS = ("std::optional", "std::unique_ptr")
#: No such column.
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field a user can name, and the columns it is in (-1: none)."""

    identifier: int
    shape: Literal["flat", "counts", "jagged", "other"]
    dtype: np.dtype[Any] | None = None
    numbers: int = _NONE
    offsets: int = _NONE
    all_columns: tuple[int, ...] = ()  #: for "other": all that uproot will read


def find_fields(ntuple: Any, zipped: Collection[str] = ()) -> dict[str, Field]:
    """Return the fields by the names a user writes, in file order.

    The members of ``zipped`` collections are columns ``Muon_pt`` of which a skim made records.
    """
    finder = _Finder(ntuple)
    found: dict[str, Field] = {}
    for identifier, record in enumerate(finder.records):
        top = record.parent_field_id == identifier
        if top and not _HIDDEN.fullmatch(record.field_name):
            for name, field in finder.expand(record.field_name, identifier, _NONE):
                if record.field_name in zipped:
                    name = f"{record.field_name}_{name[len(record.field_name) + 1 :]}"
                found.setdefault(name, field)
    return found


class _Finder:
    def __init__(self, ntuple: Any) -> None:
        self._ntuple = ntuple
        self.records = ntuple.field_records
        self._children: dict[int, list[int]] = {}
        for identifier, record in enumerate(self.records):
            if record.parent_field_id != identifier:
                self._children.setdefault(record.parent_field_id, []).append(identifier)
        self._columns: dict[int, list[Any]] = {}
        for column in ntuple.column_records:
            self._columns.setdefault(column.field_id, []).append(column)

    def expand(self, name: str, identifier: int, offsets: int) -> Iterator[tuple[str, Field]]:
        """Yield the leaves under a field; ``offsets`` is the list column they are in, if any."""
        record = self.records[identifier]
        roles = uproot.const.RNTupleFieldRole
        children = self._children.get(identifier, [])
        simple = not (record.flags & uproot.const.RNTupleFieldFlags.REPETITIVE)
        if simple and record.struct_role == roles.RECORD and children:
            members = [(self.records[child].field_name, child) for child in children]
            # Tuples and base classes have members without names: uproot knows how to show them.
            if all(member.isidentifier() and not member.startswith("_") for member, _ in members):
                for member, child in members:
                    yield from self.expand(f"{name}.{member}", child, offsets)
                return
        is_list = record.struct_role == roles.COLLECTION and not self._is_option(record)
        if simple and is_list and offsets == _NONE and len(children) == 1:
            own = self._column_of(identifier)
            if own is not None:
                leaves = list(self.expand(name, children[0], own.idx))
                # A lone leaf that is no list of numbers is the collection itself, which uproot
                # knows as a whole.
                if len(leaves) > 1 or leaves[0][1].shape == "jagged" or leaves[0][0] != name:
                    yield from leaves
                    return
        yield name, self._leaf(identifier, offsets, simple=simple)

    def _is_option(self, record: Any) -> bool:
        return bool(record.type_name.startswith(_OPTIONS))

    def _leaf(self, identifier: int, offsets: int, *, simple: bool) -> Field:
        record = self.records[identifier]
        leaf = simple and record.struct_role == uproot.const.RNTupleFieldRole.LEAF
        column = self._column_of(identifier) if leaf and not self._children.get(identifier) else None
        if column is not None:
            if record.type_name.startswith(_CARDINALITY):
                if offsets == _NONE:
                    wide = np.dtype(np.uint64 if "64" in record.type_name else np.uint32)
                    return Field(identifier=identifier, shape="counts", dtype=wide, offsets=column.idx)
            elif not record.type_name.startswith("std::string"):
                dtype = self._ntuple.get_field_metadata(column.idx).dtype_result
                if dtype.names is None and dtype.kind in "biuf":
                    return Field(
                        identifier=identifier,
                        shape="flat" if offsets == _NONE else "jagged",
                        dtype=dtype.newbyteorder("="),
                        numbers=column.idx,
                        offsets=offsets,
                    )
        below = tuple(dict.fromkeys((offsets, *self._below(identifier))))
        used = tuple(number for number in below if number != _NONE)
        return Field(identifier=identifier, shape="other", all_columns=used)

    def _source(self, identifier: int) -> int:
        source = self.records[identifier].source_field_id
        return identifier if source is None else int(source)

    def _column_of(self, identifier: int) -> Any:
        """Return the one column a field's numbers are in, None if it is not that simple."""
        columns = self._columns.get(self._source(identifier), [])
        # A deferred column exists from some row on only, because its field was added while writing.
        deferred = uproot.const.RNTupleColumnFlags.DEFERRED
        if len(columns) != 1 or columns[0].flags & deferred:
            return None
        return columns[0]

    def _below(self, identifier: int) -> Iterator[int]:
        yield from (column.idx for column in self._columns.get(self._source(identifier), []))
        for child in self._children.get(identifier, []):
            yield from self._below(child)
