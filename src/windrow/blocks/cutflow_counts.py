"""Cutflow counts: rows that reached and passed each cut in each lane, raw and weighted, in one record.

``counts[order, lane]`` is an array with the columns of ``COLUMNS``. Its lines are

- ``(order, region)``: all rows, then the region's cuts as that order has them, each weighted by the weights that ran before
  it; cuts that do not apply to the dataset keep their line;
- ``((), region)``: what the written program shows first and last, in every order: all rows, with the weights written above
  the first cut of any region, and what passed all cuts, with the weights written above the region's last one. A user's own
  order may have a weight of the first line run below a cut: the sums of that line are then NaN;
- ``((), all_weights(lane))``: what a lane has in the end, with all weights; where N-1 tables or files ask for it.

Counts of a chunk are kept unit by unit, because weighted sums are merged in the same fixed tree as the outputs: the last
digits of a sum depend on what is added first.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import Lane, Program
    from windrow.blocks.selection import Selection

Order = tuple[str, ...]
Counts = dict[tuple[Order, str], "NDArray[np.float64]"]

#: Whole numbers up to 2**53 are exact as floats.
COLUMNS = ("entered", "passed", "undefined", "nan", "sumw", "sumw2")

#: The order of what is the same in all orders, and its lines for a region.
ANY_ORDER: Order = ()
NO_STEPS: Order = ("",)  #: the order of a program without any, which is not that of all others
INITIAL, END = 0, 1

#: The lane of all rows before any cut; no region is called so.
ALL_ROWS = "\x1fall"


def all_weights(lane: str) -> str:
    """Name the counts of what a lane has in the end, with all weights."""
    return f"{lane}\x1fN"


def is_end(lane: str) -> bool:
    """Say whether counts are those of what a lane has in the end, with all weights."""
    return lane.endswith(all_weights(""))


def cuts_in(order: Order, cuts: Container[str]) -> tuple[str, ...]:
    """Return the cuts of a region as an order has them."""
    return tuple(name for name in order if name in cuts)


def merge_counts(left: Counts, right: Counts) -> Counts:
    """Add two records; what only one has is taken over."""
    merged = dict(left)
    for key, lines in right.items():
        merged[key] = merged[key] + lines if key in merged else lines
    return merged


def initial_weights(program: Program) -> tuple[str, ...]:
    """Return the weights that are written above the first cut of any region."""
    return _weights_above(program, program.used_cuts, min)


def end_weights(program: Program, lane: Lane) -> tuple[str, ...]:
    """Return the weights that are written above the last cut of a region, as its last line has them."""
    return _weights_above(program, lane.declared, max) if lane.declared else initial_weights(program)


def _weights_above(program: Program, cuts: Iterable[str], which: Any) -> tuple[str, ...]:
    # Cuts that do not apply here are no steps of the program, but their lines stand where they are written.
    written = program.all_written or program.written
    place = {name: number for number, name in enumerate(written)}
    places = [place[cut] for cut in cuts if cut in place]
    end = which(places) if places else len(written)
    return tuple(name for name in program.weights if place[name] < end)


class CountRecorder:
    """Fills the counts of one chunk while it runs."""

    def __init__(self, run: ChunkRun) -> None:
        self._run = run
        self._order = run.order or NO_STEPS
        self._units = len(run.borders) - 1
        self._regions: dict[int, str] = {}  #: lanes with lines of their own
        self._line: dict[tuple[str, str], int] = {}  #: (region, cut) -> number of its line
        self.counts: Counts = {}  #: with the units as first dimension
        for number, lane in enumerate(run.program.lanes):
            if lane.region is None or lane.hidden:
                continue
            self._regions[number] = lane.region
            cuts = cuts_in(self._order, lane.declared)
            self._line.update({(lane.region, cut): line for line, cut in enumerate(cuts, start=1)})
            self._new(self._order, lane.region, lines=1 + len(cuts))
            self._new(ANY_ORDER, lane.region, lines=2)

    def _new(self, order: Order, lane: str, lines: int) -> NDArray[np.float64]:
        self.counts[order, lane] = np.zeros((self._units, lines, len(COLUMNS)))
        return self.counts[order, lane]

    def record_initial(self) -> None:
        """Fill the first lines, when the first cut of any region is about to run."""
        run = self._run
        above = initial_weights(run.program)
        for region in self._regions.values():
            self._fill(self._order, region, 0, run.rows, run.rows, above)
            same = self.counts[ANY_ORDER, region][:, INITIAL]
            same[:] = self.counts[self._order, region][:, 0]
            if not set(above) <= run.varied.keys():
                same[:, 4:] = math.nan

    def record_cut(
        self,
        lane: int,
        cut: str,
        entered: Selection,
        passed: Selection,
        undefined: Selection | None = None,
        nan: Selection | None = None,
    ) -> None:
        """Fill the line of a cut in the lane of a region."""
        run, region = self._run, self._regions[lane]
        lines = self._fill(self._order, region, self._line[region, cut], entered, passed, run.program.weights)
        for column, rows in ((2, undefined), (3, nan)):
            if rows is not None:
                lines[:, column] = np.diff(rows.cut_at(run.borders))

    def record_ends(self) -> None:
        run, program = self._run, self._run.program
        for number, region in self._regions.items():
            weights = end_weights(program, program.lanes[number])
            self._fill(ANY_ORDER, region, END, run.rows, run.selections[number], weights)
            run.pack(run.selections[number])
        if program.initial_weights is None:
            return
        for number, lane in enumerate(program.lanes):
            if lane.region is not None and (lane.optional or not lane.hidden):
                self._new(ANY_ORDER, all_weights(lane.region), lines=1)
                rows = run.selections[number]
                self._fill(ANY_ORDER, all_weights(lane.region), 0, run.rows, rows, program.weights)
                run.pack(rows)
        self._new(ANY_ORDER, all_weights(ALL_ROWS), lines=1)
        self._fill(ANY_ORDER, all_weights(ALL_ROWS), 0, run.rows, run.rows, program.initial_weights)

    def _fill(
        self, order: Order, lane: str, line: int, entered: Selection, passed: Selection, allowed: Iterable[str]
    ) -> NDArray[np.float64]:
        """Fill a line, weighted by those of the weights ``allowed`` that ran so far; return it."""
        run = self._run
        lines = self.counts[order, lane][:, line]
        ends = passed.cut_at(run.borders)
        lines[:, 0] = np.diff(entered.cut_at(run.borders))
        lines[:, 1] = np.diff(ends)
        names = [name for name in allowed if name in run.varied]
        weights = run.product(names, passed) if passed.count else None
        if weights is None:
            lines[:, 4:] = lines[:, 1, np.newaxis]
            return lines
        squares = weights * weights
        for unit, (start, stop) in enumerate(pairwise(ends.tolist())):
            # One sum per unit, over the same values in the same order whatever the chunk.
            lines[unit, 4:] = weights[start:stop].sum(), squares[start:stop].sum()
        return lines

    def unit(self, number: int) -> Counts:
        return {key: lines[number] for key, lines in self.counts.items()}
