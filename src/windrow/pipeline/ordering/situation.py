"""Situations that order policies decide about: evidence of the workers put together with the steps of the analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from windrow.core.records import NO_COST
from windrow.errors import InternalError
from windrow.order.control.when import recent_cost, recent_windows
from windrow.order.model import Column, Lane, Situation, Step
from windrow.pipeline.definition.definition import dependencies
from windrow.shape.costs import fit

if TYPE_CHECKING:
    from windrow.core.records import Evidence, Plan, StepCost
    from windrow.pipeline.definition.definition import Definition


def fitting_guards(guards: Iterable[tuple[str, str]], definition: Definition) -> set[tuple[str, str]]:
    """Return the guards that fit the steps of today: a cut protects only what is written below it.

    They may be of another day: of a file, of an earlier run, of steps that were written anew since.
    """
    place = {name: number for number, name in enumerate(definition.written)}
    cuts = {name for name, step in definition.steps.items() if step.kind == "cut"}
    return {(step, cut) for step, cut in guards if step in place and cut in cuts and place[cut] < place[step]}


def constraints(definition: Definition, guards: Iterable[tuple[str, str]] = ()) -> dict[str, tuple[str, ...]]:
    """For each step, those that must run before it in every order.

    What it reads, ``after=`` and guards; for a barrier all that is written above it, and the barrier for all below; and
    for cuts the weights that are written above the first of them, as these weigh what there was before any cut.
    """
    needs = {name: dict.fromkeys(before) for name, before in dependencies(definition.steps).items()}
    written, steps = definition.written, definition.steps
    for number, name in enumerate(written):
        if steps[name].barrier:
            needs[name].update(dict.fromkeys(written[:number]))
            for later in written[number + 1 :]:
                needs[later][name] = None
    cuts = [number for number, name in enumerate(written) if steps[name].kind == "cut"]
    if cuts:
        first = [name for name in written[: cuts[0]] if steps[name].kind == "weight"]
        for number in cuts:
            needs[written[number]].update(dict.fromkeys(first))
    for step, cut in guards:
        if step in needs and cut in needs:
            needs[step][cut] = None
    return {name: tuple(before) for name, before in needs.items()}


def make_situation(
    definition: Definition,
    plan: Plan,
    evidence: Evidence,
    *,
    guards: tuple[tuple[str, str], ...],
    before: Mapping[str, StepCost],
    chunk_rows: float,
) -> Situation:
    """Put a situation together; ``before`` is what steps had cost at the last checkpoint."""
    costs = step_costs(evidence, before)
    blocks = dict(plan.blocks)
    terrain = evidence.terrain
    if terrain is None:
        raise InternalError("evidence without the lanes and columns of steps cannot decide an order")
    facts = {step.name: step for step in terrain.steps}
    probed = dict(evidence.probed)
    rate = seconds_per_byte(evidence)
    steps, columns = {}, {}
    for name in definition.written:
        kind = definition.steps[name].kind
        if name not in facts:
            steps[name] = Step(name, kind, ())
            continue
        fixed_s, row_s = affine(costs.get(name, NO_COST), probed.get(name, NO_COST))
        mine = facts[name]
        block = blocks.get(name, 0)
        read = tuple(column for column, _ in mine.columns)
        steps[name] = Step(name, kind, mine.lanes, fixed_s, row_s, block, read)
        columns.update({column: Column(column, rate * b, b) for column, b in mine.columns})
    windows = recent_windows(evidence.windows)
    sampled = sum(window.unit_rows for window in windows)
    unit_rows = sampled / len(windows) if windows else chunk_rows
    return Situation(
        written=definition.written,
        current=plan.order,
        steps=steps,
        needs=constraints(definition, guards),
        lanes=tuple(Lane(cuts) for cuts in terrain.lanes),
        windows=windows,
        columns=columns,
        chunk_rows=max(chunk_rows, 1.0),
        unit_rows=max(min(unit_rows, chunk_rows), 1.0),
        guards=guards,
    )


def step_costs(evidence: Evidence, before: Mapping[str, StepCost]) -> dict[str, StepCost]:
    """What steps cost, in the run and where rows were only looked at: few rows tell fixed costs from those per row."""
    costs = {name: recent_cost(before.get(name, NO_COST), cost) for name, cost in evidence.steps}
    for name, cost in evidence.probed:
        costs[name] = costs[name].merge(cost) if name in costs else cost
    return costs


def affine(cost: StepCost, probed: StepCost) -> tuple[float, float]:
    """Fit seconds per call and per row; a call costs no more than the calls on few rows did, whatever the noise says."""
    fixed_s, row_s = fit(cost)
    if probed.calls and cost.rows_in:
        fixed_s = min(fixed_s, probed.wall / probed.calls)
        row_s = max((cost.wall - fixed_s * cost.calls) / cost.rows_in, 0.0)
    return fixed_s, row_s


def seconds_per_byte(evidence: Evidence) -> float:
    read = sum(cost.bytes_read for _, cost in evidence.steps)
    return sum(cost.read_s for _, cost in evidence.steps) / read if read else 0.0
