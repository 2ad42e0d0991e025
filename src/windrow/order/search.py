"""A good order where the cheapest takes too long to find: conditional greedy, then exact repairs of short stretches.

Greedy takes next the cut that costs least per row it drops *of those that are left*. A cut that
needs others is weighed together with them, so a weak cut on the way to a strong one is found.
Then a window slides over the order, to and fro, and the cuts in it are put in the cheapest order by
the method of ``windrow.order.subsets``: swaps, moves and moves of chains are all among what that
tries, and nothing before or after the window changes. Everything is counted, nothing is timed, so
the same situation gives the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windrow.order.blocks import Block, after
from windrow.order.cost import expected_cost
from windrow.order.layout import layout_of
from windrow.order.subsets import BUDGET, Best, cheapest
from windrow.order.survival import sample_of, thinned
from windrow.order.tables import lanes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.order.blocks import Reading
    from windrow.order.layout import Layout
    from windrow.order.model import Situation
    from windrow.order.survival import Bools, Floats, Sample

__all__ = ["good_order", "quick_order"]

#: Cells that are searched with at most; with more, every second (third, ...) window is.
MOST_CELLS = 4000
#: How many cuts a window may have, widest first.
WIDTHS = (8, 6, 4)
MOST_SWEEPS = 4


def quick_order(situation: Situation, layout: Layout, sample: Sample) -> Best:
    """Find the order of greedy, or the current one with other steps as late as can be if that is cheaper."""
    thin = thinned(sample, MOST_CELLS)
    orders = {layout.full(cuts) for cuts in (_greedy(situation, layout, thin), list(range(len(layout.cuts))))}
    found = {order: expected_cost(situation, order, sample).total for order in sorted(orders)}
    return Best(*min(found.items(), key=lambda pair: pair[1]))


def good_order(
    situation: Situation,
    *,
    budget: float = BUDGET,
    layout: Layout | None = None,
    sample: Sample | None = None,
    start: Best | None = None,
) -> Best:
    """Find a cheap order, from ``start`` on; it is never dearer than that and the order of ``quick_order``."""
    layout = layout or layout_of(situation)
    sample = sample or sample_of(situation)
    start = start or quick_order(situation, layout, sample)
    place = {name: number for number, name in enumerate(layout.cuts)}
    cuts = [place[name] for name in start.order if name in place]
    thin = thinned(sample, MOST_CELLS)
    order = layout.full(_sweep(situation, layout, thin, cuts, budget))
    if order == start.order:
        return start
    found = Best(order, expected_cost(situation, order, sample).total)
    return min(start, found, key=lambda best: best.cost)


# --- greedy ---------------------------------------------------------------------------------------


def _greedy(situation: Situation, layout: Layout, sample: Sample) -> list[int]:
    """Take again and again the cut, with those it waits for, that costs least per row dropped."""
    every = range(len(layout.cuts))
    if not sample.lanes:
        return list(every)  # nobody wants any row
    block = Block.of(situation, layout, sample, sample.everything(), (), every)
    values = _lane_values(situation, sample)
    drops = _Drops(sample, layout, values)
    state = _State(block, sample, 0, sample.everything())
    masks = sorted({amount[1] for amount in block.amounts()})
    order: list[int] = []
    while len(order) < len(every):
        alive = state.anywhere()
        if 2 * np.count_nonzero(alive) < len(alive):  # the dead would be looked at again and again
            state = state.only(alive)
            drops = _Drops(state.sample, layout, values)
        left = [cut for cut in every if not state.done >> cut & 1]
        alone = drops.of(state)
        state.count(masks)
        costs = {cut: state.cost(cut) for cut in left}
        chains = [_chain(layout, cut, left, state.done) for cut in left]
        best, least = chains[0], np.inf
        at_best = [_per_row(costs[chain[0]], sum(alone[c] for c in chain)) for chain in chains]
        for number in np.argsort(at_best, kind="stable"):
            chain = chains[number]
            if at_best[number] >= least:
                break
            rank = at_best[number]
            if len(chain) > 1:
                rank = _rank(chain, state, drops, costs)
            if rank < least:
                best, least = chain, rank
        for cut in best:
            state = state.then(cut)
        order += best
    return order


def _chain(layout: Layout, cut: int, left: Sequence[int], done: int) -> list[int]:
    """A cut behind those that must still come before it, in their current order."""
    missing = layout.before[cut] & ~done
    return [other for other in left if missing >> other & 1] + [cut] if missing else [cut]


def _rank(chain: list[int], state: _State, drops: _Drops, costs: dict[int, float]) -> float:
    """What a chain costs per row that it drops as a whole, given what is left."""
    weight = drops.alive(state)
    cost, here = costs[chain[0]], state.then(chain[0])
    for cut in chain[1:]:
        cost += here.cost(cut)
        here = here.then(cut)
    return _per_row(cost, weight - drops.alive(here))


def _per_row(cost: float, dropped: float) -> float:
    return cost / dropped if dropped > 0 else np.inf


def _lane_values(situation: Situation, sample: Sample) -> Floats:
    """What a row is worth to each lane: seconds per row of the lane's steps, shared with other lanes."""
    values = np.full(len(sample.lanes), 1e-30)
    for name in situation.written:
        step = situation.steps[name]
        reading = sum(situation.columns[c].row_s for c in step.columns if c in situation.columns)
        for lane in step.lanes:
            values[lane] += (step.row_s + reading) / len(step.lanes)
    return values


class _Drops:
    """How many rows cuts would drop, weighted by what a row is worth in its lane."""

    def __init__(self, sample: Sample, layout: Layout, values: Floats) -> None:
        self.weights = [sample.rows * value for value in values]
        self.rejects = []
        for lane in range(len(sample.lanes)):
            rejects = np.zeros((len(layout.cuts), len(sample.rows)), np.float32)
            for number, cut in enumerate(layout.cuts):
                kept = sample.lanes[lane].get(cut)
                if kept is not None:
                    rejects[number] = ~kept
            self.rejects.append(rejects)

    def of(self, state: _State) -> Floats:
        """Give for each cut what it would drop next."""
        dropped = np.zeros(len(self.rejects[0]))
        for rejects, weights, alive in zip(self.rejects, self.weights, state.alive, strict=True):
            dropped += rejects @ (weights * alive).astype(np.float32)
        return dropped

    def alive(self, state: _State) -> float:
        """Give what all rows that are left are worth."""
        pairs = zip(self.weights, state.alive, strict=True)
        return float(sum(weights @ alive for weights, alive in pairs))


class _State:
    """Some cuts have run: what is alive, and what any other cut would cost now."""

    def __init__(self, block: Block, sample: Sample, done: int, alive: list[Bools]) -> None:
        self.block = block
        self.sample = sample
        self.done = done
        self.alive = alive
        self.shares: dict[int, tuple[float, float]] = {}

    def then(self, cut: int) -> _State:
        """Let one more cut run."""
        alive = after(self.sample, self.alive, [self.block.tables.cuts[cut]])
        return _State(self.block, self.sample, self.done | 1 << cut, alive)

    def anywhere(self) -> Bools:
        """Say which cells are alive in any lane."""
        alive: Bools = np.logical_or.reduce(self.alive)
        return alive

    def only(self, cells: Bools) -> _State:
        """Forget the other cells."""
        alive = [mine[cells] for mine in self.alive]
        return _State(self.block, self.sample.only(cells), self.done, alive)

    def cost(self, cut: int) -> float:
        """Seconds of a cut, with all that it brings along, if it ran next."""
        total = 0.0
        for (what, mask, rows_per_call, unless), seconds in self.block.prices[cut].items():
            if mask and seconds and not self.done & unless:
                rows, units = self._share(mask)
                if what == "rows":
                    total += seconds * rows
                elif what == "units":
                    total += seconds * units
                else:
                    calls = 1.0 - max(0.0, 1.0 - units) ** self.sample.units
                    blocks = rows / rows_per_call if rows_per_call else 1.0
                    total += seconds * calls * max(1.0, blocks)
        mine = (reading for reading in self.block.readings if cut in reading.readers)
        return total + sum(self._reading(reading, cut) for reading in mine)

    def _reading(self, reading: Reading, cut: int) -> float:
        had = reading.owned
        for other, lanes in reading.readers.items():
            if self.done >> other & 1:
                had |= lanes
        has = had | reading.readers[cut]
        if has == had:
            return 0.0
        return reading.seconds * (self._share(has)[1] - (self._share(had)[1] if had else 0.0))

    def _share(self, mask: int) -> tuple[float, float]:
        """Rows alive in a chunk, and the share of units with any, for a union of lanes."""
        if mask not in self.shares:
            self.count([mask])
        return self.shares[mask]

    def count(self, masks: Iterable[int]) -> None:
        """Count for several unions of lanes at once, which is cheaper than one by one."""
        sample = self.sample
        smaller = {mask: sample.without_contained(mask) for mask in masks}
        counts = {}
        for mask in set(smaller.values()):
            union = np.logical_or.reduce([self.alive[lane] for lane in lanes_of(mask)])
            counts[mask] = np.bincount(sample.window, sample.rows * union, len(sample.sizes))
        by_window = np.array([counts[mask] for mask in smaller.values()]).reshape(-1, len(sample.sizes))
        alive = by_window.sum(axis=1)
        bare = [(by_window[:, k.members] == 0) @ sample.sizes[k.members] for k in sample.kinds]
        units = sample.unit_share(alive, bare, sample.total).tolist()
        rows = (alive * (sample.chunk_rows / sample.total)).tolist()
        self.shares |= dict(zip(smaller, zip(rows, units, strict=True), strict=True))


# --- local search ---------------------------------------------------------------------------------


def _sweep(situation: Situation, layout: Layout, sample: Sample, order: list[int], budget: float) -> list[int]:
    """Slide a window to and fro, as wide as the budget allows, until nothing changes."""
    for width in WIDTHS:
        block = Block.of(situation, layout, sample, sample.everything(), (), order[:width])
        if block.operations() * 2 * len(order) / width <= budget:
            break
    last = max(0, len(order) - width)
    starts = sorted({*range(0, last, max(1, width // 2)), last})
    for sweep in range(MOST_SWEEPS):
        before = list(order)
        for start in starts if sweep % 2 == 0 else reversed(starts):
            stretch, done = slice(start, start + width), order[:start]
            alive = after(sample, sample.everything(), [layout.cuts[cut] for cut in done])
            block = Block.of(situation, layout, sample, alive, done, sorted(order[stretch]))
            budget -= block.operations()
            if budget < 0:
                return order
            order[stretch] = cheapest(block)
        if order == before:
            break
    return order
