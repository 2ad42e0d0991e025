"""``analysis.graph()``: a pipeline as a drawing, columns on the left, outputs on the right, as one SVG text.

Colours are chosen to be seen on white and on black. There are no style rules and no ids in it, because a notebook
puts many drawings into one page.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.pipeline.drawing_boxes import LINE_LETTERS, Card, picture
from windrow.pipeline.drawing_layout import Box, Edge, Layout, Rectangle, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.pipeline.pipeline import Pipeline

__all__ = ["Graph", "draw"]

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
#: Sizes of names and of the lines below them; letters of these fonts are 0.6 as wide as they are high.
NAME_SIZE, LINE_SIZE = 12.0, 10.5
LETTER = 0.602
LINE_HEIGHT = 14.0
MARGIN = 16.0
INK, PALE_INK = "#1c2733", "#51606e"
LINE = "#8b97a3"

#: fill and border of each kind of box
COLOURS = {
    "file": ("#f2f4f6", "#9aa5b0"),
    "cut": ("#fde6d3", "#d26f2a"),
    "column": ("#ddebfb", "#3f79bd"),
    "weight": ("#eadff7", "#8259bf"),
    "joint": ("#f2f4f6", "#8b97a3"),
    "output": ("#dcf2e1", "#3b9457"),
    "save": ("#dcf2e1", "#3b9457"),
}
#: Borders of regions, told apart also by those who do not see all colours (Okabe and Ito 2008).
REGION_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b3a000")
DASHES = {"fails": "6 4", "after": "2 4", "learned": "2 4"}


@dataclass(frozen=True, slots=True)
class Graph:
    """A drawing of a pipeline: notebooks show it, ``save`` writes it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        # In its own size, so that the smallest text stays legible; large ones are scrolled.
        return f'<div style="overflow:auto;max-height:90vh">{self.svg}</div>'

    def save(self, path: Any) -> Path:
        """Write the drawing to an .svg file."""
        target = Path(path)
        if target.suffix.lower() != ".svg":
            raise UsageError(
                f"a graph is saved as .svg, got {target.name!r}; browsers, Inkscape and rsvg-convert make PDF or PNG of it"
            )
        target.write_text(self.svg, encoding="utf-8")
        return target

    def __repr__(self) -> str:
        return f"<Graph: {len(self.svg):,} letters of SVG; save it with .save('graph.svg')>"


def draw(pipeline: Pipeline) -> Graph:
    """Draw the steps of a pipeline, what they read and make, its regions and outputs."""
    drawn = picture(pipeline)
    boxes = [_box(card) for card in drawn.cards]
    layout = place(boxes, drawn.edges)
    regions = {card.key: card.region for card in drawn.cards if card.region is not None}
    parts = [*_lines(drawn.edges, layout, regions)]
    parts += [_drawn(card, layout.boxes[card.key]) for card in drawn.cards]
    legend, legend_width = _legend({edge.manner for edge in drawn.edges}, layout.height + 22)
    width = max(layout.width, legend_width) + 2 * MARGIN
    height = layout.height + 2 * MARGIN + (30 if legend else 0)
    title = escape(f"pipeline {pipeline.name}")
    return Graph(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}" font-family="{FONT}" role="img">'
        f"<title>{title}</title>{''.join(parts)}{''.join(legend)}</svg>"
    )


# -- boxes -----------------------------------------------------------------------------------------


def _box(card: Card) -> Box:
    """Return how large a box must be for its text."""
    widths = [len(_fitting(line)) * LINE_SIZE * LETTER for line in card.lines]
    if card.name:
        widths.append(len(_fitting(card.name)) * NAME_SIZE * 1.04 * LETTER)
    rows = len(card.lines) + bool(card.name)
    return Box(card.key, max(widths) + 24, rows * LINE_HEIGHT + 12, card.stage)


def _fitting(text: str) -> str:
    """Leave out the middle of what is too long: names differ at their ends."""
    text = " ".join(text.split())
    if len(text) <= LINE_LETTERS:
        return text
    half = (LINE_LETTERS - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _drawn(card: Card, box: Rectangle) -> str:
    parts = [
        f'<g class="{card.kind}" data-name="{escape(card.name)}" data-key="{escape(card.key)}">',
        f"<title>{escape(card.about or card.name)}</title>",
        _outline(card, box),
    ]
    y = box.y + LINE_HEIGHT + 3
    if card.name:
        parts.append(_text(box.x + 12, y, card.name, NAME_SIZE, INK, bold=True))
        y += LINE_HEIGHT
    for line in card.lines:
        parts.append(_text(box.x + 12, y, line, LINE_SIZE, INK if card.kind == "file" else PALE_INK))
        y += LINE_HEIGHT
    return "".join([*parts, "</g>"])


def _outline(card: Card, box: Rectangle) -> str:
    x, y, w, h = box.x, box.y, box.width, box.height
    if card.region is not None:
        colour = REGION_COLOURS[card.region % len(REGION_COLOURS)]
        return (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="3" fill="#ffffff" '
            f'stroke="{colour}" stroke-width="2"/>'
            f'<rect x="{x:.1f}" y="{y:.1f}" width="6" height="{h:.1f}" fill="{colour}"/>'
        )
    fill, border = COLOURS[card.kind]
    style = f'fill="{fill}" stroke="{border}" stroke-width="1.2"'
    if card.kind == "cut":  # a gate: something comes out narrower than it went in
        tip = 7.0
        points = [
            (x, y), (x + w - tip, y), (x + w, y + tip), (x + w, y + h - tip), (x + w - tip, y + h), (x, y + h),
        ]  # fmt: skip
        return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" {style}/>'
    radius = {"column": 5, "weight": 14, "joint": 14}.get(card.kind, 0)
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius}" {style}/>'


def _text(x: float, y: float, text: str, size: float, colour: str, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight}>{escape(_fitting(text))}</text>'


# -- lines -----------------------------------------------------------------------------------------


def _lines(edges: Sequence[Edge], layout: Layout, regions: dict[str, int]) -> list[str]:
    """Draw every stretch of line once, the coloured ones on top, and a tip where a line ends."""
    stretches: dict[tuple[str, str, float], dict[str, None]] = {}
    tips: list[str] = []
    for edge, route in zip(edges, layout.routes, strict=True):
        colour = _colour(edge, regions)
        dash = DASHES.get(edge.manner, "")
        width = 1.2 if colour == LINE else 1.6
        last = len(route) - 2
        for number, (start, end) in enumerate(pairwise(route)):
            # A trunk is shared with lines to other regions, so only its last stretch has a colour.
            shared = number < last and edge.manner in ("passes", "fails")
            look = (LINE if shared else colour, dash, 1.2 if shared else width)
            stretches.setdefault(look, {})[_stretch(start, end)] = None
        tips.append(_tip(route[-1], colour, edge.manner))
    drawn = []
    for (colour, dash, width), paths in sorted(stretches.items(), key=lambda item: item[0][0] != LINE):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        drawn.append(f'<path d="{"".join(paths)}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>')
    return drawn + tips


def _colour(edge: Edge, regions: dict[str, int]) -> str:
    for key in (edge.target, edge.source):
        if key in regions and edge.manner in ("passes", "fails", "gives"):
            return REGION_COLOURS[regions[key] % len(REGION_COLOURS)]
    return COLOURS["cut"][1] if edge.manner in ("after", "learned") else LINE


def _stretch(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (right, below) = start, end
    if abs(below - y) < 0.5:
        return f"M{x:.1f} {y:.1f}H{right:.1f}"
    middle = (x + right) / 2
    return f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {below:.1f} {right:.1f} {below:.1f}"


def _tip(end: tuple[float, float], colour: str, manner: str) -> str:
    x, y = end
    if manner == "fails":  # the sign of an inverter
        return f'<circle cx="{x - 4:.1f}" cy="{y:.1f}" r="3.6" fill="#ffffff" stroke="{colour}" stroke-width="1.6"/>'
    return f'<path d="M{x:.1f} {y:.1f}l-6 -3v6z" fill="{colour}"/>'


def _legend(manners: set[str], y: float) -> tuple[list[str], float]:
    """Say what the unusual lines mean, if there are any."""
    words = {
        "fails": "rows that fail the cut",
        "after": "runs after the cut",
        "learned": "runs after the cut (learned)",
    }
    parts: list[str] = []
    x = 0.0
    for manner, text in words.items():
        if manner not in manners:
            continue
        colour = LINE if manner == "fails" else COLOURS["cut"][1]
        parts.append(
            f'<path d="M{x:.1f} {y:.1f}h34" fill="none" stroke="{colour}" stroke-width="1.6" '
            f'stroke-dasharray="{DASHES[manner]}"/>{_tip((x + 40, y), colour, manner)}'
        )
        parts.append(_text(x + 48, y + 3.5, text, LINE_SIZE, LINE))
        x += 64 + len(text) * LINE_SIZE * LETTER
    return parts, x
