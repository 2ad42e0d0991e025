"""How many rows each written cut would have left, where the cuts ran in another order: an estimate with its error.

What ran tells exactly how many rows each cut rejected: a stratum. Of a row that cut k rejected it is certain that the cuts
that ran before k pass it; its first failing written cut is k, or one written above k that had not run yet. How a stratum
divides among these is estimated by the rows that were shown to all cuts. They come in windows of neighbours, so the error
is that of a ratio of sums over clusters (by the jackknife; W. G. Cochran, Sampling Techniques, 3rd ed., 1977, sec. 6.15
and 6.17): from how much windows differ, never from the number of rows alone. Early in a run more is looked at than later,
and data may change along the way, so a window counts for as many rows as it stands for (D. G. Horvitz and D. J. Thompson,
"A generalization of sampling without replacement from a finite universe", doi:10.1080/01621459.1952.10483446).

Pure: counts and windows in, numbers out. Cuts are known by their place in the written order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.core.records import FAILED, NOT_ASKED, PASSED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from windrow.core.records import Window

__all__ = ["Estimate", "Patterns", "Stratified", "estimate", "patterns", "student"]

#: An order with fewer windows of its own borrows those of the others: one window has no spread. Not for more than this
#: share of all rows: nobody knows whether they were like the others.
OWN_WINDOWS, BORROWING = 2, 0.1
#: Windows in which the rarer answer must be seen before their spread alone is believed.
SPREAD_WINDOWS = 5
#: Patterns of which nobody knows where they are rejected.
UNKNOWN = -1
#: How alike neighbours are taken to be (correlation within a window) where nothing tells.
ALIKE = 0.1
#: Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_NORMAL = 1.959964


class Estimate(NamedTuple):
    """What is left after one written cut."""

    passed: float
    error: float  #: standard error of ``passed``; 0 where it is certain
    low: float  #: 95 % interval of ``passed``, within what is possible
    high: float
    sumw: float
    sumw2: float
    sumw_error: float  #: standard error of ``sumw`` that comes from sampling
    sampled: int  #: rows looked at for it
    exact: bool  #: nothing of it was estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratified:
    """What ran in one order, exactly."""

    order: tuple[str, ...]  #: all steps, as windows name it
    cuts: tuple[int, ...]  #: of the region, by their place in the written order, as they ran
    rejected: tuple[int, ...]  #: rows, by cut as they ran
    passed: int  #: rows that passed all
    #: weights and squared weights of a written line (-1: before all cuts), where its rows and its
    #: weights are those of a line that ran
    sums: Mapping[int, tuple[float, float]]
    absent: frozenset[int] = frozenset()  #: cuts that do not exist here: they pass every row

    @property
    def rows(self) -> int:
        """All that ran in this order."""
        return sum(self.rejected) + self.passed

    def fate(self, place: int, line: int) -> bool | None:
        """Whether rows rejected at ``place`` pass all cuts up to a written one; None: some may."""
        if place == len(self.cuts):
            return True
        if self.cuts[place] <= line:
            return False
        later = (cut for cut in self.cuts[place + 1 :] if cut not in self.absent)
        return None if any(cut <= line for cut in later) else True


@dataclass(frozen=True, slots=True)
class Patterns:
    """What the windows say of a region's cuts, pattern by pattern."""

    passes: NDArray[np.bool_]  #: (patterns, cuts), on the region's side; a cut that is not there passes
    asked: NDArray[np.bool_]  #: (patterns, cuts)
    rows: NDArray[np.float64]
    sums: NDArray[np.float64]  #: (patterns, 1 + weights, 2)
    scale: NDArray[np.float64]  #: by window: how many rows one of its rows stands for
    window: NDArray[np.int64]  #: number of the window
    orders: tuple[tuple[str, ...], ...]  #: by window
    first: NDArray[np.int64]  #: the first failing written cut; the number of cuts where none fails


def _first(failing: NDArray[np.bool_]) -> NDArray[np.int64]:
    end = np.ones((len(failing), 1), dtype=bool)
    found: NDArray[np.int64] = np.concatenate([failing, end], axis=1).argmax(axis=1)
    return found


def patterns(windows: Sequence[Window], cuts: Mapping[str, bool], weights: Sequence[str]) -> Patterns:
    """Look at windows with the eyes of a region: ``cuts`` in written order with whether they are inverted.

    Windows have all weights that exist; ``weights`` are those of the pipeline in written order.
    """
    passes, asked, rows, sums, number = [], [], [], [], []
    for place, window in enumerate(windows):
        where = {name: column for column, name in enumerate(window.cuts)}
        size = len(window.rows)
        mine = np.ones((size, len(cuts)), dtype=bool)
        known = np.ones((size, len(cuts)), dtype=bool)
        for column, (cut, inverted) in enumerate(cuts.items()):
            if cut in where:
                verdicts = window.verdicts[:, where[cut]]
                mine[:, column] = verdicts == (FAILED if inverted else PASSED)
                known[:, column] = verdicts != NOT_ASKED
        passes.append(mine)
        asked.append(known)
        rows.append(window.rows)
        sums.append(_sums(window, weights))
        number.append(np.full(size, place, dtype=np.int64))
    every = np.concatenate(passes)
    scale = [window.unit_rows / max(window.size, 1) / window.share for window in windows]
    return Patterns(
        every, np.concatenate(asked), np.concatenate(rows).astype(np.float64), np.concatenate(sums),
        np.array(scale), np.concatenate(number), tuple(window.order for window in windows), _first(~every),
    )  # fmt: skip


def _sums(window: Window, weights: Sequence[str]) -> NDArray[np.float64]:
    """Sums with the first 0, 1, 2 ... of all weights; one that does not exist here is 1."""
    counts = np.repeat(window.rows[:, np.newaxis].astype(np.float64), 2, axis=1)
    if window.sums is None:
        return np.repeat(counts[:, np.newaxis], 1 + len(weights), axis=1)
    there = np.cumsum([0, *(name in window.weights for name in weights)])
    return np.ascontiguousarray(window.sums[:, there])


def estimate(ran: Sequence[Stratified], seen: Patterns | None, weighted: Sequence[int]) -> list[Estimate] | None:
    """Estimate what is left after each written cut; None where rows would have to be seen and none were.

    ``weighted`` says for each line, the one before all cuts first, how many of the weights stand above it.
    """
    rows = sum(part.rows for part in ran)
    parts = [_Part(part, seen, rows) for part in ran]
    windows = 0 if seen is None else len(seen.orders)
    found = []
    for line, weights in enumerate(weighted, start=-1):
        total = _Total(windows)
        for part in parts:
            if not part.add(total, line, weights):
                return None
        found.append(total.estimate())
    return found


class _Total:
    """One line while the strata are added up."""

    def __init__(self, windows: int) -> None:
        self.rows = self.least = self.most = 0.0
        self.sums = np.zeros(2)
        #: what each window adds to the errors of rows and weights, and variance that windows do not show
        self.spread, self.more = np.zeros((windows, 2)), np.zeros(2)
        self.sampled = 0
        self.exact = True

    def estimate(self) -> Estimate:
        """Say what came out."""
        rows, more = self.rows, float(self.more[0])
        error, sumw_error = np.sqrt((self.spread**2).sum(axis=0) + self.more).tolist()
        half = error * _quantile(self.spread[:, 0], more)
        low, high = max(self.least, rows - half), min(self.most, rows + half)
        sumw, sumw2 = self.sums.tolist()
        return Estimate(rows, error, low, high, sumw, sumw2, sumw_error, self.sampled, self.exact)


def _quantile(spread: NDArray[np.float64], more: float) -> float:
    """Choose Student's t by how many windows the error rests on."""
    squares = spread**2
    total, fourth = float(squares.sum()), float((squares**2).sum())
    if fourth == 0:
        return _NORMAL
    # For normal numbers the mean fourth power is three times the squared variance.
    freedom = min(3 * total**2 / fourth, float(np.count_nonzero(spread))) - 1
    return student(max(1.0, freedom * (total + more) / total))


def student(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    if freedom < len(_STUDENT):
        low = max(int(freedom), 1)
        below, above = _STUDENT[low - 1], _STUDENT[low]
        # Linear in 1 / freedom, as t nearly is.
        share = (1 / low - 1 / max(freedom, 1.0)) / (1 / low - 1 / (low + 1))
        return below + share * (above - below)
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


class _Part:
    """The rows that ran in one order, and the windows that tell of them."""

    def __init__(self, ran: Stratified, seen: Patterns | None, rows: int) -> None:
        self.ran, self.seen = ran, seen
        if seen is None:
            return
        mine = [order == ran.order for order in seen.orders]
        self.own = sum(mine) >= OWN_WINDOWS
        if not self.own and ran.rows > BORROWING * rows:
            self.seen = None
            return
        self.windows = sum(mine) if self.own else len(mine)
        self.rejecting = _rejecting(seen, ran.cuts)
        if self.own:
            self.rejecting[~np.array(mine)[seen.window]] = UNKNOWN

    def add(self, total: _Total, line: int, weights: int) -> bool:
        """Add all strata to a line; say whether enough is known."""
        sums = self.ran.sums.get(line)
        if sums is not None:
            total.sums += sums
        for place, rows in enumerate((*self.ran.rejected, self.ran.passed)):
            fate = self.ran.fate(place, line)
            if not rows or fate is False:
                continue
            weigh = sums is None and (weights > 0 or fate is None)
            if fate is None or weigh:
                if self.seen is None:
                    return False
                total.exact = False
            if fate is None:
                self._divide(total, place, rows, line)
            else:
                total.rows += rows
                total.least += rows
                total.most += rows
            if weigh:
                self._weigh(total, place, rows, line, weights)
            elif sums is None:
                total.sums += rows
        return True

    def _divide(self, total: _Total, place: int, rows: int, line: int) -> None:
        """Add the share of a stratum that passes a line."""
        assert self.seen is not None
        mine = self.rejecting == place
        pass_on = mine & (self.seen.first > line)
        there, passing, scale = self._by_window(mine), self._by_window(pass_on), self.seen.scale
        seen, good = float(there.sum()), float(passing.sum())
        total.sampled += int(seen)
        if not seen:
            share = self._share_of_others(place, line)
            total.rows += rows * share
            # Nothing is known: twice this error is everything.
            total.more[0] += rows**2 / 4
            total.most += rows
            return
        share = float(scale @ passing / (scale @ there))
        spread = self._spread(rows, passing, there)
        total.rows += rows * share
        total.spread[:, 0] += spread
        rarer = min(np.count_nonzero(passing), np.count_nonzero(there - passing))
        if rarer < SPREAD_WINDOWS:
            size = _worth(there, scale)
            likely = (share * size + 1) / (size + 2)
            floor = rows**2 * self._unseen(rows, seen) * likely * (1 - likely) / (size + 2)
            total.more[0] += max(0.0, floor - float((spread**2).sum()))
        total.least += good if self.own else 0.0
        total.most += rows - (seen - good) if self.own else rows

    def _weigh(self, total: _Total, place: int, rows: int, line: int, weights: int) -> None:
        """Add what the rows of a stratum weigh that pass a line."""
        assert self.seen is not None
        mine = self.rejecting == place
        pass_on = mine & (self.seen.first > line)
        there = self._by_window(mine)
        seen = float(there.sum())
        sums = self.seen.sums[:, weights]
        if not seen:
            # As heavy as other rows, and as many as was guessed.
            every = self.rejecting != UNKNOWN
            share = self._share_of_others(place, line) if self.ran.fate(place, line) is None else 1
            mean = sums[every].sum(axis=0) / max(float(self.seen.rows[every].sum()), 1.0)
            total.sums += rows * share * mean
            total.more[1] += rows**2 * float(mean[1])
            return
        heavy = np.stack([self._by_window(pass_on, sums[:, n]) for n in (0, 1)])
        scale = self.seen.scale
        mean = heavy @ scale / (scale @ there)
        total.sums += rows * mean
        spread = self._spread(rows, heavy[0], there)
        total.spread[:, 1] += spread
        if np.count_nonzero(heavy[0]) < SPREAD_WINDOWS:
            size = _worth(there, scale)
            square = max(float(mean[1]), 1 / (size + 2))
            floor = rows**2 * self._unseen(rows, seen) * square / (size + 2)
            total.more[1] += max(0.0, floor - float((spread**2).sum()))

    def _by_window(self, which: NDArray[np.bool_], values: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        assert self.seen is not None
        values = self.seen.rows if values is None else values
        window = self.seen.window[which]
        found = np.bincount(window, values[which], minlength=len(self.seen.orders))
        return np.asarray(found, dtype=np.float64)

    def _spread(self, rows: int, part: NDArray[np.float64], there: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each window adds to the error of ``rows`` times the ratio of two sums over windows: by leaving it out."""
        assert self.seen is not None
        seen, scale = float(there.sum()), self.seen.scale
        part, there = scale * part, scale * there
        whole = float(there.sum())
        residuals = part - part.sum() / whole * there
        others = whole - there
        without = np.divide(residuals, others, out=np.zeros_like(residuals), where=others > 0)
        correction = (self.windows - 1) / self.windows * self._unseen(rows, seen)
        found: NDArray[np.float64] = rows * math.sqrt(correction) * without
        return found

    def _unseen(self, rows: int, seen: float) -> float:
        """The share of a stratum that was not looked at: only that is uncertain."""
        return max(0.0, 1 - seen / rows) if self.own else 1.0

    def _share_of_others(self, place: int, line: int) -> float:
        """The share that passes a line among rejected rows of other strata whose first failing cut could be theirs."""
        assert self.seen is not None
        cuts = self.ran.cuts
        legal = np.isin(self.seen.first, [c for c in cuts[place:] if c <= cuts[place]])
        rows, first = self.seen.rows[legal], self.seen.first[legal]
        return float(rows[first > line].sum() / rows.sum()) if len(rows) else 0.5


def _rejecting(seen: Patterns, cuts: Sequence[int]) -> NDArray[np.int64]:
    """Where in the order that ran each pattern is rejected; unknown where that hangs on an unasked cut."""
    found = _first(~seen.passes[:, list(cuts)])
    unasked = _first(~seen.asked[:, list(cuts)])
    found[(unasked <= found) & (unasked < len(cuts))] = UNKNOWN
    return found


def _worth(there: NDArray[np.float64], scale: NDArray[np.float64]) -> float:
    """How many independent rows the rows of some windows are worth, if neighbours are alike and some stand for more."""
    spread = scale**2 * there * (1 + (there - 1) * ALIKE)
    return float((scale @ there) ** 2 / spread.sum())
