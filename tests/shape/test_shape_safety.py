"""The safety decision: what it promises, whatever it is asked."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.shape.safety import Bounded

SECONDS = st.floats(0, 1e7)
KNOWN_OR_NOT = st.none() | SECONDS


@given(KNOWN_OR_NOT, KNOWN_OR_NOT)
def test_nothing_held_is_never_due(cost: float | None, life: float | None) -> None:
    assert not Bounded().due(0.0, cost, life)


@given(SECONDS, SECONDS, KNOWN_OR_NOT, KNOWN_OR_NOT)
def test_more_work_is_never_less_due(held: float, more: float, cost: float | None, life: float | None) -> None:
    if Bounded().due(held, cost, life):
        assert Bounded().due(held + more, cost, life)


@given(SECONDS, SECONDS, SECONDS, KNOWN_OR_NOT)
def test_a_lower_cost_is_never_less_due(held: float, cost: float, more: float, life: float | None) -> None:
    if Bounded().due(held, cost + more, life):
        assert Bounded().due(held, cost, life)


@given(SECONDS, KNOWN_OR_NOT, SECONDS, SECONDS)
def test_shorter_lives_are_never_less_due(held: float, cost: float | None, life: float, more: float) -> None:
    if Bounded().due(held, cost, life + more):
        assert Bounded().due(held, cost, life)


@given(SECONDS, KNOWN_OR_NOT)
def test_without_losses_it_costs_a_hundredth_at_most(held: float, cost: float | None) -> None:
    if Bounded().due(held, cost, None):
        assert (0.01 if cost is None else cost) <= held / 100


@given(st.floats(0.001, 1e4), st.floats(0.001, 1e6))
def test_the_interval_loses_least_by_trying_others(cost: float, life: float) -> None:
    """Overhead of an interval: its cost per second of work, and half of it lost once per life."""

    def overhead(interval: float) -> float:
        return cost / interval + interval / (2 * life)

    low, high = 0.0, 1e9
    for _ in range(200):  # find where it becomes due for the sake of losses alone
        middle = (low + high) / 2
        low, high = (low, middle) if Bounded().due(middle, cost, life) else (middle, high)
    best = min(overhead(1.1**power) for power in range(-200, 200))
    if high < 99 * cost:  # not because it is cheap
        assert overhead(high) == pytest.approx(best, rel=0.01)
    else:
        assert high == pytest.approx(min(math.sqrt(2 * cost * life), 100 * cost), rel=1e-6)


@pytest.mark.parametrize(
    ("held", "cost", "life", "due"),
    [
        (0.9, None, None, False),  # ten milliseconds are assumed
        (1.1, None, None, True),
        (0.04, 0.0, None, False),  # half a millisecond at least
        (0.06, 0.0, None, True),
        (10.0, 1.0, None, False),
        (101.0, 1.0, None, True),
        (10.0, 1.0, 50.0, True),
        (9.9, 1.0, 50.0, False),
    ],
)
def test_examples(held: float, cost: float | None, life: float | None, due: bool) -> None:
    assert Bounded().due(held, cost, life) is due
