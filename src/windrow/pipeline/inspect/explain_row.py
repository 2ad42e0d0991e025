"""``analysis.explain(data, row=...)``: what became of one row, region by region, and why.

The row is found by its place in a file or by its identity. Every step is asked about this row alone, in the written
order, also those that an earlier cut keeps it from; what then raises is told as that. A region's verdict is the one of
a run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow import data as windrow_data
from windrow.blocks.failing import first_line, named_error, raise_from
from windrow.blocks.results import UpDown, Verdict
from windrow.blocks.selection import everything
from windrow.errors import MissingColumnError, StepError, UsageError, nearest
from windrow.pipeline.bind import bind
from windrow.pipeline.inspect.explain_text import Line, Story, WeightLine, Why
from windrow.pipeline.inspect.format_value import short
from windrow.pipeline.inspect.rows import attempt, definition_at_desk, find_input, opened, row_number, run_over

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep, Lane, Program
    from windrow.data.base import Input, Reader, Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline


#: Rows of identity columns read at once: a few megabytes.
SEARCH_ROWS = 262_144

#: Letters for what a cut read: there is one line for each cut, with room to its end.
VALUE_ROOM = 60

#: Letters of an exception's message: what it says first.
REASON_ROOM = 100


def why(pipeline: Pipeline, data: Any, row: Any, *, seed: int = 0) -> Why:
    """Tell what becomes of one row of ``data``; ``row`` is (file, number) or the row's identity."""
    if data is None:
        raise UsageError(
            "explain(row=...) looks at a row of the data: pass the data too, as in analysis.explain(data, row=...)"
        )
    definition = definition_at_desk(pipeline, seed)
    source = windrow_data.open(data)
    item, number = _place(definition, source, row)
    with opened(source, item.index) as reader:
        number = row_number(number, reader.info, item.label)
        program = bind(definition, item.dataset, source.datasets[item.dataset], reader.info, item.label)
        run = run_over(program, reader, item, number, number + 1)
        try:
            return _told(definition, item, number, run)
        finally:
            run.release()


# -- finding the row -----------------------------------------------------------------------------


def _place(definition: Definition, source: Source, row: Any) -> tuple[Input, int]:
    identity = definition.identity
    form = f"({', '.join(identity)})" if identity else "the row's identity"
    if len(identity) == 1 and not isinstance(row, Sequence):
        row = (row,)
    if isinstance(row, str) or not isinstance(row, Sequence) or not row:
        raise UsageError(f"row= is (file, number) or {form}, got {row!r}")
    if len(row) == 2 and isinstance(row[0], str | PathLike):
        return find_input(source, row[0]), row[1]
    if not identity:
        raise UsageError(
            f"row={row!r} is no (file, number), and pipeline {definition.name!r} does not say which columns identify a "
            'row: write wr.Pipeline(..., identity=("run", "luminosityBlock", "event"))'
        )
    if len(row) != len(identity):
        raise UsageError(f"row={row!r} has {len(row)} values; a row is identified by {form} or given as (file, number)")
    return _search(definition, source, dict(zip(identity, row, strict=True)))


def _search(definition: Definition, source: Source, wanted: Mapping[str, Any]) -> tuple[Input, int]:
    """Look for a row by its identity in all files, reading the identity columns alone."""
    found: list[tuple[Input, int]] = []
    looked_at = 0
    for item in source.inputs:
        with opened(source, item.index) as reader:
            for name in wanted:
                if name not in reader.info.columns:
                    raise MissingColumnError(
                        f"{item.label} has no column {name!r}, which identity= of pipeline "
                        f"{definition.name!r} names{nearest(name, reader.info.columns)}"
                    )
            ranges = item.steps if item.steps is not None else ((0, reader.info.rows),)
            for first, last in ranges:
                looked_at += last - first
                found += [(item, row) for row in _rows_with(reader, wanted, first, last)]
    text = ", ".join(f"{name} {value}" for name, value in wanted.items())
    if not found:
        raise UsageError(f"no row has {text}: {looked_at:,} rows in {len(source.inputs):,} files were looked at")
    if len(found) > 1:
        places = "; ".join(f"row {row} of {item.label} (dataset {item.dataset!r})" for item, row in found[:10])
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        item, row = found[0]
        raise UsageError(f"{len(found)} rows have {text}: {places}{more}; name one by row=({item.label!r}, {row})")
    return found[0]


def _rows_with(reader: Reader, wanted: Mapping[str, Any], first: int, last: int) -> list[int]:
    rows: list[int] = []
    for start in range(first, last, SEARCH_ROWS):
        columns = reader.read(tuple(wanted), start, min(start + SEARCH_ROWS, last))
        same = np.logical_and.reduce([np.asarray(columns[name] == value) for name, value in wanted.items()])
        rows += [start + int(position) for position in np.flatnonzero(same)]
    return rows


# -- asking every step ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one step says of the row."""

    value: Any = None
    error: str = ""  #: why it cannot be computed: what was raised
    culprit: str = ""  #: the step that raised it, perhaps one that makes what this one reads
    read: str = ""  #: the values of the columns it read, in short

    def trouble(self, step: str) -> str:
        """Say why there is no value."""
        if not self.culprit:
            return ""
        return self.error if self.culprit == step else f"it needs {self.culprit}: {self.error}"


def _told(definition: Definition, item: Input, number: int, run: ChunkRun) -> Why:
    program = run.program
    answers: dict[str, _Answer] = {}
    with warnings.catch_warnings():
        # A step may be asked about a row it would never see; what it warns of then is nobody's concern.
        warnings.simplefilter("ignore")
        for name in program.written:
            answers[name] = _ask(run, program.steps[name], answers)
    whole = everything(1)
    identity = {name: run.store.file(name, whole)[0] for name in definition.identity if name in program.columns}
    stories = [
        _story(definition, program, lane_number, lane, answers)
        for lane_number, lane in enumerate(program.lanes)
        if lane.region is not None and not lane.hidden
    ]
    return Why(
        pipeline=definition.name,
        file=item.label,
        row=number,
        dataset=item.dataset,
        identity=identity,
        regions={story.region: story for story in stories},
        weights=tuple(_weights(definition, program, answers, stories)),
        outside=_outside(item, number),
    )


def _outside(item: Input, number: int) -> bool:
    """Whether the fileset leaves this row out."""
    return item.steps is not None and not any(a <= number < b for a, b in item.steps)


def _ask(run: ChunkRun, step: BoundStep, answers: Mapping[str, _Answer]) -> _Answer:
    rows = everything(1)
    for argument in step.arguments:
        before = answers[argument.source] if argument.kind == "made" else _Answer()
        if before.culprit:
            return _Answer(error=before.error, culprit=before.culprit)
    try:
        value = attempt(run, step, rows, step.lanes)
        read = _read(run, step)
    except Exception as error:  # noqa: BLE001 - it is told, or raised again
        failure = named_error(run, step, rows, error)
        if not isinstance(failure, StepError):
            raise_from(failure, error)
        return _Answer(error=_reason(error), culprit=step.name)
    if step.kind == "column":
        run.store.put(step.name, rows, value)
    return _Answer(value, read=read)


def _reason(error: Exception) -> str:
    # awkward adds where in its own source it noticed.
    text = first_line(error).partition(" (in compiled code")[0].partition(" while attempting to")[0]
    return f"{type(error).__name__}: {text if len(text) <= REASON_ROOM else text[:REASON_ROOM] + '…'}"


def _read(run: ChunkRun, step: BoundStep) -> str:
    """Write what a step read: columns as they are, of a collection the fields it touched."""
    parts = []
    rows = everything(1)
    touched = run.program.touched.get(step.name, frozenset())
    run.caller.prepare("(shown)", (), rows)  # what is read from here on is not the step's doing
    for argument in step.arguments:
        if argument.kind == "collection":
            fields = [name for name in argument.members if name in touched]
            parts += [f"{name}={short(run.store.file(name, rows)[0])}" for name in fields]
            if not fields:  # counted, perhaps
                (records,) = run.caller.gather([argument], rows, step.lanes)
                number = len(records[0]) if records.ndim > 1 else 1
                parts.append(f"{argument.source}={number} object{'' if number == 1 else 's'}")
        elif argument.kind == "default":
            parts.append(f"{argument.name}={short(argument.default)} (default)")
        elif argument.kind == "file":
            parts.append(f"{argument.source}={short(run.store.file(argument.source, rows)[0])}")
        elif argument.kind == "glob":
            values = {name: run.store.file(name, rows)[0] for name in argument.members}
            parts.append(f"{argument.name}={short(values, VALUE_ROOM)}")
        elif argument.kind == "made":
            value = run.store.made(argument.source, rows)[0]
            parts.append(f"{argument.source}={short(value, VALUE_ROOM)}")
    return ", ".join(parts)


# -- telling it ----------------------------------------------------------------------------------


def _story(definition: Definition, program: Program, number: int, lane: Lane, answers: Mapping[str, _Answer]) -> Story:
    """Follow the row through one region in the written order."""
    removed: str | None = None
    stops: str | None = None
    lines: list[Line] = []
    for name in definition.written:
        step = program.steps.get(name)
        needed = step is not None and number in step.lanes
        answer = answers.get(name, _Answer())
        reached = removed is None and stops is None
        if name in lane.declared:
            inverted = lane.declared[name]
            verdict = _verdict(answer, inverted) if needed else "does not apply"
            when = definition.steps[name].when
            reason = answer.trouble(name) or answer.read
            if not needed and when is not None:
                reason = f"exists only when {when.text}"
            lines.append(Line(name, inverted, verdict, reached, reason, removed))
            if reached and verdict in ("failed", "None"):
                removed = name
        if reached and needed and answer.error:
            stops = name
    return Story(region=str(lane.region), removed_by=removed, stops_at=stops, lines=tuple(lines))


def _verdict(answer: _Answer, inverted: bool) -> str:
    if answer.error:
        return "cannot be computed"
    verdict: Verdict = answer.value
    if verdict.undefined is not None and verdict.undefined[0]:
        return "None"
    return "passed" if verdict.side(inverted)[0] else "failed"


def _weights(
    definition: Definition, program: Program, answers: Mapping[str, _Answer], stories: Sequence[Story]
) -> list[WeightLine]:
    lines = []
    for name, step in definition.steps.items():
        if step.kind != "weight":
            continue
        if name not in program.steps:
            when = step.when.text if step.when is not None else ""
            lines.append(WeightLine(name, None, f"does not apply: exists only when {when}", False))
            continue
        answer = answers[name]
        if answer.error:
            place = definition.written.index(name)
            guards = [
                story.removed_by
                for story in stories
                if story.removed_by is not None and definition.written.index(story.removed_by) < place
            ]
            behind = f"; it runs behind {' and '.join(dict.fromkeys(guards))}" if guards else ""
            lines.append(WeightLine(name, None, f"cannot be computed: {answer.trouble(name)}{behind}"))
        elif isinstance(answer.value, UpDown):
            nominal, up, down = (float(part[0]) for part in answer.value.parts)
            lines.append(WeightLine(name, nominal, f"up {short(up)}, down {short(down)}"))
        else:
            lines.append(WeightLine(name, float(answer.value[0]), ""))
    return lines
