"""How many rows each written cut would have left, where the cuts ran in another order: an estimate with its error.

What ran tells exactly how many rows each cut rejected: a stratum. Of a row that cut k rejected it is certain that the cuts
that ran before k pass it; its first failing written cut is k, or one written above k that had not run yet. How a stratum
divides among these is estimated by the rows that were shown to all cuts. They come in windows of neighbours, so the error
is that of a ratio of sums over clusters (by the jackknife; W. G. Cochran, Sampling Techniques, 3rd ed., 1977, sec. 6.15
and 6.17): from how much windows differ, never from the number of rows alone. Early in a run more is looked at than later,
and data may change along the way, so a window counts for as many rows as it stands for (D. G. Horvitz and D. J. Thompson,
"A generalization of sampling without replacement from a finite universe", doi:10.1080/01621459.1952.10483446).

Pure: counts and windows in, numbers out. Cuts are known by their place in the written order, lines by their cut; the line
before all cuts is -1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.core.records import FAILED, NOT_ASKED, PASSED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.core.records import Window

    Floats = NDArray[np.float64]

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
    cuts: tuple[int, ...]  #: of the region, as they ran
    rejected: tuple[int, ...]  #: rows, by cut as they ran
    passed: int  #: rows that passed all
    #: weights and squared weights of a written line, where its rows and its weights are those of a line that ran
    sums: Mapping[int, tuple[float, float]]
    absent: frozenset[int] = frozenset()  #: cuts that do not exist here: they pass every row

    @property
    def strata(self) -> Floats:
        """The rows by the cut that rejected them; last those that passed all."""
        return np.array([*self.rejected, self.passed], dtype=np.float64)

    def fates(self, line: int) -> Floats:
        """Whether the rows of each stratum pass all cuts up to a written one: 1, 0, or NaN where some may."""
        fates = np.ones(len(self.cuts) + 1)
        for place, cut in enumerate(self.cuts):
            if cut <= line:
                fates[place] = 0
            elif any(later <= line and later not in self.absent for later in self.cuts[place + 1 :]):
                fates[place] = math.nan
        return fates


@dataclass(frozen=True, slots=True)
class Patterns:
    """What the windows say of a region's cuts, pattern by pattern."""

    passes: NDArray[np.bool_]  #: (patterns, cuts), on the region's side; a cut that is not there passes
    asked: NDArray[np.bool_]  #: (patterns, cuts)
    rows: Floats
    sums: Floats  #: (patterns, 1 + weights, 2)
    scale: Floats  #: by window: how many rows one of its rows stands for
    window: NDArray[np.int64]  #: number of the window
    orders: tuple[tuple[str, ...], ...]  #: by window
    first: NDArray[np.int64]  #: the first failing written cut; the number of cuts where none fails


def patterns(
    windows: Sequence[Window], cuts: Mapping[str, bool], weights: Sequence[str], factor: float = 1.0
) -> Patterns:
    """Look at windows with the eyes of a region: ``cuts`` in written order with whether they are inverted.

    Windows have all weights that exist; ``weights`` are those of the pipeline in written order, ``factor`` is what they
    were scaled by after the run.
    """
    passes, asked, sums = [], [], []
    for window in windows:
        mine = np.ones((len(window.rows), len(cuts)), dtype=bool)
        known = np.ones_like(mine)
        for column, (cut, inverted) in enumerate(cuts.items()):
            if cut in window.cuts:
                verdicts = window.verdicts[:, window.cuts.index(cut)]
                mine[:, column] = verdicts == (FAILED if inverted else PASSED)
                known[:, column] = verdicts != NOT_ASKED
        passes.append(mine)
        asked.append(known)
        sums.append(_sums(window, weights))
    every = np.concatenate(passes)
    sizes = [len(window.rows) for window in windows]
    return Patterns(
        passes=every,
        asked=np.concatenate(asked),
        rows=np.concatenate([window.rows for window in windows]).astype(np.float64),
        sums=np.concatenate(sums) * [factor, factor**2],
        scale=np.array([window.unit_rows / max(window.size, 1) / window.share for window in windows]),
        window=np.repeat(np.arange(len(windows)), sizes),
        orders=tuple(window.order for window in windows),
        first=_first(~every),
    )


def _sums(window: Window, weights: Sequence[str]) -> Floats:
    """Sums with the first 0, 1, 2 ... of all weights; one that does not exist here is 1."""
    if window.sums is None:
        return np.broadcast_to(window.rows[:, np.newaxis, np.newaxis], (len(window.rows), 1 + len(weights), 2))
    return window.sums[:, np.cumsum([0, *(name in window.weights for name in weights)])]


def _first(failing: NDArray[np.bool_]) -> NDArray[np.int64]:
    end = np.ones((len(failing), 1), dtype=bool)
    found: NDArray[np.int64] = np.concatenate([failing, end], axis=1).argmax(axis=1)
    return found


def estimate(
    ran: Sequence[Stratified],
    seen: Patterns | None,
    weighted: Sequence[int],
    end: tuple[float, float] | None = None,
    factor: float = 1.0,
) -> list[Estimate] | None:
    """Estimate what is left after each written cut; None where rows would have to be seen and none were.

    ``weighted`` says for each line, the one before all cuts first, how many of the weights stand above it; ``end`` has the
    sums of the last one, where they are known; ``factor`` is what a row without weights weighs.
    """
    rows = sum(float(part.strata.sum()) for part in ran)
    looks = [_shares_for(part, seen, rows) for part in ran]
    found = []
    for line, weights in enumerate(weighted, start=-1):
        total = _LineTotal(0 if seen is None else len(seen.orders))
        known = end if line == len(weighted) - 2 else None
        for part, look in zip(ran, looks, strict=True):
            sums = part.sums.get(line) if known is None else (0.0, 0.0)
            if not total.add(part, look, line, weights, sums, factor):
                return None
        if known is not None:
            total.values[1:] = known
        found.append(total.estimate())
    return found


class _LineTotal:
    """One line while the strata of all orders are added up."""

    def __init__(self, windows: int) -> None:
        self.values = np.zeros(3)  #: rows, and the sums of their weights and squared weights
        self.least = self.most = 0.0
        #: what each window adds to the errors of rows and weights, and variance that windows do not show
        self.spread, self.more = np.zeros((windows, 2)), np.zeros(2)
        self.sampled = 0.0
        self.exact = True

    def add(
        self,
        part: Stratified,
        look: _Shares | None,
        line: int,
        weights: int,
        sums: Sequence[float] | Floats | None,
        factor: float,
    ) -> bool:
        """Add the strata of an order, exactly where that is certain; say whether enough is known."""
        strata, fates = part.strata, part.fates(line)
        guess_rows = np.isnan(fates) & (strata > 0)
        guess_sums = (fates != 0) & (strata > 0) & (np.isnan(fates) | (weights > 0))
        sure = np.nan_to_num(fates)
        if sums is None:
            sums = float(strata[~guess_sums] @ sure[~guess_sums]) * np.array([factor, factor**2])
        else:
            guess_sums[:] = False
        certain = float(strata @ sure)
        self.values += [certain, *sums]
        self.least += certain
        self.most += certain
        if not (guess_rows.any() or guess_sums.any()):
            return True
        if look is None:
            return False
        self.exact = False
        values, spread, more, passing = look.guess(strata, fates, line, weights)
        wanted = np.stack([guess_rows, guess_sums, guess_sums], axis=1)
        self.values += (values * wanted).sum(axis=0)
        self.spread += (spread * wanted[:, :2]).sum(axis=1)
        self.more += (more * wanted[:, :2]).sum(axis=0)
        self.sampled += look.rows[guess_rows].sum()
        self.most += strata[guess_rows].sum()
        if look.own:
            self.least += passing[guess_rows].sum()
            self.most -= (look.rows - passing)[guess_rows].sum()
        return True

    def estimate(self) -> Estimate:
        rows, sumw, sumw2 = self.values.tolist()
        error, sumw_error = np.sqrt((self.spread**2).sum(axis=0) + self.more).tolist()
        half = error * _quantile(self.spread[:, 0], float(self.more[0]))
        low, high = max(self.least, rows - half), min(self.most, rows + half)
        return Estimate(rows, error, low, high, sumw, sumw2, sumw_error, int(self.sampled), self.exact)


def _shares_for(part: Stratified, seen: Patterns | None, rows: float) -> _Shares | None:
    """Choose the windows that tell of the rows of an order; None where there are too few."""
    if seen is None:
        return None
    mine = np.array([order == part.order for order in seen.orders])
    own = int(mine.sum()) >= OWN_WINDOWS
    if not own and part.strata.sum() > BORROWING * rows:
        return None
    stratum = _first(~seen.passes[:, list(part.cuts)])
    # Where it hangs on an unasked cut, a pattern informs no stratum.
    unasked = _first(~seen.asked[:, list(part.cuts)])
    stratum[(unasked <= stratum) & (unasked < len(part.cuts))] = UNKNOWN
    if own:
        stratum[~mine[seen.window]] = UNKNOWN
    return _Shares(seen, stratum, len(part.cuts) + 1, int(mine.sum()) if own else len(mine), own)


class _Shares:
    """The windows that tell of the rows that ran in one order."""

    def __init__(self, seen: Patterns, stratum: NDArray[np.int64], strata: int, windows: int, own: bool) -> None:
        self._seen, self._strata, self._windows = seen, strata, windows
        self._stratum = stratum  #: by pattern
        self.own = own  #: whether chunks ran in this order where they were taken
        self._there = self._by_window(seen.rows)
        self.rows = self._there.sum(axis=0)  #: looked at, by stratum

    def _by_window(self, values: Floats) -> Floats:
        """Add up numbers of patterns: (windows, strata, ...)."""
        there = self._stratum != UNKNOWN
        total = np.zeros((len(self._seen.orders), self._strata, *values.shape[1:]))
        np.add.at(total, (self._seen.window[there], self._stratum[there]), values[there])
        return total

    def guess(self, strata: Floats, fates: Floats, line: int, weights: int) -> tuple[Floats, ...]:
        """Estimate what of each stratum passes a line, by the share that does in the windows.

        Returns the rows and the sums of their weights and squared weights (strata, 3); what each window adds to the errors
        of rows and weights (windows, strata, 2); variance of both that windows do not show; rows that were seen to pass.
        """
        seen, scale = self._seen, self._seen.scale[:, np.newaxis]
        values = np.column_stack([seen.rows, seen.sums[:, weights]])
        used = self._stratum != UNKNOWN
        mean = values[used].sum(axis=0) / max(float(seen.rows[used].sum()), 1.0)
        mean[0] = 1.0
        passing = self._by_window(values * (seen.first > line)[:, np.newaxis])
        here, part = scale * self._there, scale[..., np.newaxis] * passing
        whole = here.sum(axis=0)[:, np.newaxis]
        # Of a stratum that no window shows half is taken to pass, as heavy as other rows.
        blind = np.where(np.isnan(fates), 0.5, fates)[:, np.newaxis] * mean
        share = np.divide(part.sum(axis=0), whole, out=blind, where=whole > 0)
        # Only rows that were not looked at are uncertain.
        unseen = np.maximum(1 - self.rows / np.maximum(strata, 1.0), 0.0) if self.own else np.ones(len(strata))
        # The jackknife: by how much the share changes without each of the windows.
        others = whole - here[..., np.newaxis]
        residuals = (part - share * here[..., np.newaxis])[..., :2]
        without = np.divide(residuals, others, out=np.zeros_like(residuals), where=others > 0)
        rows = strata[:, np.newaxis]
        spread = rows * np.sqrt((self._windows - 1) / self._windows * unseen)[:, np.newaxis] * without
        # The floor, where few windows show the rarer answer: the next independent row may well give it. With no row seen,
        # twice this error is everything.
        alike = self._there * (1 + (self._there - 1) * ALIKE)
        worth = whole**2 / np.maximum((scale**2 * alike).sum(axis=0), 1e-300)[:, np.newaxis]
        floor = rows**2 * unseen[:, np.newaxis] * mean[[0, 2]] / (worth + 2) ** 2
        shown = np.count_nonzero(passing[..., 0], axis=0)
        other = np.count_nonzero(self._there - passing[..., 0], axis=0)
        few = np.column_stack([np.minimum(shown, other), shown]) < SPREAD_WINDOWS
        more = np.where(few, np.maximum(floor - (spread**2).sum(axis=0), 0.0), 0.0)
        return rows * share, spread, more, passing[..., 0].sum(axis=0)


def _quantile(spread: Floats, more: float) -> float:
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
