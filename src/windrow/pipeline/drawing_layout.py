"""Placing boxes in layers from left to right: few crossings, short and straight lines.

The classical layered drawing (Sugiyama, Tagawa and Toda 1981, DOI 10.1109/TSMC.1981.4308636) with two
simplifications. All lines that leave a box in one manner share a trunk, so that there is at most one hidden point for a
box and layer. Heights in a layer are the least-squares fit to the neighbours' heights that keeps the order and the gaps,
found by pooling adjacent violators.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Box", "Edge", "Layout", "Rectangle", "place"]

#: Between layers: room for lines to change their height.
LAYER_GAP = 70.0
#: Between boxes of a layer, and around a line that passes by.
BOX_GAP = 14.0
LINE_GAP = 7.0
#: Sweeps in which the order changes; later ones hardly do.
ORDER_SWEEPS = 10
HEIGHT_SWEEPS = 8
#: How much harder a hidden point holds on to its neighbours than a box: long lines should be straight.
STRAIGHT = 4.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """Something to place; ``stage`` orders what is right of what, whatever the edges say."""

    key: str
    width: float
    height: float
    stage: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from the right of one box to the left of another; edges of one source and manner share a trunk."""

    source: str
    target: str
    manner: str = ""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Where a box is: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x of its right side."""
        return self.x + self.width

    @property
    def middle(self) -> float:
        """The y of its centre."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is."""

    boxes: Mapping[str, Rectangle]
    #: for each edge its points in pairs: from a box or hidden point, to the next one
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


#: A box (its key and "") or a hidden point of a trunk (source and manner), in one layer.
Node = tuple[str, str, int]


@dataclass(slots=True)
class _Net:
    """Boxes and hidden points by layer, joined between neighbouring layers only."""

    layers: list[list[Node]]
    size: dict[Node, float]  #: heights
    lefts: dict[Node, list[Node]] = field(default_factory=dict)
    rights: dict[Node, list[Node]] = field(default_factory=dict)

    def join(self, left: Node, right: Node) -> None:
        if right not in self.rights.setdefault(left, []):
            self.rights[left].append(right)
            self.lefts.setdefault(right, []).append(left)


def place(boxes: Sequence[Box], edges: Sequence[Edge]) -> Layout:
    """Place boxes so that every edge goes from left to right; edges must form no circle."""
    layer_of = _layers(boxes, edges)
    net, paths = _net(boxes, edges, layer_of)
    _order(net)
    heights = _heights(net)
    by_key = {box.key: box for box in boxes}
    lefts, width = _columns(net, by_key)
    rectangles = {
        box.key: Rectangle(
            lefts[layer_of[box.key]][0],
            heights[(box.key, "", layer_of[box.key])] - box.height / 2,
            box.width,
            box.height,
        )
        for box in boxes
    }
    top = min((r.y for r in rectangles.values()), default=0.0)
    top = min([top, *heights.values()])
    rectangles = {key: Rectangle(r.x, r.y - top, r.width, r.height) for key, r in rectangles.items()}
    heights = {node: height - top for node, height in heights.items()}
    bottom = max([*(r.y + r.height for r in rectangles.values()), *heights.values()], default=0.0)
    routes = _routes(edges, paths, rectangles, heights, lefts)
    return Layout(rectangles, routes, width, bottom)


# -- which layer -----------------------------------------------------------------------------------


def _layers(boxes: Sequence[Box], edges: Sequence[Edge]) -> dict[str, int]:
    """Longest way from the left, stage by stage; what nothing leads to moves next to its first reader."""
    stages = {box.key: box.stage for box in boxes}
    before: dict[str, list[str]] = {box.key: [] for box in boxes}
    after: dict[str, list[str]] = {box.key: [] for box in boxes}
    for edge in edges:
        before[edge.target].append(edge.source)
        after[edge.source].append(edge.target)
    layer: dict[str, int] = {}
    floor = 0
    for stage in sorted(set(stages.values())):
        members = [key for key, mine in stages.items() if mine == stage]
        left = {key: sum(stages[k] == stage for k in before[key]) for key in members}
        ready = [key for key in members if not left[key]]
        while ready:
            key = ready.pop()
            layer[key] = max([floor, *(layer[k] + 1 for k in before[key])])
            for other in after[key]:
                if stages[other] == stage:
                    left[other] -= 1
                    if not left[other]:
                        ready.append(other)
        floor = max((layer[key] for key in members), default=floor - 1) + 1
    _move_right(layer, stages, before, after)
    return layer


def _move_right(
    layer: dict[str, int], stages: Mapping[str, int], before: Mapping[str, list[str]], after: Mapping[str, list[str]]
) -> None:
    """Move boxes next to what reads them, where this shortens lines and hides no order of steps."""
    for key, others in after.items():
        # Read only far to the right, and made of nothing but sources, which move along.
        far = all(stages[other] >= stages[key] + 2 for other in others)
        if others and far and not any(before[k] for k in before[key]):
            layer[key] = min(layer[other] for other in others) - 1
    for key, others in after.items():
        if others and not before[key]:
            layer[key] = max(layer[key], min(layer[other] for other in others) - 1)


def _net(boxes: Sequence[Box], edges: Sequence[Edge], layer_of: Mapping[str, int]) -> tuple[_Net, list[list[Node]]]:
    """Split long edges at the layers they pass."""
    count = max(layer_of.values(), default=-1) + 1
    net = _Net([[] for _ in range(count)], {})
    for box in boxes:
        node = (box.key, "", layer_of[box.key])
        net.layers[node[2]].append(node)
        net.size[node] = box.height
    paths: list[list[Node]] = []
    for edge in edges:
        first, last = layer_of[edge.source], layer_of[edge.target]
        path: list[Node] = [(edge.source, "", first)]
        for number in range(first + 1, last):
            hidden = (edge.source, f"/{edge.manner}", number)
            if hidden not in net.size:
                net.layers[number].append(hidden)
                net.size[hidden] = 0.0
            path.append(hidden)
        path.append((edge.target, "", last))
        for one, other in pairwise(path):
            net.join(one, other)
        paths.append(path)
    return net, paths


# -- in which order --------------------------------------------------------------------------------


def _order(net: _Net) -> None:
    """Sort each layer by the mean place of its neighbours, to and fro; keep the best order seen."""
    best = [list(layer) for layer in net.layers]
    fewest = _crossings(net)
    for sweep in range(ORDER_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = net.lefts if forward else net.rights
        numbers = range(1, len(net.layers)) if forward else range(len(net.layers) - 2, -1, -1)
        for number in numbers:
            beside = net.layers[number - 1 if forward else number + 1]
            place_of = {node: position for position, node in enumerate(beside)}
            net.layers[number] = _by_mean(net.layers[number], neighbours, place_of)
        now = _crossings(net)
        if now < fewest:
            fewest, best = now, [list(layer) for layer in net.layers]
    net.layers = best


def _by_mean(layer: list[Node], neighbours: Mapping[Node, list[Node]], place_of: Mapping[Node, int]) -> list[Node]:
    means = []
    last = -1.0
    for position, node in enumerate(layer):
        beside = [place_of[other] for other in neighbours.get(node, ())]
        # What has no neighbour stays beside the one it stood next to.
        last = sum(beside) / len(beside) if beside else last
        means.append((last, position))
    return [layer[position] for _, position in sorted(means)]


def _crossings(net: _Net) -> int:
    count = 0
    for left, right in pairwise(net.layers):
        place_of = {node: position for position, node in enumerate(right)}
        seen: list[int] = []
        for node in left:
            ends = sorted(place_of[other] for other in net.rights.get(node, ()))
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


# -- how high --------------------------------------------------------------------------------------


def _heights(net: _Net) -> dict[Node, float]:
    """Find the middle of every box and point: near its neighbours, in order, with gaps."""
    middle: dict[Node, float] = {}
    gaps = [_gaps(net, layer) for layer in net.layers]
    for layer, between in zip(net.layers, gaps, strict=True):
        position = 0.0
        for node, gap in zip(layer, [0.0, *between], strict=False):
            position += gap
            middle[node] = position
    for sweep in range(HEIGHT_SWEEPS):
        forward = sweep % 2 == 0
        order = range(len(net.layers)) if forward else range(len(net.layers) - 1, -1, -1)
        for number in order:
            layer = net.layers[number]
            wanted, weights = [], []
            for node in layer:
                beside = net.lefts.get(node, []) if forward else net.rights.get(node, [])
                if sweep >= HEIGHT_SWEEPS - 2:
                    beside = net.lefts.get(node, []) + net.rights.get(node, [])
                mean = sum(middle[other] for other in beside) / len(beside) if beside else None
                wanted.append(middle[node] if mean is None else mean)
                weights.append(0.3 if mean is None else STRAIGHT if node[1] else 1.0)
            fitted = _fit(wanted, weights, gaps[number])
            middle.update(zip(layer, fitted, strict=True))
    return middle


def _gaps(net: _Net, layer: list[Node]) -> list[float]:
    """Return the least distance between the middles of neighbours."""
    return [
        (net.size[one] + net.size[other]) / 2 + (LINE_GAP if one[1] and other[1] else BOX_GAP)
        for one, other in pairwise(layer)
    ]


def _fit(wanted: list[float], weights: list[float], gaps: list[float]) -> list[float]:
    """Return the positions nearest to ``wanted`` (weighted least squares) that are at least ``gaps`` apart."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, offset, weight in zip(wanted, offsets, weights, strict=False):
        pool = (value - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, heavy, members = pools.pop()
            total = heavy + pool[1]
            pool = ((mean * heavy + pool[0] * pool[1]) / total, total, members + pool[2])
        pools.append(pool)
    spread = [mean for mean, _, members in pools for _ in range(members)]
    return [value + offset for value, offset in zip(spread, offsets, strict=False)]


# -- lines -----------------------------------------------------------------------------------------


def _columns(net: _Net, boxes: Mapping[str, Box]) -> tuple[list[tuple[float, float]], float]:
    """Return left and right of every layer, and the whole width."""
    lefts: list[tuple[float, float]] = []
    x = 0.0
    for layer in net.layers:
        width = max((boxes[node[0]].width for node in layer if not node[1]), default=0.0)
        lefts.append((x, x + width))
        x += width + LAYER_GAP
    return lefts, max(0.0, x - LAYER_GAP)


def _routes(
    edges: Sequence[Edge],
    paths: Sequence[Sequence[Node]],
    boxes: Mapping[str, Rectangle],
    heights: Mapping[Node, float],
    columns: Sequence[tuple[float, float]],
) -> tuple[tuple[Point, ...], ...]:
    ends = _ports(paths, boxes, heights)
    routes = []
    for number, (edge, path) in enumerate(zip(edges, paths, strict=True)):
        start, target = boxes[edge.source], boxes[edge.target]
        points: list[Point] = [(start.right, start.middle)]
        if columns[path[0][2]][1] > start.right:
            # Past the wider boxes of its layer before it changes its height.
            points.append((columns[path[0][2]][1], start.middle))
        for hidden in path[1:-1]:
            left, right = columns[hidden[2]]
            points += [(left, heights[hidden]), (right, heights[hidden])]
        points.append((target.x, ends[number]))
        routes.append(tuple(points))
    return tuple(routes)


def _ports(
    paths: Sequence[Sequence[Node]], boxes: Mapping[str, Rectangle], heights: Mapping[Node, float]
) -> dict[int, float]:
    """Spread the ends of lines over the left side of their box, in the order they come in."""
    arriving: dict[str, list[tuple[float, int]]] = {}
    for number, path in enumerate(paths):
        arriving.setdefault(path[-1][0], []).append((heights[path[-2]], number))
    ends: dict[int, float] = {}
    for key, lines in arriving.items():
        box = boxes[key]
        step = min(9.0, (box.height - 10) / len(lines))
        first = box.middle - step * (len(lines) - 1) / 2
        for position, (_, number) in enumerate(sorted(lines)):
            ends[number] = first + step * position
    return ends
