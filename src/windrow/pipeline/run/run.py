"""Running a pipeline: decisions taken and said, the loop started, the result put together."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow import data as windrow_data
from windrow.core.policies import Policies
from windrow.core.records import FailureKind
from windrow.core.retry import OUT_OF_TIME, lost_too_often
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.data.paths import is_remote
from windrow.data.stream.stream import Stream
from windrow.engines.machine_limits import granted_cores
from windrow.errors import EngineError, UsageError, WindrowError
from windrow.pipeline.definition.options import Options
from windrow.pipeline.ordering.controller import FELL_BACK, OrderController, check_conditions, make_orders
from windrow.pipeline.ordering.order_file import KEY as LEARNED
from windrow.pipeline.ordering.order_file import learned, recall
from windrow.pipeline.ordering.summary import summarise_orders
from windrow.pipeline.results.load import keep
from windrow.pipeline.results.memory import learned_memory, memory_lines
from windrow.pipeline.resume.step_digest import contents_used, step_fingerprints
from windrow.pipeline.run.assemble import ResultAssembly
from windrow.pipeline.run.background import outcome_so_far
from windrow.pipeline.run.batch import BatchSupply
from windrow.pipeline.run.stream import StreamSupply
from windrow.pipeline.run.time_account import TimeAccount, predicted_times
from windrow.pipeline.skims.publish import publish, saving
from windrow.random import spare_cores
from windrow.run.loop import run as run_loop
from windrow.shape.allocation.policy import Allocation
from windrow.shape.fixed import ByScheme, Fixed
from windrow.shape.guided import CappedUntilReordered, Guided
from windrow.shape.reduce import family
from windrow.store.rundir import RunDirectory, time_text
from windrow.watch.environment import commit_of, environment, installed_packages
from windrow.watch.log import EventLog
from windrow.watch.progress import watching

if TYPE_CHECKING:
    from windrow.core.records import Failure, Plan
    from windrow.data.base import Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.results.result import Result
    from windrow.pipeline.run.background import Inbox
    from windrow.pipeline.run.facts import RunFacts
    from windrow.pipeline.run.workload import PipelineWorkload
    from windrow.run.loop import Observer, RunOutcome
    from windrow.store.fingerprint.api import Fingerprint


def run_pipeline(
    pipeline: Pipeline, definition: Definition, data: Any, options: Options, inbox: Inbox | None = None
) -> Result:
    """Run a pipeline over data and return its result; ``inbox`` is for who watches from another thread."""
    source = windrow_data.open(data)
    check_conditions(definition, source)
    supply: BatchSupply | StreamSupply
    if isinstance(source, Stream):
        supply = StreamSupply(definition, source, options)
    else:
        supply = BatchSupply(definition, source, options)
    recall(pipeline, supply.definition, options.rundir)
    with (
        running_in(options, supply.definition, supply.source) as directory,
        saving(supply.definition, supply.source) as supply.definition,
        supply.journal_in(directory),
    ):
        try:
            result, failure = _Run(pipeline, supply, options, inbox).run()
        except WindrowError:
            if directory is not None:  # who allows more, or mends a step, begins with what was learned
                with suppress(OSError):
                    directory.write_manifest({LEARNED: learned(pipeline, definition)})
            raise
        if directory is not None:
            result.rundir = str(directory.path)
            result.environment = environment()
            try:
                result.notes = (*result.notes, *keep(result, directory))
                directory.write_manifest({LEARNED: learned(pipeline, definition)})
            except OSError as error:  # a full disk: what was computed is not lost for that
                result.rundir = None
                said = f"the result could not be written to {directory.path}: {error}; save it elsewhere"
                result.notes = (*result.notes, said)
                warnings.warn(said, stacklevel=4)
        if failure is not None:
            raise failure
        return result


class _Run:
    def __init__(
        self,
        pipeline: Pipeline,
        supply: BatchSupply | StreamSupply,
        options: Options,
        inbox: Inbox | None = None,
        decisions: tuple[str, ...] = (),
    ) -> None:
        self.began = perf_counter()
        self.pipeline = pipeline
        self.supply = supply
        self.options = options
        self.inbox = inbox  #: what comes from outside
        self._steps: dict[str, Fingerprint] | None = None
        orders = make_orders(supply.definition, supply.source, options, pipeline)
        self.plans = orders.plans
        supply.begin(self.plans, self.steps)
        self.decisions = [*decisions, *orders.decisions, *supply.plan.decisions]
        past = [cost.wall for cost in pipeline.costs.values()]
        self.choice = supply.choose_engine(pipeline.waited, self.steps, sum(past) if past else None)
        self.workload = supply.make_workload()
        self.choice.row_s = self.workload.row_s = pipeline.row_s
        self.workload.foresee_long = self.choice.foresee_long
        self.order = OrderController(
            supply.definition,
            orders.policy,
            fixed=orders.fixed,
            unit_rows=self.workload.unit_rows,
            workers=self.choice.workers,
        )
        self.rows = self._make_feeder()
        self.policy = self.choice.launch_policy(pipeline.memory_used)

    def steps(self) -> dict[str, Fingerprint]:
        if self._steps is None:
            self._steps = step_fingerprints(self.supply.definition)
        return self._steps

    def _make_feeder(self) -> RowFeeder:
        supply, options, chunk = self.supply, self.options, self.options.chunk
        shape = (
            Fixed(chunk)
            if chunk
            else ByScheme(options.partition, self.choice.workers)
            if options.partition is not None
            else CappedUntilReordered(
                Guided(self.pipeline.costs, most_s=options.target_time, first_rows=options.first_rows),
                self.order.most_s,
                self.pipeline.costs,
            )
        )
        # What somebody asks for while the run goes on has to be here by then.
        journaled = supply.writer is not None or supply.open_ended or self.inbox is not None
        return RowFeeder(
            supply.plan.specs,
            Policies(shape=self.choice.shape(shape), order=self.order, safety=self.choice.safety(journaled=journaled)),
            RowOptions(
                on_error=options.on_error,
                row_limit=supply.row_limit,
                row_limits=supply.plan.limits,
                chunk=chunk,
                parts=True,
                family=family(len(supply.plan.specs), self.choice.workers) if not journaled else 1,
                row_s={name: cost.wall / cost.rows_in for name, cost in self.pipeline.costs.items() if cost.rows_in},
            ),
            self.plans,
        )

    def run(self) -> tuple[Result, BaseException | None]:
        """Run; return the result, and what kept it from being saved where it should be."""
        supply, workload = self.supply, self.workload
        log = EventLog.remembered() if self.options.rundir is None else None
        before_s = perf_counter() - self.began
        account = TimeAccount()
        try:
            outcome = self._loop(log, account)
        except EngineError as refused:
            if not self.choice.guessed:
                raise
            return self._again(str(refused))
        self.decisions += [*self.choice.said(), *self.rows.notes, *_about_remote(supply.source, workload.facts)]
        self._remember()
        if outcome.failure is not None:
            if (self.choice.switched or self.choice.guessed) and isinstance(outcome.failure.exception, EngineError):
                return self._again(outcome.failure.message)
            error = error_of(outcome.failure, self.options)
            supply.tell(error, lambda: self._result(outcome, workload.facts))
            raise error
        result = self._result(outcome, workload.facts)
        failure = publish(supply.definition, supply.source, workload, outcome, result, self.options.workers)
        failure = failure or supply.failure(result)
        result.seconds = perf_counter() - self.began
        result.account, result.tail_s = account.settle(result, outcome, before_s), account.tail_s
        result.predicted = predicted_times(self.rows.accounts)
        result.memory = learned_memory(self.policy, self.rows.accounts)
        result.decisions = (*result.decisions, *supply.leaves.said(), *memory_lines(result))
        limit: tuple[str, ...] = ()
        if self.options.max_rows is not None:
            limit = (f"max_rows: only the first {self.options.max_rows:,} rows of each dataset were asked for",)
        result.notes = (*limit, *result.notes, *(supply.writer.notes if supply.writer else ()))
        result.log = None if log is None else log.text
        return result, failure

    def _loop(self, log: EventLog | None, account: TimeAccount) -> RunOutcome:
        supply, choice, rows = self.supply, self.choice, self.rows
        engine = choice.engine(rows)
        scheduler = Scheduler(rows, self.policy, choice.scheduler_options(engine, open_ended=supply.open_ended))
        collector = supply.make_collector(rows, self.workload, live=self.inbox is not None)
        inbox = supply.feed(rows, self.inbox, choice.workers)
        if inbox is not None:
            inbox.rows = lambda: supply.standing().done
            inbox.answer = lambda: self._result(outcome_so_far(scheduler, rows, collector), self.workload.facts_now())
        options = self.options
        with watching(supply, progress=options.progress, name=self.pipeline.name, rundir=options.rundir) as observers:
            grace = StopGrace(scheduler, self.workload)
            watchers: list[Observer] = [*observers, grace, account]
            watchers += [watcher for watcher in (log, supply.writer) if watcher is not None]
            if not choice.isolated:
                busy = 1 if choice.kind == "inline" else choice.workers
                # One beside each worker, if there is a core.
                spare_cores.grant(min(granted_cores(os.environ) - busy, busy))
            try:
                return run_loop(scheduler, engine, self.workload, observers=watchers, collector=collector, inbox=inbox)
            finally:
                spare_cores.grant(0)
                grace.end()
                if supply.writer is not None:
                    supply.writer.end()

    def _remember(self) -> None:
        pipeline, accounts = self.pipeline, self.rows.accounts
        pipeline.guards.update(self.order.guards)
        pipeline.remember(accounts)
        if isinstance(self.policy, Allocation):
            pipeline.memory_used = self.policy.remember()
        plans = {name: account.plan for name, account in accounts.items()}
        for name, account in accounts.items():
            if account.blamed:
                self.order.fixed[name] = FELL_BACK
                pipeline.learned.pop(name, None)  # the next run must not begin with what failed
        pipeline.learned.update(self.order.found_orders(plans))
        pipeline.waited = self.choice.waited

    def _again(self, why: str) -> tuple[Result, BaseException | None]:
        """Steps or results that cannot go to another process: once more, in threads, which need not send them."""
        said = f"engine: threads after all, because {why}"
        self.supply.options = replace(self.options, engine="threads")
        return _Run(self.pipeline, self.supply, self.supply.options, self.inbox, (said,)).run()

    def _result(self, outcome: RunOutcome, facts: RunFacts) -> Result:
        result = ResultAssembly(self.supply, self.workload, facts, self.rows).assemble(
            outcome,
            _issued(self.plans, self.rows),
            decisions=tuple(self.decisions),
            guards=tuple(sorted(self.pipeline.guards)),
            engine=self.choice.kind,
            workers=self.choice.workers,
            seconds=perf_counter() - self.began,
        )
        result.ordering = summarise_orders(self.order, outcome.evidence, result)
        return result


def _issued(plans: Mapping[str, Plan], rows: RowFeeder) -> list[tuple[str, tuple[str, ...], str]]:
    accounts = rows.accounts
    return [
        (dataset, one.order, one.reason)
        for dataset, plan in plans.items()
        for one in (accounts[dataset].plans if dataset in accounts else [plan])
    ]


def _about_remote(source: Source, facts: RunFacts) -> list[str]:
    remote = [i for i in source.inputs if i.format != "arrays" and is_remote(str(i.location))]
    if not remote:
        return []
    said = f"reading: {len(remote)} of {len(source.inputs)} files are remote, so the columns a chunk will most likely "
    said += "need are asked for together, as learned from earlier chunks"
    return [f"{said}: {facts.requests:,} requests in all"]


def check_pipeline(pipeline: Pipeline, data: Any, rows: int, seed: int) -> tuple[str, ...]:
    definition = pipeline.definition(seed, recheck=True, sample_rows=rows)
    wanted = set(definition.unchecked)
    options = Options(engine="inline", workers=1, max_rows=rows, seed=seed, progress=False)
    run_pipeline(pipeline, definition, data, options)
    pipeline.mark_checked(wanted - definition.unchecked)
    return tuple(name for name in definition.written if name in wanted - definition.unchecked)


# -- ends ----------------------------------------------------------------------------------------

#: As long as a chunk of known cost takes at most: after Ctrl-C most of what is at work still counts.
PATIENCE_S = 2.0


class StopGrace:
    """When a run is to stop, chunks at work have a moment to finish; then they end before their next step."""

    def __init__(self, scheduler: Scheduler, workload: PipelineWorkload) -> None:
        self._scheduler = scheduler
        self._timer = threading.Timer(PATIENCE_S, workload.stop.set)
        self._timer.daemon = True
        self._started = False

    def __call__(self, events: Any, commands: Any, now: float) -> None:  # noqa: ARG002 - an observer's
        if self._scheduler.stopping and not self._started:
            self._started = True
            self._timer.start()

    def end(self) -> None:
        self._timer.cancel()


def error_of(failure: Failure, options: Options) -> BaseException:
    """What to raise for the failure that stopped a run; one without an exception ended its worker."""
    if failure.exception is not None:
        return failure.exception
    where = "" if failure.place in failure.message else f"{failure.place}: "
    if failure.type == OUT_OF_TIME:
        advice = '; allow more (timeout= is for one chunk), or leave out the units of such rows with on_error="skip"'
    elif failure.kind is FailureKind.EXHAUSTED:
        advice = (
            f"; allow more, or take fewer workers (memory= is for all {options.workers} together, and the interpreter and "
            'libraries alone take 60 to 150 MB in each), or leave such rows out with on_error="skip"'
        )
    elif failure.kind in (FailureKind.CRASHED, FailureKind.LOST):
        if failure.kind is FailureKind.LOST:
            failure = lost_too_often(failure)
        advice = '; look at these rows, or leave them out with on_error="skip"'
    else:
        advice = ""
    return EngineError(f"{where}{failure.message}{advice}")


# -- the run directory: what a run set out to do is written first, how it ended last ------------


#: Options that say where things go, not what the run is.
_ASIDE = ("rundir", "progress", "client", "block_rows", "first_rows", "split", "resume")


@contextmanager
def running_in(options: Options, definition: Definition, source: Source) -> Iterator[RunDirectory | None]:
    """Make the run directory, if one was asked for, for this run alone; note in it if the body fails."""
    if options.rundir is None:
        yield None
        return
    try:
        make = RunDirectory.resume if options.resume else RunDirectory.create
        directory = make(options.rundir)
    except OSError as error:
        raise _unusable(options, error) from error
    with directory:
        try:
            directory.write_manifest(_facts(options, definition, source))
        except OSError as error:
            raise _unusable(options, error) from error
        try:
            yield directory
        except BaseException as error:
            words = str(error) if isinstance(error, WindrowError) else f"{type(error).__name__}: {error}"
            with suppress(OSError):  # what failed the run is told, not that this has no room either
                directory.write_manifest({"state": "failed", "error": words, "ended": time_text()})
            raise


def _unusable(options: Options, error: OSError) -> UsageError:
    return UsageError(f"rundir= {options.rundir} cannot be written to: {error}")


def _facts(options: Options, definition: Definition, source: Source) -> dict[str, Any]:
    chosen = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in _ASIDE}
    return {
        "windrow": __version__,
        "pipeline": definition.name,
        "state": "running",
        "started": time_text(),
        "options": chosen,
        "regions": {region: dict(cuts) for region, cuts in definition.regions.items()},
        "steps": {name: step.kind for name, step in definition.steps.items()},
        "contents": {name: used for name, step in definition.steps.items() if (used := contents_used(step))},
        "datasets": {name: dict(metadata) for name, metadata in source.datasets.items()},
        "inputs": [{"dataset": item.dataset, "file": item.label} for item in source.inputs],
        "commit": commit_of(_home(definition)),
        "environment": environment(),
        "packages": installed_packages(),
    }


def _home(definition: Definition) -> Path | None:
    for step in definition.steps.values():
        code = getattr(step.function, "__code__", None)
        if code is not None and Path(code.co_filename).is_file():
            return Path(code.co_filename).parent
    return None
