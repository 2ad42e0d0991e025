"""``analysis.graph()``: a pipeline as a drawing, columns on the left, outputs on the right, as one SVG text.

First what is drawn - boxes for columns, steps, regions and outputs, and the lines between them - and then how. File columns
that the same steps read share a box, so that long lists stay short. No file is opened: what no step makes comes from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow.pipeline.definition.definition import factors, matching_regions
from windrow.pipeline.definition.saves import regions_named
from windrow.pipeline.inspect.rows import STAND_IN, definition_at_desk
from windrow.watch.graph_drawing import INK, LINE, PALE_INK, Card, Drawn, Edge, Look, draw_graph, line_sample

if TYPE_CHECKING:
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.steps import Read, StepDefinition
    from windrow.pipeline.pipeline import Pipeline

#: Lines of a list in a box; the rest is counted, and named where the pointer rests on the box.
LIST_LINES = 9
#: Lines from file columns that several steps read; where there are more, every step has a box of its own for them,
#: because nobody can follow so many.
SHARED_LINES = 30

#: From left to right, whatever the lines say.
STEPS, REGIONS, JOINTS, OUTPUTS = range(4)


#: Fill, border and radius of each kind of box.
LOOKS = {
    "file": ("#f2f4f6", "#9aa5b0", 0),
    "cut": ("#fde6d3", "#d26f2a", 0),
    "column": ("#ddebfb", "#3f79bd", 5),
    "weight": ("#eadff7", "#8259bf", 14),
    "joint": ("#f2f4f6", "#8b97a3", 14),
    "output": ("#dcf2e1", "#3b9457", 0),
    "save": ("#dcf2e1", "#3b9457", 0),
}
#: Borders of regions, told apart also by those who do not see all colours (Okabe and Ito 2008).
REGION_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b3a000")
_AFTER = Look(LOOKS["cut"][1], 1.6, "2 4")
#: What the unusual lines mean, in the order of the legend.
LEGEND = {
    "fails": (Look(LINE, 1.6, "6 4", inverts=True), "rows that fail the cut"),
    "after": (_AFTER, "runs after the cut"),
    "learned": (_AFTER, "runs after the cut (learned)"),
}


@dataclass(frozen=True, slots=True)
class Graph(Drawn):
    """A drawing of a pipeline: notebooks show it, ``save`` writes it to an .svg file."""

    svg: str

    def _texts(self) -> dict[str, Callable[[], str]]:
        return {".svg": lambda: self.svg}

    def __repr__(self) -> str:
        return f"<Graph: {len(self.svg):,} letters of SVG; save it with .save('graph.svg')>"


def draw(pipeline: Pipeline) -> Graph:
    drawn = picture(pipeline)
    regions = {card.key: card.border for card in drawn.cards if card.kind == "region"}
    manners = {edge.manner for edge in drawn.edges}
    legend = [(line_sample(look), words) for manner, (look, words) in LEGEND.items() if manner in manners]
    looks = [_look(edge, regions) for edge in drawn.edges]
    return Graph(draw_graph(f"pipeline {pipeline.name}", drawn.cards, drawn.edges, looks, legend))


def _look(edge: Edge, regions: dict[str, str]) -> Look:
    if edge.manner in ("after", "learned"):
        return _AFTER
    colour = regions.get(edge.target) or regions.get(edge.source)
    if colour is None or edge.manner == "reads":
        return Look()
    fails = edge.manner == "fails"
    return Look(colour, 1.6, "6 4" if fails else "", inverts=fails, shares_trunk=edge.manner in ("passes", "fails"))


def _card(kind: str, key: str, name: str, lines: Sequence[str] = (), about: str = "", stage: int = STEPS) -> Card:
    fill, border, radius = LOOKS[kind]
    return Card(
        key=key, kind=kind, name=name, lines=tuple(lines), about=about, stage=stage, fill=fill, border=border,
        radius=radius, gate=kind == "cut", ink=INK if kind == "file" else PALE_INK,
    )  # fmt: skip


@dataclass(slots=True)
class Picture:
    """All boxes and lines."""

    cards: list[Card] = field(default_factory=list)
    #: manners: reads, passes, fails (an inverted cut), after, learned, gives
    edges: list[Edge] = field(default_factory=list)

    def join(self, sources: Sequence[str], target: str, manner: str) -> None:
        self.edges += [Edge(source, target, manner) for source in dict.fromkeys(sources)]


def picture(pipeline: Pipeline) -> Picture:
    definition = definition_at_desk(pipeline)
    drawn = Picture()
    steps = {name: step for name, step in definition.steps.items() if name != STAND_IN}
    _files(drawn, steps)
    for step in steps.values():
        if step.kind != "output":
            drawn.cards.append(_step_card(step, STEPS, []))
        drawn.join([_key(read.column) for read in step.reads if read.column in steps], _key(step.name), "reads")
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
        drawn.cards.append(_card("file", key, "", _listed(texts), f"columns of the file: {', '.join(columns)}"))
        drawn.edges += [Edge(key, _key(name), "reads") for name in together]


def _column_text(read: Read) -> str:
    return f"{read.column} = {read.default!r}" if read.optional else read.column


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
    return _card(step.kind, _key(step.name), step.name, (*lines, *more), "\n".join(about), stage)


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
                border=REGION_COLOURS[number % len(REGION_COLOURS)],
                thick=2,
                radius=3,
                stripe=6,
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
        drawn.cards.append(_card("joint", "joint regions", "all regions", stage=JOINTS))
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
        about = "weight = " + " * ".join(weights)
        drawn.cards.append(_card("joint", key, "weight", ("product",), about, JOINTS))
        drawn.join([_key(name) for name in weights], key, "reads")
    drawn.join([products[weights]], _key(output.name), "reads")


def _saves(drawn: Picture, pipeline: Pipeline, definition: Definition) -> None:
    for number, save in enumerate(pipeline.saves):
        key = f"save {number}"
        made = [name for name in save.columns if name in definition.steps]
        regions = regions_named(save, definition.regions)
        more = () if regions else ("all rows, before any cut",)
        lines = ("saved", *_listed(save.columns), *more)
        about = f"saved to {save.path}: {', '.join(save.columns)}"
        drawn.cards.append(_card("save", key, save.path, lines, about, OUTPUTS))
        drawn.join([_key(name) for name in made], key, "reads")
        drawn.join([_region_key(name) for name in regions], key, "gives")


def _listed(texts: Sequence[str]) -> tuple[str, ...]:
    if len(texts) <= LIST_LINES:
        return tuple(texts)
    return (*texts[: LIST_LINES - 1], f"… {len(texts) - LIST_LINES + 1} more")
