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
    top = TOP + BARS + 60
    span = trace.makespan or 1.0
    inner = WIDTH - LEFT - 20
    for worker in range(trace.workers):
        y = top + worker * LANE
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">worker {worker}</text>')
    for one in chunks:
        x, width = LEFT + inner * one.begin / span, max(inner * (one.end - one.begin) / span, 0.5)
        stolen = ' stroke="#222" stroke-width="1.2"' if one.stolen else ' stroke="white" stroke-width="0.3"'
        parts.append(
            f'<rect x="{x:.1f}" y="{top + one.worker * LANE}" width="{width:.1f}" height="{LANE - 4}" '
            f'fill="{COLOURS[one.worker % len(COLOURS)]}"{stolen}><title>rows {one.start} to {one.stop - 1}, '
            f"{escape(format_seconds(one.end - one.begin))}{', stolen' if one.stolen else ''}</title></rect>"
        )
    bottom = top + trace.workers * LANE
    for part in range(5):
        x = LEFT + inner * part / 4
        parts.append(
            f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{escape(format_seconds(span * part / 4))}</text>'
        )
    legend = "who ran what when; framed: stolen" if trace.steals else "who ran what when"
    parts.append(f'<text x="{LEFT}" y="{top - 10}" class="head">{legend}</text>')
    return _page(bottom + 30, title, parts)


def _bars(sizes: Sequence[int], workers: Sequence[int]) -> list[str]:
    """Draw chunk sizes on a logarithmic scale."""
    most = max(sizes, default=1)
    decades = max(math.ceil(math.log10(max(most, 2))), 1)
    inner = WIDTH - LEFT - 20
    parts = [f'<text x="{LEFT}" y="{TOP - 10}" class="head">rows of each chunk</text>']
    for decade in range(decades + 1):
        y = TOP + BARS - BARS * decade / decades
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10**decade:,}</text>')
    every = max(-(-len(sizes) // MOST_BARS), 1)
    width = inner / max(len(sizes), 1)
    for number in range(0, len(sizes), every):
        height = max(BARS * math.log10(max(sizes[number], 1)) / decades, 1.5)
        parts.append(
            f'<rect x="{LEFT + number * width:.1f}" y="{TOP + BARS - height:.1f}" width="{max(every * width - 0.4, 0.6):.1f}" '
            f'height="{height:.1f}" fill="{COLOURS[workers[number] % len(COLOURS)]}"><title>chunk {number}: {sizes[number]} rows'
            "</title></rect>"
        )
    parts.append(f'<text x="{WIDTH - 20}" y="{TOP + BARS + 16}" text-anchor="end">{len(sizes):,} chunks</text>')
    return parts


def _page(height: float, title: str, parts: Sequence[str]) -> str:
    style = "text{font:12px sans-serif;fill:#444}.head{font-weight:bold}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}">'
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>'
    name = f'<text x="{LEFT}" y="18" class="head">{escape(title)}</text>'
    return "\n".join([head, f"<style>{style}</style>", ground, name, *parts, "</svg>", ""])
