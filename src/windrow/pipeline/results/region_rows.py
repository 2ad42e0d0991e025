"""Which rows each region has, kept with a result so that two runs can be compared row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from windrow.blocks.selection import RowSet


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One input whose rows are kept."""

    index: int  #: of the input in the result's source
    label: str
    dataset: str
    identity: str  #: file uuid, footer digest or dataset name


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of every region, by file."""

    files: tuple[KeptFile, ...]
    regions: tuple[str, ...]
    #: (region, position in ``files``) -> rows of its chunks, in ascending order
    sets: Mapping[tuple[str, int], tuple[RowSet, ...]]

    def rows(self, region: str, file: int) -> NDArray[np.int64]:
        """Return the rows of a region in the file at this position of ``files``, in ascending order."""
        parts = [part.rows() for part in self.sets.get((region, file), ())]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
