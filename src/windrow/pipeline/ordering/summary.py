"""The order decisions of a run as plain data, and in words: where each step stands and why, what it cost and saved.

By dataset: ``checkpoints`` (what was known and chosen when), ``steps`` (cost, pass share, places, why), ``looked`` (rows and
seconds of sampling), ``planning_s``, and ``saved`` against the written order: what the model says about it for the rows
that were run, minus what was run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windrow.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
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
        if decision is None and known.why:
            told["why"] = known.why
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


# -- in words ----------------------------------------------------------------------------------

#: Changes of an order that are told one by one.
MOST_CHANGES = 5


def order_lines(ordering: Mapping[str, Any], issued: Sequence[tuple[str, tuple[str, ...], str]] = ()) -> list[str]:
    """Say which order each dataset had and why; ``issued`` are the orders as they came.

    Where something was decided, that is told at length, once for all datasets that came to the same order.
    """
    decided = {dataset: told for dataset, told in ordering.items() if "steps" in told}
    lines = []
    for dataset, order, why in issued:
        if dataset not in decided:
            because = ordering.get(dataset, {}).get("why")
            lines.append(f"order for {dataset}: {' '.join(order)} ({why}{f': {because}' if because else ''})")
    listed: dict[tuple[str, ...], str] = {}
    for dataset, told in decided.items():
        lines.append(f"order of {dataset}, {how_decided(told)}")
        lines += [f"  {line}" for line in _paid(told)]
        names = tuple(step["name"] for step in told["steps"])
        if names in listed:
            lines.append(f"  the same order as in {listed[names]}")
        elif is_moved(told):
            listed[names] = dataset
            lines += [f"  {line}" for line in _places(told["steps"])]
    return lines


def order_line(ordering: Mapping[str, Any]) -> str:
    """Say in one sentence what became of the order; nothing where nothing was decided."""
    decided = [told for told in ordering.values() if "steps" in told]
    moved = [told for told in decided if is_moved(told)]
    if not decided:
        return ""
    if not moved:
        taken_back = [told["fixed"] for told in decided if "fixed" in told]
        return f"Order: {(*taken_back, 'the written one, as no cheaper one was found')[0]}"
    shares = sorted(cost_share(told) for told in moved)
    low, high = (f"{100 * share:.0f}" for share in (shares[0], shares[-1]))
    cost = f"{low if low == high else f'{low} to {high}'} % of the written order's cost, by the model"
    if len(ordering) == 1:
        return f"Order: another than the written one, at {cost}"
    return f"Order: another than the written one in {len(moved)} of {len(ordering)} datasets, at {cost}"


def how_decided(told: Mapping[str, Any]) -> str:
    checkpoints = told["checkpoints"]
    changes = sum(1 for one in checkpoints if one["changed"])
    often = f"decided {_times(len(checkpoints))} and "
    often += f"changed {_times(changes)}" if changes else "never changed"
    if "fixed" in told:
        return f"{often}: {told['fixed']}"
    if not is_moved(told):
        last = checkpoints[-1]["why"].removeprefix("kept: ") if checkpoints else ""
        return f"{often}: the written one{f' ({last})' if last else ''}"
    return f"{often}: {100 * cost_share(told):.0f} % of the written order's cost, by the model"


def savings(told: Mapping[str, Any]) -> str:
    """Say what was saved against the written order, with a minus what came on top; nothing where that is what ran."""
    saved = told["saved"]
    if not any(one["changed"] for one in told["checkpoints"]) and not is_moved(told):
        return ""
    words = {
        "evaluations": f"{format_count(abs(saved['evaluations']))} evaluations",
        "seconds": f"{format_seconds(abs(saved['seconds']))} of processor time",
        "bytes": f"{format_bytes(int(abs(saved['bytes'])))} of reading",
    }
    parts = [f"{'-' if saved[name] < 0 else ''}{text}" for name, text in words.items() if saved[name]]
    return f"saved against the written order, by the model: {', '.join(parts)}" if parts else ""


def _paid(told: Mapping[str, Any]) -> Iterable[str]:
    looked = told["looked"]
    seen = f"{looked['rows']:,} rows in {looked['windows']:,} places that were shown to all cuts"
    if told["checkpoints"] and told["checkpoints"][-1].get("assumed"):
        seen = f"how many rows passed each cut in the run, as if cuts were independent, and from {seen}"
    yield (
        f"from {seen}: looking took {format_seconds(looked['seconds'])}; planning took "
        f"{format_seconds(told['planning_s'])} in the whole run"
    )
    changes = [one for one in told["checkpoints"] if one["changed"]]
    for one in changes[:MOST_CHANGES]:
        why = one["why"].removeprefix("changed: ")
        yield f"changed after {format_seconds(one['spent_s'])} of work: {why}"
    if len(changes) > MOST_CHANGES:
        yield f"and {len(changes) - MOST_CHANGES:,} changes more"
    if saved := savings(told):
        yield saved


def _places(steps: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    cuts = [step for step in steps if step["kind"] == "cut"]
    written = sorted(cuts, key=lambda step: step["written_place"])
    width = max((len(step["name"]) for step in cuts), default=0)
    digits = len(str(len(cuts)))
    waiting: list[str] = []
    number = 0
    for step in steps:
        if step["kind"] != "cut":
            waiting.append(step["name"])
            continue
        number += 1
        why = step["why"] or f"drops {100 * (1 - step['passes']):.0f} % of the rows that reach it"
        before = f"; made just before it: {', '.join(waiting)}" if waiting else ""
        yield (
            f"{number:>{digits}}. {step['name']:<{width}}  (written {written.index(step) + 1:>{digits}})  {why}{before}"
        )
        waiting = []
    if waiting:
        yield f"after the cuts: {', '.join(waiting)}"


def is_moved(told: Mapping[str, Any]) -> bool:
    """Say whether the order it ended with is another than the written one, to which one that is fixed was taken back."""
    moved = any(step["place"] != step["written_place"] for step in told["steps"])
    return moved and "fixed" not in told


def cost_share(told: Mapping[str, Any]) -> float:
    """Say what the order costs as a share of the written one, as it was last estimated."""
    last = told["checkpoints"][-1] if told["checkpoints"] else {}
    return float(last["cost_s"] / last["written_s"]) if last.get("written_s") else 1.0


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")
