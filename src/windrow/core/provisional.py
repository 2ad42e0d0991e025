"""What is not shown yet: it was made from outputs that a task released which may take them back.

A task that cannot be restarted takes back what it has released when it fails, and what was made from that is done again.
So its outputs, and the ends of all tasks that read them, directly or not, are the user's business only when it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.transitions import TaskState

if TYPE_CHECKING:
    from windrow.core.graph import Graph
    from windrow.core.nodes import Node

__all__ = ["Provisional"]


class Provisional:
    """Tasks that are done, and of which nobody is told before others are."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.held: dict[int, Node] = {}  #: by task: one that could take back what it was made from
        self._waiting: dict[int, dict[int, Node]] = {}  #: by that one

    def unsure(self, node: Node) -> bool:
        """Whether what a task has made may be taken back."""
        if not node.task.restartable and node.id in self._graph.open:
            return True
        return node.fragile and self._source(node) is not None

    def doubtful(self, node: Node) -> bool:
        """The same of what it has just released, also where it was taken back since."""
        if node.state in (TaskState.FAILED, TaskState.CANCELLED):
            return not node.task.restartable or (node.fragile and node.root is not None)
        return self.unsure(node)

    def hold(self, node: Node) -> bool:
        """A task has ended; say whether nobody may be told yet."""
        former = self.held.pop(node.id, None)
        if former is not None:
            self._waiting.get(former.id, {}).pop(node.id, None)
        source = self._source(node) if node.state is TaskState.DONE else None
        if source is None:
            return False
        self.held[node.id] = source
        self._waiting.setdefault(source.id, {})[node.id] = node
        return True

    def free(self, source: Node) -> list[Node]:
        """A task is done; list those that were held back because of it alone."""
        if source.id not in self._waiting:
            return []
        waiting = self._waiting.pop(source.id)
        # One that runs again is looked at when it ends.
        return [
            node
            for node in waiting.values()
            if node.id not in self._graph.open and not self.hold(node)
        ]

    def _source(self, node: Node) -> Node | None:
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
