"""Orders written to a file, so that a later run repeats them: ``result.freeze("plan.json")``, ``run(order="plan.json")``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.pipeline.result import Result

__all__ = ["freeze", "frozen_orders"]

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


def frozen_orders(path: Any) -> dict[str, tuple[str, ...]]:
    """Read the orders of a file that ``freeze`` wrote."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"order= {path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise UsageError(f"order= {path} is no file that result.freeze() wrote")
    return {dataset: tuple(order) for dataset, order in content["order"].items()}
