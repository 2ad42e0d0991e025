"""Cutflow counts of one chunk, per unit: rows that reached and passed each cut in each lane, raw and weighted.

Kept unit by unit, because weighted sums are merged in the same fixed tree as the outputs. The lines of cuts are weighted by
the weights that ran before them. The first and the last line of a region are what the written program shows there, in every
order that Windrow chooses: all rows, with the weights written above the first cut of any region, and what passed all cuts,
with the weights written above the region's last one. A user's own order may have such a weight run below a cut: the first
line is then one of the order that ran, and not of the written one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from windrow.blocks.program import Lane, Program
    from windrow.blocks.selection import Selection

__all__ = [
    "COUNTS",
    "Layout",
    "LineCounts",
    "Lines",
    "end_weights",
    "initial_weights",
    "is_moved",
    "layout",
    "starts_as_written",
]

#: What the columns of ``LineCounts.counts`` are.
COUNTS = ("entered", "passed", "undefined", "nan")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the lines of each lane stand; the same for all chunks of a dataset that run in the same order."""

    order: tuple[str, ...]  #: all steps as the plan has them
    regions: tuple[str, ...]
    lines: tuple[
        tuple[str, ...], ...
    ]  #: per region: its cuts in that order; an "initial" line comes first, and one of the end last
    first: tuple[int, ...]  #: where each region's initial line stands
    size: int

    def line(self, region: str | None, cut: str) -> int:
        """Return where the line of a cut in a region stands."""
        number = self.regions.index(region) if region is not None else 0
        return self.first[number] + 1 + self.lines[number].index(cut)

    def end(self, region: str | None) -> int:
        """Return where the line of what passed all cuts of a region stands."""
        number = self.regions.index(region) if region is not None else 0
        return self.first[number] + 1 + len(self.lines[number])


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Counts and weighted sums of every line; they add up."""

    counts: NDArray[np.int64]  #: (lines, 4)
    sums: NDArray[np.float64]  #: (lines, 2): sum of weights and of squared weights of the rows that passed

    def __add__(self, other: LineCounts) -> LineCounts:
        return LineCounts(self.counts + other.counts, self.sums + other.sums)


def layout(program: Program, order: tuple[str, ...]) -> Layout:
    """Lay out the lines for one order of a pipeline's steps; cuts that do not apply keep their line."""
    cuts = [name for name in order if name in program.cuts]
    lanes = [lane for lane in program.lanes if lane.region is not None and not lane.hidden]
    lines = tuple(tuple(name for name in cuts if name in lane.declared) for lane in lanes)
    sizes = [len(names) + 2 for names in lines]
    first = tuple(sum(sizes[:number]) for number in range(len(sizes)))
    regions = tuple(lane.region for lane in lanes if lane.region is not None)
    return Layout(order, regions, lines, first, sum(sizes))


def initial_weights(program: Program) -> tuple[str, ...]:
    """Return the weights that are written above the first cut of any region."""
    return _above(program, program.used_cuts, min)


def end_weights(program: Program, lane: Lane) -> tuple[str, ...]:
    """Return the weights that are written above the last cut of a region, as its last line has them."""
    return _above(program, lane.declared, max) if lane.declared else initial_weights(program)


def is_moved(program: Program, order: tuple[str, ...]) -> bool:
    """Say whether an order shows in cutflows: cuts, or weights among them, stand elsewhere than written."""
    written = _all_written(program)
    shown = {*program.cuts, *program.weights} & set(written)
    return [n for n in order if n in shown] != [n for n in written if n in shown]


def starts_as_written(program: Program, order: tuple[str, ...]) -> bool:
    """Say whether the weights that are written above the first cut of any region ran above it."""
    first_cut = next((n for n, name in enumerate(order) if name in program.used_cuts), None)
    return set(initial_weights(program)) <= set(order[:first_cut])


def _all_written(program: Program) -> tuple[str, ...]:
    # Cuts that do not apply here are no steps of the program, but their lines stand where they are written.
    return program.all_written or program.written


def _above(program: Program, cuts: Iterable[str], which: Any) -> tuple[str, ...]:
    written = _all_written(program)
    place = {name: number for number, name in enumerate(written)}
    places = [place[cut] for cut in cuts if cut in place]
    end = which(places) if places else len(written)
    return tuple(name for name in program.weights if place[name] < end)


class Lines:
    """Fills the lines of one chunk."""

    def __init__(self, plan: Layout, borders: NDArray[np.int64]) -> None:
        self.layout = plan
        self.borders = borders
        units = len(borders) - 1
        self._counts = np.zeros((units, plan.size, len(COUNTS)), dtype=np.int64)
        self._sums = np.zeros((units, plan.size, 2))

    def record(
        self,
        line: int,
        entered: Selection,
        passed: Selection,
        undefined: Selection | None,
        nan: Selection | None,
        weights: NDArray[np.float64] | None,
    ) -> None:
        """Fill one line; ``weights`` belong to the rows that passed, None where there are no weights."""
        ends = passed.cut_at(self.borders)
        counts = self._counts[:, line]
        counts[:, 0] = np.diff(entered.cut_at(self.borders))
        counts[:, 1] = np.diff(ends)
        if undefined is not None:
            counts[:, 2] = np.diff(undefined.cut_at(self.borders))
        if nan is not None:
            counts[:, 3] = np.diff(nan.cut_at(self.borders))
        sums = self._sums[:, line]
        if weights is None:
            sums[:] = counts[:, 1, np.newaxis]
            return
        squares = weights * weights
        for unit, (start, stop) in enumerate(pairwise(ends)):
            # One sum per unit, over the same values in the same order whatever the chunk.
            sums[unit] = weights[start:stop].sum(), squares[start:stop].sum()

    def unit(self, number: int) -> LineCounts:
        """Return the lines of one unit."""
        return LineCounts(self._counts[number], self._sums[number])

    def leaf(self, number: int, known: bool) -> tuple[dict[Layout, LineCounts], dict[str, tuple[float, ...]]]:
        """Return the lines of one unit, and the sums of each region's first and last line once more.

        These are the same in all orders, so that they are also added up apart from them: the last digits of a sum
        depend on what is added first. Those of the first line are NaN where it is not ``known``: where a weight of it
        ran too late.
        """
        plan, lines = self.layout, self.unit(number)
        finals: dict[str, tuple[float, ...]] = {}
        for region, first in zip(plan.regions, plan.first, strict=True):
            initial = lines.sums[first].tolist() if known else (math.nan, math.nan)
            finals[region] = (*initial, *lines.sums[plan.end(region)].tolist())
        return {plan: lines}, finals
