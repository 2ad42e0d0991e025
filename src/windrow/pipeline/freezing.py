"""Orders written to a file, so that a later run repeats them: ``result.freeze("plan.json")``, ``run(order="plan.json")``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.pipeline.result import Result

__all__ = ["FrozenOrders", "freeze", "frozen_orders"]

KIND = "windrow order"


def freeze(result: Result, path: Any) -> str:
    """Write down the order each dataset ended with; return the file's name."""
    last = {dataset: list(order) for dataset, order, _ in result.order}
    content = {
        "kind": KIND,
        "windrow": __version__,
        "pipeline": result.name,
        "order": last,
        "guards": [list(guard) for guard in result.guards],
    }
    Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return str(path)


class FrozenOrders(dict[str, tuple[str, ...]]):
    """Orders by dataset as a file has them: who reads them has to know that they are of another run."""

    def __init__(self, path: str, orders: Mapping[str, tuple[str, ...]], guards: tuple[tuple[str, str], ...]) -> None:
        super().__init__(orders)
        self.path = path
        self.guards = guards  #: (step, cut that has to run before it), learned in that run


def frozen_orders(path: Any) -> FrozenOrders:
    """Read the orders of a file that ``freeze`` wrote."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"order= {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UsageError(f"order= {path} is no file that result.freeze() wrote")
    orders, guards = content.get("order"), content.get("guards", [])
    if not isinstance(orders, dict) or not orders:
        raise _unfit(path, '"order" has to map datasets to lists of step names', orders)
    for dataset, order in orders.items():
        if not _are_names(order):
            raise _unfit(path, f"the order of {dataset!r} has to be a list of step names", order)
    if not isinstance(guards, list) or not all(_are_names(g) and len(g) == 2 for g in guards):
        raise _unfit(path, '"guards" has to be a list of pairs of a step and a cut', guards)
    return FrozenOrders(
        str(path),
        {dataset: tuple(order) for dataset, order in orders.items()},
        tuple((step, cut) for step, cut in guards),
    )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _unfit(path: Any, expected: str, came: Any) -> UsageError:
    said = "nothing" if came is None else repr(came)
    return UsageError(f"order= {path}: {expected}, and there is {said}; write the file again with result.freeze()")
