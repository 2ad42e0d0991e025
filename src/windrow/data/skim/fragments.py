"""Selected rows of one chunk on the local disk, until they are written to the skim they belong to.

A fragment is an Arrow file. Worker threads write them, one for each chunk, while rows are still in
memory; the one writer of a skim maps them. Lists of equal lengths share one array of borders, which
also tells the writer which columns are a collection. Records become columns ``name_field``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow as pa
import xxhash

from windrow.data.arrays import list_dtype, native_lists
from windrow.data.paths import named_error
from windrow.errors import UsageError

#: Bytes of a batch: small against the memory of a worker, large against the cost of a batch.
_BATCH_BYTES = 32 << 20

#: Arrow's plain lists and texts have borders of 32 bits.
_LONGEST = 2**31 - 1

_META = b"windrow_fragment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A file with selected rows of one chunk."""

    path: str
    rows: int
    memory: int  #: of the numbers in it, which does not depend on how chunks were cut
    shape: str  #: fragments of equal ``shape`` have the same columns, types and shared lists
    origin: str = ""  #: the file the rows are from, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a fragment says about its columns."""

    fields: Mapping[str, Any]  #: name -> pyarrow field, in the order given
    lists: tuple[tuple[str, ...], ...]  #: columns of lists of numbers, by equal lengths
    counts: tuple[tuple[str, ...], ...]  #: for each of them the columns that hold these lengths


@dataclass(frozen=True, slots=True)
class _Lists:
    """Lists of numbers: ``numbers[offsets[i]:offsets[i + 1]]`` are those of row i."""

    offsets: np.ndarray[Any, Any]
    numbers: np.ndarray[Any, Any]


def write_fragment(path: Path, columns: Mapping[str, Any], rows: int, *, origin: str = "") -> Fragment:
    """Write columns of ``rows`` rows: NumPy arrays of numbers or awkward arrays of anything.

    ``origin`` names the file the rows are from in what is said about them later.
    """
    plain = _plain_columns(columns, rows)
    # The borders of lists are left out: how many are shared differs from fragment to fragment.
    memory = sum(int((v.numbers if isinstance(v, _Lists) else v).nbytes) for v in plain.values())
    shared, counts = _shared_lists(plain)
    parts = max(math.ceil(memory / _BATCH_BYTES), 1)
    borders = [rows * number // parts for number in range(parts + 1)]
    batches = [_batch(plain, shared, counts, a, b) for a, b in pairwise(borders)]
    schema = batches[0].schema
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except OSError as error:
        raise named_error(str(path), error) from error
    return Fragment(
        path=str(path),
        rows=rows,
        memory=memory,
        shape=hashlib.blake2b(schema.serialize(), digest_size=16).hexdigest(),
        origin=origin,
    )


def read_fragment(fragment: Fragment) -> Iterator[Any]:
    """Yield the rows as Arrow record batches of plain columns; the file is mapped, not copied."""
    with pa.memory_map(fragment.path) as file, pa.ipc.open_file(file) as reader:
        meaning = json.loads(reader.schema.metadata[_META])
        for number in range(reader.num_record_batches):
            yield _unshared(reader.get_batch(number), meaning)


def read_shape(fragment: Fragment) -> Shape:
    with pa.memory_map(fragment.path) as file, pa.ipc.open_file(file) as reader:
        return _shape(reader.schema)


def shape_of(columns: Mapping[str, Any], rows: int = 0) -> Shape:
    plain = _plain_columns(columns, rows)
    return _shape(_batch(plain, *_shared_lists(plain), 0, rows).schema)


# -- columns as they are written ------------------------------------------------------------------


def _plain_columns(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Return numbers, lists of numbers and awkward layouts without records, by name."""
    out: dict[str, Any] = {}
    for name, column in columns.items():
        if len(column) != rows:
            raise UsageError(f"column {name!r} has {len(column)} rows where {rows} are to be saved", column=name)
        for inner, value in _without_records(name, column):
            if inner in out:
                raise UsageError(
                    f"two columns would be saved as {inner!r}: a field of the records "
                    f"{name!r} and a column; rename one or leave it out",
                    column=inner,
                )
            out[inner] = value
    return out


def _without_records(name: str, column: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "biuf":
        yield name, column.astype(column.dtype.newbyteorder("="), copy=False)
        return
    layout = ak.to_layout(column, regulararray=True)
    if not layout.is_all_materialized:
        layout = layout.materialize()
    if layout.fields:
        for field in layout.fields:
            yield from _without_records(f"{name}_{field}", layout[field])
        return
    while layout.is_indexed and not layout.is_option:
        layout = layout.project()
    if layout.is_numpy and layout.inner_shape == () and layout.dtype.kind in "biuf":
        yield name, np.ascontiguousarray(layout.data)
    elif list_dtype(ak.Array(layout)) is None:
        yield name, layout
    else:
        lists = native_lists(ak.Array(layout)).layout
        yield name, _Lists(np.ascontiguousarray(lists.offsets.data), np.asarray(lists.content.data))


def _shared_lists(plain: Mapping[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """Group the lists of equal lengths, and find the columns that count them."""
    groups: dict[bytes, list[str]] = {}
    for name, value in plain.items():
        if isinstance(value, _Lists):
            digest = xxhash.xxh3_128_digest(value.offsets.data)
            groups.setdefault(digest, []).append(name)
    counts = []
    for members in groups.values():
        lengths = np.diff(plain[members[0]].offsets)
        names = dict.fromkeys(name for member in members for name in _counter_names(member))
        whole = [n for n in names if isinstance(plain.get(n), np.ndarray) and plain[n].dtype.kind in "iu"]
        counts.append([n for n in whole if np.array_equal(plain[n], lengths)])
    return list(groups.values()), counts


def _counter_names(column: str) -> Iterator[str]:
    """Yield what a column is called that counts the elements of ``column``."""
    stems = [column]
    stems += [column[:place] for place, mark in enumerate(column) if mark in "_." and place]
    for stem in stems:
        yield f"n{stem}"
        yield f"N{stem}"


# -- Arrow ----------------------------------------------------------------------------------------


def _batch(
    plain: Mapping[str, Any], shared: Sequence[Sequence[str]], counts: Sequence[Sequence[str]], start: int, stop: int
) -> Any:
    arrays, fields = [], []
    for members in shared:
        array = _list_group(plain, members, start, stop)
        arrays.append(array)
        fields.append(pa.field("lists", array.type, nullable=False))
    for name, value in plain.items():
        if not isinstance(value, _Lists):
            array, nullable = _other(name, value[start:stop])
            arrays.append(array)
            fields.append(pa.field(name, array.type, nullable=nullable))
    meaning = {"order": list(plain), "groups": len(shared), "counts": [list(c) for c in counts]}
    schema = pa.schema(fields, metadata={_META: json.dumps(meaning)})
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _list_group(plain: Mapping[str, Any], members: Sequence[str], start: int, stop: int) -> Any:
    offsets = plain[members[0]].offsets[start : stop + 1]
    low, high = int(offsets[0]), int(offsets[-1])
    if high - low > _LONGEST:
        raise UsageError(
            f"column {members[0]!r} has {high - low} elements in {stop - start} rows, "
            "too many to be saved; leave it out",
            column=members[0],
        )
    numbers = [pa.array(plain[name].numbers[low:high]) for name in members]
    fields = [pa.field(name, array.type, nullable=False) for name, array in zip(members, numbers, strict=True)]
    struct = pa.StructArray.from_arrays(numbers, fields=fields)
    item = pa.field("item", struct.type, nullable=False)
    borders = pa.array((offsets - low).astype(np.int32))
    return pa.ListArray.from_arrays(borders, struct, type=pa.list_(item))


def _other(name: str, value: Any) -> tuple[Any, bool]:
    """Return numbers or anything else as Arrow has it, and whether values may be missing."""
    if isinstance(value, np.ndarray):
        return pa.array(value), False
    try:
        array = ak.to_arrow(
            ak.to_packed(value),
            list_to32=True,
            string_to32=True,
            bytestring_to32=True,
            extensionarray=False,
            categorical_as_dictionary=False,
        )
    except (TypeError, ValueError, NotImplementedError) as exc:
        raise _unsavable(name, value) from exc
    if _has_no_type(array):
        raise _unsavable(name, value)
    return array, bool(value.is_option or pa.types.is_null(array.type))


def _has_no_type(array: Any) -> bool:
    """Say whether values are of several types, or lists are of missing values only."""
    inside = False
    while pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        array, inside = array.values, True
    if pa.types.is_null(array.type):
        return inside and len(array) > 0
    return bool(pa.types.is_union(array.type))


def _unsavable(name: str, value: Any) -> UsageError:
    return UsageError(
        f'column {name!r} cannot be saved: no file format has its type, {ak.type(value)}; leave it out with "-{name}"',
        column=name,
    )


def _shape(schema: Any) -> Shape:
    meaning = json.loads(schema.metadata[_META])
    structs = [schema.field(number).type.value_type for number in range(meaning["groups"])]
    nothing = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return Shape(
        fields={field.name: field for field in _unshared(nothing, meaning).schema},
        lists=tuple(tuple(one.field(number).name for number in range(one.num_fields)) for one in structs),
        counts=tuple(tuple(names) for names in meaning["counts"]),
    )


def _unshared(batch: Any, meaning: Mapping[str, Any]) -> Any:
    """Return the batch with lists as columns of their own, which share their borders' memory."""
    found: dict[str, tuple[Any, Any]] = {}  # name -> field, array
    groups: int = meaning["groups"]
    for number in range(groups):
        lists = batch.column(number)
        struct = lists.values
        for index in range(struct.type.num_fields):
            inner = struct.type.field(index)
            kind = pa.list_(pa.field("item", inner.type, nullable=False))
            field = pa.field(inner.name, kind, nullable=False)
            values = struct.field(index)
            array = pa.ListArray.from_arrays(lists.offsets, values, type=field.type)
            found[inner.name] = (field, array)
    for number in range(groups, batch.num_columns):
        field = batch.schema.field(number)
        found[field.name] = (field, batch.column(number))
    ordered = [found[name] for name in meaning["order"]]
    schema = pa.schema([field for field, _ in ordered])
    return pa.RecordBatch.from_arrays([array for _, array in ordered], schema=schema)
