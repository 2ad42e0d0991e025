"""From Arrow's nested columns to the flat and jagged ones of a reader. Opens no file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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


def find_leaves(schema: Any, stored: Any) -> dict[str, Leaf]:
    """Return the columns by the names a user writes, in file order."""
    found: dict[str, Leaf] = {}
    first = 0
    for written in schema:
        field = written.with_type(_plain_type(written.type))
        if not _readable(field.type):
            first += _width(field.type)
            continue
        for leaf in _expand(field, field.name, field.name, (), False, False, first):
            paths = tuple(stored.column(index).path for index in leaf.indices)
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
    if _is_list(kind) and not in_list and _numeric_or_struct(kind.value_type):
        yield from _expand(kind.value_field, name, top, fields, True, nullable, first)
        return
    dtype = _number(kind)
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
    """Say whether awkward has such a type; it has none for maps."""
    try:
        ak.from_arrow(pa.array([], kind))
    except (NotImplementedError, TypeError, ValueError):  # ArrowInvalid is a ValueError
        return False
    return True


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _numeric_or_struct(kind: Any) -> bool:
    return _number(kind) is not None or bool(pa.types.is_struct(kind))


def _number(kind: Any) -> np.dtype[Any] | None:
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if plain else None


def _width(kind: Any) -> int:
    """Return how many stored columns a type takes."""
    if pa.types.is_dictionary(kind):
        return 1
    if kind.num_fields == 0:
        return 1
    return sum(_width(kind.field(number).type) for number in range(kind.num_fields))


# -- values ---------------------------------------------------------------------------------------


def convert(leaf: Leaf, table: Any) -> Any:
    """Take a leaf out of a table: a NumPy array if flat, an awkward one otherwise."""
    array = table.column(leaf.top).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if array.type != leaf.whole:
        array = _plain_array(array)
    offsets: np.ndarray[Any, Any] | None = None
    if leaf.kind != "other":
        inner, offsets, complete = _descend(leaf, array)
        if complete:
            numbers = np.ascontiguousarray(inner.to_numpy(zero_copy_only=False))
            if offsets is None:
                return numbers
            content = ak.contents.NumpyArray(numbers)
            return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), content))
    whole = ak.from_arrow(array)
    for field in leaf.fields:
        whole = whole[field]
    return whole


def _plain_array(array: Any) -> Any:
    """Take extension types off an array, all the way down."""
    if isinstance(array, pa.ExtensionArray):
        return _plain_array(array.storage)
    kind = array.type
    if pa.types.is_struct(kind):
        parts = [_plain_array(array.field(number)) for number in range(kind.num_fields)]
        missing = array.is_null() if array.null_count else None
        fields = [kind.field(n).with_type(part.type) for n, part in enumerate(parts)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=missing)
    if _is_list(kind):
        values = _plain_array(array.values)
        whole = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return type(array).from_arrays(
            array.offsets,
            values,
            type=whole(kind.value_field.with_type(values.type)),
            mask=array.is_null() if array.null_count else None,
        )
    return array


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
    """Put the pieces of several row groups together."""
    if not parts:
        return empty(leaf)
    if leaf.kind == "flat" and all(isinstance(part, np.ndarray) for part in parts):
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))
    whole = parts[0] if len(parts) == 1 else ak.concatenate(parts)
    return _packed(whole) if leaf.kind == "jagged" else whole


def _packed(array: ak.Array) -> ak.Array:
    """Return lists with offsets from 0; arrays with missing values are left as they are."""
    layout = array.layout
    if not layout.is_list or not layout.content.is_numpy:
        return array
    layout = layout.to_ListOffsetArray64(True)
    stop = int(layout.offsets[-1])
    content = ak.contents.NumpyArray(np.ascontiguousarray(layout.content.data[:stop]))
    return ak.Array(ak.contents.ListOffsetArray(layout.offsets, content))


def empty(leaf: Leaf) -> Any:
    """Return no rows, of the right type."""
    if leaf.dtype is None:
        nothing = ak.from_arrow(pa.array([], leaf.whole))
        for field in leaf.fields:
            nothing = nothing[field]
        return nothing
    numbers = np.empty(0, leaf.dtype)
    if leaf.kind == "flat":
        return numbers
    index = ak.index.Index64(np.zeros(1, np.int64))
    return ak.Array(ak.contents.ListOffsetArray(index, ak.contents.NumpyArray(numbers)))
