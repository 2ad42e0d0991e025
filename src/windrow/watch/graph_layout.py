"""Where the nodes of a graph of tasks are drawn: a column per level, in each an order with few crossings.

A line that passes columns has a place in each of them, so that it runs between boxes and not behind them. Nodes are sorted by the mean place of their neighbours, to and fro (the barycentre rule of Sugiyama, Tagawa and Toda 1981,
DOI 10.1109/TSMC.1981.4308636).
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.watch.graph_nodes import GraphEdge, GraphNode

__all__ = ["Layout", "Place", "places_of"]

COLUMN_GAP, ROW_GAP = 56.0, 12.0
SWEEPS = 6
#: Places for lines that pass columns; of a graph with more nobody could follow a line.
MOST_PASSING = 500


class Place(NamedTuple):
    """A rectangle by its left upper corner."""

    x: float
    y: float
    width: float
    height: float


class Layout(NamedTuple):
    """Where everything is."""

    places: dict[str, Place]  #: of nodes
    passing: dict[tuple[str, str], list[Place]]  #: by ends: where a line passes columns


#: A node, or the lines from a node (its key, and 1) where they pass a column (its number).
_Key = tuple[str, int, int]


def places_of(
    nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], sizes: Mapping[str, tuple[float, float]]
) -> Layout:
    """Place every node; ``sizes`` are widths and heights by key."""
    column_of = {level: place for place, level in enumerate(sorted({one.level for one in nodes}))}
    at = {node.key: column_of[node.level] for node in nodes}
    columns: list[list[_Key]] = [[] for _ in column_of]
    for node in nodes:
        columns[at[node.key]].append((node.key, 0, 0))
    ways = _ways(edges, at)
    for passed in dict.fromkeys(key for way in ways.values() for key in way[1:-1]):
        columns[passed[2]].append(passed)
    _sort(columns, {pair for way in ways.values() for pair in pairwise(way)})
    found = _placed(columns, sizes)
    return Layout(
        {key: place for (key, passes, _), place in found.items() if not passes},
        {ends: [found[key] for key in way[1:-1]] for ends, way in ways.items()},
    )


def _ways(edges: Sequence[GraphEdge], at: Mapping[str, int]) -> dict[tuple[str, str], list[_Key]]:
    """List by its ends what each line comes past; those of one node go together as far as they go."""
    ends = dict.fromkeys((edge.source, edge.target) for edge in edges)
    passed = {one: range(at[one[0]] + 1, at[one[1]]) for one in ends}
    if len({(one[0], column) for one in ends for column in passed[one]}) > MOST_PASSING:
        passed = dict.fromkeys(ends, range(0))
    return {one: [(one[0], 0, 0), *((one[0], 1, column) for column in passed[one]), (one[1], 0, 0)] for one in ends}


def _placed(columns: list[list[_Key]], own_sizes: Mapping[str, tuple[float, float]]) -> dict[_Key, Place]:
    sizes = {key: (0.0, 0.0) if key[1] else own_sizes[key[0]] for column in columns for key in column}
    heights = [sum(sizes[key][1] for key in column) + ROW_GAP * (len(column) - 1) for column in columns]
    tallest = max(heights, default=0.0)
    found: dict[_Key, Place] = {}
    x = 0.0
    for column, height in zip(columns, heights, strict=True):
        widest = max(sizes[key][0] for key in column)
        y = (tallest - height) / 2
        for key in column:
            width, own = sizes[key]
            found[key] = Place(x, y, widest if key[1] else width, own)
            y += own + ROW_GAP
        x += widest + COLUMN_GAP
    return found


def _sort(columns: list[list[_Key]], lines: Iterable[tuple[_Key, _Key]]) -> None:
    left: dict[_Key, list[_Key]] = defaultdict(list)
    right: dict[_Key, list[_Key]] = defaultdict(list)
    for source, target in sorted(lines):
        left[target].append(source)
        right[source].append(target)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        beside = left if forward else right
        height = {key: (place + 0.5) / len(column) for column in columns for place, key in enumerate(column)}
        for column in columns if forward else reversed(columns):
            # What has no neighbour stays where it is.
            wish = {
                key: sum(height[other] for other in beside[key]) / len(beside[key]) if beside[key] else height[key]
                for key in column
            }
            column.sort(key=wish.__getitem__)
            for place, key in enumerate(column):
                height[key] = (place + 0.5) / len(column)
