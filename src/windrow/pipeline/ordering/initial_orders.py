"""The order a run begins with for each dataset, and whether it may be moved."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from windrow.core.records import Plan
from windrow.errors import UnknownNameError, UsageError, nearest
from windrow.order.constraints import complete, repair
from windrow.pipeline.definition.definition import dependencies
from windrow.pipeline.ordering.order_file import FrozenOrders
from windrow.pipeline.ordering.policies import AS_ASKED
from windrow.pipeline.ordering.situation import constraints, fitting_guards
from windrow.shape.blocks import block_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.data.base import Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.options import Options
    from windrow.pipeline.pipeline import Pipeline


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
        if _is_exact(dataset, options.cutflow):
            exact = 'its cutflow is to be "exact"'
            if order != written:
                orders.decisions.append(
                    f'order: dataset {dataset!r} runs in the written order, as cutflow="exact" needs it'
                )
            order, why = written, f"the written order, because {exact}"
            orders.fixed[dataset] = exact
        orders.plans[dataset] = Plan(
            id=number, category=dataset, order=order, guards=guards, blocks=blocks, reason=why, written=written
        )
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
                raise UnknownNameError(
                    f"order= names the dataset {dataset!r}, which is not there{nearest(dataset, source.datasets)} "
                    f"(datasets: {', '.join(source.datasets)})"
                )
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
    moved: set[str] = set()
    for name in definition.written[: first_cut(definition.written)]:
        if definition.steps[name].kind == "weight":
            with_needs = {name}
            for step in reversed(definition.written):
                if step in with_needs:
                    with_needs.update(needs[step])
            if not with_needs & placed:
                moved |= with_needs
    return (*above, *(n for n in below if n in moved), *(n for n in below if n not in moved))


def _is_exact(dataset: str, cutflow: Mapping[str, str]) -> bool:
    return any(kind == "exact" and fnmatchcase(dataset, one) for one, kind in cutflow.items())


def _check_cutflow(cutflow: Mapping[str, str], source: Source) -> None:
    for pattern in cutflow:
        if not any(fnmatchcase(dataset, pattern) for dataset in source.datasets):
            raise UnknownNameError(
                f"cutflow= names the dataset {pattern!r}, which is not there{nearest(pattern, source.datasets)} "
                f"(datasets: {', '.join(source.datasets)})"
            )
