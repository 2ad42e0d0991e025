"""What is alive after every subset of some cuts: rows by sums over supersets, windows by bits.

A row whose verdicts keep it in a lane through a set of cuts is alive after every part of that set.
So one pass per cut over an array of all subsets counts them all. Rows alive in any of several
lanes follow by inclusion and exclusion over the lanes: joint rows are subtracted before the passes,
and for each cell only lanes count that keep it through more than the others do. For "any row in this window" one bit per
window is or-ed instead of added, 64 windows at a time; both are exact.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from windrow.order.survival import Bools, Floats, Sample

__all__ = ["Tables", "lanes_of"]

Number = TypeVar("Number", np.float64, np.uint64)


def lanes_of(mask: int) -> tuple[int, ...]:
    """Give the lanes in a mask."""
    return tuple(lane for lane in range(mask.bit_length()) if mask >> lane & 1)


class Tables:
    """Rows, units and chunks alive after each subset of some cuts, for unions of lanes given as masks."""

    def __init__(self, sample: Sample, alive: Sequence[Bools], cuts: Sequence[str]) -> None:
        """Begin with the cells ``alive`` in each lane: other cuts may have run before."""
        anywhere = np.logical_or.reduce(alive) if alive else np.zeros(len(sample.rows), np.bool_)
        self.sample = sample.only(anywhere)
        self.cuts = tuple(cuts)
        self.alive = [cells[anywhere] for cells in alive]
        self.states = 1 << len(cuts)
        self.kept: dict[int, NDArray[np.int64]] = {}
        self.any: dict[int, NDArray[np.uint64]] = {}

    def rows(self, mask: int) -> Floats:
        """Count the sampled rows alive in any of the lanes, by subset of the cuts."""
        cells, kept, rows = np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0)
        for lane, counts in self._counting(lanes_of(mask)):
            again = counts[cells]  # what was counted for other lanes and is alive in this one too
            mine = np.flatnonzero(counts)
            kept = np.concatenate([kept, kept[again] & self._kept(lane)[cells[again]], self._kept(lane)[mine]])
            rows = np.concatenate([rows, -rows[again], self.sample.rows[mine]])
            cells = np.concatenate([cells, cells[again], mine])
        total: Floats = np.bincount(kept, rows, self.states).astype(np.float64)
        for lower, upper in _halves(total, len(self.cuts)):
            np.add(lower, upper, out=lower)
        return total

    def _counting(self, lanes: Sequence[int]) -> Iterator[tuple[int, Bools]]:
        """Give each lane with the cells it adds: alive, and kept by more than by any other lane alone."""
        for lane in lanes:
            counts = self.alive[lane]
            for other in lanes:
                if other != lane:
                    less = (self._kept(lane) & ~self._kept(other)) == 0
                    if lane < other:  # of equals the first counts
                        less &= self._kept(lane) != self._kept(other)
                    counts = counts & ~(less & self.alive[other])
            yield lane, counts

    def units(self, mask: int, rows: Floats) -> Floats:
        """Give the share of units with any row alive, by subset; ``rows`` as from ``rows(mask)``."""
        if not mask:
            return np.zeros(self.states)
        lanes = lanes_of(mask)
        seen = self._any(lanes[0])
        for lane in lanes[1:]:
            seen = seen | self._any(lane)
        bare = []
        for kind, tables in zip(self.sample.kinds, self._weights, strict=True):
            left = np.full(self.states, float(self.sample.sizes[kind.members].sum()))
            for word, byte, weight in tables:
                left -= weight[seen[word].view(np.uint8)[byte::8]]
            bare.append(left)
        return self.sample.unit_share(rows, bare, self.sample.total)

    @cached_property
    def _place(self) -> NDArray[np.intp]:
        """The bit of each window: kinds one after the other, so that few bytes hold two kinds."""
        place = np.empty(len(self.sample.sizes), np.intp)
        place[np.concatenate([kind.members for kind in self.sample.kinds])] = np.arange(len(place))
        return place

    @cached_property
    def _weights(self) -> list[list[tuple[int, int, Floats]]]:
        """By kind: (word, byte, rows of the windows that a value of this byte stands for)."""
        bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
        tables = []
        for kind in self.sample.kinds:
            by_place = np.zeros(-(-len(self.sample.sizes) // 64) * 64)
            by_place[self._place[kind.members]] = self.sample.sizes[kind.members]
            rows = by_place.reshape(-1, 8)
            tables.append([(n // 8, n % 8, bits @ rows[n]) for n in range(len(rows)) if rows[n].any()])
        return tables

    def _kept(self, lane: int) -> NDArray[np.int64]:
        """By cell: the cuts that keep it in a lane, as bits."""
        if lane not in self.kept:
            kept = np.zeros(len(self.sample.rows), np.int64)
            for number, cut in enumerate(self.cuts):
                keeps = self.sample.lanes[lane].get(cut)
                kept |= (1 << number) if keeps is None else keeps.astype(np.int64) << number
            self.kept[lane] = kept
        return self.kept[lane]

    def _any(self, lane: int) -> NDArray[np.uint64]:
        """Give (words, subsets): the windows with any row alive in a lane, as bits."""
        if lane not in self.any:
            words = -(-len(self.sample.sizes) // 64)
            seen = np.zeros((words, self.states), "<u8")
            cells = np.flatnonzero(self.alive[lane])
            place = self._place[self.sample.window[cells]]
            bit = np.uint64(1) << (place % 64).astype(np.uint64)
            np.bitwise_or.at(seen, (place // 64, self._kept(lane)[cells]), bit)
            for word in seen:
                for lower, upper in _halves(word, len(self.cuts)):
                    np.bitwise_or(lower, upper, out=lower)
            self.any[lane] = seen
        return self.any[lane]


def _halves(values: NDArray[Number], cuts: int) -> Iterator[tuple[NDArray[Number], NDArray[Number]]]:
    """For each cut, views of the subsets without it and of the same subsets with it."""
    for cut in range(cuts):
        pairs = values.reshape(-1, 2, 1 << cut)
        if cut in (1, 2):  # rows of two or four are dearer to loop over than columns
            for column in range(1 << cut):
                yield pairs[:, 0, column], pairs[:, 1, column]
        else:
            yield pairs[:, 0], pairs[:, 1]
