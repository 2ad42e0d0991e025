"""The cutflow of the written order, put together from what ran: exact where that is certain, else estimated.

A table of several datasets remembers what each of them had: how rows divide is estimated dataset by dataset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.blocks.cutflow_counts import ANY_ORDER, END, Order, cuts_in
from windrow.pipeline.cutflow.estimate import Estimate, Stratified, estimate, patterns
from windrow.pipeline.cutflow.regions import add_by_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from windrow.core.records import Window

#: The number of the line before all cuts; those of the cuts are their places in the written order.
INITIAL_LINE = -1


@dataclass(frozen=True, slots=True)
class Member:
    """What one dataset has in the table of a region."""

    dataset: str | None
    counts: Mapping[Order, NDArray[np.float64]]  #: by the order that ran, as in ``blocks.cutflow_counts``
    absent: frozenset[str] = frozenset()  #: cuts and weights that do not exist there
    windows: tuple[Window, ...] = ()  #: what all cuts say of some of its rows
    factor: float = 1.0  #: by which weights were scaled after the run

    def __add__(self, other: Member) -> Member:
        counts = add_by_key((self.counts, other.counts))
        windows = (*self.windows, *other.windows)
        return Member(self.dataset, counts, self.absent & other.absent, windows, self.factor)

    def scale(self, factor: float) -> Member:
        by = [1, 1, 1, 1, factor, factor**2]
        counts = {order: lines * by for order, lines in self.counts.items()}
        return replace(self, counts=counts, factor=self.factor * factor)


@dataclass(frozen=True, slots=True)
class WrittenRegion:
    """A region as it is written: what its lines are, and which weights stand above each."""

    cuts: Mapping[str, bool]  #: in written order: cut -> inverted
    order: Order  #: all steps, as written
    weights: frozenset[str]
    used: frozenset[str]  #: cuts of any region

    def shown(self, order: Order) -> object:
        """What of an order a table depends on: the cuts, and which weights come before each.

        And before the first cut of any region: those written there weight the initial line.
        """
        cuts = tuple((cut, self._weights_above(order, cut)) for cut in cuts_in(order, self.cuts))
        return self._before_first(order) & self._before_first(self.order), cuts

    def odd_rows(self, cut: str, counts: Mapping[Order, NDArray[np.float64]]) -> tuple[int, int] | tuple[None, None]:
        """Count rows that were undefined or had NaN, if the same rows reached the cut as in the written order."""
        above = set(self.order[: self.order.index(cut)]) & self.cuts.keys()
        undefined = nan = 0
        for order, lines in counts.items():
            if set(order[: order.index(cut)]) & self.cuts.keys() != above:
                return None, None
            line = lines[1 + cuts_in(order, self.cuts).index(cut)]
            undefined, nan = undefined + int(line[2]), nan + int(line[3])
        return undefined, nan

    def ends_as_written(self, order: Order) -> bool:
        """Say whether the last cut that ran stands below the weights of the last written line, and no other weights."""
        ran, written = cuts_in(order, self.cuts), cuts_in(self.order, self.cuts)
        return bool(ran) and self._weights_above(order, ran[-1]) == self._weights_above(self.order, written[-1])

    def _weights_above(self, order: Order, cut: str) -> frozenset[str]:
        return self.weights & frozenset(order[: order.index(cut)])

    def _before_first(self, order: Order) -> frozenset[str]:
        first = next((n for n, name in enumerate(order) if name in self.used), len(order))
        return self.weights & frozenset(order[:first])

    def estimates(self, members: Sequence[Member]) -> list[Estimate] | None:
        """Say what each written line has, the initial one first; None where that cannot be told."""
        total: list[Estimate] | None = None
        for member in members:
            mine = self._estimates(member)
            if mine is None:
                return None
            total = mine if total is None else [_add(a, b) for a, b in zip(total, mine, strict=True)]
        return total

    def _estimates(self, member: Member) -> list[Estimate] | None:
        weights = [n for n in self.order if n in self.weights and n not in member.absent]
        lines = [self._before_first(self.order), *(self._weights_above(self.order, cut) for cut in self.cuts)]
        above = [names - member.absent for names in lines]
        ran = [
            self._stratified(order, lines, above, member.absent)
            for order, lines in member.counts.items()
            if order != ANY_ORDER
        ]
        there = self.cuts.keys() - member.absent
        windows = [window for window in member.windows if there <= set(window.cuts)]
        seen = patterns(windows, self.cuts, weights, member.factor) if windows else None
        end = None
        if ran:
            sumw, sumw2 = member.counts[ANY_ORDER][END, 4:].tolist()
            end = (sumw, sumw2)
        return estimate(ran, seen, [len(names) for names in above], end, member.factor)

    def _stratified(
        self, order: Order, lines: NDArray[np.float64], above: list[frozenset[str]], absent: frozenset[str]
    ) -> Stratified:
        """Say what ran in one order; ``above`` are the weights above each written line that exist there."""
        place = {cut: number for number, cut in enumerate(self.cuts)}
        ran = cuts_in(order, self.cuts)
        cuts = tuple(place[cut] for cut in ran)
        # Written lines whose weighted rows are those of a line that ran.
        sums = {}
        if above[0] <= self._before_first(order):
            sums[INITIAL_LINE] = lines[0, 4:]
        for number, cut in enumerate(ran, start=1):
            before = self._weights_above(order, cut) - absent
            if set(cuts[:number]) == set(range(number)) and before == above[number]:
                sums[number - 1] = lines[number, 4:]
        return Stratified(
            order=order,
            cuts=cuts,
            rejected=tuple(int(entered - passed) for entered, passed in lines[1:, :2]),
            passed=int(lines[-1, 1]),
            sums={line: (float(sumw), float(sumw2)) for line, (sumw, sumw2) in sums.items()},
            absent=frozenset(place[cut] for cut in self.cuts if cut in absent),
        )


def _add(left: Estimate, right: Estimate) -> Estimate:
    """Add what two datasets have; they were looked at independently."""
    passed = left.passed + right.passed
    below = math.hypot(left.passed - left.low, right.passed - right.low)
    above = math.hypot(left.high - left.passed, right.high - right.passed)
    return Estimate(
        passed, math.hypot(left.error, right.error), passed - below, passed + above,
        left.sumw + right.sumw, left.sumw2 + right.sumw2,
        math.hypot(left.sumw_error, right.sumw_error), left.sampled + right.sampled,
        left.exact and right.exact,
    )  # fmt: skip
