"""What a user's function returned is checked, and the message says what came instead."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import pytest

from windrow.blocks.results import UpDown, Verdict, check_column, check_cut, check_weight, updown
from windrow.errors import StepResultError

GOOD_CUTS: list[Any] = [
    np.array([True, False, True]),
    [True, False, True],
    (True, False, True),
    ak.Array([True, False, True]),
    ak.Array([True, False, None])[[0, 1, 0]],
    np.ma.array([True, False, True], mask=[False, False, False]),
]


@pytest.mark.parametrize("value", GOOD_CUTS, ids=lambda value: type(value).__name__)
def test_cuts_in_any_form_become_booleans(value: Any) -> None:
    verdict = check_cut("c", value, 3)
    assert verdict.passed.tolist() == [True, False, True]
    assert verdict.passed.dtype == np.bool_
    assert verdict.undefined is None


@pytest.mark.parametrize(
    "value",
    [ak.Array([True, None, False]), np.ma.array([True, True, False], mask=[False, True, False])],
    ids=["awkward", "masked"],
)
def test_none_is_on_neither_side(value: Any) -> None:
    verdict = check_cut("c", value, 3)
    assert verdict.undefined is not None
    assert verdict.undefined.tolist() == [False, True, False]
    assert verdict.side(False).tolist() == [True, False, False]
    assert verdict.side(True).tolist() == [False, False, True]
    assert verdict.parts[0].tolist() == [1, 2, 0]


def test_all_none_is_undefined_everywhere() -> None:
    verdict = check_cut("c", ak.Array([None, None]), 2)
    assert verdict.undefined is not None
    assert verdict.undefined.all()
    assert not verdict.passed.any()


def test_sides_without_none_are_opposites() -> None:
    verdict = Verdict(np.array([True, False]))
    assert verdict.side(True).tolist() == [False, True]
    assert verdict.parts[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "but returned bool True"),
        (np.True_, r"shape \(\) and type bool"),
        (None, "is a return missing"),
        ("yes", "but returned str 'yes'"),
        ({"a": 1}, "but returned dict"),
        (np.array([1, 0, 1]), "must return booleans.*int64.*x > 0"),
        (ak.Array([1.5, 2.0, 0.0]), "must return booleans.*float64"),
        (np.array([True, False]), r"expected shape \(3,\), got a NumPy array of shape \(2,\)"),
        (np.ones((3, 2), bool), r"expected shape \(3,\), got a NumPy array of shape \(3, 2\)"),
        (ak.Array([True]), r"expected shape \(3,\), got a NumPy array of shape \(1,\)"),
        (np.ma.array([1, 2, 3], mask=[True, False, False]), "must return booleans"),
        (ak.Array([[True], [], [False]]), r"one list per row .*ak.any\(..., axis=1\)"),
        ([[True], [], [False, True]], r"one list per row .*ak.any\(..., axis=1\)"),
        (ak.Array([{"x": True}] * 3), "but returned records"),
    ],
)
def test_bad_cuts(value: Any, message: str) -> None:
    with pytest.raises(StepResultError, match=message) as caught:
        check_cut("c", value, 3)
    assert "cut 'c'" in str(caught.value)


def test_columns_become_numpy_or_awkward_arrays() -> None:
    flat, jagged = np.arange(3), ak.Array([[1], [], [2, 3]])
    assert check_column("c", flat, 3) is flat
    assert check_column("c", jagged, 3) is jagged
    assert isinstance(check_column("c", [1, 2, 3], 3), np.ndarray)
    assert ak.to_list(check_column("c", [[1], [], [2, 3]], 3)) == [[1], [], [2, 3]]
    masked = check_column("c", np.ma.array([1, 2, 3], mask=[False, True, False]), 3)
    assert ak.to_list(masked) == [1, None, 3]
    assert check_column("c", np.ones((3, 2)), 3).shape == (3, 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.0, "one entry per row .*float 1.0"),
        (np.float64(1.0), "one entry per row"),
        (np.array(1.0), r"shape \(\)"),
        (None, "is a return missing"),
        ("abc", "str 'abc'"),
        (ak.Record({"x": 1}), "but returned Record"),
        (np.arange(2), "expected length 3, got length 2.*rows with a cut"),
        (ak.Array([[1], [2]]), "expected length 3, got length 2"),
        (updown(1, 2, 3), "only a weight has variations"),
        ("x" * 100, r"str 'x+\.\.\.$"),
    ],
)
def test_bad_columns(value: Any, message: str) -> None:
    with pytest.raises(StepResultError, match=message) as caught:
        check_column("c", value, 3)
    assert "column 'c'" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [2, np.float32(2), np.array(2), [2, 2, 2], np.full(3, 2), ak.Array([2, 2, 2])],
    ids=lambda value: type(value).__name__,
)
def test_weights_become_one_float_per_row(value: Any) -> None:
    weight = check_weight("w", value, 3)
    assert isinstance(weight, np.ndarray)
    assert weight.dtype == np.float64
    assert weight.tolist() == [2.0, 2.0, 2.0]


def test_variations_of_a_weight_are_checked_one_by_one() -> None:
    weight = check_weight("w", updown(np.ones(2), 1.5, [0.5, 0.6]), 2)
    assert isinstance(weight, UpDown)
    assert [part.tolist() for part in weight.parts] == [[1, 1], [1.5, 1.5], [0.5, 0.6]]
    with pytest.raises(StepResultError, match="expected length 2"):
        check_weight("w", updown(1, 1, [1, 2, 3]), 2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "is a return missing"),
        ("heavy", "str 'heavy'"),
        (np.ones(2), r"expected length 3, got a NumPy array of shape \(2,\)"),
        (np.ones((3, 1)), r"shape \(3, 1\)"),
        (ak.Array([1.0, None, 2.0]), "an awkward array of type"),
        (ak.Array([[1.0], [], [2.0]]), "an awkward array of type"),
        (np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False]), "with masked values"),
        (np.array([1, 2, 3j]), "complex128"),
        ([1, None, "x"], "list"),
    ],
)
def test_bad_weights(value: Any, message: str) -> None:
    with pytest.raises(StepResultError, match=message) as caught:
        check_weight("w", value, 3)
    assert "weight 'w'" in str(caught.value)


def test_zero_rows_are_fine() -> None:
    assert check_cut("c", np.zeros(0, dtype=bool), 0).passed.shape == (0,)
    assert len(check_column("c", ak.Array([[1]])[:0], 0)) == 0
    weight = check_weight("w", 2.0, 0)
    assert isinstance(weight, np.ndarray)
    assert weight.shape == (0,)
