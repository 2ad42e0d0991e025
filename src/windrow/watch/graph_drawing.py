"""Graphs as SVG text: boxes in layers, lines between them, and a legend below.

Colours are chosen to be seen on white and on black. There are no style rules and no ids in a drawing, because a notebook
puts many of them into one page.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from windrow.watch.layered_layout import Box, Edge, place_boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.watch.layered_layout import Point, Rectangle

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
#: Sizes of names and of the lines below them; letters of these fonts are 0.6 as wide as they are high.
NAME_SIZE, LINE_SIZE, LETTER = 12.0, 10.5, 0.602
LINE_HEIGHT = 14.0
MARGIN = 16.0
INK, PALE_INK, LINE = "#1c2733", "#51606e", "#8b97a3"
#: Letters of a line of text in a box.
MOST_LETTERS = 34


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


def scroll_drawing(svg: str) -> str:
    """Write a drawing for a notebook: in its own size, so that the smallest text stays legible."""
    return f'<div style="overflow:auto;max-height:90vh">{svg}</div>'


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
