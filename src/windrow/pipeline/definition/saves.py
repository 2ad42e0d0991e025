"""``analysis.save``: which rows and columns go to which file, as the user wrote it."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from windrow.blocks.program import BoundSave
from windrow.errors import DefinitionError, UnknownNameError, alternatives, nearest
from windrow.pipeline.binding.lanes import prefix_region

if TYPE_CHECKING:
    from windrow.blocks.program import Lane
    from windrow.data.base import FileInfo
    from windrow.pipeline.definition.definition import Definition, Regions, Steps


#: What ``region=`` is when it is left out: rows of any region.
EVERY_REGION = "*"

PLACES = ("dataset", "cut")
Format = Literal["parquet", "rntuple", "ttree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveDefinition:
    """One ``analysis.save``."""

    path: str  #: with {dataset} and perhaps {cut}
    columns: tuple[str, ...]  #: patterns
    region: str | None  #: "SR", "SR | CR", "*" for all; None: every row, before any cut
    format: Format
    tree: str

    @property
    def by_cut(self) -> bool:
        return "{cut}" in self.path

    def target(self, dataset: str, cut: str = "") -> Path:
        return Path(self.path.format(dataset=_file_name(dataset), cut=_file_name(cut)))


def define_save(
    path: Any,
    *,
    columns: str | Sequence[str],
    region: Any,
    format: str | None,  # noqa: A002 - the user's word
    tree: str,
) -> SaveDefinition:
    text = str(path)
    try:
        places = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise DefinitionError(f"save: {text!r} is no path with places: {error}") from None
    for place in places:
        if place not in PLACES:
            raise DefinitionError(f"save: {text!r} has a place {{{place}}}; there are {{dataset}} and {{cut}}")
    if region is not None and not isinstance(region, str):
        raise DefinitionError(f'save: region= is a region\'s name, "SR | CR" or None for all rows, got {region!r}')
    if "cut" in places and region is None:
        raise DefinitionError(f"save: {text!r} has a file for each cut, so region= must name one")
    patterns = (columns,) if isinstance(columns, str) else tuple(columns)
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise DefinitionError(f'save: columns= are names and patterns, for instance ["*", "-HLT_*"], got {columns!r}')
    return SaveDefinition(path=text, columns=patterns, region=region, format=_format(text, format), tree=tree)


def regions_named(save: SaveDefinition, regions: Regions) -> tuple[str, ...]:
    if save.region is None:
        return ()
    if save.region == EVERY_REGION:
        return tuple(regions)
    names = tuple(part.strip() for part in save.region.split("|"))
    for name in names:
        if name not in regions:
            there = alternatives("regions", name, regions)
            raise UnknownNameError(f"save {save.path!r} names the region {name!r}, which is not defined{there}")
    return names


def check_save(save: SaveDefinition, regions: Regions, steps: Steps) -> None:
    named = regions_named(save, regions)
    if save.by_cut and len(named) != 1:
        raise DefinitionError(
            f"save {save.path!r} has a file for each cut, so region= must name one region, not {save.region!r}"
        )
    if save.by_cut and not regions[named[0]]:
        raise DefinitionError(f"save {save.path!r} has a file for each cut, and region {named[0]!r} has no cuts")
    for pattern in save.columns:
        step = steps.get(pattern)
        if step is not None and step.kind in ("cut", "output"):
            raise DefinitionError(
                f"save {save.path!r} names {pattern!r}, which is a {step.kind}: columns and weights can be saved"
            )


def bind_saves(
    definition: Definition, dataset: str, info: FileInfo, active: Steps, lanes: Sequence[Lane]
) -> tuple[BoundSave, ...]:
    places = {lane.region: number for number, lane in enumerate(lanes)}
    bound: list[BoundSave] = []
    for save in definition.saves:
        columns, made = _chosen(save, info, active, definition)
        clash = [name for name in made if name in info.columns and name not in info.made]
        if clash:
            raise DefinitionError(
                f"column {clash[0]!r} has two makers: the step of that name, and the files of dataset {dataset!r}; "
                f"save {save.path!r} cannot mean both; rename the step"
            )
        if definition.identity:
            named = [name for name in definition.identity if name in info.columns]
            columns = tuple(dict.fromkeys([*named, *columns]))
        regions = regions_named(save, definition.regions)
        targets: list[tuple[str, tuple[int, ...], tuple[str, ...]]]
        if save.by_cut:
            targets = [
                (
                    str(save.target(dataset, cut)),
                    (places[prefix_region(regions[0], cut)],),
                    tuple(name for name in made if name in known),
                )
                for cut, known in known_after_cuts(definition, regions[0]).items()
            ]
        else:
            rows = tuple(places[name] for name in regions) if regions else (places[None],)
            targets = [(str(save.target(dataset)), rows, made)]
        for key, rows, mine in targets:
            place = definition.staging.get(str(Path(key).parent), "")
            bound.append(BoundSave(key, rows, columns, mine, not definition.identity, place))
    return tuple(bound)


def known_after_cuts(definition: Definition, region: str) -> dict[str, frozenset[str]]:
    """For each cut of a region: the columns and weights that are written above the next one."""
    cuts = [name for name in definition.written if name in definition.regions[region]]
    known = {}
    for cut, following in zip(cuts, [*cuts[1:], None], strict=True):
        end = None if following is None else definition.written.index(following)
        known[cut] = frozenset(definition.written[:end])
    return known


def _chosen(
    save: SaveDefinition, info: FileInfo, active: Steps, definition: Definition
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split what is to be saved into columns of the file and those that steps make.

    A step that does not exist for this dataset has no column in its file.
    """
    every = definition.steps.items()
    steps = {name for name, step in every if step.kind in ("column", "weight")}
    made: dict[str, None] = {}
    patterns = []
    for pattern in save.columns:
        if pattern in steps:
            if pattern in active:
                made[pattern] = None
        elif pattern.startswith("-") and pattern[1:] in steps:
            made.pop(pattern[1:], None)
        else:
            patterns.append(pattern)
    if not patterns:
        return (), tuple(made)
    from windrow.data.columns import choose

    return choose(patterns, info.columns, what=f"save {save.path!r}"), tuple(made)


def _format(path: str, given: str | None) -> Format:
    suffix = Path(path).suffix.lower()
    holds: dict[str, tuple[Format, ...]] = {".parquet": ("parquet",), ".root": ("rntuple", "ttree")}
    if suffix not in holds:
        raise DefinitionError(f"save: {path!r} ends in {suffix or 'nothing'!r}; files are .parquet or .root")
    for known in holds[suffix]:
        if given in (None, known):
            return known
    raise DefinitionError(
        f"save: {path!r} cannot hold format={given!r}, but {' or '.join(holds[suffix])}{nearest(str(given), holds[suffix])}"
    )


def _file_name(name: str) -> str:
    """Make a dataset's name fit for a file: it may contain a slash or begin with a dot."""
    kept = "".join("_" if letter in '/\\:*?"<>|' or ord(letter) < 32 else letter for letter in name)
    return kept.lstrip(".") or "_"
