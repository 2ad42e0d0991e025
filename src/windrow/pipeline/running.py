"""Running a pipeline: decisions taken and said, the loop started, the result put together."""

from __future__ import annotations

import threading
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow import data as windrow_data
from windrow.core.policies import Policies
from windrow.core.records import InputSpec, Plan
from windrow.core.scheduler import Options as SchedulerOptions
from windrow.core.scheduler import Scheduler
from windrow.data.paths import is_remote
from windrow.engines.inline import InlineEngine
from windrow.engines.threads import ThreadsEngine
from windrow.errors import UnknownNameError, nearest
from windrow.order.constraints import complete, repair
from windrow.pipeline.assemble import assemble
from windrow.pipeline.graph import dependencies
from windrow.pipeline.keeping import keep
from windrow.pipeline.options import Options
from windrow.pipeline.rundirs import running_in
from windrow.pipeline.skims import publish, saving
from windrow.pipeline.workload import PipelineWorkload
from windrow.run.loop import run as run_loop
from windrow.shape.blocks import block_rows
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.watch.environment import environment
from windrow.watch.log import EventLog
from windrow.watch.progress import watching

if TYPE_CHECKING:
    from windrow.core.records import PlanJob
    from windrow.data.base import Source
    from windrow.engines.base import Engine
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.result import Result
    from windrow.run.loop import Observer

__all__ = ["Options", "check_pipeline", "run_pipeline"]

#: Inputs smaller than this in all are not worth starting threads for: a thread costs about 0.1 ms, a chunk of
#: so few bytes or rows takes a few milliseconds.
TINY_BYTES = 1_000_000
TINY_ROWS = 20_000

#: As long as a chunk of known cost takes at most: after Ctrl-C most of what is at work still counts.
PATIENCE_S = 2.0


def run_pipeline(pipeline: Pipeline, definition: Definition, data: Any, options: Options) -> Result:
    """Run a pipeline over data and return its result."""
    source = windrow_data.open(data)
    check_conditions(definition, source)
    with (
        running_in(options, definition, source) as directory,
        saving(definition, source) as complete,
    ):
        result, failure = _run(pipeline, complete, source, options)
        if directory is not None:
            result.rundir = str(directory.path)
            result.environment = environment()
            result.notes = (*result.notes, *keep(result, directory))
        if failure is not None:
            raise failure
        return result


def _run(
    pipeline: Pipeline, definition: Definition, source: Source, options: Options
) -> tuple[Result, BaseException | None]:
    """Run; return the result, and what kept it from being saved where it should be."""
    began = perf_counter()
    decisions: list[str] = []
    plans = make_plans(definition, source, options, pipeline, decisions)
    issued = [(dataset, plan.order, plan.reason) for dataset, plan in plans.items()]
    kind = choose_engine(source, options, decisions)
    workers = 1 if kind == "inline" and options.engine == "auto" else options.workers
    engine: Engine = InlineEngine(workers) if kind == "inline" else ThreadsEngine(workers)
    workload = PipelineWorkload(definition, source, options.block_rows)
    shape = Guided(pipeline.costs) if options.chunk is None else Fixed(options.chunk)
    order = _Repair(definition, issued)
    scheduler = Scheduler(
        [_input_spec(item) for item in source.inputs],
        Policies(shape=shape, order=order),
        SchedulerOptions(
            on_error="skip" if options.on_error == "skip" else "stop",
            row_limit=options.max_rows,
            chunk=options.chunk,
        ),
        plans,
    )
    log = EventLog.remembered() if options.rundir is None else None
    with watching(
        scheduler, progress=options.progress, name=pipeline.name, rundir=options.rundir
    ) as observers:
        patience = _Patience(scheduler, workload)
        watchers: list[Observer] = [*observers, patience, *([] if log is None else [log])]
        try:
            outcome = run_loop(scheduler, engine, workload, observers=watchers)
        finally:
            patience.end()
    decisions += _about_remote(source, workload)
    pipeline.guards.update(order.guards)
    pipeline.remember(scheduler.accounts)
    if outcome.failure is not None and outcome.failure.exception is not None:
        raise outcome.failure.exception
    result = assemble(
        definition=definition,
        source=source,
        workload=workload,
        scheduler=scheduler,
        outcome=outcome,
        decisions=decisions,
        issued=issued,
        guards=tuple(sorted(pipeline.guards)),
        engine=kind,
        workers=workers,
        seconds=perf_counter() - began,
    )
    failure = publish(definition, source, workload, outcome, result, options.workers)
    result.seconds = perf_counter() - began
    if options.max_rows is not None:
        limit = f"max_rows: only the first {options.max_rows:,} rows of each dataset were asked for"
        result.notes = (limit, *result.notes)
    result.log = None if log is None else log.text
    return result, failure


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


def check_conditions(definition: Definition, source: Source) -> None:
    """Look at every ``when=`` for every dataset before anything runs: a typo must not skip a weight."""
    for dataset, metadata in source.datasets.items():
        for step in definition.steps.values():
            if step.when is not None:
                step.when.holds(metadata, dataset)


def make_plans(
    definition: Definition,
    source: Source,
    options: Options,
    pipeline: Pipeline,
    decisions: list[str],
) -> dict[str, Plan]:
    """Decide the order for each dataset, and how many rows of plain arrays a step sees at once."""
    written, guards = definition.written, pipeline.guards
    blocks = tuple((name, block_rows("flat", pipeline.step_costs.get(name))) for name in written)
    order, why = written, "the written order"
    if not isinstance(options.order, str):
        needs = dependencies(definition.steps)
        order = complete(options.order, written, needs)
        order, why = repair(order, needs, guards), "as asked for with order="
    elif options.order == "adaptive":
        decisions.append(
            'order: "adaptive" keeps the written order, because reordering does not exist yet'
        )
    plans = {}
    for number, dataset in enumerate(source.datasets):
        exact = any(
            kind == "exact" and fnmatchcase(dataset, pattern)
            for pattern, kind in options.cutflow.items()
        )
        mine, reason = order, why
        if exact and order != written:
            mine, reason = written, 'the written order, because its cutflow is to be "exact"'
            decisions.append(
                f'order: dataset {dataset!r} runs in the written order, as cutflow="exact" needs it'
            )
        plans[dataset] = Plan(
            id=number,
            category=dataset,
            order=mine,
            guards=tuple(sorted(guards)),
            blocks=blocks,
            reason=reason,
        )
    for pattern in options.cutflow:
        if not any(fnmatchcase(dataset, pattern) for dataset in source.datasets):
            raise UnknownNameError(
                f"cutflow= names the dataset {pattern!r}, which is not there{nearest(pattern, source.datasets)} "
                f"(datasets: {', '.join(source.datasets)})"
            )
    return plans


def choose_engine(source: Source, options: Options, decisions: list[str]) -> str:
    """Decide where chunks run, and say why."""
    kind = options.engine
    if kind == "auto":
        if options.workers == 1:
            kind, why = "inline", "there is one worker"
        elif _is_tiny(source):
            kind, why = "inline", "the data is too small for threads to pay"
        else:
            kind, why = "threads", f"{options.workers} workers share the files of one process"
        decisions.append(f"engine: {kind}, because {why}")
    return kind


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


class _Repair:
    """The order decision of this run: an order changes only to keep a guard that was learned."""

    def __init__(
        self, definition: Definition, issued: list[tuple[str, tuple[str, ...], str]]
    ) -> None:
        self.needs = dependencies(definition.steps)
        self.issued = issued
        self.guards: set[tuple[str, str]] = set()

    def replan(self, job: PlanJob) -> Plan:
        """Make the next plan of a dataset: every step after the cuts that guard it."""
        self.guards.update(job.guards)
        order = repair(job.plan.order, self.needs, job.guards)
        reason = "learned that " + ", ".join(f"{s!r} needs {c!r}" for s, c in job.guards)
        self.issued.append((job.category, order, reason))
        return Plan(
            id=job.plan.id + 1,
            category=job.category,
            order=order,
            guards=job.guards,
            blocks=job.plan.blocks,
            reason=reason,
        )


def _input_spec(item: Any) -> InputSpec:
    return InputSpec(id=item.index, category=item.dataset, label=item.label, ranges=item.steps)


def _is_tiny(source: Source) -> bool:
    total = 0
    for item in source.inputs:
        if item.format == "arrays":
            if item.rows is None or item.rows > TINY_ROWS:
                return False
            continue
        try:
            total += Path(item.location).stat().st_size
        except (OSError, TypeError, ValueError):
            return False  # remote, or gone: nothing is known
        if total > TINY_BYTES:
            return False
    return True
