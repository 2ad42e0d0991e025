"""A run over a stream: rows handed over as they come, and all that was kept for them let go when they are done.

A portion of the stream is an input of the scheduler, with the row numbers of the whole stream; the pipeline sees one input.
So the scheduler's books stay few, and units have the places in the tree that they would have in a run over arrays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windrow.core.events import CancelRequested, Closed, Event, Submitted
from windrow.core.intervals import Intervals
from windrow.core.ledger import Entry
from windrow.core.records import InputSpec
from windrow.errors import DataError, NotYetError, UsageError, WindrowError
from windrow.pipeline.resume.plan import ResumePlan
from windrow.pipeline.run.background import Inbox
from windrow.pipeline.run.engine_choice import EngineChoice
from windrow.pipeline.run.facts import RunFacts
from windrow.pipeline.run.partials import UnitedPartial
from windrow.pipeline.run.reduction import HeldLeaves
from windrow.pipeline.run.workload import Feed, PipelineWorkload

if TYPE_CHECKING:
    from windrow.blocks.program import Program
    from windrow.core.ledger import Ledger
    from windrow.core.records import Handle
    from windrow.core.rows import RowFeeder, Standing
    from windrow.data.base import FileInfo, Input
    from windrow.data.stream.flow import Flow, Portion
    from windrow.data.stream.stream import Stream, Tap
    from windrow.pipeline.definition.definition import Definition, Product
    from windrow.pipeline.definition.options import Options
    from windrow.pipeline.results.result import Result
    from windrow.store.fingerprint.api import Fingerprint


#: Portions of the stream that a worker may have or wait for: what comes meanwhile is handed over together.
PORTIONS = 2
#: Seconds in which rows that were taken are finished after the stream was stopped.
PATIENCE_S = 2.0
#: Seconds that the end of a run waits for a producer that is about to give its next batch.
LAST_S = 0.2


class StreamSupply:
    """Rows that come while the run goes on."""

    open_ended = True
    row_limit = None  #: the stream ends where it is reached
    writer = None
    sums = None

    def __init__(self, definition: Definition, source: Stream, options: Options) -> None:
        if options.resume:
            raise UsageError(
                "resume=True continues a run over rows that are still there, and those of a stream are gone: run it anew"
            )
        elsewhere = options.engine == "processes" or options.client is not None
        if elsewhere or options.memory is not None or options.timeout is not None:
            raise NotYetError(
                'the rows of a stream are in the memory of one process, so engine="processes", clusters, memory= and timeout= '
                "do not exist for it yet: use threads, and bound the memory with wr.data.stream(..., buffer=...)"
            )
        tap, self.source = source.begin(options.max_rows)
        if definition.saves:
            raise NotYetError(
                "the rows of a stream cannot be saved yet: run with save=False, or write what comes to files first"
            )
        self.definition = replace(definition, keep_rows=False)  # which grow with the rows
        self.options = options
        self.leaves = HeldLeaves(definition.steps)
        self.plan = StreamPlan([], flow=self.source, united=UnitedPartial(self.leaves))
        self.pump = StreamPump(tap, self.source)

    def journal_in(self, directory: object) -> AbstractContextManager[None]:  # noqa: ARG002 - there is none
        return nullcontext()

    def begin(self, plans: object, steps: object) -> None:
        """Find out what is to do: nothing yet."""

    def choose_engine(
        self,
        waited: str,  # noqa: ARG002 - a stream has no processes
        steps: Callable[[], Mapping[str, Fingerprint]],
        past_s: float | None,  # noqa: ARG002
    ) -> EngineChoice:
        options, workers = self.options, self.options.workers
        if options.engine != "auto":
            return EngineChoice(options, options.engine, workers, split=(0, workers))  # nothing is to be read ahead
        if workers == 1:
            return EngineChoice(options, "inline", 1, "there is one worker")
        for name, found in steps().items():
            if found.stores_globals:
                why = f"{name!r} changes {found.stores_globals[0]}, which threads would share, and a stream has no processes"
                return EngineChoice(options, "inline", 1, why)
        why = f"{workers} workers share the rows of a stream"
        return EngineChoice(options, "threads", workers, why, split=(0, workers))

    def make_workload(self) -> PipelineWorkload:
        skip = self.options.on_error == "skip"
        workload = StreamWorkload(self.definition, self.source, self.options.block_rows, skip=skip)
        workload.limited = self.options.memory is not None
        return workload

    def make_collector(self, rows: RowFeeder, workload: PipelineWorkload, *, live: bool) -> StreamSupply:  # noqa: ARG002
        return self

    def add(self, handle: Handle, value: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        self.plan.united.add(about, value)
        self.leaves.trim()

    def partials(self) -> dict[int, list[Any]]:
        return {0: [self.plan.united]}

    def feed(self, rows: RowFeeder, inbox: Inbox | None, workers: int) -> Inbox:
        self.pump.rows = rows
        self.pump.portions = PORTIONS * workers
        inbox = inbox or Inbox()
        inbox.pump = self.pump
        return inbox

    def standing(self) -> Standing:
        assert self.pump.rows is not None
        now, before = self.pump.rows.standing(), self.pump.forgotten
        return now._replace(known=now.known + before, done=now.done + before, inputs=1)

    def tell(self, error: BaseException, result: Callable[[], Result]) -> None:
        """Give the result of what was done along with an error: the rows cannot be had again."""
        if isinstance(error, WindrowError):
            with suppress(WindrowError):  # what went wrong first is what matters
                error.facts["result"] = result()

    def failure(self, result: Result) -> DataError | None:
        """What ended the stream before its time, with the result of what came until then."""
        error = self.pump.error
        if error is not None:
            result.notes = (*result.notes, f"the stream broke off {error}")
            self.tell(error, lambda: result)
        return error


@dataclass(slots=True, kw_only=True)
class StreamPlan(ResumePlan):
    """Nothing is to do yet; accounts for rows in the numbers of the stream."""

    flow: Flow
    united: UnitedPartial

    def account(self, index: int, ledger: Ledger) -> list[Entry]:  # noqa: ARG002 - there is one
        found = [
            Entry(rows.start, rows.stop, "failed", failure.message)
            for listed in ledger.failures.values()
            for rows, failure in listed
        ]
        others = Intervals((entry.start, entry.stop or 0) for entry in found)
        for start, stop in self.united.rows:
            found.append(Entry(start, stop, "done", ""))
            others.add(start, stop)
        found += [Entry(*gap, "missing", "") for gap in others.gaps(0, self.flow.taken)]
        return sorted(found, key=lambda entry: entry.start)

    def last_row(self, index: int, ledger: Ledger) -> int:  # noqa: ARG002 - there is one
        return self.flow.borders[-1]


class StreamWorkload(PipelineWorkload):
    """A pipeline over a stream: whatever portion the scheduler names, the rows are those of one input."""

    def __init__(self, definition: Definition, flow: Flow, block_rows: int | None, *, skip: bool) -> None:
        super().__init__(definition, flow, block_rows, skip=skip)
        self.facts.borders[0] = flow.borders  # type: ignore[assignment]  # it grows
        self._read: dict[str, Intervals] = {}

    def feed(self, number: int) -> Feed:  # noqa: ARG002 - all are the same
        return Feed(0)

    def unit_rows(self, dataset: str) -> float:  # noqa: ARG002 - there is one
        borders = self.facts.borders[0]
        units = len(borders) - 1
        return borders[units] / units if units else 0.0

    def program(self, source: Input, info: FileInfo, products: frozenset[Product] | None = None) -> Program:
        """Return the program; what it has no column for is noted here, as nothing is ever inspected."""
        program = super().program(source, info, products)
        self.learn(RunFacts(defaults=dict.fromkeys((0, column) for column in program.defaults_used)))
        return program

    def note_reads(self, source: int, reads: list[tuple[str, int, int]]) -> None:
        """Keep which rows of which columns were read, neighbours joined whatever the order they came in."""
        with self._lock:
            for column, start, stop in reads:
                known = self._read.setdefault(column, Intervals())
                for gap in known.gaps(start, stop):
                    known.add(*gap)
                self.facts.reads[source, column] = known  # type: ignore[assignment]  # it gives pairs as well


class StreamPump:
    """Takes batches from the producer, in a thread of its own, and hands them to the scheduler."""

    def __init__(self, tap: Tap, flow: Flow) -> None:
        self.error: DataError | None = None  #: what the producer, or a batch of it, did wrong
        self.rows: RowFeeder | None = None
        self.portions = PORTIONS  #: that the scheduler may have at a time
        self.forgotten = 0  #: rows of which the scheduler knows nothing any more
        self._tap, self._flow = tap, flow
        self._wake: Callable[[], None] = lambda: None
        self._out: dict[int, Portion] = {}  #: by the scheduler's input
        self._done: dict[int, int] = {}  #: inputs to be forgotten, and their rows
        self._next = 0
        self._closed = False
        self._until: float | None = None  #: rows that were taken are finished by then
        self._can_stop = True
        self._thread = threading.Thread(target=self._feed, name="windrow-stream", daemon=True)

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._thread.start()

    def stop(self) -> None:
        if self._until is None:
            self._until = time.monotonic() + PATIENCE_S
            self._can_stop = self._tap.stop()
            self._flow.end()
            self._wake()

    def close(self) -> None:
        """Let go of everything; a producer that waits for something else is not waited for."""
        self.stop()
        self._flow.close()
        if self._thread.ident is not None:
            self._thread.join(None if self._can_stop else LAST_S)

    # -- the producer's thread ---------------------------------------------------------------

    def _feed(self) -> None:
        batches = self._tap.batches()
        try:
            try:
                while self._flow.wait_for_room():
                    where, batch = next(batches)
                    more = self._flow.push(batch, where)
                    del batch
                    self._wake()
                    if not more:
                        break
            except StopIteration:
                pass
            finally:
                batches.close()
        except BaseException as error:  # noqa: BLE001 - the run tells it
            if self._until is None:  # afterwards nobody wants to know
                self.error = self._told(error)
        finally:
            self._flow.end()
            self._wake()

    def _told(self, error: BaseException) -> DataError:
        rows = f"after {self._flow.taken:,} rows of {self._flow.inputs[0].label}"
        where = "the result of what was done is in facts['result'] of this error"
        if isinstance(error, DataError):
            told = DataError(f"{rows}: {error.message}; {where}", **error.facts)
        else:
            told = DataError(f"{rows} its source raised {type(error).__name__}: {error}; {where}")
        told.__cause__ = error
        return told

    # -- the loop's thread -------------------------------------------------------------------

    def events(self) -> list[Event]:
        events: list[Event] = []
        self._let_go()
        ended = self._flow.ended  # asked first: what came before it is handed over below
        while len(self._out) < self.portions and (portion := self._flow.take()) is not None:
            events.append(Submitted((self._spec(portion),)))
        if ended and not self._closed and not self._flow.waiting:
            self._closed = True
            events.append(Closed())
        if self._until is not None and time.monotonic() > self._until:
            self._until = float("inf")
            events.append(CancelRequested("stopped"))
        return events

    def _spec(self, portion: Portion) -> InputSpec:
        number = self._next
        self._next += 1
        self._out[number] = portion
        item = self._flow.inputs[0]
        # In the numbers of the stream: as if it were a long input, of which these rows alone are asked for.
        start = (0, portion.start) if portion.start else (0,)
        return InputSpec(
            id=number,
            category=item.dataset,
            label=item.label,
            rows=portion.stop,
            borders=(*start, *portion.ends),
            ranges=((portion.start, portion.stop),),
            limited=False,
        )

    def _let_go(self) -> None:
        """Release the rows that are done or failed, and have the scheduler forget those that are done."""
        rows = self.rows
        assert rows is not None
        for number, portion in list(self._out.items()):
            book = rows.ledger.books.get(number)
            if book is not None and book.done + book.failed.total == book.everything.total:
                self._flow.release(portion)
                del self._out[number]
                if not book.failed.total:
                    self._done[number] = book.done
        for number, done in list(self._done.items()):
            if rows.forget(number):
                self.forgotten += done
                del self._done[number]
