"""The cheapest order of the cuts: exact for few of them, else greedy with exact repairs of short stretches.

What filters nothing runs as late as it can: a made column, a weight or the reading of a file's column just before the
first cut that needs it, at the end if no cut does. What is left to decide is the order of the cuts.

*Exact.* What is alive depends on which cuts have run, not on their order. So the least that remains to be paid after the
set S is ``f(S) = min over the next cut i of cost(i | S) + f(S and i)``, where the cost has in it what i brings along.

*Greedy* takes next the cut that costs least per row it drops of those that are left. A cut that needs other cuts is weighed
together with them, so a weak cut on the way to a strong one is found. Then a window slides over the order, to and fro,
and the cuts in it are put in the cheapest order: nothing before or after it changes. The current order is improved in
the same way, and the better of the two is taken.

Everything is counted, nothing is timed, so the same situation gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.order.constraints import all_needs, repair
from windrow.order.cost import Price, expected_cost, prices_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.order.cost import Bools, Floats, SampledRows, StepId
    from windrow.order.model import Situation

    Bits = NDArray[np.uint64]

#: Cuts that are put in order exactly, all together and in a window that slides: 65,536 and 256 sets of them.
EXACT, WINDOW = 16, 8
MOST_SWEEPS = 4
#: Elementary operations (additions in arrays) that planning may take with full effort: a quarter of a second or so.
BUDGET = 2e8
#: And so many whatever the effort, as much as greedy takes: twelve cuts are put in the cheapest order then.
QUICK = 2e7
#: Elementary operations that a call of NumPy is worth however small its arrays are.
CALL = 2000


class Best(NamedTuple):
    """An order and what it is expected to cost."""

    order: tuple[str, ...]
    cost: float  #: seconds per chunk
    exact: bool  #: no order is cheaper, as far as the model knows


def find_order(situation: Situation, sampled: SampledRows, effort: float = 1.0) -> Best:
    """Find a cheap legal order of all steps, with the share ``effort`` of the usual work at most."""
    planner = Planner(situation, sampled)
    count = len(planner.cuts)
    budget = max(effort * BUDGET, QUICK)
    if count <= EXACT and planner.operations(count) <= budget:
        order = planner.full(planner.cheapest((), range(count)))
        return Best(order, expected_cost(situation, order, sampled).total, exact=True)
    found = []
    for start in (planner.greedy(), list(range(count))):
        order = planner.full(planner.sweep(start, budget / 2))
        found.append(Best(order, expected_cost(situation, order, sampled).total, exact=False))
    return min(found, key=lambda best: best.cost)


class Planner:
    """The cuts of a situation, numbered as they stand in the current order, and what comes along with each."""

    def __init__(self, situation: Situation, sampled: SampledRows) -> None:
        self.situation = situation
        self.sampled = sampled
        self.prices = prices_of(situation)
        place = {name: number for number, name in enumerate(situation.written)}
        far = all_needs(situation.written, situation.needs)
        current = repair(situation.current, situation.needs)
        self.cuts = tuple(name for name in current if situation.steps[name].kind == "cut")
        bit = {name: 1 << number for number, name in enumerate(self.cuts)}
        #: by cut: the cuts that must have run, as bits
        self.before = [sum(bit[name] for name in far[cut] & bit.keys()) for cut in self.cuts]
        #: by cut: the steps it needs that are no cuts
        self.along = [sorted(far[cut] - bit.keys(), key=place.__getitem__) for cut in self.cuts]
        #: by cut: all that it pays for unless that has run before
        self.bundles = [self._bundle((*along, cut)) for along, cut in zip(self.along, self.cuts, strict=True)]
        counts = sampled.counts.sum(axis=0).astype(np.int64)
        self.total = float(counts.sum())
        #: (cuts, lanes, words): the patterns that a cut leaves in a lane
        shape = len(self.cuts), sampled.lanes, len(counts)
        self.keeps = _pack(np.array([sampled.keeps[cut] for cut in self.cuts], np.bool_).reshape(shape))
        #: the patterns whose number of rows has the binary digit
        self.digits = [_pack((counts >> digit & 1).astype(np.bool_)) for digit in range(int(counts.max()).bit_length())]

    def _bundle(self, names: Sequence[str]) -> list[StepId]:
        columns = dict.fromkeys(column for name in names for column in self.situation.steps[name].columns)
        reads: list[StepId] = [("read", column) for column in columns if ("read", column) in self.prices]
        return [*reads, *names]

    def full(self, cuts: Iterable[int]) -> tuple[str, ...]:
        """Make an order of cuts one of all steps."""
        order: dict[str, None] = {}
        for cut in cuts:
            order.update(dict.fromkeys((*self.along[cut], self.cuts[cut])))
        order.update(dict.fromkeys(self.situation.written))
        return repair(tuple(order), self.situation.needs)

    def operations(self, width: int) -> float:
        """Estimate the elementary operations of putting so many cuts in the cheapest order."""
        unions = {price.lanes for price in self.prices.values()}
        words = self.keeps.shape[2]
        per_state = sum(words * (2 * len(lanes) + 3 * len(self.digits)) for lanes in unions)
        per_state += 20 * len(self.prices) + 3 * width * width
        return float(CALL * (width * width + 10 * len(self.prices)) + per_state * (1 << width))

    def charges(self, done: Iterable[int], cuts: Sequence[int]) -> list[tuple[int, Price]]:
        """Give what is still to be paid: which of the cuts, as bits, need it, and its price.

        The first of them to run pays.
        """
        ran = {step for cut in done for step in self.bundles[cut]}
        users: dict[StepId, int] = {}
        for number, cut in enumerate(cuts):
            for step in self.bundles[cut]:
                if step not in ran:
                    users[step] = users.get(step, 0) | 1 << number
        alike: dict[tuple[int, tuple[int, ...], int], Price] = {}
        for step, who in users.items():
            price = self.prices[step]
            if price.lanes:
                key = who, price.lanes, price.block
                alike[key] = alike[key].plus(price) if key in alike else price
        return [(who, price) for (who, _, _), price in alike.items()]

    def alive_after(self, cuts: Sequence[int]) -> Bits:
        """Give the patterns alive in each lane when some cuts have run: (lanes, words)."""
        alive: Bits = np.bitwise_and.reduce(self.keeps[list(cuts)])  # of no cuts: all patterns
        return alive

    def count(self, patterns: Bits) -> Floats:
        """Count the rows of sets of patterns: a word holds 64 of them, the last axis all words."""
        rows = np.zeros(patterns.shape[:-1])
        for number, digit in enumerate(self.digits):
            rows += np.bitwise_count(patterns & digit).sum(axis=-1, dtype=np.float64) * (1 << number)
        return rows

    # -- exact -----------------------------------------------------------------------------------

    def cheapest(self, done: Sequence[int], cuts: Sequence[int]) -> list[int]:
        """Put some cuts that come after fixed ones in the cheapest order; of equally cheap ones, the first come first."""
        bits = 1 << np.arange(len(cuts))
        states = np.arange(1 << len(cuts))
        cost = np.zeros((len(cuts), len(states)))
        alive = self.alive_after(done)
        charges = self.charges(done, cuts)
        rows = {lanes: self._rows(lanes, alive, cuts) for lanes in sorted({price.lanes for _, price in charges})}
        for users, price in charges:
            seconds = self.sampled.seconds(price, rows[price.lanes], self.total)
            seconds[(states & users) != 0] = 0.0  # it has run
            for number in range(len(cuts)):
                if users >> number & 1:
                    cost[number] += seconds
        for number, cut in enumerate(cuts):
            before = sum(int(bits[other]) for other, name in enumerate(cuts) if self.before[cut] >> name & 1)
            cost[number, (states & before) != before] = np.inf
        remaining = np.full(len(states), np.inf)
        remaining[-1] = 0.0
        size = np.bitwise_count(states)
        for ran in reversed(range(len(cuts))):
            layer = np.flatnonzero(size == ran)
            # A set that has the cut already still costs infinity.
            remaining[layer] = (cost[:, layer] + remaining[layer | bits[:, None]]).min(axis=0)
        state, order = 0, []
        while state != len(states) - 1:
            left = [number for number in range(len(cuts)) if not state >> number & 1]
            best = min(left, key=lambda number: cost[number, state] + remaining[state | 1 << number])
            order.append(cuts[best])
            state |= 1 << best
        return order

    def _rows(self, lanes: tuple[int, ...], alive: Bits, cuts: Sequence[int]) -> Floats:
        """Count the rows alive in any of the lanes after each subset of the cuts."""
        survives = np.zeros((1 << len(cuts), alive.shape[1]), np.uint64)
        in_lane = np.empty_like(survives)
        for lane in lanes:
            in_lane[0] = alive[lane]
            for number, cut in enumerate(cuts):
                without = in_lane[: 1 << number]
                np.bitwise_and(without, self.keeps[cut, lane], out=in_lane[1 << number : 2 << number])
            survives |= in_lane
        return self.count(survives)

    # -- search ----------------------------------------------------------------------------------

    def greedy(self) -> list[int]:
        """Take again and again the cut, with those it waits for, that costs least per row dropped."""
        order: list[int] = []
        #: what a row is worth in each lane: what the lane's steps cost, shared with other lanes
        worth = np.full(self.sampled.lanes, 1e-30)
        for price in self.prices.values():
            for lane in price.lanes:
                worth[lane] += (price.row_s + price.unit_s) / len(price.lanes)
        left = list(range(len(self.cuts)))
        while left:
            alive = self.alive_after(order)
            chains = [[other for other in left if other == cut or self.before[cut] >> other & 1] for cut in left]
            kept = np.array([np.bitwise_and.reduce(self.keeps[chain]) for chain in chains])
            gains = self.count(alive & ~kept) @ worth
            charges = self.charges(order, left)
            unions = {price.lanes for _, price in charges}
            rows = {lanes: self.count(np.bitwise_or.reduce(alive[list(lanes)])) for lanes in unions}
            priced = [(users, self.sampled.seconds(price, rows[price.lanes], self.total)) for users, price in charges]
            best, least = left, np.inf  # where no cut drops anything more they stay as they stand, which is legal
            for chain, gain in zip(chains, gains.tolist(), strict=True):
                members = sum(1 << left.index(other) for other in chain)
                cost = sum(float(seconds) for users, seconds in priced if users & members)
                if gain > 0 and cost / gain < least:
                    best, least = chain, cost / gain
            order += best
            left = [cut for cut in left if cut not in best]
        return order

    def sweep(self, order: list[int], budget: float) -> list[int]:
        """Slide a window to and fro until nothing changes or the budget is spent."""
        width = min(WINDOW, len(order))
        last = len(order) - width
        starts = sorted({*range(0, last, WINDOW // 2), last})
        for number in range(MOST_SWEEPS):
            before = list(order)
            for start in starts if number % 2 == 0 else reversed(starts):
                budget -= self.operations(width)
                if budget < 0:
                    return order
                stretch = slice(start, start + width)
                order[stretch] = self.cheapest(order[:start], sorted(order[stretch]))
            if order == before:
                break
        return order


def _pack(patterns: Bools) -> Bits:
    words = -(-patterns.shape[-1] // 64)
    padded = np.zeros((*patterns.shape[:-1], 64 * words), np.bool_)
    padded[..., : patterns.shape[-1]] = patterns
    return np.packbits(padded, axis=-1).view(np.uint64)
