"""The rows of a run over files and arrays: all are there when it begins, and some may be done already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windrow.pipeline.resume.input_digest import own_identity
from windrow.pipeline.resume.journal_writer import JournalWriter
from windrow.pipeline.resume.plan import asked_orders, begin, begin_anew
from windrow.pipeline.run.engine_choice import choose_engine
from windrow.pipeline.run.facts import RunFacts
from windrow.pipeline.run.reduction import HeldLeaves, PartialCollector, ReducingCollector
from windrow.pipeline.run.workload import PipelineWorkload
from windrow.store.journal.journal import Journal

if TYPE_CHECKING:
    from windrow.core.records import Plan
    from windrow.core.rows import RowFeeder, Standing
    from windrow.data.base import Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.options import Options
    from windrow.pipeline.results.result import Result
    from windrow.pipeline.run.background import Inbox
    from windrow.pipeline.run.engine_choice import EngineChoice
    from windrow.pipeline.run.reduction import DatasetSums
    from windrow.run.loop import Collector
    from windrow.store.fingerprint.api import Fingerprint
    from windrow.store.rundir import RunDirectory


class BatchSupply:
    """Rows of files and arrays."""

    open_ended = False

    def __init__(self, definition: Definition, source: Source, options: Options) -> None:
        self.definition = definition
        self.source = source
        self.options = options
        self.plan = begin_anew(source)
        self.row_limit = options.max_rows
        self.writer: JournalWriter | None = None
        self.leaves: HeldLeaves  #: of results
        self.sums: DatasetSums | None = None  #: where results are added up as they come
        self.standing: Callable[[], Standing]  #: how far the run is
        self._journal: Journal | None = None

    @contextmanager
    def journal_in(self, directory: RunDirectory | None) -> Iterator[None]:
        if directory is None:
            yield
            return
        there = self.options.resume and Journal.exists(directory.path)
        with Journal.open(directory.path) if there else Journal.create(directory.path) as self._journal:
            yield

    def begin(self, plans: Mapping[str, Plan], steps: Callable[[], Mapping[str, Fingerprint]]) -> None:
        if self._journal is not None:
            self.plan = begin(
                self.definition,
                self.source,
                self._journal,
                self.options.max_rows,
                steps(),
                skip=self.options.on_error == "skip",
                orders=asked_orders(plans, self.options),
            )

    def choose_engine(
        self, waited: str, steps: Callable[[], Mapping[str, Fingerprint]], past_s: float | None
    ) -> EngineChoice:
        compiled = [name for name, step in self.definition.steps.items() if step.each]
        to_do, saves = len(self.plan.specs), bool(self.definition.saves)
        return choose_engine(self.source, self.options, to_do, waited, steps, past_s, compiled=compiled, saves=saves)

    def make_workload(self) -> PipelineWorkload:
        plan, options = self.plan, self.options
        workload = PipelineWorkload(
            self.definition,
            self.source,
            options.block_rows,
            feeds=plan.feeds,
            skip=options.on_error == "skip",
            limited=options.memory is not None,
        )
        for index, known in plan.known.items():
            item = self.source.inputs[index]
            identity = item.dataset if item.format == "arrays" else own_identity(known)
            workload.learn(RunFacts(borders={index: known.borders}, identities={index: identity}))
            workload.expected[index] = (identity, known.rows)
        if self._journal is not None:
            if self._journal.noted("rows kept") is False:
                workload.facts.keeping = False
            self.writer = JournalWriter(self._journal, plan, self.definition, self.source, workload)
        return workload

    def make_collector(self, rows: RowFeeder, workload: PipelineWorkload, *, live: bool) -> Collector:
        """Make what takes partials; ``live``: somebody may ask for the result so far."""
        if self.writer is not None or live:
            self.leaves = HeldLeaves(self.definition.steps)
            return PartialCollector(self.leaves, self.writer)
        collector = ReducingCollector(workload, rows.ledger)
        self.leaves, self.sums = collector.leaves, collector.sums
        return collector

    def feed(self, rows: RowFeeder, inbox: Inbox | None, workers: int) -> Inbox | None:  # noqa: ARG002 - all rows are there
        self.standing = rows.standing
        return inbox

    def tell(self, error: BaseException, result: Callable[[], Result]) -> None:
        """Give the result of what was done along with an error: not here, as the rows can be had again."""

    def failure(self, result: Result) -> None:
        """What ended the rows before their time: nothing can."""
