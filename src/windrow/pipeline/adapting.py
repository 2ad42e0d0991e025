"""The order decision of a run: asked at checkpoints, answered by a policy, told in the end.

It knows what is asked of the analysis, and where an order must stay as it is. How good an order is and which is best is
decided by pure policies in ``windrow.order``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import thread_time
from typing import TYPE_CHECKING, Any

from windrow.core.records import NO_COST
from windrow.order.constraints import repair
from windrow.order.control.how_much import FEW, NO_SAMPLE, Sampling, how_much
from windrow.order.control.when import Checkpoints
from windrow.pipeline.graph import dependencies
from windrow.pipeline.policies import AS_ASKED, choose, load
from windrow.pipeline.situations import affine, constraints, make_situation, step_costs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.core.records import Evidence, Plan, PlanJob, StepCost
    from windrow.order.model import Decision, Situation
    from windrow.pipeline.bind import Definition

__all__ = ["FELL_BACK", "Adapting", "Learned"]

#: Why the order of a dataset is not moved any more.
FELL_BACK = "a moved order used too much memory or time, so the written order stays"

#: A run that is expected to take less than this, all workers together, is over before looking pays.
STAY_OUT_S = 2.0
#: Of what is left, the work between two checkpoints at first, and the least of it.
PERIOD, SHORTEST_S = 0.05, 0.1
#: Windows without which nothing is decided, where looking is dear: one place may be unlike all others.
LEAST_WINDOWS = 2
#: Checkpoints that are told of.
TOLD = 500
#: Of the work of a run, what thinking may take; what it takes at most by itself; and the least share of that.
THINKING, WHOLE_EFFORT_S, LEAST_EFFORT = 0.008, 0.15, 0.01
#: Where thinking may take place no more often than this, it waits until twice as much is known.
FEW_DECISIONS = 4
#: Work of a chunk while the first rows are looked at: so much, or this share of what is left.
FIRST_S, FIRST_SHARE = 0.1, 0.02
#: Windows of an earlier run that are remembered, and used until there are so many new ones.
REMEMBERED, ENOUGH = 16, 4


@dataclass(frozen=True, slots=True)
class Learned:
    """What a run found out about the order of a dataset's steps, for the next one."""

    order: tuple[str, ...]
    evidence: Evidence


@dataclass(slots=True)
class _State:
    """What is known of one dataset."""

    checkpoints: Checkpoints
    memory: Evidence | None
    looking: bool = False  #: whether windows are being taken
    thought_s: float = 0.0  #: what the last decision took
    seen: int = 0  #: windows that it was taken from
    short: bool = False  #: the run was too short to look when that was asked last
    first_s: float = FIRST_S  #: seconds of a chunk while the first windows are taken
    before: dict[str, StepCost] = field(default_factory=dict)  #: at the last checkpoint
    situation: Situation | None = None
    chosen: Decision | None = None
    story: list[dict[str, Any]] = field(default_factory=list)


class Adapting:
    """The order decision of a run, one dataset at a time."""

    def __init__(
        self,
        definition: Definition,
        policy: Any,
        *,
        fixed: Mapping[str, str],
        learned: Mapping[str, Learned],
        unit_rows: Callable[[str], float],
        workers: int,
    ) -> None:
        self.definition = definition
        self.policy = policy  #: a name or a function; None: orders change only to keep guards
        self.guards: set[tuple[str, str]] = set()
        self.fixed = dict(fixed)  #: dataset -> why its order is not moved
        self.planning_s = 0.0
        self._learned = learned
        self._unit_rows = unit_rows
        self._workers = workers
        self._states: dict[str, _State] = {}

    # -- what the scheduler asks -----------------------------------------------------------------

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        """Say whether to think again."""
        if self.policy is None or category in self.fixed:
            return False
        state = self._state(category)
        first = state.looking and state.chosen is None
        return (first and windows > 0) or state.checkpoints.due(spent_s)

    def replan(self, job: PlanJob) -> Plan:
        """Make the next plan of a dataset."""
        if job.run_s >= STAY_OUT_S:
            load(self.policy)  # once in a program, and no thinking
        began = thread_time()
        plan = self._next(job)
        self.planning_s += thread_time() - began
        return plan

    def _next(self, job: PlanJob) -> Plan:
        new = [guard for guard in job.guards if guard not in job.plan.guards]
        self.guards.update(job.guards)
        if self.policy is None or self.policy == AS_ASKED:
            # Who asks for an order may move what no policy would.
            order = repair(job.plan.order, dependencies(self.definition.steps), job.guards)
        else:
            order = repair(job.plan.order, constraints(self.definition, job.guards), ())
        reason = job.plan.reason
        if new:
            reason = "learned that " + ", ".join(f"{s!r} needs {c!r}" for s, c in new)
        plan = replace(job.plan, id=job.plan.id + 1, order=order, guards=job.guards, reason=reason)
        if self.policy is None or job.category in self.fixed:
            return plan
        if job.blamed:
            self.fixed[job.category] = FELL_BACK
            return replace(plan, order=job.plan.written or order, reason=FELL_BACK, sample=0.0)
        state = self._state(job.category)
        state.short = not state.looking and job.run_s < STAY_OUT_S
        if state.short:
            state.checkpoints.next_s = 2 * job.spent_s
            return plan
        return self._think(job, plan)

    def most_s(self, category: str) -> float | None:
        """Say how long a chunk should take at most, while the first rows are looked at: those after it gain most."""
        if self.policy is None or category in self.fixed:
            return None
        state = self._states.get(category)
        if state is None:
            return FIRST_S
        return None if state.short or state.chosen is not None else state.first_s

    # -- inside ------------------------------------------------------------------------------

    def _state(self, category: str) -> _State:
        state = self._states.get(category)
        if state is None:
            known = self._learned.get(category)
            memory = None if known is None else known.evidence
            state = self._states[category] = _State(Checkpoints(0.0), memory)
        return state

    def _think(self, job: PlanJob, plan: Plan) -> Plan:
        state = self._state(job.category)
        evidence = _with_memory(job.evidence, state.memory)
        chunk_rows = job.costs.rows_in / max(job.costs.calls, 1)
        sample = self._sample(job, evidence, chunk_rows, job.left_s)
        needed = FEW if sample.windows >= 1 else LEAST_WINDOWS  # no more will come
        allowed_s = THINKING * job.run_s - self.planning_s
        if state.chosen is not None and _too_dear(state, evidence, allowed_s):
            state.checkpoints.wait(job.spent_s)
        elif evidence.terrain is not None and len(evidence.windows) >= needed:
            state.situation = make_situation(
                self.definition,
                plan,
                evidence,
                evidence.terrain,
                guards=job.guards,
                before=state.before,
                chunk_rows=chunk_rows,
            )
            began = thread_time()
            chosen = choose(self.policy, state.situation, self._effort(allowed_s))
            state.chosen, state.thought_s = chosen, thread_time() - began
            state.seen = len(evidence.windows)
            changed = chosen.order != plan.order
            told = _told(job, chosen, len(job.evidence.windows), changed=changed)
            if len(state.story) >= TOLD:
                del state.story[-1]  # the latest is always there, and so are the first
            state.story.append(told)
            left_s = job.left_s
            if changed:
                plan = replace(plan, order=chosen.order, reason=chosen.why)
                left_s *= min(chosen.cost / chosen.current_cost, 1.0) if chosen.current_cost else 1.0
                sample = self._sample(job, evidence, chunk_rows, left_s)
            if not state.checkpoints.period_s:
                # Of a stream nobody knows how much is left.
                period = max(PERIOD * left_s, SHORTEST_S)
                state.checkpoints.period_s = period
                state.checkpoints.shortest_s = max(period / 4, SHORTEST_S)
            state.checkpoints.passed(job.spent_s, changed=changed)
            state.before = dict(job.evidence.steps)
        else:
            # Nothing to decide from yet; the next time is when the first windows are there.
            state.checkpoints.next_s = job.spent_s + max(PERIOD * job.left_s, SHORTEST_S)
            state.first_s = max(FIRST_S, FIRST_SHARE * job.left_s)
        state.looking = state.looking or sample.share > 0
        return replace(plan, sample=sample.share, sample_rows=sample.rows)

    def _effort(self, allowed_s: float) -> float:
        """Say how hard to think: half of what is left for it, the other half is for later."""
        return min(max(0.5 * allowed_s / WHOLE_EFFORT_S, LEAST_EFFORT), 1.0)

    def _sample(self, job: PlanJob, evidence: Evidence, chunk_rows: float, left_s: float) -> Sampling:
        """Say how much to look until the next time, if the rest of the run takes ``left_s``."""
        unit_rows = self._unit_rows(job.category)
        if not unit_rows or not job.costs.wall:
            return NO_SAMPLE
        state = self._state(job.category)
        costs = step_costs(evidence, {})
        terrain = evidence.terrain
        names = self.definition.written
        if terrain is not None:
            names = tuple(step.name for step in terrain.steps)
        probed = dict(evidence.probed)
        fits = {
            name: affine(costs[name], probed.get(name, NO_COST))
            for name in names
            if name in costs and costs[name].calls
        }
        row_wall = job.costs.wall / max(job.costs.rows_in, 1)
        soon = chunk_rows
        if state.chosen is None:
            soon = min(chunk_rows, state.first_s / row_wall)
        ahead = 2 * self._workers * max(soon / unit_rows, 1.0)
        fixed_s = sum(fixed for fixed, _ in fits.values())
        row_s = sum(row for _, row in fits.values())
        faster = left_s / job.left_s if job.left_s else 1.0
        taken, looked, looked_s = job.evidence.looked
        # Looking takes more than the steps by themselves, and fits of few calls may be wrong.
        dearer = looked_s / max(taken * fixed_s + looked * row_s, 1e-9)
        return how_much(
            fixed_s=max(dearer, 1.0) * fixed_s,
            row_s=max(dearer, 1.0) * row_s,
            unit_s=row_wall * unit_rows * faster,
            unit_rows=unit_rows,
            spent_s=job.spent_s,
            left_s=left_s,
            looked_s=looked_s,
            windows=len(evidence.windows),
            ahead=ahead,
            known=terrain is not None and len(fits) == len(names),
        )

    # -- afterwards ------------------------------------------------------------------------------

    def learned(self, evidence: Mapping[str, Evidence], plans: Mapping[str, Plan]) -> dict[str, Learned]:
        """Say what the next run should know."""
        return {
            dataset: Learned(
                self._found(dataset, plan), replace(evidence[dataset], windows=evidence[dataset].windows[-REMEMBERED:])
            )
            for dataset, plan in plans.items()
            if self.policy is not None and dataset not in self.fixed and evidence[dataset].windows
        }

    def _found(self, dataset: str, plan: Plan) -> tuple[str, ...]:
        """The order to begin with next time: not one that was asked for once, or that another rule chose."""
        if self.policy == "adaptive":
            return plan.order
        known = self._learned.get(dataset)
        return self.definition.written if known is None else known.order

    def story(self, dataset: str) -> tuple[list[dict[str, Any]], Situation | None, Decision | None]:
        """Give the checkpoints of a dataset, and what the last decision was taken from."""
        state = self._states.get(dataset)
        if state is None:
            return [], None, None
        return list(state.story), state.situation, state.chosen


def _with_memory(evidence: Evidence, memory: Evidence | None) -> Evidence:
    """Use what an earlier run found out until this one has found out as much."""
    if memory is None or len(evidence.windows) >= ENOUGH:
        return evidence
    known = dict(memory.probed) | dict(evidence.probed)
    measured = dict(evidence.steps)
    steps = {name: cost for name, cost in memory.steps if not measured.get(name, cost).calls}
    return replace(
        evidence,
        steps=tuple({**dict(memory.steps), **measured, **steps}.items()),
        windows=(*memory.windows, *evidence.windows),
        terrain=evidence.terrain or memory.terrain,
        probed=tuple(known.items()),
    )


def _too_dear(state: _State, evidence: Evidence, allowed_s: float) -> bool:
    """Say whether another decision takes too long; where there can be few, each must know much more than the last."""
    few = FEW_DECISIONS * state.thought_s > allowed_s and len(evidence.windows) < 2 * state.seen
    return state.thought_s > allowed_s or few


def _told(job: PlanJob, chosen: Decision, windows: int, *, changed: bool) -> dict[str, Any]:
    return {
        "spent_s": job.spent_s,
        "left_s": job.left_s,
        "windows": windows,
        "changed": changed,
        "order": list(chosen.order),
        "cost_s": chosen.cost,
        "written_s": chosen.written_cost,
        "why": chosen.why,
    }
