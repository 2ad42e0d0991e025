"""Which results leave memory, and who adds which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.shape import reduce


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
