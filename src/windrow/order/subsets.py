"""The cheapest order there is, by dynamic programming over subsets of cuts.

What is alive depends on which cuts have run, not on their order. So the least that remains to be
paid after the set S is ``f(S) = min over the next cut i of cost(i | S) + f(S and i)``, where the
cost has in it the made columns that i brings along and the columns it is the first to read. Sets
are handled by layers of equal size, all of a layer at once. Where every cut of one group must come
before every cut of another (a barrier), the groups are solved one after the other.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.order.blocks import Block, after, runs_of
from windrow.order.cost import expected_cost
from windrow.order.layout import layout_of
from windrow.order.survival import sample_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from windrow.order.blocks import Reading
    from windrow.order.layout import Layout
    from windrow.order.model import Situation
    from windrow.order.survival import Floats, Sample

__all__ = ["BUDGET", "Best", "best_order", "cheapest"]

#: Elementary operations (additions in arrays) that planning may take: a quarter of a second or so.
BUDGET = 2e8


class Best(NamedTuple):
    """An order and what it is expected to cost."""

    order: tuple[str, ...]
    cost: float  #: seconds per chunk


def best_order(
    situation: Situation, *, budget: float = BUDGET, layout: Layout | None = None, sample: Sample | None = None
) -> Best | None:
    """Find the cheapest legal order of cuts, other steps as late as can be; None if that takes too long."""
    layout = layout or layout_of(situation)
    sample = sample or sample_of(situation)
    order: list[int] = []
    alive = sample.everything()
    for cuts in runs_of(layout):
        block = Block.of(situation, layout, sample, alive, order, cuts)
        budget -= block.operations()
        if budget < 0:
            return None
        solved = cheapest(block)
        order += solved
        alive = after(sample, alive, [layout.cuts[cut] for cut in solved])
    full = layout.full(order)
    return Best(full, expected_cost(situation, full, sample).total)


def cheapest(block: Block) -> list[int]:
    """Put the cuts of a block in the cheapest order; of equally cheap ones, the first cuts come first."""
    costs = _Costs(block)
    states = 1 << len(block.cuts)
    remaining = np.full(states, np.inf)
    remaining[-1] = 0.0
    for layer in _layers(block):
        least = np.full(len(layer), np.inf)
        for cut, cost in enumerate(costs.at(layer)):
            # Sets that have the cut, and sets that may not have it yet, still cost infinity.
            cost += remaining[layer | (1 << cut)]
            np.minimum(cost, least, out=least)
        remaining[layer] = least
    state, order = 0, []
    while state != states - 1:
        cost = costs.at(np.array([state]))[:, 0]
        left = [cut for cut in range(len(block.cuts)) if not state >> cut & 1]
        best = min(left, key=lambda cut: cost[cut] + remaining[state | (1 << cut)])
        order.append(block.cuts[best])
        state |= 1 << best
    return order


class _Costs:
    """What every cut of a block costs after every subset of the others."""

    def __init__(self, block: Block) -> None:
        self.readings = block.readings
        self.amounts = block.amounts()
        self.place = {amount: number for number, amount in enumerate(self.amounts)}
        self.prices = np.zeros((len(block.cuts), len(self.amounts)))
        for cut, prices in enumerate(block.prices):
            for amount, seconds in prices.items():
                if amount in self.place:
                    self.prices[cut, self.place[amount]] = seconds
        self.values = _values(block, sorted({amount[:3] for amount in self.amounts}))

    def at(self, layer: NDArray[np.int64]) -> Floats:
        """Give (cuts, sets): the cost of a cut after a set."""
        here = {what: values[layer] for what, values in self.values.items()}
        amounts = np.empty((len(self.amounts), len(layer)))
        for number, (what, lanes, rows_per_call, unless) in enumerate(self.amounts):
            values = here[what, lanes, rows_per_call]
            if unless:
                np.multiply(values, (layer & unless) == 0, out=amounts[number])
            else:
                amounts[number] = values
        costs: Floats = self.prices @ amounts
        for reading in self.readings:
            self._add(reading, costs, amounts, layer)
        return costs

    def _add(self, reading: Reading, costs: Floats, amounts: Floats, layer: NDArray[np.int64]) -> None:
        """Charge a column to every cut that reads it for lanes for which it was not read yet."""
        kinds = sorted(set(reading.readers.values()))
        code = np.zeros(len(layer), np.intp)
        for number, kind in enumerate(kinds):
            cuts = sum(1 << cut for cut, lanes in reading.readers.items() if lanes == kind)
            code |= ((layer & cuts) != 0).astype(np.intp) << number
        covers = [
            reduce(or_, (kind for n, kind in enumerate(kinds) if which >> n & 1), reading.owned)
            for which in range(1 << len(kinds))
        ]
        column = np.arange(len(layer))
        had = self._units(covers, amounts)[code, column]
        for cut, lanes in reading.readers.items():
            has = self._units([cover | lanes for cover in covers], amounts)[code, column]
            costs[cut] += reading.seconds * (has - had)

    def _units(self, covers: list[int], amounts: Floats) -> Floats:
        nothing = np.zeros(amounts.shape[1])
        rows = [amounts[self.place["units", c, 0, 0]] if c else nothing for c in covers]
        return np.array(rows)


def _values(block: Block, wanted: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], Floats]:
    """Evaluate what costs are proportional to after every subset."""
    tables, sample = block.tables, block.tables.sample
    counted: dict[int, Floats] = {}
    units: dict[int, Floats] = {}
    values = {}
    for what, mask, rows_per_call in wanted:
        lanes = sample.without_contained(mask)
        if lanes not in counted:
            counted[lanes] = tables.rows(lanes)
        rows = counted[lanes] * (sample.chunk_rows / sample.total)
        if what == "rows":
            values[what, mask, rows_per_call] = rows
            continue
        if lanes not in units:
            units[lanes] = tables.units(lanes, counted[lanes])
        share = units[lanes] if what == "units" else sample.chunk_share(units[lanes])
        if what == "calls" and rows_per_call:
            share = share * np.maximum(1.0, rows / rows_per_call)
        values[what, mask, rows_per_call] = share
    return values


def _layers(block: Block) -> list[NDArray[np.int64]]:
    """Give the sets that can have run, those of one cut less than all first, the empty one last."""
    states = np.arange(1 << len(block.cuts))
    closed = np.ones(len(states), np.bool_)
    for cut, before in enumerate(block.before):
        if before:
            closed &= ((states & (1 << cut)) == 0) | ((states & before) == before)
    states = states[closed]
    size = np.bitwise_count(states)
    states = states[np.argsort(size, kind="stable")]
    ends = np.cumsum(np.bincount(size, minlength=len(block.cuts) + 1))
    return np.split(states, ends[:-1])[-2::-1]
