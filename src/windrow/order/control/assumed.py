"""Windows that were never looked at: what independent cuts would say of rows, given how many rows passed each in the run.

Showing rows to all cuts costs what all steps cost, which is too much where a row takes long. How many of the rows that a
cut saw it let pass is known for nothing: HEP-Frame decides from just that (A. Pereira and A. Proença, "HEP-Frame: Improving
the efficiency of pipelined data transformation & filtering for scientific analyses", sec. 3). What is seen of rows that
earlier cuts let pass is taken to hold for all rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windrow.core.records import FAILED, PASSED, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.core.records import StepCost

#: Rows that every cut must have seen: eight tell 30 % from 90 % nearly always.
LEAST_SEEN = 8
#: Windows, so that leaving one out shows what is chance, and rows of each at most.
WINDOWS, MOST_ROWS = 4, 1024


def assumed_windows(
    cuts: Sequence[str], costs: Mapping[str, StepCost], unit_rows: int, numbers: np.random.Generator
) -> tuple[Window, ...]:
    """Make windows of as many rows as the cut that saw fewest has seen; none if that are too few."""
    seen = min((costs[cut].rows_in if cut in costs else 0 for cut in cuts), default=0)
    if seen < LEAST_SEEN:
        return ()
    rates = np.array([(costs[cut].rows_out + 0.5) / (costs[cut].rows_in + 1) for cut in cuts])
    size = min(max(seen // WINDOWS, LEAST_SEEN), MOST_ROWS)
    drawn = numbers.random((WINDOWS, size, len(cuts)))
    found = []
    for number, rows in enumerate(drawn < rates):
        verdicts, counts = np.unique(np.where(rows, PASSED, FAILED).astype(np.int8), axis=0, return_counts=True)
        found.append(Window(-1, 0, size, number, max(unit_rows, size), tuple(cuts), verdicts, counts.astype(np.int64)))
    return tuple(found)
