"""Selection vectors: which rows of a chunk are still wanted.

A selection is a sorted vector of row positions, or None for every row. Selections are compared by identity: the same
object means the same rows, which is what lets gathered columns be shared between steps and lanes. Where there are too many
lanes for that, those that are not looked at are packed: a bit for each row of the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Selection:
    """Sorted positions of rows within a chunk of ``length`` rows."""

    __slots__ = ("_bits", "_index", "count", "length")

    def __init__(self, length: int, index: NDArray[np.int64] | None = None) -> None:
        self.length = length
        self.count = length if index is None else len(index)
        self._index = index
        self._bits: NDArray[np.uint8] | None = None  #: once it was packed; others may look while it is

    @property
    def index(self) -> NDArray[np.int64] | None:
        """Positions, or None for every row; those of a packed selection stay until it is packed again."""
        index = self._index
        if index is None and self._bits is not None:
            index = self._index = np.flatnonzero(self.mask())
        return index

    def pack(self) -> None:
        """Hold on to a bit for each row instead of positions, where that is less."""
        if self._bits is None and self._index is not None and 64 * self.count > self.length:
            self._bits = self.bits()
        if self._bits is not None:
            self._index = None

    def bits(self) -> NDArray[np.uint8]:
        return np.packbits(self.mask()) if self._bits is None else self._bits

    def mask(self) -> NDArray[np.bool_]:
        """Return a truth value for each row of the chunk."""
        mask = np.zeros(self.length, dtype=bool)
        self.mark(mask)
        return mask

    def mark(self, mask: NDArray[np.bool_]) -> None:
        """Make the truth values of these rows true."""
        index = self._index
        if index is not None:
            mask[index] = True
        elif self._bits is not None:
            mask |= np.unpackbits(self._bits, count=self.length).view(bool)
        else:
            mask[:] = True

    def positions(self) -> NDArray[np.int64]:
        """Return the row positions as an array, also when every row is selected."""
        index = self.index
        return np.arange(self.length) if index is None else index

    def within(self, outer: Selection) -> NDArray[np.int64] | None:
        """Where these rows stand among ``outer``'s; None if they are the same rows. ``self`` must be a subset."""
        if self is outer or self.count == outer.count:
            return None
        if outer.index is None:
            return self.index
        # Marking and looking up is linear; searching for each row was the dearest part of gathering.
        return np.flatnonzero(self.mask()[outer.index])

    def covers(self, other: Selection) -> bool:
        """Say whether all rows of another selection are of this one."""
        return self.index is None or bool(self.mask()[other.positions()].all())

    def has(self, row: int) -> bool:
        index = self._index
        if index is None:
            return self._bits is None or bool(self.mask()[row])
        place = index.searchsorted(row)
        return bool(place < len(index) and index[place] == row)

    def cut_at(self, borders: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each border, how many selected rows lie before it."""
        index = self._index
        if index is not None:
            return np.searchsorted(index, borders)
        if self._bits is None:
            return borders
        mask = self.mask()
        return np.array([np.count_nonzero(mask[:border]) for border in borders])


def everything(length: int) -> Selection:
    return Selection(length)


def union(selections: Sequence[Selection]) -> Selection:
    """Rows that any of the selections wants; the same object if they are all the same."""
    largest = max(selections, key=lambda selection: selection.count)
    others = [s for s in {id(s): s for s in selections}.values() if s is not largest]
    if largest.count == largest.length or not others:
        return largest
    mask = largest.mask()
    for other in others:
        other.mark(mask)
    index = np.flatnonzero(mask)
    return largest if len(index) == largest.count else Selection(largest.length, index)


def keep(selection: Selection, passed: NDArray[np.bool_], on: Selection) -> Selection:
    """Rows of ``selection`` for which ``passed`` holds; ``passed`` is aligned with the rows of ``on``, a superset."""
    where = selection.within(on)
    mine = passed if where is None else passed[where]
    if mine.all():
        return selection
    chosen = np.flatnonzero(mine)  # taking these takes a third of the time of choosing by truth values
    return Selection(selection.length, chosen if selection.index is None else selection.index[chosen])


def keep_packed(selection: Selection, passed: NDArray[np.bool_]) -> Selection:
    """Rows of ``selection`` for which ``passed`` holds, packed; ``passed`` has a value for each row of the chunk."""
    mask = selection.mask()
    mask &= passed
    count = int(np.count_nonzero(mask))
    if count == selection.count:
        return selection
    kept = Selection(selection.length)
    kept.count, kept._bits = count, np.packbits(mask)
    return kept


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
    return RowSet(start, selection.length, True, selection.bits())
