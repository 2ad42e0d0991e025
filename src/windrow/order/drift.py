"""What of the past still holds: windows and costs from before things changed are left out.

Windows come in the order in which they were taken. If the newest of them say something else about a cut than the older
ones, by far more than windows differ among themselves, only the newest count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windrow.core.records import NOT_ASKED, PASSED, StepCost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from windrow.core.records import Window

__all__ = ["recent_cost", "recent_windows"]

#: Standard errors between the newest and the older windows that no chance explains, many cuts and splits considered.
SURPRISE = 5.0
#: Windows needed on either side to know how much they differ among themselves.
LEAST_WINDOWS = 3
#: Windows that are looked at, the newest: more would tell little news and take their time at every decision.
MOST_WINDOWS = 64
#: A step whose newest calls cost this many times more or less per row than the earlier ones has changed.
CHANGED = 1.5


def recent_windows(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the newest windows from after the last change; all of them if nothing has changed."""
    windows = windows[-MOST_WINDOWS:]
    count = len(windows)
    if count < 2 * LEAST_WINDOWS:
        return tuple(windows)
    cuts = windows[-1].cuts
    shares = np.array([_shares(window, cuts) for window in windows])
    rows = np.array([window.size for window in windows], dtype=float)
    best, where = SURPRISE, 0
    newest = LEAST_WINDOWS
    while count - newest >= LEAST_WINDOWS:
        surprise = _surprise(shares, rows, count - newest)
        if surprise > best:
            best, where = surprise, count - newest
        newest *= 2
    return tuple(windows[where:])


def _shares(window: Window, cuts: tuple[str, ...]) -> NDArray[np.float64]:
    """Of the rows that each cut was asked about, the share it passes; NaN where it was asked about none."""
    result = np.full(len(cuts), np.nan)
    for number, cut in enumerate(cuts):
        if cut in window.cuts:
            column = window.verdicts[:, window.cuts.index(cut)]
            asked = float(window.rows[column != NOT_ASKED].sum())
            if asked:
                result[number] = float(window.rows[column == PASSED].sum()) / asked
    return result


def _surprise(shares: NDArray[np.float64], rows: NDArray[np.float64], split: int) -> float:
    """How many standard errors the two sides are apart, for the cut for which that is most."""
    largest = 0.0
    for column in shares.T:
        known = ~np.isnan(column)
        old, new = known.copy(), known.copy()
        old[split:] = new[:split] = False
        if min(old.sum(), new.sum()) < LEAST_WINDOWS:
            continue
        means, errors = zip(*(_mean(column[side], rows[side]) for side in (old, new)), strict=True)
        error = float(np.hypot(*errors))
        largest = max(largest, abs(means[0] - means[1]) / error)
    return largest


def _mean(values: NDArray[np.float64], rows: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard error; never less than rows that are independent of each other would have."""
    mean = float(np.average(values, weights=rows))
    between = float(np.var(values, ddof=1)) / len(values)
    total = float(rows.sum())
    # Half a row of doubt, so that windows that all say the same are not infinitely sure.
    likely = (mean * total + 0.5) / (total + 1)
    return mean, float(np.sqrt(max(between, likely * (1 - likely) / total)))


def recent_cost(before: StepCost, total: StepCost) -> StepCost:
    """Return what calls since ``before`` cost if that has changed, else what all of them cost."""
    new = StepCost._make(b - a for a, b in zip(before, total, strict=True))
    if new.rows_in <= 0 or before.rows_in <= 0 or new.calls <= 0 or before.wall <= 0:
        return total
    ratio = (new.wall / new.rows_in) / (before.wall / before.rows_in)
    return new if not 1 / CHANGED < ratio < CHANGED else total
