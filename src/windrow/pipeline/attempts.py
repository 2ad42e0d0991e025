"""One chunk, attempted until it is done: as planned, then in the written order, then without the rows that fail.

A step that fails in a moved order may just be too early, so its chunk is done again in the written one. What fails there
too is the end of the attempt - or, where rows may be left out, a reason to go on without the rows on which a step or an
output raises by itself. A row is left out if it raises as planned and as written, so that what is left out does not
depend on which other rows are in the chunk. Only in a unit that has to be done in the written order, because another
row of it needs that, raising there is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windrow.blocks.selection import Selection, everything
from windrow.blocks.skipping import RowsFailed, Search
from windrow.errors import RowPurityError, StepError
from windrow.order.constraints import guards_against

if TYPE_CHECKING:
    from windrow.blocks.execute import ChunkRun, Partial
    from windrow.blocks.skipping import LeftOut

__all__ = ["Attempts"]


class Attempts:
    """The attempts at one chunk; the last one has the meters."""

    def __init__(self, run: ChunkRun, written: tuple[str, ...], *, skip: bool) -> None:
        self.run = run  #: as planned, and not begun
        self._begun = False
        self.guards: tuple[tuple[str, str], ...] = ()  #: what protects a step that was too early
        self.left_out: dict[int, LeftOut] = {}  #: by row of the file
        self._planned = run.order
        self._written = written
        self._moved = run.program.needed(run.order) != run.program.written
        self._search = Search() if skip else None
        #: rows that fail in the written order alone
        self._fine_as_planned: dict[int, LeftOut] = {}

    def partial(self) -> Partial:
        """Do the chunk; raises what it fails with, if it does."""
        while True:
            try:
                return self._once()
            except RowsFailed as failed:
                self._leave_out(failed.rows)

    def _once(self) -> Partial:
        if not self._moved:
            return self._attempt(self._planned, self._search)
        try:
            return self._attempt(self._planned, None)
        except StepError as error:
            if isinstance(error, RowPurityError):
                raise
            too_early = error
        partial = self._attempt(self._written, self._search)
        if self._fine_as_planned and len(self.run.chunk.borders) > 2:
            # Some rows need the written order, and others had better not have it: perhaps in different units.
            raise too_early
        self.left_out.update(self._fine_as_planned)
        self.guards = self._guards(too_early)
        return partial

    def _attempt(self, order: tuple[str, ...], search: Search | None) -> Partial:
        if self._begun:
            gone = set(self.left_out)
            if search is not None:
                gone |= set(self._fine_as_planned)
            self.run = self.run.again(order, self._without(gone))
        self._begun = True
        self.run.search = search
        return self.run.run()

    def _without(self, rows: set[int]) -> Selection:
        length = self.run.store.length
        if not rows:
            return everything(length)
        gone = np.array(sorted(rows), dtype=np.int64) - self.run.start
        return Selection(length, np.delete(np.arange(length), gone))

    def _leave_out(self, rows: tuple[LeftOut, ...]) -> None:
        for row in rows:
            if self._moved and not self._fails_as_planned(row.row):
                self._fine_as_planned[row.row] = row
            else:
                self.left_out[row.row] = row

    def _fails_as_planned(self, row: int) -> bool:
        alone = Selection(self.run.store.length, np.array([row - self.run.start], dtype=np.int64))
        try:
            self.run.again(self._planned, alone).trial()
        except StepError:
            return True
        return False

    def _guards(self, error: StepError) -> tuple[tuple[str, str], ...]:
        """Say which cuts protect the step that failed in a moved order and not in the written one."""
        program = self.run.program
        step = str(error.facts.get("step"))
        if step not in program.steps:
            return ()
        return guards_against(step, program.needed(self._planned), program.written, program.cuts)
