"""The order decision of a run: asked at checkpoints, answered by a policy, told in the end.

It knows what is asked of the analysis, and where an order must stay as it is. How good an order is and which is best is
decided by pure policies in ``windrow.order``. Time spent thinking is an argument of ``decide``: the same evidence after
as much thinking gives the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.core import rows
from windrow.core.records import NO_COST, Plan
from windrow.errors import UnknownNameError, UsageError, alternatives
from windrow.order.constraints import all_needs, complete, repair
from windrow.order.control.assumed import LEAST_SEEN, assumed_windows
from windrow.order.control.how_much import MOST_ROWS, NO_SAMPLE, Sampling, how_much
from windrow.order.control.when import Checkpoints
from windrow.pipeline.definition.definition import dependencies
from windrow.pipeline.ordering.order_file import FrozenOrders
from windrow.pipeline.ordering.policies import AS_ASKED, WITH_BARRIER, choose, load
from windrow.pipeline.ordering.situation import affine, constraints, fitting_guards, make_situation, step_costs
from windrow.shape.costs import block_rows

if TYPE_CHECKING:
    from windrow.core.records import PlanJob, StepCost, Window
    from windrow.data.base import Source
    from windrow.order.model import Decision, Situation
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.options import Options
    from windrow.pipeline.pipeline import Pipeline

#: A run that is expected to take less than this, all workers together, is over before looking pays: its order is decided
#: from what ran anyway, and not at all where it takes less still.
STAY_OUT_S, DECIDED_S = rows.SHORT_S, 0.5
#: Why the order of a dataset is not moved any more.
FELL_BACK = "a moved order used too much memory or time, so the written order stays"

#: Of what is left, the work between two checkpoints at first, and the least of it.
PERIOD, SHORTEST_S = 0.05, 0.1
#: Checkpoints that are told of.
TOLD = 500
#: Of the work of a run, what thinking may take; what it takes at most by itself; and the least share of that.
THINKING, WHOLE_EFFORT_S, LEAST_EFFORT = 0.008, 0.15, 0.01
#: Seconds that the least thinking takes for every pair of cuts in a region: 1.4 s with 150 of each, 23 s with 400.
PAIR_S = 4e-7
#: Where thinking may take place no more often than this, it waits until twice as much is known.
FEW_DECISIONS = 4
#: With fewer rows shown to all cuts, what passed them in the run says more.
ENOUGH_ROWS = 256
#: Work after which bulk is run in an order that is not sure to be best: so much, or this share of what is left.
PILOT_S, PILOT_SHARE = 1.0, 0.05
#: Work of a chunk while the first rows are looked at: so much, or this share of what is left.
FIRST_S, FIRST_SHARE = 0.1, 0.02


@dataclass(slots=True)
class DatasetOrder:
    """What is known of the order of one dataset."""

    checkpoints: Checkpoints = field(default_factory=lambda: Checkpoints(0.0))
    looking: bool = False  #: whether windows are being taken
    seen: int = 0  #: windows that the last decision was taken from
    settled: bool = False  #: what was decided will hold, as far as one can know
    short: bool = False  #: the run was too short to look when that was asked last
    first_s: float = FIRST_S  #: seconds of a chunk while the first windows are taken
    before: dict[str, StepCost] = field(default_factory=dict)  #: what steps had cost at the last checkpoint
    why: str = ""  #: nothing was decided
    situation: Situation | None = None  #: of the last decision
    decision: Decision | None = None
    told: list[dict[str, Any]] = field(default_factory=list)  #: the checkpoints, as plain data


class OrderController:
    """The order decision of a run, one dataset at a time."""

    def __init__(
        self,
        definition: Definition,
        policy: Any,
        *,
        fixed: Mapping[str, str],
        unit_rows: Callable[[str], float],
        workers: int,
    ) -> None:
        self.definition = definition
        self.policy = policy  #: a name or a function; None: orders change only to keep guards
        self.barrier = policy == WITH_BARRIER
        self.guards: set[tuple[str, str]] = set()
        self.fixed = dict(fixed)  #: dataset -> why its order is not moved
        self.planning_s = 0.0
        self._decided = 0
        self._unit_rows = unit_rows
        self._workers = workers
        self._datasets: dict[str, DatasetOrder] = {}
        cuts = sum(step.kind == "cut" for step in definition.steps.values())
        self._least_s = PAIR_S * cuts * cuts * max(len(definition.regions), 1)  #: that a decision takes

    def dataset(self, name: str) -> DatasetOrder:
        return self._datasets.setdefault(name, DatasetOrder())

    def found_orders(self, plans: Mapping[str, Plan]) -> dict[str, tuple[str, ...]]:
        """Give the orders the next run begins with: none that was asked for once, or that another rule chose."""
        return {
            dataset: plan.order
            for dataset, plan in plans.items()
            if self.policy == "adaptive" and dataset not in self.fixed and self.dataset(dataset).decision is not None
        }

    # -- what the scheduler asks -----------------------------------------------------------------

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        if self.policy is None or category in self.fixed:
            return False
        state = self.dataset(category)
        return (windows > 0 and state.decision is None) or state.checkpoints.due(spent_s)

    def most_s(self, category: str) -> float | None:
        """Say how long a chunk should take at most, while the first rows are looked at: those after it gain most."""
        if self.policy is None or category in self.fixed:
            return None
        state = self.dataset(category)
        return None if state.short or state.settled else state.first_s

    def replan(self, job: PlanJob) -> Plan:
        if job.run_s >= DECIDED_S:
            load(self.policy)  # once in a program, and no thinking
        began = thread_time()
        plan = self.decide(job, self.planning_s)
        self.planning_s += thread_time() - began
        return plan

    def decide(self, job: PlanJob, thought_s: float) -> Plan:
        """Make the next plan of a dataset, when thinking has taken ``thought_s`` in this run."""
        new = [guard for guard in job.guards if guard not in job.plan.guards]
        self.guards.update(job.guards)
        if self.policy is None or self.policy == AS_ASKED:
            # Who asks for an order may move what no policy would.
            order = repair(job.plan.order, dependencies(self.definition.steps), job.guards)
        else:
            order = repair(job.plan.order, constraints(self.definition, job.guards))
        reason = job.plan.reason
        if new:
            reason = "learned that " + ", ".join(f"{s!r} needs {c!r}" for s, c in new)
        plan = replace(job.plan, id=job.plan.id + 1, order=order, guards=job.guards, reason=reason)
        if self.policy is None or job.category in self.fixed:
            return plan
        if job.blamed:
            self.fixed[job.category] = FELL_BACK
            return replace(plan, order=job.plan.written or order, reason=FELL_BACK, sample=0.0)
        state = self.dataset(job.category)
        state.short = not state.looking and job.run_s < STAY_OUT_S
        if state.short and job.run_s < DECIDED_S:
            state.checkpoints.next_s = 2 * job.spent_s
            return plan
        allowed_s = THINKING * job.run_s - thought_s
        if self._least_s > max(allowed_s, WHOLE_EFFORT_S):
            state.short = True
            state.checkpoints.next_s = 2 * job.spent_s
            state.why = (
                f"with so many cuts and regions, thinking about another order would take {self._least_s:.1f} s or more, and the "
                f"run was expected to take {job.run_s:.1f} s"
            )
            return replace(plan, sample=0.0, sample_rows=0)
        return self._think(job, plan, state, allowed_s, thought_s / max(self._decided, 1))

    # -- inside ------------------------------------------------------------------------------

    def _think(self, job: PlanJob, plan: Plan, state: DatasetOrder, allowed_s: float, usual_s: float) -> Plan:
        """Decide if there is enough to decide from and ``allowed_s`` suffices, where a decision takes ``usual_s``."""
        sample = self._sample(job, state, job.left_s)
        windows, again = len(job.evidence.windows), state.decision is not None
        if (
            not (again and usual_s > allowed_s)
            and job.evidence.looked[1] < ENOUGH_ROWS
            and (assumed := self._assumed(job))
        ):
            job = replace(job, evidence=replace(job.evidence, windows=assumed))
            windows = max(1, state.seen)
        # Where there can be few decisions, each must know much more than the last.
        few = FEW_DECISIONS * usual_s > allowed_s and windows < 2 * state.seen
        if again and (usual_s > allowed_s or few):
            state.checkpoints.wait(job.spent_s)
        elif job.evidence.terrain is not None and windows:
            decision = self._ask_policy(job, plan, state, allowed_s)
            left_s = job.left_s
            changed = decision.order != plan.order
            if changed:
                plan = replace(plan, order=decision.order, reason=decision.why)
                left_s *= min(decision.cost / decision.current_cost, 1.0) if decision.current_cost else 1.0
                sample = self._sample(job, state, left_s)
            if not state.checkpoints.period_s:
                # Of a stream nobody knows how much is left.
                period = max(PERIOD * left_s, SHORTEST_S)
                state.checkpoints.period_s = period
                state.checkpoints.shortest_s = max(period / 4, SHORTEST_S)
            state.checkpoints.passed(job.spent_s, changed=changed)
            pilot_s = max(PILOT_S, PILOT_SHARE * left_s)
            state.settled = decision.sure or job.spent_s > pilot_s
            if not state.settled:
                state.checkpoints.next_s = 0.0
                state.first_s = min(max(FIRST_S, FIRST_SHARE * left_s), pilot_s)
        else:
            # Nothing to decide from yet; the next time is when the first windows are there.
            state.why = f"some cuts saw fewer than {LEAST_SEEN} rows, too few to tell what they drop"
            state.checkpoints.next_s = job.spent_s + max(PERIOD * job.left_s, SHORTEST_S)
            state.first_s = FIRST_S
        state.looking = state.looking or sample.share > 0
        return replace(plan, sample=sample.share, sample_rows=sample.rows)

    def _ask_policy(self, job: PlanJob, plan: Plan, state: DatasetOrder, allowed_s: float) -> Decision:
        state.situation = make_situation(
            self.definition, plan, job.evidence, guards=job.guards, before=state.before, chunk_rows=_chunk_rows(job)
        )
        # Half of what is left for thinking; the other half is for later.
        effort = min(max(0.5 * allowed_s / WHOLE_EFFORT_S, LEAST_EFFORT), 1.0)
        decision = state.decision = choose(self.policy, state.situation, effort)
        self._decided += 1
        state.seen = job.evidence.looked[0]
        state.before = dict(job.evidence.steps)
        if len(state.told) >= TOLD:
            del state.told[-1]  # the latest is always there, and so are the first
        state.told.append(
            {
                "spent_s": job.spent_s,
                "left_s": job.left_s,
                "windows": len(job.evidence.windows),
                "assumed": bool(job.evidence.windows) and job.evidence.windows[0].input < 0,
                "changed": decision.order != plan.order,
                "order": list(decision.order),
                "cost_s": decision.cost,
                "written_s": decision.written_cost,
                "why": decision.why,
            }
        )
        return decision

    def _assumed(self, job: PlanJob) -> tuple[Window, ...]:
        """Windows as independent cuts would have given them, where rows take long and too few were looked at."""
        evidence = job.evidence
        if evidence.terrain is None:
            return ()
        numbers = np.random.default_rng(0)  # the same every time: equal evidence gives equal orders
        seen = step_costs(evidence, {})
        return assumed_windows(evidence.terrain, evidence.ran, seen, int(_chunk_rows(job)), numbers)

    def _sample(self, job: PlanJob, state: DatasetOrder, left_s: float) -> Sampling:
        """Say how much to look until the next time, if the rest of the run takes ``left_s``."""
        unit_rows = self._unit_rows(job.category)
        if state.short or not unit_rows or not job.costs.wall:
            return NO_SAMPLE
        evidence = job.evidence
        costs = step_costs(evidence, {})
        names = self.definition.written
        if evidence.terrain is not None:
            names = tuple(step.name for step in evidence.terrain.steps)
        probed = dict(evidence.probed)
        fits = [affine(costs[name], probed.get(name, NO_COST)) for name in names if name in costs and costs[name].calls]
        fixed_s = sum(fixed for fixed, _ in fits)
        row_s = sum(row for _, row in fits)
        row_wall = job.costs.wall / max(job.costs.rows_in, 1)
        soon = _chunk_rows(job)
        if state.decision is None:
            soon = min(soon, state.first_s / row_wall)
        taken, looked, looked_s = evidence.looked
        # Looking takes more than the steps by themselves, and fits of few calls may be wrong.
        dearer = max(looked_s / max(taken * fixed_s + looked * row_s, 1e-9), 1.0)
        return how_much(
            fixed_s=dearer * fixed_s,
            row_s=dearer * row_s,
            unit_s=row_wall * unit_rows * (left_s / job.left_s if job.left_s else 1.0),
            unit_rows=unit_rows,
            spent_s=job.spent_s,
            left_s=left_s,
            looked_s=looked_s,
            windows=len(evidence.windows),
            ahead=2 * self._workers * max(soon / unit_rows, 1.0),
            known=evidence.terrain is not None and len(fits) == len(names),
        )


def _chunk_rows(job: PlanJob) -> float:
    return job.costs.rows_in / max(job.costs.calls, 1)


# -- the order a run begins with for each dataset -----------------------------------------------


@dataclass(slots=True)
class Orders:
    """What a run begins with."""

    plans: dict[str, Plan]
    policy: Any  #: what decides about orders; None: they change only to keep guards
    fixed: dict[str, str] = field(default_factory=dict)  #: dataset -> why its order stays
    decisions: list[str] = field(default_factory=list)


def check_conditions(definition: Definition, source: Source) -> None:
    """Look at every ``when=`` for every dataset before anything runs: a typo must not skip a weight."""
    for dataset, metadata in source.datasets.items():
        for step in definition.steps.values():
            if step.when is not None:
                step.when.holds(metadata, dataset)


def make_orders(definition: Definition, source: Source, options: Options, pipeline: Pipeline) -> Orders:
    """Decide the order each dataset begins with, and how many rows of plain arrays a step sees at once."""
    _check_cutflow(options.cutflow, source)
    asked, said = _asked(options.order, source)
    if isinstance(options.order, FrozenOrders):
        pipeline.guards.update(options.order.guards)
    pipeline.guards &= fitting_guards(pipeline.guards, definition)
    written, guards = definition.written, tuple(sorted(pipeline.guards))
    blocks = tuple((name, block_rows("flat", pipeline.step_costs.get(name))) for name in written)
    orders = Orders({}, _policy(options, definition), decisions=said)
    stays = _why_written(options, definition) if orders.policy not in (None, AS_ASKED) else ""
    if stays:
        orders.decisions.append(f"order: the written order, because {stays}")
    for number, dataset in enumerate(source.datasets):
        order, why = _begin(definition, dataset, asked[dataset], pipeline)
        if stays:
            order, why = written, f"the written order, because {stays}"
            orders.fixed[dataset] = stays
        if any(kind == "exact" and fnmatchcase(dataset, one) for one, kind in options.cutflow.items()):
            exact = 'its cutflow is to be "exact"'
            if order != written:
                orders.decisions.append(
                    f'order: dataset {dataset!r} runs in the written order, as cutflow="exact" needs it'
                )
            order, why = written, f"the written order, because {exact}"
            orders.fixed[dataset] = exact
        orders.plans[dataset] = Plan(
            id=number, category=dataset, order=order, guards=guards, blocks=blocks, reason=why, written=written,
            sample_rows=0 if orders.policy is None or dataset in orders.fixed else MOST_ROWS,
        )  # fmt: skip
    return orders


def _policy(options: Options, definition: Definition) -> Any:
    if options.order == "written" or not any(s.kind == "cut" for s in definition.steps.values()):
        return None
    return options.order if isinstance(options.order, str) or callable(options.order) else AS_ASKED


def _why_written(options: Options, definition: Definition) -> str:
    """Say why no order may be moved in this run; nothing if it may."""
    if options.on_error == "skip":
        return 'with on_error="skip" it is part of the answer: rows are left out where a step raises in it'
    if definition.nminus1:
        return "N-1 counts follow rows past the cuts that protect later steps"
    return ""


def _asked(order: Any, source: Source) -> tuple[dict[str, Any], list[str]]:
    """Say what is asked for each dataset, and in words what was not asked by name."""
    if not isinstance(order, dict):
        return dict.fromkeys(source.datasets, order), []
    left = [dataset for dataset in source.datasets if dataset not in order]
    named = ", ".join(map(repr, left))
    other: Any = "written"
    whose = "the written order"
    if isinstance(order, FrozenOrders):
        found = set(order.values())
        if left and len(found) > 1:
            raise UsageError(
                f"order= {order.path} has different orders for the datasets {', '.join(map(repr, order))}, and none "
                f"for {named} of this run; give order= a mapping of the datasets {', '.join(map(repr, source.datasets))}"
            )
        other, whose = next(iter(found)), f"the one order that {order.path} has"
    else:
        for dataset in order:
            if dataset not in source.datasets:
                there = alternatives("datasets", dataset, source.datasets)
                raise UnknownNameError(f"order= names the dataset {dataset!r}, which is not there{there}")
    said = [f"order: {whose} is used for {named}, not named in order="] if left else []
    return {dataset: order.get(dataset, other) for dataset in source.datasets}, said


def _begin(definition: Definition, dataset: str, asked: Any, pipeline: Pipeline) -> tuple[tuple[str, ...], str]:
    written = definition.written
    if isinstance(asked, tuple):
        needs = dependencies(definition.steps)
        order = _weights_first(complete(asked, written, needs), definition, asked, needs)
        return repair(order, needs, pipeline.guards), "as asked for with order="
    known = pipeline.learned.get(dataset)
    if asked != "written" and known is not None and sorted(known) == sorted(written):
        return repair(known, constraints(definition, pipeline.guards)), "the order that an earlier run found best"
    return written, "the written order"


def _weights_first(
    order: tuple[str, ...], definition: Definition, asked: tuple[str, ...], needs: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Put weights that are written above the first cut there, with all they need, unless the user has placed these."""
    cuts = {cut for region in definition.regions.values() for cut in region}

    def first_cut(steps: tuple[str, ...]) -> int:
        return next((place for place, name in enumerate(steps) if name in cuts), len(steps))

    start = first_cut(order)
    above, below = order[:start], order[start:]
    placed = set(asked).intersection(below)
    far = all_needs(definition.written, needs)
    moved: set[str] = set()
    for name in definition.written[: first_cut(definition.written)]:
        if definition.steps[name].kind == "weight" and not far[name] & placed and name not in placed:
            moved |= {name, *far[name]}
    return (*above, *(n for n in below if n in moved), *(n for n in below if n not in moved))


def _check_cutflow(cutflow: Mapping[str, str], source: Source) -> None:
    for pattern in cutflow:
        if not any(fnmatchcase(dataset, pattern) for dataset in source.datasets):
            there = alternatives("datasets", pattern, source.datasets)
            raise UnknownNameError(f"cutflow= names the dataset {pattern!r}, which is not there{there}")
