"""A pipeline frozen for one run, and what follows from its steps alone: regions, dependencies, the written order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from windrow.blocks.fetch_ahead import AccessLog
from windrow.errors import DefinitionError, UnknownNameError, alternatives

if TYPE_CHECKING:
    from windrow.blocks.kernels import EachKernel
    from windrow.pipeline.definition.saves import SaveDefinition
    from windrow.pipeline.definition.steps import StepDefinition
    from windrow.pipeline.pipeline import Pipeline

    Steps = Mapping[str, StepDefinition]
    Regions = Mapping[str, Mapping[str, bool]]  #: region -> cut -> inverted

#: The region there is when none was declared.
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A pipeline frozen for one run."""

    name: str
    steps: Steps
    regions: Regions
    written: tuple[str, ...]  #: the written order of cuts, columns and weights
    identity: tuple[str, ...]
    seed: int
    unchecked: set[str]  #: steps not yet shown to be row-pure; shrinks
    touched: dict[str, frozenset[str]]  #: fields of collections each step was seen to touch; grows
    access: AccessLog = field(default_factory=AccessLog)  #: what chunks need over slow links
    sample_rows: int | None = None
    kernels: dict[Any, EachKernel]  #: compiled once for all programs of a pipeline
    saves: tuple[SaveDefinition, ...] = ()
    nminus1: tuple[str, ...] = ()  #: regions to count with one cut left out
    #: directory of saved files -> where they are until they are complete
    staging: Mapping[str, str] = field(default_factory=dict)
    keep_rows: bool = False  #: whether the result says which rows each region has


def regions_of(steps: Steps, declared: Regions) -> dict[str, dict[str, bool]]:
    if declared:
        return {name: dict(cuts) for name, cuts in declared.items()}
    return {ALL: {name: False for name, step in steps.items() if step.kind == "cut"}}


def matching_regions(output: StepDefinition, regions: Iterable[str]) -> tuple[str, ...]:
    patterns = output.regions or ()
    return tuple(r for r in regions if any(fnmatchcase(r, pattern) for pattern in patterns))


def check_definitions(pipeline: str, steps: Steps, regions: Regions, *, needs_output: bool = True) -> None:
    if needs_output and not any(step.kind == "output" for step in steps.values()):
        raise DefinitionError(
            f"pipeline {pipeline!r} has no output, so running it would give nothing: add one with "
            "@analysis.output, for instance a histogram or a count"
        )
    cuts = [name for name, step in steps.items() if step.kind == "cut"]
    for region, members in regions.items():
        for cut in members:
            _known_cut(f"region {region!r}", cut, cuts, steps)
    weights = [name for name, step in steps.items() if step.kind == "weight"]
    for step in steps.values():
        for cut in step.after:
            _known_cut(f"after= of {step.kind} {step.name!r}", cut, cuts, steps)
        if step.kind == "output":
            _check_output(step, regions, weights)
        for read in step.reads:
            _refuse_non_column(step, read.column, steps)
    written_order(steps)


def dependencies(steps: Steps) -> dict[str, tuple[str, ...]]:
    made = {name for name, step in steps.items() if step.kind == "column"}
    return {
        name: tuple(dict.fromkeys([r.column for r in step.reads if r.column in made] + list(step.after)))
        for name, step in steps.items()
        if step.kind != "output"
    }


def with_all_they_read(steps: Steps, names: Iterable[str]) -> set[str]:
    """Give some of the steps together with all that they read, however far above."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in steps and name not in found:
            found.add(name)
            waiting += [read.column for read in steps[name].reads]
    return found


def before_first_cut(steps: Steps, weights: Iterable[str]) -> list[str]:
    names = list(steps)
    cuts = [number for number, name in enumerate(names) if steps[name].kind == "cut"]
    above = set(names[: cuts[0]] if cuts else names)
    return [name for name in weights if name in above]


def factors(steps: Steps, output: str, region: str | None, weights: Sequence[str]) -> tuple[str, ...]:
    """Return the factors of the weight that an output is given; ``weights`` are those that exist for a dataset."""
    step = steps[output]
    if not step.takes_weight or step.weights is None:
        return ()
    # A factor that is named is never left out; what "all" means depends on where the output stands.
    every = "*" in step.weights
    allowed = before_first_cut(steps, weights) if region is None and every else weights
    return tuple(name for name in allowed if every or name in step.weights)


def written_order(steps: Steps) -> tuple[str, ...]:
    """Return the order of definition; a column that is read above its definition moves up to its first reader."""
    needs = dependencies(steps)
    order: list[str] = []
    state: dict[str, bool] = {}  # False: being placed, True: placed

    def place(name: str, path: tuple[str, ...]) -> None:
        if state.get(name):
            return
        if name in state:
            ring = " -> ".join([*path[path.index(name) :], name])
            raise DefinitionError(
                f"steps depend on each other in a circle: {ring}; a step can only read columns made without it"
            )
        state[name] = False
        for need in needs[name]:
            place(need, (*path, name))
        state[name] = True
        order.append(name)

    for name in needs:
        place(name, ())
    return tuple(order)


def _known_cut(where: str, cut: str, cuts: list[str], steps: Steps) -> None:
    if cut in cuts:
        return
    if cut in steps:
        raise DefinitionError(f"{where} names {cut!r}, which is a {steps[cut].kind}, not a cut")
    raise UnknownNameError(f"{where} names the cut {cut!r}, which is not defined{alternatives('cuts', cut, cuts)}")


def _check_output(output: StepDefinition, regions: Regions, weights: list[str]) -> None:
    for pattern in output.regions or ():
        if not any(fnmatchcase(region, pattern) for region in regions):
            there = alternatives("regions", pattern, regions)
            raise UnknownNameError(f"output {output.name!r} names the region {pattern!r}, which is not defined{there}")
    for name in output.weights or ():
        if name != "*" and name not in weights:
            there = alternatives("weights", name, weights)
            raise UnknownNameError(f"output {output.name!r} names the weight {name!r}, which is not defined{there}")


def _refuse_non_column(step: StepDefinition, column: str, steps: Steps) -> None:
    other = steps.get(column)
    if column == "weight" and step.takes_weight:
        return
    if other is not None and other.kind != "column":
        raise DefinitionError(
            f"{step.kind} {step.name!r} reads {column!r}, which is a {other.kind}: only columns can be read; make it a "
            "column and let both read that"
        )
    if other is step:
        raise DefinitionError(
            f"column {column!r} has two makers: the step of that name reads a column of the same name; call the new one "
            f"something else, for instance '{column}_corrected'"
        )


def describe(pipeline: Pipeline) -> str:
    definition = pipeline.definition(0)
    lines = [f"pipeline {pipeline.name!r}"]
    for step in definition.steps.values():
        reads = ", ".join(
            read.column + (f" (default {read.default!r})" if read.optional else "") for read in step.reads
        )
        text = f"  {step.kind} {step.name}: reads {reads or 'no column'}"
        if step.when is not None:
            text += f", when {step.when.text}"
        if step.after:
            text += f", after {', '.join(step.after)}"
        lines.append(text)
    for name, cuts in definition.regions.items():
        members = " and ".join(("not " if inverted else "") + cut for cut, inverted in cuts.items())
        lines.append(f"  region {name}: {members or 'all rows'}")
    for save in pipeline.saves:
        rows = "all rows" if save.region is None else f"rows of region {save.region}"
        lines.append(f"  save {save.path}: {rows}, columns {', '.join(save.columns)}")
    lines += [f"  guard: {step} runs after {cut} (learned)" for step, cut in sorted(pipeline.guards)]
    return "\n".join(lines)


# -- products: what a run makes, in parts that can be kept --------------------------------------


class Product(NamedTuple):
    """One thing that a run makes for a dataset."""

    kind: Literal["output", "cutflow", "ends", "save"]
    name: str = ""
    region: str | None = None

    @property
    def said(self) -> str:
        where = "" if self.region is None else f" in region {self.region!r}"
        what = {"ends": "the sums of all lanes", "cutflow": "the cutflow"}.get(self.kind, f"{self.kind} {self.name!r}")
        return f"{what}{where}"


def products_of(definition: Definition) -> tuple[Product, ...]:
    found = [Product("cutflow", "", region) for region in definition.regions]
    for step in definition.steps.values():
        if step.kind == "output":
            regions: tuple[str | None, ...] = (None,)
            if step.regions is not None:
                regions = matching_regions(step, definition.regions)
            found += [Product("output", step.name, region) for region in regions]
    if definition.saves or definition.nminus1:
        found.append(Product("ends"))
    return (*found, *(Product("save", save.path) for save in definition.saves))


def classes(
    parts: Sequence[frozenset[Product] | None], everything: Iterable[Product]
) -> list[tuple[frozenset[Product], tuple[int, ...]]]:
    groups: dict[tuple[int, ...], list[Product]] = {}
    for product in everything:
        where = tuple(number for number, mine in enumerate(parts) if mine is None or product in mine)
        groups.setdefault(where, []).append(product)
    return [(frozenset(products), where) for where, products in groups.items() if where]
