"""When writing is worth it: all of it together stays under one percent, and the cost of a write is learned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.store.saving_rule import SHARE, WriteCost, when_worth_writing, worth_writing

SECONDS = st.just(0.0) | st.floats(1e-6, 1e5)
SIZES = st.integers(0, 10**10)


@given(SECONDS, SECONDS, SECONDS)
def test_what_is_worth_it_keeps_the_share(elapsed: float, spent: float, cost: float) -> None:
    assert worth_writing(elapsed, spent, cost) == ((spent + cost) / 0.01 <= elapsed) or (
        abs((spent + cost) / 0.01 - elapsed) < 1e-9 * elapsed
    )


@given(SECONDS, SECONDS)
def test_it_is_worth_it_from_that_time_on(spent: float, cost: float) -> None:
    when = when_worth_writing(spent, cost)
    assert worth_writing(when * (1 + 1e-9), spent, cost)
    assert when == 0 or not worth_writing(when * (1 - 1e-9), spent, cost)


@given(st.lists(st.tuples(st.floats(0.001, 100), st.floats(0, 5)), max_size=200))
def test_a_run_that_follows_the_rule_spends_its_share_at_most(steps: list[tuple[float, float]]) -> None:
    """Work of some seconds, then a write whose cost is predicted rightly."""
    elapsed = spent = 0.0
    for work, cost in steps:
        elapsed += work
        if worth_writing(elapsed, spent, cost):
            elapsed, spent = elapsed + cost, spent + cost
        assert spent <= SHARE * elapsed * (1 + 1e-9)


def test_the_first_guess() -> None:
    assert WriteCost().predict(0) == 0.01
    assert abs(WriteCost().predict(200_000_000) - 1.01) < 1e-9
    assert not worth_writing(100, 0, WriteCost().predict(200_000_000))
    assert worth_writing(102, 0, WriteCost().predict(200_000_000))


@given(st.lists(st.tuples(SIZES, st.floats(0, 1e3)), max_size=20), SIZES, st.floats(0, 1e3))
def test_a_prediction_moves_towards_what_was_seen(before: list[tuple[int, float]], size: int, seconds: float) -> None:
    cost = WriteCost()
    for one in before:
        cost = cost.after(*one)
    assert cost.fixed_s >= 0
    assert cost.s_per_byte >= 0
    old, new = cost.predict(size), cost.after(size, seconds).predict(size)
    low, high = sorted((old, seconds))
    assert low * (1 - 1e-9) - 1e-12 <= new <= high * (1 + 1e-9) + 1e-12


@given(
    fixed=st.floats(1e-4, 0.1),
    speed=st.floats(1e7, 1e10),
    sizes=st.lists(st.integers(1000, 10**9), min_size=3, max_size=3, unique=True),
)
def test_the_cost_of_a_steady_disk_is_learned(fixed: float, speed: float, sizes: list[int]) -> None:
    cost = WriteCost()
    for _ in range(400):
        for size in sizes:
            cost = cost.after(size, fixed + size / speed)
    for size in sizes:
        assert abs(cost.predict(size) / (fixed + size / speed) - 1) < 0.5
