"""``session.graph()``: the tasks that were called so far and what they need of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.watch.graph_drawing import TaskGraph
from windrow.watch.graph_nodes import nodes_and_edges

if TYPE_CHECKING:
    from windrow.watch.graph_runs import GraphRun

__all__ = ["MOST_NODES", "graph_of"]

#: Nodes of a drawing that can be looked at; tasks alike are joined where there are more.
MOST_NODES = 200


def graph_of(run: GraphRun, most: int = MOST_NODES) -> TaskGraph:
    """Make the graph of what is known of a session."""
    if most < 1:
        raise UsageError(f"most= is a number of nodes, at least 1, got {most!r}")
    nodes, edges = nodes_and_edges(run.tasks, most)
    return TaskGraph(run.name, nodes, edges, len(run.tasks))
