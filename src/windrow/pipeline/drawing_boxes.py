"""What a drawing of a pipeline shows: boxes for columns, steps, regions and outputs, and the lines between them.

File columns that the same steps read share a box, so that long lists stay short. No file is opened: what no step makes
comes from a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow.pipeline.desk import STAND_IN, definition_at_desk
from windrow.pipeline.drawing_layout import Edge
from windrow.pipeline.graph import matching_regions
from windrow.pipeline.saves import regions_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.steps import Read, StepDefinition

__all__ = ["Card", "Picture", "picture"]

#: Lines of a list in a box; the rest is counted, and named where the pointer rests on the box.
LIST_LINES = 9
#: Letters of a line.
LINE_LETTERS = 34

#: Lines from file columns that several steps read; where there are more, every step has a box of its own for them,
#: because nobody can follow so many.
SHARED_LINES = 30

#: From left to right, whatever the lines say.
STEPS, REGIONS, JOINTS, OUTPUTS = range(4)


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
    for output in outputs:
        more = ["all rows, before any cut"] if output.regions is None else []
        if output.takes_weight and not _factors(output, steps):
            more.append("unweighted")
        drawn.cards.append(_step_card(output, OUTPUTS, more))
        if joint and output.name in full:
            drawn.join(["joint regions"], _key(output.name), "gives")
        else:
            regions = [_region_key(name) for name in wanted[output.name]]
            drawn.join(regions, _key(output.name), "gives")
        _weighted(drawn, output, _factors(output, steps), products)


def _factors(output: StepDefinition, steps: dict[str, StepDefinition]) -> tuple[str, ...]:
    """Name the weights whose product an output is given."""
    if not output.takes_weight or output.weights is None:
        return ()
    every = "*" in output.weights
    names: list[str] = []
    for name, step in steps.items():
        if step.kind == "cut" and every and output.regions is None:
            break
        if step.kind == "weight" and (every or name in output.weights):
            names.append(name)
    return tuple(names)


def _weighted(
    drawn: Picture, output: StepDefinition, factors: tuple[str, ...], products: dict[tuple[str, ...], str]
) -> None:
    if len(factors) < 2:
        drawn.join([_key(name) for name in factors], _key(output.name), "reads")
        return
    if factors not in products:
        key = products[factors] = f"joint weight {len(products)}"
        drawn.cards.append(
            Card(
                key=key,
                kind="joint",
                name="weight",
                lines=("product",),
                about="weight = " + " * ".join(factors),
                stage=JOINTS,
            )
        )
        drawn.join([_key(name) for name in factors], key, "reads")
    drawn.join([products[factors]], _key(output.name), "reads")


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
