"""Where the nodes of a graph of tasks are drawn: a column per level, in each an order with few crossings.

Nodes are sorted by the mean place of their neighbours, to and fro (the barycentre rule of Sugiyama, Tagawa and Toda 1981,
DOI 10.1109/TSMC.1981.4308636).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.watch.graph_nodes import GraphEdge, GraphNode

__all__ = ["Place", "places_of"]

COLUMN_GAP, ROW_GAP = 56.0, 12.0
SWEEPS = 6


class Place(NamedTuple):
    """A rectangle by its left upper corner."""

    x: float
    y: float
    width: float
    height: float


def places_of(
    nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], sizes: Mapping[str, tuple[float, float]]
) -> dict[str, Place]:
    """Place every node; ``sizes`` are widths and heights by key."""
    column_of = {level: place for place, level in enumerate(sorted({one.level for one in nodes}))}
    columns: list[list[str]] = [[] for _ in column_of]
    for node in nodes:
        columns[column_of[node.level]].append(node.key)
    _sort(columns, edges)
    heights = [
        sum(sizes[key][1] for key in column) + ROW_GAP * (len(column) - 1) for column in columns
    ]
    tallest = max(heights, default=0.0)
    found: dict[str, Place] = {}
    x = 0.0
    for column, height in zip(columns, heights, strict=True):
        widest = max(sizes[key][0] for key in column)
        y = (tallest - height) / 2
        for key in column:
            width, own = sizes[key]
            found[key] = Place(x, y, width, own)
            y += own + ROW_GAP
        x += widest + COLUMN_GAP
    return found


def _sort(columns: list[list[str]], edges: Sequence[GraphEdge]) -> None:
    left: dict[str, list[str]] = defaultdict(list)
    right: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        left[edge.target].append(edge.source)
        right[edge.source].append(edge.target)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        beside = left if forward else right
        height = {
            key: (place + 0.5) / len(column)
            for column in columns
            for place, key in enumerate(column)
        }
        for column in columns if forward else reversed(columns):
            # What has no neighbour stays where it is.
            wish = {
                key: sum(height[other] for other in beside[key]) / len(beside[key])
                if beside[key]
                else height[key]
                for key in column
            }
            column.sort(key=wish.__getitem__)
            for place, key in enumerate(column):
                height[key] = (place + 0.5) / len(column)
