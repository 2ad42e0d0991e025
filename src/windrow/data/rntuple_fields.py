"""Which columns of an RNTuple hold the numbers of a field.

An RNTuple stores fields as a tree and numbers in columns; projected fields borrow the columns of
others. This module turns the tree into the flat names a user writes. It reads records, never data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import uproot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


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
