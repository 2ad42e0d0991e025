"""Expected seconds per chunk of an order, counted on the sampled rows.

A step costs ``fixed_s`` per call and ``row_s`` per row alive in any of its lanes. It is called only in chunks with such a
row, once per block of rows. A column of the file is a step of its own, ``("read", column)``, for all lanes that read it:
it runs just before its first reader and costs ``unit_s`` per row of the units with any row alive.

A row is alive in a lane while none of the lane's cuts that have run rejects it. How many are alive is counted on the
distinct patterns of verdicts. They are taken as scattered evenly: of units of n rows, ``1 - exp(-p * n)`` have one. Half
a row is added to those that were seen, since no row among some hundred is no certainty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from windrow.core.records import FAILED, PASSED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.core.records import Window
    from windrow.order.model import Lane, Situation

    Bools: TypeAlias = NDArray[np.bool_]
    Floats: TypeAlias = NDArray[np.float64]

#: A step by its name, or the reading of a column of the file.
StepId: TypeAlias = "str | tuple[str, str]"

#: A cut that does not exist for a window's rows: it rejects nothing, inverted or not.
ABSENT = 2
#: Windows are left out in at most this many groups when an error is estimated.
MOST_GROUPS = 32
#: With fewer windows than this, groups of rows are left out instead: so many of them, by a number that scatters them.
LEAST_WINDOWS, ROW_GROUPS, SCATTER = 4, 8, 0x9E3779B1


class Price(NamedTuple):
    """What a step costs, and the lanes whose rows it is paid for."""

    lanes: tuple[int, ...]
    fixed_s: float = 0.0  #: per call
    row_s: float = 0.0  #: per row alive
    block: int = 0  #: rows per call at most; 0: all of a chunk
    unit_s: float = 0.0  #: per row of the units with any row alive
    unit_bytes: float = 0.0

    def plus(self, other: Price) -> Price:
        """Add the price of a step for the same lanes and blocks."""
        return self._replace(
            fixed_s=self.fixed_s + other.fixed_s, row_s=self.row_s + other.row_s, unit_s=self.unit_s + other.unit_s
        )


class StepExpected(NamedTuple):
    """What a step is expected to do and to cost at its place, per chunk."""

    name: str
    alive: float  #: share of the chunk's rows that it sees
    passes: float  #: share of those that any of its lanes wants afterwards
    seconds: float  #: of the step itself
    column_s: float  #: of the columns that are read for it
    column_bytes: float


class Expected(NamedTuple):
    """What an order is expected to cost per chunk."""

    total: float  #: seconds
    steps: tuple[StepExpected, ...]  #: in the order asked for


@dataclass(frozen=True, slots=True, eq=False)
class SampledRows:
    """The rows in the windows of a situation, by distinct pattern of verdicts."""

    counts: Floats  #: (groups of windows, patterns): rows
    keeps: Mapping[str, Bools]  #: cut -> (lanes, patterns): whether the cut leaves the pattern in the lane
    lanes: int
    chunk_rows: float
    unit_rows: float

    def everything(self) -> Bools:
        """Give what is alive before any cut: (lanes, patterns), all."""
        return np.ones((self.lanes, self.counts.shape[1]), np.bool_)

    def seconds(self, price: Price, rows: Floats, total: Floats | float) -> Floats:
        """Say what a step costs in a chunk where ``rows`` of ``total`` sampled ones are alive."""
        alive = rows * (self.chunk_rows / total)
        calls = self._any(rows, total, self.chunk_rows)
        if price.block:
            calls = calls * np.maximum(1.0, alive / price.block)
        seconds: Floats = price.fixed_s * calls + price.row_s * alive
        return seconds + price.unit_s * self.rows_read(rows, total) if price.unit_s else seconds

    def rows_read(self, rows: Floats, total: Floats | float) -> Floats:
        """Count the rows of the units of a chunk with any row alive."""
        return self.chunk_rows * self._any(rows, total, self.unit_rows)

    def _any(self, rows: Floats, total: Floats | float, among: float) -> Floats:
        """Give the share of parts of ``among`` rows with any row alive."""
        share: Floats = -np.expm1(-among * np.minimum((rows + 0.5) / total, 1.0))
        return share


def sampled_rows(situation: Situation) -> SampledRows:
    """Collect the patterns; without any window, one row that every cut keeps stands for all."""
    windows = [window for window in situation.windows if window.rows.any()]
    cuts = situation.cuts
    verdicts, counts = np.full((1, len(cuts)), ABSENT, np.int8), np.ones((1, 1))
    if windows:
        cells = np.concatenate([verdicts_of(window, cuts, ABSENT) for window in windows])
        rows = np.concatenate([window.rows for window in windows])
        verdicts, pattern = np.unique(cells, axis=0, return_inverse=True)
        pattern = pattern.ravel()
        group = np.repeat(np.arange(len(windows)) % MOST_GROUPS, [len(window.rows) for window in windows])
        if len(windows) < LEAST_WINDOWS:
            # How windows differ says nothing; how rows do says something. Scattered, as alike ones are side by side.
            pattern, rows = np.repeat(pattern, rows), np.ones(rows.sum())
            group = np.arange(len(rows)) * SCATTER % 2**32 * ROW_GROUPS >> 32
        counts = np.zeros((group.max() + 1, len(verdicts)))
        np.add.at(counts, (group, pattern), rows)
    return SampledRows(
        counts=counts,
        keeps={cut: _keeps(cut, verdicts[:, number], situation.lanes) for number, cut in enumerate(cuts)},
        lanes=len(situation.lanes),
        chunk_rows=situation.chunk_rows,
        unit_rows=situation.unit_rows or situation.chunk_rows,
    )


def verdicts_of(window: Window, cuts: Sequence[str], absent: int) -> NDArray[np.int8]:
    """Give the verdicts of a window with a column for every cut, ``absent`` where it has none."""
    result = np.full((len(window.verdicts), len(cuts)), absent, np.int8)
    for number, cut in enumerate(cuts):
        if cut in window.cuts:
            result[:, number] = window.verdicts[:, window.cuts.index(cut)]
    return result


def _keeps(cut: str, verdicts: NDArray[np.int8], lanes: Sequence[Lane]) -> Bools:
    kept = np.ones((len(lanes), len(verdicts)), np.bool_)
    for mine, lane in zip(kept, lanes, strict=True):
        for name, inverted in lane.cuts:
            if name == cut:
                mine &= (verdicts == (FAILED if inverted else PASSED)) | (verdicts == ABSENT)
    return kept


def prices_of(situation: Situation) -> dict[StepId, Price]:
    """Price every step, and every column of the file that steps read."""
    prices: dict[StepId, Price] = {}
    readers: dict[str, set[int]] = {}
    for name in situation.written:
        step = situation.steps[name]
        lanes = widest_lanes(situation, step.lanes)
        prices[name] = Price(lanes, step.fixed_s, step.row_s, step.block) if lanes else Price(())
        for column in step.columns:
            if column in situation.columns:
                readers.setdefault(column, set()).update(step.lanes)
    for column, lanes_reading in readers.items():
        lanes = widest_lanes(situation, lanes_reading)
        _, row_s, size = situation.columns[column]
        prices["read", column] = Price(lanes, unit_s=row_s, unit_bytes=size) if lanes else Price(())
    return prices


def widest_lanes(situation: Situation, lanes: Sequence[int] | set[int]) -> tuple[int, ...]:
    """Leave out lanes that add no row to the other lanes: those with all the cuts of another, and equals of it."""
    cuts = {lane: set(situation.lanes[lane].cuts) for lane in lanes}
    return tuple(
        lane
        for lane in sorted(cuts)
        if not any(cuts[other] < cuts[lane] or (cuts[other] == cuts[lane] and other < lane) for other in cuts)
    )


def expected_cost(situation: Situation, order: Sequence[str], sampled: SampledRows | None = None) -> Expected:
    """Say what a legal order of all steps costs; ``sampled`` saves collecting the rows again."""
    sampled = sampled or sampled_rows(situation)
    counts = sampled.counts.sum(axis=0, keepdims=True)
    steps = []
    for name, *values in _follow(situation, order, sampled, counts):
        before, after, seconds, column_s, column_bytes = (float(value[0]) for value in values)
        passes = after / before if before else 1.0
        steps.append(StepExpected(name, before, passes, seconds, column_s, column_bytes))
    return Expected(sum(step.seconds + step.column_s for step in steps), tuple(steps))


def jackknifed_costs(situation: Situation, order: Sequence[str], sampled: SampledRows) -> Floats:
    """Say what an order would seem to cost with one group of windows after the other left out.

    Costs of two orders may be subtracted: the same groups are left out.
    """
    counts = sampled.counts.sum(axis=0) - sampled.counts
    costs = np.zeros(len(counts))
    for _, _, _, seconds, column_s, _ in _follow(situation, order, sampled, counts):
        costs += seconds + column_s
    return costs


def _follow(
    situation: Situation, order: Sequence[str], sampled: SampledRows, counts: Floats
) -> Iterator[tuple[str, Floats, Floats, Floats, Floats, Floats]]:
    """Follow rows through an order, for each way to count the patterns.

    By step: share of rows before and after it, its seconds, seconds and bytes of the columns that are read for it.
    """
    prices = prices_of(situation)
    total = counts.sum(axis=1)
    alive = sampled.everything()
    known: dict[tuple[int, ...], Floats] = {}
    read: set[StepId] = set()

    def rows(lanes: tuple[int, ...]) -> Floats:
        if lanes not in known:
            known[lanes] = counts @ alive[list(lanes)].any(axis=0)
        return known[lanes]

    for name in order:
        lanes = prices[name].lanes
        before = rows(lanes)
        seconds = sampled.seconds(prices[name], before, total)
        column_s, column_bytes = np.zeros(len(counts)), np.zeros(len(counts))
        for column in situation.steps[name].columns:
            reading = ("read", column)
            if reading in prices and reading not in read:
                read.add(reading)
                here = sampled.rows_read(rows(prices[reading].lanes), total)
                column_s += prices[reading].unit_s * here
                column_bytes += prices[reading].unit_bytes * here
        if situation.steps[name].kind == "cut":
            alive &= sampled.keeps[name]
            known.clear()
        yield name, before / total, rows(lanes) / total, seconds, column_s, column_bytes
