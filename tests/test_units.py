"""Sizes, rates and times: what people write, and back."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import awkward as ak
import boost_histogram as bh
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import UsageError
from windrow.units import (
    estimate_bytes,
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 GB", 2_000_000_000),
        ("2GB", 2_000_000_000),
        ("  2  GB ", 2_000_000_000),
        ("1.1 GB", 1_100_000_000),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("1 KiB", 1024),
        ("1.5 GiB", 1_610_612_736),
        (".5 MB", 500_000),
        ("1. MB", 1_000_000),
        ("1_000 MB", 10**9),
        ("2e3 MB", 2 * 10**9),
        ("3 EB", 3 * 10**18),
        ("1 EiB", 2**60),
        ("4096", 4096),
        ("17 B", 17),
        (4096, 4096),
        (2e9, 2_000_000_000),
        (1.6, 2),
        (np.int32(7), 7),
        (np.float32(8.0), 8),
        (Fraction(9, 1), 9),
        (2**80, 2**80),
    ],
)
def test_parse_bytes(text: Any, expected: int) -> None:
    got = parse_bytes(text)
    assert got == expected
    assert type(got) is int


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("450 MB/s", 450e6),
        ("450MB / s", 450e6),
        ("1 GiB/s", 2.0**30),
        ("3 GB/min", 50e6),
        ("1 B/ms", 1000.0),
        ("7", 7.0),
        (12.5, 12.5),
        (np.float32(0.5), 0.5),
    ],
)
def test_parse_rate(text: Any, expected: float) -> None:
    got = parse_rate(text)
    assert got == expected
    assert type(got) is float


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 min", 300.0),
        ("1 h 30 min", 5400.0),
        ("1h30min", 5400.0),
        ("2 d 3 h", 183_600.0),
        ("250 ms", 0.25),
        ("10 us", 1e-5),
        ("10 \u00b5s", 1e-5),
        ("10 \u03bcs", 1e-5),
        ("3 ns", 3e-9),
        ("90", 90.0),
        ("0.1 s", 0.1),
        (90, 90.0),
        (0.25, 0.25),
    ],
)
def test_parse_seconds(text: Any, expected: float) -> None:
    got = parse_seconds(text)
    assert got == expected
    assert type(got) is float


WRONG = ["", " ", "GB", "two GB", "-1 GB", "1.2.3 GB", "1,5 GB", "2 GB GB", "2 XB", "1 e9 MB s", "inf"]
WRONG += ["1e999 GB", "9" * 100, "nan"]


@pytest.mark.parametrize(
    ("parse", "values", "words"),
    [
        (parse_bytes, ["2 G", "2 Gb", "2 gb", "2 GB/s", "2 min", "1 KiB 2 B"], ["2 GB", "GiB"]),
        (parse_rate, ["450 MB", "450 /s", "1 Mb/s", "1 MB/x", "1 MB/", "1 MB/s/s"], ["450 MB/s"]),
        (parse_seconds, ["5 minutes", "1 h 30", "1 30", "1 h, 2 min", "2 GB", "1:30"], ["5 min"]),
    ],
)
def test_wrong_input_says_what_forms_exist(parse: Any, values: list[str], words: list[str]) -> None:
    others: list[Any] = [None, True, -1, -0.5, math.nan, math.inf, [1], b"2 GB", 1j]
    for value in [*values, *WRONG, *others]:
        with pytest.raises(UsageError) as caught:
            parse(value)
        assert repr(value) in str(caught.value)
        assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (2_000_000_000, "2 GB"),
        (4.5e21, "4500 EB"),
        (-1500, "-1.5 kB"),
        (math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_format_bytes(value: float, expected: str) -> None:
    assert format_bytes(value) == expected
    assert format_rate(value) == f"{expected}/s"


def test_format_bytes_binary() -> None:
    assert format_bytes(2**30, binary=True) == "1 GiB"
    assert format_bytes(1023 * 1024, binary=True) == "1023 KiB"
    assert format_bytes(1000, binary=True) == "1000 B"
    assert format_bytes(1024 * 1023.9, binary=True) == "1 MiB"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (7, "7"), (999, "999"), (1_234, "1.23 k"), (45_600_000, "45.6 M"), (math.nan, "?")],
)
def test_format_count(value: float, expected: str) -> None:
    assert format_count(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"),
        (3e-9, "3 ns"),
        (2.5e-5, "25 us"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (320, "5 min 20 s"),
        (3599.7, "1 h"),
        (5400, "1 h 30 min"),
        (86_399, "1 d"),
        (183_600, "2 d 3 h"),
        (-90, "-1 min 30 s"),
        (math.inf, "?"),
    ],
)
def test_format_seconds(value: float, expected: str) -> None:
    assert format_seconds(value) == expected


@given(st.integers(0, 10**20), st.booleans())
def test_bytes_round_trip(value: int, binary: bool) -> None:
    text = format_bytes(value, binary=binary)
    back = parse_bytes(text)
    assert abs(back - value) <= 0.005001 * value
    assert format_bytes(back, binary=binary) == text


@given(st.floats(1e-3, 1e20))
def test_rates_round_trip(value: float) -> None:
    text = format_rate(value)
    back = parse_rate(text)
    assert back == pytest.approx(value, rel=0.00501)
    assert format_rate(back) == text


@given(st.floats(1e-9, 1e8))
def test_seconds_round_trip(value: float) -> None:
    text = format_seconds(value)
    back = parse_seconds(text)
    # Half of the smaller of two units, at worst half an hour of a day.
    assert back == pytest.approx(value, rel=0.0209)
    assert format_seconds(back) == text


@given(st.integers(0, 2**63), st.sampled_from(["B", "kB", "MB", "GB", "KiB", "MiB", "TiB", "EB"]))
def test_whole_numbers_of_a_unit_are_exact(count: int, unit: str) -> None:
    assert parse_bytes(f"{count} {unit}") == count * parse_bytes(f"1 {unit}")


@given(st.just(0.0) | st.floats(1e-12, 1e15), st.floats(1e-12, 1e15))
def test_formats_never_reverse_an_order(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert parse_bytes(format_bytes(low)) <= parse_bytes(format_bytes(high))
    assert parse_seconds(format_seconds(low)) <= parse_seconds(format_seconds(high))


# -- what is in memory

LARGE = np.zeros(1_000_000)
HISTOGRAM = bh.Histogram(bh.axis.Regular(499_998, 0, 1), storage=bh.storage.Weight())


@pytest.mark.parametrize(
    "value",
    [
        LARGE,
        HISTOGRAM,
        ak.Array(LARGE),
        bytes(8_000_000),
        [LARGE],
        (1, LARGE, LARGE),
        {"a": [{"b": ({"c": {"d": HISTOGRAM}},)}]},
        [("place", {"out": {"jets": {"pt": HISTOGRAM}}, "metrics": {"columns": {"pt"}}})],
        SimpleNamespace(hist=SimpleNamespace(pt=LARGE)),
        [0.0] * 1_000_000,
        dict.fromkeys(range(1_000_000), 0.0),
        [np.zeros(25) for _ in range(40_000)],
        {"names": ["x"] * 900, "many": list(range(2000)), "large": LARGE},
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_size_of_a_value_is_that_of_the_arrays_in_it(value: Any) -> None:
    assert estimate_bytes(value) == pytest.approx(8_000_000, rel=0.05)


def test_the_size_of_a_table_is_that_of_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    assert estimate_bytes((pandas.DataFrame({"x": LARGE}),)) == pytest.approx(8_000_000, rel=0.05)


def test_the_size_of_what_is_small_odd_or_endless_is_no_more_than_a_guess() -> None:
    class Odd:
        @property
        def nbytes(self) -> int:
            raise ValueError("nobody knows")

    endless: list[Any] = []
    endless.append(endless)
    for value in (None, 3, 1.5, True, Odd(), [Odd()], np.ndarray, bh.Histogram, endless):
        assert estimate_bytes(value) == 0
