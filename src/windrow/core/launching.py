"""The default launch policy: needs as they are declared, limits as the user set them, costs as they were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.policies import Again, Answer, Fail, Larger, Split
from windrow.core.records import NO_LIMITS, Needs

if TYPE_CHECKING:
    from windrow.core.policies import Tries
    from windrow.core.records import Plan, Task

#: Weight of the newest task in what is known of its category: about the last five count.
RECENT = 0.2


class LaunchPolicy:
    """Grants what tasks declare; ``limits`` are for tasks that run rows, calls may use the memory that they asked for."""

    def __init__(self, limits: Needs = NO_LIMITS) -> None:
        self.limits = limits
        self._seconds: dict[str, float] = {}  #: by category, for a size of one

    def seen(self, task: Task, wall: float) -> None:
        """Learn how long a task took; one without a size, such as a merge, tells nothing of the others."""
        category, size = task.category, task.size
        if size:
            seconds = wall / size
            known = self._seconds.get(category)
            self._seconds[category] = seconds if known is None else known + RECENT * (seconds - known)

    def predict(self, task: Task) -> float | None:
        seconds = self._seconds.get(task.category)
        return seconds * task.size if seconds is not None and task.size else None

    def exhausted(
        self, task: Task, plan: Plan, resource: str, limit: float, tries: Tries, *, divisible: bool
    ) -> Answer:
        """Say what follows when a task used too much: the order first, then the shape, then the worker, then the task.

        A worker that has grown before may be the reason, so that a task is blamed only when a worker that had run
        nothing failed on it too. A call gets twice the memory once.
        """
        if plan.moved:
            return Again("written")
        if divisible:
            return Split()
        if task.twin:
            return Fail() if tries.fresh else Again("fresh")
        if resource != "memory" or tries.exhaustions > 1:
            return Fail()
        amounts = dict(task.needs.amounts)
        known = amounts.get("memory") or limit
        if not known:
            return Fail()
        amounts["memory"] = 2 * known
        return Larger(Needs.of(amounts))
