"""What an order costs: expected seconds per chunk, counted directly on the sampled rows.

A step costs ``fixed_s`` per call and ``row_s`` per row alive in any of its lanes. It is called at
all only in chunks with such a row, and once per block of rows. A column of the file is charged
where it is first read: for the units with any row alive, all their rows. If it is read again for
other lanes, the units alive in those alone are added; a unit that was read for a lane and has died
there since is then charged twice, which is never too little. With one lane nothing is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.order.survival import sample_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from windrow.order.model import Situation
    from windrow.order.survival import Bools, Floats, Sample

__all__ = ["Expected", "StepExpected", "expected_cost", "jackknifed_costs"]

#: Windows are left out in at most this many groups when an error is estimated.
MOST_GROUPS = 32


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

    @property
    def bytes(self) -> float:
        """Stored bytes of the columns that are read."""
        return sum(step.column_bytes for step in self.steps)


def expected_cost(situation: Situation, order: Sequence[str], sample: Sample | None = None) -> Expected:
    """Say what a legal order of all steps costs; ``sample`` saves laying out the windows again."""
    trace = _Trace.of(situation, order, sample or sample_of(situation))
    everything = np.ones((1, len(trace.sample.sizes)))
    share, seconds, units = (values[0] for values in trace.evaluate(everything))
    reading = units * trace.sample.chunk_rows
    column_s = np.bincount(trace.reader, reading * trace.column_s, len(order))
    column_bytes = np.bincount(trace.reader, reading * trace.column_bytes, len(order))
    before, after = share[trace.before], share[trace.after]
    passes = np.divide(after, before, out=np.ones(len(order)), where=before > 0)
    steps = zip(order, before, passes, seconds, column_s, column_bytes, strict=True)
    return Expected(
        float(seconds.sum() + column_s.sum()), tuple(StepExpected(name, *map(float, values)) for name, *values in steps)
    )


def jackknifed_costs(situation: Situation, order: Sequence[str], sample: Sample) -> Floats:
    """Say what an order would seem to cost with one group of windows after the other left out.

    Costs of two orders may be subtracted: the same groups are left out.
    """
    windows = len(sample.sizes)
    groups = min(windows, MOST_GROUPS)
    keep = np.arange(windows) % groups != np.arange(groups)[:, None]
    trace = _Trace.of(situation, order, sample)
    _, seconds, units = trace.evaluate(keep.astype(np.float64))
    costs: Floats = seconds.sum(axis=1) + units @ trace.column_s * sample.chunk_rows
    return costs


@dataclass(frozen=True, slots=True, eq=False)
class _Trace:
    """An order followed through the sample: which rows are alive where, before anything is priced."""

    sample: Sample
    counts: Floats  #: (sets of rows, windows): how many of a window's rows are in a set; the last is empty
    before: NDArray[np.intp]  #: by step: the set that it sees
    after: NDArray[np.intp]  #: by step: the set that its lanes want afterwards
    prices: Floats  #: (fixed_s, row_s, block) by step
    reader: NDArray[np.intp]  #: by column reading: the step
    gained: NDArray[np.intp]  #: by column reading: a set of which every unit has been read afterwards
    owned: NDArray[np.intp]  #: by column reading: a set of which every unit had been read before
    column_s: Floats
    column_bytes: Floats

    @classmethod
    def of(cls, situation: Situation, order: Sequence[str], sample: Sample) -> _Trace:
        alive = _Alive(sample)
        before, after, prices = [], [], []
        readings: list[tuple[int, int, int, float, float]] = []
        covered: dict[str, frozenset[int]] = {}
        for number, name in enumerate(order):
            step = situation.steps[name]
            lanes = frozenset(step.lanes)
            before.append(alive.number(lanes))
            prices.append((step.fixed_s, step.row_s, float(step.block)))
            for column in dict.fromkeys(step.columns):
                owned = covered.get(column, frozenset())
                if not lanes <= owned and column in situation.columns:
                    _, row_s, size = situation.columns[column]
                    sets = alive.number(owned | lanes), alive.number(owned)
                    readings.append((number, *sets, row_s, size))
                    covered[column] = owned | lanes
            if step.kind == "cut":
                alive.run(name)
            after.append(alive.number(lanes))
        counts = np.array([*alive.counts, np.zeros(len(sample.sizes))])
        reader, gained, owned_sets, column_s, column_bytes = np.array(readings).reshape(-1, 5).T
        return cls(
            sample, counts, np.array(before, np.intp), np.array(after, np.intp),
            np.array(prices).reshape(-1, 3).T, reader.astype(np.intp), gained.astype(np.intp),
            owned_sets.astype(np.intp), column_s, column_bytes,
        )  # fmt: skip

    def evaluate(self, keep: Floats) -> tuple[Floats, Floats, Floats]:
        """Give, for each row of ``keep``: the share of rows by set, seconds by step, units by reading.

        ``keep`` says how often each window counts.
        """
        sample = self.sample
        total = keep @ sample.sizes[:, None]
        alive = keep @ self.counts.T
        none = (self.counts == 0).T
        bare = [(keep[:, kind.members] * sample.sizes[kind.members]) @ none[kind.members] for kind in sample.kinds]
        units = sample.unit_share(alive, bare, total)
        units[:, -1] = 0.0  # a step that nobody needs
        share = alive / total
        fixed_s, row_s, block = self.prices
        rows = share[:, self.before] * sample.chunk_rows
        blocks = np.divide(rows, block, out=np.ones_like(rows), where=block > 0)
        calls = sample.chunk_share(units)[:, self.before] * np.maximum(1.0, blocks)
        return (share, fixed_s * calls + row_s * rows, units[:, self.gained] - units[:, self.owned])


class _Alive:
    """The rows alive in every lane, and the sets of them that were asked for."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self.lanes = sample.everything()
        self.counts: list[Floats] = []
        self.known: dict[frozenset[int], int] = {}

    def run(self, cut: str) -> None:
        """Let a cut reject rows."""
        for lane in range(len(self.lanes)):
            kept = self.sample.lanes[lane].get(cut)
            if kept is not None:
                self.lanes[lane] = self.lanes[lane] & kept
                self.known = {lanes: n for lanes, n in self.known.items() if lane not in lanes}

    def number(self, lanes: frozenset[int]) -> int:
        """Count the rows that are alive in any of the lanes now, and give the set's number."""
        if not lanes:
            return -1
        if lanes not in self.known:
            union: Bools = np.logical_or.reduce([self.lanes[lane] for lane in sorted(lanes)])
            rows = self.sample.rows * union
            counts = np.bincount(self.sample.window, rows, len(self.sample.sizes))
            self.known[lanes] = len(self.counts)
            self.counts.append(counts.astype(np.float64))
        return self.known[lanes]
