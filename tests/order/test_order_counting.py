"""The best and the worst order that policies are judged by, against all legal orders of small cases, counted row by row."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTING: Any = load("benchmarks/order_counting.py", known=True)
CUTS = tuple(f"c{number}" for number in range(5))
ROWS = 4_000


def case(seed: int, lanes: int, *, chain: bool = False, maker: bool = False) -> tuple[Any, Any]:
    """What is true of five correlated cuts in some lanes, and what steps cost: one unit, and nothing by call."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=ROWS)
    sides = {}
    for cut in CUTS:
        passed = 0.6 * shared + rng.normal(size=ROWS) > rng.normal()
        sides[cut] = (passed, ~passed)
    member = {cut: tuple(n for n in range(lanes) if rng.random() < 0.7) or (0,) for cut in CUTS}
    needs: dict[str, tuple[str, ...]] = dict.fromkeys(CUTS, ())
    written: tuple[str, ...] = CUTS
    if chain:
        needs |= {"c2": ("c1",), "c4": ("c2",)}
    if maker:  # a column that two cuts read: whichever comes first brings it
        written = ("m", *CUTS)
        needs |= {"m": (), "c0": ("m",), "c3": (*needs["c3"], "m")}
        member["m"] = tuple(sorted({*member["c0"], *member["c3"]}))
    truth = COUNTING.Truth(
        written=written,
        kinds={name: "column" if name == "m" else "cut" for name in written},
        lanes_of=member,
        columns_of=dict.fromkeys(written, ()),
        needs=needs,
        lanes=tuple(
            tuple((cut, bool(rng.random() < 0.3)) for cut in CUTS if lane in member[cut]) for lane in range(lanes)
        ),
        sides=sides,
        starts=np.array([0, ROWS]),
        borders=np.array([0, ROWS]),
        part=np.array([0]),
    )
    row_s = {name: float(cost) for name, cost in zip(written, rng.exponential(size=9), strict=False)}
    costs = COUNTING.UnitCosts([dict.fromkeys(written, 0.0)], [row_s], {}, {})
    return truth, costs


def legal_orders(truth: Any) -> Iterator[tuple[str, ...]]:
    for order in itertools.permutations(truth.written):
        place = {name: number for number, name in enumerate(order)}
        if all(place[need] < place[name] for name in order for need in truth.needs[name]):
            yield order


def seconds(truth: Any, costs: Any, order: tuple[str, ...]) -> float:
    """What an order costs: every row by itself, as long as any lane that has it needs the step."""
    alive = np.ones((len(truth.lanes), ROWS), bool)
    total = 0.0
    for name in order:
        needed = alive[list(truth.lanes_of[name])].any(axis=0)
        total += costs.row_s[0][name] * int(needed.sum())
        for lane, cuts in enumerate(truth.lanes):
            for cut, inverted in cuts:
                if cut == name:
                    alive[lane] &= truth.sides[cut][1 if inverted else 0]
    return total


CASES = [
    pytest.param(seed, lanes, {"chain": chain, "maker": maker}, id=f"{seed}-{lanes}-{chain}-{maker}")
    for seed, (lanes, chain, maker) in enumerate(itertools.product((1, 2, 3), (False, True), (False, True)))
]


@pytest.mark.parametrize(("seed", "lanes", "form"), CASES)
def test_no_legal_order_is_better_than_the_oracle_or_worse_than_the_worst(
    seed: int, lanes: int, form: dict[str, bool]
) -> None:
    truth, costs = case(seed, lanes, **form)
    orders = {order: seconds(truth, costs, order) for order in legal_orders(truth)}
    assert max(orders.values()) > 1.05 * min(orders.values())  # or there is nothing to find
    best, worst = (COUNTING.extreme_order(truth, costs, worst=one) for one in (False, True))
    assert orders[best] == pytest.approx(min(orders.values()), rel=1e-9)
    assert orders[worst] == pytest.approx(max(orders.values()), rel=1e-9)


@pytest.mark.parametrize(("seed", "lanes", "form"), CASES[::3])
def test_orders_are_counted_as_row_by_row(seed: int, lanes: int, form: dict[str, bool]) -> None:
    truth, costs = case(seed, lanes, **form)
    counter = COUNTING.Counter(truth, costs)
    for order in itertools.islice(legal_orders(truth), 0, None, 7):
        assert counter.total(order) == pytest.approx(seconds(truth, costs, order), rel=1e-9)
