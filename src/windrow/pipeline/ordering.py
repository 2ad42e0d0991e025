"""The order of a run's steps: what it begins with for each dataset, and how guards that are learned change it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from windrow.core.records import Plan
from windrow.errors import UnknownNameError, nearest
from windrow.order.constraints import complete, repair
from windrow.pipeline.graph import dependencies
from windrow.shape.blocks import block_rows

if TYPE_CHECKING:
    from windrow.core.records import PlanJob
    from windrow.data.base import Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.options import Options
    from windrow.pipeline.pipeline import Pipeline

__all__ = ["Repair", "check_conditions", "make_plans"]


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


class Repair:
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
