"""Rows that are in memory already: mappings of arrays and awkward arrays.

Records are exposed field by field (``Muon.pt``). Nothing is copied before it is read, and a reader
hands out views where the memory already has the right form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.data.base import ColumnInfo, FileInfo, unit_borders
from windrow.data.columns import check_request, find_collections
from windrow.errors import SpecError

if TYPE_CHECKING:
    from windrow.data.base import Input


class ArrayTable:
    """Named arrays of one length, shared by all readers of them."""

    __slots__ = ("columns", "infos", "rows")

    def __init__(self, arrays: Any, label: str) -> None:
        #: leaf columns: NumPy arrays if flat, awkward arrays if not
        self.columns: dict[str, Any] = {}
        self.rows = _rows_of(arrays, label)
        names = arrays if isinstance(arrays, Mapping) else arrays.fields
        for name in names:
            if not isinstance(name, str):
                raise SpecError(f"{label}: a column is named by a string, not by {name!r}")
            self._add(name, arrays[name])
        self.infos = {name: _info(name, value) for name, value in self.columns.items()}

    def _add(self, name: str, value: Any) -> None:
        array = _as_array(value, name)
        if isinstance(array, ak.Array) and array.fields:
            for field in array.fields:
                self._add(f"{name}.{field}", array[field])
        else:
            self.columns[name] = array


def _rows_of(arrays: Any, label: str) -> int:
    if not isinstance(arrays, Mapping):
        return len(arrays)
    lengths: dict[str, int] = {}
    for name, value in arrays.items():
        shape = getattr(value, "shape", None)
        if shape == () or not hasattr(value, "__len__"):
            raise SpecError(f"{label}: column {name!r} is not an array: {value!r:.60}")
        lengths[str(name)] = len(value)
    if not lengths:
        raise SpecError(f"{label}: a mapping of arrays needs at least one array")
    first, rows = next(iter(lengths.items()))
    for name, length in lengths.items():
        if length != rows:
            raise SpecError(
                f"{label}: columns must have one length, but {first!r} has {rows} rows and {name!r} has {length}"
            )
    return rows


def _as_array(value: Any, name: str) -> Any:
    """Return a one-dimensional NumPy array of numbers if it is one, an awkward array otherwise."""
    if isinstance(value, ak.Array):
        layout = value.layout
        if layout.is_numpy and layout.purelist_depth == 1:
            return np.asarray(layout.data)
        return value
    if isinstance(value, np.ma.MaskedArray):
        return ak.from_numpy(value)  # np.asarray would show what is masked
    try:
        array = np.asarray(value)
    except ValueError:  # ragged lists
        array = None
    if array is not None and array.ndim == 1 and array.dtype.kind in "biuf":
        return array
    try:
        return ak.Array(value)
    except (TypeError, ValueError) as exc:
        raise SpecError(f"column {name!r} cannot be read as an array: {exc}") from exc


def _info(name: str, array: Any) -> ColumnInfo:
    if isinstance(array, np.ndarray):
        dtype = array.dtype.newbyteorder("=")
        return ColumnInfo(name=name, kind="flat", dtype=dtype, stored_bytes=array.nbytes)
    dtype = list_dtype(array)
    kind = "other" if dtype is None else "jagged"
    return ColumnInfo(name=name, kind=kind, dtype=dtype, stored_bytes=array.nbytes)  # type: ignore[arg-type]


def list_dtype(array: ak.Array) -> np.dtype[Any] | None:
    """Return the type of the numbers of a one-level list array, None if it is anything else."""
    layout = array.layout
    while layout.is_indexed and not layout.is_option:
        layout = layout.project()
    if not layout.is_list or layout.is_regular or layout.parameter("__array__") is not None:
        return None
    content = layout.content
    while content.is_indexed and not content.is_option:
        content = content.project()
    if not content.is_numpy or content.purelist_depth != 1 or content.parameter("__array__"):
        return None
    dtype = np.dtype(content.dtype)
    return dtype.newbyteorder("=") if dtype.kind in "biuf" else None


def concatenate(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return ak.concatenate(parts)


def lists_of(offsets: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> ak.Array:
    """Return the lists ``numbers[offsets[i]:offsets[i + 1]]``."""
    content = ak.contents.NumpyArray(numbers)
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), content))


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the numbers in native byte order and contiguous, the same array if they are."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def as_read(kind: str, values: Any) -> Any:
    if kind == "flat":
        return native(values)
    return native_lists(values) if kind == "jagged" else values


def native_lists(array: ak.Array) -> ak.Array:
    """Return one-level lists as offsets that start at 0 and native, contiguous numbers."""
    layout = array.layout
    while layout.is_indexed:
        layout = layout.project()
    layout = layout.to_ListOffsetArray64(True)
    offsets = np.asarray(layout.offsets.data)
    content = layout.content[: int(offsets[-1])]
    while content.is_indexed:
        content = content.project()
    return lists_of(offsets, native(np.asarray(content.data)))


class ArrayReader:
    """Reads an ``ArrayTable``; its bytes are the bytes of memory handed out."""

    def __init__(self, source: Input, grid: int | None = None) -> None:
        table: ArrayTable = source.location
        self._table = table
        self._label = source.label
        self.bytes_read = 0
        self.reads: list[tuple[str, int, int]] = []
        self.info = FileInfo(
            rows=table.rows,
            borders=unit_borders(table.rows, grid=grid),
            columns=table.infos,
            identity=source.dataset,
            collections=find_collections(table.infos),
        )

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        check_request(self.info, self._label, columns, start, stop)
        out: dict[str, Any] = {}
        for name in columns:
            part = self._table.columns[name][start:stop]
            out[name] = part = as_read(self.info.columns[name].kind, part)
            self.bytes_read += part.nbytes
            self.reads.append((name, start, stop))
        return out

    def close(self) -> None:
        """Release nothing: the arrays belong to the user."""
