"""The planner finds the cheapest order there is; where that takes too long, one that is nearly as cheap."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given, settings

from order_situations import cuts_of, independent_window, is_legal, lazy_orders, make_situation, make_window, situations
from searching import examples
from windrow.order import planner
from windrow.order.cost import expected_cost, sampled_rows
from windrow.order.model import Column, Lane, Step
from windrow.order.planner import Best, Planner, find_order

if TYPE_CHECKING:
    from windrow.order.model import Situation


def best_order(situation: Situation) -> Best:
    best = find_order(situation, sampled_rows(situation), effort=1e6)
    assert best.exact
    return best


def searched_order(situation: Situation, effort: float = 1.0) -> Best:
    """Find an order by greedy and sweeps, however few cuts there are."""
    with mock.patch.object(planner, "EXACT", -1):
        best = find_order(situation, sampled_rows(situation), effort)
    assert not best.exact
    return best


def check(situation: Situation) -> None:
    best = best_order(situation)
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
        # The block 1, 2 has rank 10.74, after c0 with rank 10.
        ([1, 10, 2, 0.5], [0.9, 0.1, 0.5, 0.99], {"c2": ("c1",)}, (0, 1, 2, 3), 10.2025),
    ],
)
def test_the_known_answers_for_independent_cuts(
    costs: list[float], passes: list[float], needs: dict[str, tuple[str, ...]], order: tuple[int, ...], cost: float
) -> None:
    window = independent_window(["c0", "c1", "c2", "c3"], passes, 1_000_000)
    best = best_order(make_situation(cuts_of(costs), needs=needs, windows=[window]))
    assert best.order == tuple(f"c{n}" for n in order)
    assert best.cost == pytest.approx(cost, rel=1e-5)


def test_the_known_answer_for_correlated_cuts() -> None:
    window = make_window(["c0", "c1", "c2"], {"ffp": 4, "fpp": 1, "ppf": 3, "ppp": 2}, unit_rows=10)
    best = best_order(make_situation(cuts_of([1, 1, 1]), windows=[window]))
    assert best.order == ("c0", "c2", "c1")
    assert best.cost == pytest.approx(1.7)


def test_of_two_cuts_that_say_the_same_one_comes_last() -> None:
    window = make_window(["c0", "c1", "c2"], {"ffp": 60, "ppf": 10, "ppp": 30})
    best = best_order(make_situation(cuts_of([1, 1, 1.5]), windows=[window]))
    assert best.order == ("c0", "c2", "c1")


def test_an_inverted_cut_drops_what_passes() -> None:
    window = make_window(["c0", "c1"], {"pp": 90, "fp": 10})
    lanes = [Lane((("c0", True), ("c1", False)))]
    best = best_order(make_situation(cuts_of([1, 1])[::-1], lanes=lanes, windows=[window]))
    assert best.order == ("c0", "c1")


def test_an_undefined_row_is_dropped_on_either_side() -> None:
    window = make_window(["c0", "c1"], {"up": 90, "pp": 10})
    for inverted in (False, True):
        lanes = [Lane((("c0", inverted), ("c1", False)))]
        situation = make_situation(cuts_of([1, 1])[::-1], lanes=lanes, windows=[window])
        best = best_order(situation)
        assert best.order == ("c0", "c1")


def test_a_dear_column_moves_a_cheap_cut_back() -> None:
    """Of 1000 rows c1 leaves one, c0 half: behind c1 most units of ten rows need not be read."""
    windows = [make_window(["c0", "c1"], {"pp": 1, "pf": 499, "ff": 500})] * 4
    cheap, dear = cuts_of([1, 4])
    more: dict[str, Any] = {"windows": windows, "chunk_rows": 100, "unit_rows": 10}
    assert best_order(make_situation([dear, cheap], **more)).order == ("c0", "c1")
    steps = [cheap._replace(columns=("x",)), dear]
    assert best_order(make_situation(steps, columns=[Column("x", 10.0)], **more)).order == ("c1", "c0")


def test_a_fixed_cost_waits_for_chunks_that_are_mostly_empty() -> None:
    windows = [make_window(["c0", "c1"], {"fp": 10_000, "pf": 5, "pp": 5}, unit=n) for n in range(9)]
    called = Step("c1", "cut", (0,), fixed_s=10.0)
    slow = Step("c0", "cut", (0,), row_s=0.1)
    best = best_order(make_situation([called, slow], windows=windows, chunk_rows=100, unit_rows=10))
    assert best.order == ("c0", "c1")
    assert best.cost == pytest.approx(10.0 + 10.0 * 0.1, rel=0.06)


def test_regions_that_share_cuts_pay_for_the_union_of_their_rows() -> None:
    """Four regions: c0 and c1 split the rows in four, each needs its own pair; c2 is for all."""
    signs = list(itertools.product([False, True], repeat=2))
    lanes = [Lane((("c0", a), ("c1", b), ("c2", False))) for a, b in signs]
    steps = [Step(f"c{n}", "cut", (0, 1, 2, 3), row_s=1.0) for n in range(3)]
    patterns = {f"{a}{b}p": 10 for a in "pf" for b in "pf"} | {"ppf": 60}
    situation = make_situation(steps, lanes=lanes, windows=[make_window(["c0", "c1", "c2"], patterns)])
    best = best_order(situation)
    # c0 and c1 drop no row that no region wants; only c2 does.
    assert best.order == ("c2", "c0", "c1")
    assert best.cost == pytest.approx(1 + 0.4 + 0.4)


def test_nothing_to_decide() -> None:
    column = Step("m", "column", (0,), row_s=1.0)
    assert best_order(make_situation([])) == ((), 0.0, True)
    assert best_order(make_situation([column])) == (("m",), 1.0, True)
    one = make_situation([column, *cuts_of([2])], windows=[make_window(["c0"], {"p": 1, "f": 3})])
    assert best_order(one) == (("c0", "m"), 2.25, True)
    unseen = make_situation(cuts_of([3, 1]))
    assert best_order(unseen) == (("c0", "c1"), 4.0, True)
    gone = make_situation(cuts_of([3, 1]), windows=[make_window(["c0", "c1"], {"ff": 9})])
    assert best_order(gone) == (("c1", "c0"), 1.0, True)
    nobody = make_situation(cuts_of([1, 2], lanes=()), lanes=[])
    assert best_order(nobody) == (("c0", "c1"), 0.0, True)
    assert searched_order(nobody) == (("c0", "c1"), 0.0, False)


# --- search -----------------------------------------------------------------------------------------


@given(situations(most_cuts=6))
@settings(max_examples=examples(80))
def test_what_is_searched_for_is_legal_and_no_dearer_than_the_current_order_of_cuts(situation: Situation) -> None:
    found = searched_order(situation)
    assert is_legal(situation, found.order)
    assert found.cost == pytest.approx(expected_cost(situation, found.order).total)
    cuts = [name for name in situation.current if name in situation.cuts]
    lazily = next(order for order in lazy_orders(situation) if [n for n in order if n in cuts] == cuts)
    assert found.cost <= expected_cost(situation, lazily).total * (1 + 1e-9)


@given(situations(most_cuts=6))
@settings(max_examples=examples(40))
def test_as_many_cuts_as_fit_a_window_are_put_in_the_cheapest_order(situation: Situation) -> None:
    assert searched_order(situation).cost == pytest.approx(best_order(situation).cost, rel=1e-9, abs=1e-18)


def greedy(situation: Situation) -> tuple[str, ...]:
    planner = Planner(situation, sampled_rows(situation))
    return planner.full(planner.greedy())


def test_greedy_weighs_a_weak_cut_together_with_the_strong_one_behind_it() -> None:
    names = ["c0", "c1", "c2", "c3"]
    window = independent_window(names, [0.99, 0.05, 0.5, 0.9], 1_000_000)
    situation = make_situation(cuts_of([1, 5, 2, 1]), needs={"c1": ("c0",)}, windows=[window])
    assert greedy(situation) == ("c2", "c0", "c1", "c3")


def test_greedy_looks_at_what_is_left_not_at_all_rows() -> None:
    window = make_window(["c0", "c1", "c2"], {"ffp": 4, "fpp": 1, "ppf": 3, "ppp": 2})
    assert greedy(make_situation(cuts_of([1, 1, 1]), windows=[window])) == ("c0", "c2", "c1")


def many(cuts: int, lanes: int) -> Situation:
    """Cuts of all strengths and prices, and regions that share most of them; no chance involved."""
    names = [f"c{n}" for n in range(cuts)]
    regions = [Lane(tuple((c, n % 7 == lane) for n, c in enumerate(names) if (n + lane) % 5)) for lane in range(lanes)]
    steps = [
        Step(
            name,
            "cut",
            tuple(lane for lane in range(lanes) if any(c == name for c, _ in regions[lane].cuts)),
            row_s=1e-9 * (1 + n * 37 % 101),
        )
        for n, name in enumerate(names)
    ]
    windows = [
        make_window(
            names,
            [("".join("pf"[(w * 31 + p * p * 7 + n * p) % (n + 2) == 0] for n in range(cuts)), 3) for p in range(30)],
            unit=w,
            unit_rows=1000,
        )
        for w in range(8)
    ]
    needs = {names[n]: (names[n - 11],) for n in range(11, cuts, 4)}
    return make_situation(steps, lanes=regions, windows=windows, needs=needs, chunk_rows=1e5, unit_rows=1000)


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_a_search_comes_close_to_the_cheapest_order(lanes: int) -> None:
    situation = many(13, lanes)
    assert searched_order(situation).cost <= best_order(situation).cost * 1.004


def test_many_cuts_and_lanes_with_any_effort() -> None:
    situation = many(40, 5)
    written = expected_cost(situation, situation.written).total
    sampled = sampled_rows(situation)
    costs = []
    for effort in (0.0, 0.1, 1.0):
        found = find_order(situation, sampled, effort)
        assert not found.exact
        assert is_legal(situation, found.order)
        assert found == find_order(situation, sampled, effort)
        costs.append(found.cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] < written


def test_a_barrier_between_many_cuts_is_kept() -> None:
    steps = cuts_of([1 + n % 5 for n in range(28)])
    steps.insert(14, Step("wall", "column", (0,)))
    names = [step.name for step in steps]
    needs = {"wall": tuple(names[:14])} | dict.fromkeys(names[15:], ("wall",))
    windows = [make_window(names[:14] + names[15:], {"p" * n + "f" * (28 - n): 1 for n in range(29)})]
    situation = make_situation(steps, needs=needs, windows=windows)
    found = find_order(situation, sampled_rows(situation))
    assert is_legal(situation, found.order)
    assert found.cost < expected_cost(situation, situation.written).total


def test_little_effort_finds_an_order_too() -> None:
    situation = many(15, 2)
    sampled = sampled_rows(situation)
    assert find_order(situation, sampled).exact
    assert find_order(many(12, 2), sampled_rows(many(12, 2)), effort=0.0).exact  # that takes no time
    little = find_order(situation, sampled, effort=1e-6)
    assert not little.exact
    assert is_legal(situation, little.order)
