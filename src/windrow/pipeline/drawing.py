"""``analysis.graph()``: a pipeline as a drawing, columns on the left, outputs on the right, as one SVG text.

First what is drawn - boxes for columns, steps, regions and outputs, and the lines between them - and then how. File columns
that the same steps read share a box, so that long lists stay short. No file is opened: what no step makes comes from a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.pipeline.graph import factors, matching_regions
from windrow.pipeline.inspect.rows import STAND_IN, definition_at_desk
from windrow.pipeline.saves import regions_named
from windrow.watch import svg
from windrow.watch.layered_layout import Box, Edge, place_boxes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.steps import Read, StepDefinition
    from windrow.watch.layered_layout import Layout, Rectangle

#: Lines of a list in a box; the rest is counted, and named where the pointer rests on the box.
LIST_LINES = 9
#: Lines from file columns that several steps read; where there are more, every step has a box of its own for them,
#: because nobody can follow so many.
SHARED_LINES = 30

#: From left to right, whatever the lines say.
STEPS, REGIONS, JOINTS, OUTPUTS = range(4)


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
        return svg.scrolled(self.svg)

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
    boxes = [Box(card.key, *svg.box_size(card.name, card.lines), card.stage) for card in drawn.cards]
    layout = place_boxes(boxes, drawn.edges)
    regions = {card.key: card.region for card in drawn.cards if card.region is not None}
    parts = [*_lines(drawn.edges, layout, regions)]
    parts += [_drawn(card, layout.boxes[card.key]) for card in drawn.cards]
    legend, legend_width = _legend({edge.manner for edge in drawn.edges}, layout.height + 22)
    width, height = max(layout.width, legend_width), layout.height + (30 if legend else 0)
    return Graph(svg.document(f"pipeline {pipeline.name}", "".join([*parts, *legend]), width, height))


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One box: what it is called, what is written in it, and what is told where the pointer rests on it."""

    key: str
    kind: str  #: file, cut, column, weight, region, joint, output, save
    name: str
    lines: tuple[str, ...] = ()
    about: str = ""
    stage: int = STEPS
    region: int | None = None  #: number of the region, which has a colour


@dataclass(slots=True)
class Picture:
    """All boxes and lines."""

    cards: list[Card] = field(default_factory=list)
    #: manners: reads, passes, fails (an inverted cut), after, learned, gives
    edges: list[Edge] = field(default_factory=list)

    def join(self, sources: Sequence[str], target: str, manner: str) -> None:
        """Draw lines from several boxes to one."""
        self.edges += [Edge(source, target, manner) for source in dict.fromkeys(sources)]


def picture(pipeline: Pipeline) -> Picture:
    """Collect what is to be drawn."""
    definition = definition_at_desk(pipeline)
    drawn = Picture()
    steps = {name: step for name, step in definition.steps.items() if name != STAND_IN}
    _files(drawn, steps)
    for step in steps.values():
        if step.kind != "output":
            drawn.cards.append(_step_card(step, STEPS, []))
        _made_columns(drawn, step, steps)
        drawn.join([_key(cut) for cut in step.after], _key(step.name), "after")
    for name, cut in sorted(pipeline.guards):
        if name in steps and cut in steps and cut not in steps[name].after:
            drawn.edges.append(Edge(_key(cut), _key(name), "learned"))
    _regions(drawn, definition)
    _outputs(drawn, definition, steps)
    _saves(drawn, pipeline, definition)
    return drawn


def _key(step: str) -> str:
    return f"step {step}"


def _region_key(region: str) -> str:
    return f"region {region}"


# -- columns and steps -----------------------------------------------------------------------------


def _files(drawn: Picture, steps: dict[str, StepDefinition]) -> None:
    """Make a box for each group of file columns that the same steps read."""
    readers: dict[str, list[str]] = {}
    reads: dict[str, Read] = {}
    for step in steps.values():
        for read in step.reads:
            weight = step.takes_weight and read.column == "weight"
            if read.column not in steps and not weight:
                readers.setdefault(read.column, []).append(step.name)
                reads[read.column] = read
    groups: dict[tuple[str, ...], list[str]] = {}
    for column, names in readers.items():
        groups.setdefault(tuple(dict.fromkeys(names)), []).append(column)
    if sum(len(names) for names in groups if len(names) > 1) > SHARED_LINES:
        groups = {}
        for column, names in readers.items():
            for name in dict.fromkeys(names):
                groups.setdefault((name,), []).append(column)
    for number, (together, columns) in enumerate(groups.items()):
        key = f"file {number}"
        texts = [_column_text(reads[column]) for column in columns]
        drawn.cards.append(
            Card(
                key=key, kind="file", name="", lines=_listed(texts), about=f"columns of the file: {', '.join(columns)}"
            )
        )
        drawn.edges += [Edge(key, _key(name), "reads") for name in together]


def _column_text(read: Read) -> str:
    return f"{read.column} = {read.default!r}" if read.optional else read.column


def _made_columns(drawn: Picture, step: StepDefinition, steps: dict[str, StepDefinition]) -> None:
    made = [read.column for read in step.reads if read.column in steps]
    drawn.join([_key(column) for column in made], _key(step.name), "reads")


def _step_card(step: StepDefinition, stage: int, more: list[str]) -> Card:
    lines = [step.kind + (", each row" if step.each else "")]
    if step.when is not None:
        lines.append(f"when {step.when.text}")
    about = [f"{step.kind} {step.name}"]
    if step.reads:
        about.append("reads " + ", ".join(_column_text(read) for read in step.reads))
    about += [f"{name} = {value!r}" for name, value in step.parameters.items()]
    if step.when is not None:
        about.append(f"when {step.when.text}")
    if step.after:
        about.append(f"after {', '.join(step.after)}")
    words = (getattr(step.function, "__doc__", None) or "").strip()
    if words:
        about.append(words.splitlines()[0])
    return Card(
        key=_key(step.name), kind=step.kind, name=step.name, lines=(*lines, *more), about="\n".join(about), stage=stage
    )


# -- regions and outputs ---------------------------------------------------------------------------


def _regions(drawn: Picture, definition: Definition) -> None:
    order = {name: number for number, name in enumerate(definition.written)}
    for number, (region, cuts) in enumerate(definition.regions.items()):
        written = sorted(cuts, key=order.__getitem__)
        texts = [f"not {cut}" if cuts[cut] else cut for cut in written]
        drawn.cards.append(
            Card(
                key=_region_key(region),
                kind="region",
                name=region,
                lines=("region", *_listed(texts or ["all rows"])),
                about=f"region {region}: {' and '.join(texts) or 'all rows'}",
                stage=REGIONS,
                region=number,
            )
        )
        for cut in written:
            manner = "fails" if cuts[cut] else "passes"
            drawn.edges.append(Edge(_key(cut), _region_key(region), manner))


def _outputs(drawn: Picture, definition: Definition, steps: dict[str, StepDefinition]) -> None:
    outputs = [step for step in steps.values() if step.kind == "output"]
    everywhere = tuple(definition.regions)
    wanted = {out.name: matching_regions(out, everywhere) for out in outputs}
    full = [name for name, regions in wanted.items() if regions == everywhere]
    # Every region joined with every output is a thicket: one box stands for all regions.
    joint = len(everywhere) > 2 and len(full) > 1
    if joint:
        drawn.cards.append(Card(key="joint regions", kind="joint", name="all regions", stage=JOINTS))
        drawn.join([_region_key(name) for name in everywhere], "joint regions", "gives")
    products: dict[tuple[str, ...], str] = {}
    weights = [name for name, step in steps.items() if step.kind == "weight"]
    for output in outputs:
        more = ["all rows, before any cut"] if output.regions is None else []
        region = None if output.regions is None else ""
        product = factors(steps, output.name, region, weights)
        if output.takes_weight and not product:
            more.append("unweighted")
        drawn.cards.append(_step_card(output, OUTPUTS, more))
        if joint and output.name in full:
            drawn.join(["joint regions"], _key(output.name), "gives")
        else:
            regions = [_region_key(name) for name in wanted[output.name]]
            drawn.join(regions, _key(output.name), "gives")
        _weighted(drawn, output, product, products)


def _weighted(
    drawn: Picture, output: StepDefinition, weights: tuple[str, ...], products: dict[tuple[str, ...], str]
) -> None:
    if len(weights) < 2:
        drawn.join([_key(name) for name in weights], _key(output.name), "reads")
        return
    if weights not in products:
        key = products[weights] = f"joint weight {len(products)}"
        drawn.cards.append(
            Card(
                key=key,
                kind="joint",
                name="weight",
                lines=("product",),
                about="weight = " + " * ".join(weights),
                stage=JOINTS,
            )
        )
        drawn.join([_key(name) for name in weights], key, "reads")
    drawn.join([products[weights]], _key(output.name), "reads")


def _saves(drawn: Picture, pipeline: Pipeline, definition: Definition) -> None:
    for number, save in enumerate(pipeline.saves):
        key = f"save {number}"
        made = [name for name in save.columns if name in definition.steps]
        regions = regions_named(save, definition.regions)
        more = () if regions else ("all rows, before any cut",)
        drawn.cards.append(
            Card(
                key=key,
                kind="save",
                name=save.path,
                lines=("saved", *_listed(save.columns), *more),
                about=f"saved to {save.path}: {', '.join(save.columns)}",
                stage=OUTPUTS,
            )
        )
        drawn.join([_key(name) for name in made], key, "reads")
        drawn.join([_region_key(name) for name in regions], key, "gives")


def _listed(texts: Sequence[str]) -> tuple[str, ...]:
    """Shorten a list to what a box has room for."""
    if len(texts) <= LIST_LINES:
        return tuple(texts)
    return (*texts[: LIST_LINES - 1], f"… {len(texts) - LIST_LINES + 1} more")


# -- the drawing -----------------------------------------------------------------------------------


def _drawn(card: Card, box: Rectangle) -> str:
    return (
        f'<g class="{card.kind}" data-name="{escape(card.name)}" data-key="{escape(card.key)}">'
        f"<title>{escape(card.about or card.name)}</title>{_outline(card, box)}"
        f"{svg.box_text(box.x, box.y, card.name, card.lines, svg.INK if card.kind == 'file' else svg.PALE_INK)}</g>"
    )


def _outline(card: Card, box: Rectangle) -> str:
    x, y, w, h = box
    if card.region is not None:
        colour = REGION_COLOURS[card.region % len(REGION_COLOURS)]
        look = f'rx="3" fill="#ffffff" stroke="{colour}" stroke-width="2"'
        stripe = f'fill="{colour}"'
        return svg.rectangle(x, y, w, h, look) + svg.rectangle(x, y, 6, h, stripe)
    fill, border = COLOURS[card.kind]
    style = f'fill="{fill}" stroke="{border}" stroke-width="1.2"'
    if card.kind == "cut":  # a gate: something comes out narrower than it went in
        tip = 7.0
        points = [
            (x, y), (x + w - tip, y), (x + w, y + tip), (x + w, y + h - tip), (x + w - tip, y + h), (x, y + h),
        ]  # fmt: skip
        return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" {style}/>'
    radius = {"column": 5, "weight": 14, "joint": 14}.get(card.kind, 0)
    return svg.rectangle(x, y, w, h, f'rx="{radius}" {style}')


def _lines(edges: Sequence[Edge], layout: Layout, regions: dict[str, int]) -> list[str]:
    """Draw every stretch of line once, the coloured ones on top, and a tip where a line ends."""
    stretches: dict[tuple[str, str, float], dict[str, None]] = {}
    tips: list[str] = []
    for edge, route in zip(edges, layout.routes, strict=True):
        colour = _colour(edge, regions)
        dash = DASHES.get(edge.manner, "")
        width = 1.2 if colour == svg.LINE else 1.6
        last = len(route) - 2
        for number, (start, end) in enumerate(pairwise(route)):
            # A trunk is shared with lines to other regions, so only its last stretch has a colour.
            shared = number < last and edge.manner in ("passes", "fails")
            look = (svg.LINE if shared else colour, dash, 1.2 if shared else width)
            stretches.setdefault(look, {})[svg.stretch(start, end)] = None
        tips.append(_tip(route[-1], colour, edge.manner))
    drawn = []
    for (colour, dash, width), paths in sorted(stretches.items(), key=lambda item: item[0][0] != svg.LINE):
        drawn.append(svg.path("".join(paths), colour, width, dash))
    return drawn + tips


def _colour(edge: Edge, regions: dict[str, int]) -> str:
    for key in (edge.target, edge.source):
        if key in regions and edge.manner in ("passes", "fails", "gives"):
            return REGION_COLOURS[regions[key] % len(REGION_COLOURS)]
    return COLOURS["cut"][1] if edge.manner in ("after", "learned") else svg.LINE


def _tip(end: tuple[float, float], colour: str, manner: str) -> str:
    x, y = end
    if manner == "fails":  # the sign of an inverter
        return f'<circle cx="{x - 4:.1f}" cy="{y:.1f}" r="3.6" fill="#ffffff" stroke="{colour}" stroke-width="1.6"/>'
    return svg.arrow_tip(end, colour)


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
        colour = svg.LINE if manner == "fails" else COLOURS["cut"][1]
        parts.append(svg.path(f"M{x:.1f} {y:.1f}h34", colour, 1.6, DASHES[manner]) + _tip((x + 40, y), colour, manner))
        parts.append(svg.text(x + 48, y + 3.5, text, svg.LINE_SIZE, svg.LINE))
        x += 64 + svg.text_width(text)
    return parts, x
