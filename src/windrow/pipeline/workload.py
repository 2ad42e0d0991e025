"""What workers do for a pipeline: open files, bind steps to them, run chunks, merge partials.

The workload is shared by all workers of a process; each worker has its own readers. An attempt that fails in a moved
order is done again in the written one before anybody hears of it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from windrow.blocks.execute import Chunk, ChunkRun, Partial, Stopped
from windrow.blocks.outputs import merge_leaves
from windrow.blocks.tree import join
from windrow.core.records import Evidence, Failure, FailureKind, Measurement
from windrow.engines.base import Outcome
from windrow.errors import (
    CorruptFileError,
    DataError,
    DefinitionError,
    InternalError,
    RowPurityError,
    StepError,
    WindrowError,
)
from windrow.order.constraints import guards_against
from windrow.pipeline.bind import bind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.blocks.program import Program
    from windrow.core.records import Plan, Rows
    from windrow.data.base import FileInfo, Input, Reader, Source
    from windrow.pipeline.bind import Definition

__all__ = ["PipelineWorkload"]

#: Bytes that the rows of all regions may take, so that comparing two runs is possible; a bit for each row and region.
KEPT_BYTES = 64_000_000

#: Files a worker keeps open: the one being read, the next one inspected, and a little room for retries.
OPEN_FILES = 4


class PipelineWorkload:
    """A pipeline over a source, as engines see it."""

    def __init__(
        self, definition: Definition, source: Source, block_rows: int | None = None
    ) -> None:
        self.definition = definition
        self.source = source
        self.block_rows = block_rows
        self.reads: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.stop = threading.Event()  #: set when the run ends and waits for no chunk any more
        self.borders: dict[int, tuple[int, ...]] = {}
        self.defaults: dict[tuple[int, str], None] = {}  #: (input, optional column it lacks)
        self._programs: dict[Any, Program] = {}
        self.requests = 0  #: to remote files
        self.identities: dict[int, str] = {}  #: of the inputs opened so far
        self.keeping = definition.keep_rows
        self._kept_bytes = 0
        self._found: dict[int, Any] = {}
        self._saved: dict[str, tuple[tuple[str, ...], str]] = {}  #: file -> columns, first input
        self._lock = threading.Lock()

    def open_worker(self, worker: int) -> _Worker:  # noqa: ARG002 - all workers are alike
        """Make the side of one worker."""
        return _Worker(self)

    def classify(self, error: BaseException) -> Failure:
        """Say whose fault an exception is."""
        kind = FailureKind.INTERNAL
        if isinstance(error, Stopped):
            kind = FailureKind.LOST  # nothing is wrong with its rows
        elif isinstance(error, StepError) and not isinstance(error, RowPurityError):
            kind = FailureKind.USER
        elif isinstance(error, (DataError, FileNotFoundError)):
            kind = FailureKind.BAD_FILE
        elif isinstance(error, WindrowError):
            kind = (
                FailureKind.INTERNAL
            )  # the analysis itself is wrong: no file or row can be blamed
        elif isinstance(error, OSError):
            kind = FailureKind.TRANSIENT_IO
        elif isinstance(error, MemoryError):
            kind = FailureKind.EXHAUSTED
        facts = getattr(error, "facts", {})
        place = ", ".join(str(facts[key]) for key in ("step", "file") if key in facts)
        return Failure(kind, type(error).__name__, str(error), place, error)

    def program(self, source: Input, info: FileInfo) -> Program:
        """Return the program for a file, making it if no file with these columns came before."""
        key = (
            source.dataset,
            tuple((c.name, c.kind, str(c.dtype), c.counter) for c in info.columns.values()),
        )
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                metadata = self.source.datasets[source.dataset]
                program = bind(self.definition, source.dataset, metadata, info, source.label)
                self._check_saved(program, source.label)
                self._programs[key] = program
            return program

    def _check_saved(self, program: Program, label: str) -> None:
        """Refuse files of a dataset that cannot go to one file, as soon as the second of them is opened."""
        for save in program.saves:
            known, first = self._saved.setdefault(save.key, (save.columns, label))
            differing = sorted(set(known) ^ set(save.columns))
            if differing:
                name = differing[0]
                has, lacks = (first, label) if name in known else (label, first)
                more = (
                    f" (and {len(differing) - 1} more columns differ)" if len(differing) > 1 else ""
                )
                raise DefinitionError(
                    f"save {save.key!r}: {has} has the column {name!r} and {lacks} has not{more}: a file has the same columns "
                    f"for all rows; leave it out with '-{name}', or give the files to different datasets",
                    column=name, file=label,
                )  # fmt: skip

    def opened(self, source: Input, info: FileInfo, program: Program) -> tuple[int, ...]:
        """Keep what is known of an input; return its unit borders."""
        borders = info.borders
        if source.steps is not None:
            ends = {row for step in source.steps for row in step}
            borders = tuple(sorted({*borders, *ends}))
        with self._lock:
            self.borders[source.index] = borders
            for column in program.defaults_used:
                self.defaults[source.index, column] = None
        return borders

    def check_same(self, index: int, info: FileInfo) -> None:
        """Refuse an input that is another file than when it was first opened in this run."""
        found = (info.identity, info.rows, info.borders)
        with self._lock:
            known = self._found.setdefault(index, found)
            self.identities.setdefault(index, info.identity)
        if known != found:
            label = self.source.inputs[index].label
            raise CorruptFileError(
                f"{label} was replaced while it was being read: run again, on files that stay as they are",
                file=label,
            )

    def note_kept(self, partial: Partial) -> None:
        """Stop telling which rows the regions have where that becomes too much."""
        if not self.keeping:
            partial.kept = ()
            return
        with self._lock:
            self._kept_bytes += sum(rows.data.nbytes for _, rows in partial.kept)
            if self._kept_bytes > KEPT_BYTES:
                self.keeping = False
                for program in self._programs.values():
                    program.keep_rows = False

    def note_reads(self, source: int, reads: list[tuple[str, int, int]]) -> None:
        """Keep which rows of which columns were read, adjoining ranges joined."""
        with self._lock:
            for column, start, stop in reads:
                ranges = self.reads.setdefault((source, column), [])
                if ranges and ranges[-1][1] == start:
                    ranges[-1] = (ranges[-1][0], stop)
                else:
                    ranges.append((start, stop))


class _Worker:
    """One worker's readers and its way of running chunks."""

    def __init__(self, workload: PipelineWorkload) -> None:
        self.workload = workload
        self._readers: OrderedDict[int, Reader] = OrderedDict()

    def inspect(self, input: int) -> tuple[int, tuple[int, ...]]:  # noqa: A002 - the word of the house
        """Open an input, bind the steps to it, and say how many rows and which units it has."""
        reader = self._reader(input)
        source = self.workload.source.inputs[input]
        program = self.workload.program(source, reader.info)
        return reader.info.rows, self.workload.opened(source, reader.info, program)

    def run(self, rows: tuple[Rows, ...], plan: Plan) -> Outcome:
        """Run one chunk in the order of the plan."""
        (part,) = rows
        reader = self._reader(part.input)
        source = self.workload.source.inputs[part.input]
        program = self.workload.program(source, reader.info)
        borders = self.workload.borders.get(part.input)
        if borders is None:
            borders = self.workload.opened(source, reader.info, program)
        chunk = _chunk(source, part, borders, reader.info.clusters)
        before = reader.bytes_read
        guards: tuple[tuple[str, str], ...] = ()
        run = self._attempt(program, reader, chunk, plan, plan.order)
        try:
            try:
                partial = run.run()
            except StepError as error:
                guards = self._guards(program, plan, error)
                run.release()
                run = self._attempt(program, reader, chunk, plan, self.workload.definition.written)
                partial = run.run()
        finally:
            run.release()
            self.workload.note_reads(part.input, reader.reads)
            reader.reads.clear()
        self.workload.note_kept(partial)
        steps = tuple((name, meter.cost()) for name, meter in run.meters.items())
        measurement = Measurement(bytes_read=reader.bytes_read - before)
        return Outcome(partial, measurement, Evidence(steps, guards))

    def merge(self, partials: Sequence[Any]) -> Any:
        """Unite partials of one input; only complete aligned subtrees are added up."""
        nodes = join([partial.nodes for partial in partials], merge_leaves)
        fragments = tuple(part for partial in partials for part in partial.fragments)
        kept = tuple(rows for partial in partials for rows in partial.kept)
        return Partial(partials[0].input, nodes, fragments, kept)

    def close(self) -> None:
        """Close every file."""
        while self._readers:
            self._close(self._readers.popitem()[1])

    # -- inside ------------------------------------------------------------------------------

    def _attempt(
        self, program: Program, reader: Reader, chunk: Chunk, plan: Plan, order: tuple[str, ...]
    ) -> ChunkRun:
        return ChunkRun(
            program,
            reader,
            chunk,
            order,
            dict(plan.blocks),
            self.workload.block_rows,
            stopping=self.workload.stop.is_set,
        )

    def _guards(
        self, program: Program, plan: Plan, error: StepError
    ) -> tuple[tuple[str, str], ...]:
        """What protects the step that failed in a moved order; raises if the written order ran already."""
        order = program.needed(plan.order)
        step = str(error.facts.get("step"))
        if order == program.written or isinstance(error, RowPurityError):
            raise error
        if step not in program.steps:
            return ()
        return guards_against(step, order, program.written, program.cuts)

    def _reader(self, input: int) -> Reader:  # noqa: A002 - the word of the house
        reader = self._readers.get(input)
        if reader is None:
            reader = self.workload.source.open(input)
            try:
                self.workload.check_same(input, reader.info)
            except CorruptFileError:
                reader.close()
                raise
            self._readers[input] = reader
            while len(self._readers) > OPEN_FILES:
                self._close(self._readers.popitem(last=False)[1])
        self._readers.move_to_end(input)
        return reader

    def _close(self, reader: Reader) -> None:
        with self.workload._lock:
            self.workload.requests += getattr(reader, "requests", 0)
        reader.close()


def _chunk(source: Input, part: Rows, borders: tuple[int, ...], clusters: tuple[int, ...]) -> Chunk:
    if not part.start < part.stop:
        raise InternalError(f"an empty chunk was launched: {part}")
    first = bisect_right(borders, part.start) - 1
    units = (part.start, *_inside(borders, part), part.stop)
    finer = tuple(sorted({*units, *_inside(clusters, part)}))
    return Chunk(source.index, source.label, first, units, finer)


def _inside(borders: tuple[int, ...], part: Rows) -> tuple[int, ...]:
    return borders[bisect_right(borders, part.start) : bisect_left(borders, part.stop)]
