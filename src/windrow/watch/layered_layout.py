"""Where the boxes of a graph are drawn: in layers from left to right, with few crossings and straight lines.

The classical layered drawing (Sugiyama, Tagawa and Toda 1981, DOI 10.1109/TSMC.1981.4308636): the layer is the longest way
from the left, the order in a layer follows the mean place of the neighbours, and heights are the least-squares fit to the
neighbours' heights that keeps order and gaps. All lines that leave a box in one manner share a trunk, so that there is at
most one hidden point for a box and layer.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Between layers: room for lines to change their height.
LAYER_GAP = 70.0
#: Between what is in a layer.
GAP = 12.0
#: Sweeps to and fro; later ones hardly change anything.
SWEEPS = 8
#: How much harder a hidden point holds on to its neighbours than a box: long lines should be straight.
STRAIGHT = 4.0
#: Hidden points; in a graph with more nobody could follow a line, and lines go behind boxes.
MOST_HIDDEN = 500

Point = tuple[float, float]


class Box(NamedTuple):
    """Something to place; ``stage`` orders what is right of what, whatever the edges say."""

    key: str
    width: float
    height: float
    stage: int = 0


class Edge(NamedTuple):
    """A line from the right of one box to the left of another; edges of one source and manner share a trunk."""

    source: str
    target: str
    manner: str = ""


class Rectangle(NamedTuple):
    """Where a box is: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is."""

    boxes: Mapping[str, Rectangle]
    #: for each edge its points from box to box; none for an edge within a layer or to the left
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


#: A box (its key and "") or a hidden point of a trunk (source and manner), in one layer.
Node = tuple[str, str, int]
_Beside = defaultdict[Node, list[Node]]


def place_boxes(boxes: Sequence[Box], edges: Sequence[Edge], layers: Mapping[str, int] | None = None) -> Layout:
    """Place boxes; without ``layers``, every edge goes from left to right, and edges must form no circle."""
    layer_of = _find_layers(boxes, edges) if layers is None else layers
    columns, paths = _split_edges(boxes, edges, layer_of)
    lefts: _Beside = defaultdict(list)
    rights: _Beside = defaultdict(list)
    for left, right in dict.fromkeys(pair for path in paths for pair in pairwise(path)):
        lefts[right].append(left)
        rights[left].append(right)
    _sort_columns(columns, lefts, rights)
    sizes = {(box.key, "", layer_of[box.key]): (box.width, box.height) for box in boxes}
    middles = _find_heights(columns, sizes, lefts, rights)
    top = min((middle - sizes.get(node, (0, 0))[1] / 2 for node, middle in middles.items()), default=0.0)
    middles = {node: middle - top for node, middle in middles.items()}
    sides: list[tuple[float, float]] = []  #: left and right of every layer
    x = 0.0
    for column in columns:
        wide = max((sizes[node][0] for node in column if node in sizes), default=0.0)
        sides.append((x, x + wide))
        x += wide + LAYER_GAP
    placed = {
        node[0]: Rectangle(sides[node[2]][0], max(middles[node] - size[1] / 2, 0.0), *size)
        for node, size in sizes.items()
    }
    bottom = max([*(one.y + one.height for one in placed.values()), *middles.values()], default=0.0)
    return Layout(placed, _routes(paths, placed, middles, sides), sides[-1][1] if sides else 0.0, bottom)


def _find_layers(boxes: Sequence[Box], edges: Sequence[Edge]) -> dict[str, int]:
    """Find the longest way from the left, stage by stage; what nothing leads to moves next to its first reader."""
    stages = {box.key: box.stage for box in boxes}
    before: dict[str, list[str]] = {box.key: [] for box in boxes}
    after: dict[str, list[str]] = {box.key: [] for box in boxes}
    for edge in edges:
        before[edge.target].append(edge.source)
        after[edge.source].append(edge.target)
    layer: dict[str, int] = {}
    floor, reached = 0, min(stages.values(), default=0)
    for key in sorted(TopologicalSorter(before).static_order(), key=stages.__getitem__):
        if stages[key] > reached:
            floor, reached = max(layer.values()) + 1, stages[key]
        layer[key] = max([floor, *(layer[source] + 1 for source in before[key])])
    for key, others in after.items():
        # Read only far to the right, and made of nothing but sources, which move along.
        far = all(stages[other] >= stages[key] + 2 for other in others)
        if others and far and not any(before[source] for source in before[key]):
            layer[key] = min(layer[other] for other in others) - 1
    for key, others in after.items():
        if others and not before[key]:
            layer[key] = max(layer[key], min(layer[other] for other in others) - 1)
    return layer


def _split_edges(
    boxes: Sequence[Box], edges: Sequence[Edge], layer_of: Mapping[str, int]
) -> tuple[list[list[Node]], list[list[Node]]]:
    """Give the boxes and hidden points of every layer, and for each edge its way through them; none if it leads back."""
    columns: list[list[Node]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for box in boxes:
        columns[layer_of[box.key]].append((box.key, "", layer_of[box.key]))
    passed: list[list[Node]] = [
        [(edge.source, f"/{edge.manner}", layer) for layer in range(layer_of[edge.source] + 1, layer_of[edge.target])]
        for edge in edges
    ]
    hidden = dict.fromkeys(point for points in passed for point in points)
    if len(hidden) > MOST_HIDDEN:
        passed, hidden = [[] for _ in edges], {}
    for point in hidden:
        columns[point[2]].append(point)
    paths: list[list[Node]] = []
    for edge, points in zip(edges, passed, strict=True):
        first, last = layer_of[edge.source], layer_of[edge.target]
        paths.append([(edge.source, "", first), *points, (edge.target, "", last)] if last > first else [])
    return columns, paths


def _sort_columns(columns: list[list[Node]], lefts: _Beside, rights: _Beside) -> None:
    """Sort each layer by the mean place of its neighbours, to and fro."""
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        beside = lefts if forward else rights
        places = {node: (place + 0.5) / len(column) for column in columns for place, node in enumerate(column)}
        for column in columns if forward else reversed(columns):
            # What has no neighbour on this side stays where it is, and what has none at all comes last.
            wishes = {
                node: _mean(places, beside[node], places[node]) if lefts[node] or rights[node] else 2.0
                for node in column
            }
            column.sort(key=wishes.__getitem__)
            places.update((node, (place + 0.5) / len(column)) for place, node in enumerate(column))


def _mean(values: Mapping[Node, float], nodes: Sequence[Node], without: float) -> float:
    return sum(values[node] for node in nodes) / len(nodes) if nodes else without


def _find_heights(
    columns: list[list[Node]], sizes: Mapping[Node, Point], lefts: _Beside, rights: _Beside
) -> dict[Node, float]:
    """Find the middle of every box and point: near its neighbours, in order, with gaps."""
    middles: dict[Node, float] = {}
    for column in columns:
        top = 0.0
        for node in column:
            height = sizes.get(node, (0.0, 0.0))[1]
            middles[node] = top + height / 2
            top += height + GAP
    least = dict(middles)
    for sweep in range(SWEEPS):
        forward, both = sweep % 2 == 0, sweep >= SWEEPS - 2
        for column in columns if forward else reversed(columns):
            wanted, weights = [], []
            for node in column:
                beside = lefts[node] + rights[node] if both else lefts[node] if forward else rights[node]
                wanted.append(_mean(middles, beside, middles[node]))
                weights.append(0.3 if not beside else 1.0 if node in sizes else STRAIGHT)
            offsets = [least[node] for node in column]
            middles.update(zip(column, _fit(wanted, weights, offsets), strict=True))
    return middles


def _fit(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Give the heights nearest to ``wanted`` (weighted least squares) that are as far apart as ``offsets`` at least.

    Neighbours that would come too near move together (pooling of adjacent violators).
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, offset, weight in zip(wanted, offsets, weights, strict=True):
        pool = (value - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, heavy, members = pools.pop()
            total = heavy + pool[1]
            pool = ((mean * heavy + pool[0] * pool[1]) / total, total, members + pool[2])
        pools.append(pool)
    spread = [mean for mean, _, members in pools for _ in range(members)]
    return [value + offset for value, offset in zip(spread, offsets, strict=True)]


def _routes(
    paths: Sequence[Sequence[Node]],
    boxes: Mapping[str, Rectangle],
    middles: Mapping[Node, float],
    sides: Sequence[Point],
) -> tuple[tuple[Point, ...], ...]:
    """Give the points of every line; its end is spread over the left side of its box, in the order lines come in."""
    arriving: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, path in enumerate(paths):
        if path:
            arriving[path[-1][0]].append((middles[path[-2]], number))
    routes: list[tuple[Point, ...]] = [()] * len(paths)
    for key, lines in arriving.items():
        target = boxes[key]
        step = min(9.0, (target.height - 10) / len(lines))
        end = target.middle - step * (len(lines) - 1) / 2
        for _, number in sorted(lines):
            (source, _, layer), *hidden = paths[number][:-1]
            start = boxes[source]
            points = [(start.right, start.middle)]
            if sides[layer][1] > start.right:
                # Past the wider boxes of its layer before it changes its height.
                points.append((sides[layer][1], start.middle))
            points += [(side, middles[point]) for point in hidden for side in sides[point[2]]]
            routes[number] = (*points, (target.x, end))
            end += step
    return tuple(routes)
