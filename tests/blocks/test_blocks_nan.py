"""Rows with NaN are found in numbers and in lists of numbers."""

from __future__ import annotations

import math
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.blocks.columns import rows_with_nan

NUMBERS = st.sampled_from([0.0, 1.5, math.nan, math.inf, -math.inf])


def expected(rows: list[Any]) -> list[bool]:
    def bad(value: Any) -> bool:
        if isinstance(value, list):
            return any(bad(one) for one in value)
        return value is not None and math.isnan(value)

    return [bad(row) for row in rows]


@given(st.lists(NUMBERS, max_size=8))
def test_numbers(rows: list[float]) -> None:
    mask = rows_with_nan(np.array(rows, dtype=np.float32))
    assert (mask is not None) == any(expected(rows))
    if mask is not None:
        assert mask.tolist() == expected(rows)


@given(st.lists(st.lists(NUMBERS, max_size=3), max_size=6), st.booleans())
def test_lists(rows: list[list[float]], deeper: bool) -> None:
    values: list[Any] = [[row, []] for row in rows] if deeper else rows
    mask = rows_with_nan(ak.Array(values))
    assert (mask is not None) == any(expected(values))
    if mask is not None:
        assert mask.tolist() == expected(values)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 2]),
        np.array([True]),
        np.array(["nan"]),
        ak.Array(["nan", "b"]),
        ak.Array([["nan"], []]),
        ak.Array([{"x": math.nan}]),
        ak.Array([]),
        None,
    ],
)
def test_what_is_no_number_has_none(values: Any) -> None:
    assert rows_with_nan(values) is None


def test_missing_values_are_not_nan() -> None:
    mask = rows_with_nan(ak.Array([None, math.nan, [1.0], [math.nan, None]][:2]))
    assert mask is not None
    assert mask.tolist() == [False, True]
    lists = rows_with_nan(ak.Array([None, [math.nan, None], [None]]))
    assert lists is not None
    assert lists.tolist() == [False, True, False]
