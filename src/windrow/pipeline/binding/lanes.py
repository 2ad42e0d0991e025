"""Lanes: the selections a chunk carries, one for each region and a few hidden ones.

A hidden lane has some of a region's cuts: all but one for an N-1 count, the first few for a file of the rows that
passed so far. It costs what a region costs, and needs nothing new where steps run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from windrow.blocks.program import Lane
from windrow.errors import UnknownNameError, alternatives

if TYPE_CHECKING:
    from windrow.pipeline.definition.saves import SaveDefinition


def without_region(region: str, cut: str) -> str:
    """Name the hidden lane of a region's cuts but one; no user writes such a name."""
    return f"{region}\x1f-{cut}"


def prefix_region(region: str, cut: str) -> str:
    return f"{region}\x1f<{cut}"


def regions_without(asked: bool | Sequence[str], regions: Mapping[str, object]) -> tuple[str, ...]:
    if isinstance(asked, bool):
        return tuple(regions) if asked else ()
    for name in asked:
        if name not in regions:
            there = alternatives("regions", name, regions)
            raise UnknownNameError(f"nminus1= names the region {name!r}, which is not defined{there}")
    return tuple(asked)


def lanes_for(
    regions: Mapping[str, Mapping[str, bool]],
    active: Iterable[str],
    *,
    written: tuple[str, ...],
    nminus1: Sequence[str],
    saves: Sequence[SaveDefinition],
    all_rows: bool,
) -> list[Lane]:
    here = set(active)

    def lane(name: str, cuts: Mapping[str, bool], *, hidden: bool, optional: bool) -> Lane:
        existing = {cut: inverted for cut, inverted in cuts.items() if cut in here}
        return Lane(name, existing, cuts, hidden, optional)

    lanes = [lane(name, cuts, hidden=False, optional=False) for name, cuts in regions.items()]
    for region in nminus1:
        for cut in regions[region]:
            others = {name: side for name, side in regions[region].items() if name != cut}
            lanes.append(lane(without_region(region, cut), others, hidden=True, optional=True))
    for region in dict.fromkeys(str(save.region) for save in saves if save.by_cut):
        mine = regions[_only(region, regions)]
        order = [name for name in written if name in mine]
        for number, cut in enumerate(order, start=1):
            first = {name: mine[name] for name in order[:number]}
            name = prefix_region(_only(region, regions), cut)
            lanes.append(lane(name, first, hidden=True, optional=False))
    if all_rows:
        lanes.append(Lane(None, {}, {}))
    return lanes


def _only(region: str, regions: Mapping[str, object]) -> str:
    return next(iter(regions)) if region == "*" else region.strip()
