"""Which rows are shown to all cuts: a few neighbours in some units, chosen by a keyed hash.

Whether a unit is chosen, and where in it the rows lie, follow from the seed, the file and the unit's number alone: not
from chunks, workers or attempts. Whoever meets the unit again chooses the same rows.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.blocks.execute import Chunk
    from windrow.core.records import Window

__all__ = ["Place", "bounded", "lot", "places"]

_RANGE = 2.0**64

#: Windows that a result keeps of a dataset: so many say what more of them would say.
MOST_KEPT = 512


class Place(NamedTuple):
    """Rows [start, stop) of a file that are looked at, in one of its units."""

    unit: int
    unit_rows: int
    start: int
    stop: int
    share: float = 1.0  #: of units that are looked at


def lot(seed: int, identity: str, unit: int) -> tuple[float, float]:
    """Draw two numbers of [0, 1) for a unit of a file: whether it is chosen, and where in it."""
    text = f"{seed}\0{unit}\0{identity}".encode()
    digest = hashlib.blake2b(text, digest_size=16, person=b"windrow.window").digest()
    first, second = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    return (first >> 11) * 2048 / _RANGE, (second >> 11) * 2048 / _RANGE


def places(chunk: Chunk, units: Sequence[int], seed: int, identity: str, share: float, rows: int) -> list[Place]:
    """Return the rows of a chunk to look at: ``rows`` neighbours in a ``share`` of the units that it has whole.

    ``units`` are the unit borders of the whole file.
    """
    found: list[Place] = []
    if share <= 0.0 or rows <= 0:
        return found
    for unit, (start, stop) in enumerate(pairwise(chunk.borders), start=chunk.first_unit):
        chosen, where = lot(seed, identity, unit)
        if chosen < share and (units[unit], units[unit + 1]) == (start, stop):
            size = min(rows, stop - start)
            first = _first_row(chunk.clusters, start, stop, size, where)
            found.append(Place(unit, stop - start, first, first + size, min(share, 1.0)))
    return found


def _first_row(clusters: Sequence[int], start: int, stop: int, size: int, where: float) -> int:
    """Choose where a window begins: inside of one cluster, or at the border of one where they are smaller.

    Columns are read by whole clusters, so a window across a border would cost twice.
    """
    row = start + int(where * (stop - start))
    number = bisect_right(clusters, row) - 1
    low, high = max(clusters[number], start), min(clusters[number + 1], stop)
    if high - low >= size:
        # Where in the cluster the row fell is as good as another number.
        return low + (row - low) * (high - low - size + 1) // (high - low)
    while low > stop - size and low > start:
        number -= 1
        low = max(clusters[number], start)
    return low


def bounded(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Keep so many windows at most: those with the lowest lots, so that it does not matter in which order they came."""
    if len(windows) <= MOST_KEPT:
        return windows
    chosen = sorted(windows, key=lambda one: (lot(0, str(one.input), one.unit), one.start))
    return tuple(chosen[:MOST_KEPT])
