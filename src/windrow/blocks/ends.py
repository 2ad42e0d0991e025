"""What the lanes of a chunk have in the end: rows and weights of each unit, added up."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from windrow.blocks.outputs import ALL_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.selection import Selection

__all__ = ["lane_ends"]


def lane_ends(run: ChunkRun) -> dict[str, NDArray[np.float64]]:
    """For each lane and unit: the rows in the end, their weights and squared weights, all weights applied.

    And the same for all rows, with the weights that are known before any cut.
    """
    totals = {}
    for number, lane in enumerate(run.program.lanes):
        if lane.region is not None and (lane.optional or not lane.hidden):
            totals[lane.region] = _sums(run, run.program.weights, run.selections[number])
    totals[ALL_ROWS] = _sums(run, run.program.initial_weights or (), run.rows)
    return totals


def _sums(run: ChunkRun, names: Sequence[str], rows: Selection) -> NDArray[np.float64]:
    weights = run.product(names, rows) if rows.count else None
    ends = rows.cut_at(run.borders)
    sums = np.repeat(np.diff(ends)[:, np.newaxis].astype(np.float64), 3, axis=1)
    if weights is not None:
        for unit, (start, stop) in enumerate(pairwise(ends.tolist())):
            part = weights[start:stop]
            sums[unit, 1:] = part.sum(), (part * part).sum()
    return sums
