"""Columns are read late, once, unit by unit and together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.blocks.columns import ColumnStore, concatenate, take
from windrow.blocks.selection import Selection, everything, keep
from windrow.data.base import FileInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class FakeReader:
    """A reader of arrays in memory that remembers every request."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns
        self.requests: list[tuple[tuple[str, ...], int, int]] = []
        self.reads: list[tuple[str, int, int]] = []
        self.bytes_read = 0
        self.fails: Exception | None = None

    @property
    def info(self) -> FileInfo:
        rows = len(next(iter(self.columns.values())))
        return FileInfo(rows=rows, borders=(0, rows), columns={}, identity="fake")

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        if self.fails is not None:
            raise self.fails
        self.requests.append((tuple(columns), start, stop))
        self.reads += [(column, start, stop) for column in columns]
        return {column: self.columns[column][start:stop] for column in columns}

    def close(self) -> None:
        pass


FLAT, JAGGED = "flat", "jagged"
BEFORE = 3  # rows of the file before the chunk, so that chunk rows and file rows differ


@st.composite
def stores(draw: st.DrawFn) -> tuple[ColumnStore, FakeReader]:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    borders = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    length = int(borders[-1])
    rows = BEFORE + length + 2
    flat = np.arange(rows) * 10.0
    jagged = ak.unflatten(np.arange((np.arange(rows) % 3).sum()), np.arange(rows) % 3)
    reader = FakeReader({FLAT: flat, JAGGED: jagged, "other": -flat})
    return ColumnStore(reader, BEFORE, length, borders), reader


def shrink(draw: Any, selection: Selection) -> Selection:
    bits = draw(st.lists(st.booleans(), min_size=selection.count, max_size=selection.count))
    return keep(selection, np.array(bits, dtype=bool), selection)


def expected(reader: FakeReader, column: str, selection: Selection) -> list[Any]:
    return ak.to_list(reader.columns[column][BEFORE + selection.positions()])  # type: ignore[no-any-return]


def units_wanted(store: ColumnStore, selection: Selection) -> set[int]:
    places = np.searchsorted(store.borders, selection.positions(), side="right") - 1
    return set(places.tolist())


@given(stores(), st.data())
def test_shrinking_selections_read_each_row_once_and_only_live_units(
    made: tuple[ColumnStore, FakeReader], data: st.DataObject
) -> None:
    store, reader = made
    selection = everything(store.length)
    first_wanted: dict[str, set[int]] = {}
    for _ in range(data.draw(st.integers(1, 5))):
        columns = data.draw(st.lists(st.sampled_from([FLAT, JAGGED, "other"]), max_size=3))
        if not selection.count:
            break
        store.load(columns, selection)
        for column in columns:
            first_wanted.setdefault(column, units_wanted(store, selection))
            assert ak.to_list(store.file(column, selection)) == expected(reader, column, selection)
            assert store.file(column, selection) is store.file(column, selection)
        selection = shrink(data.draw, selection)
    assert_read_once(store, reader, first_wanted)


@given(stores(), st.data())
def test_any_selections_read_each_row_once_and_are_right(
    made: tuple[ColumnStore, FakeReader], data: st.DataObject
) -> None:
    """Also when a later step wants units that an earlier one did not."""
    store, reader = made
    wanted: dict[str, set[int]] = {}
    for _ in range(data.draw(st.integers(1, 5))):
        selection = shrink(data.draw, everything(store.length))
        column = data.draw(st.sampled_from([FLAT, JAGGED]))
        if not selection.count:
            continue
        how = data.draw(st.sampled_from(["file", "over", "whole"]))
        ranges = store.ranges(selection)
        rows = [row for first, last in ranges for row in range(first, last)]
        if how == "file":
            found = store.file(column, selection)
            assert ak.to_list(found) == expected(reader, column, selection)
        elif how == "over":
            over = Selection(store.length, np.array(rows, dtype=np.int64))
            assert ak.to_list(store.over(column, ranges)) == expected(reader, column, over)
        else:
            stored = store.whole(column, selection)
            picked = take(stored.array, store.locate(selection, stored.ranges))
            assert ak.to_list(picked) == expected(reader, column, selection)
        wanted.setdefault(column, set()).update(units_wanted(store, selection))
    assert_read_once(store, reader, wanted)


def assert_read_once(store: ColumnStore, reader: FakeReader, wanted: dict[str, set[int]]) -> None:
    for column in reader.columns:
        read = [row - BEFORE for name, a, b in reader.reads if name == column for row in range(a, b)]
        assert len(read) == len(set(read)), "a row was read twice"
        unit_of = np.searchsorted(store.borders, read, side="right") - 1
        assert set(unit_of.tolist()) == wanted.get(column, set())


@given(stores(), st.data())
def test_columns_asked_for_together_are_one_request_per_contiguous_range(
    made: tuple[ColumnStore, FakeReader], data: st.DataObject
) -> None:
    store, reader = made
    selection = shrink(data.draw, everything(store.length))
    store.load([FLAT, JAGGED, FLAT], selection)
    alive = np.zeros(len(store.borders) + 1, dtype=np.int8)
    alive[[unit + 1 for unit in units_wanted(store, selection)]] = 1
    contiguous = int((np.diff(alive) == 1).sum())
    assert len(reader.requests) == contiguous
    assert all(columns == (FLAT, JAGGED) for columns, _, _ in reader.requests)
    store.load([FLAT, JAGGED], selection)
    assert len(reader.requests) == contiguous


@given(stores(), st.data())
def test_made_columns_are_gathered_for_any_subset(made: tuple[ColumnStore, FakeReader], data: st.DataObject) -> None:
    store, _ = made
    home = shrink(data.draw, everything(store.length))
    store.put("m", home, home.positions() * 2)
    inner = shrink(data.draw, home)
    assert store.made("m", inner).tolist() == (inner.positions() * 2).tolist()
    store.put("m", home, home.positions() * 3)
    assert store.made("m", inner).tolist() == (inner.positions() * 3).tolist()


def simple() -> tuple[ColumnStore, FakeReader]:
    reader = FakeReader({"x": np.arange(6.0)})
    return ColumnStore(reader, 0, 6, np.array([0, 2, 4, 6])), reader


def test_a_made_column_and_a_file_column_of_one_name_are_kept_apart() -> None:
    """A glob may read a file column that has the name of a weight."""
    store, _ = simple()
    some = Selection(6, np.array([1, 4]))
    store.put("x", everything(6), np.full(6, -1.0))
    assert store.made("x", some).tolist() == [-1.0, -1.0]
    assert store.file("x", some).tolist() == [1.0, 4.0]
    assert store.made("x", some).tolist() == [-1.0, -1.0]


def test_a_whole_column_is_handed_out_without_a_copy() -> None:
    store, _ = simple()
    rows = everything(6)
    assert store.file("x", rows) is store.whole("x", rows).array
    values: NDArray[np.float64] = np.ones(6)
    store.put("m", rows, values)
    assert store.made("m", rows) is values


def test_has_says_whether_exactly_these_rows_were_read() -> None:
    store, _ = simple()
    assert not store.has("x", ((0, 6),))
    store.load(["x"], Selection(6, np.array([0, 5])))
    assert store.has("x", ((0, 2), (4, 6)))
    assert not store.has("x", ((0, 2),))
    store.load(["x"], everything(6))
    assert store.has("x", ((0, 6),))


def test_a_failed_read_is_remembered_and_timed() -> None:
    store, reader = simple()
    reader.fails = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        store.load(["x"], everything(6))
    assert store.read_error is reader.fails
    assert store.read_seconds > 0


def test_concatenate_joins_arrays_of_one_kind() -> None:
    one = np.array([1, 2])
    assert concatenate([one]) is one
    assert isinstance(concatenate([one, one]), np.ndarray)
    assert ak.to_list(concatenate([ak.Array([[1]]), ak.Array([[], [2]])])) == [[1], [], [2]]
