"""The published policies: their known answers, and legal orders whatever they are given."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from order_situations import cuts_of, independent_window, make_situation, situations, window_of
from searching import examples
from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED
from windrow.errors import UsageError
from windrow.order.model import Lane, Situation
from windrow.order.published import agreedy, heft, hepframe, path, rank
from windrow.order.published.propositions import propositions, total_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.core.records import Window
    from windrow.order.model import OrderPolicy

POLICIES: dict[str, OrderPolicy] = {
    "agreedy": agreedy.order,
    "heft": heft.order,
    "hepframe": hepframe.order,
    "path": path.order,
    "rank": rank.order,
}


# --- situations -----------------------------------------------------------------------------------


def situation(
    costs: Sequence[float],
    windows: tuple[Window, ...] = (),
    *,
    kinds: Mapping[str, str] | None = None,
    chunk_rows: float = 1e4,
    **more: Any,
) -> Situation:
    """Steps f0, f1, ... with a cost per row; cuts that are all in one lane unless said otherwise."""
    steps = [step._replace(kind=(kinds or {}).get(step.name, "cut")) for step in cuts_of(costs, prefix="f")]
    return make_situation(steps, windows=windows, chunk_rows=chunk_rows, **more)


def independent(shares: Sequence[float], rows: int) -> Window:
    """All patterns of filters that know nothing of each other, in exact numbers of rows."""
    return independent_window([f"f{number}" for number in range(len(shares))], shares, rows)


def cost_per_row(given_: Situation, order: Sequence[str]) -> float:
    """What an order of cuts of one lane costs, row by row."""
    total = paid = 0.0
    for one in given_.windows:
        for said, rows in zip(one.verdicts.tolist(), one.rows.tolist(), strict=True):
            total += rows
            for name in order:
                paid += rows * given_.steps[name].row_s
                if name in one.cuts and said[one.cuts.index(name)] != PASSED:
                    break
    return paid / total


def numbers(order: Sequence[str]) -> str:
    return "".join(name.removeprefix("f") for name in order)


# --- known answers --------------------------------------------------------------------------------

FOUR = situation((1, 2, 10, 0.5), (independent((0.9, 0.5, 0.1, 0.99), 20_000),))


def test_rank_of_independent_filters_is_the_best_order() -> None:
    found = rank.order(FOUR)
    assert numbers(found) == "1023"
    assert cost_per_row(FOUR, found) == pytest.approx(7.0225)
    assert cost_per_row(FOUR, found) == min(cost_per_row(FOUR, one) for one in itertools.permutations(FOUR.written))


def test_weights_of_70_and_30_percent_can_be_worse_than_doing_nothing() -> None:
    found = hepframe.order(FOUR)
    assert numbers(found) == "2103"
    assert cost_per_row(FOUR, found) == pytest.approx(10.2725)
    assert cost_per_row(FOUR, FOUR.written) == pytest.approx(7.3225)


def test_the_shortest_path_of_independent_filters_is_the_order_by_rank() -> None:
    assert numbers(path.order(FOUR)) == "1023"


def test_shares_of_a_weight_are_parameters() -> None:
    """All for filtering: what drops most comes first; all for time: what takes least."""
    assert numbers(hepframe.HepFrame(filtering=0.7)(FOUR)) == numbers(hepframe.order(FOUR)) == "2103"
    assert numbers(hepframe.HepFrame(filtering=1.0)(FOUR)) == "2103"
    assert numbers(hepframe.HepFrame(filtering=0.0)(FOUR)) == "3012"
    assert hepframe.weights(propositions(FOUR), 0.5)["f2"] == pytest.approx(0.5 * 0.1 + 0.5)


def test_what_is_heavy_is_a_parameter_and_is_said() -> None:
    given_ = situation((1, 1, 8, 1), (independent((0.9, 0.5, 1.0, 0.1), 1000),))
    assert numbers(hepframe.order(given_)) == "3102"
    needing = situation((1, 1, 8, 1), given_.windows, needs={"f1": ("f0",), "f3": ("f2",)})
    assert numbers(hepframe.order(needing)) == "0231"
    assert numbers(hepframe.HepFrame(heavy=5)(needing)) == "0123"
    assert hepframe.order.explain(needing) == (
        "weights of 70 % filtering and 30 % time; moved to a later level are cuts that take over 10 s a row "
        "(10 times the median) and discard less than 30 % (the median): none"
    )
    assert hepframe.HepFrame(heavy=5).explain(needing).endswith("(5 times the median) and discard less than 30 % (the median): 'f2'")  # fmt: skip


def test_the_tolerance_of_greedy_orders_is_a_parameter() -> None:
    nearly = situation((1, 1), (window_of(("f0", "f1"), [(FAILED, PASSED), (PASSED, FAILED)], [19, 20]),))
    assert numbers(agreedy.order(nearly)) == "01"
    assert numbers(agreedy.AGreedy(tolerance=1.0)(nearly)) == "10"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: hepframe.HepFrame(filtering=1.1),
        lambda: hepframe.HepFrame(filtering=float("nan")),
        lambda: hepframe.HepFrame(heavy=0),
        lambda: agreedy.AGreedy(tolerance=0),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="got"):
        wrong()


@given(situations(most_cuts=6, most_lanes=1, most_others=3).filter(lambda s: len(s.cuts) > 1))
@settings(max_examples=examples(40))
def test_no_legal_path_is_shorter(given_: Situation) -> None:
    """Against every legal order, where a proposition pays for what nobody made before it and discards by itself."""
    found = propositions(given_)

    def length(cuts: Sequence[str]) -> float:
        made: set[str] = set()
        alive, total = 1.0, 0.0
        for name in cuts:
            total += alive * total_seconds(given_, {name, *found[name].made} - made)
            made |= found[name].made
            alive *= 1 - found[name].discarded
        return total

    legal = [
        one
        for one in itertools.permutations(found)
        if all(found[name].after <= set(one[:place]) for place, name in enumerate(one))
    ]
    taken = [name for name in path.order(given_) if name in found]
    assert length(taken) <= min(map(length, legal)) * (1 + 1e-9)


def test_a_path_that_takes_too_long_to_find_is_that_of_ascending_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    given_ = situation((1, 5, 2, 1), (independent((0.99, 0.05, 0.5, 0.9), 40_000),), needs={"f1": ("f0",)})
    assert numbers(path.order(given_)) == "2013"
    monkeypatch.setattr(path, "TRIES", 1)
    assert numbers(path.order(given_)) == "2301" == numbers(rank.order(given_))


@given(st.lists(st.floats(0.01, 10), min_size=6, max_size=6), st.lists(st.integers(1, 9), min_size=6, max_size=6))
@settings(max_examples=examples(25))
def test_no_order_of_independent_filters_is_cheaper_than_by_rank(costs: list[float], tenths: list[int]) -> None:
    given_ = situation(costs, (independent([n / 10 for n in tenths], 10**6),))
    passes = {f"f{n}": tenth / 10 for n, tenth in enumerate(tenths)}

    def cost(order: Sequence[str]) -> float:
        share, total = 1.0, 0.0
        for name in order:
            total += share * given_.steps[name].row_s
            share *= passes[name]
        return total

    best = min(cost(one) for one in itertools.permutations(given_.written))
    assert cost(rank.order(given_)) <= best * (1 + 1e-9)


def test_the_cheapest_available_first_is_not_the_best_order() -> None:
    given_ = situation((1, 5, 2, 1), (independent((0.99, 0.05, 0.5, 0.9), 40_000),), needs={"f1": ("f0",)})
    found = rank.order(given_)
    assert numbers(found) == "2301"
    assert cost_per_row(given_, found) == pytest.approx(5.1775)
    assert numbers(path.order(given_)) == "2013"
    assert cost_per_row(given_, path.order(given_)) == pytest.approx(4.99975)


def test_a_needed_cut_comes_before_the_one_that_needs_it() -> None:
    # f1 is dear without f2 before it: the written order does not matter, what it needs does.
    names = ("f0", "f2", "f1", "f3")
    plain = situation((1, 2, 10, 0.5), FOUR.windows)
    given_ = Situation(
        written=names,
        current=names,
        steps=plain.steps,
        needs={**plain.needs, "f1": ("f2",)},
        lanes=plain.lanes,
        windows=plain.windows,
        columns={},
        chunk_rows=1e4,
    )
    found = rank.order(given_)
    assert numbers(found) == numbers(path.order(given_)) == "0213"
    assert cost_per_row(given_, found) == pytest.approx(10.2025)


# Drop bits of f0 f1 f2: 110 four times, 100 once, 001 three times, 000 twice.
PROFILED = window_of(
    ("f0", "f1", "f2"),
    [(FAILED, FAILED, PASSED), (FAILED, PASSED, PASSED), (PASSED, PASSED, FAILED), (PASSED,) * 3],
    [4, 1, 3, 2],
)


def test_greedy_sees_that_a_filter_drops_nothing_more() -> None:
    given_ = situation((1, 1, 1), (PROFILED,))
    assert numbers(rank.order(given_)) == "012"
    assert cost_per_row(given_, rank.order(given_)) == pytest.approx(2.0)
    found = agreedy.order(given_)
    assert numbers(found) == "021"
    assert cost_per_row(given_, found) == pytest.approx(1.7)


def test_greedy_keeps_an_order_that_is_nearly_greedy() -> None:
    nearly = window_of(("f0", "f1"), [(FAILED, PASSED), (PASSED, FAILED), (PASSED, PASSED)], [19, 20, 61])
    assert numbers(agreedy.order(situation((1, 1), (nearly,)))) == "01"
    far = window_of(("f0", "f1"), [(FAILED, PASSED), (PASSED, FAILED), (PASSED, PASSED)], [15, 20, 65])
    assert numbers(agreedy.order(situation((1, 1), (far,)))) == "10"
    assert numbers(agreedy.order(situation((1, 1), (nearly,), current=("f1", "f0")))) == "10"


def test_greedy_leaves_alone_what_stands_before_the_violation() -> None:
    # f0 and f1 are in the other order than a greedy start would have them, within the tolerance; f2 and f3 are not.
    said = [[FAILED if n == m else PASSED for m in range(4)] for n in range(4)]
    given_ = situation((1, 1, 1, 1), (window_of(("f0", "f1", "f2", "f3"), said, [19, 20, 2, 8]),))
    assert numbers(agreedy.order(given_)) == "0132"


# --- what the publications leave open -------------------------------------------------------------


def test_columns_are_made_for_the_first_cut_that_needs_them_and_charged_to_it() -> None:
    # f0 is a column of f1 and f3, f4 one that no cut needs. Alone f1 would come before f2; with f0 it does not, and
    # once f0 is there f3 costs next to nothing.
    given_ = situation(
        (8, 1, 2, 1, 1),
        (window_of(("f1", "f2", "f3"), *_alone(3, 50, 30)),),
        kinds={"f0": "column", "f4": "column"},
        needs={"f1": ("f0",), "f3": ("f0",)},
    )
    assert numbers(rank.order(given_)) == "20134"
    assert numbers(agreedy.order(given_)) == "20134"


def _alone(cuts: int, dropped: int, passed: int) -> tuple[list[list[int]], list[int]]:
    """Rows that exactly one cut rejects, so many for each, and some that all pass."""
    said = [[FAILED if n == m else PASSED for m in range(cuts)] for n in range(cuts)]
    return [*said, [PASSED] * cuts], [dropped] * cuts + [passed]


def test_a_row_is_discarded_when_it_is_in_no_lane() -> None:
    said = window_of(
        ("f0", "f1", "f2"),
        [(FAILED, FAILED, FAILED), (UNDEFINED, PASSED, PASSED), (PASSED, PASSED, NOT_ASKED)],
        [30, 20, 50],
    )
    lanes = (Lane((("f0", False), ("f1", False), ("f2", False))), Lane((("f0", False), ("f1", True))), Lane(()))
    found = propositions(situation((1, 1, 1), (said,), lanes=lanes))
    assert found["f0"].discarded == pytest.approx(0.5)  # both lanes want it, undefined is in neither
    assert found["f1"].discarded == 0  # what it rejects in one lane it passes in the other
    assert found["f2"].discarded == 0  # the second lane does without it
    alone = propositions(situation((1, 1, 1), (said,)))
    assert alone["f2"].discarded == pytest.approx(30 / 50)  # of the rows it was asked about


def test_what_a_call_costs_is_shared_by_its_rows() -> None:
    def first(**more: Any) -> str:
        plain = situation((1.0, 1.5), (independent((0.5, 0.5), 100),), **more)
        steps = {**plain.steps, "f0": plain.steps["f0"]._replace(fixed_s=100.0)}
        return rank.order(
            Situation(
                written=plain.written,
                current=plain.current,
                steps=steps,
                needs=plain.needs,
                lanes=plain.lanes,
                windows=plain.windows,
                columns={},
                chunk_rows=plain.chunk_rows,
            )
        )[0]

    assert first(chunk_rows=1e4) == "f0"
    assert first(chunk_rows=100.0) == "f1"


def test_levels_and_heavy_propositions_that_move_to_later_ones() -> None:
    # f1 needs f0; f2 takes long and drops nothing; f3 needs f2 and would drop most.
    given_ = situation((1, 1, 100, 1), (independent((0.9, 0.5, 1.0, 0.1), 1000),), needs={"f1": ("f0",), "f3": ("f2",)})
    assert numbers(hepframe.order(given_)) == "0123"
    light = situation((1, 1, 5, 1), (independent((0.9, 0.5, 1.0, 0.1), 1000),), needs={"f1": ("f0",), "f3": ("f2",)})
    assert numbers(hepframe.order(light)) == "0231"


def test_upward_ranks() -> None:
    # f0 -> f2 -> f3, f1 -> f3: 2 + 3 + 1, 4 + 1, 3 + 1, 1.
    given_ = situation((2, 4, 3, 1, 4.5), needs={"f2": ("f0",), "f3": ("f1", "f2")})
    seconds = {name: step.row_s for name, step in given_.steps.items()}
    needs = {name: dict.fromkeys(needed, 0.0) for name, needed in given_.needs.items()}
    assert list(heft.upward_ranks(seconds, needs).values()) == [6, 5, 4, 1, 4.5]
    assert numbers(heft.order(given_)) == "01423"


# --- whatever the situation -----------------------------------------------------------------------


@st.composite
def anything(draw: st.DrawFn) -> Situation:
    """Anything a policy may be asked: little or no evidence, steps without a cost, orders made illegal by a guard."""
    found = draw(situations(most_cuts=6, most_lanes=3, most_others=3).filter(lambda s: s.written))
    current = draw(st.permutations(found.written)) if draw(st.booleans()) else found.current
    many = draw(st.sampled_from((1.0, 1e9)))
    return replace(
        found,
        current=tuple(current),
        steps={
            name: step._replace(fixed_s=many * step.fixed_s, row_s=many * step.row_s)
            for name, step in found.steps.items()
        },
        lanes=found.lanes[: draw(st.integers(0, 3))],
        chunk_rows=draw(st.sampled_from((0.0, 1.0, 1e5))),
    )


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(25))
@given(given_=anything())
def test_every_order_is_legal_and_the_same_every_time(name: str, given_: Situation) -> None:
    found = POLICIES[name](given_)
    assert sorted(found) == sorted(given_.written)
    place = {step: number for number, step in enumerate(found)}
    for step, needed in given_.needs.items():
        assert all(place[need] < place[step] for need in needed)
    assert POLICIES[name](given_) == found


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_is_moved_while_nothing_is_known(name: str) -> None:
    nothing = situation((0, 0, 0, 0), needs={"f3": ("f1",)}, chunk_rows=0.0)
    assert POLICIES[name](nothing) == nothing.written


@pytest.mark.parametrize("name", POLICIES)
def test_many_steps_are_no_trouble(name: str) -> None:
    count = 40
    rng = np.random.default_rng(7)
    names = [f"f{number}" for number in range(count)]
    said = rng.choice((PASSED, FAILED), (200, count)).tolist()
    many = situation(rng.random(count).tolist(), (window_of(names, said, [1] * 200),))
    assert sorted(POLICIES[name](many)) == sorted(names)
