"""Selection vectors: which rows of a chunk are still wanted.

A selection is a sorted vector of row positions, or None for every row. Selections are compared by identity: the same
object means the same rows, which is what lets gathered columns be shared between steps and lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Selection:
    """Sorted positions of rows within a chunk of ``length`` rows."""

    __slots__ = ("index", "length")

    def __init__(self, length: int, index: NDArray[np.int64] | None = None) -> None:
        self.length = length
        self.index = index

    @property
    def count(self) -> int:
        return self.length if self.index is None else len(self.index)

    def positions(self) -> NDArray[np.int64]:
        """Return the row positions as an array, also when every row is selected."""
        return np.arange(self.length) if self.index is None else self.index

    def within(self, outer: Selection) -> NDArray[np.int64] | None:
        """Where these rows stand among ``outer``'s; None if they are the same rows. ``self`` must be a subset."""
        if self is outer or self.count == outer.count:
            return None
        if outer.index is None:
            return self.index
        # Marking and looking up is linear; searching for each row was the dearest part of gathering.
        mine = np.zeros(self.length, dtype=bool)
        mine[self.positions()] = True
        return np.flatnonzero(mine[outer.index])

    def covers(self, other: Selection) -> bool:
        """Say whether all rows of another selection are of this one."""
        if self.index is None:
            return True
        mine = np.zeros(self.length, dtype=bool)
        mine[self.index] = True
        return bool(mine[other.positions()].all())

    def has(self, row: int) -> bool:
        if self.index is None:
            return True
        place = self.index.searchsorted(row)
        return bool(place < len(self.index) and self.index[place] == row)

    def cut_at(self, borders: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each border, how many selected rows lie before it."""
        if self.index is None:
            return borders
        return np.searchsorted(self.index, borders)


def everything(length: int) -> Selection:
    return Selection(length)


def union(selections: Sequence[Selection]) -> Selection:
    """Rows that any of the selections wants; the same object if they are all the same."""
    largest = max(selections, key=lambda selection: selection.count)
    others = [s for s in {id(s): s for s in selections}.values() if s is not largest]
    if largest.index is None or not others:
        return largest
    mask = np.zeros(largest.length, dtype=bool)
    mask[largest.index] = True
    before = largest.count
    for other in others:
        mask[other.index] = True
    index = np.flatnonzero(mask)
    return largest if len(index) == before else Selection(largest.length, index)


def keep(selection: Selection, passed: NDArray[np.bool_], on: Selection) -> Selection:
    """Rows of ``selection`` for which ``passed`` holds; ``passed`` is aligned with the rows of ``on``, a superset."""
    where = selection.within(on)
    mine = passed if where is None else passed[where]
    if mine.all():
        return selection
    if selection.index is None:
        return Selection(selection.length, np.flatnonzero(mine))
    return Selection(selection.length, selection.index[mine])


@dataclass(frozen=True, slots=True)
class RowSet:
    """Some rows of a chunk."""

    start: int  #: of the chunk, in rows of the file
    length: int
    bits: bool  #: whether ``data`` has a bit for every row, or the positions
    data: NDArray[np.uint8] | NDArray[np.uint32]

    def rows(self) -> NDArray[np.int64]:
        """Return the row numbers in the file."""
        if self.bits:
            where = np.flatnonzero(np.unpackbits(self.data.view(np.uint8), count=self.length))
        else:
            where = self.data.astype(np.int64)
        return where + self.start


def row_set(selection: Selection, start: int) -> RowSet:
    """Keep a selection of a chunk that begins at row ``start``."""
    if 32 * selection.count <= selection.length:
        return RowSet(start, selection.length, False, selection.positions().astype(np.uint32))
    mask = np.zeros(selection.length, dtype=bool)
    mask[slice(None) if selection.index is None else selection.index] = True
    return RowSet(start, selection.length, True, np.packbits(mask))
