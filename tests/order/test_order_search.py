"""Searching finds legal orders that are nearly as cheap as the cheapest, and weak cuts before strong ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from order_situations import cuts_of, independent_window, is_legal, lazy_orders, make_situation, make_window, situations
from searching import examples
from windrow.order import search
from windrow.order.blocks import Block
from windrow.order.cost import expected_cost
from windrow.order.layout import layout_of
from windrow.order.model import Lane, Step
from windrow.order.search import good_order
from windrow.order.subsets import best_order
from windrow.order.survival import sample_of, thinned

if TYPE_CHECKING:
    from windrow.order.model import Situation


@given(situations(most_cuts=6))
@settings(max_examples=examples(80))
def test_what_is_found_is_legal_and_no_dearer_than_the_current_order_of_cuts(situation: Situation) -> None:
    found = good_order(situation)
    assert is_legal(situation, found.order)
    assert found.cost == pytest.approx(expected_cost(situation, found.order).total)
    cuts = [name for name in situation.current if name in situation.cuts]
    lazily = next(order for order in lazy_orders(situation) if [n for n in order if n in cuts] == cuts)
    assert found.cost <= expected_cost(situation, lazily).total * (1 + 1e-9)


@given(situations(most_cuts=6))
@settings(max_examples=examples(40))
def test_as_many_cuts_as_fit_a_window_are_put_in_the_cheapest_order(situation: Situation) -> None:
    best = best_order(situation, budget=1e12)
    assert best is not None
    assert good_order(situation, budget=1e12).cost == pytest.approx(best.cost, rel=1e-9, abs=1e-18)


@given(situations(most_cuts=6))
@settings(max_examples=examples(40))
def test_the_cost_greedy_goes_by_is_the_expected_cost(situation: Situation) -> None:
    layout, sample = layout_of(situation), sample_of(situation)
    every = range(len(layout.cuts))
    block = Block.of(situation, layout, sample, sample.everything(), (), every)
    state, total = search._State(block, sample, 0, sample.everything()), 0.0
    for cut in every:
        total += state.cost(cut)
        state = state.then(cut)
        state = state.only(state.anywhere())
    expected = expected_cost(situation, layout.full(every))
    tail = sum(s.seconds + s.column_s for s in expected.steps if s.name in layout.rest)
    assert total + tail == pytest.approx(expected.total, rel=1e-9, abs=1e-15)


def test_greedy_weighs_a_weak_cut_together_with_the_strong_one_behind_it() -> None:
    names = ["c0", "c1", "c2", "c3"]
    window = independent_window(names, [0.99, 0.05, 0.5, 0.9], 1_000_000)
    situation = make_situation(cuts_of([1, 5, 2, 1]), needs={"c1": ("c0",)}, windows=[window])
    layout, sample = layout_of(situation), sample_of(situation)
    order = layout.full(search._greedy(situation, layout, sample))
    assert order == ("c2", "c0", "c1", "c3")
    assert expected_cost(situation, order).total == pytest.approx(4.99975, rel=1e-5)


def test_greedy_looks_at_what_is_left_not_at_all_rows() -> None:
    window = make_window(["c0", "c1", "c2"], {"ffp": 4, "fpp": 1, "ppf": 3, "ppp": 2})
    situation = make_situation(cuts_of([1, 1, 1]), windows=[window])
    order = search._greedy(situation, layout_of(situation), sample_of(situation))
    assert order == [0, 2, 1]


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


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_search_comes_close_to_the_cheapest_order(lanes: int) -> None:
    situation = many(13, lanes)
    best = best_order(situation, budget=1e12)
    assert best is not None
    assert good_order(situation).cost <= best.cost * 1.02


def test_many_cuts_and_lanes_within_any_budget() -> None:
    situation = many(40, 5)
    written = expected_cost(situation, situation.written).total
    costs = []
    for budget in (0.0, 3e7, 1e9):
        found = good_order(situation, budget=budget)
        assert is_legal(situation, found.order)
        assert found == good_order(situation, budget=budget)
        costs.append(found.cost)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] < written


def test_a_thinned_sample_keeps_whole_windows() -> None:
    situation = many(6, 1)
    sample = sample_of(situation)
    thin = thinned(sample, len(sample.rows) // 3)
    kept = [situation.windows[n] for n in range(0, 8, 3)]
    assert thin.sizes.tolist() == [window.size for window in kept]
    assert thin.rows.tolist() == list(itertools.chain(*(window.rows for window in kept)))
    assert thinned(sample, len(sample.rows)) is sample


def test_nothing_to_search_for() -> None:
    assert good_order(make_situation([])) == ((), 0.0)
    nobody = make_situation(cuts_of([1, 2], lanes=()), lanes=[])
    assert good_order(nobody) == (("c0", "c1"), 0.0)
