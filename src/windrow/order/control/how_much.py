"""How much to look: in which share of the units, and at how many rows of each, every cut is asked.

Looking costs what it costs to run all steps on rows that most of them would never have seen. It may take a small share of
the run, measured against what the run has taken and is expected to take. Rows of one window are neighbours and resemble
each other, so several windows tell more than a large one; but each pays the fixed costs of all steps once.
"""

from __future__ import annotations

from typing import NamedTuple

#: Of the CPU time of a run that looking may take in all.
SHARE = 0.02
#: Of that, what is planned for: costs are not known exactly.
PLANNED = 0.5
#: Rows of a window: with fewer, fixed costs are all one pays for; with more, neighbours tell little news.
LEAST_ROWS, MOST_ROWS = 16, 4096
#: Rows looked at where some steps have never run, and nobody knows what they cost.
FIRST_ROWS = 64
#: Windows that are wanted soon, to decide from at all; and at first, where which units they are in is a matter of chance.
FEW, FIRST_WINDOWS = 4, 1.5
#: Of what looking may take in all, what may go into the windows that the first decision is taken from.
FIRST_PART = 0.5
#: Of what looking may take, what is kept for the rest of the run, however much was spent before it became shorter.
RESERVE = 0.25


class Sampling(NamedTuple):
    """A share of units, and rows in each."""

    share: float
    rows: int


NO_SAMPLE = Sampling(0.0, 0)


def how_much(
    *,
    fixed_s: float,
    row_s: float,
    unit_s: float,
    unit_rows: float,
    spent_s: float,
    left_s: float,
    looked_s: float,
    windows: int,
    ahead: float,
    known: bool,
) -> Sampling:
    """Decide how much to look from now on.

    Parameters
    ----------
    fixed_s, row_s
        What a window costs: for all steps together, and for each of its rows.
    unit_s, unit_rows
        What a unit takes in the run as it goes, and its rows.
    spent_s, left_s, looked_s
        What the run has taken, what is expected to come, and what looking has taken.
    windows, ahead
        Windows there are already, and units that will be given out before the next decision.
    known
        Whether every step has been measured.
    """
    budget = SHARE * PLANNED * (spent_s + left_s) - looked_s
    # What comes later may be unlike what came before: something is always left for it.
    budget = max(budget, SHARE * RESERVE * left_s)
    if budget <= 0 or unit_s <= 0 or unit_rows <= 0:
        return NO_SAMPLE
    rows = float(FIRST_ROWS)
    if known:
        # Fixed costs are at most half of a window's.
        worth = fixed_s / row_s if row_s > 0 else MOST_ROWS
        if row_s > 0 and windows < FEW:
            # The first decision is the one that changes most: a part of all there is may go into it.
            worth = max(worth, (FIRST_PART * budget / FEW - fixed_s) / row_s)
        rows = min(max(worth, 256.0), MOST_ROWS)
    if row_s > 0:
        rows = min(rows, max((budget / FEW - fixed_s) / row_s, LEAST_ROWS))
    rows = max(1.0, min(rows, unit_rows))
    affordable = budget / max(fixed_s + rows * row_s, 1e-9)
    if not known:
        if affordable < 1:
            return NO_SAMPLE
        # One, to learn what they cost: calls on few rows may cost as much as calls on many.
        return Sampling(min(min(affordable, FIRST_WINDOWS) / max(ahead, 1.0), 1.0), int(rows))
    share = affordable / max(left_s / unit_s, 1.0)
    if windows < FEW:
        share = max(share, min(affordable, FEW) / max(ahead, 1.0))
    return Sampling(min(share, 1.0), int(rows))
