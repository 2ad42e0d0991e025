"""Orders written down: ``result.freeze("plan.json")`` for ``run(order="plan.json")``, and in a run directory for the next run.

A run directory keeps the same orders and guards in its manifest, beside what tasks took and used, with what each step is known
by: they count only for the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.core.records import StepCost
from windrow.errors import UsageError
from windrow.pipeline.ordering.situation import fitting_guards
from windrow.pipeline.resume.step_digest import fingerprint
from windrow.shape.allocation import Allocation
from windrow.store.rundir import MANIFEST

if TYPE_CHECKING:
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.results.result import Result

KIND = "windrow order"
#: The key of a manifest under which orders are kept.
KEY = "learned"


class FrozenOrders(dict[str, tuple[str, ...]]):
    """Orders by dataset as a file has them: who reads them has to know that they are of another run."""

    def __init__(self, path: str, orders: Mapping[str, tuple[str, ...]], guards: tuple[tuple[str, str], ...]) -> None:
        super().__init__(orders)
        self.path = path
        self.guards = guards  #: (step, cut that has to run before it), learned in that run


def freeze(result: Result, path: Any) -> str:
    """Write down the order each dataset ended with; return the file's name."""
    last = {dataset: order for dataset, order, _ in result.order}
    content = {"pipeline": result.name, **_as_plain(last, result.guards)}
    Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return str(path)


def frozen_orders(path: Any) -> FrozenOrders:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"order= {path} cannot be read: {error}") from error
    return _of_plain(path, content, least=1)


def learned(pipeline: Pipeline, definition: Definition) -> dict[str, Any]:
    """Give what a run directory keeps: the orders that were found best, the guards, what tasks took, and the steps they are of."""
    return {
        "steps": _known_by(definition),
        "memory": pipeline.memory_used,
        "costs": {dataset: list(cost) for dataset, cost in pipeline.costs.items()},
        **_as_plain(pipeline.learned, sorted(pipeline.guards)),
    }


def recall(pipeline: Pipeline, definition: Definition, rundir: Any) -> None:
    """Take over what an earlier run in this directory learned, unless this program knows better.

    A manifest that cannot be read is no reason not to run.
    """
    if pipeline.learned or pipeline.costs or rundir is None:
        return
    try:
        content = json.loads((Path(rundir) / MANIFEST).read_text(encoding="utf-8"))[KEY]
        if content["steps"] != _known_by(definition):
            return
        found = _of_plain(rundir, content)
        costs = {str(dataset): StepCost(*[number + 0 for number in cost]) for dataset, cost in content["costs"].items()}
        Allocation(remembered=content["memory"]).describe()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UsageError):
        return
    pipeline.memory_used, pipeline.costs = content["memory"], costs
    pipeline.learned.update(found)
    pipeline.guards.update(fitting_guards(found.guards, definition))


def _known_by(definition: Definition) -> list[list[Any]]:
    """Give what an analysis is known by: its steps as they are, in the order in which they are written."""
    steps = definition.steps.values()
    return [[step.name, fingerprint(step), step.barrier, list(step.after)] for step in steps]


def _as_plain(orders: Mapping[str, Iterable[str]], guards: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {
        "kind": KIND,
        "windrow": __version__,
        "order": {dataset: list(order) for dataset, order in orders.items()},
        "guards": [list(guard) for guard in guards],
    }


def _of_plain(path: Any, content: Any, least: int = 0) -> FrozenOrders:
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UsageError(f"order= {path} is no file that result.freeze() wrote")
    orders: Any = content.get("order")
    guards: Any = content.get("guards", [])
    with suppress(AttributeError, TypeError, ValueError):
        found = {dataset: _names(order) for dataset, order in orders.items()}
        pairs = tuple((step, cut) for step, cut in map(_names, guards))
        if len(found) >= least:
            return FrozenOrders(str(path), found, pairs)
    raise UsageError(
        f'order= {path}: "order" has to map datasets to lists of step names, and "guards" to be a list of pairs of a '
        f"step and a cut; there is {orders!r} and {guards!r}; write the file again with result.freeze()"
    )


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError
    return tuple(value)
