"""The cheapest order is as cheap as the cheapest of all."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from order_situations import cuts_of, independent_window, is_legal, lazy_orders, make_situation, make_window, situations
from searching import examples
from windrow.order.cost import expected_cost
from windrow.order.model import Column, Lane, Step
from windrow.order.subsets import best_order

if TYPE_CHECKING:
    from windrow.order.model import Situation


def check(situation: Situation) -> None:
    best = best_order(situation, budget=1e12)
    assert best is not None
    assert is_legal(situation, best.order)
    least = min(expected_cost(situation, order).total for order in lazy_orders(situation))
    assert best.cost == pytest.approx(least, rel=1e-9, abs=1e-18)
    assert best.cost == pytest.approx(expected_cost(situation, best.order).total, rel=1e-9)


@given(situations(most_cuts=4))
@settings(max_examples=examples(60))
def test_no_order_of_the_cuts_is_cheaper(situation: Situation) -> None:
    check(situation)


@given(situations(most_cuts=6, most_others=3))
@settings(max_examples=examples(6))
def test_no_order_of_more_cuts_is_cheaper(situation: Situation) -> None:
    check(situation)


@given(situations(most_cuts=3, most_lanes=1, most_others=3))
@settings(max_examples=examples(30))
def test_with_one_lane_no_order_of_all_steps_is_cheaper(situation: Situation) -> None:
    best = best_order(situation)
    assert best is not None
    least = min(
        expected_cost(situation, order).total
        for order in itertools.permutations(situation.written)
        if is_legal(situation, order)
    )
    assert best.cost == pytest.approx(least, rel=1e-9, abs=1e-18)


PASSES = [0.9, 0.5, 0.1, 0.99]


@pytest.mark.parametrize(
    ("costs", "passes", "needs", "order", "cost"),
    [
        ([1, 2, 10, 0.5], PASSES, {}, (1, 0, 2, 3), 7.0225),
        ([1, 5, 2, 1], [0.99, 0.05, 0.5, 0.9], {"c1": ("c0",)}, (2, 0, 1, 3), 4.99975),
        # The block 2, 1 has rank 10.74, after c0 with rank 10.
        ([1, 2, 10, 0.5], PASSES, {"c1": ("c2",)}, (0, 2, 1, 3), 10.2025),
    ],
)
def test_the_known_answers_for_independent_cuts(
    costs: list[float], passes: list[float], needs: dict[str, tuple[str, ...]], order: tuple[int, ...], cost: float
) -> None:
    window = independent_window(["c0", "c1", "c2", "c3"], passes, 1_000_000)
    best = best_order(make_situation(cuts_of(costs), needs=needs, windows=[window]))
    assert best is not None
    assert best.order == tuple(f"c{n}" for n in order)
    assert best.cost == pytest.approx(cost, rel=1e-5)


def test_the_known_answer_for_correlated_cuts() -> None:
    window = make_window(["c0", "c1", "c2"], {"ffp": 4, "fpp": 1, "ppf": 3, "ppp": 2}, unit_rows=10)
    best = best_order(make_situation(cuts_of([1, 1, 1]), windows=[window]))
    assert best is not None
    assert best.order == ("c0", "c2", "c1")
    assert best.cost == pytest.approx(1.7)


def test_of_two_cuts_that_say_the_same_one_comes_last() -> None:
    window = make_window(["c0", "c1", "c2"], {"ffp": 60, "ppf": 10, "ppp": 30})
    best = best_order(make_situation(cuts_of([1, 1, 1.5]), windows=[window]))
    assert best is not None
    assert best.order == ("c0", "c2", "c1")


def test_an_inverted_cut_drops_what_passes() -> None:
    window = make_window(["c0", "c1"], {"pp": 90, "fp": 10})
    lanes = [Lane((("c0", True), ("c1", False)))]
    best = best_order(make_situation(cuts_of([1, 1])[::-1], lanes=lanes, windows=[window]))
    assert best is not None
    assert best.order == ("c0", "c1")


def test_an_undefined_row_is_dropped_on_either_side() -> None:
    window = make_window(["c0", "c1"], {"up": 90, "pp": 10})
    for inverted in (False, True):
        lanes = [Lane((("c0", inverted), ("c1", False)))]
        situation = make_situation(cuts_of([1, 1])[::-1], lanes=lanes, windows=[window])
        best = best_order(situation)
        assert best is not None
        assert best.order == ("c0", "c1")


def test_a_dear_column_moves_a_cheap_cut_back() -> None:
    names = ["c0", "c1"]
    windows = [make_window(names, {"pp": 5, "fp": 5}), make_window(names, {"pf": 5, "ff": 5})]
    cheap, dear = cuts_of([1, 4])
    best = best_order(make_situation([dear, cheap], windows=windows))
    assert best == (("c0", "c1"), 1 + 0.5 * 4)
    steps = [cheap._replace(columns=("x",)), dear]
    best = best_order(make_situation(steps, windows=windows, columns=[Column("x", 10.0)]))
    # Either cut drops half of the rows, but only c1 drops whole units.
    assert best == (("c1", "c0"), 4 + 0.5 * 1 + 0.5 * 10)


def test_a_fixed_cost_waits_for_chunks_that_are_mostly_empty() -> None:
    windows = [make_window(["c0", "c1"], {"fp": 10}, unit=n) for n in range(9)]
    windows.append(make_window(["c0", "c1"], {"pf": 5, "pp": 5}, unit=9))
    called = Step("c1", "cut", (0,), fixed_s=10.0)
    slow = Step("c0", "cut", (0,), row_s=0.1)
    situation = make_situation([called, slow], windows=windows, chunk_rows=10, unit_rows=10)
    best = best_order(situation)
    assert best is not None
    assert best.order == ("c0", "c1")
    assert best.cost == pytest.approx(1.0 + 10.0 * 0.1)


def test_regions_that_share_cuts_pay_for_the_union_of_their_rows() -> None:
    """Four regions: c0 and c1 split the rows in four, each needs its own pair; c2 is for all."""
    signs = list(itertools.product([False, True], repeat=2))
    lanes = [Lane((("c0", a), ("c1", b), ("c2", False))) for a, b in signs]
    steps = [Step(f"c{n}", "cut", (0, 1, 2, 3), row_s=1.0) for n in range(3)]
    patterns = {f"{a}{b}p": 10 for a in "pf" for b in "pf"} | {"ppf": 60}
    situation = make_situation(steps, lanes=lanes, windows=[make_window(["c0", "c1", "c2"], patterns)])
    best = best_order(situation)
    assert best is not None
    # c0 and c1 drop no row that no region wants; only c2 does.
    assert best.order == ("c2", "c0", "c1")
    assert best.cost == pytest.approx(1 + 0.4 + 0.4)


def test_nothing_to_decide() -> None:
    column = Step("m", "column", (0,), row_s=1.0)
    assert best_order(make_situation([column])) == (("m",), 1.0)
    one = make_situation([column, *cuts_of([2])], windows=[make_window(["c0"], {"p": 1, "f": 3})])
    assert best_order(one) == (("c0", "m"), 2.25)
    unseen = make_situation(cuts_of([3, 1]))
    assert best_order(unseen) == (("c0", "c1"), 4.0)
    gone = make_situation(cuts_of([3, 1]), windows=[make_window(["c0", "c1"], {"ff": 9})])
    assert best_order(gone) == (("c1", "c0"), 1.0)


def test_a_barrier_parts_the_problem() -> None:
    """Twice fourteen cuts are 2 x 2**14 sets, not 2**28."""
    steps = cuts_of([1 + n % 5 for n in range(28)])
    steps.insert(14, Step("wall", "column", (0,)))
    names = [step.name for step in steps]
    needs = {"wall": tuple(names[:14])} | dict.fromkeys(names[15:], ("wall",))
    windows = [make_window(names[:14] + names[15:], {"p" * n + "f" * (28 - n): 1 for n in range(29)})]
    situation = make_situation(steps, needs=needs, windows=windows)
    best = best_order(situation)
    assert best is not None
    assert is_legal(situation, best.order)
    assert best.cost < expected_cost(situation, situation.written).total


def test_too_much_to_plan_is_said_beforehand() -> None:
    situation = make_situation(cuts_of([1.0] * 24))
    assert best_order(situation) is None
    assert best_order(make_situation(cuts_of([1.0] * 8)), budget=100) is None
    assert best_order(make_situation(cuts_of([1.0] * 8))) is not None


def test_what_unions_of_lanes_take_is_in_the_budget() -> None:
    """Rows that any of twelve lanes wants are counted with a term for every subset of these lanes."""
    names = ["c0", "c1", "c2", "c3"]
    pairs = [
        Lane(((one, first), (other, second)))
        for one, other in itertools.combinations(names, 2)
        for first, second in itertools.product((False, True), repeat=2)
    ]
    lanes = pairs[:12]
    every = tuple(range(len(lanes)))
    steps = [Step(name, "cut", every, row_s=1e-6) for name in names]
    words = [("".join(word), 1) for word in itertools.product("pf", repeat=4)]
    windows = [make_window(names, words, unit=unit) for unit in range(60)]
    situation = make_situation(steps, lanes=lanes, windows=windows)
    assert best_order(situation, budget=60 * 16 * 2**12) is None
