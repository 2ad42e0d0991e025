"""Datasets added up and scaled: ``result.scale(...)`` normalises, ``result.group({...})`` makes the stack.

Both return a new result and leave the old one as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from windrow.errors import UnknownNameError, UsageError, alternatives
from windrow.pipeline.cutflow.nminus1 import NMinusOneTables
from windrow.pipeline.cutflow.table import Cutflow
from windrow.pipeline.results.histograms import map_histograms, scaled
from windrow.pipeline.results.merge import add_by_name, factors_of
from windrow.pipeline.results.region_rows import MEMBERS
from windrow.watch.report.outputs import histograms_in

if TYPE_CHECKING:
    from windrow.pipeline.results.result import Result


def group(result: Result, groups: Mapping[str, str | Sequence[str]]) -> Result:
    # The metadata that all members share is the group's. The ledger still tells files by dataset.
    members = _members(groups, tuple(result.outputs))
    parts = {
        name: [(result.outputs[dataset], result.not_kept.get(dataset, {})) for dataset in datasets]
        for name, datasets in members.items()
    }
    outputs, not_kept = add_by_name(parts, result.merges)
    return replace(
        result,
        outputs=outputs,
        not_kept=not_kept,
        cutflow=result.cutflow.changed(partial(_group_cutflow, members=members)),
        nminus1=NMinusOneTables(_group_tables(result.nminus1.tables, members)),
        initial={
            name: reduce(add, (result.initial[dataset] for dataset in datasets))
            for name, datasets in members.items()
            if all(dataset in result.initial for dataset in datasets)
        },
        scaled={
            name: {d: by for dataset in datasets for d, by in factors_of(result, dataset).items()}
            for name, datasets in members.items()
        },
        datasets={name: _group_metadata(name, datasets, result.datasets) for name, datasets in members.items()},
    )


def _members(groups: Mapping[str, str | Sequence[str]], datasets: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    if not isinstance(groups, Mapping):
        raise UsageError(f'group takes a mapping such as {{"top": ["tt*", "single_top"]}}, got {groups!r}')
    owner: dict[str, str] = {}
    members: dict[str, tuple[str, ...]] = {}
    for name, patterns in groups.items():
        found: list[str] = []
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            matching = [d for d in datasets if d == pattern or fnmatchcase(d, pattern)]
            if not matching:
                there = alternatives("datasets", pattern, datasets)
                raise UnknownNameError(f"group {name!r}: no dataset is called or matches {pattern!r}{there}")
            found += [dataset for dataset in matching if dataset not in found]
        if not found:
            raise UsageError(f"group {name!r} names no dataset")
        for dataset in found:
            if dataset in owner:
                raise UsageError(
                    f"dataset {dataset!r} is in two groups, {owner[dataset]!r} and {name!r}: it would be counted twice"
                )
            owner[dataset] = name
        members[name] = tuple(found)
    for dataset in datasets:
        if dataset not in owner:
            if dataset in members:
                raise UsageError(
                    f"group {dataset!r} is called as a dataset that is not in it; call it something else, or put "
                    "the dataset into it"
                )
            members[dataset] = (dataset,)
    return members


def _group_tables(
    tables: Mapping[tuple[str, str], Any], members: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for region in dict.fromkeys(region for region, _ in tables):
        for name, datasets in members.items():
            parts = [tables[region, d] for d in datasets if (region, d) in tables]
            if parts:
                found[region, name] = replace(reduce(add, parts), dataset=name)
    return found


def _group_cutflow(cutflow: Cutflow, members: Mapping[str, tuple[str, ...]]) -> Cutflow:
    return Cutflow(_group_tables(cutflow.tables, members))


def _group_metadata(name: str, datasets: tuple[str, ...], metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if datasets == (name,):
        return dict(metadata.get(name, {}))
    own = {dataset: dict(metadata.get(dataset, {})) for dataset in datasets}
    first, *others = own.values()
    shared = {
        key: value
        for key, value in first.items()
        if key != MEMBERS and all(key in other and other[key] == value for other in others)
    }
    return {**shared, MEMBERS: own}


# -- scaling -----------------------------------------------------------------------------------


def scale(result: Result, factor: float | Mapping[str, float] | Callable[[Mapping[str, Any], Result], float]) -> Result:
    # As if every entry had had another weight, also in mappings and lists; a count is still what was counted.
    factors = _factors(result, factor)
    unknown = {  # sums of weights without their squares
        (key[0], path)
        for values in result.outputs.values()
        for key, value in values.items()
        for path, histogram in histograms_in(value)
        if histogram.variances() is None
    }
    outputs: dict[str, dict[Any, Any]] = {}
    left: dict[str, None] = {}
    for dataset, values in result.outputs.items():
        outputs[dataset] = {}
        for key, value in values.items():
            if not any(True for _ in histograms_in(value)):
                left[key[0]] = None

            def change(path: Any, histogram: Any, name: str = key[0], by: float = factors[dataset]) -> Any:
                # All datasets get the same kind of histogram, so that they can still be added up.
                return scaled(histogram, by, variances=(name, path) not in unknown)

            outputs[dataset][key] = map_histograms(value, change)
    notes = ["scaled: " + ", ".join(f"{name} by {by:.6g}" for name, by in factors.items())]
    if left:
        notes.append(f"not scaled, because only histograms and weighted cutflows are: {', '.join(left)}")
    return replace(
        result,
        outputs=outputs,
        cutflow=result.cutflow.changed(partial(_scale_cutflow, factors=factors)),
        nminus1=NMinusOneTables({key: table.scaled(factors[key[1]]) for key, table in result.nminus1.tables.items()}),
        initial={name: count.scaled(factors[name]) for name, count in result.initial.items()},
        scaled={
            name: {d: before * by for d, before in factors_of(result, name).items()} for name, by in factors.items()
        },
        notes=(*result.notes, *notes),
    )


def _factors(result: Result, factor: Any) -> dict[str, float]:
    datasets = tuple(result.outputs)
    if isinstance(factor, Mapping):
        for name in factor:
            if name not in datasets:
                raise UnknownNameError(f"scale: no dataset {name!r}{alternatives('datasets', name, datasets)}")
        return {d: _number(factor.get(d, 1.0), d) for d in datasets}
    if callable(factor):
        return {d: _number(_ask_factor(factor, result, d), d) for d in datasets}
    return {d: _number(factor, d) for d in datasets}


def _ask_factor(function: Callable[..., Any], result: Result, dataset: str) -> Any:
    metadata = result.datasets.get(dataset, {})
    try:
        return function(metadata, only(result, dataset))
    except (KeyError, UnknownNameError, ZeroDivisionError) as error:
        raise UsageError(
            f"scale: the function fails for dataset {dataset!r}, {type(error).__name__}: {error} "
            f"(metadata: {', '.join(map(str, metadata)) or 'none'}; outputs: {', '.join(result)})"
        ) from error


def _number(value: Any, dataset: str) -> float:
    with suppress(TypeError, ValueError):
        if math.isfinite(number := float(value)):
            return number
    raise UsageError(
        f"scale: the factor for dataset {dataset!r} must be a finite number, got {type(value).__name__} {value!r:.60}"
    )


def _scale_cutflow(cutflow: Cutflow, factors: Mapping[str, float]) -> Cutflow:
    return Cutflow({key: table.scale(factors[key[1]]) for key, table in cutflow.tables.items()})


def only(result: Result, dataset: str) -> Result:
    extra = {key: table for key, table in result.nminus1.tables.items() if key[1] == dataset}
    tables = {key: table for key, table in result.cutflow.tables.items() if key[1] == dataset}
    return replace(
        result,
        outputs={dataset: result.outputs[dataset]},
        not_kept={dataset: result.not_kept.get(dataset, {})},
        cutflow=Cutflow(tables),
        nminus1=NMinusOneTables(extra),
        datasets={dataset: result.datasets.get(dataset, {})},
    )
