"""Which results leave memory, and which are added next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.shape import reduce


@pytest.mark.parametrize(
    ("count", "last", "groups"),
    [(38, False, []), (39, False, [20]), (40, False, [20, 20]), (59, False, [20, 20]), (41, True, [20, 20])],
)
def test_by_size_takes_the_groups_that_coffea_takes(count: int, last: bool, groups: list[int]) -> None:
    assert [len(group) for group in reduce.by_size([1] * count, last=last)] == groups


@given(sizes=st.lists(st.integers(0, 100), max_size=60), fan_in=st.integers(2, 8), last=st.booleans())
def test_by_size_takes_the_smallest_and_ends_with_one(sizes: list[int], fan_in: int, last: bool) -> None:
    groups = reduce.by_size(sizes, last=last, fan_in=fan_in)
    taken = [number for group in groups for number in group]
    assert len(set(taken)) == len(taken)
    left = set(range(len(sizes))) - set(taken)
    assert all(sizes[one] <= sizes[other] for one in taken for other in left)
    assert [sizes[number] for number in taken] == sorted(sizes[number] for number in taken)
    assert len(left) < 2 * fan_in - 1
    if last:
        assert len(left) <= 1


def test_two_large_results_stay_in_memory_and_many_small_ones() -> None:
    large = 400_000_000
    assert reduce.most_in_memory(large) == 2 * large
    assert reduce.most_in_memory(1) == reduce.SMALL_BYTES


@given(inputs=st.integers(0, 10_000), workers=st.integers(1, 200))
def test_families_are_powers_of_two_and_enough_for_all_workers(inputs: int, workers: int) -> None:
    size = reduce.family(inputs, workers)
    assert size.bit_count() == 1
    assert size == 1 or inputs // size >= reduce.FAMILIES * workers
    assert size == reduce.LARGEST_FAMILY or 2 * size * reduce.FAMILIES * workers > inputs
