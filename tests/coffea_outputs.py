"""A comparison of what processors give: integers and orders exactly, sums of floats to 1e-12 or to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same(one: Any, other: Any, *, bits: bool = False) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert set(one) == set(other)
        for key in one:
            assert_same(one[key], other[key], bits=bits)
    elif hasattr(one, "axes"):
        assert one.axes == other.axes
        for view in ("values", "variances"):
            _assert_close(getattr(one, view)(flow=True), getattr(other, view)(flow=True), bits=bits)
    elif isinstance(one, float):
        _assert_close(one, other, bits=bits)
    elif hasattr(one, "value"):  # a column: the rows in their order
        assert np.array_equal(one.value, other.value)
    else:
        assert one == other


def _assert_close(one: Any, other: Any, *, bits: bool) -> None:
    one, other = np.asarray(one), np.asarray(other)
    if bits or one.dtype.kind != "f":
        assert one.tobytes() == other.tobytes()
    else:
        scale = np.abs(other).max(initial=1.0)
        assert np.abs(one - other).max(initial=0.0) <= 1e-12 * scale
