"""What is not shown yet: it was made from outputs that a task released which may take them back.

A task that cannot be restarted takes back what it has released when it fails, and what was made from that is done again.
So its outputs, and the ends of all tasks that read them, directly or not, are the user's business only when it is done;
one that fails by itself on what it read is in doubt until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.records import FailureKind
from windrow.core.transitions import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.graph import Graph
    from windrow.core.nodes import Node
    from windrow.core.records import Failure

__all__ = ["Provisional"]


class Provisional:
    """Tasks that are done, and of which nobody is told before others are."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.held: dict[int, Node] = {}  #: by task: one that could take back what it was made from
        self._waiting: dict[int, dict[int, Node]] = {}  #: by that one
        self._later: dict[int, list[tuple[Callable[[Any], None], object]]] = {}  #: likewise
        self._doubts: dict[int, Failure] = {}  #: by task: how it failed on what may be taken back

    def unsure(self, node: Node) -> bool:
        """Whether what a task has made may be taken back."""
        if not node.task.restartable and node.id in self._graph.open:
            return True
        return node.fragile and self.source(node) is not None

    def doubtful(self, node: Node) -> bool:
        """The same of what it has just released, also where it was taken back since."""
        if node.state in (TaskState.FAILED, TaskState.CANCELLED):
            return not node.task.restartable or (node.fragile and node.root is not None)
        return self.unsure(node)

    def hold(self, node: Node) -> bool:
        """A task has ended; say whether nobody may be told yet."""
        self._doubts.pop(node.id, None)
        former = self.held.pop(node.id, None)
        if former is not None:
            self._waiting.get(former.id, {}).pop(node.id, None)
        source = self.source(node) if node.state is TaskState.DONE else None
        if source is None:
            return False
        self.held[node.id] = source
        self._waiting.setdefault(source.id, {})[node.id] = node
        return True

    def fail(self, node: Node, failure: Failure) -> None:
        """A task failed by itself: give it up, unless what it read may be taken back; then it would be done again."""
        if failure.kind is FailureKind.INTERNAL or not self.when_sure(node, self._decide, node):
            self._graph.end(node, TaskState.FAILED, failure)
        elif node.state is not TaskState.DOUBTED:
            node.move(TaskState.DOUBTED)
            self._doubts[node.id] = failure

    def _decide(self, node: Node) -> None:
        if node.state is TaskState.DOUBTED:
            self.fail(node, self._doubts[node.id])

    def when_sure(self, node: Node, then: Callable[[Any], None], what: object) -> bool:
        """Have something looked at again when a task is done that may take back what this one read; False if none may."""
        source = self.source(node) if node.fragile else None
        if source is None:
            return False
        self._later.setdefault(source.id, []).append((then, what))
        return True

    def free(self, source: Node) -> list[Node]:
        """A task has ended; list those that were held back because of it alone."""
        later = self._later.pop(source.id, ())
        if source.state is not TaskState.DONE:
            return []  # what it made is taken back
        for then, what in later:
            self._graph.later(then, what)
        if source.id not in self._waiting:
            return []
        waiting = self._waiting.pop(source.id)
        # One that runs again is looked at when it ends.
        return [node for node in waiting.values() if node.id not in self._graph.open and not self.hold(node)]

    def source(self, node: Node) -> Node | None:
        """Find a task that has not ended and could take back what this one was made from."""
        seen = {node.id}
        stack = [node]
        while stack:
            for output in stack.pop().reads.values():
                maker = output.maker
                if maker is None or maker.id in seen:
                    continue
                seen.add(maker.id)
                if maker.id in self._graph.open:
                    if not maker.task.restartable:
                        return maker
                else:
                    source = self.held.get(maker.id)
                    if source is None:
                        continue  # it was shown
                    if source.id in self._graph.open:
                        return source
                if maker.fragile:
                    stack.append(maker)
        return None
