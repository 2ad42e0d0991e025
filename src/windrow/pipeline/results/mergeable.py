"""What may be added up: results of one analysis, scaled alike, over different rows.

Nothing may be counted twice, and nothing that means something else may be added: both are refused, saying what it is.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.pipeline.fingerprints import different_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.pipeline.results.ledger import Entry
    from windrow.pipeline.results.result import Result


def check_same_analysis(first: Result, other: Result) -> None:
    """Refuse results whose names, regions, cuts, outputs or metadata differ."""
    pairs: list[tuple[str, Any, Any]] = [
        ("names", first.name, other.name),
        ("seeds", first.seed, other.seed),
        ("identity columns", first.identity, other.identity),
        ("outputs", first.output_names, other.output_names),
        ("regions with N-1 tables", tuple(first.nminus1), tuple(other.nminus1)),
    ]
    mine, theirs = _regions(first), _regions(other)
    pairs.append(("regions", tuple(mine), tuple(theirs)))
    pairs += [(f"cuts of region {name!r}", mine[name], theirs[name]) for name in mine if name in theirs]
    ours, yours = _steps_written(first), _steps_written(other)
    if ours is not None and yours is not None:
        pairs.append(("steps", *ours[:1], *yours[:1]))
        pairs.append(("weights", *ours[1:], *yours[1:]))
    for dataset in first.datasets:
        if dataset in other.datasets:
            left, right = first.datasets[dataset], other.datasets[dataset]
            pairs.append((f"metadata of dataset {dataset!r}", dict(left), dict(right)))
    for what, one, two in pairs:
        if one != two:
            raise UsageError(
                f"results of different analyses do not add up: these have different {what}, {_shown(one)} and {_shown(two)}"
            )


def check_same_steps(results: Sequence[Result]) -> None:
    """Refuse steps of one name that are not the same; results that do not say what their steps are, are believed."""
    known = [(n, result) for n, result in enumerate(results, 1) if result.fingerprints]
    for number, other in known[1:]:
        first, one = known[0]
        parameters = (one.parameters, other.parameters)
        found = different_steps(one.fingerprints, other.fingerprints, parameters)
        if found:
            raise UsageError(
                f"results of different analyses do not add up: of results number {first} and {number}, "
                f"{'; '.join(found)}; run one of them again with the other's analysis"
            )


def check_same_scale(results: Sequence[Result]) -> None:
    """Refuse a dataset that was scaled in one result and not, or by another number, in another."""
    known: dict[tuple[str, str], tuple[int, float]] = {}  # what it is called, dataset -> result, factor
    for number, result in enumerate(results, 1):
        for name in result.outputs:
            for dataset, factor in factors_of(result, name).items():
                other, before = known.setdefault((name, dataset), (number, factor))
                if before != factor:
                    raise UsageError(
                        f"dataset {dataset!r} was scaled by {before:.6g} in result number {other} and by {factor:.6g} in "
                        f"number {number} (1: not scaled), so they do not add up: merge the results as they came from "
                        "their runs, then scale the merged one"
                    )


def factors_of(result: Result, name: str) -> Mapping[str, float]:
    """Return what a dataset, or each member of a group, was scaled by."""
    return result.scaled.get(name) or {name: 1.0}


def _regions(result: Result) -> dict[str, list[str]]:
    # In the order they are written: cuts in another order are another cutflow.
    return {
        region: [f"!{cut}" if inverted else cut for cut, inverted in table.cuts.items()]
        for region, table in result.cutflow.items()
    }


def _steps_written(result: Result) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    for table in result.cutflow.values():
        return table.written_order, tuple(sorted(table.weights))
    return None


def _shown(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else repr(value)
    return text or "none"


def check_no_row_twice(results: Sequence[Result]) -> None:
    """Compare by every name a file goes by: its label, its place and, where known, what it says it is."""
    taken: dict[tuple[str, str], list[tuple[int, int, int, str]]] = defaultdict(list)
    for number, result in enumerate(results):
        names = FileNames(result)
        for entry in result.ledger.entries:
            if entry.state == "done" and entry.stop is not None and entry.rows:
                for name in names.of(entry):
                    taken[entry.dataset, name].append((entry.start, entry.stop, number, entry.file))
    for (dataset, _), ranges in taken.items():
        ranges.sort()
        ends: dict[int, int] = {}  # result -> where its rows end so far
        for start, stop, number, file in ranges:
            for other, end in ends.items():
                if other != number and end > start:
                    raise UsageError(
                        f"rows {start}-{min(end, stop)} of {file} (dataset {dataset!r}) are in results number "
                        f"{other + 1} and {number + 1}, so they would be counted twice; merge results of different rows"
                        + _about_arrays(file, dataset)
                    )
            ends[number] = max(ends.get(number, 0), stop)


def _about_arrays(file: str, dataset: str) -> str:
    if file != dataset:
        return ""
    return ". Arrays are known by the name of their dataset: give other arrays another one"


class FileNames:
    """The names a result's files go by."""

    def __init__(self, result: Result) -> None:
        files = result.kept.files if result.kept is not None else ()
        self._identities = {(file.dataset, file.label): file.identity for file in files}

    def of(self, entry: Entry) -> set[str]:
        """Return those of the file of an entry."""
        names = {entry.file}
        identity = self._identities.get((entry.dataset, entry.file))
        if identity is not None:
            names.add(identity)
        if os.path.exists(entry.file):  # noqa: PTH110 - a label may be anything, also a URL
            names.add(os.path.realpath(entry.file))
        return names
