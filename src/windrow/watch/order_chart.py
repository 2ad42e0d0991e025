"""Drawing an order over time: a lane for each place, a line for each step, crossings where steps move.

It is plain SVG in the colours of the page, so it needs no script; what a line says when it is
pointed at is its title, which ``page/order.js`` shows like the boxes of the other charts.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from windrow.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Stretch", "order_chart"]

#: Pixels: of a lane, and of one where there are many.
LANE, NARROW_LANE = 21, 17
MANY_LANES = 16
#: Room for a stretch of time between two orders: the least, so that crossings can be seen, and about what it should have.
LEAST_STRETCH, GOOD_STRETCH = 64, 120
#: Room for all of them, and of the whole drawing: what the page has.
LEAST_PLOT, WIDEST = 300, 1180
#: Half of the way that a step takes from one lane to another.
CROSSING = 26
#: A letter of a name, and letters before it is shortened.
LETTER, MOST_LETTERS = 7.2, 26
TOP, BOTTOM, GUTTER = 14, 42, 14

#: Colours of the page that can be told apart as lines; the steps that move most have them.
COLOURS = (0, 2, 1, 3, 5, 9, 4, 7)


class Stretch(NamedTuple):
    """An order and the time it was in force from; None where that is not a time of the run."""

    order: Sequence[str]
    since_s: float | None
    label: str = ""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where stretches begin and end: each has the least room, the rest is shared by how long they lasted."""

    edges: tuple[float, ...]  #: pixels
    times: tuple[float | None, ...]  #: of the edges

    @classmethod
    def of(cls, stretches: Sequence[Stretch], until_s: float, left: float) -> _Axis:
        times = (*(one.since_s for one in stretches), until_s)
        lasted = [0.0 if begin is None or end is None else max(end - begin, 0.0) for begin, end in pairwise(times)]
        count = len(lasted)
        plot = max(LEAST_PLOT, min(float(GOOD_STRETCH * count), WIDEST - 2 * left))
        least = min(LEAST_STRETCH, plot / count)
        spare, total = plot - least * count, sum(lasted)
        edges = [left]
        for one in lasted:
            edges.append(edges[-1] + least + spare * (one / total if total else 1 / count))
        return cls(tuple(edges), times)

    def place(self, time: float) -> float | None:
        """Say where a time is; None if it is in no stretch."""
        for number, (begin, end) in enumerate(pairwise(self.times)):
            if begin is not None and end is not None and begin <= time <= end and end > begin:
                first, last = self.edges[number : number + 2]
                return first + (last - first) * (time - begin) / (end - begin)
        return None


def order_chart(
    stretches: Sequence[Stretch],
    *,
    until_s: float,
    checkpoints: Sequence[float],
    cuts: frozenset[str],
    tips: Mapping[str, str],
    label: str,
) -> str:
    """Return the drawing of orders of the same steps, one after the other."""
    first, last = stretches[0].order, stretches[-1].order
    lane = LANE if len(first) <= MANY_LANES else NARROW_LANE
    longest = max(len(_short(name)) for name in first)
    margin = GUTTER + LETTER * longest + 30
    axis = _Axis.of(stretches, until_s, margin)
    width, bottom = axis.edges[-1] + margin, TOP + lane * len(first)
    colours = _colours(stretches, cuts)
    lines = [
        _line(name, stretches, axis.edges, lane, colours.get(name, ""), cuts, tips)
        for name in sorted(first, key=lambda name: name in colours)
    ]
    height = bottom + BOTTOM
    drawn = "".join(
        (
            _scale(stretches, axis, checkpoints, bottom),
            *lines,
            _names(first, axis.edges[0] - 12, lane, "end", cuts),
            _names(last, axis.edges[-1] + 12, lane, "start", cuts),
        )
    )
    return (
        f'<svg class="bump" role="img" aria-label="{escape(label)}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">{drawn}</svg>'
    )


def _colours(stretches: Sequence[Stretch], cuts: frozenset[str]) -> dict[str, str]:
    """Give colours to the steps that move most, cuts before others; the other ones that move are grey."""
    places = [{name: number for number, name in enumerate(one.order)} for one in stretches]
    far = {name: max(place[name] for place in places) - min(place[name] for place in places) for name in places[0]}
    moved = sorted((name for name in far if far[name]), key=lambda name: (name not in cuts, -far[name]))
    return {
        name: f"var(--c{COLOURS[number]})" if number < len(COLOURS) else "var(--soft)"
        for number, name in enumerate(moved)
    }


def _line(
    name: str,
    stretches: Sequence[Stretch],
    edges: Sequence[float],
    lane: int,
    colour: str,
    cuts: frozenset[str],
    tips: Mapping[str, str],
) -> str:
    heights = [_height(one.order.index(name), lane) for one in stretches]
    path = [f"M{edges[0]:.1f} {heights[0]:.1f}"]
    for number, (before, after) in enumerate(pairwise(heights), start=1):
        x = edges[number]
        room = min(x - edges[number - 1], edges[number + 1] - x)
        reach = min(CROSSING, room / 2)
        if before != after:
            path.append(f"H{x - reach:.1f}C{x:.1f} {before:.1f} {x:.1f} {after:.1f} {x + reach:.1f} {after:.1f}")
    path.append(f"H{edges[-1]:.1f}")
    way = "".join(path)
    kind = "step" if name in cuts else "step made"
    ends = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>' for x, y in ((edges[0], heights[0]), (edges[-1], heights[-1]))
    )
    return (
        f'<g class="{kind}" style="--mark:{colour or "var(--rest)"}">'
        f"<title>{escape(tips.get(name, name))}</title>"
        f'<path class="wide" d="{way}"/><path d="{way}"/>{ends}</g>'
    )


def _names(order: Sequence[str], x: float, lane: int, anchor: str, cuts: frozenset[str]) -> str:
    texts = []
    for number, name in enumerate(order):
        y = _height(number, lane) + 4
        kind = "" if name in cuts else ' class="made"'
        place = f'<tspan class="place">{number + 1}</tspan>'
        words = escape(_short(name))
        text = f"{place}&#160;&#160;{words}" if anchor == "start" else f"{words}&#160;&#160;{place}"
        texts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{text}</text>')
    return "".join(texts)


def _scale(stretches: Sequence[Stretch], axis: _Axis, checkpoints: Sequence[float], bottom: float) -> str:
    """Draw the times at which orders changed, and a tick for each checkpoint that changed nothing."""
    parts = [f'<line class="axis" x1="{axis.edges[0]:.1f}" x2="{axis.edges[-1]:.1f}" y1="{bottom}" y2="{bottom}"/>']
    parts += [
        f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
        for x in map(axis.place, checkpoints)
        if x is not None
    ]
    free = -1e9
    ends = [*(one.label for one in stretches), ""]
    for number, (x, time, label) in enumerate(zip(axis.edges, axis.times, ends, strict=True)):
        inner = 0 < number < len(stretches)
        if inner:
            parts.append(f'<line class="change" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom + 6}"/>')
        words = label or ("" if time is None else format_seconds(time))
        if words and x - 3.4 * len(words) > free:
            parts.append(
                f'<text class="time" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{escape(words)}</text>'
            )
            free = x + 3.4 * len(words) + 8
    middle = (axis.edges[0] + axis.edges[-1]) / 2
    parts.append(
        f'<text class="time" x="{middle:.1f}" y="{bottom + 36}" text-anchor="middle">work of all workers</text>'
    )
    return "".join(parts)


def _height(number: int, lane: int) -> float:
    return TOP + lane * (number + 0.5)


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 9]}...{name[-6:]}"
