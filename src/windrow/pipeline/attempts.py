"""One chunk, attempted until it is done: as planned, then in the written order, then without the rows that fail.

A step that fails in a moved order may just be too early, so its chunk is done again in the written one. What fails there
too is the end of the attempt - or, where rows may be left out, a reason to go on without the rows on which a step or an
output raises by itself. A row is left out if it raises as planned and as written, so that what is left out does not
depend on which other rows are in the chunk. Only in a unit that has to be done in the written order, because another
row of it needs that, raising there is enough.

What protects a step that was too early is found out by looking at rows on which it raises: which of the cuts that it
overtook reject them. A step that raises again in spite of that is kept below all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windrow.blocks.blaming import failing_rows
from windrow.blocks.failing import RowsFailed, Search, is_about_rows
from windrow.blocks.failures import exception_of
from windrow.blocks.floating import quiet
from windrow.blocks.probe import Look, Unreadable, probe, terrain
from windrow.blocks.selection import Selection, everything, union
from windrow.core.records import Evidence
from windrow.errors import DataError, InternalError, RowPurityError, WindrowError
from windrow.order.constraints import guards_against
from windrow.order.narrowing import narrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from windrow.blocks.calls import Meter
    from windrow.blocks.chunk import ChunkRun, Partial
    from windrow.blocks.failing import LeftOut
    from windrow.core.records import Plan, StepCost
    from windrow.pipeline.bind import Definition

__all__ = ["Attempts"]

#: What no other order would mend.
NOT_THE_ORDER = (RowPurityError, DataError, InternalError)


@dataclass(frozen=True, slots=True)
class _Early:
    """A step that raised where it ran earlier than written."""

    step: str
    cuts: tuple[str, ...]  #: that it overtook
    #: some rows of the chunk on which it raises by itself, with each lane that had them; none: not known
    cases: tuple[tuple[int, int], ...] = ()


class Attempts:
    """The attempts at one chunk; the last one has the meters."""

    def __init__(self, run: ChunkRun, definition: Definition, plan: Plan, *, skip: bool) -> None:
        self.run = run  #: as planned, and not begun
        self._begun = False
        self.guards: tuple[tuple[str, str], ...] = ()  #: what protects a step that was too early
        self.left_out: dict[int, LeftOut] = {}  #: by row of the file
        self._planned = run.order
        self._written = definition.written
        self._moved = run.moved
        self._search = Search() if skip else None
        self._plan = plan
        steps = definition.steps.values()
        #: guards that the user declared
        self._after = tuple((step.name, cut) for step in steps for cut in step.after)
        self._learned: tuple[tuple[str, str], ...] = ()  #: guards that looking at sampled rows gave
        #: rows that fail in the written order alone
        self._fine_as_planned: dict[int, LeftOut] = {}

    def look(self, units: Sequence[int]) -> None:
        """Show rows that are chosen for it to all cuts; ``units`` are the unit borders of the whole input.

        Done before the chunk itself, so that what is read for it is not read twice.
        """
        self._learned = probe(self.run, self._plan, units, self._after, narrow)

    def evidence(self, *, in_memory: bool) -> Evidence:
        """Say what was learned; ``in_memory``: reading costs nothing."""
        run = self.run
        seen = bool(run.windows)
        info = run.store.reader.info
        return Evidence(
            steps=_costs(run.meters),
            guards=tuple(dict.fromkeys((*self._learned, *self.guards))),
            windows=tuple(run.windows.values()),
            terrain=terrain(run.program, info, in_memory=in_memory) if seen else None,
            probed=_costs(run.probed),
            warned=tuple(run.warned.items()),
        )

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
        except WindrowError as error:
            # Also what Windrow's own functions raise inside a step: a mean below zero, say, for random numbers.
            if isinstance(error, NOT_THE_ORDER):
                raise
            too_early, early = error, self._early(error)
        partial = self._attempt(self._written, self._search)
        if self._fine_as_planned and len(self.run.chunk.borders) > 2:
            # Some rows need the written order, and others had better not have it: perhaps in different units.
            raise too_early
        self.left_out.update(self._fine_as_planned)
        self.guards = self._guards(early)
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
        except WindrowError as error:
            if isinstance(error, NOT_THE_ORDER):
                raise
            return True
        return False

    # -- guards ------------------------------------------------------------------------------

    def _early(self, error: WindrowError) -> _Early | None:
        """Look for rows on which the step raises, while the columns are there that it read; None if it overtook nothing."""
        run, program = self.run, self.run.program
        step = program.steps.get(str(error.facts.get("step")))
        if step is None:
            return None
        order = program.needed(self._planned)
        guards = guards_against(step.name, order, program.written, program.cuts)
        cuts = tuple(cut for _, cut in guards if cut in program.steps)
        cause = error.__cause__
        again = any(step.name == name for name, _ in self._plan.guards)
        if len(cuts) < 2 or again or not (isinstance(cause, Exception) and is_about_rows(cause)):
            return _Early(step.name, cuts)
        # Rows that only optional lanes have are no reason: the written order gives such a lane up.
        lanes = [lane for lane in step.lanes if not program.lanes[lane].optional]
        rows = union([run.selections[lane] for lane in lanes]) if lanes else run.rows

        def raises(part: NDArray[np.int64]) -> bool:
            run.stop_if_asked()
            return exception_of(run, step, Selection(rows.length, part)) is not None

        with quiet():
            found, _ = failing_rows(raises, rows.positions())
        if run.store.read_error is not None:
            run.store.read_error = None  # where it matters it will come again
            return _Early(step.name, cuts)
        cases = [(int(row), lane) for lane in lanes for row in _among(found, run.selections[lane])]
        return _Early(step.name, cuts, tuple(cases))

    def _guards(self, early: _Early | None) -> tuple[tuple[str, str], ...]:
        """Say which cuts protect the step that raised in a moved order and not in the written one."""
        if early is None:
            return ()
        blamed = early.cuts
        if early.cases:
            blamed = self._blamed(early) or early.cuts
        return tuple((early.step, cut) for cut in blamed)

    def _blamed(self, early: _Early) -> tuple[str, ...] | None:
        """Ask the cuts that were overtaken about the rows; None if they do not explain all."""
        rows = np.unique([row for row, _ in early.cases])
        look = Look(self.run, rows, (*self._plan.guards, *self._after), narrow)
        try:
            with quiet():
                look.show(early.cuts)
        except (Unreadable, MemoryError):
            return None
        finally:
            look.release()
        cases = [(int(np.searchsorted(rows, row)), lane) for row, lane in early.cases]
        return narrow(early.cuts, look.rejects(cases, early.cuts))


def _costs(meters: Mapping[str, Meter]) -> tuple[tuple[str, StepCost], ...]:
    return tuple((name, meter.cost()) for name, meter in meters.items())


def _among(rows: NDArray[np.int64], selection: Selection) -> NDArray[np.int64]:
    """Return those of some rows that are selected."""
    index = selection.index
    if index is None or not len(index):
        return rows if index is None else rows[:0]
    place = np.minimum(np.searchsorted(index, rows), len(index) - 1)
    selected: NDArray[np.int64] = rows[index[place] == rows]
    return selected
