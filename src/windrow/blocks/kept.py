"""Which rows of a chunk its regions have, in few bytes: positions where they are few, otherwise one bit per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.selection import Selection

__all__ = ["RowSet", "row_set"]


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
