"""The order decisions of a run as plain data, for words, reports and programs.

By dataset: ``checkpoints`` (what was known and chosen when), ``steps`` (cost, pass share, places, why), ``looked`` (rows and
seconds of sampling), ``planning_s``, and ``saved`` against the written order: what the model says about it for the rows
that were run, minus what was run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.core.records import Evidence, StepCost
    from windrow.order.model import Decision, Situation
    from windrow.pipeline.ordering.controller import OrderController
    from windrow.pipeline.results.result import Result


def summarise_orders(controller: OrderController, evidence: Mapping[str, Evidence], result: Result) -> dict[str, Any]:
    rows: dict[str, int] = {}
    for entry in result.ledger.entries:
        if entry.state == "done":
            rows[entry.dataset] = rows.get(entry.dataset, 0) + entry.rows
    story = {}
    for dataset in result.datasets:
        known = controller.dataset(dataset)
        situation, decision = known.situation, known.decision
        told: dict[str, Any] = {"checkpoints": list(known.told), "planning_s": controller.planning_s}
        if dataset in controller.fixed:
            told["fixed"] = controller.fixed[dataset]
        if situation is not None and decision is not None and dataset in evidence:
            mine = evidence[dataset]
            told["looked"] = dict(zip(("windows", "rows", "seconds"), mine.looked, strict=True))
            told["steps"] = _steps(situation, decision, dict(mine.steps))
            # Where no chunk ran in another order, a difference would be the model's error.
            moved = any(
                order != situation.written
                for region in result.cutflow.regions
                for order in result.cutflow[region, dataset].ran
            )
            told["saved"] = _saved(situation, mine, rows.get(dataset, 0) if moved else 0)
        story[dataset] = told
    return story


def _steps(situation: Situation, decision: Decision, ran: Mapping[str, StepCost]) -> list[dict[str, Any]]:
    from windrow.order.cost import expected_cost

    why = dict(zip(decision.order, decision.steps, strict=True)) if decision.steps else {}
    written = {name: number for number, name in enumerate(situation.written)}
    told = []
    for number, step in enumerate(expected_cost(situation, decision.order).steps):
        model = situation.steps[step.name]
        told.append(
            {
                "name": step.name,
                "kind": model.kind,
                "place": number,
                "written_place": written[step.name],
                "alive": step.alive,
                "passes": step.passes,
                "fixed_s": model.fixed_s,
                "row_s": model.row_s,
                "columns": list(model.columns),
                "rows_in": ran[step.name].rows_in if step.name in ran else 0,
                "bytes_read": ran[step.name].bytes_read if step.name in ran else 0,
                "why": why.get(step.name, ""),
            }
        )
    return told


def _saved(situation: Situation, evidence: Evidence, rows: int) -> dict[str, float]:
    """Compare what ran with what the model says the written order would have run for as many rows."""
    from windrow.order.cost import expected_cost

    ran = dict(evidence.steps) if rows else {}
    stored = any(column.bytes for column in situation.columns.values())
    evaluations = seconds = read = 0.0
    for step in expected_cost(situation, situation.written).steps:
        model = situation.steps[step.name]
        if step.name not in ran:
            continue
        fewer = step.alive * rows - ran[step.name].rows_in
        evaluations += fewer
        seconds += fewer * model.row_s
        share = rows / situation.chunk_rows
        if stored:
            read += step.column_bytes * share - ran[step.name].bytes_read
    return {"evaluations": evaluations, "seconds": seconds, "bytes": read}
