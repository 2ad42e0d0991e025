"""What tasks used, as a line with a bound above it: robust, monotone, never negative, and to be inverted."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.records import Measurement
from windrow.shape.allocation.usage import ANY_ROWS, KEPT, TaskUsage, UsageFit, fit_line


def used(memory: float, *, idle: float = 0.0, wall: float = 1.0, cpu: float = 1.0, written: float = 0) -> Measurement:
    return Measurement(wall, cpu, peak_memory=int(memory), baseline=int(idle), bytes_written=int(written))


def usage_of(points: list[tuple[int, float]], idle: float = 0.0) -> TaskUsage:
    usage = TaskUsage()
    for rows, memory in points:
        usage.add(rows, used(memory, idle=idle))
    return usage


def fit_of(points: list[tuple[int, float]], idle: float = 0.0) -> UsageFit:
    fit = usage_of(points, idle).fit()
    assert fit is not None
    return fit


SIZES = st.lists(st.integers(1_000, 100_000), min_size=20, max_size=200, unique=True)
ANY_POINTS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**10)), max_size=60)


@given(SIZES, st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 30_000))
def test_a_line_is_found_again(sizes: list[int], idle: int, more: int, per_row: int) -> None:
    fit = fit_of([(rows, idle + more + per_row * rows) for rows in sizes], idle)
    assert fit.per_row == pytest.approx(per_row, rel=1e-6)
    assert fit.fixed == pytest.approx(idle + more, rel=1e-6, abs=per_row)
    assert fit.upper(5_000) == pytest.approx(fit.expected(5_000))


@given(SIZES, st.data())
def test_one_in_ten_of_ten_times_as_much_does_not_move_the_line(sizes: list[int], data: st.DataObject) -> None:
    outliers = data.draw(st.sets(st.sampled_from(sizes), max_size=len(sizes) // 10))
    true = {rows: 2e8 + 15_000 * rows for rows in sizes}
    fit = fit_of([(rows, true[rows] * (10 if rows in outliers else 1)) for rows in sizes])
    # Sizes that are nearly the same say nothing of the slope, however many they are.
    if max(sizes) > 2 * min(sizes) and len([one for one in sizes if one > 1.2 * min(sizes)]) > len(sizes) / 2:
        for rows in (min(sizes), max(sizes)):
            assert fit.expected(rows) == pytest.approx(true[rows], rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_outliers_move_the_line_through_noise_by_less_than_the_noise(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randint(1_000, 65_536) for _ in range(KEPT)]
    points = [(rows, (1e8 + 20_000 * rows) * rng.uniform(0.85, 1.15)) for rows in sizes]
    outliers = [(rows, 10 * memory if rng.random() < 0.1 else memory) for rows, memory in points]
    middle = 1e8 + 20_000 * 32_768
    for rows in (1_000, 16_384, 65_536, 131_072):
        true = 1e8 + 20_000 * rows
        assert fit_of(points).expected(rows) == pytest.approx(true, rel=0.1, abs=0.07 * middle)
        assert fit_of(outliers).expected(rows) == pytest.approx(true, rel=0.1, abs=0.07 * middle)


@given(ANY_POINTS, st.integers(0, 10**9), st.lists(st.integers(0, 10**7), min_size=2, max_size=2))
def test_no_bound_is_negative_and_more_rows_never_take_less(
    points: list[tuple[int, int]], idle: int, sizes: list[int]
) -> None:
    usage = usage_of([(rows, memory) for rows, memory in points], idle)
    small, large = sorted(sizes)
    for resource in ("memory", "disk", "seconds", "cores"):
        fit = usage.fit(resource)
        if fit is None:
            assert not any(memory for _, memory in points) or not points
            continue
        assert fit.fixed >= 0
        assert 0 <= fit.expected(small) <= fit.expected(large)
        assert 0 <= fit.upper(small) <= fit.upper(large)


@given(ANY_POINTS, st.integers(0, 10**8), st.integers(1, 10**11))
def test_the_inverse_fits_and_one_row_more_does_not(points: list[tuple[int, int]], idle: int, amount: int) -> None:
    fit = usage_of([(rows, memory) for rows, memory in points], idle).fit()
    if fit is None:
        return
    rows = fit.most_rows(amount)
    assert (rows == 0) == (fit.upper(0) > amount)
    if rows > 1:
        assert fit.upper(rows) <= amount
    if 0 < rows < ANY_ROWS:
        assert fit.upper(rows + 1) >= amount * (1 - 1e-9)


def test_the_stated_share_of_new_tasks_keeps_to_the_bound() -> None:
    rng = random.Random(7)

    def task() -> tuple[int, float]:
        rows = rng.randint(2_000, 60_000)
        return rows, 1.2e8 + 20_000 * rows * rng.lognormvariate(0, 0.3)

    fit = fit_of([task() for _ in range(KEPT)], idle=1e8)
    for share in (0.5, 0.9, 0.98):
        kept = sum(memory <= fit.upper(rows, share) for rows, memory in (task() for _ in range(4_000)))
        assert kept / 4_000 == pytest.approx(share, abs=0.05)


def test_few_tasks_are_given_more_than_the_largest_by_what_they_differ() -> None:
    assert fit_of([(1, 100.0)] * 5).upper(1) == 100
    assert fit_of([(1, 100.0), (1, 100.0), (1, 130.0)]).upper(1) == pytest.approx(160)


def test_a_change_is_followed_within_a_handful_of_tasks_upwards() -> None:
    usage = usage_of([(1_000 + number, 1e9) for number in range(KEPT)])
    assert usage.fit().upper(1_000) == pytest.approx(1e9, rel=0.01)  # type: ignore[union-attr]
    for number in range(5):
        usage.add(1_000 + number, used(3e9))
    usage.refit = True
    assert usage.fit().upper(1_000) == pytest.approx(3e9, rel=0.02)  # type: ignore[union-attr]


def test_one_size_cannot_tell_fixed_from_rows_so_all_above_an_idle_worker_is_the_rows() -> None:
    fit = fit_of([(100, 3e8)] * 9 + [(101, 3e8)] * 9, idle=1e8)
    assert fit.fixed == 1e8
    assert fit.expected(200) == pytest.approx(5e8, rel=0.02)


def test_the_next_bound_after_a_failure_is_that_of_tasks_like_it() -> None:
    points = [(rows, 1e6 * rows * (5 if rows % 10 == 0 else 1)) for rows in range(100, 200)]
    fit = fit_of(points)
    assert fit.upper(100, 0.8) == pytest.approx(1e8, rel=0.01)
    assert fit.upper_beyond(100, 1.5e8, 0.8) == pytest.approx(5e8, rel=0.01)
    assert fit.upper_beyond(100, 6e8) is None
    assert fit.least(100, 3e8) == pytest.approx(3e6, rel=0.01)


def test_all_resources_are_learned_and_survive_as_plain_data() -> None:
    usage = TaskUsage()
    for rows in range(100, 400, 10):
        usage.add(
            rows, used(5e8 + rows * 1e6, idle=2e8, wall=1 + rows / 100, cpu=2 * (1 + rows / 100), written=rows * 50)
        )
    again = TaskUsage(**json.loads(json.dumps(usage.plain())))
    for one in (usage, again):
        assert one.count == 30
        assert one.fit("seconds")[:2] == pytest.approx((1, 0.01))  # type: ignore[index]
        assert one.fit("disk")[:2] == pytest.approx((0, 50), abs=1e-6)  # type: ignore[index]
        assert one.fit("cores").expected(1_000) == pytest.approx(2)  # type: ignore[union-attr]
        assert (one.idle, one.most("rows"), one.most("disk")) == (2e8, 390, 19_500)
    assert again.fit() == usage.fit()


def test_what_was_not_measured_is_not_learned() -> None:
    assert TaskUsage().fit() is None
    assert usage_of([(10, 0.0)] * 20).fit() is None
    assert usage_of([(10, 0.0)] * 20).fit("seconds") is not None


def test_most_used_no_disk_and_some_did() -> None:
    usage = TaskUsage()
    for number in range(40):
        usage.add(100, used(1e6, written=0 if number % 4 else 1e6))
    assert usage.fit("disk").upper(100) >= 1e6  # type: ignore[union-attr]


def test_lines_are_made_anew_seldom_and_points_are_bounded() -> None:
    usage = TaskUsage()
    made = 0
    for number in range(2_000):
        made += usage.add(100 + number % 100, used(1e6 + number))
        usage.fit()
    assert made < 70
    assert len(usage.plain()["points"]) == KEPT


def test_a_line_without_points_of_rows_is_flat() -> None:
    assert fit_line([(0, 5.0), (0, 7.0), (0, 9.0)]) == (7.0, 0.0)


def test_what_a_task_had_used_when_it_was_ended_is_no_more_than_a_lower_bound() -> None:
    usage = TaskUsage()
    for rows in (40, 20, 10, 10, 5, 5):
        usage.add(rows, used(100, idle=90), ended=True)
    fit = usage.fit()
    assert fit is not None
    assert fit.per_row == 0  # nothing else is known
    for rows in (1, 2, 1, 3):
        usage.add(rows, used(90 + 30 * rows, idle=90))
    fit = usage.fit()
    assert fit is not None
    assert (fit.fixed, fit.per_row) == pytest.approx((90, 30))
    for rows in (5, 6, 7, 8):  # the data have changed
        usage.add(rows, used(90 + 300 * rows, idle=90), ended=True)
    fit = usage.fit()
    assert fit is not None
    assert fit.per_row > 100
