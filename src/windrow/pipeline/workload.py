"""What workers do for a pipeline: open files, bind steps to them, run chunks, merge partials.

The workload is shared by all workers of a process; each worker has its own readers. What is tried before anybody hears
that a chunk failed is told in ``attempts``.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.blocks.attempts import Attempts
from windrow.blocks.chunk import Chunk, ChunkRun, Partial, Stopped
from windrow.blocks.failing import skipped
from windrow.blocks.selection import Selection
from windrow.core.records import Failure, FailureKind, Measurement
from windrow.engines.base import Outcome
from windrow.engines.read_ahead import Reading
from windrow.errors import CorruptFileError, DataError, DefinitionError, RowPurityError, StepError, WindrowError
from windrow.pipeline.ambient import ambient, check_arrived, is_own, restore, seal
from windrow.pipeline.bind import bind
from windrow.pipeline.collecting import unite
from windrow.pipeline.news import News, Told, hear, news
from windrow.pipeline.preparing import chunk_of, read_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from windrow.blocks.program import Program
    from windrow.core.records import Plan, Rows
    from windrow.data.base import FileInfo, Input, Reader, Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.preparing import PreparedColumns
    from windrow.pipeline.products import Product

__all__ = ["Feed", "PipelineWorkload"]

#: Bytes that the rows of all regions may take, so that comparing two runs is possible; a bit for each row and region.
KEPT_BYTES = 64_000_000

#: Files a worker keeps open: the one being read, the next one inspected, and a little room for retries.
OPEN_FILES = 4


class Feed(NamedTuple):
    """What an input of the scheduler is: one of the source, for some products (None: all)."""

    input: int
    products: frozenset[Product] | None = None


class PipelineWorkload:
    """A pipeline over a source, as engines see it.

    An input of the scheduler is an input of the source, unless ``feeds`` says otherwise: what is continued may lack
    some products in some rows and other products in others.
    """

    def __init__(
        self,
        definition: Definition,
        source: Source,
        block_rows: int | None = None,
        feeds: Mapping[int, Feed] | None = None,
        *,
        skip: bool = False,
    ) -> None:
        self.definition = definition
        self.source = source
        self.block_rows = block_rows
        self.skip = skip  #: whether rows on which a step raises are left out
        self.reads: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self.stop = threading.Event()  #: set when the run ends and waits for no chunk any more
        self.borders: dict[int, tuple[int, ...]] = {}
        self._units: dict[str, tuple[int, int]] = {}  #: by dataset: rows and units of ``borders``
        self.defaults: dict[tuple[int, str], None] = {}  #: (input, optional column it lacks)
        self._programs: dict[Any, Program] = {}
        self.requests = 0  #: to remote files
        self.identities: dict[int, str] = {}  #: of the inputs opened so far
        self.keeping = definition.keep_rows
        self._kept_bytes = 0
        self._found: dict[int, Any] = {}
        self._saved: dict[str, tuple[tuple[str, ...], str]] = {}  #: file -> columns, first input
        self.feeds = dict(feeds or {})
        self.twins: dict[str, str] = {}  #: steps that are computed with another one
        #: inputs that are known from an earlier run: what identifies them, and their rows
        self.expected: dict[int, tuple[str, int]] = {}
        self.sealed: dict[str, Mapping[str, str]] | None = None  #: what steps are at home
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to a process: locks, programs and compiled code are made anew."""
        state = dict(self.__dict__)
        for name in ("stop", "_lock", "_programs", "_found"):
            del state[name]
        state["definition"] = replace(self.definition, kernels={})
        state["ambient"] = ambient()
        state["sealed"] = seal(self.definition)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin in another process."""
        restore(state.pop("ambient"))
        self.__dict__.update(state)
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._programs = {}
        self._found = {}
        # What was learned here so far is known at home; from now on only what is new is told.
        self.reads, self.requests = {}, 0

    def hear(self, found: Any) -> None:
        """Take in what a worker in another process learned."""
        hear(self, found)

    def feed(self, number: int) -> Feed:
        """Say what an input of the scheduler is."""
        return self.feeds.get(number) or Feed(number)

    def open_worker(self, worker: int) -> _Worker:  # noqa: ARG002 - all workers are alike
        """Make the side of one worker."""
        if self.sealed is not None:
            check_arrived(self.definition, self.sealed)
            self.sealed = None
        return _Worker(self)

    def is_own(self, module: ModuleType) -> bool:
        """Say whether a module is the user's own, so that it goes to other processes with its state."""
        return is_own(module)

    def named(self, text: str) -> str:
        """Replace the numbers of inputs, which are all that an engine knows, by what people call them."""

        def label(found: re.Match[str]) -> str:
            return f"of {self.source.inputs[self.feed(int(found[1])).input].label}"

        return re.sub(r"\bof input (\d+)\b", label, text)

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
            kind = FailureKind.INTERNAL  # the analysis itself is wrong: no file or row can be blamed
        elif isinstance(error, OSError):
            kind = FailureKind.TRANSIENT_IO
        elif isinstance(error, MemoryError):
            kind = FailureKind.EXHAUSTED
        facts = getattr(error, "facts", {})
        place = ", ".join(str(facts[key]) for key in ("step", "file") if key in facts)
        return Failure(kind, type(error).__name__, str(error), place, error)

    def program(self, source: Input, info: FileInfo, products: frozenset[Product] | None = None) -> Program:
        """Return the program for a file, making it if no file with these columns came before."""
        key = (
            source.dataset,
            tuple((c.name, c.kind, str(c.dtype), c.counter) for c in info.columns.values()),
            products,
        )
        with self._lock:
            program = self._programs.get(key)
            if program is None:
                metadata = self.source.datasets[source.dataset]
                program = bind(self.definition, source.dataset, metadata, info, source.label, products)
                self._check_saved(program, source.label)
                self._programs[key] = program
                self.twins.update({n: s.same_as for n, s in program.steps.items() if s.same_as not in (None, n)})
            return program

    def _check_saved(self, program: Program, label: str) -> None:
        """Refuse files of a dataset that cannot go to one file, as soon as the second of them is opened."""
        for save in program.saves:
            known, first = self._saved.setdefault(save.key, (save.columns, label))
            differing = sorted(set(known) ^ set(save.columns))
            if differing:
                name = differing[0]
                has, lacks = (first, label) if name in known else (label, first)
                more = f" (and {len(differing) - 1} more columns differ)" if len(differing) > 1 else ""
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
            self.know_borders(source.index, borders)
            for column in program.defaults_used:
                self.defaults[source.index, column] = None
        return borders

    def unit_rows(self, dataset: str) -> float:
        """Give the mean rows of the units of a dataset, as far as its inputs were opened; 0 if none was."""
        rows, units = self._units.get(dataset, (0, 0))
        return rows / units if units else 0.0

    def know_borders(self, index: int, borders: tuple[int, ...]) -> None:
        """Keep the unit borders of an input."""
        before = self.borders.get(index, (0,))
        self.borders[index] = borders
        dataset = self.source.inputs[index].dataset
        rows, units = self._units.get(dataset, (0, 0))
        more = borders[-1] - before[-1], len(borders) - len(before)
        self._units[dataset] = (rows + more[0], units + more[1])

    def check_same(self, index: int, info: FileInfo) -> None:
        """Refuse an input that is another file than when it was first opened in this run."""
        found = (info.identity, info.rows, info.borders)
        with self._lock:
            known = self._found.setdefault(index, found)
            self.identities.setdefault(index, info.identity)
            expected = self.expected.get(index, (info.identity, info.rows))
        if known != found or expected != (info.identity, info.rows):
            label = self.source.inputs[index].label
            raise CorruptFileError(
                f"{label} was replaced while it was being read: run again, on files that stay as they are", file=label
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
        self.reading = Reading()  #: what reading took in the last run
        self._readers: OrderedDict[int, Reader] = OrderedDict()
        self._told = Told(
            opened=set(workload.borders),
            defaults=set(workload.defaults),
            unchecked=frozenset(workload.definition.unchecked),
            touched=dict(workload.definition.touched),
        )

    def news(self) -> News | None:
        """Say what is new since the last time; asked for only where home is another process."""
        return news(self.workload, self._told)

    def inspect(self, input: int) -> tuple[int, tuple[int, ...]]:  # noqa: A002 - the word of the house
        """Open an input, bind the steps to it, and say how many rows and which units it has."""
        feed = self.workload.feed(input)
        reader = self._reader(feed.input)
        source = self.workload.source.inputs[feed.input]
        program = self.workload.program(source, reader.info, feed.products)
        return reader.info.rows, self.workload.opened(source, reader.info, program)

    def prepare(self, rows: tuple[Rows, ...], plan: Plan) -> PreparedColumns:
        """Read what a chunk needs first, for another worker to run it with."""
        _, reader, program, chunk = self._opened(rows)
        return read_ahead(program, reader, chunk, plan.order, self.workload.stop.is_set)

    def run(self, rows: tuple[Rows, ...], plan: Plan, prepared: PreparedColumns | None = None) -> Outcome:
        """Run one chunk in the order of the plan, with what was prepared for it."""
        (part,) = rows
        source, reader, program, chunk = self._opened(rows)
        before = reader.bytes_read
        attempts = self._attempts(source, program, reader, chunk, plan)
        if prepared is not None:
            prepared.hand_over(attempts.run)
            before -= prepared.bytes_read
            self.workload.note_reads(source.index, prepared.reads)
        try:
            attempts.look(self.workload.borders[source.index])
            partial = attempts.partial()
        finally:
            attempts.run.release()
            store = attempts.run.store
            self.reading = Reading(store.read_seconds, store.read_cpu_s)
            self.workload.note_reads(source.index, reader.reads)
            reader.reads.clear()
        self.workload.note_kept(partial)
        measurement = Measurement(bytes_read=reader.bytes_read - before)
        evidence = attempts.evidence(in_memory=source.format == "arrays")
        gone = skipped(attempts.left_out.values(), part.input, source.label)
        return Outcome(partial, measurement, evidence, gone)

    def merge(self, partials: Sequence[Any]) -> Any:
        """Unite partials of one input."""
        return unite(partials)

    def close(self) -> None:
        """Close every file."""
        while self._readers:
            self._close(self._readers.popitem()[1])

    # -- inside ------------------------------------------------------------------------------

    def _opened(self, rows: tuple[Rows, ...]) -> tuple[Input, Reader, Program, Chunk]:
        """Open the file that rows are in; say what runs on them."""
        (part,) = rows
        feed = self.workload.feed(part.input)
        reader = self._reader(feed.input)
        source = self.workload.source.inputs[feed.input]
        program = self.workload.program(source, reader.info, feed.products)
        borders = self.workload.borders.get(feed.input)
        if borders is None:
            borders = self.workload.opened(source, reader.info, program)
        return source, reader, program, chunk_of(source, part, borders, reader.info.clusters)

    def _attempts(self, source: Input, program: Program, reader: Reader, chunk: Chunk, plan: Plan) -> Attempts:
        workload = self.workload
        run = ChunkRun(
            program, reader, chunk, plan.order, dict(plan.blocks), workload.block_rows,
            stopping=workload.stop.is_set, rows=_rows_to_run(source, chunk),
        )  # fmt: skip
        steps = workload.definition.steps.values()
        after = tuple((step.name, cut) for step in steps for cut in step.after)
        return Attempts(run, plan, after, skip=workload.skip)

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


def _rows_to_run(source: Input, chunk: Chunk) -> Selection | None:
    """Select the rows of a chunk that are not left out of its input; None: all of them."""
    start, stop = chunk.borders[0], chunk.borders[-1]
    mask = np.ones(stop - start, dtype=bool)
    for first, last in source.left_out:
        mask[max(first - start, 0) : max(last - start, 0)] = False
    return None if mask.all() else Selection(stop - start, np.flatnonzero(mask))
