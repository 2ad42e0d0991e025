"""Letting go of tasks that nobody can need any more, so that a session does not grow with all it ever did.

A task is needed while it has not ended or an attempt of it runs, while somebody may ask for one of its outputs, and while
one that reads from it is here, as that may have to be done again. What reads, directly or not, from a task that
cannot be restarted is not let go before the user knows that it is done: it is done again when that one is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.nodes import ENDS

if TYPE_CHECKING:
    from windrow.core.graph import Graph
    from windrow.core.nodes import Node

__all__ = ["let_go"]


def let_go(graph: Graph, candidates: list[Node]) -> None:
    """Forget those of the candidates that nobody can need, and what was kept for their sake."""
    while candidates:
        node = candidates.pop()
        if not _is_done_with(graph, node):
            continue
        del graph.nodes[node.id]
        for name in node.outputs:
            del graph.outputs[name]
        for output in node.reads.values():
            del output.consumers[node.id]
            if output.maker is not None and not output.consumers:
                candidates.append(output.maker)


def _is_done_with(graph: Graph, node: Node) -> bool:
    for output in node.outputs.values():
        if output.claimed or output.consumers:
            return False
    return (
        node.state in ENDS
        and not node.attempts
        and (node.told or not node.fragile)
        and graph.nodes.get(node.id) is node
    )
