"""Running a pipeline: decisions taken and said, the loop started, the result put together."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow import data as windrow_data
from windrow.core.launching import LaunchPolicy
from windrow.core.options import Options as SchedulerOptions
from windrow.core.policies import Policies
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.data.paths import is_remote
from windrow.engines.machine_limits import granted_cores
from windrow.errors import EngineError
from windrow.pipeline.assemble import assemble
from windrow.pipeline.identities import step_fingerprints
from windrow.pipeline.live import outcome_so_far, still
from windrow.pipeline.options import Options
from windrow.pipeline.ordering.controller import FELL_BACK, OrderController
from windrow.pipeline.ordering.initial_orders import check_conditions, make_orders
from windrow.pipeline.ordering.order_file import KEY as ORDERS
from windrow.pipeline.ordering.order_file import orders_to_keep, recall_orders
from windrow.pipeline.ordering.summary import summarise_orders
from windrow.pipeline.patience import Patience
from windrow.pipeline.places import Place, choose_place, limits
from windrow.pipeline.raising import raised
from windrow.pipeline.results.load import keep
from windrow.pipeline.resume.journal_writer import JournalWriter
from windrow.pipeline.resume.plan import asked_orders, begin, begin_anew
from windrow.pipeline.resume.rundir import running_in
from windrow.pipeline.run.partials import PartialCollector
from windrow.pipeline.skims.publish import publish, saving
from windrow.pipeline.streaming import streaming
from windrow.pipeline.workload import PipelineWorkload
from windrow.random import ahead
from windrow.run.loop import run as run_loop
from windrow.shape.capped import CappedUntilReordered
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.store.journal.journal import Journal
from windrow.watch.environment import environment
from windrow.watch.log import EventLog
from windrow.watch.progress import watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windrow.core.records import Failure, Plan
    from windrow.data.base import Source
    from windrow.engines.base import Engine
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.live import Inbox
    from windrow.pipeline.ordering.initial_orders import Orders
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.results.result import Result
    from windrow.pipeline.resume.plan import ResumePlan
    from windrow.pipeline.streaming import Streaming
    from windrow.run.loop import Observer, RunOutcome
    from windrow.store.fingerprint.api import Fingerprint
    from windrow.store.rundir import RunDirectory


def run_pipeline(
    pipeline: Pipeline, definition: Definition, data: Any, options: Options, inbox: Inbox | None = None
) -> Result:
    """Run a pipeline over data and return its result; ``inbox`` is for who watches from another thread."""
    source = windrow_data.open(data)
    check_conditions(definition, source)
    stream = streaming(source, options)
    if stream is not None:
        definition, source, inbox = stream.definition(definition), stream.flow, stream.fed(inbox)
    recall_orders(pipeline, definition, options.rundir)
    with (
        running_in(options, definition, source) as directory,
        saving(definition, source) as complete,
        _journal_in(None if stream else directory, options) as journal,
    ):
        run = _Run(pipeline, complete, source, options, journal, stream=stream, inbox=inbox)
        result, failure = run.run()
        if directory is not None:
            result.rundir = str(directory.path)
            result.environment = environment()
            result.notes = (*result.notes, *keep(result, directory))
            directory.write_manifest({ORDERS: orders_to_keep(pipeline, definition)})
        if failure is not None:
            raise failure
        return result


@contextmanager
def _journal_in(directory: RunDirectory | None, options: Options) -> Iterator[Journal | None]:
    """Open the journal of a run directory, a new one unless the run is continued."""
    if directory is None:
        yield None
        return
    there = options.resume and Journal.exists(directory.path)
    with Journal.open(directory.path) if there else Journal.create(directory.path) as journal:
        yield journal


@dataclass(slots=True)
class _Run:
    """One run while it goes on."""

    pipeline: Pipeline
    definition: Definition
    source: Source
    options: Options
    journal: Journal | None
    decisions: list[str] = field(default_factory=list)
    stream: Streaming | None = None  #: what is different where rows come while it goes on
    inbox: Inbox | None = None  #: what comes from outside
    _steps: dict[str, Fingerprint] | None = None

    def run(self) -> tuple[Result, BaseException | None]:
        """Run; return the result, and what kept it from being saved where it should be."""
        began = perf_counter()
        decisions = self.decisions
        orders = make_orders(self.definition, self.source, self.options, self.pipeline)
        decisions += orders.decisions
        plans = orders.plans
        beginning = self._beginning(plans)
        place = self._place(beginning)
        workload = self._workload(beginning)
        order = self._order(orders, workload, place)
        rows = self._rows(beginning, plans, order, place)
        engine = place.engine(rows)
        scheduler = self._scheduler(rows, engine, place)
        journaling = None
        if self.journal is not None:
            journaling = JournalWriter(self.journal, beginning, self.definition, self.source, workload)
        log = EventLog.remembered() if self.options.rundir is None else None
        made = partial(self._made, rows, plans, beginning, order, place, began)
        outcome = self._loop(scheduler, rows, engine, place, workload, journaling, log, made)
        decisions += [*place.said(), *_about_remote(self.source, workload)]
        self._remember(order, rows, outcome, place)
        if outcome.failure is not None:
            if place.switched and isinstance(outcome.failure.exception, EngineError):
                return self._again(outcome.failure)
            error = raised(outcome.failure, self.options)
            if self.stream is not None:
                self.stream.tell(error, lambda: made(outcome, workload))
            raise error
        result = made(outcome, workload)
        workers = self.options.workers
        failure = publish(self.definition, self.source, workload, outcome, result, workers)
        if self.stream is not None:
            failure = self.stream.failure(result)
        result.seconds = perf_counter() - began
        kept = journaling.notes if journaling else ()
        result.notes = (*self._limit(), *result.notes, *kept)
        result.log = None if log is None else log.text
        return result, failure

    def _order(self, orders: Orders, workload: PipelineWorkload, place: Place) -> OrderController:
        return OrderController(
            self.definition, orders.policy, fixed=orders.fixed, unit_rows=workload.unit_rows, workers=place.workers
        )

    def _remember(self, order: OrderController, rows: RowFeeder, outcome: RunOutcome, place: Place) -> None:
        """Keep what the next run need not find out."""
        pipeline = self.pipeline
        pipeline.guards.update(order.guards)
        pipeline.remember(rows.accounts)
        plans = {name: account.plan for name, account in rows.accounts.items()}
        for name, account in rows.accounts.items():
            if account.blamed:
                order.fixed[name] = FELL_BACK
                pipeline.learned.pop(name, None)  # the next run must not begin with what failed
        pipeline.learned.update(order.found_orders(outcome.evidence, plans))
        pipeline.waited = place.waited

    def _made(
        self,
        rows: RowFeeder,
        plans: dict[str, Plan],
        beginning: ResumePlan,
        order: OrderController,
        place: Place,
        began: float,
        outcome: RunOutcome,
        workload: PipelineWorkload,
    ) -> Result:
        """Make the result of what came out, or of what has come out so far."""
        result = assemble(
            definition=self.definition,
            source=self.source,
            workload=workload,
            rows=rows,
            outcome=outcome,
            beginning=beginning,
            decisions=self.decisions,
            issued=_issued(plans, rows),
            guards=tuple(sorted(self.pipeline.guards)),
            engine=place.kind,
            workers=place.workers,
            seconds=perf_counter() - began,
            options=self.options,
        )
        result.ordering = summarise_orders(order, outcome.evidence, result)
        return result

    def _place(self, beginning: ResumePlan) -> Place:
        if self.stream is not None:
            return self.stream.place(self.options, lambda: self.steps)
        to_do, waited = len(beginning.specs), self.pipeline.waited
        return choose_place(self.source, self.options, to_do, waited, lambda: self.steps)

    def _beginning(self, plans: dict[str, Plan]) -> ResumePlan:
        if self.stream is not None:
            return self.stream.beginning
        if self.journal is None:
            return begin_anew(self.source)
        beginning = begin(
            self.definition,
            self.source,
            self.journal,
            self.options.max_rows,
            self.steps,
            skip=self.options.on_error == "skip",
            orders=asked_orders(plans, self.options),
        )
        self.decisions += beginning.decisions
        return beginning

    @property
    def steps(self) -> dict[str, Fingerprint]:
        """Fingerprints of the steps, found when somebody asks for them."""
        if self._steps is None:
            self._steps = step_fingerprints(self.definition)
        return self._steps

    def _again(self, failure: Failure) -> tuple[Result, BaseException | None]:
        """Results that cannot leave a process: once more, in threads, which need not send them."""
        options = replace(self.options, engine="threads")
        again = _Run(self.pipeline, self.definition, self.source, options, self.journal, inbox=self.inbox)
        again.decisions.append(f"engine: threads after all, because {failure.message}")
        return again.run()

    def _loop(
        self,
        scheduler: Scheduler,
        rows: RowFeeder,
        engine: Engine,
        place: Place,
        workload: PipelineWorkload,
        journaling: JournalWriter | None,
        log: EventLog | None,
        made: Callable[[RunOutcome, PipelineWorkload], Result],
    ) -> RunOutcome:
        name, rundir, progress = self.pipeline.name, self.options.rundir, self.options.progress
        collector: Any = PartialCollector(journaling)
        standings: Any = rows
        if self.stream is not None:
            self.stream.watch(rows, place.workers)
            collector, standings = self.stream.gathered, self.stream
        if self.inbox is not None:
            self.inbox.rows = lambda: standings.standing().done
            self.inbox.answer = lambda: made(outcome_so_far(scheduler, rows, collector), still(workload))
        with watching(standings, progress=progress, name=name, rundir=rundir) as observers:
            patience = Patience(scheduler, workload)
            watchers: list[Observer] = [*observers, patience]
            watchers += [watcher for watcher in (log, journaling) if watcher is not None]
            if place.kind == "inline":
                ahead.grant(granted_cores(os.environ) - 1)
            elif place.kind == "threads":
                ahead.grant(granted_cores(os.environ) - place.workers)
            try:
                return run_loop(scheduler, engine, workload, observers=watchers, collector=collector, inbox=self.inbox)
            finally:
                ahead.grant(0)
                patience.end()
                if journaling is not None:
                    journaling.end()

    def _workload(self, beginning: ResumePlan) -> PipelineWorkload:
        """Make the workload, with what is known of files from an earlier run."""
        options = self.options
        if self.stream is not None:
            return self.stream.workload(self.definition, options)
        workload = PipelineWorkload(
            self.definition, self.source, options.block_rows, feeds=beginning.feeds, skip=options.on_error == "skip"
        )
        for index, known in beginning.known.items():
            item = self.source.inputs[index]
            workload.know_borders(index, known.borders)
            identity = item.dataset if item.format == "arrays" else beginning.file_identity(item)
            workload.identities[index] = identity
            workload.expected[index] = (identity, known.rows)
        if beginning.journal is not None and beginning.journal.noted("rows kept") is False:
            workload.keeping = False
        return workload

    def _rows(self, beginning: ResumePlan, plans: dict[str, Plan], order: OrderController, place: Place) -> RowFeeder:
        """Make the supply of rows, with the decisions that cut them."""
        options = self.options
        chunk = options.chunk
        shape = CappedUntilReordered(Guided(self.pipeline.costs), order.most_s) if chunk is None else Fixed(chunk)
        # What somebody asks for while the run goes on has to be here by then.
        safety = place.safety(journaled=beginning.journal is not None or self.inbox is not None)
        return RowFeeder(
            beginning.specs,
            Policies(shape=place.shape(shape), order=order, safety=safety),
            RowOptions(
                on_error="skip" if options.on_error == "skip" else "stop",
                row_limit=None if self.stream else options.max_rows,
                row_limits=beginning.limits,
                chunk=chunk,
            ),
            plans,
        )

    def _scheduler(self, rows: RowFeeder, engine: Engine, place: Place) -> Scheduler:
        options = self.options
        return Scheduler(
            rows,
            LaunchPolicy(limits(options)),
            SchedulerOptions(
                on_error="skip" if options.on_error == "skip" else "stop",
                open=self.stream is not None,
                restart=engine.capabilities.can_restart or place.may_switch,
                speculate=engine.capabilities.can_kill,
            ),
        )

    def _limit(self) -> tuple[str, ...]:
        if self.options.max_rows is None:
            return ()
        rows = f"{self.options.max_rows:,}"
        return (f"max_rows: only the first {rows} rows of each dataset were asked for",)


def _issued(plans: Mapping[str, Plan], rows: RowFeeder) -> list[tuple[str, tuple[str, ...], str]]:
    """List the orders that were in force and why; datasets of which nothing had to be run have the one planned."""
    accounts = rows.accounts
    return [
        (dataset, one.order, one.reason)
        for dataset, plan in plans.items()
        for one in (accounts[dataset].plans if dataset in accounts else [plan])
    ]


def _about_remote(source: Source, workload: PipelineWorkload) -> list[str]:
    remote = [i for i in source.inputs if i.format != "arrays" and is_remote(str(i.location))]
    if not remote:
        return []
    said = f"reading: {len(remote)} of {len(source.inputs)} files are remote, so the columns a chunk will most likely "
    said += "need are asked for together, as learned from earlier chunks"
    return [f"{said}: {workload.requests:,} requests in all"]


def check_pipeline(pipeline: Pipeline, data: Any, rows: int, seed: int) -> tuple[str, ...]:
    """Check every step for row-purity on the first rows of each dataset."""
    definition = pipeline.definition(seed, recheck=True, sample_rows=rows)
    wanted = set(definition.unchecked)
    options = Options(engine="inline", workers=1, max_rows=rows, seed=seed, progress=False)
    run_pipeline(pipeline, definition, data, options)
    pipeline.mark_checked(wanted - definition.unchecked)
    return tuple(name for name in definition.written if name in wanted - definition.unchecked)
