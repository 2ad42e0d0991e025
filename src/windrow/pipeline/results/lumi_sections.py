"""Which runs and luminosity sections were processed, in the form of certification files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import DataError, WindrowError
from windrow.hep.lumi import lumi_ranges
from windrow.pipeline.results.regroup import MEMBERS
from windrow.pipeline.results.sections import read_sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.pipeline.results.ledger import Ledger
    from windrow.pipeline.results.result import Result


def lumis(result: Result) -> dict[str, list[list[int]]]:
    """Read which (run, luminosityBlock) the processed rows have: ``{"1": [[1, 33], [40, 41]]}``, ready for ``json.dump``.

    Of recorded data only: where datasets say ``is_mc`` in their metadata, simulated ones are left out; where none says
    anything, all count. A skim says itself which sections it was made from: its rows are only those that were selected.
    """
    if result.source is None:
        raise DataError("what was read is not kept with this result, so its luminosity sections cannot be read")
    wanted = _recorded(result.datasets)
    places: dict[tuple[str, str], list[int]] = {}
    for item in result.source.inputs:
        places.setdefault((item.dataset, item.label), []).append(item.index)
    found: set[tuple[int, int]] = set()
    skims = {name: about["skim"] for name, about in _members(result.datasets) if isinstance(about.get("skim"), Mapping)}
    for name, skim in skims.items():
        if wanted.get(name, True):
            found |= _of_skim(name, skim, result.ledger)
    for entry in result.ledger.entries:
        if entry.state != "done" or entry.stop is None or not entry.rows:
            continue
        if entry.dataset in skims or not wanted.get(entry.dataset, True):
            continue
        index = places[entry.dataset, entry.file][0]
        try:
            pairs = read_sections(result.source, index, entry.start, entry.stop)
        except WindrowError as error:
            raise DataError(
                f"the luminosity sections of {entry.file} (dataset {entry.dataset!r}) cannot be read: {error}"
            ) from error
        found.update(map(tuple, pairs.tolist()))
    every = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
    return lumi_ranges(every[:, 0], every[:, 1])


def _of_skim(dataset: str, skim: Mapping[str, Any], ledger: Ledger) -> set[tuple[int, int]]:
    """Return the sections that a skim says it was made from, if all of it was processed."""
    what = f"the luminosity sections of dataset {dataset!r} cannot be told: it was read from a skim"
    hint = "the result of the run that wrote the skim has them"
    sections = skim.get("lumis")
    if sections is None:
        raise DataError(
            f"{what}, which does not say which sections it was made from, and those without a selected row are not in "
            f"it; {hint}"
        )
    entries = [entry for entry in ledger.entries if entry.dataset == dataset]
    done = sum(entry.rows for entry in entries if entry.state == "done")
    if any(entry.state != "done" for entry in entries) or done != skim.get("selected"):
        raise DataError(
            f"{what}, of which only {done:,} of {skim.get('selected')} rows were processed, and nobody knows which "
            f"sections belong to those; {hint}"
        )
    return {
        (int(run), section)
        for run, ranges in sections.items()
        for first, last in ranges
        for section in range(first, last + 1)
    }


def _recorded(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Say of each dataset whether its rows count; members of groups speak for themselves."""
    members = dict(_members(metadata))
    if not any("is_mc" in about for about in members.values()):
        return {}
    # Of several datasets of which some say that they are simulated, the others are not.
    return {name: not about.get("is_mc", False) for name, about in members.items()}


def _members(metadata: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, about in metadata.items():
        members = about.get(MEMBERS)
        if isinstance(members, dict):
            yield from _members(members)
        else:
            yield name, about
