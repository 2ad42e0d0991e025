"""A drawing of a loop, as SVG: rows of its chunks one after the other, and below who ran each of them when."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from windrow.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.place.loop_trace import LoopTrace

WIDTH, LEFT, TOP, BARS, LANE = 900, 70, 46, 180, 22
INNER = WIDTH - LEFT - 20
COLOURS = ("#4878a8", "#e0923c", "#5a9e6f", "#b65a6a", "#8274b0", "#8c7a5c", "#c98bb9", "#7f8c8d")
#: Bars that can still be told apart; more chunks are drawn as steps of the same width.
MOST_BARS = 700


def draw_sizes(sizes: Sequence[int], title: str) -> str:
    """Draw a sequence of chunks alone."""
    return _page(TOP + BARS + 40, title, _bars(sizes, [0] * len(sizes)))


def draw_loop(trace: LoopTrace, title: str) -> str:
    """Draw chunks and their workers."""
    chunks = sorted(trace.chunks, key=lambda one: one.asked)
    parts = _bars([one.stop - one.start for one in chunks], [one.worker for one in chunks])
    top, span = TOP + BARS + 60, trace.makespan or 1.0
    bottom = top + trace.workers * LANE
    parts.append(
        _text(LEFT, top - 10, "who ran what when; framed: stolen" if trace.steals else "who ran what when", HEAD)
    )
    parts += [_text(LEFT - 8, top + worker * LANE + 14, f"worker {worker}", END) for worker in range(trace.workers)]
    for one in chunks:
        seconds = one.end - one.begin
        says = f"rows {one.start} to {one.stop - 1}, {format_seconds(seconds)}{', stolen' if one.stolen else ''}"
        x, width = LEFT + INNER * one.begin / span, max(INNER * seconds / span, 0.5)
        parts.append(_box(x, top + one.worker * LANE, width, LANE - 4, one.worker, says, framed=one.stolen > 0))
    for part in range(5):
        parts.append(_text(LEFT + INNER * part / 4, bottom + 16, format_seconds(span * part / 4), MIDDLE))
    return _page(bottom + 30, title, parts)


def _bars(sizes: Sequence[int], workers: Sequence[int]) -> list[str]:
    """Draw chunk sizes on a logarithmic scale."""
    decades = max(math.ceil(math.log10(max([2, *sizes]))), 1)
    parts = [_text(LEFT, TOP - 10, "rows of each chunk", HEAD)]
    for decade in range(decades + 1):
        y = TOP + BARS - BARS * decade / decades
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + INNER}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{10**decade:,}", END))
    every, width = max(-(-len(sizes) // MOST_BARS), 1), INNER / max(len(sizes), 1)
    for number in range(0, len(sizes), every):
        height = max(BARS * math.log10(max(sizes[number], 1)) / decades, 1.5)
        says = f"chunk {number}: {sizes[number]} rows"
        x, wide = LEFT + number * width, max(every * width - 0.4, 0.6)
        parts.append(_box(x, TOP + BARS - height, wide, height, workers[number], says))
    parts.append(_text(LEFT + INNER, TOP + BARS + 16, f"{len(sizes):,} chunks", END))
    return parts


END, MIDDLE, HEAD = 'text-anchor="end"', 'text-anchor="middle"', 'class="head"'


def _text(x: float, y: float, words: str, look: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, worker: int, says: str, *, framed: bool = False) -> str:
    look = f'fill="{COLOURS[worker % len(COLOURS)]}" stroke="{"#222" if framed else "none"}"'
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"<rect {place} {look}><title>{escape(says)}</title></rect>"


def _page(height: float, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}">'
    style = "<style>text{font:12px sans-serif;fill:#444}.head{font-weight:bold}</style>"
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>'
    return "\n".join([head, style, ground, _text(LEFT, 18, title, HEAD), *parts, "</svg>", ""])
