"""``analysis.peek``: a step's values for the first rows that reach it, computing and reading nothing else.

Rows reach a step in the written order: they pass the cuts above it in a region that needs it. Files are opened one
after the other and looked through cluster by cluster, until enough rows are found; the step itself then runs on
these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow import data as windrow_data
from windrow.blocks.failing import named_error, raise_from
from windrow.blocks.program import Argument
from windrow.blocks.results import UpDown, Verdict
from windrow.blocks.selection import Selection, everything, keep, union
from windrow.errors import StepError, UnknownNameError, UsageError, nearest
from windrow.pipeline.bind import bind
from windrow.pipeline.inspect.debugger import stop_where_it_raised
from windrow.pipeline.inspect.peek_rows import Found, columns_of, in_file, keys_of, read_now, together, verdicts
from windrow.pipeline.inspect.peek_table import Peek
from windrow.pipeline.inspect.rows import (
    STAND_IN,
    attempt,
    definition_at_desk,
    find_input,
    makers,
    opened,
    output_reading,
    pieces,
    row_number,
    run_over,
)

if TYPE_CHECKING:
    from os import PathLike

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep, Program
    from windrow.data.base import FileInfo, Input, Reader, Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline


def peek(
    pipeline: Pipeline,
    what: str | Sequence[str],
    data: Any,
    *,
    rows: int = 10,
    at: tuple[str | PathLike[str], int] | None = None,
    region: str | None = None,
    debug: bool = False,
    seed: int = 0,
) -> Peek:
    """Return what steps give, and file columns hold, for the first rows that reach them, or for one row."""
    definition = definition_at_desk(pipeline, seed)
    names = _checked_names(what, definition)
    if isinstance(rows, bool) or not hasattr(rows, "__index__") or rows.__index__() < 1:
        raise UsageError(f"rows= must be a whole number of at least 1, got {rows!r}")
    if region is not None and region not in definition.regions:
        raise UnknownNameError(
            f"region= names {region!r}, which is not defined{nearest(region, definition.regions)} "
            f"(regions: {', '.join(definition.regions)})"
        )
    look = _Look(definition, windrow_data.open(data), names, region, debug)
    if at is not None:
        look.at(at)
        return look.result(1)
    look.known_anywhere()
    look.first_rows(int(rows.__index__()))
    return look.result(int(rows.__index__()))


def _checked_names(what: Any, definition: Definition) -> tuple[str, ...]:
    names = (what,) if isinstance(what, str) else what
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) for n in names):
        raise UsageError(f"peek looks at a name or a list of names, got {what!r}")
    for name in names:
        step = definition.steps.get(name)
        if step is not None and step.kind == "output":
            raise UsageError(
                f"{name!r} is an output, which is made of all rows of a region: look at what it reads "
                f"({', '.join(read.column for read in step.reads) or 'nothing'}), or run it with max_rows="
            )
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class _Aim:
    """What is looked at in one file: bound steps with the lanes whose rows reach them, and file columns."""

    program: Program
    steps: dict[str, tuple[int, ...]]
    lanes: tuple[int, ...]  #: all lanes that decide which rows are shown
    columns: tuple[str, ...]
    collections: tuple[str, ...]


class _Look:
    """One call of peek."""

    def __init__(
        self, definition: Definition, source: Source, names: tuple[str, ...], region: str | None, debug: bool
    ) -> None:
        self.definition = definition
        self.source = source
        self.names = names
        self.region = region
        self.debug = debug
        self.steps = tuple(name for name in names if name in definition.steps)
        self.others = tuple(name for name in names if name not in definition.steps)
        self.found = Found()
        self.notes: dict[str, None] = {}
        self._place = {name: number for number, name in enumerate(definition.written)}

    # -- which rows --------------------------------------------------------------------------

    def known_anywhere(self) -> None:
        """Raise for a name that is neither a step nor in the first file of any dataset."""
        firsts = {item.dataset: item for item in reversed(self.source.inputs)}
        missing = dict.fromkeys(self.others)
        known: dict[str, None] = {}
        for item in firsts.values():
            if not missing:
                return
            with opened(self.source, item.index) as reader:
                known.update(dict.fromkeys([*reader.info.columns, *reader.info.collections]))
                for name in list(missing):
                    if in_file(name, reader.info):
                        del missing[name]
        for name in missing:
            self._unknown(name, known)

    def _unknown(self, name: str, known: Any) -> None:
        steps = [step for step in self.definition.steps if step != STAND_IN]
        raise UnknownNameError(
            f"{name!r} is no cut, column or weight of pipeline {self.definition.name!r} and no column of the data"
            f"{nearest(name, [*steps, *known])} (steps: {', '.join(steps) or 'none'})"
        )

    def first_rows(self, count: int) -> None:
        """Look through the files until ``count`` rows are found."""
        try:
            for item in self.source.inputs:
                if not self._exists(item):
                    continue
                with opened(self.source, item.index) as reader:
                    aim = self._aim(item, reader.info)
                    if aim is None:
                        continue
                    for start, stop in pieces(item, reader.info):
                        self._piece(aim, reader, item, (start, stop), count)
                        if len(self.found.files) >= count:
                            return
        except KeyboardInterrupt:
            self.notes["interrupted: these are the rows found so far"] = None

    def at(self, where: Any) -> None:
        """Look at one row, whatever the cuts say of it."""
        if isinstance(where, str) or not isinstance(where, Sequence) or len(where) != 2:
            raise UsageError(f"at= is (file, row), got {where!r}")
        item = find_input(self.source, where[0])
        if not self._exists(item):
            raise UsageError(f"{item.label}: {next(iter(self.notes))}")
        with opened(self.source, item.index) as reader:
            row = row_number(where[1], reader.info, item.label)
            for name in self.others:
                if not in_file(name, reader.info):
                    self._unknown(name, [*reader.info.columns, *reader.info.collections])
            aim = self._aim(item, reader.info)
            assert aim is not None
            run = run_over(aim.program, reader, item, row, row + 1)
            self.found.looked_at += 1
            try:
                self._show(aim, run, item, everything(1))
            finally:
                run.release()

    def _exists(self, item: Input) -> bool:
        """Say whether every step exists in this dataset; notes it if not."""
        metadata = self.source.datasets[item.dataset]
        for name in self.steps:
            when = self.definition.steps[name].when
            if when is not None and not when.holds(metadata, item.dataset):
                text = f"{name!r} exists only when {when.text!r}, which is false for dataset {item.dataset!r}"
                self.notes[text] = None
                return False
        return True

    def _aim(self, item: Input, info: FileInfo) -> _Aim | None:
        missing = [name for name in self.others if not in_file(name, info)]
        if missing:
            self.notes[f"{item.label} has no {', '.join(map(repr, missing))}"] = None
            return None
        program = self._bind(self.definition, item, info)
        steps = {name: self._lanes_of(program, name) for name in self.steps}
        if not all(steps.values()):
            program = self._bind(self._forced([n for n, on in steps.items() if not on]), item, info)
            steps = {name: self._lanes_of(program, name) for name in self.steps}
        lanes = tuple(sorted({lane for on in steps.values() for lane in on}))
        if not steps and self.region is not None:
            lanes = tuple(n for n, lane in enumerate(program.lanes) if lane.region == self.region)
        columns = [column for name in self.others for column in columns_of(name, info)]
        collections = [name for name in self.others if not columns_of(name, info)]
        return _Aim(program, steps, lanes, tuple(dict.fromkeys(columns)), tuple(collections))

    def _bind(self, definition: Definition, item: Input, info: FileInfo) -> Program:
        return bind(definition, item.dataset, self.source.datasets[item.dataset], info, item.label)

    def _lanes_of(self, program: Program, name: str) -> tuple[int, ...]:
        """Return the lanes whose rows the step is shown."""
        step = program.steps.get(name)
        return tuple(
            lane
            for lane in (step.lanes if step is not None else ())
            if self.region in (None, program.lanes[lane].region)
        )

    def _forced(self, names: Sequence[str]) -> Definition:
        """Return a definition in which every region needs these steps, which none (of those looked at) does."""
        cuts = {n: False for n in names if self.definition.steps[n].kind == "cut"}
        columns = [name for name in names if name not in cuts]
        return replace(
            self.definition,
            regions={name: {**cuts, **own} for name, own in self.definition.regions.items()},
            steps={**self.definition.steps, STAND_IN: output_reading(columns)},
        )

    # -- one piece ---------------------------------------------------------------------------

    def _piece(self, aim: _Aim, reader: Reader, item: Input, bounds: tuple[int, int], count: int) -> None:
        run = run_over(aim.program, reader, item, *bounds)
        wanted = count - len(self.found.files)
        try:
            reached = self._reached(aim, run).positions()
            if len(reached):
                self._show(aim, run, item, Selection(run.store.length, reached[:wanted]))
        finally:
            run.release()
        # Rows below the last one shown were not needed.
        enough = len(reached) >= wanted
        self.found.looked_at += int(reached[wanted - 1]) + 1 if enough else bounds[1] - bounds[0]

    def _reached(self, aim: _Aim, run: ChunkRun) -> Selection:
        """Rows that pass the cuts above every step that is looked at."""
        program = aim.program
        cuts = self._cuts_above(aim)
        columns = makers(program, [program.steps[cut] for cut in cuts])
        reached: list[Selection] = []
        for name in program.written:
            if name in aim.steps:
                reached.append(union([run.selections[lane] for lane in aim.steps[name]]))
            step = program.steps[name]
            if name in cuts:
                self._cut(run, step, cuts[name])
            elif name in columns:
                lanes = tuple(lane for lane in step.lanes if lane in aim.lanes)
                rows = union([run.selections[lane] for lane in lanes])
                value = self._value(run, step, rows, lanes) if rows.count else np.empty(0)
                run.store.put(name, rows, value)
        if not aim.steps and aim.lanes:
            reached.append(run.selections[aim.lanes[0]])
        common = reached[0] if reached else everything(run.store.length)
        for other in reached[1:]:
            index = np.intersect1d(common.positions(), other.positions(), assume_unique=True)
            common = Selection(run.store.length, index)
        return common

    def _cuts_above(self, aim: _Aim) -> dict[str, tuple[int, ...]]:
        """For each cut that decides whether a row reaches a step: the lanes it does so for."""
        found: dict[str, list[int]] = {}
        for number in aim.lanes:
            lane = aim.program.lanes[number]
            if lane.region is None:
                continue
            ends = [self._place[name] for name, lanes in aim.steps.items() if number in lanes]
            end = max(ends, default=len(self._place))
            for cut in lane.cuts:
                # A cut that was only added to be looked at removes nothing.
                if cut in self.definition.regions[lane.region] and self._place[cut] < end:
                    found.setdefault(cut, []).append(number)
        return {cut: tuple(lanes) for cut, lanes in found.items()}

    def _cut(self, run: ChunkRun, step: BoundStep, lanes: tuple[int, ...]) -> None:
        rows = union([run.selections[lane] for lane in lanes])
        if not rows.count:
            return
        verdict: Verdict = self._value(run, step, rows, lanes)
        for lane in lanes:
            side = verdict.side(run.program.lanes[lane].cuts[step.name])
            run.selections[lane] = keep(run.selections[lane], side, rows)

    def _value(self, run: ChunkRun, step: BoundStep, rows: Selection, lanes: tuple[int, ...]) -> Any:
        try:
            return attempt(run, step, rows, lanes)
        except Exception as error:  # noqa: BLE001 - it is raised again, named
            failure = named_error(run, step, rows, error)
            if self.debug and isinstance(failure, StepError):
                stop_where_it_raised(run, step, rows, lanes, failure)
            raise_from(failure, error)

    # -- what is shown -----------------------------------------------------------------------

    def _show(self, aim: _Aim, run: ChunkRun, item: Input, rows: Selection) -> None:
        """Evaluate what is looked at on the rows that are shown, and keep it."""
        # From now on no other row counts, so that nothing is read for another.
        run.selections = [rows] * len(run.selections)
        lanes = tuple(range(len(run.selections)))
        program = aim.program
        wanted = makers(program, [program.steps[name] for name in aim.steps]) | set(aim.steps)
        values: dict[str, Any] = {}
        for name in program.written:
            if name in wanted:
                value = self._value(run, program.steps[name], rows, lanes)
                if isinstance(value, Verdict):
                    values[name] = verdicts(value)
                elif isinstance(value, UpDown):
                    values[name] = value.nominal
                    values[f"{name}_up"], values[f"{name}_down"] = value.up, value.down
                else:
                    run.store.put(name, rows, value)
                    values[name] = value
        # Fields that are read only to be shown belong to no step.
        run.caller.prepare("(shown)", (), rows)
        for name in aim.columns:
            values[name] = run.store.file(name, rows)
        for name in aim.collections:
            members = run.store.reader.info.collections[name]
            argument = Argument(name, "collection", name, members)
            values[name] = run.caller.gather([argument], rows, lanes)[0]
        keys = [k for name in self.names for k in keys_of(name, values, run.store.reader.info)]
        identity = [n for n in self.definition.identity if n in run.store.reader.info.columns]
        self.found.values.append({key: read_now(values[key]) for key in dict.fromkeys(keys)})
        self.found.identity.append({name: run.store.file(name, rows) for name in identity})
        self.found.entries.append(run.start + rows.positions())
        self.found.files += [item.label] * rows.count
        self.found.datasets += [item.dataset] * rows.count

    def result(self, asked: int) -> Peek:
        """Put the rows of all pieces together."""
        found = self.found
        if not found.files and self.notes and not found.looked_at:
            raise UsageError("nothing to look at: " + "; ".join(self.notes))
        kinds = [f"{self.definition.steps[name].kind} {name}" for name in self.steps]
        what = ", ".join([*kinds, *self.others])
        region = f" in region {self.region}" if self.region is not None else ""
        return Peek(
            title=f"{self.definition.name}: {what}{region}",
            values=together(found.values),
            identity=together(found.identity),
            file=tuple(found.files),
            entry=np.concatenate(found.entries) if found.entries else np.empty(0, np.int64),
            dataset=tuple(found.datasets),
            asked=asked,
            looked_at=found.looked_at,
            notes=tuple(self.notes),
        )
