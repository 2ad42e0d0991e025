"""One chunk, attempted until it is done: as planned, then in the written order, or without the rows that fail.

A step that fails in a moved order may just be too early, so its chunk is done again in the written one. The cut that removes
the failing row there is the step's guard; all cuts that it overtook, if no single row is to blame. Whatever was not blamed
rightly shows itself: the step raises again, and another row teaches another guard. What fails in the written order too is
the end of the attempt - or, with ``on_error="skip"``, a reason to go on without the rows on which a function raises by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from windrow.blocks.failing import RowSearch, RowsFailed
from windrow.blocks.pilot import take_pilot
from windrow.blocks.probe import Seen, probe, terrain
from windrow.blocks.selection import Selection
from windrow.core.records import Evidence
from windrow.errors import DataError, InternalError, RowPurityError, WindrowError

if TYPE_CHECKING:
    from windrow.blocks.calls import Meter
    from windrow.blocks.chunk import ChunkRun, Partial
    from windrow.blocks.failing import LeftOut
    from windrow.blocks.pilot import Pilot
    from windrow.blocks.program import BoundStep
    from windrow.core.records import Plan, StepCost

    Guards = tuple[tuple[str, str], ...]  #: (step, cut that protects it)

#: What no other order would mend.
NOT_THE_ORDER = (RowPurityError, DataError, InternalError)


class Attempts:
    """One chunk, attempted until it is done: as planned, in the written order, or without the rows that fail."""

    def __init__(self, run: ChunkRun, plan: Plan, after: Guards = (), *, skip: bool = False) -> None:
        self.run = run  #: the last attempt, which has the meters
        self.left_out: dict[int, LeftOut] = {}  #: by row of the file
        self._plan = plan
        self._after = after  #: guards that the user declared
        self._guards: Guards = ()  #: of a step that was too early
        self._seen = Seen()
        run.search = RowSearch() if skip else None

    def look(self, units: Sequence[int]) -> None:
        """Show rows that are chosen for it to all cuts; ``units`` are the unit borders of the whole input.

        Done when the steps of the chunk have run: what it read is not read twice, nor in pieces. Over a slow link it is done
        before, as all that a chunk needs comes in one request then.
        """

        def look(run: ChunkRun) -> None:
            self.take(probe(run, self._plan, units, (*self._after, *self._seen.guards)), run)

        if self.run.store.link is not None:
            look(self.run)
        else:
            self.run.look = look

    def pilot(self, unit_rows: int, *, in_order: bool = False) -> Pilot | None:
        """Show the first rows to all steps; where no order is decided or ``in_order``, those that the cuts above leave to each."""
        steps = list(self.run.program.steps.values())
        cuts = [(place, step.name) for place, step in enumerate(steps) if step.kind == "cut"]
        above = tuple((step.name, cut) for own, step in enumerate(steps) for place, cut in cuts if place < own)
        guards = (*self._plan.guards, *self._after, *(() if self._plan.sample_rows else above))
        return take_pilot(self.run, guards, unit_rows, above if in_order else None)

    def take(self, seen: Seen, run: ChunkRun) -> None:
        """Tell what was seen of some rows of a run, beside what was before."""
        self._seen.windows.update(seen.windows)
        self._seen.costs.update(seen.costs)
        self._seen.guards = tuple(dict.fromkeys((*self._seen.guards, *seen.guards)))
        run.windows = {unit: replace(window, order=run.order) for unit, window in self._seen.windows.items()}

    def evidence(self, *, in_memory: bool) -> Evidence:
        """Say what was learned; ``in_memory``: reading costs nothing."""
        run = self.run
        return Evidence(
            steps=_costs(run.meters),
            guards=tuple(dict.fromkeys((*self._seen.guards, *self._guards))),
            windows=tuple(run.windows.values()),
            terrain=terrain(run.program, run.store.reader.info, in_memory=in_memory)
            if run.windows or run.chunk.part or run.aside_s
            else None,
            probed=_costs(self._seen.costs),
        )

    def partial(self) -> Partial:
        """Do the chunk, or the steps of a part of a unit; raises what it fails with, if it does."""
        while True:
            try:
                return self._once()
            except RowsFailed as failed:
                self.left_out.update({row.row: row for row in failed.rows})
                self.run = self.run.again(self.run.order, self._rest())

    def _once(self) -> Partial:
        planned = self.run
        try:
            return planned.run()
        except WindrowError as error:
            # Also what Windrow's own functions raise inside a step: a mean below zero, say, for random numbers.
            if not planned.moved or isinstance(error, NOT_THE_ORDER):
                raise
            early = error
        self.run = planned.again(planned.program.all_written, planned.rows)
        culprit = None
        if early.facts.get("stop") == early.facts.get("start", -2) + 1:
            culprit = self.run.watched = early.facts["start"] - planned.start
        made = self.run.run()
        step = planned.program.steps.get(str(early.facts.get("step")))
        if step is not None:
            self._guards = self._protecting(planned, step, culprit)
        return made

    def _protecting(self, planned: ChunkRun, step: BoundStep, culprit: int | None) -> Guards:
        """Say which of the cuts that a step overtook protect it: what removed the row on which it raised, or all."""
        program = planned.program
        order = program.needed(planned.order)
        above = set(program.written[: program.written.index(step.name)]) - set(order[: order.index(step.name)])
        lanes = [n for n in step.lanes if culprit is not None and planned.selections[n].has(culprit)]
        removing = {self.run.removed[lane] for lane in lanes if lane in self.run.removed}
        cuts = [name for name in program.written if name in above and name in program.cuts]
        return tuple((step.name, cut) for cut in ([cut for cut in cuts if cut in removing] or cuts))

    def _rest(self) -> Selection:
        gone = np.array(list(self.left_out), dtype=np.int64) - self.run.start
        return Selection(self.run.store.length, np.setdiff1d(self.run.rows.positions(), gone))


def _costs(meters: Mapping[str, Meter]) -> tuple[tuple[str, StepCost], ...]:
    return tuple((name, meter.cost()) for name, meter in meters.items())
