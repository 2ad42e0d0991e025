"""Tasks that nobody can run: how long to wait for a worker that can, and what to say then."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Any

from windrow.core.amounts import in_words
from windrow.core.records import Failure, FailureKind
from windrow.core.transitions import TaskState
from windrow.errors import nearest

if TYPE_CHECKING:
    from windrow.core.graph import Graph
    from windrow.core.nodes import Node, Output
    from windrow.core.packing import Packing
    from windrow.core.tasks import Tasks

__all__ = ["PATIENCE_S", "Patience", "end_orphans", "orphans", "pass_time", "review", "too_large", "too_late"]

#: Seconds that tasks which nobody can run wait for a worker that can, with nothing else to do:
#: workers of one machine join within a few.
PATIENCE_S = 10.0


class Patience:
    """A wait that begins anew whenever somebody offers something else."""

    def __init__(self, packing: Packing) -> None:
        self.until: float | None = None
        self._version = -1
        self.packing = packing

    def over(self, now: float) -> bool:
        """Wait, or say that it was long enough."""
        if self.until is None or self._version != self.packing.version:
            self._version = self.packing.version
            self.until = now + PATIENCE_S
        return now >= self.until

    def end(self) -> None:
        """There is nothing to wait for."""
        self.until = None


def pass_time(tasks: Tasks, times: list[tuple[float, int, bool]]) -> None:
    """Let delayed tasks run whose time has come, and give up those that are too late; ``times`` is a heap."""
    graph = tasks.graph
    while times and times[0][0] <= tasks.now:
        _, number, late = heappop(times)
        node = graph.nodes.get(number)
        if node is None:
            continue
        if not late:
            if node.state is TaskState.DELAYED:
                graph.due(node)
        elif node.id in graph.open and not node.told:
            graph.end(node, TaskState.FAILED, too_late(node))


def review(tasks: Tasks, patience: Patience, *, idle: bool) -> None:
    """With nothing under way at all, give up what cannot run."""
    packing, graph = patience.packing, tasks.graph
    busy = not idle or tasks.attempts or tasks.places.fetching or not packing.benches
    if busy or any(node.state is TaskState.DELAYED for node in graph.open.values()):
        patience.end()
        return
    given_up: list[Any] = []
    hopeless = tasks.dispatch.impossible()
    if hopeless and patience.over(tasks.now):
        given_up = [node for node in hopeless if node.id in graph.open]
        for node in given_up:
            if node.id in graph.open:  # it may have ended with another
                graph.end(node, TaskState.FAILED, too_large(node, packing))
    if not tasks.dispatch.ready:
        patience.end()
        if tasks.closed:
            given_up += end_orphans(graph)
    if given_up:
        tasks.dispatch.place_rest(tasks.now)  # what came after them can run now
        if not tasks.attempts and tasks.dispatch.impossible():
            patience.over(tasks.now)  # or cannot either


def orphans(graph: Graph) -> list[Output]:
    """List what tasks wait for and no task makes."""
    return [one for one in graph.outputs.values() if one.maker is None and one.readers]


def end_orphans(graph: Graph) -> list[Failure]:
    """Nothing more will be submitted: give up what waits for outputs that nobody makes."""
    failures = []
    made = [one.name for one in graph.outputs.values() if one.maker is not None]
    for output in orphans(graph):
        for reader in list(output.readers.values()):
            if reader.id not in output.readers:
                continue  # it ended with another
            message = (
                f"task {reader.id} reads {output.name!r}, which no task makes"
                f"{nearest(output.name, made)}; submit the task that makes it, or correct the name"
            )
            failures.append(Failure(FailureKind.USER, "UsageError", message))
            graph.end(reader, TaskState.FAILED, failures[-1])
    return failures


def too_large(node: Node, packing: Packing) -> Failure:
    """Say what a task needs, what there is, and what to do."""
    needs = node.needs.amounts
    asked = ", ".join(f"{name}={in_words(name, amount)}" for name, amount in needs)
    most = ", ".join(f"{name}={in_words(name, packing.largest(name))}" for name, _ in needs)
    message = (
        f"task {node.task.category!r} ({node.id}) needs {asked}, which no worker offers together with its pools; the most "
        f"that any of them has is {most}. Ask for less, or add a worker that has it"
    )
    return Failure(FailureKind.USER, "NeedsError", message)


def too_late(node: Node) -> Failure:
    """Say that a task was not done in time; how long it had is known to whoever set the clock."""
    message = f"task {node.task.category!r} ({node.id}) was not done by its deadline"
    return Failure(FailureKind.USER, "TimeoutError", message)
