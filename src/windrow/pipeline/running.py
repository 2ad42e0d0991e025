"""Running a pipeline: options checked, decisions taken and said, the loop started, the result put together."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow import data as windrow_data
from windrow.core.policies import Policies
from windrow.core.records import InputSpec, Plan
from windrow.core.scheduler import Options as SchedulerOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.inline import InlineEngine
from windrow.engines.threads import ThreadsEngine
from windrow.errors import NotYetError, UnknownNameError, UsageError, nearest
from windrow.order.constraints import complete, repair
from windrow.pipeline.assemble import assemble
from windrow.pipeline.graph import dependencies
from windrow.pipeline.workload import PipelineWorkload
from windrow.run.loop import run as run_loop
from windrow.shape.blocks import block_rows
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.watch.files import write_whole
from windrow.watch.progress import watching

if TYPE_CHECKING:
    from windrow.core.records import PlanJob
    from windrow.data.base import Source
    from windrow.engines.base import Engine
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.result import Result

__all__ = ["Options", "check_pipeline", "run_pipeline"]

#: Inputs smaller than this in all are not worth starting threads for: a thread costs about 0.1 ms, a chunk of
#: so few bytes or rows takes a few milliseconds.
TINY_BYTES = 1_000_000
TINY_ROWS = 20_000

#: As long as a chunk of known cost takes at most: after Ctrl-C most of what is at work still counts.
PATIENCE_S = 2.0

ENGINES = ("auto", "inline", "threads")
LATER_ENGINES = ("processes", "dask", "simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user asked for, checked."""

    order: str | tuple[str, ...]
    chunk: int | None
    engine: str
    workers: int
    cutflow: Mapping[str, str]
    max_rows: int | None
    on_error: str
    seed: int
    rundir: Any
    progress: Any
    block_rows: int | None

    @classmethod
    def checked(
        cls,
        *,
        order: Any = "adaptive",
        chunk: Any = "auto",
        engine: Any = "auto",
        workers: Any = None,
        memory: Any = None,
        cutflow: Any = "estimated",
        nminus1: Any = False,
        max_rows: Any = None,
        on_error: Any = "stop",
        seed: Any = 0,
        rundir: Any = None,
        resume: Any = False,
        progress: Any = None,
        block_rows: Any = None,
    ) -> Options:
        """Check every option, refusing what does not exist rather than ignoring it."""
        for name, value, what in (
            ("memory", memory, "limits need monitored processes"),
            ("nminus1", nminus1, "tables with one cut left out"),
            ("resume", resume, "continuing needs the journal"),
        ):
            if value:
                raise NotYetError(f"{name}= does not exist yet ({what}); leave it out")
        if engine in LATER_ENGINES:
            raise NotYetError(
                f"engine={engine!r} does not exist yet; there are {', '.join(ENGINES)}"
            )
        _one_of("engine", engine, ENGINES)
        _one_of("on_error", on_error, ("stop", "skip"))
        if isinstance(order, str):
            _one_of("order", order, ("adaptive", "written"))
        elif isinstance(order, Sequence) and all(isinstance(name, str) for name in order):
            order = tuple(order)
        else:
            raise UsageError(
                f'order= is "adaptive", "written" or a list of step names, got {order!r}'
            )
        return cls(
            order=order,
            chunk=None if chunk == "auto" else _count("chunk", chunk, '"auto" or '),
            engine=engine,
            workers=_granted_cores() if workers is None else _count("workers", workers),
            cutflow=_cutflow(cutflow),
            max_rows=None if max_rows is None else _count("max_rows", max_rows, least=0),
            on_error=on_error,
            seed=_seed(seed),
            rundir=rundir,
            progress=progress,
            block_rows=None if block_rows is None else _count("_block_rows", block_rows),
        )


def run_pipeline(pipeline: Pipeline, definition: Definition, data: Any, options: Options) -> Result:
    """Run a pipeline over data and return its result."""
    began = perf_counter()
    source = windrow_data.open(data)
    check_conditions(definition, source)
    decisions: list[str] = []
    plans = make_plans(definition, source, options, pipeline, decisions)
    issued = [(dataset, plan.order, plan.reason) for dataset, plan in plans.items()]
    kind = choose_engine(source, options, decisions)
    engine: Engine = (
        InlineEngine(options.workers) if kind == "inline" else ThreadsEngine(options.workers)
    )
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
    with watching(
        scheduler, progress=options.progress, name=pipeline.name, rundir=options.rundir
    ) as observers:
        patience = _Patience(scheduler, workload)
        try:
            outcome = run_loop(scheduler, engine, workload, observers=(*observers, patience))
        finally:
            patience.end()
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
        workers=options.workers,
        seconds=perf_counter() - began,
    )
    if options.rundir is not None:
        write_whole(Path(options.rundir) / "summary.json", result.to_json())
    return result


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


def _granted_cores() -> int:
    # What this process may use, not what the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_of(option: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = nearest(value, allowed) if isinstance(value, str) else ""
        choices = ", ".join(map(repr, allowed))
        raise UsageError(f"{option}= must be one of {choices}, got {value!r}{hint}")


def _count(option: str, value: Any, or_else: str = "", least: int = 1) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise UsageError(
            f"{option}= must be {or_else}a whole number of at least {least}, got {value!r}"
        )
    return int(value.__index__())


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"seed= must be a whole number, got {value!r}")
    return int(value.__index__())


def _cutflow(value: Any) -> Mapping[str, str]:
    kinds = ("estimated", "exact")
    if isinstance(value, str):
        value = {"*": value}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"cutflow= is one of {kinds} or a mapping of datasets to them, got {value!r}"
        )
    for kind in value.values():
        _one_of("cutflow", kind, kinds)
    return dict(value)
