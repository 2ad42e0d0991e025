"""``session.graph()``: the tasks of a session as plain data, as a drawing, and as text for Graphviz and Mermaid.

Colours are chosen to be seen on white and on black. There are no style rules and no ids in the drawing, because a notebook
puts many of them into one page.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.units import format_seconds
from windrow.watch.graph_layout import places_of
from windrow.watch.graph_nodes import state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.watch.graph_layout import Layout, Place
    from windrow.watch.graph_nodes import GraphEdge, GraphNode

__all__ = ["TaskGraph"]

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
#: Sizes of letters, which are 0.6 as wide as they are high.
NAME_SIZE, LINE_SIZE, LETTER = 12.0, 10.5, 0.602
LINE_HEIGHT, MARGIN, STRIPE = 14.0, 16.0, 5.0
#: Letters of a name that are shown; names differ at their ends.
MOST_LETTERS = 34
INK, PALE_INK, LINE = "#1c2733", "#51606e", "#8b97a3"
#: Fills by name, in the order of their first call.
FILLS = (
    "#ddebfb", "#fde6d3", "#dcf2e1", "#eadff7", "#fbf0c8", "#fadfe6", "#d8f0f0", "#ece7df",
)  # fmt: skip
STATES = {"done": "#3b9457", "running": "#e69f00", "waiting": "#9aa5b0", "failed": "#c2321d", "cancelled": "#6b5b95"}
_SUFFIXES = (".svg", ".dot", ".mmd")


class TaskGraph:
    """The tasks of a session and what they need of each other, as far as it went."""

    def __init__(self, name: str, nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], tasks: int) -> None:
        self.name = name
        self.nodes = tuple(nodes)
        self.edges = tuple(edges)
        self.tasks = tasks  #: that are in it

    def __repr__(self) -> str:
        return (
            f"<graph of {self.name!r}: {self.tasks:,} tasks in {len(self.nodes):,} nodes; "
            "show it in a notebook, or save it with .save('graph.svg')>"
        )

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        # In its own size, so that the smallest text stays legible; large ones are scrolled.
        return f'<div style="overflow:auto;max-height:90vh">{self.svg()}</div>'

    def save(self, path: Any) -> Path:
        """Write it to a file: .svg (the drawing), .dot (Graphviz) or .mmd (Mermaid)."""
        target = Path(path)
        kinds = dict(zip(_SUFFIXES, (self.svg, self.dot, self.mermaid), strict=True))
        kind = kinds.get(target.suffix.lower())
        if kind is None:
            raise UsageError(
                f"a graph is saved as {', '.join(_SUFFIXES)}, got {target.name!r}; browsers and rsvg-convert make PDF or "
                "PNG of an .svg"
            )
        target.write_text(kind(), encoding="utf-8")
        return target

    def svg(self, path: Any = None) -> str:
        """Give the drawing, and write it to a file if one is named."""
        text = _svg(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def dot(self) -> str:
        """Give the graph in the language of Graphviz."""
        lines = [f"digraph {_dotted(self.name)} {{", "  rankdir=LR;", "  node [shape=box, style=filled];"]  # fmt: skip
        fills = _fills(self.nodes)
        lines += [
            f"  {_dotted(node.key)} [label={_dotted(node.label)}, fillcolor={_dotted(fills[node.name])}, "
            f"color={_dotted(STATES[state_of(node)])}];"
            for node in self.nodes
        ]
        lines += [f"  {_dotted(edge.source)} -> {_dotted(edge.target)}{_dot_look(edge)};" for edge in self.edges]
        return "\n".join([*lines, "}", ""])

    def mermaid(self) -> str:
        """Give the graph in the language of Mermaid, which Markdown pages draw."""
        short = {node.key: f"n{number}" for number, node in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        lines += [f'  {short[node.key]}["{_mermaid_text(node.label)}"]' for node in self.nodes]
        lines += [
            f"  {short[edge.source]} {'-.->' if edge.kind == 'after' else '-->'} {short[edge.target]}"
            for edge in self.edges
        ]
        for state, colour in STATES.items():
            mine = [short[node.key] for node in self.nodes if state_of(node) == state]
            if mine:
                lines.append(f"  classDef {state} stroke:{colour},stroke-width:2px")
                lines.append(f"  class {','.join(mine)} {state}")
        return "\n".join([*lines, ""])


def _dotted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _dot_look(edge: GraphEdge) -> str:
    looks = []
    if edge.kind == "after":
        looks.append("style=dashed")
    if edge.count > 1:
        looks.append(f'label="{edge.count}"')
    return f" [{', '.join(looks)}]" if looks else ""


def _mermaid_text(text: str) -> str:
    return escape(" ".join(text.split())).replace("[", "&#91;").replace("]", "&#93;")


# -- the drawing -----------------------------------------------------------------------------------


def _svg(graph: TaskGraph) -> str:
    sizes = {node.key: _size(node) for node in graph.nodes}
    layout = places_of(graph.nodes, graph.edges, sizes)
    places, fills = layout.places, _fills(graph.nodes)
    parts = [_line(edge, layout) for edge in graph.edges]
    parts += [_box(node, places[node.key], fills[node.name]) for node in graph.nodes]
    passing = [one for way in layout.passing.values() for one in way]
    bottom = max((one.y + one.height for one in (*places.values(), *passing)), default=0.0)
    right = max((one.x + one.width for one in places.values()), default=0.0)
    legend, wide = _legend(graph.nodes, bottom + 26)
    width, height = max(right, wide) + 2 * MARGIN, bottom + 2 * MARGIN + 30
    title = escape(f"{graph.tasks:,} tasks of {graph.name}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}" font-family="{FONT}" role="img">'
        f"<title>{title}</title>{''.join(parts)}{legend}</svg>"
    )


def _fills(nodes: Sequence[GraphNode]) -> dict[str, str]:
    names = dict.fromkeys(node.name for node in nodes)
    return {name: FILLS[number % len(FILLS)] for number, name in enumerate(names)}


def _second_line(node: GraphNode) -> str:
    if node.count == 1:
        state = state_of(node)
        number = f"task {node.tasks[0]}"
        return f"{number}, {format_seconds(node.seconds)}" if node.seconds else f"{number}, {state}"
    states = ", ".join(f"{count:,} {state}" for state, count in node.states.items())
    return f"{states}, {format_seconds(node.seconds)}" if node.seconds else states


def _size(node: GraphNode) -> tuple[float, float]:
    letters = max(len(_fitting(node.label)) * NAME_SIZE * 1.04, len(_second_line(node)) * LINE_SIZE)
    return letters * LETTER + 22 + STRIPE, 2 * LINE_HEIGHT + 11


def _fitting(text: str) -> str:
    text = " ".join(text.split())
    half = (MOST_LETTERS - 1) // 2
    return text if len(text) <= MOST_LETTERS else f"{text[:half]}…{text[-half:]}"


def _box(node: GraphNode, place: Place, fill: str) -> str:
    state = state_of(node)
    x, y, width, height = place
    dashed = ' stroke-dasharray="5 3"' if state in ("cancelled", "waiting") else ""
    about = f"{node.label}: {_second_line(node)}"
    return (
        f'<g class="{state}" data-key="{escape(node.key)}"><title>{escape(about)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{fill}" '
        f'stroke="{STATES[state]}" stroke-width="1.2"{dashed}/>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{STRIPE}" height="{height:.1f}" fill="{STATES[state]}"/>'
        f"{_text(x + STRIPE + 10, y + LINE_HEIGHT + 2, _fitting(node.label), NAME_SIZE, INK, bold=True)}"
        f"{_text(x + STRIPE + 10, y + 2 * LINE_HEIGHT + 2, _second_line(node), LINE_SIZE, PALE_INK)}</g>"
    )


def _text(x: float, y: float, text: str, size: float, colour: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight}>{escape(text)}</text>'


def _line(edge: GraphEdge, layout: Layout) -> str:
    source, target = layout.places[edge.source], layout.places[edge.target]
    x, y = source.x + source.width, source.y + source.height / 2
    right, below = target.x, target.y + target.height / 2
    if right <= x:  # within what was joined: there is no room for a line
        return ""
    way = f"M{x:.1f} {y:.1f}"
    for passed in layout.passing[edge.source, edge.target]:
        way += f"{_curve(x, y, passed.x, passed.y)}H{passed.x + passed.width:.1f}"
        x, y = passed.x + passed.width, passed.y
    way += _curve(x, y, right - 5, below)
    dashed = ' stroke-dasharray="2 4"' if edge.kind == "after" else ""
    width = 1.2 if edge.count == 1 else 2.0
    return (
        f'<path d="{way}" fill="none" stroke="{LINE}" stroke-width="{width}"{dashed}/>'
        f'<path d="M{right:.1f} {below:.1f}l-6 -3v6z" fill="{LINE}"/>'
    )


def _curve(x: float, y: float, right: float, below: float) -> str:
    """Go on to the right, level at both ends."""
    bend = max((right - x) / 2, 20.0)
    return f"C{x + bend:.1f} {y:.1f} {right - bend:.1f} {below:.1f} {right:.1f} {below:.1f}"


def _legend(nodes: Sequence[GraphNode], y: float) -> tuple[str, float]:
    """Say which colours stand for which states."""
    parts: list[str] = []
    x = 0.0
    for state, colour in STATES.items():
        count = sum(node.states.get(state, 0) for node in nodes)
        if count:
            text = f"{count:,} {state}"
            parts.append(f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{colour}"/>')
            parts.append(_text(x + 16, y, text, LINE_SIZE, LINE))
            x += 34 + len(text) * LINE_SIZE * LETTER
    return "".join(parts), x
