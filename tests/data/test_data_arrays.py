"""Rows that are in memory."""

from __future__ import annotations

import pickle
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow.data
from windrow.errors import MissingColumnError, SpecError

lists = st.lists(st.lists(st.floats(-10, 10, width=32), max_size=3), min_size=1, max_size=40)


@given(lists, st.data())
def test_any_range_is_the_slice_of_the_arrays(values: list[list[float]], data: Any) -> None:
    jagged = ak.Array(values) if any(values) else ak.values_astype(ak.Array([[0.0]])[:, :0], "f8")
    rows = len(jagged)
    flat = np.arange(rows, dtype=">i4")
    reader = windrow.data.open({"flat": flat, "jagged": jagged}).open(0)
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    out = reader.read(["flat", "jagged"], start, stop)
    assert out["flat"].dtype == np.dtype("i4")
    assert out["flat"].tolist() == list(range(start, stop))
    assert out["jagged"].tolist() == jagged[start:stop].tolist()
    layout = out["jagged"].layout
    assert isinstance(layout, ak.contents.ListOffsetArray)
    assert layout.offsets[0] == 0
    assert layout.offsets[-1] == len(layout.content)


def test_kinds_of_columns() -> None:
    reader = windrow.data.open(
        {
            "flag": np.array([True, False]),
            "strided": np.arange(4.0)[::2],
            "jagged": [[1], [2, 3]],
            "nested": [[[1]], []],
            "text": ["a", "b"],
            "fixed": np.zeros((2, 3)),
            "masked": np.ma.array([1, 2], mask=[False, True]),
            "missing": ak.Array([1, None]),
            "indexed": ak.Array([[1.0], [2.0], []])[[2, 0]],
            "Muon": ak.Array([[{"pt": 1.0, "q": 1}], []]),
            "MET": ak.Array([{"pt": 1.0}, {"pt": 2.0}]),
        },
        grid=1,
    ).open(0)
    kinds = {name: c.kind for name, c in reader.info.columns.items()}
    assert kinds == {
        "flag": "flat",
        "strided": "flat",
        "jagged": "jagged",
        "nested": "other",
        "text": "other",
        "fixed": "other",
        "masked": "other",
        "missing": "other",
        "indexed": "jagged",
        "Muon.pt": "jagged",
        "Muon.q": "jagged",
        "MET.pt": "flat",
    }
    assert reader.info.collections == {"Muon": ("Muon.pt", "Muon.q"), "MET": ("MET.pt",)}
    assert reader.info.borders == (0, 1, 2)
    assert reader.info.identity == "data"
    out = reader.read(list(kinds), 0, 2)
    assert out["strided"].flags.c_contiguous
    assert out["indexed"].tolist() == [[], [1.0]]
    assert out["masked"].tolist() == [1, None]
    assert out["Muon.q"].tolist() == [[1], []]
    assert out["text"].tolist() == ["a", "b"]


def test_reads_and_bytes_are_counted() -> None:
    reader = windrow.data.open({"x": np.zeros(10, "f4"), "y": np.zeros(10)}).open(0)
    reader.read(["x"], 2, 6)
    reader.read(["x", "y"], 0, 1)
    assert reader.bytes_read == 4 * 4 + 4 + 8
    assert reader.reads == [("x", 2, 6), ("x", 0, 1), ("y", 0, 1)]
    with pytest.raises(MissingColumnError, match="data has no column 'z'"):
        reader.read(["z"], 0, 1)
    reader.close()


def test_no_rows_are_valid() -> None:
    reader = windrow.data.open({"x": np.empty(0), "y": ak.Array([[1]])[:0]}).open(0)
    assert reader.info.rows == 0
    assert reader.info.borders == (0,)
    out = reader.read(["x", "y"], 0, 0)
    assert len(out["x"]) == len(out["y"]) == 0


def test_arrays_pickle() -> None:
    source = windrow.data.open({"x": np.arange(3), "y": [[1], [], [2]]}, grid=2)
    again = pickle.loads(pickle.dumps(source))
    assert again.inputs == source.inputs
    assert again.datasets == source.datasets
    assert again.open(0).read(["y"], 0, 3)["y"].tolist() == [[1], [], [2]]
    assert again.open(0).info.borders == (0, 2, 3)
    pickle.loads(pickle.dumps(again.open(0).info))


def test_what_is_no_column_is_named() -> None:
    with pytest.raises(SpecError, match="'y'"):
        windrow.data.open({"x": np.arange(2), "y": np.array([object(), object()])})
