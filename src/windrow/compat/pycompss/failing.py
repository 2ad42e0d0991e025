"""``@on_failure`` and ``on_failure=``: what becomes of a program when a task fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.notes import noting
from windrow.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.tasks.declare import OnFailure

__all__ = ["RULES", "on_failure", "rule_of"]

#: What PyCOMPSs calls it, and what Windrow does.
RULES: Mapping[str, OnFailure] = {
    "RETRY": "retry",
    "IGNORE": "ignore",
    "CANCEL_SUCCESSORS": "cancel_successors",
    "FAIL": "stop",
}


def on_failure(*, management: str = "RETRY", **defaults: Any) -> Callable[[Any], Any]:
    """Say what happens if a task fails, and what its parameters and ``returns`` are then."""
    rule_of("on_failure", management)
    return noting("on_failure", {"management": management, "defaults": defaults})


def rule_of(task: str, said: Any) -> OnFailure:
    """Understand ``on_failure=``."""
    found = RULES.get(str(said).upper())
    if found is None:
        raise UsageError(
            f"task {task!r}: on_failure is one of {', '.join(RULES)}; got {said!r}{nearest(str(said), RULES)}"
        )
    return found
