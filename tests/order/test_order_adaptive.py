"""The adaptive policy changes the order where that surely pays, and says why."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from order_situations import cuts_of, independent_window, is_legal, make_situation, make_window, situations
from searching import examples
from windrow.order.adaptive import adaptive
from windrow.order.cost import expected_cost
from windrow.order.model import Column, Lane, Step

if TYPE_CHECKING:
    from windrow.core.records import Window
    from windrow.order.model import Situation


@given(situations(most_cuts=6))
@settings(max_examples=examples(40))
def test_a_decision_is_legal_and_not_dearer_than_what_there_was(situation: Situation) -> None:
    decision = adaptive(situation)
    assert is_legal(situation, decision.order)
    cost = expected_cost(situation, decision.order).total
    assert decision.cost == pytest.approx(cost)
    assert decision.cost <= decision.current_cost * (1 + 1e-9)
    if sum(window.size for window in situation.windows) >= 64:
        assert decision.cost <= decision.written_cost * (1.01 + 1e-6)
    if decision.order != situation.current:
        assert decision.why.startswith("changed")
    assert len(decision.steps) == len(decision.order)
    assert all(decision.steps)
    again = dataclasses.replace(situation, current=decision.order)
    assert adaptive(again).order == decision.order


def two_cuts(windows: list[Window], costs: tuple[float, float] = (1, 1)) -> Situation:
    return make_situation(cuts_of(costs), windows=windows)


def test_it_takes_the_cheapest_order_and_says_so() -> None:
    window = independent_window(["c0", "c1", "c2", "c3"], [0.9, 0.5, 0.1, 0.99], 100_000)
    situation = make_situation(cuts_of([1e-9, 2e-9, 1e-8, 5e-10]), windows=[window])
    decision = adaptive(situation)
    assert decision.order == ("c1", "c0", "c2", "c3")
    assert decision.cost == pytest.approx(7.0225e-9)
    assert decision.current_cost == decision.written_cost == pytest.approx(7.3225e-9)
    assert decision.why.startswith("changed: saves 4.1 % of the seconds, +- ")
    assert decision.sure
    assert decision.steps == (
        "1st: drops 50 % of the rows for 2 ns each",
        "2nd: drops 10 % of the rows left for 1 ns each",
        "3rd: drops 90 % of the rows left for 10 ns each",
        "last: drops 1.0 % of the rows left for 0.5 ns each",
    )


def test_a_small_gain_changes_nothing() -> None:
    window = independent_window(["c0", "c1"], [0.52, 0.5], 10_000)
    decision = adaptive(two_cuts([window]))
    assert decision.order == ("c0", "c1")
    assert decision.why == "kept: the cheapest other order would save 1.3 % of the seconds"
    assert adaptive(two_cuts([window]), materially=0.001).order == ("c1", "c0")


def test_a_gain_that_may_be_chance_changes_nothing() -> None:
    """Cuts take turns from window to window in being the better one."""
    one, other = {"fp": 90, "pp": 10}, {"pf": 90, "pp": 10}
    unsure = [make_window(["c0", "c1"], p) for p in (one, other, other, one, other)]
    decision = adaptive(two_cuts(unsure))
    assert decision.order == ("c0", "c1")
    assert "but the error of that is" in decision.why
    assert "rows shown to all cuts would tell" in decision.why
    assert not decision.sure
    assert decision.cost == decision.current_cost > 1.4
    assert adaptive(two_cuts([make_window(["c0", "c1"], other)] * 5)).order == ("c1", "c0")
    assert adaptive(two_cuts(unsure[1:3])).order == ("c1", "c0")  # too few to tell


def test_too_few_rows_change_nothing() -> None:
    few = make_window(["c0", "c1"], {"pf": 7})
    assert adaptive(two_cuts([few])).order == ("c0", "c1")
    assert "7 rows were sampled" in adaptive(two_cuts([few])).why
    assert not adaptive(two_cuts([few])).sure
    chance = make_window(["c0", "c1"], {"pf": 3, "fp": 2, "pp": 5})
    assert adaptive(two_cuts([chance])).order == ("c0", "c1")
    enough = make_window(["c0", "c1"], {"pf": 8})
    assert adaptive(two_cuts([enough])).order == ("c1", "c0")
    assert adaptive(two_cuts([])).order == ("c0", "c1")


def test_an_order_that_has_become_dearer_than_the_written_one_is_left() -> None:
    window = independent_window(["c0", "c1"], [0.5, 0.525], 10_000)
    situation = dataclasses.replace(two_cuts([window]), current=("c1", "c0"))
    decision = adaptive(situation)
    assert decision.order == ("c0", "c1")
    assert "dearer than the written one" in decision.why


def test_a_current_order_against_a_new_guard_is_put_right() -> None:
    window = make_window(["c0", "c1"], {"pf": 90, "pp": 10})
    guarded = make_situation(cuts_of((1, 1)), windows=[window], guards=(("c1", "c0"),))
    situation = dataclasses.replace(guarded, current=("c1", "c0"))
    decision = adaptive(situation)
    assert decision.order == ("c0", "c1")
    assert "after 'c0', which it needs" in decision.steps[1]


def test_one_cut_or_none() -> None:
    column = Step("m", "column", (0,), row_s=1e-6)
    assert adaptive(make_situation([column])).steps == ("at the end, for 100 % of the rows: no cut needs it",)
    situation = make_situation(
        [column, Step("n", "column", (0,)), *cuts_of([1e-6])],
        needs={"c0": ("n",)},
        windows=[make_window(["c0"], {"p": 20, "f": 80})],
    )
    decision = adaptive(situation)
    assert decision.order == ("n", "c0", "m")
    assert decision.steps == (
        "just before 'c0', the first cut that needs it",
        "1st: drops 80 % of the rows for 1 us each",
        "at the end, for 20 % of the rows: no cut needs it",
    )


def test_a_dear_weak_cut_is_last_and_columns_are_named_as_the_reason() -> None:
    steps = [Step("a", "cut", (0,), row_s=2.1e-6), Step("b", "cut", (0,), row_s=1e-9, columns=("x",))]
    windows = [make_window(["b", "a"], {"fp": 50, "pp": 47, "pf": 3}, unit_rows=10**6)] * 4
    situation = make_situation(steps, windows=windows, columns=[Column("x", 1e-8)], chunk_rows=1e6, unit_rows=1e6)
    decision = adaptive(situation)
    assert decision.order == ("b", "a")
    assert decision.steps == (
        "1st: drops 50 % of the rows for 11 ns each, most of it for columns that nobody read before",
        "last: drops little (6.0 %) and costs most (2.1 us a row)",
    )


def test_all_rows_fail() -> None:
    decision = adaptive(two_cuts([make_window(["c0", "c1"], {"ff": 100})], (2, 1)))
    assert decision.order == ("c1", "c0")
    assert decision.steps[1] == "last: no sampled row is left for it"


def test_many_cuts_are_searched_and_the_decision_says_so() -> None:
    names = [f"c{n}" for n in range(30)]
    patterns = [("".join("pf"[k < n] for k in range(30)), 10) for n in range(31)]
    lanes = [Lane(tuple((name, False) for name in names))]
    situation = make_situation(cuts_of([1.0] * 30), lanes=lanes, windows=[make_window(names, patterns)])
    decision = adaptive(dataclasses.replace(situation, current=tuple(names[::-1])))
    assert decision.order[0] == "c0"  # it drops all that any other does
    assert decision.cost == pytest.approx(1 + 29 / 31)
