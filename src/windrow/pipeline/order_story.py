"""How orders were decided, as plain data for words, reports and programs.

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
    from windrow.pipeline.adapting import Adapting
    from windrow.pipeline.result import Result

__all__ = ["order_story"]


def order_story(order: Adapting, evidence: Mapping[str, Evidence], result: Result) -> dict[str, Any]:
    """Tell how the order of each dataset came about."""
    rows: dict[str, int] = {}
    for entry in result.ledger.entries:
        if entry.state == "done":
            rows[entry.dataset] = rows.get(entry.dataset, 0) + entry.rows
    story = {}
    for dataset in result.datasets:
        checkpoints, situation, chosen = order.story(dataset)
        told: dict[str, Any] = {"checkpoints": checkpoints, "planning_s": order.planning_s}
        if dataset in order.fixed:
            told["fixed"] = order.fixed[dataset]
        if situation is not None and chosen is not None and dataset in evidence:
            mine = evidence[dataset]
            told["looked"] = dict(zip(("windows", "rows", "seconds"), mine.looked, strict=True))
            told["steps"] = _steps(situation, chosen, dict(mine.steps))
            # Where no chunk ran in another order, a difference would be the model's error.
            moved = any(
                plan.order != situation.written
                for region in result.cutflow.regions
                for plan in result.cutflow[region, dataset].parts
            )
            told["saved"] = _saved(situation, mine, rows.get(dataset, 0) if moved else 0)
        story[dataset] = told
    return story


def _steps(situation: Situation, chosen: Decision, ran: Mapping[str, StepCost]) -> list[dict[str, Any]]:
    from windrow.order.cost import expected_cost

    why = dict(zip(chosen.order, chosen.steps, strict=True)) if chosen.steps else {}
    written = {name: number for number, name in enumerate(situation.written)}
    told = []
    for number, step in enumerate(expected_cost(situation, chosen.order).steps):
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
