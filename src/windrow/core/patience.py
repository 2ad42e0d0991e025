"""Tasks that nobody can run: how long to wait for a worker that can, and what to say then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.records import Failure, FailureKind

if TYPE_CHECKING:
    from windrow.core.nodes import Node
    from windrow.core.packing import Packing

__all__ = ["PATIENCE_S", "Patience", "too_large", "too_late"]

#: Seconds that tasks which nobody can run wait for a worker that can, with nothing else to do:
#: workers of one machine join within a few.
PATIENCE_S = 10.0


class Patience:
    """A wait that begins anew whenever somebody offers something else."""

    def __init__(self, packing: Packing) -> None:
        self.until: float | None = None
        self._version = -1
        self._packing = packing

    def over(self, now: float) -> bool:
        """Wait, or say that it was long enough."""
        if self.until is None or self._version != self._packing.version:
            self._version = self._packing.version
            self.until = now + PATIENCE_S
        return now >= self.until

    def end(self) -> None:
        """There is nothing to wait for."""
        self.until = None


def too_large(node: Node, packing: Packing) -> Failure:
    """Say what a task needs, what there is, and what to do."""
    asked = ", ".join(f"{name}={amount:g}" for name, amount in node.needs.amounts)
    most = ", ".join(f"{name}={packing.largest(name):g}" for name, _ in node.needs.amounts)
    message = (
        f"task {node.id} needs {asked}, which no worker offers together with its pools; the most "
        f"that any of them has is {most}. Ask for less, or add a worker that has it"
    )
    return Failure(FailureKind.USER, "NeedsError", message)


def too_late(node: Node, deadline: float) -> Failure:
    """Say that a task was not done in time."""
    message = f"task {node.id} was not done by its deadline, {deadline:g} s"
    return Failure(FailureKind.USER, "TimeoutError", message)
