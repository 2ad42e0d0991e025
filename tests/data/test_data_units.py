"""Canonical units: they cover a file once, are bounded, and depend on nothing but the file."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.data.base import cluster_borders, common_borders, read_borders, unit_borders, units_within
from windrow.errors import SpecError

rows_and_borders = st.integers(0, 5000).flatmap(
    lambda rows: st.tuples(st.just(rows), st.lists(st.integers(-5, rows + 5), max_size=30))
)


@given(rows_and_borders, st.integers(1, 400), st.integers(0, 800))
def test_units_cover_all_rows_once_within_the_limits(case: tuple[int, list[int]], smallest: int, extra: int) -> None:
    rows, own = case
    largest = smallest + extra
    borders = unit_borders(rows, own, smallest=smallest, largest=largest)
    assert borders[0] == 0
    assert borders[-1] == rows
    assert all(a < b <= a + largest for a, b in pairwise(borders))
    for border in borders[1:-1]:
        before = max((b for b in [0, *own] if 0 <= b <= border), default=0)
        # A border is the file's own, or on the grid from where a unit of the file's own began.
        assert border in own or any((border - b) % largest == 0 for b in [0, *own] if b <= before)


@given(rows_and_borders, st.integers(1, 400))
def test_two_neighbours_are_small_only_where_joining_is_not_allowed(case: tuple[int, list[int]], smallest: int) -> None:
    rows, own = case
    borders = unit_borders(rows, own, smallest=smallest, largest=10_000)
    sizes = [b - a for a, b in pairwise(borders)]
    assert all(size >= smallest for size in sizes[:-1])


@given(st.integers(0, 300), st.integers(1, 64), st.lists(st.integers(0, 300)))
def test_a_grid_replaces_everything(rows: int, grid: int, own: list[int]) -> None:
    borders = unit_borders(rows, own, grid=grid)
    assert [b - a for a, b in pairwise(borders)][:-1] == [grid] * max(len(borders) - 2, 0)
    assert borders[-1] == rows


def test_an_empty_file_has_one_border() -> None:
    assert unit_borders(0) == (0,)
    assert unit_borders(0, [0]) == (0,)
    assert units_within((0,)) == ()


def test_small_units_are_joined_and_large_ones_cut() -> None:
    own = range(0, 400_001, 1000)
    assert unit_borders(400_000, own) == (0, 132_000, 264_000, 396_000, 400_000)
    assert unit_borders(600_000) == (0, 262_144, 524_288, 600_000)
    # A small unit is not joined to one that would become too large.
    assert unit_borders(300_010, [10]) == (0, 10, 262_154, 300_010)


@given(rows_and_borders, st.one_of(st.none(), st.integers(1, 50)))
def test_columns_are_read_for_units_or_parts_of_them(case: tuple[int, list[int]], grid: int | None) -> None:
    rows, own = case
    assert set(unit_borders(rows, own, grid=grid)) <= set(read_borders(rows, own, grid=grid))


def test_a_grid_must_be_positive() -> None:
    with pytest.raises(SpecError, match="at least 1"):
        unit_borders(10, grid=0)


@given(st.lists(st.lists(st.integers(0, 20)), min_size=1))
def test_common_borders_are_borders_of_every_column(columns: list[list[int]]) -> None:
    found = common_borders(columns)
    assert list(found) == sorted(set.intersection(*map(set, columns)))


def test_clusters_follow_the_recorded_ranges() -> None:
    assert cluster_borders(10, [], [], -1) == ()
    assert cluster_borders(10, [], [], 4) == (0, 4, 8, 10)
    assert cluster_borders(10, [5], [3], 2) == (0, 3, 6, 8, 10)
    assert cluster_borders(10, [5], [0], -1) == (0, 6, 10)
    assert cluster_borders(10, [9], [5], 5) == (0, 5, 10)


@given(st.integers(0, 200), st.integers(1, 50), st.lists(st.integers(0, 200), max_size=10, unique=True))
def test_units_within_steps_are_the_rows_of_the_steps(rows: int, grid: int, cuts: list[int]) -> None:
    cuts = sorted(c for c in cuts if c <= rows)
    steps = list(zip(cuts[::2], cuts[1::2], strict=False))
    borders = unit_borders(rows, grid=grid)
    units = units_within(borders, steps)
    wanted = [row for a, b in steps for row in range(a, b)]
    assert [row for a, b in units for row in range(a, b)] == wanted
    assert all(any(x <= a and b <= y for x, y in pairwise(borders)) for a, b in units)
    assert units_within(borders) == tuple(pairwise(borders))
