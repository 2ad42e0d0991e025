"""Pieces of SVG that drawings of graphs are made of.

Colours are chosen to be seen on white and on black. There are no style rules and no ids in a drawing, because a notebook
puts many of them into one page.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FONT = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
#: Sizes of names and of the lines below them; letters of these fonts are 0.6 as wide as they are high.
NAME_SIZE, LINE_SIZE, LETTER = 12.0, 10.5, 0.602
LINE_HEIGHT = 14.0
MARGIN = 16.0
INK, PALE_INK, LINE = "#1c2733", "#51606e", "#8b97a3"
#: Letters of a line of text in a box.
MOST_LETTERS = 34


def document(title: str, content: str, width: float, height: float) -> str:
    """Write a whole drawing, whose contents begin at (0, 0)."""
    width, height = width + 2 * MARGIN, height + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}" font-family="{FONT}" role="img">'
        f"<title>{escape(title)}</title>{content}</svg>"
    )


def scrolled(svg: str) -> str:
    """Write a drawing for a notebook: in its own size, so that the smallest text stays legible."""
    return f'<div style="overflow:auto;max-height:90vh">{svg}</div>'


def fitting(text: str) -> str:
    """Leave out the middle of what is too long: names differ at their ends."""
    text = " ".join(text.split())
    half = (MOST_LETTERS - 1) // 2
    return text if len(text) <= MOST_LETTERS else f"{text[:half]}…{text[-half:]}"


def box_size(name: str, lines: Sequence[str]) -> tuple[float, float]:
    """Say how wide and high a box must be for a name, if it has one, and lines below it."""
    widths = [len(fitting(line)) * LINE_SIZE * LETTER for line in lines]
    widths.append(len(fitting(name)) * NAME_SIZE * 1.04 * LETTER)
    return max(widths) + 24, (len(lines) + bool(name)) * LINE_HEIGHT + 12


def box_text(x: float, y: float, name: str, lines: Sequence[str], ink: str = PALE_INK) -> str:
    """Write the name and the lines of a box whose left upper corner is given."""
    parts = []
    y += LINE_HEIGHT + 3
    if name:
        parts.append(text(x + 12, y, name, NAME_SIZE, INK, bold=True))
        y += LINE_HEIGHT
    parts += [text(x + 12, y + number * LINE_HEIGHT, line, LINE_SIZE, ink) for number, line in enumerate(lines)]
    return "".join(parts)


def text(x: float, y: float, words: str, size: float, colour: str, *, bold: bool = False) -> str:
    """Write a line of text."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}"{weight}>{escape(fitting(words))}</text>'


def text_width(words: str) -> float:
    """Say how wide a line of text is."""
    return len(words) * LINE_SIZE * LETTER


def rectangle(x: float, y: float, width: float, height: float, look: str) -> str:
    """Draw a rectangle; ``look`` are further attributes."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'


def path(way: str, colour: str, width: float, dash: str = "") -> str:
    """Draw a line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def stretch(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Give the way from one point to another on its right, level at both ends."""
    (x, y), (right, below) = start, end
    if abs(below - y) < 0.5:
        return f"M{x:.1f} {y:.1f}H{right:.1f}"
    middle = (x + right) / 2
    return f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {below:.1f} {right:.1f} {below:.1f}"


def arrow_tip(end: tuple[float, float], colour: str) -> str:
    """Draw where a line ends."""
    return f'<path d="M{end[0]:.1f} {end[1]:.1f}l-6 -3v6z" fill="{colour}"/>'
