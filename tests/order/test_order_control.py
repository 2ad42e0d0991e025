"""When to think again, how much to look, and what of the past still holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from order_situations import make_window
from windrow.core.records import StepCost
from windrow.order.control.how_much import MOST_ROWS, NO_SAMPLE, RESERVE, SHARE, how_much
from windrow.order.control.when import MOST_WINDOWS, Checkpoints, recent_cost, recent_windows

# --- checkpoints ------------------------------------------------------------------------------------


def test_the_period_doubles_after_two_quiet_ones() -> None:
    checks = Checkpoints(1.0)
    times, spent = [], 0.0
    for _ in range(6):
        assert checks.due(spent)
        checks.passed(spent, changed=False)
        times.append(checks.next_s - spent)
        assert not checks.due(spent)
        spent = checks.next_s
    assert times == [1, 2, 2, 4, 4, 8]


def test_the_period_halves_after_two_busy_ones_and_not_below_the_shortest() -> None:
    checks = Checkpoints(8.0, shortest_s=2.0)
    periods = []
    for _ in range(8):
        checks.passed(0.0, changed=True)
        periods.append(checks.period_s)
    assert periods == [8, 4, 4, 2, 2, 2, 2, 2]


def test_quiet_and_busy_ones_in_turn_change_nothing() -> None:
    checks = Checkpoints(3.0)
    for number in range(10):
        checks.passed(0.0, changed=bool(number % 2))
    assert checks.period_s == 3


def test_waiting_is_no_checkpoint() -> None:
    """Who has not thought knows neither that nothing changes nor that something does."""
    checks = Checkpoints(3.0)
    checks.passed(0.0, changed=False)
    for spent in (4.0, 5.5, 20.0):
        checks.wait(spent)
        assert checks.next_s == spent + 3
        assert not checks.due(spent + 2.9)
        assert checks.due(spent + 3)
    checks.passed(23.0, changed=False)  # the second quiet one, though others came in between
    assert checks.period_s == 6


@given(st.lists(st.booleans(), max_size=30), st.floats(0.01, 100))
def test_the_next_time_is_always_ahead(changes: list[bool], period: float) -> None:
    checks = Checkpoints(period, shortest_s=period / 4)
    spent = 0.0
    for changed in changes:
        checks.passed(spent, changed=changed)
        assert checks.next_s >= spent + period / 4
        spent = checks.next_s


# --- how much to look -------------------------------------------------------------------------------

seconds = st.floats(1e-9, 10.0)


@given(
    fixed_s=seconds,
    row_s=seconds,
    unit_s=seconds,
    unit_rows=st.integers(1, 10**6),
    spent_s=st.floats(0, 1e4),
    left_s=st.floats(0, 1e4),
    looked_s=st.floats(0, 100),
    windows=st.integers(0, 50),
    ahead=st.floats(1, 1000),
    known=st.booleans(),
)
def test_looking_stays_within_its_share(**facts: float) -> None:
    found = how_much(**facts)  # type: ignore[arg-type]
    assert 0 <= found.share <= 1
    if found == NO_SAMPLE:
        return
    assert 1 <= found.rows <= min(facts["unit_rows"], MOST_ROWS)
    window = facts["fixed_s"] + found.rows * facts["row_s"]
    units = facts["left_s"] / facts["unit_s"]
    # What is expected to be looked at in the rest of the run, or at once while there is nothing to decide from.
    expected = found.share * max(units, 1.0) * window
    soon = found.share * facts["ahead"] * window
    budget = SHARE * (facts["spent_s"] + facts["left_s"]) - facts["looked_s"]
    kept = SHARE * RESERVE * facts["left_s"]
    assert min(expected, soon) <= max(budget, kept) * 1.001


def test_what_was_never_measured_is_looked_at_with_few_rows() -> None:
    facts = {
        "fixed_s": 0.0, "row_s": 1e-6, "unit_s": 1.0, "unit_rows": 100_000, "spent_s": 1.0, "left_s": 100.0,
        "looked_s": 0.0, "windows": 0, "ahead": 4.0,
    }  # fmt: skip
    first = how_much(**facts, known=False)  # type: ignore[arg-type]
    later = how_much(**facts, known=True)  # type: ignore[arg-type]
    assert first.rows == 64
    assert later.rows > first.rows
    assert first.share == 1.5 / 4
    assert later.share == 1


def test_a_spent_budget_leaves_something_for_the_rest() -> None:
    facts: dict[str, Any] = {
        "fixed_s": 0.01, "row_s": 1e-6, "unit_s": 1.0, "unit_rows": 1000, "spent_s": 10, "looked_s": 0.5, "windows": 9,
        "ahead": 4, "known": True,
    }  # fmt: skip
    found = how_much(**facts, left_s=10)
    assert 0 < found.share * 10 * (0.01 + found.rows * 1e-6) <= SHARE * RESERVE * 10 * 1.001
    # A window that costs more than is left for it is taken with a small probability: never with none.
    rare = how_much(**facts | {"fixed_s": 10.0}, left_s=10)
    assert 0 < rare.share < 0.01
    assert how_much(**facts, left_s=0) == NO_SAMPLE


def test_the_first_windows_may_take_a_part_of_all_there_is() -> None:
    """By hand: 2 % x 50 % of 101 s, half of it, divided by four windows, at 0.1 ms a row: 1262 rows."""
    facts: dict[str, Any] = {
        "fixed_s": 0.0, "row_s": 1e-4, "unit_s": 1.0, "unit_rows": 100_000, "spent_s": 1.0, "left_s": 100.0,
        "looked_s": 0.0, "ahead": 4.0, "known": True,
    }  # fmt: skip
    assert [how_much(**facts, windows=n).rows for n in (0, 3, 4, 50)] == [1262, 1262, 256, 256]
    # What a call costs goes off, 0.05 s of 0.126 s; many rows are not worth it, and few are never too few.
    assert how_much(**facts | {"fixed_s": 0.05}, windows=0).rows == 762
    assert how_much(**facts | {"row_s": 1e-9}, windows=0).rows == MOST_ROWS
    assert how_much(**facts | {"row_s": 5e-4}, windows=0).rows == 256


# --- drift ------------------------------------------------------------------------------------------


def test_the_newest_windows_count() -> None:
    windows = [make_window("a", {"p": number}) for number in range(1, MOST_WINDOWS + 9)]
    assert recent_windows(windows[:3]) == tuple(windows[:3])
    assert recent_windows(windows) == tuple(windows[8:])


def test_costs_that_changed_count_from_then_on() -> None:
    cheap, dear = StepCost.of_call(1000, 500, 0.001), StepCost.of_call(1000, 500, 0.01)
    assert recent_cost(cheap, cheap.merge(dear)) == pytest.approx(dear)
    assert recent_cost(cheap, cheap.merge(cheap)) == cheap.merge(cheap)
    assert recent_cost(StepCost(), dear) == dear
    assert recent_cost(dear, dear) == dear
