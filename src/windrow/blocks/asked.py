"""What the cuts of a chunk said of which rows, kept in few bytes where they ran in another order than written.

A row of a chunk was asked about by some cuts only. With this, what is missing for a table of the written order can be
asked for later, and nothing is asked twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windrow.blocks.selection import Selection, keep, row_set

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.results import Verdict
    from windrow.blocks.selection import RowSet

__all__ = ["Answer", "Asked", "Asking"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one cut said."""

    rows: RowSet  #: those it was asked about
    passed: NDArray[np.uint8]  #: one bit for each of them
    undefined: RowSet | None  #: those on neither side; None: there are none
    nan: RowSet | None  #: those with NaN among what the cut reads; None: there are none

    @property
    def nbytes(self) -> int:
        """How much room it takes."""
        sets = (self.rows, self.undefined, self.nan)
        return self.passed.nbytes + sum(one.data.nbytes for one in sets if one is not None)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the cuts of one chunk said."""

    order: tuple[str, ...]  #: in which the chunk ran
    first_unit: int
    borders: tuple[int, ...]  #: of its units, in rows of the file
    rows: RowSet  #: there was no other row
    answers: dict[str, Answer]  #: by cut

    @property
    def nbytes(self) -> int:
        """How much room it takes."""
        return self.rows.data.nbytes + sum(answer.nbytes for answer in self.answers.values())


class Asking:
    """Gathers the answers of one chunk while it runs."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._sets: dict[int, tuple[Selection, RowSet]] = {}  #: a selection is told by its identity
        self._answers: dict[str, Answer] = {}

    def note(self, cut: str, rows: Selection, verdict: Verdict, nan: NDArray[np.bool_] | None) -> None:
        """Keep what a cut said of some rows."""
        undefined = verdict.undefined

        def some(which: NDArray[np.bool_] | None) -> RowSet | None:
            if which is None or not which.any():
                return None
            return row_set(keep(rows, which, rows), self._start)

        passed = np.packbits(verdict.passed)
        self._answers[cut] = Answer(self._set(rows), passed, some(undefined), some(nan))

    def asked(self, run: ChunkRun) -> Asked:
        """Give everything that was kept."""
        chunk = run.chunk
        return Asked(run.order, chunk.first_unit, chunk.borders, self._set(run.rows), self._answers)

    def _set(self, rows: Selection) -> RowSet:
        if id(rows) not in self._sets:
            self._sets[id(rows)] = (rows, row_set(rows, self._start))
        return self._sets[id(rows)][1]
