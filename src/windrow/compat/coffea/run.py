"""One run of a function over ranges of rows: engine, decisions, the loop, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.compat.coffea.sums import PieceCollector, add_all
from windrow.core.policies import Policies
from windrow.core.records import FailureKind
from windrow.core.rows import MOST_SINGLE, RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.errors import IncompleteError, MergeError
from windrow.pipeline.run.engine_choice import EngineChoice, choose_place, workers_of
from windrow.pipeline.run.run import error_of
from windrow.run.loop import run as run_loop
from windrow.shape.allocation.policy import Allocation
from windrow.shape.costs import are_alike, with_first
from windrow.shape.guided import Guided
from windrow.watch.progress import watching

if TYPE_CHECKING:
    from windrow.compat.coffea.workload import RangesWorkload
    from windrow.core.ledger import Ledger
    from windrow.core.policies import LaunchPolicy
    from windrow.core.records import InputSpec, StepCost
    from windrow.pipeline.definition.options import Options

#: By function: what ranges of its rows took, and the memory, in the runs of this program before; the newest, so many.
_learned: dict[Any, tuple[dict[str, StepCost], list[dict[str, Any]]]] = {}
MOST_LEARNED = 64

#: What workers import before they are made.
NEEDED = ("windrow.compat.coffea", "windrow.blocks.vectors", "numpy.ma", "vector._compute.lorentz.dot")

#: Dataset, file, first and last row, why.
LeftOut = tuple[str, str, int, int | None, str]


class Ended(NamedTuple):
    """What a run came to."""

    output: Any  #: the sum of all outputs; None if there is none
    left_out: list[LeftOut]
    notes: list[str]


def run_ranges(workload: RangesWorkload, specs: Sequence[InputSpec], options: Options, *, small: bool) -> Ended:
    """Run a function over inputs; of ``small`` ones in one worker, until they are seen to take long."""
    choice = choose_engine(options, small=small)
    costs, used = _learned.get(workload.key, ({}, []))
    guided = Guided(costs, opaque=True)
    shape = choice.shape(guided) if choice.kind == "dask" else guided
    policies = Policies(shape, safety=choice.safety(journaled=False))
    launches = choice.launch_policy(used, blocks=False)
    row_options = RowOptions(
        on_error=options.on_error, row_limit=options.max_rows, chunk=options.chunk, halves=True,
        row_s={name: cost.wall / cost.rows_in for name, cost in costs.items()},
    )  # fmt: skip
    rows = RowFeeder(specs, policies, row_options)
    engine, collector = choice.engine(rows), PieceCollector()
    # Nothing is run a second time while it still runs: a function may write files.
    scheduler = Scheduler(rows, launches, choice.scheduler_options(engine, twice=False))
    workload.limited = options.memory is not None
    try:
        with watching(rows, progress=options.progress, name=workload.name, rundir=options.rundir) as observers:
            outcome = run_loop(scheduler, engine, workload, observers=observers, collector=collector)
        if outcome.failure is not None:
            error = error_of(outcome.failure, options)
            if options.on_error == "skip" and rows.left_out >= MOST_SINGLE:
                said = f"this is no matter of single rows: it was so for {rows.left_out:,} of them"
                error.add_note(f"{said}, and {rows.ledger.done_rows + rows.ledger.held_rows:,} were done")
            if outcome.failure.kind is FailureKind.EXHAUSTED and workload.grid is not None:
                error.add_note(
                    f"cells of a grid are not cut, so grid= must be smaller than {workload.grid:,} for such rows"
                )
            raise error
        _remember(workload.key, rows, launches)
        output = add_all(collector.pieces)
    except MergeError as error:
        said = error.message.replace("output['out']", "output", 1)  # there are metrics beside it
        raise MergeError(f"{workload.name}: {said}") from error.__cause__
    if outcome.cancelled:
        now = rows.standing()
        said = f"{workload.name} was interrupted when {now.done:,} of {now.known + now.expected:,} rows were done; "
        raise IncompleteError(said + 'their output is in facts["output"] of this error', output=output)
    left_out = list_left_out(specs, outcome.ledger)
    return Ended(output, left_out, [*choice.said(), *rows.notes, *outcome.notes])


def list_left_out(specs: Iterable[InputSpec], ledger: Ledger) -> list[LeftOut]:
    """List the rows that were left out; neighbours with the same reason as one range."""
    found: list[LeftOut] = []
    for spec in specs:
        for entry in ledger.account(spec.id):
            if entry.state != "failed":
                continue
            why = entry.reason.rpartition(" [dataset ")[0] or entry.reason  # which rows is said anyway
            start, before = entry.start, (spec.category, spec.label, entry.start, why)
            if found and (*found[-1][:2], *found[-1][3:]) == before:
                start = found.pop()[2]
            found.append((spec.category, spec.label, start, entry.stop, why))
    return found


def _remember(key: Any, rows: RowFeeder, launches: LaunchPolicy) -> None:
    """Keep what was learned of a function, so that its next run need not find out."""
    costs, used = _learned.pop(key, ({}, []))
    for name, account in rows.accounts.items():
        new = with_first(account.sums(), account.cold)
        if new.rows_in:
            costs[name] = costs[name].merge(new) if are_alike(new) and name in costs else new
    _learned[key] = costs, launches.remember() if isinstance(launches, Allocation) else used
    if len(_learned) > MOST_LEARNED:
        del _learned[next(iter(_learned))]


def choose_engine(options: Options, *, small: bool) -> EngineChoice:
    kind, why, workers = options.engine, "", workers_of(options)
    if kind == "auto":
        kind, why = choose_place(options, lambda: small, others="processes")
        if not kind:
            kind, why = "processes", "processors hold the interpreter's lock"
    now = 1 if kind == "inline" else workers
    switch = bool(why) and now < workers
    return EngineChoice(
        options, kind, now, why, switch, workers if switch else 0, reads_with=NEEDED,
        split=(0, now),  # nothing is read ahead: what a function will read is not known
    )  # fmt: skip
