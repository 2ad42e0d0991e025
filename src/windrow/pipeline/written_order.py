"""The cutflow of the written order, put together from what ran: exact where that is certain, else estimated.

A table of several datasets remembers what each of them had: how rows divide is estimated dataset by dataset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.pipeline.estimating import Estimate, Stratified, estimate, patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.blocks.counts import Layout, LineCounts
    from windrow.core.records import Window

__all__ = ["Member", "Writing", "add_members", "add_parts"]

#: The number of the line before all cuts.
INITIAL_LINE = -1


@dataclass(frozen=True, slots=True)
class Member:
    """What one dataset has in a table."""

    dataset: str | None
    parts: Mapping[Layout, LineCounts]  #: by the order that ran, not scaled
    absent: frozenset[str] = frozenset()  #: cuts and weights that do not exist there
    windows: tuple[Window, ...] = ()  #: what all cuts say of some of its rows
    factor: float = 1.0  #: by which weights were scaled after the run

    def __add__(self, other: Member) -> Member:
        parts = add_parts(self.parts, other.parts)
        windows = (*self.windows, *other.windows)
        return Member(self.dataset, parts, self.absent & other.absent, windows, self.factor)


def add_parts(left: Mapping[Layout, LineCounts], right: Mapping[Layout, LineCounts]) -> dict[Layout, LineCounts]:
    """Add up what ran in the same order."""
    parts = dict(left)
    for plan, lines in right.items():
        parts[plan] = parts[plan] + lines if plan in parts else lines
    return parts


def add_members(members: Iterable[Member]) -> tuple[Member, ...]:
    """Add up what belongs to the same dataset."""
    found: dict[tuple[str | None, float], Member] = {}
    for member in members:
        key = (member.dataset, member.factor)
        found[key] = found[key] + member if key in found else member
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Writing:
    """A region as it is written: what its lines are, and which weights stand above each."""

    region: str
    cuts: Mapping[str, bool]  #: in written order: cut -> inverted
    order: tuple[str, ...]  #: all steps, as written
    weights: frozenset[str]
    used: frozenset[str]  #: cuts of any region

    def shown(self, order: tuple[str, ...], weights: frozenset[str] | None = None) -> object:
        """What of an order a table depends on: the cuts, and which weights come before each.

        And before the first cut of any region: those written there weight the initial line.
        """
        weights = self.weights if weights is None else weights
        above = self._before_first(self.order) & weights
        before: set[str] = set()
        found: list[tuple[str, frozenset[str]]] = []
        for name in order:
            if name in weights:
                before.add(name)
            elif name in self.cuts:
                found.append((name, frozenset(before)))
        return self._before_first(order) & above, tuple(found)

    def odd_rows(self, cut: str, parts: Mapping[Layout, LineCounts]) -> tuple[int, int] | tuple[None, None]:
        """Count rows that were undefined or had NaN, if the same rows reached the cut as in the written order."""

        def above(order: tuple[str, ...]) -> set[str]:
            return {name for name in order[: order.index(cut)] if name in self.cuts}

        if any(above(plan.order) != above(self.order) for plan in parts):
            return None, None
        found = [lines.counts[plan.line(self.region, cut)] for plan, lines in parts.items()]
        return sum(int(counts[2]) for counts in found), sum(int(counts[3]) for counts in found)

    def ends_as_written(self, parts: Iterable[Layout]) -> bool:
        """Say whether the last cut that ran stands below the weights of the last written line, and no others."""
        if not self.cuts:
            return False

        def above(order: tuple[str, ...]) -> frozenset[str]:
            last = max(order.index(cut) for cut in self.cuts)
            return self.weights & frozenset(order[:last])

        return all(above(plan.order) == above(self.order) for plan in parts)

    def _before_first(self, order: tuple[str, ...]) -> frozenset[str]:
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
        existing = frozenset(weights)
        absent = frozenset(n for n, cut in enumerate(self.cuts) if cut in member.absent)
        parts = [self._ran(p, lines, existing, absent) for p, lines in member.parts.items()]
        there = {cut for cut in self.cuts if cut not in member.absent}
        windows = [window for window in member.windows if there <= set(window.cuts)]
        seen = patterns(windows, self.cuts, weights) if windows else None
        found = estimate(parts, seen, [len(above) for above in self._above(existing)])
        if found is None:
            return None
        by = member.factor
        return [
            line._replace(sumw=line.sumw * by, sumw2=line.sumw2 * by**2, sumw_error=line.sumw_error * abs(by))
            for line in found
        ]

    def _above(self, weights: frozenset[str]) -> list[frozenset[str]]:
        """Return the weights above each line, the initial one first."""
        place = self.order.index
        lines = [weights & frozenset(self.order[: place(cut)]) for cut in self.cuts]
        return [self._before_first(self.order) & weights, *lines]

    def _ran(self, plan: Layout, lines: LineCounts, weights: frozenset[str], absent: frozenset[int]) -> Stratified:
        number = plan.regions.index(self.region)
        place = {cut: n for n, cut in enumerate(self.cuts)}
        cuts = tuple(place[cut] for cut in plan.lines[number])
        first, end = plan.first[number], plan.end(self.region)
        entered, passed = lines.counts[first:end, 0].tolist(), lines.counts[first:end, 1].tolist()
        return Stratified(
            order=plan.order,
            cuts=cuts,
            rejected=tuple(a - b for a, b in zip(entered[1:], passed[1:], strict=True)),
            passed=int(lines.counts[end, 1]),
            sums={
                line: (float(lines.sums[where, 0]), float(lines.sums[where, 1]))
                for line, where in self._known(plan, cuts, first, weights).items()
            },
            absent=absent,
        )

    def _known(self, plan: Layout, cuts: Sequence[int], first: int, weights: frozenset[str]) -> dict[int, int]:
        """Written lines whose weighted rows are those of a line that ran, and where that stands."""
        above = self._above(weights)
        known = {}
        if above[0] <= self._before_first(plan.order):
            known[INITIAL_LINE] = first
        for ran in range(1, len(cuts) + 1):
            cut = plan.lines[plan.regions.index(self.region)][ran - 1]
            before = weights & frozenset(plan.order[: plan.order.index(cut)])
            if set(cuts[:ran]) == set(range(ran)) and before == above[ran]:
                known[ran - 1] = first + ran
        known[len(cuts) - 1] = plan.end(self.region)
        return known


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
