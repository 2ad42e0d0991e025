"""From sampled windows to what is alive: how many rows, and in how many units and chunks any row at all.

A row is alive in a lane while none of the lane's cuts that have run rejects it. How many rows are
alive is counted. Whether a unit has *any* such row decides if a column must be read for it. A
window with a survivor proves that its unit has one. A window without one proves it only for the
rows that were looked at; for the rest of its unit the chance is ``1 - (1 - p) ** rest`` with

    p = 1 / (looked + 1 / pooled),    pooled = min(1, (alive + 1/2) / looked by all windows).

So the rate of all windows counts as much as the rows in which it promises one survivor, and half a
row is added to it: that none was seen is never certainty. Where whole units are looked at there is
no rest, and the answer is yes or no for each. The units of a chunk are taken as drawn independently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from windrow.core.records import FAILED, PASSED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from windrow.core.records import Window
    from windrow.order.model import Lane, Situation

__all__ = ["Bools", "Floats", "Kind", "Sample", "sample_of", "thinned"]

Bools: TypeAlias = "NDArray[np.bool_]"
Floats: TypeAlias = "NDArray[np.float64]"

#: A cut that does not exist for a window's rows: it rejects nothing, inverted or not.
ABSENT = 2
#: Windows are told apart by how much of their unit they left unseen, but not more finely than this.
MOST_KINDS = 4


class Kind(NamedTuple):
    """Windows that left about equally many rows of their units unseen."""

    looked: float  #: rows looked at in each, on average
    rest: float  #: rows of its unit that were not, on average
    members: NDArray[np.intp]  #: numbers of the windows


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The windows of a situation as arrays over cells: a cell is a pattern of verdicts in one window."""

    rows: Floats  #: of each cell
    window: NDArray[np.intp]  #: of each cell; cells are in order of windows
    sizes: Floats  #: rows of each window
    kinds: tuple[Kind, ...]  #: every window is in one
    lanes: tuple[Mapping[str, Bools], ...]  #: by lane: cut -> cells that it keeps there
    #: by lane: other lanes, as bits, that have no cut which this one has not: all its rows are theirs
    wider: tuple[int, ...]
    chunk_rows: float
    units: float  #: in a chunk

    @property
    def total(self) -> float:
        """How many rows were looked at."""
        return float(self.sizes.sum())

    def everything(self) -> list[Bools]:
        """Give, for each lane, the cells alive before any cut has run: all."""
        return [np.ones(len(self.rows), np.bool_) for _ in self.lanes]

    def only(self, cells: Bools) -> Sample:
        """Leave out cells that are dead in every lane: windows keep their sizes, so nothing else changes."""
        return replace(
            self,
            rows=self.rows[cells],
            window=self.window[cells],
            lanes=tuple({cut: kept[cells] for cut, kept in lane.items()} for lane in self.lanes),
        )

    def without_contained(self, mask: int) -> int:
        """Leave out lanes that add no row to a union of lanes, given as bits."""
        lanes = range(mask.bit_length())
        return sum(1 << lane for lane in lanes if mask >> lane & 1 and not self.wider[lane] & mask)

    def unit_share(self, alive: Floats, bare: Sequence[Floats], total: Floats | float) -> Floats:
        """Estimate the share of units with any row alive.

        ``alive`` rows were seen of ``total``; ``bare`` says by kind how many rows are in windows
        without any. Shapes are the caller's, so that a million states cost a handful of calls.
        """
        per_survivor = np.maximum(1.0, total / (alive + 0.5))
        dead = np.zeros(np.shape(alive))
        for kind, rows in zip(self.kinds, bare, strict=True):
            if kind.rest:
                none_left = kind.rest * np.log1p(-1.0 / (kind.looked + per_survivor))
                dead += rows * np.exp(none_left)
            else:
                dead += rows
        share: Floats = 1.0 - dead / total
        return share

    def chunk_share(self, units: Floats) -> Floats:
        """Estimate the share of chunks with any row alive from the share of units."""
        if self.units == 1.0:
            return units
        share: Floats = 1.0 - np.maximum(1.0 - units, 0.0) ** self.units
        return share


def sample_of(situation: Situation) -> Sample:
    """Lay out the windows of a situation; without any, one row that every cut keeps stands for all."""
    windows = [window for window in situation.windows if int(window.rows.sum()) > 0]
    if windows:
        rows = np.concatenate([window.rows for window in windows]).astype(np.float64)
        number = np.repeat(np.arange(len(windows)), [len(window.rows) for window in windows])
        sizes: Floats = np.bincount(number, weights=rows).astype(np.float64)
        rest = np.maximum(0.0, np.array([w.unit_rows for w in windows]) - sizes)
    else:
        rows, number = np.ones(1), np.zeros(1, np.intp)
        sizes, rest = np.ones(1), np.zeros(1)
    literals = {literal for lane in situation.lanes for literal in lane.cuts}
    verdicts = {cut: _verdicts(cut, windows) for cut, _ in literals}
    keeps = {
        (cut, inverted): (verdicts[cut] == (FAILED if inverted else PASSED)) | (verdicts[cut] == ABSENT)
        for cut, inverted in literals
    }
    sample = Sample(
        rows=rows,
        window=number,
        sizes=sizes,
        kinds=_kinds(sizes, rest),
        lanes=tuple(_lane(lane, keeps) for lane in situation.lanes),
        wider=_wider([set(lane.cuts) for lane in situation.lanes]),
        chunk_rows=situation.chunk_rows,
        units=situation.chunk_rows / situation.unit_rows if situation.unit_rows > 0 else 1.0,
    )
    return sample if rows.all() else sample.only(rows > 0)  # a pattern of no rows is nothing


def _lane(lane: Lane, keeps: Mapping[tuple[str, bool], Bools]) -> dict[str, Bools]:
    kept: dict[str, Bools] = {}
    for cut, inverted in lane.cuts:
        mine = keeps[cut, inverted]
        kept[cut] = kept[cut] & mine if cut in kept else mine
    return kept


def _wider(lanes: Sequence[set[tuple[str, bool]]]) -> tuple[int, ...]:
    """Of equal lanes the first stands for the others."""
    return tuple(
        sum(1 << other for other, cuts in enumerate(lanes) if cuts < mine or (cuts == mine and other < lane))
        for lane, mine in enumerate(lanes)
    )


def thinned(sample: Sample, most_cells: int) -> Sample:
    """Leave out windows, evenly, until few enough cells are left; one window always is."""
    every = -(-len(sample.rows) // most_cells)
    if every <= 1 or len(sample.sizes) == 1:
        return sample
    chosen = np.arange(0, len(sample.sizes), every)
    keep = np.isin(sample.window, chosen)
    number = np.zeros(len(sample.sizes), np.intp)
    number[chosen] = np.arange(len(chosen))
    kinds = [
        kind._replace(members=number[members])
        for kind in sample.kinds
        if len(members := np.intersect1d(kind.members, chosen))
    ]
    fewer = sample.only(keep)
    return replace(fewer, window=number[fewer.window], sizes=sample.sizes[chosen], kinds=tuple(kinds))


def _verdicts(cut: str, windows: Sequence[Window]) -> NDArray[np.int8]:
    """Join what the windows say of a cut."""
    parts = [
        window.verdicts[:, window.cuts.index(cut)] if cut in window.cuts else np.full(len(window.rows), ABSENT, np.int8)
        for window in windows
    ]
    return np.concatenate(parts) if parts else np.full(1, ABSENT, np.int8)


def _kinds(sizes: Floats, rest: Floats) -> tuple[Kind, ...]:
    """Group windows by what they left unseen: whole units apart, the others exactly where few differ."""
    key = np.stack([rest, np.where(rest > 0, sizes, 0.0)], axis=1)
    distinct, kind = np.unique(key, axis=0, return_inverse=True)
    kind = kind.ravel()
    if len(distinct) > MOST_KINDS:
        kind = np.where(rest > 0, 1 + kind * MOST_KINDS // len(distinct), 0)
    return tuple(
        Kind(float(sizes[members].mean()), float(rest[members].mean()), members)
        for number in np.unique(kind)
        if len(members := np.flatnonzero(kind == number))
    )
