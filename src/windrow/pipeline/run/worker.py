"""The worker's side of a pipeline: inputs opened, chunks run and read ahead, partials merged.

A chunk is set up ahead of its worker by reading the columns that are needed before the first cut can reject anything: those
are needed for every row, whatever the cuts say. What later steps need is left to the worker, which reads it only where rows
are left - unless it comes over a slow link in the same request anyway.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.attempts import Attempts
from windrow.blocks.calls import Caller, Meter, Stopwatch
from windrow.blocks.chunk import Chunk, ChunkRun, Stopped
from windrow.blocks.columns import ColumnStore
from windrow.blocks.failing import skipped
from windrow.blocks.parts import PartRun, UnitOfParts
from windrow.blocks.selection import Selection, everything
from windrow.core.accounts import Learned
from windrow.core.records import (
    NO_COST,
    EvaluateUnit,
    Evidence,
    Measurement,
    MergePartials,
    Opened,
    OpenInput,
    Rows,
    RowsReport,
    RunRows,
)
from windrow.core.rows import MOST_INPUTS, PART_S
from windrow.engines.base import Outcome, Reading
from windrow.errors import InternalError
from windrow.pipeline.run.facts import RunFacts
from windrow.pipeline.run.partials import unite_inputs
from windrow.shape.costs import LEAST_S
from windrow.shape.costs import block_rows as rows_of_block

if TYPE_CHECKING:
    from windrow.blocks.parts import UnitPart
    from windrow.blocks.pilot import Pilot
    from windrow.blocks.program import BoundStep, Program
    from windrow.core.records import Plan, Task
    from windrow.data.base import Input, Reader
    from windrow.engines.base import Job
    from windrow.pipeline.run.workload import PipelineWorkload

#: Seconds of a call that is worth dividing into smaller ones.
MOST_CALL_S = 2 * LEAST_S

#: Files a worker keeps open: those of the task that runs, those opened ahead for the next one.
OPEN_FILES = 2 * MOST_INPUTS


class RowsSide:
    """One worker's readers and its way of opening inputs, running chunks and merging partials."""

    used: tuple[float, int] | None = None  #: steps start no programs that are waited for

    def __init__(self, workload: PipelineWorkload) -> None:
        self.workload = workload
        self.reading = Reading()  #: what reading took in the last run
        self._readers: OrderedDict[int, tuple[Reader, str]] = OrderedDict()  #: and which file each is
        self.news = workload.news

    def run(self, job: Job) -> Outcome:
        payload = job.task.payload
        if type(payload) is OpenInput:
            return Outcome({}, self._open(payload.input))
        if type(payload) is MergePartials:
            borders = self.workload.facts.borders
            whole = {number: (place, bisect_left(borders[number], stop)) for number, place, stop in payload.whole}
            return Outcome({job.task.makes[0]: unite_inputs(job.values, whole)})
        if type(payload) is EvaluateUnit:
            return self._evaluate(job.task.makes[0], payload, job.values)
        done = [self._run_rows(job.task.makes[0], one, job.plan, job.prepared) for one in payload.ranges()]
        return done[0] if len(done) == 1 else _join(job.task.makes[0], done)

    def prepare(self, task: Task, plan: Plan) -> PreparedColumns | None:
        if type(task.payload) is not RunRows:
            return None
        _, reader, program, chunk = self._opened(next(task.payload.ranges()))
        return read_ahead(program, reader, chunk, plan.order, self.workload.stop.is_set)

    def _open(self, number: int) -> Opened:
        feed = self.workload.feed(number)
        reader, identity = self._reader(feed.input)
        source = self.workload.source.inputs[feed.input]
        program = self.workload.program(source, reader.info, feed.products)
        return Opened(reader.info.rows, self.workload.opened(source, reader.info, program), identity)

    def _run_rows(
        self, output: str, payload: RunRows, plan: Plan, ahead: list[PreparedColumns], known: Pilot | None = None
    ) -> Outcome:
        source, reader, program, chunk = self._opened(payload)
        before, pilot, watch = reader.bytes_read, known, Stopwatch()
        attempts = self._attempts(source, program, reader, chunk, plan, payload.block)
        attempts.run.spare = payload.spare
        program.unchecked.difference_update(payload.checked or ())
        unchecked = frozenset(program.unchecked)
        if payload.checked is None:
            attempts.run.unchecked = set()
        if ahead:
            prepared = ahead.pop()
            prepared.hand_over(attempts.run)
            before -= prepared.bytes_read
            self.workload.note_reads(source.index, prepared.reads)
            del prepared  # or it would stay in memory with the traceback of a failure
        unit_rows = chunk.borders[1] - chunk.borders[0]
        if payload.short_s and not program.timed:
            pilot = self._pilot(attempts, chunk, payload.short_s)
            program.row_s.update(pilot.step_s if pilot is not None else {})
            if pilot is not None and pilot.is_long(unit_rows, min(PART_S, payload.short_s), PART_S):
                return self._run_first(output, payload, plan, pilot, reader.bytes_read - before)
            program.timed = True
            attempts.run.aside_s = watch.seconds()
            if pilot is not None:
                attempts.run.samples = pilot.look.answers
        if pilot is not None and pilot.row_s * unit_rows > payload.short_s:
            attempts.take(pilot.seen, attempts.run)  # in a shorter run there is nothing to decide from it
        if known is not None:
            known.hand_over(attempts.run)
        try:
            attempts.look(self.workload.facts.borders[source.index])
            made: Any = attempts.partial()
        finally:
            attempts.run.release()
            store = attempts.run.store
            self.reading = Reading(store.read_seconds, store.read_cpu_s)
            self.workload.note_reads(source.index, reader.reads)
            reader.reads.clear()
        _note_long_calls(program, attempts.run.meters)
        self.workload.check_unchanged(source.index)
        if payload.part:
            made.failed = tuple(row.what for row in attempts.left_out.values())
        else:
            self.workload.note_kept(made)
        measurement = Measurement(bytes_read=reader.bytes_read - before)
        evidence = attempts.evidence(in_memory=source.format == "arrays")
        gone = skipped(attempts.left_out.values(), payload.rows[0].input, source.label)
        row_s = max(watch.seconds() - attempts.run.aside_s, 0.0) / (chunk.borders[-1] - chunk.borders[0])
        report = RowsReport(
            evidence, gone, row_s=row_s if attempts.run.aside_s else 0.0, checked=unchecked - program.unchecked
        )
        return Outcome({output: made}, report, measurement)

    def _pilot(self, attempts: Attempts, chunk: Chunk, short_s: float) -> Pilot | None:
        """Look at some rows as the run would, and at what all steps say of the first ones where the run is no short one."""
        units = self.workload.facts.borders[chunk.input]
        unit_rows = units[chunk.first_unit + 1] - units[chunk.first_unit]
        pilot = attempts.pilot(unit_rows, in_order=True)
        here = chunk.borders[1] - chunk.borders[0]
        if pilot is None or not pilot.is_long(here, min(PART_S, short_s), PART_S):
            return pilot
        attempts.run.program.row_s.update(pilot.step_s)
        self.workload.foresee_long()
        if not pilot.is_long(here, short_s, short_s):
            return pilot
        pilot.look.release()
        return attempts.pilot(unit_rows)

    def _run_first(self, output: str, payload: RunRows, plan: Plan, pilot: Pilot, read: int) -> Outcome:
        """Run the rows of a pilot, as a part of their unit, and give the rest back; ``read`` is what was read for it."""
        (rows,) = payload.rows
        stop = rows.start + pilot.first_rows(rows.stop - rows.start)
        few = payload._replace(rows=(rows._replace(stop=stop),), part=True, short_s=0.0)
        try:
            done = self._run_rows(output, few, plan, [], pilot if pilot.are_first else None)
        finally:
            pilot.run.release()
        report = done.report._replace(rest=rows._replace(start=stop), row_s=pilot.row_s)
        measured = done.measurement._replace(bytes_read=done.measurement.bytes_read + read)
        return done._replace(report=report, measurement=measured)

    def _evaluate(self, output: str, payload: EvaluateUnit, parts: tuple[UnitPart, ...]) -> Outcome:
        """Make the partial of a unit from its parts."""
        number, start, _ = payload.rows[0]
        whole = RunRows((Rows(number, start, payload.rows[-1].stop),), (payload.identity,))
        source, reader, program, chunk = self._opened(whole)
        before = reader.bytes_read
        unit = UnitOfParts(program, reader, chunk, parts, self.workload.stop.is_set)
        run, partial = unit.evaluate(skip=self.workload.skip)
        run.release()
        unit.release()
        self.reading = Reading(run.store.read_seconds, run.store.read_cpu_s)
        self.workload.note_reads(source.index, reader.reads)
        reader.reads.clear()
        self.workload.check_unchanged(source.index)
        self.workload.note_kept(partial)
        evidence = Evidence(steps=tuple((name, meter.cost()) for name, meter in run.meters.items()))
        gone = skipped(unit.left_out.values(), number, source.label)
        return Outcome(
            {output: partial}, RowsReport(evidence, gone), Measurement(bytes_read=reader.bytes_read - before)
        )

    def close(self) -> None:
        while self._readers:
            self._close(self._readers.popitem()[1][0])

    # -- inside ------------------------------------------------------------------------------

    def _opened(self, payload: RunRows) -> tuple[Input, Reader, Program, Chunk]:
        (rows,) = payload.rows
        feed = self.workload.feed(rows.input)
        reader, _ = self._reader(feed.input, payload.identities[0])
        source = self.workload.source.inputs[feed.input]
        program = self.workload.program(source, reader.info, feed.products)
        borders = self.workload.facts.borders.get(feed.input)
        if borders is None:
            borders = self.workload.opened(source, reader.info, program)
        chunk = chunk_of(source, rows, borders, reader.info.clusters, part=payload.part)
        return source, reader, program, chunk

    def _attempts(
        self, source: Input, program: Program, reader: Reader, chunk: Chunk, plan: Plan, block: int
    ) -> Attempts:
        workload = self.workload
        block_rows = min(block or workload.block_rows or 0, workload.block_rows or block) or None
        blocks = dict(plan.blocks) | {name: rows_of_block("flat", cost) for name, cost in program.long_calls.items()}
        run = (PartRun if chunk.part else ChunkRun)(
            program, reader, chunk, plan.order, blocks, block_rows,
            stopping=workload.stop.is_set, rows=_rows_to_run(source, chunk),
        )  # fmt: skip
        steps = workload.definition.steps.values()
        after = tuple((step.name, cut) for step in steps for cut in step.after)
        return Attempts(run, plan, after, skip=workload.skip)

    def _reader(self, index: int, before: str = "") -> tuple[Reader, str]:
        """Open an input, or find it open; it must be what it was ``before``, where that is known."""
        found = self._readers.get(index)
        if found is None:
            found = self._readers[index] = self.workload.open_input(index, before)
            while len(self._readers) > OPEN_FILES:
                self._close(self._readers.popitem(last=False)[1][0])
        elif before not in ("", found[1]):
            raise self.workload.replaced(self.workload.source.inputs[index])
        self._readers.move_to_end(index)
        return found

    def _close(self, reader: Reader) -> None:
        self.workload.learn(RunFacts(requests=getattr(reader, "requests", 0)))
        reader.close()


def _join(output: str, done: Sequence[Outcome]) -> Outcome:
    """Make one outcome of those of several inputs."""
    learned, reports = Learned(), [one.report for one in done]
    for report in reports:
        learned.add(report.evidence)
    guards = dict.fromkeys(guard for report in reports for guard in report.evidence.guards)
    report = RowsReport(
        learned.evidence(guards),
        tuple(chain.from_iterable(report.skipped for report in reports)),
        checked=frozenset().union(*(report.checked for report in reports)),
    )
    partial = unite_inputs([one.outputs[output] for one in done], {})
    return Outcome({output: partial}, report, Measurement(bytes_read=sum(one.measurement.bytes_read for one in done)))


def _note_long_calls(program: Program, meters: Mapping[str, Meter]) -> None:
    """Add up what steps cost whose calls take long: what blocks they are called with next."""
    for name, meter in meters.items():
        known = program.long_calls.get(name)
        if known is not None or meter.wall > MOST_CALL_S * meter.calls:
            program.long_calls[name] = (known or NO_COST).merge(meter.cost())


def _rows_to_run(source: Input, chunk: Chunk) -> Selection | None:
    start, stop = chunk.borders[0], chunk.borders[-1]
    mask = np.ones(stop - start, dtype=bool)
    for first, last in source.left_out:
        mask[max(first - start, 0) : max(last - start, 0)] = False
    return None if mask.all() else Selection(stop - start, np.flatnonzero(mask))


@dataclass(slots=True)
class PreparedColumns:
    """Columns of one chunk, and what reading them took, by the step that needs them first."""

    columns: dict[str, Any] = field(default_factory=dict)
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    bytes_read: int = 0
    charges: dict[str, tuple[int, float]] = field(default_factory=dict)  #: step -> (bytes, seconds)
    memory: int = 0  #: bytes that the columns keep

    def hand_over(self, run: ChunkRun) -> None:
        run.store.adopt(self.columns)
        self.columns.clear()
        for name, (size, seconds) in self.charges.items():
            meter = run.meters.setdefault(name, Meter())
            meter.bytes_read += size
            meter.read_s += seconds


def chunk_of(
    source: Input, rows: Rows, borders: tuple[int, ...], clusters: tuple[int, ...], *, part: bool = False
) -> Chunk:
    if not rows.start < rows.stop:
        raise InternalError(f"an empty chunk was launched: {rows}")
    first = bisect_right(borders, rows.start) - 1
    units = (rows.start, *_inside(borders, rows), rows.stop)
    finer = tuple(sorted({*units, *_inside(clusters, rows)}))
    return Chunk(source.index, source.label, first, units, finer, part)


def _inside(borders: tuple[int, ...], rows: Rows) -> tuple[int, ...]:
    return borders[bisect_right(borders, rows.start) : bisect_left(borders, rows.stop)]


def first_steps(program: Program, order: tuple[str, ...]) -> list[BoundStep]:
    steps = [program.steps[name] for name in program.needed(order)]
    cut = next((n for n, step in enumerate(steps) if step.kind == "cut"), len(steps))
    return steps[: cut + 1]


def read_ahead(
    program: Program, reader: Reader, chunk: Chunk, order: tuple[str, ...], stopping: Callable[[], bool]
) -> PreparedColumns:
    """Read what the first steps of a chunk need; over a slow link also what comes in the same request."""
    prepared = PreparedColumns()
    start = chunk.borders[0]
    rows = everything(chunk.borders[-1] - start)
    store = ColumnStore(reader, start, rows.length, np.asarray(chunk.clusters) - start)
    caller = Caller(program, store, lambda lanes: rows, order)  # noqa: ARG005 - nothing is rejected yet
    begin = reader.bytes_read
    try:
        for step in first_steps(program, order):
            if stopping():
                raise Stopped
            before, spent = reader.bytes_read, store.read_seconds
            caller.prepare(step.name, step.arguments, rows)
            read_s = store.read_seconds - spent
            prepared.charges[step.name] = (reader.bytes_read - before, read_s)
        prepared.columns = store.give_away()
        prepared.memory = sum(int(values.nbytes) for values in prepared.columns.values())
    finally:
        store.clear()
        prepared.bytes_read = reader.bytes_read - begin
        prepared.reads.extend(reader.reads)
        reader.reads.clear()
    return prepared
