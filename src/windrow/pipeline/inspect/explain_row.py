"""``analysis.explain(data, row=...)``: what became of one row, region by region, and why.

The row is found by its place in a file or by its identity. A chunk run of this row alone evaluates every step in the
written order, also those that an earlier cut keeps the row from; what then raises is told as that. A region's verdict is the
one of a run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow import data as windrow_data
from windrow.blocks.failing import first_line
from windrow.blocks.results import UpDown, Verdict
from windrow.errors import MissingColumnError, StepError, UsageError, nearest
from windrow.pipeline.binding.bind import bind
from windrow.pipeline.inspect.rows import chunk_run, definition_at_desk, find_input, row_number, short
from windrow.pipeline.results.grid import Grid, box, to_html

if TYPE_CHECKING:
    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import Argument, BoundStep, Lane
    from windrow.data.base import Input, Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.pipeline import Pipeline


#: Rows of identity columns read at once: a few megabytes.
SEARCH_ROWS = 262_144
#: Letters for what a cut read: there is one line for each cut, with room to its end.
VALUE_ROOM = 80
#: Letters of an exception's message: what it says first.
REASON_ROOM = 100


# -- what is told --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CutVerdict:
    """One cut of a region and what it says of the row."""

    cut: str
    name: str  #: as the region writes it, with "!" where it is inverted
    verdict: str  #: passed, failed, None, n/a or cannot be computed
    reached: bool  #: whether a run would ask; not if an earlier cut removed the row
    reason: str  #: what it read, or why there is no answer

    @property
    def shown(self) -> str:
        """The verdict as the table has it: in brackets where a run would not ask."""
        if self.verdict == "cannot be computed":
            return "raises" if self.reached else "—"
        return self.verdict if self.reached else f"({self.verdict})"


@dataclass(frozen=True, slots=True)
class Story:
    """What became of the row in one region."""

    region: str
    removed_by: str | None  #: the first cut that removed it
    stops_at: str | None  #: a step that raises for it, though no cut removes it before: a run stops there
    lines: tuple[CutVerdict, ...]

    @property
    def inside(self) -> bool:
        return self.removed_by is None and self.stops_at is None

    def verdict(self) -> str:
        if self.stops_at is not None:
            return f"{self.stops_at} raises for this row, so a run stops here"
        if self.removed_by is None:
            return "in the region"
        line = next(line for line in self.lines if line.cut == self.removed_by)
        none = ", which is None for it" if line.verdict == "None" else ""
        return f"removed by {line.name}{none}"

    def grid(self) -> Grid:
        rows = [(line.name, line.shown, line.reason) for line in self.lines]
        cuts = [line.cut for line in self.lines]
        marked = None if self.removed_by is None else cuts.index(self.removed_by)
        return Grid(f"region {self.region}: {self.verdict()}", (), rows, marked=marked)


@dataclass(frozen=True, slots=True)
class RowWeight:
    """One weight of the row; ``value`` None where there is none."""

    name: str
    value: float | None
    text: str
    applies: bool = True

    def __str__(self) -> str:
        if self.value is None:
            return self.text
        return short(self.value) + (f" ({self.text})" if self.text else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What became of one row; ``str()`` of it is the text."""

    pipeline: str
    file: str
    row: int
    dataset: str
    identity: Mapping[str, Any]
    regions: Mapping[str, Story]
    weights: tuple[RowWeight, ...]
    outside: bool  #: the fileset restricts the file to other rows

    @property
    def weight(self) -> float | None:
        """The product of the weights that apply; None if one cannot be computed."""
        if any(weight.value is None and weight.applies for weight in self.weights):
            return None
        return math.prod(weight.value for weight in self.weights if weight.value is not None)

    @property
    def title(self) -> str:
        known = "".join(f", {name} {short(value)}" for name, value in self.identity.items())
        title = f"{self.pipeline}: row {self.row} of {self.file} (dataset {self.dataset}{known})"
        if self.outside:
            title += "\na run leaves this row out: the fileset restricts the file to other rows"
        return title

    def _grids(self) -> list[Grid]:
        grids = [story.grid() for story in self.regions.values()]
        if self.weights:
            rows = [(weight.name, str(weight)) for weight in self.weights]
            if self.weight is not None and len(rows) > 1:
                rows.append(("product", short(self.weight)))
            grids.append(Grid("weights", (), rows))
        return grids

    def __str__(self) -> str:
        return "\n\n".join([self.title, *(grid.text() for grid in self._grids())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return box([f"<p><b>{to_html(self.title)}</b></p>", *(grid.html() for grid in self._grids())])


def explain_row(pipeline: Pipeline, data: Any, row: Any, *, seed: int = 0) -> Why:
    """Tell what becomes of one row of ``data``; ``row`` is (file, number) or the row's identity."""
    if data is None:
        raise UsageError(
            "explain(row=...) looks at a row of the data: pass the data too, as in analysis.explain(data, row=...)"
        )
    definition = definition_at_desk(pipeline, seed)
    source = windrow_data.open(data)
    item, number = _place(definition, source, row)
    with closing(source.open(item.index)) as reader:
        number = row_number(number, reader.info, item.label)
        program = bind(definition, item.dataset, source.datasets[item.dataset], reader.info, item.label)
        with chunk_run(program, reader, item, number, number + 1) as run:
            return _told(definition, item, number, run)


# -- finding the row -----------------------------------------------------------------------------


def _place(definition: Definition, source: Source, row: Any) -> tuple[Input, Any]:
    identity = definition.identity
    form = f"({', '.join(identity)})" if identity else "the row's identity"
    if len(identity) == 1 and not isinstance(row, Sequence):
        row = (row,)
    given = not isinstance(row, str) and isinstance(row, Sequence)
    if given and len(row) == 2 and isinstance(row[0], str | PathLike):
        return find_input(source, row[0]), row[1]
    if not identity:
        raise UsageError(
            f"row={row!r} is no (file, number), and pipeline {definition.name!r} does not say which columns identify a "
            'row: write wr.Pipeline(..., identity=("run", "luminosityBlock", "event"))'
        )
    if not given or len(row) != len(identity):
        raise UsageError(f"row= is (file, number) or {form}, got {row!r}")
    return _search(definition, source, dict(zip(identity, row, strict=True)))


def _search(definition: Definition, source: Source, wanted: Mapping[str, Any]) -> tuple[Input, int]:
    """Look for a row by its identity in all files, reading the identity columns alone."""
    found: list[tuple[Input, int]] = []
    looked_at = 0
    for item in source.inputs:
        with closing(source.open(item.index)) as reader:
            for name in wanted:
                if name not in reader.info.columns:
                    raise MissingColumnError(
                        f"{item.label} has no column {name!r}, which identity= of pipeline "
                        f"{definition.name!r} names{nearest(name, reader.info.columns)}"
                    )
            for first, last in item.steps if item.steps is not None else ((0, reader.info.rows),):
                looked_at += last - first
                for start in range(first, last, SEARCH_ROWS):
                    columns = reader.read(tuple(wanted), start, min(start + SEARCH_ROWS, last))
                    same = [np.asarray(columns[name] == value) for name, value in wanted.items()]
                    found += [(item, start + int(place)) for place in np.flatnonzero(np.logical_and.reduce(same))]
    text = ", ".join(f"{name} {value}" for name, value in wanted.items())
    if not found:
        raise UsageError(f"no row has {text}: {looked_at:,} rows in {len(source.inputs):,} files were looked at")
    if len(found) > 1:
        places = "; ".join(f"row {row} of {item.label} (dataset {item.dataset!r})" for item, row in found[:10])
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        item, row = found[0]
        raise UsageError(f"{len(found)} rows have {text}: {places}{more}; name one by row=({item.label!r}, {row})")
    return found[0]


# -- asking every step ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one step says of the row."""

    value: Any = None
    read: str = ""  #: the values of the columns it read, in short
    culprit: str = ""  #: the step that raised, perhaps one that makes what this one reads; empty: there is a value
    error: str = ""  #: what it raised

    def trouble(self, step: str) -> str:
        return self.error if self.culprit == step else f"it needs {self.culprit}: {self.error}"


def _told(definition: Definition, item: Input, number: int, run: ChunkRun) -> Why:
    program = run.program
    answers: dict[str, _Answer] = {}
    with warnings.catch_warnings():
        # A step may be asked about a row it would never see; what it warns of then is nobody's concern.
        warnings.simplefilter("ignore")
        for name, step in program.steps.items():
            answers[name] = _ask(run, step, answers)
    stories = {
        str(lane.region): _story(definition, run, place, lane, answers)
        for place, lane in enumerate(program.lanes)
        if lane.region is not None
    }
    return Why(
        pipeline=definition.name,
        file=item.label,
        row=number,
        dataset=item.dataset,
        identity={n: run.store.file(n, run.rows)[0] for n in definition.identity if n in program.columns},
        regions=stories,
        weights=tuple(
            _weight(definition, name, answers.get(name), stories)
            for name, step in definition.steps.items()
            if step.kind == "weight"
        ),
        outside=item.steps is not None and not any(start <= number < stop for start, stop in item.steps),
    )


def _ask(run: ChunkRun, step: BoundStep, answers: Mapping[str, _Answer]) -> _Answer:
    for argument in step.arguments:
        before = answers[argument.source] if argument.kind == "made" else _Answer()
        if before.culprit:
            return _Answer(culprit=before.culprit, error=before.error)
    try:
        value = run.evaluate(step, run.rows)
    except StepError as failure:
        return _Answer(culprit=step.name, error=_reason(failure.__cause__ or failure))
    touched = run.program.touched.get(step.name, frozenset())
    run.caller.prepare("(shown)", (), run.rows)  # what is read from here on is not the step's doing
    read = [_read(run, step, argument, touched) for argument in step.arguments]
    if step.kind == "column":
        run.store.put(step.name, run.rows, value)
    return _Answer(value, ", ".join(read))


def _reason(error: BaseException) -> str:
    # awkward adds where in its own source it noticed.
    text = first_line(error).partition(" (in compiled code")[0].partition(" while attempting to")[0]
    return f"{type(error).__name__}: {text if len(text) <= REASON_ROOM else text[:REASON_ROOM] + '…'}"


def _read(run: ChunkRun, step: BoundStep, argument: Argument, touched: frozenset[str]) -> str:
    """Write what a step read: columns as they are, of a collection the fields it touched."""
    if argument.kind == "default":
        return f"{argument.name}={short(argument.default)} (default)"
    if argument.kind == "collection":
        fields = [name for name in argument.members if name in touched]
        if fields:
            return ", ".join(f"{name}={short(run.store.file(name, run.rows)[0])}" for name in fields)
        (records,) = run.caller.gather([argument], run.rows, step.lanes)  # counted, perhaps
        number = len(records[0]) if records.ndim > 1 else 1
        return f"{argument.source}={number} object{'' if number == 1 else 's'}"
    if argument.kind == "glob":
        values = {name: run.store.file(name, run.rows)[0] for name in argument.members}
        return f"{argument.name}={short(values, VALUE_ROOM)}"
    if argument.kind == "file":
        return f"{argument.source}={short(run.store.file(argument.source, run.rows)[0])}"
    return f"{argument.source}={short(run.store.made(argument.source, run.rows)[0], VALUE_ROOM)}"


# -- telling it ----------------------------------------------------------------------------------


def _story(definition: Definition, run: ChunkRun, number: int, lane: Lane, answers: Mapping[str, _Answer]) -> Story:
    removed: str | None = None
    stops: str | None = None
    lines: list[CutVerdict] = []
    for name in definition.written:
        answer = answers.get(name, _Answer())
        needed = name in run.program.steps and number in run.program.steps[name].lanes
        reached = removed is None and stops is None
        if name in lane.declared:
            inverted = lane.declared[name]
            verdict, reason = _verdict(answer, inverted), answer.read
            if verdict == "cannot be computed":
                behind = f"; it runs behind {removed}" if removed is not None else ""
                reason = f"cannot be computed for this row: {answer.trouble(name)}{behind}"
            elif not needed:
                when = definition.steps[name].when
                verdict, reason = "n/a", "" if when is None else f"exists only when {when.text}"
            lines.append(CutVerdict(name, f"!{name}" if inverted else name, verdict, reached, reason))
            if reached and verdict in ("failed", "None"):
                removed = name
        if reached and needed and answer.culprit:
            stops = name
    return Story(str(lane.region), removed, stops, tuple(lines))


def _verdict(answer: _Answer, inverted: bool) -> str:
    if answer.culprit:
        return "cannot be computed"
    verdict: Verdict | None = answer.value
    if verdict is None:
        return "n/a"
    if verdict.undefined is not None and verdict.undefined[0]:
        return "None"
    return "passed" if verdict.side(inverted)[0] else "failed"


def _weight(definition: Definition, name: str, answer: _Answer | None, stories: Mapping[str, Story]) -> RowWeight:
    if answer is None:
        when = definition.steps[name].when
        condition = when.text if when is not None else ""
        return RowWeight(name, None, f"does not apply: exists only when {condition}", applies=False)
    if answer.culprit:
        place = definition.written.index
        removing = [story.removed_by for story in stories.values() if story.removed_by is not None]
        guards = dict.fromkeys(cut for cut in removing if place(cut) < place(name))
        behind = f"; it runs behind {' and '.join(guards)}" if guards else ""
        return RowWeight(name, None, f"cannot be computed: {answer.trouble(name)}{behind}")
    if isinstance(answer.value, UpDown):
        nominal, up, down = (float(part[0]) for part in answer.value.parts)
        return RowWeight(name, nominal, f"up {short(up)}, down {short(down)}")
    return RowWeight(name, float(answer.value[0]), "")
