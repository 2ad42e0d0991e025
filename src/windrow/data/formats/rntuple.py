"""An RNTuple: what it says about itself, and a reader of it.

Columns are looked up in the RNTuple's own records: uproot's ``keys()`` and ``arrays()`` are
quadratic in the number of fields and match the hidden members of projected collections too. Fields
that are not plain numbers, or lists of them, are read by uproot.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import numpy as np
import uproot

from windrow.data.arrays import lists_of
from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.formats.reader import FileReader, describe_file
from windrow.data.formats.root_files import remote_file
from windrow.data.skim.record import record_of_root

if TYPE_CHECKING:
    from windrow.data.base import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class RNTupleLayout:
    """All that is known of an RNTuple without its data; shared between threads, never changed."""

    info: FileInfo
    fields: Mapping[str, Field]
    clusters: tuple[int, ...]  #: first row of each cluster, and the end


class RNTupleReader(FileReader):
    """One open RNTuple."""

    FORMAT = "ROOT"

    def __init__(
        self, source: Input, handle: Any, ntuple: Any, grid: int | None = None, layout: RNTupleLayout | None = None
    ) -> None:
        super().__init__(source.label, remote_file(handle))
        self._handle = handle
        self._ntuple = ntuple
        self.layout = layout or rntuple_layout(handle, ntuple, grid)
        self.info = self.layout.info
        #: column number -> (first cluster, last cluster + 1, numbers) of a read that used its last cluster in part
        self._kept: dict[int, tuple[int, int, np.ndarray[Any, Any]]] = {}

    def _read_rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        fields = {name: self.layout.fields[name] for name in names}
        if start == stop:
            return {name: self._nothing(field) for name, field in fields.items()}
        first, last = self._clusters(start, stop)
        out = {name: self._read_field(field, first, last, start, stop) for name, field in fields.items()}
        # Decoded clusters are held only if the next request may begin in the last of them.
        if stop == self.layout.clusters[last]:
            for field in fields.values():
                self._kept.pop(field.numbers, None)
                self._kept.pop(field.offsets, None)
        return out

    def _read_field(self, field: Field, first: int, last: int, start: int, stop: int) -> Any:
        if field.shape == "other":
            self._bytes += sum(size for number in field.all_columns for _, size in self._pages(number, first, last))
            whole = self._ntuple.all_fields[field.identifier]
            return whole.array(entry_start=start, entry_stop=stop, array_cache=None)
        low, high = start - self.layout.clusters[first], stop - self.layout.clusters[first]
        if field.shape == "flat":
            return np.ascontiguousarray(self._column(field.numbers, first, last)[low:high])
        offsets = self._column(field.offsets, first, last)[low : high + 1]
        if field.shape == "counts":
            return np.diff(offsets).astype(field.dtype)
        offsets = offsets.astype(np.int64)
        numbers = self._column(field.numbers, first, last)[offsets[0] : offsets[-1]]
        offsets -= offsets[0]
        return lists_of(offsets, np.ascontiguousarray(numbers))

    def _column(self, number: int, first: int, last: int) -> np.ndarray[Any, Any]:
        """Return the decoded clusters of a column, which several fields may need."""
        kept = self._kept.get(number)
        if kept is None or kept[:2] != (first, last):
            self._bytes += sum(size for _, size in self._pages(number, first, last))
            kept = self._kept[number] = (first, last, self._ntuple.read_cluster_range(number, first, last))
        return kept[2]

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

    def _nothing(self, field: Field) -> Any:
        if field.shape == "other":
            whole = self._ntuple.all_fields[field.identifier]
            if self._is_lists_of_numbers(field.identifier):
                # uproot goes through all fields of the file for every part of a field that it reads: a minute for 4,000 fields.
                form = self._ntuple.field_form(field.identifier, set())
                return ak.Array(form.length_zero_array(highlevel=False))
            return whole.array(entry_start=0, entry_stop=0, array_cache=None)
        numbers = np.empty(0, field.dtype)
        return lists_of(np.zeros(1, np.int64), numbers) if field.shape == "jagged" else numbers

    def _is_lists_of_numbers(self, identifier: int) -> bool:
        """Say whether a whole field is lists, of lists, of numbers."""
        records, roles = self._ntuple.field_records, uproot.const.RNTupleFieldRole
        if records[identifier].parent_field_id != identifier:
            return False
        while records[identifier].struct_role == roles.COLLECTION:
            parts = self._ntuple._related_ids.get(identifier, ())
            if len(parts) != 1 or records[identifier].type_name.startswith(_OPTIONS):
                return False
            identifier = parts[0]
        return bool(records[identifier].struct_role == roles.LEAF and identifier not in self._ntuple._related_ids)

    def close(self) -> None:
        self._kept.clear()
        self._handle.close()
        if self._remote is not None:
            self._remote.close()


def rntuple_layout(handle: Any, ntuple: Any, grid: int | None) -> RNTupleLayout:
    rows = int(ntuple.num_entries)
    summaries = ntuple.cluster_summaries
    clusters = tuple(sorted({0, rows, *(int(s.num_first_entry) for s in summaries)}))
    record = record_of_root(handle)
    fields = find_fields(ntuple, zipped=(record or {}).get("zipped") or ())
    sizes = _stored_bytes(ntuple)
    counters = {f.offsets: name for name, f in fields.items() if f.shape == "counts"}
    columns: dict[str, ColumnInfo] = {}
    for name, field in fields.items():
        own = field.all_columns if field.shape == "other" else (field.numbers, field.offsets)
        columns[name] = ColumnInfo(
            name=name,
            kind="flat" if field.shape == "counts" else field.shape,
            dtype=field.dtype,
            counter=counters.get(field.offsets) if field.shape == "jagged" else None,
            stored_bytes=sum(sizes.get(number, 0) for number in set(own)),
        )
    info = describe_file(rows, clusters, grid, columns, str(handle.file.uuid), record)
    return RNTupleLayout(info=info, fields=fields, clusters=clusters)


def _stored_bytes(ntuple: Any) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for cluster in ntuple.page_link_list:
        for number, column in enumerate(cluster):
            size = sum(page.locator.num_bytes for page in column.pages)
            sizes[number] = sizes.get(number, 0) + int(size)
    return sizes


#: How ROOT's TTree converter names the records behind projected collections; their members have plain names, too.
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
        is_list = record.struct_role == roles.COLLECTION and not record.type_name.startswith(_OPTIONS)
        if simple and is_list and offsets == _NONE and len(children) == 1:
            own = self._column_of(identifier)
            if own is not None:
                leaves = list(self.expand(name, children[0], own.idx))
                # A lone leaf that is no list of numbers is the collection itself, which uproot knows as a whole.
                if len(leaves) > 1 or leaves[0][1].shape == "jagged" or leaves[0][0] != name:
                    yield from leaves
                    return
        yield name, self._leaf(identifier, offsets, simple=simple)

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
