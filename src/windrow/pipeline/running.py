"""Running a pipeline: decisions taken and said, the loop started, the result put together."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow import data as windrow_data
from windrow.core.failures import lost_too_often
from windrow.core.policies import Policies
from windrow.core.records import FailureKind
from windrow.core.scheduler import Options as SchedulerOptions
from windrow.core.scheduler import Scheduler
from windrow.core.settling import OUT_OF_TIME
from windrow.data.paths import is_remote
from windrow.errors import EngineError
from windrow.pipeline.assemble import assemble
from windrow.pipeline.collecting import Collecting
from windrow.pipeline.identities import step_fingerprints
from windrow.pipeline.journaling import Journaling
from windrow.pipeline.keeping import keep
from windrow.pipeline.options import Options
from windrow.pipeline.ordering import Repair, check_conditions, make_plans
from windrow.pipeline.places import Place, choose_place, limits
from windrow.pipeline.resuming import asked_orders, begin, begin_anew
from windrow.pipeline.rundirs import running_in
from windrow.pipeline.skims import publish, saving
from windrow.pipeline.workload import PipelineWorkload
from windrow.run.loop import run as run_loop
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.store.journal import Journal
from windrow.watch.environment import environment
from windrow.watch.log import EventLog
from windrow.watch.progress import watching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.core.records import Failure
    from windrow.data.base import Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.result import Result
    from windrow.pipeline.resuming import Beginning
    from windrow.run.loop import Observer, RunOutcome
    from windrow.store.fingerprints import Fingerprint
    from windrow.store.rundir import RunDirectory

__all__ = ["Options", "check_pipeline", "run_pipeline"]

#: As long as a chunk of known cost takes at most: after Ctrl-C most of what is at work still counts.
PATIENCE_S = 2.0
#: A worker with no rows takes 60 to 150 MB, by the libraries it has loaded.
EMPTY_WORKER = 150_000_000


def run_pipeline(pipeline: Pipeline, definition: Definition, data: Any, options: Options) -> Result:
    """Run a pipeline over data and return its result."""
    source = windrow_data.open(data)
    check_conditions(definition, source)
    with (
        running_in(options, definition, source) as directory,
        saving(definition, source) as complete,
        _journal_in(directory, options) as journal,
    ):
        result, failure = _Run(pipeline, complete, source, options, journal).run()
        if directory is not None:
            result.rundir = str(directory.path)
            result.environment = environment()
            result.notes = (*result.notes, *keep(result, directory))
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
    issued: list[tuple[str, tuple[str, ...], str]] = field(default_factory=list)  #: orders
    _steps: dict[str, Fingerprint] | None = None

    def run(self) -> tuple[Result, BaseException | None]:
        """Run; return the result, and what kept it from being saved where it should be."""
        began = perf_counter()
        decisions = self.decisions
        plans = make_plans(self.definition, self.source, self.options, self.pipeline, decisions)
        self.issued += [(dataset, plan.order, plan.reason) for dataset, plan in plans.items()]
        beginning = begin_anew(self.source)
        if self.journal is not None:
            beginning = begin(
                self.definition,
                self.source,
                self.journal,
                self.options.max_rows,
                self.steps,
                skip=self.options.on_error == "skip",
                orders=asked_orders(plans, self.options),
            )
            decisions += beginning.decisions
        place = choose_place(
            self.source,
            self.options,
            len(beginning.specs),
            self.pipeline.waited,
            lambda: self.steps,
        )
        workload = self._workload(beginning)
        order = Repair(self.definition, self.issued)
        scheduler = self._scheduler(beginning, plans, order, place)
        journaling = None
        if self.journal is not None:
            journaling = Journaling(self.journal, beginning, self.definition, self.source, workload)
        log = EventLog.remembered() if self.options.rundir is None else None
        outcome = self._loop(scheduler, place, workload, journaling, log)
        decisions += [*place.said(), *_about_remote(self.source, workload)]
        self.pipeline.guards.update(order.guards)
        self.pipeline.remember(scheduler.accounts)
        self.pipeline.waited = place.waited
        if outcome.failure is not None:
            if place.switched and isinstance(outcome.failure.exception, EngineError):
                return self._again(outcome.failure)
            raise _raised(outcome.failure, workload, self.options)
        result = assemble(
            definition=self.definition,
            source=self.source,
            workload=workload,
            scheduler=scheduler,
            outcome=outcome,
            beginning=beginning,
            decisions=decisions,
            issued=self.issued,
            guards=tuple(sorted(self.pipeline.guards)),
            engine=place.kind,
            workers=place.workers,
            seconds=perf_counter() - began,
        )
        workers = self.options.workers
        failure = publish(self.definition, self.source, workload, outcome, result, workers)
        result.seconds = perf_counter() - began
        result.notes = (*self._limit(), *result.notes, *(journaling.notes if journaling else ()))
        result.log = None if log is None else log.text
        return result, failure

    @property
    def steps(self) -> dict[str, Fingerprint]:
        """Fingerprints of the steps, found when somebody asks for them."""
        if self._steps is None:
            self._steps = step_fingerprints(self.definition)
        return self._steps

    def _again(self, failure: Failure) -> tuple[Result, BaseException | None]:
        """Results that cannot leave a process: once more, in threads, which need not send them."""
        options = replace(self.options, engine="threads")
        again = _Run(self.pipeline, self.definition, self.source, options, self.journal)
        again.decisions.append(f"engine: threads after all, because {failure.message}")
        return again.run()

    def _loop(
        self,
        scheduler: Scheduler,
        place: Place,
        workload: PipelineWorkload,
        journaling: Journaling | None,
        log: EventLog | None,
    ) -> RunOutcome:
        name, rundir, progress = self.pipeline.name, self.options.rundir, self.options.progress
        with watching(scheduler, progress=progress, name=name, rundir=rundir) as observers:
            patience = _Patience(scheduler, workload)
            watchers: list[Observer] = [*observers, patience]
            watchers += [watcher for watcher in (log, journaling) if watcher is not None]
            try:
                return run_loop(
                    scheduler,
                    place.engine(scheduler),
                    workload,
                    observers=watchers,
                    collector=Collecting(None if journaling is None else journaling.changed),
                )
            finally:
                patience.end()
                if journaling is not None:
                    journaling.end()

    def _workload(self, beginning: Beginning) -> PipelineWorkload:
        """Make the workload, with what is known of files from an earlier run."""
        options = self.options
        workload = PipelineWorkload(
            self.definition,
            self.source,
            options.block_rows,
            feeds=beginning.feeds,
            skip=options.on_error == "skip",
        )
        for index, known in beginning.known.items():
            item = self.source.inputs[index]
            workload.borders[index] = known.borders
            identity = item.dataset if item.format == "arrays" else beginning.file_identity(item)
            workload.identities[index] = identity
            workload.expected[index] = (identity, known.rows)
        if beginning.journal is not None and beginning.journal.noted("rows kept") is False:
            workload.keeping = False
        return workload

    def _scheduler(
        self, beginning: Beginning, plans: dict[str, Any], order: Repair, place: Place
    ) -> Scheduler:
        options = self.options
        chunk = options.chunk
        return Scheduler(
            beginning.specs,
            Policies(
                shape=Guided(self.pipeline.costs) if chunk is None else Fixed(chunk),
                order=order,
                safety=place.safety(journaled=beginning.journal is not None),
            ),
            SchedulerOptions(
                on_error="skip" if options.on_error == "skip" else "stop",
                row_limit=options.max_rows,
                row_limits=beginning.limits,
                chunk=chunk,
                limits=limits(options),
                restart=place.kind == "processes" or place.may_switch,
                speculate=place.kind == "processes",
            ),
            plans,
        )

    def _limit(self) -> tuple[str, ...]:
        if self.options.max_rows is None:
            return ()
        rows = f"{self.options.max_rows:,}"
        return (f"max_rows: only the first {rows} rows of each dataset were asked for",)


def _raised(failure: Failure, workload: PipelineWorkload, options: Options) -> BaseException:
    """What to raise for the failure that stopped a run; one without an exception ended its worker."""
    if failure.exception is not None:
        return failure.exception
    where = "" if failure.place in failure.message else f"{failure.place}: "
    if failure.type == OUT_OF_TIME:
        advice = (
            '; allow more (timeout= is for one chunk), or leave such rows out with on_error="skip"'
        )
    elif failure.kind is FailureKind.EXHAUSTED:
        advice = '; allow more (memory= is for all workers together), or leave such rows out with on_error="skip"'
        if options.memory is not None and options.memory < EMPTY_WORKER * options.workers:
            advice = (
                "; that may be none of the rows' fault: the interpreter and libraries alone take about 60 MB in each "
                f"worker, and memory= is for all {options.workers} together; allow more, or take fewer workers"
            )
    elif failure.kind in (FailureKind.CRASHED, FailureKind.LOST):
        if failure.kind is FailureKind.LOST:
            failure = lost_too_often(failure)
        advice = '; look at these rows, or leave them out with on_error="skip"'
    else:
        advice = ""
    return EngineError(f"{workload.named(where + failure.message)}{advice}")


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
    options = Options.checked(engine="inline", workers=1, max_rows=rows, seed=seed, progress=False)
    run_pipeline(pipeline, definition, data, options)
    pipeline.mark_checked(wanted - definition.unchecked)
    return tuple(name for name in definition.written if name in wanted - definition.unchecked)


class _Patience:
    """When a run is to stop, chunks at work have a moment to finish; then they end before their next step."""

    def __init__(self, scheduler: Scheduler, workload: PipelineWorkload) -> None:
        self._scheduler = scheduler
        self._timer = threading.Timer(PATIENCE_S, workload.stop.set)
        self._timer.daemon = True
        self._started = False

    def __call__(self, events: Any, commands: Any, now: float) -> None:  # noqa: ARG002 - an observer's
        """Start counting once the scheduler is stopping."""
        if self._scheduler.stopping and not self._started:
            self._started = True
            self._timer.start()

    def end(self) -> None:
        """Stop counting."""
        self._timer.cancel()
