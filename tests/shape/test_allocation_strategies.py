"""Published first allocations: the numbers of their sources' formulas, and bucketing as its reference does it."""

from __future__ import annotations

import random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.shape.allocation.buckets import (
    FIRST,
    Buckets,
    drawn_cost,
    exhaustive_breaks,
    fill,
    fixed_cost,
    greedy_breaks,
)
from windrow.shape.allocation.strategies import BY_SIZE, FIXED, STRATEGIES, FirstAllocation, MaxSeen, thrift, throughput

MB = 1e6
MEMORY = [400, 420, 480, 600, 610, 900, 950, 1200, 2300, 2400]
SECONDS = [30, 30, 30, 40, 40, 60, 60, 80, 150, 160]


def first(score: object, top: float | None) -> FirstAllocation:
    made = FirstAllocation(score, top and top * MB)  # type: ignore[arg-type]
    for value, seconds in zip(MEMORY, SECONDS, strict=True):
        made.add(value * MB, seconds)
    return made


def test_the_table_of_steps() -> None:
    table = first(thrift, None).table()
    assert [row[:3] for row in table] == [
        (step * MB, within, beyond)
        for step, within, beyond in [(500, 3, 59), (750, 5, 51), (1000, 7, 39), (1250, 8, 31), (2500, 10, 0)]
    ]
    assert {row[3] for row in table} == {68}


@pytest.mark.parametrize(
    ("top", "wastes", "throughputs", "least", "most"),
    [
        (2400, [175600, 173400, 161600, 159400, 170000], [0.16850, 0.17647, 0.18505, 0.17535, 0.14118], 1250, 1000),
        (8000, [506000, 459000, 380000, 333000, 170000], [0.43307, 0.49020, 0.55140, 0.53737, 0.47059], 2500, 1000),
    ],
)
def test_least_waste_and_most_throughput(
    top: float, wastes: list[float], throughputs: list[float], least: float, most: float
) -> None:
    table = first(thrift, top).table()
    assert [-thrift(row, top * MB, 10) / MB for row in table] == pytest.approx(wastes)
    assert [throughput(row, top * MB, 10) for row in table] == pytest.approx(throughputs, abs=5e-6)
    assert first(thrift, top).predict(None, 0) == least * MB
    assert first(throughput, top).predict(None, 0) == most * MB
    assert first(thrift, top).predict(1250 * MB, 0) == max(2500, top) * MB
    assert first(thrift, top).predict(max(2500, top) * MB, 0) is None


@pytest.mark.parametrize(
    ("seen", "now", "then"),
    [(1900, 2000, 2250), (2000, 2250, 2250), (2100, 2250, 2250), (2167, 2250, 2500), (2168, 2500, 2500), (2250, 2500, 2500)],
)  # fmt: skip
def test_the_most_seen_has_a_margin_and_is_rounded_up(seen: float, now: float, then: float) -> None:
    for margin, amount in ((3, now), (2, then)):
        strategy = MaxSeen(margin)
        assert strategy.predict(None, 0) is None
        strategy.add(300 * MB, 1)
        strategy.add(seen * MB, 1)
        assert strategy.predict(None, 0) == amount * MB
        assert strategy.predict(amount * MB, 0) is None


WAYS = [(breaks, draws) for breaks in (greedy_breaks, exhaustive_breaks) for draws in (True, False)]


def filled(values: list[float], breaks: object, *, draws: bool) -> Buckets:
    made = Buckets(breaks, draws=draws, unit=1)  # type: ignore[arg-type]
    for value in values:
        made.add(value, 1)
    return made


@pytest.mark.parametrize(("breaks", "draws"), WAYS)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4000, 1000, 2000] * 3 + [4000], [(2000, 0.6), (4000, 0.4)]),
        (
            [500, 520, 480, 1900, 510, 2100, 495, 505, 2000, 515, 3900, 498],
            [(520, 0.6153846), (2100, 0.2435897), (3900, 0.1410256)],
        ),
    ],
)
def test_buckets_are_those_of_the_reference(
    values: list[float], expected: list[tuple[float, float]], breaks: object, draws: bool
) -> None:
    found = filled(values, breaks, draws=draws).buckets()
    assert [one.border for one in found] == [border for border, _ in expected]
    assert [one.share for one in found] == pytest.approx([share for _, share in expected], abs=5e-8)


def test_what_an_exhaustive_division_costs() -> None:
    values = [500, 520, 480, 1900, 510, 2100, 495, 505, 2000, 515, 3900, 498]
    points = sorted((float(value), float(place + 1)) for place, value in enumerate(values))
    for draws, cost, amount in ((True, drawn_cost, 1033.626233), (False, fixed_cost, 528.192308)):
        assert cost(fill(points, exhaustive_breaks(points, draws))) == pytest.approx(amount, abs=1e-6)


def test_a_bucket_is_drawn_or_the_next_one_and_beyond_all_values_double() -> None:
    values = [4000, 1000, 2000] * 3 + [4000]
    drawn, fixed = (filled(cast("list[float]", values), greedy_breaks, draws=draws) for draws in (True, False))
    assert [drawn.predict(None, u) for u in (0.5, 0.75)] == [2000, 4000]
    assert [drawn.predict(2000, u) for u in (0.0, 0.5, 0.999)] == [4000] * 3
    assert [fixed.predict(None, u) for u in (0.5, 0.75)] == [2000, 2000]
    assert fixed.predict(2000, 0) == 4000
    assert drawn.predict(10000, 0) == fixed.predict(10000, 0) == 16000


def test_until_ten_points_are_there_the_first_value_holds_and_doubles() -> None:
    buckets = filled([77.0] * 9, greedy_breaks, draws=True)
    assert [buckets.predict(one, 0) for one in (None, 1000, 1500, 4100)] == [FIRST, 2000, 2000, 8000]
    buckets.add(77, 1)
    assert buckets.predict(None, 0) == 77


@given(
    st.lists(st.floats(0.5, 1e5), min_size=10, max_size=40),
    st.sampled_from(WAYS),
    st.one_of(st.none(), st.floats(1, 1e5)),
    st.floats(0, 1, exclude_max=True),
)
def test_any_prediction_is_a_value_that_was_seen_or_more_than_all_and_than_what_failed(
    values: list[float], way: tuple[object, bool], previous: float | None, u: float
) -> None:
    buckets = filled(values, way[0], draws=way[1])
    found = buckets.buckets()
    assert sum(one.share for one in found) == pytest.approx(1)
    assert [one.border for one in found] == sorted({one.border for one in found} & set(values))
    assert found[-1].border == max(values)
    amount = buckets.predict(previous, u)
    assert amount is not None
    assert previous is None or amount > previous
    assert amount in values or amount >= FIRST


def test_only_the_newest_points_count() -> None:
    buckets = Buckets(greedy_breaks, draws=False)
    for number in range(1_200):
        buckets.add(9e9 if number < 100 else 5e8, 1)
    assert [one.border for one in buckets.buckets()] == [500]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_learns_in_bytes_what_fits(name: str) -> None:
    strategy, rng = STRATEGIES[name](None), random.Random(3)
    assert (strategy is None) == (name in (BY_SIZE, FIXED))
    if strategy is None:
        return
    for _ in range(50):
        strategy.add(rng.uniform(0.9e9, 1.1e9), 10)
    amount = strategy.predict(None, 0.99)
    assert 0.9e9 < cast("float", amount) <= 1.5e9
    assert (strategy.predict(4e9, 0.5) or 9e9) > 4e9
