"""How much to run at once: costs, tasks and blocks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from windrow.core.inputs import Cutter
from windrow.core.policies import ShapeRequest
from windrow.core.records import StepCost
from windrow.shape.costs import (
    FIXED_SHARE,
    LEAST_S,
    MOST_BLOCK,
    SMALLEST_BLOCK,
    StepKind,
    block_rows,
    enough_rows,
    fit,
    rows_within,
)
from windrow.shape.fixed import Fixed
from windrow.shape.guided import (
    CRUMB_S,
    FIRST_ROWS,
    LEAST_ROWS,
    MOST_ROWS,
    MOST_S,
    OPAQUE_ROWS,
    QUEUE_S,
    CappedUntilReordered,
    Guided,
)


def sums(calls: list[tuple[int, float]]) -> StepCost:
    cost = StepCost()
    for rows, wall in calls:
        cost = cost.merge(StepCost.of_call(rows, 0, wall))
    return cost


def affine(fixed: float, per_row: float, sizes: list[int]) -> StepCost:
    return sums([(rows, fixed + per_row * rows) for rows in sizes])


# -- costs


@given(st.floats(1e-6, 1.0), st.floats(1e-9, 1e-3), st.lists(st.integers(1, 10**6), min_size=2, max_size=20))
def test_an_affine_cost_is_found_again(fixed: float, per_row: float, sizes: list[int]) -> None:
    assume(max(sizes) > 2 * min(sizes))
    assume(per_row * max(sizes) > 1e-3 * fixed)  # otherwise the slope is lost in rounding
    found_fixed, found_per_row = fit(affine(fixed, per_row, sizes))
    assert found_fixed == pytest.approx(fixed, rel=1e-3, abs=1e-4 * per_row * max(sizes))
    assert found_per_row == pytest.approx(per_row, rel=1e-2)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 10)), max_size=20))
def test_no_fitted_cost_is_negative(calls: list[tuple[int, float]]) -> None:
    fixed, per_row = fit(sums(calls))
    assert fixed >= 0
    assert per_row >= 0
    assert math.isfinite(fixed + per_row)


def test_calls_of_one_size_cost_by_the_row() -> None:
    assert fit(sums([(100, 1.0), (100, 3.0)])) == (0.0, 0.02)
    assert fit(StepCost()) == (0.0, 0.0)
    assert fit(sums([(0, 2.0), (0, 4.0)])) == (3.0, 0.0)


def test_enough_rows_make_the_fixed_cost_small() -> None:
    rows = enough_rows(affine(0.001, 1e-7, [1000, 100_000]))
    assert rows == pytest.approx(0.001 / (FIXED_SHARE * 1e-7))
    assert enough_rows(affine(0.001, 0.0, [1000, 100_000])) == math.inf


# -- tasks


def request(**facts: object) -> ShapeRequest:
    known = {
        "category": "data",
        "workers": 2,
        "unit": 1000,
        "known": 100_000,
        "expected": 0,
        "running": 0,
        "costs": StepCost(),
    }
    return ShapeRequest(**(known | facts))  # type: ignore[arg-type]


def test_the_first_tasks_are_smaller_until_costs_are_known_or_remembered() -> None:
    large = request(known=10**7)
    assert Guided().rows(large) == FIRST_ROWS + 500
    quick = {"data": affine(1e-3, 1e-7, [1000, 10_000])}
    assert Guided(quick).rows(large) == MOST_ROWS + 500
    assert Guided({"other": quick["data"]}).rows(large) == FIRST_ROWS + 500
    slow = {"data": affine(0.0, 1e-3, [1000, 10_000])}
    assert Guided(slow).rows(large) == pytest.approx(MOST_S / 1e-3, rel=0.3)
    # What this run measured counts more than what an earlier one did.
    assert Guided(slow).rows(request(known=10**7, costs=quick["data"])) == MOST_ROWS + 500


def test_a_small_rest_is_divided_so_that_all_end_together() -> None:
    quick = affine(0.0, 1e-8, [1000, 10_000])
    assert Guided().rows(request(known=100_000, costs=quick)) == 50_500
    assert Guided().rows(request(known=50_000, running=50_000, costs=quick)) == 50_500
    assert Guided().rows(request(known=60_000, running=20_000, costs=quick)) == 40_500


def test_slow_rows_are_weighed_against_the_time_that_is_left() -> None:
    """Two seconds are 2,000 rows, and 200 where they take ten times as long; but half of what is left for a worker may go at once."""
    costs = affine(0.0, 1e-3, [1000, 10_000])

    def rows(left: int, slow: float = 0.0) -> int:
        return Guided().rows(request(known=left, costs=costs, slower=10.0, slow=slow, unit=1))

    assert rows(10_000) == 250  # 2,500 rows of others
    assert rows(10_000, slow=30_000) == 1_000  # a third of the rows left is as slow
    assert rows(10_000, slow=90_000) == 2_000  # all of them: 2 s by the mean, which is theirs then


def test_the_first_tasks_are_a_small_part_of_all() -> None:
    assert Guided().rows(request(known=100_000)) == 6_250 + 500
    assert Guided().rows(request(known=90_000, running=6_250)) == 11_250 + 500
    assert Guided().rows(request(known=6_000)) == 1_024 + 500  # but no handful of rows
    # An opaque function shows no first rows, and may meet an input whose rows take ten times as long.
    assert Guided(opaque=True).rows(request(known=100_000)) == 1_562 + 500


def test_no_task_is_made_longer_for_a_fixed_cost_that_none_can_have() -> None:
    """A line through tasks of inputs whose rows differ in cost puts it anywhere; the shortest task is a bound."""
    sums = StepCost()
    for rows, seconds in ((10_000, 4.0), (5_000, 3.9), (1_000, 2.6), (1_000, 0.1)):  # the last: an input of cheap rows
        sums = sums.merge(StepCost.of_call(rows, rows, seconds))
    assert fit(sums)[0] > 1
    large = request(known=10**7, costs=sums, unit=1)
    assert Guided(most_s=0.5).rows(large) > 15_000
    assert Guided(most_s=0.5).rows(replace(large, least_s=0.1)) < 2_500


def test_tasks_are_large_enough_for_their_fixed_cost_and_not_too_long() -> None:
    quick = affine(0.0, 1e-8, [1000, 10_000])
    assert Guided().rows(request(known=10**7, costs=quick)) == MOST_ROWS + 500
    assert Guided().rows(request(known=3_000_000, costs=quick)) == LEAST_ROWS + 500
    dear = affine(0.1, 1e-6, [1000, 10_000])  # two million rows would be enough
    assert Guided().rows(request(known=10**8, costs=dear)) < MOST_ROWS
    slow = affine(1e-5, 1e-3, [1000, 10_000])
    assert Guided().rows(request(known=10**8, costs=slow)) == pytest.approx(MOST_S / 1e-3, rel=0.3)


def test_rows_that_are_expected_count_as_left() -> None:
    cheap = affine(1e-5, 1e-6, [1000, 10_000])
    assert Guided().rows(request(known=400, expected=39_600, costs=cheap)) == 20_500


@given(
    st.integers(1, 64), st.lists(st.integers(1, 10**5), min_size=1, max_size=60), st.floats(0, 1.0), st.floats(0, 1e-4)
)
@example(2, [1, 2, 1], 5e-324, 5e-324)
@example(6, [1, 1, 1, 1, 1, 25], 0.0, 0.0)
def test_guided_tasks_cover_all_work_and_feed_every_worker(
    workers: int, units: list[int], fixed: float, per_row: float
) -> None:
    borders = [0]
    for unit in units:
        borders.append(borders[-1] + unit)
    cutter = Cutter(0, tuple(borders))
    cutter.add(0, borders[-1])
    sizes: list[int] = []
    shape = Guided()
    while cutter.rows:
        unit = cutter.next_unit()
        costs = affine(fixed, per_row, sizes)
        want = shape.rows(request(workers=workers, unit=unit, known=cutter.rows, costs=costs))
        assert want <= max(-(-cutter.rows // workers), unit) + unit // 2
        rows = cutter.cut(want)
        sizes.append(rows.stop - rows.start)
    assert sum(sizes) == borders[-1]
    if max(units) <= -(-borders[-1] // workers):  # a unit that is larger cannot be shared
        assert len(sizes) >= min(workers, len(units)) // 2


def test_short_tasks_are_queued_and_long_ones_are_not() -> None:
    for shape in (Guided(), Fixed(5)):
        assert shape.window(None) == 1
        assert shape.window(QUEUE_S) == shape.window(10.0) == 1
        assert shape.window(QUEUE_S / 4) == 4
        assert shape.window(0.0) > 1000


def test_a_fixed_size_is_what_the_user_said() -> None:
    assert Fixed(1234).rows(request()) == 1234


# -- blocks


def test_blocks_before_anything_is_measured() -> None:
    assert block_rows("flat") == 65_536
    assert block_rows("awkward") == 1_048_576
    assert block_rows("flat", StepCost()) == 65_536


@given(st.sampled_from(["flat", "awkward"]), st.floats(1e-7, 1.0), st.floats(1e-10, 1e-3))
def test_blocks_are_the_smallest_that_pay(kind: StepKind, fixed: float, per_row: float) -> None:
    cost = affine(fixed, per_row, [1000, 1_000_000])
    rows = block_rows(kind, cost)
    assert 1 <= rows <= MOST_BLOCK
    assert rows & (rows - 1) == 0
    enough, row_s = enough_rows(cost), fit(cost)[1]
    assert rows >= enough or rows == MOST_BLOCK
    assert rows >= SMALLEST_BLOCK or rows * row_s >= LEAST_S
    assert rows // 2 < max(enough, 1) or rows == SMALLEST_BLOCK or rows // 2 * row_s < LEAST_S


def test_parts_are_as_long_as_they_may_be_unless_calls_would_take_most_of_it() -> None:
    def rows(costs: StepCost, seconds: float, **more: object) -> float:
        return rows_within(request(parts=True, **more), costs, seconds)

    assert rows(affine(0.0, 0.001, [10, 50]), 0.1) == pytest.approx(100)
    assert rows(affine(0.05, 0.001, [10, 50]), 0.2) == pytest.approx(150)
    assert rows(affine(1.0, 0.001, [10, 50]), 0.1) == pytest.approx(1000)  # as much for rows as for the call
    assert rows(affine(0.5, -0.001, [211, 263]), 0.1) < 263  # the larger one was quicker, by chance
    assert rows(StepCost(), 0.1) == math.inf
    task = affine(1.0, 0.01, [100, 100, 100])  # of one size: the tasks alone do not tell
    slow, quick = affine(1.0, 0.05, [10, 20]), affine(0.0, 1e-6, [100, 50])
    assert rows(task, 0.1) == pytest.approx(5)
    steps = (("slow", slow), ("quick", quick))
    assert rows(task, 0.1, steps=steps) == pytest.approx(100, rel=1e-3)
    # Tasks that wait for a processor take longer; how much of their steps' time is for calls stays the same.
    waiting = affine(4.0, 0.01, [100, 100, 100])
    assert rows(waiting, 0.1, steps=steps) == rows(task, 0.1, steps=steps)


def test_further_parts_are_made_where_their_calls_cost_little() -> None:
    cheap, dear = (("step", affine(fixed, 0.01, [10, 50])) for fixed in (0.0, 1.0))

    def rows(left: int, *steps: tuple[str, StepCost]) -> int:
        return Guided().rows(request(parts=True, known=left, costs=affine(0.0, 0.01, [50, 50]), steps=steps))

    assert rows(10_000, cheap) == MOST_S / 0.01
    assert rows(400, cheap) == 100  # half of an even share, so that all end together
    assert rows(20, cheap) == 8 == QUEUE_S / 0.01
    assert rows(10_000, dear) == pytest.approx(900, abs=1)  # nine tenths of the time for rows
    assert rows(400, dear) == 200  # but no more than an even share
    # Before the order is decided half is enough.
    until = CappedUntilReordered(Guided(), lambda _: 0.1)
    until_rows = until.rows(request(parts=True, known=10_000, costs=affine(0.0, 0.01, [50, 50]), steps=(dear,)))
    assert until_rows == pytest.approx(100, abs=1)


@given(st.integers(1, 16), st.integers(1, 5000), st.floats(0, 2), st.floats(1e-4, 0.1))
def test_parts_cover_a_unit_in_few_tasks_of_which_none_is_above_an_even_share(
    workers: int, left: int, fixed: float, per_row: float
) -> None:
    steps, costs, tasks = (("step", affine(fixed, per_row, [10, 50])),), affine(fixed, per_row, [10, 50]), 0
    most = left * per_row / MOST_S + 40 * workers
    while left:
        rows = Guided().rows(request(parts=True, workers=workers, known=left, costs=costs, steps=steps))
        assert 1 <= rows <= max(left / workers, CRUMB_S * costs.rows_in / costs.wall, 1)
        left, tasks = left - rows, tasks + 1
    assert tasks <= most


def test_parts_until_the_order_is_decided_may_be_one_row() -> None:
    long = affine(0.0, 1.0, [1, 2])
    assert CappedUntilReordered(Guided(), lambda _: 0.1).rows(request(parts=True, costs=long)) == 1
    assert CappedUntilReordered(Guided(), lambda _: 0.1).rows(request(costs=long)) == 1000


def test_first_tasks_are_one_unit_unless_their_cost_is_known_from_an_earlier_run() -> None:
    costs = {"data": affine(1e-3, 1e-7, [1000, 10_000])}
    first = request(known=2_000_000, unit=200_000, category="data", workers=2)
    assert CappedUntilReordered(Guided(), lambda _: 0.1, {}).rows(first) == 200_000
    assert CappedUntilReordered(Guided(costs), lambda _: 0.1, costs).rows(first) >= 1_000_000


# -- opaque functions


def opaque(left: int, costs: StepCost, **more: object) -> ShapeRequest:
    return ShapeRequest("d", 2, 1, left, 0, 0, costs, **more)  # type: ignore[arg-type]


def test_a_rest_that_costs_no_more_than_another_task_goes_along() -> None:
    costs = affine(0.13, 1.7e-6, [30_000, 60_000, 300_000])
    shape = Guided(opaque=True)
    assert shape.rows(opaque(60_000, costs)) >= 60_000  # 0.13 s are 76,000 rows
    taken = shape.rows(opaque(240_000, costs))
    assert taken < 240_000 - 76_000


def test_tasks_of_one_size_are_no_reason_for_crumbs() -> None:
    alike, first = affine(0.13, 1.7e-6, [300_000, 310_000]), affine(0.13, 1.7e-6, [30_000, 60_000])
    known = Guided({"d": first}, opaque=True)
    assert known.rows(opaque(60_000, alike)) >= 60_000
    quick = affine(0.01, 1e-7, [30_000, 60_000])
    assert Guided({"d": quick}, opaque=True).rows(opaque(4_000_000, StepCost())) == OPAQUE_ROWS
