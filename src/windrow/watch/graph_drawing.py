"""Graphs as SVG text: boxes in layers from left to right, lines between them, and a legend below.

The classical layered drawing (Sugiyama, Tagawa and Toda 1981, DOI 10.1109/TSMC.1981.4308636): the layer is the longest way
from the left, and the order in a layer follows the mean place of the neighbours. All lines that leave a box in one manner
share a trunk, so that there is at most one hidden point for a box and layer.

Colours are chosen to be seen on white and on black. There are no style rules and no ids in a drawing, because a notebook
puts many of them into one page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from windrow.errors import UsageError

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
#: Sizes of names and of the lines below them; letters of these fonts are 0.6 as wide as they are high.
NAME_SIZE, LINE_SIZE, LETTER = 12.0, 10.5, 0.602
LINE_HEIGHT = 14.0
MARGIN = 16.0
INK, PALE_INK, LINE = "#1c2733", "#51606e", "#8b97a3"
#: Letters of a line of text in a box.
MOST_LETTERS = 34
#: Between layers: room for lines to change their height.
LAYER_GAP = 70.0
#: Between what is in a layer.
GAP = 12.0
#: Sweeps to and fro; later ones hardly change anything.
SWEEPS = 8
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
    middles = _find_heights(columns, sizes)
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


def _find_heights(columns: list[list[Node]], sizes: Mapping[Node, Point]) -> dict[Node, float]:
    """Find the middle of every box and point: layers are centred on each other, with even gaps."""
    middles: dict[Node, float] = {}
    for column in columns:
        heights = [sizes.get(node, (0.0, 0.0))[1] for node in column]
        top = -(sum(heights) + GAP * (len(column) - 1)) / 2
        for node, height in zip(column, heights, strict=True):
            middles[node] = top + height / 2
            top += height + GAP
    return middles


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


# -- drawing ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One box: its name, the lines written below it, what is told where the pointer rests on it, and how it looks."""

    key: str
    kind: str  #: the class of its group
    name: str
    lines: tuple[str, ...] = ()
    about: str = ""
    stage: int = 0
    fill: str = "#ffffff"
    border: str = LINE
    thick: float = 1.2
    radius: float = 0.0
    stripe: float = 0.0  #: how wide its left edge is coloured like the border
    gate: bool = False  #: its right corners are cut off: something comes out narrower than it went in
    dash: str = ""
    ink: str = PALE_INK

    @property
    def size(self) -> tuple[float, float]:
        widths = [len(_shorten(line)) * LINE_SIZE * LETTER for line in self.lines]
        widths.append(len(_shorten(self.name)) * NAME_SIZE * 1.04 * LETTER)
        return max(widths) + 24 + self.stripe, (len(self.lines) + bool(self.name)) * LINE_HEIGHT + 12

    def draw(self, box: Rectangle) -> str:
        y = box.y + LINE_HEIGHT + 3
        x = box.x + 12 + self.stripe
        texts = []
        if self.name:
            texts.append(_text(x, y, self.name, NAME_SIZE, INK, ' font-weight="600"'))
            y += LINE_HEIGHT
        texts += [_text(x, y + place * LINE_HEIGHT, line, LINE_SIZE, self.ink) for place, line in enumerate(self.lines)]
        return (
            f'<g class="{self.kind}" data-name="{escape(self.name)}" data-key="{escape(self.key)}">'
            f"<title>{escape(self.about or self.name)}</title>{self._outline(box)}{''.join(texts)}</g>"
        )

    def _outline(self, box: Rectangle) -> str:
        x, y, width, height = box
        look = f'fill="{self.fill}" stroke="{self.border}" stroke-width="{self.thick}"{_dashed(self.dash)}'
        if self.gate:
            right, bottom, tip = x + width, y + height, 7.0
            corners = (
                (x, y), (right - tip, y), (right, y + tip), (right, bottom - tip), (right - tip, bottom), (x, bottom),
            )  # fmt: skip
            return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" {look}/>'
        outline = _rectangle(x, y, width, height, f'rx="{self.radius:g}" {look}')
        return outline + (_rectangle(x, y, self.stripe, height, f'fill="{self.border}"') if self.stripe else "")


@dataclass(frozen=True, slots=True)
class Look:
    """How a line is drawn; those that fail a test end in the sign of an inverter."""

    colour: str = LINE
    width: float = 1.2
    dash: str = ""
    inverts: bool = False
    #: only its last stretch has its colour, as the trunk before belongs to others too
    shares_trunk: bool = False


#: Draws what a legend explains at a place (x, y), and says how wide that is.
Sample = tuple["Callable[[float, float], str]", float]


def draw_graph(
    title: str,
    cards: Sequence[Card],
    edges: Sequence[Edge],
    looks: Sequence[Look],
    legend: Sequence[tuple[Sample, str]] = (),
    layers: Mapping[str, int] | None = None,
) -> str:
    """Draw boxes and lines; ``looks`` are those of the edges, ``legend`` has samples and what they mean."""
    layout = place_boxes([Box(card.key, *card.size, card.stage) for card in cards], edges, layers)
    parts = _lines(layout.routes, looks)
    parts += [card.draw(layout.boxes[card.key]) for card in cards]
    x, y = 0.0, layout.height + 24
    for (sample, wide), words in legend:
        parts.append(sample(x, y - 4) + _text(x + wide + 8, y, words, LINE_SIZE, LINE))
        x += wide + 24 + len(words) * LINE_SIZE * LETTER
    width = max(layout.width, x) + 2 * MARGIN
    height = layout.height + (30 if legend else 0) + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}" font-family="{FONT}" role="img">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


class Drawn:
    """A graph that notebooks show and ``save`` writes."""

    def _texts(self) -> dict[str, Callable[[], str]]:
        """Give what writes it, by the suffix of a file."""
        raise NotImplementedError

    def _repr_svg_(self) -> str:
        return self._texts()[".svg"]()

    def _repr_html_(self) -> str:
        # In its own size, so that the smallest text stays legible.
        return f'<div style="overflow:auto;max-height:90vh">{self._repr_svg_()}</div>'

    def save(self, path: Any) -> Path:
        """Write it to a file of the kind its name says."""
        target, texts = Path(path), self._texts()
        if target.suffix.lower() not in texts:
            raise UsageError(
                f"a graph is saved as {', '.join(texts)}, got {target.name!r}; browsers, Inkscape and rsvg-convert make "
                "PDF or PNG of an .svg"
            )
        target.write_text(texts[target.suffix.lower()](), encoding="utf-8")
        return target


def line_sample(look: Look) -> Sample:
    return lambda x, y: _path(f"M{x:.1f} {y:.1f}h34", look) + _tip((x + 40, y), look), 40.0


def colour_sample(colour: str) -> Sample:
    return lambda x, y: _rectangle(x, y - 5, 10, 10, f'fill="{colour}"'), 10.0


def _lines(routes: Sequence[Sequence[Point]], looks: Sequence[Look]) -> list[str]:
    """Draw every stretch of line once, the coloured ones on top, and a tip where a line ends."""
    stretches: dict[Look, dict[str, None]] = {}
    tips: list[str] = []
    for route, look in zip(routes, looks, strict=True):
        for number, (start, end) in enumerate(pairwise(route)):
            trunk = look.shares_trunk and number < len(route) - 2
            drawn = Look(dash=look.dash) if trunk else look
            stretches.setdefault(drawn, {})[_stretch(start, end)] = None
        if route:
            tips.append(_tip(route[-1], look))
    ordered = sorted(stretches.items(), key=lambda item: item[0].colour != LINE)
    return [_path("".join(ways), look) for look, ways in ordered] + tips


def _shorten(text: str) -> str:
    """Leave out the middle of what is too long: names differ at their ends."""
    text = " ".join(text.split())
    half = (MOST_LETTERS - 1) // 2
    return text if len(text) <= MOST_LETTERS else f"{text[:half]}…{text[-half:]}"


def _text(x: float, y: float, words: str, size: float, colour: str, weight: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight}>{escape(_shorten(words))}</text>'


def _rectangle(x: float, y: float, width: float, height: float, look: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def _path(way: str, look: Look) -> str:
    return f'<path d="{way}" fill="none" stroke="{look.colour}" stroke-width="{look.width}"{_dashed(look.dash)}/>'


def _stretch(start: Point, end: Point) -> str:
    """Give the way from one point to another on its right, level at both ends."""
    (x, y), (right, below) = start, end
    if abs(below - y) < 0.5:
        return f"M{x:.1f} {y:.1f}H{right:.1f}"
    middle = (x + right) / 2
    return f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {below:.1f} {right:.1f} {below:.1f}"


def _tip(end: Point, look: Look) -> str:
    x, y = end
    if look.inverts:
        return (
            f'<circle cx="{x - 4:.1f}" cy="{y:.1f}" r="3.6" fill="#ffffff" stroke="{look.colour}" stroke-width="1.6"/>'
        )
    return f'<path d="M{x:.1f} {y:.1f}l-6 -3v6z" fill="{look.colour}"/>'
