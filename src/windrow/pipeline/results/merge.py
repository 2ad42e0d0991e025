"""Adding up results of the same analysis over different rows: ``merge(a, b, ...)``.

Nothing may be counted twice, and nothing that means something else may be added: both are refused, saying what it is.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, cast

from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.program import NOMINAL
from windrow.core.intervals import Intervals
from windrow.errors import MergeError, UsageError
from windrow.pipeline.cutflow.regions import add_by_key
from windrow.pipeline.results.ledger import Entry, Ledger
from windrow.pipeline.results.region_rows import KeptRows
from windrow.pipeline.results.result import Result
from windrow.pipeline.resume.step_digest import different_steps

if TYPE_CHECKING:
    from windrow.data.base import Reader, Source
    from windrow.pipeline.cutflow.nminus1 import Count


Key = tuple[str, str | None, str]
Outputs = Mapping[Key, Any]
#: Outputs that were not kept, and why.
Lost = Mapping[Key, str]


def merge(*results: Result) -> Result:
    """Add results of one analysis over different rows, for instance of jobs that had different files.

    Raises if rows are in more than one of them, or if they are not of the same analysis.
    """
    wrong = [type(one).__name__ for one in cast("Sequence[Any]", results) if not isinstance(one, Result)]
    if wrong or not results:
        raise UsageError(f"merge takes results, got {', '.join(wrong) or 'none'}")
    first = results[0]
    for other in results[1:]:
        _check_same_analysis(first, other)
    for check in (_check_same_steps, _check_same_scale, _check_no_row_twice):
        check(results)
    if len(results) == 1:
        return replace(first)
    # One result may still have a merge= function that another one lost.
    merges = {name: None for result in results for name in result.merges}
    merges.update((name, function) for result in results for name, function in result.merges.items() if function)
    together: dict[str, Any] = {
        name: _distinct(getattr(result, name) for result in results)
        for name in ("order", "decisions", "notes", "guards")
    }
    for name in ("fingerprints", "parameters", "reasons_absent", "datasets"):
        together[name] = {k: v for result in results for k, v in getattr(result, name).items()}
    together |= {name: sum(getattr(one, name) for one in results) for name in ("bytes_read", "seconds", "tail_s")}
    environments = [result.environment for result in results]
    same = all(environment == environments[0] for environment in environments)
    parts: dict[str, list[tuple[Outputs, Lost]]] = defaultdict(list)
    for result in results:
        for dataset, values in result.outputs.items():
            parts[dataset].append((values, result.not_kept.get(dataset, {})))
    outputs, not_kept = add_by_name(parts, merges)
    sources = [result.source for result in results]
    scaled = dict.fromkeys(name for result in results for name in result.scaled)
    return replace(
        first,
        **together,
        outputs=outputs,
        not_kept=not_kept,
        merges=merges,
        initial=_initial(results),
        scaled={name: {k: v for one in results for k, v in one.scaled.get(name, {}).items()} for name in scaled},
        cutflow=reduce(add, (result.cutflow for result in results)),
        nminus1=reduce(add, (result.nminus1 for result in results)),
        ledger=_ledger(results),
        steps=add_by_key(result.steps for result in results),
        ordering={dataset: told for result in reversed(results) for dataset, told in result.ordering.items()},
        reads=[read for result in results for read in result.reads],
        account=add_by_key(result.account for result in results),
        **_chunks(results),
        engine=" and ".join(_distinct((result.engine,) for result in results)),
        workers=max(result.workers for result in results),
        interrupted=any(result.interrupted for result in results),
        source=None if None in sources else SeveralSources(sources),
        environment=environments[0] if same else {"merged": environments},
        log=None,
        rundir=None,
        kept=_kept(results),
        saved=tuple(file for result in results for file in result.saved),
    )


# -- what may be added ------------------------------------------------------------------------


def _check_same_analysis(first: Result, other: Result) -> None:
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
    for name, table in first.cutflow.items():
        if name in theirs:
            written = other.cutflow[name]
            pairs.append(("steps", table.written_order, written.written_order))
            pairs.append(("weights", tuple(sorted(table.weights)), tuple(sorted(written.weights))))
    for dataset in first.datasets:
        if dataset in other.datasets:
            left, right = first.datasets[dataset], other.datasets[dataset]
            pairs.append((f"metadata of dataset {dataset!r}", dict(left), dict(right)))
    for what, one, two in pairs:
        if one != two:
            raise UsageError(
                f"results of different analyses do not add up: these have different {what}, {_shown(one)} and {_shown(two)}"
            )


def _check_same_steps(results: Sequence[Result]) -> None:
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


def _check_same_scale(results: Sequence[Result]) -> None:
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


def _shown(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else repr(value)
    return text or "none"


def _check_no_row_twice(results: Sequence[Result]) -> None:
    """Compare by every name a file goes by: its label, its place and, where known, what it says it is."""
    taken: dict[tuple[str, str], list[tuple[int, int, int, str]]] = defaultdict(list)
    for number, result in enumerate(results):
        for entry, keys in _with_names(result):
            if entry.state == "done" and entry.rows:
                for key in keys:
                    taken[key].append((entry.start, entry.start + entry.rows, number, entry.file))
    for (dataset, _), ranges in taken.items():
        ranges.sort()
        ends: dict[int, int] = {}  # result -> where its rows end so far
        for start, stop, number, file in ranges:
            for other, end in ends.items():
                if other != number and end > start:
                    arrays = ". Arrays are known by the name of their dataset: give other arrays another one"
                    raise UsageError(
                        f"rows {start}-{min(end, stop)} of {file} (dataset {dataset!r}) are in results number "
                        f"{other + 1} and {number + 1}, so they would be counted twice; merge results of different rows"
                        + (arrays if file == dataset else "")
                    )
            ends[number] = max(ends.get(number, 0), stop)


def _with_names(result: Result) -> list[tuple[Entry, list[tuple[str, str]]]]:
    """Return the entries of a ledger, each with the names its file goes by, by dataset."""
    files = result.kept.files if result.kept is not None else ()
    identities = {(file.dataset, file.label): file.identity for file in files}
    found = []
    for entry in result.ledger.entries:
        names = {entry.file, identities.get((entry.dataset, entry.file), entry.file)}
        if os.path.exists(entry.file):  # noqa: PTH110 - a label may be anything, also a URL
            names.add(os.path.realpath(entry.file))
        found.append((entry, [(entry.dataset, name) for name in sorted(names)]))
    return found


# -- adding ------------------------------------------------------------------------------------


def add_outputs(
    parts: Sequence[Outputs], merges: Mapping[str, Any], not_kept: Sequence[Lost] = ()
) -> tuple[dict[Any, Any], dict[Key, str]]:
    """Add the outputs of datasets or results as the parts of a run are added; none of them is changed.

    ``merges`` has the functions of outputs that were given ``merge=``, None for one that was lost on disk. What one part
    has ``not_kept`` is in no sum; it is returned apart, with the reason.
    """
    gone = {key: why for lost in not_kept for key, why in lost.items()}
    for part, lost in zip(parts, not_kept, strict=False):
        for key in {key for other in parts for key in other}:
            nominal = (key[0], key[1], NOMINAL)
            # A part without this variation would add its nominal.
            if key not in part and nominal in lost:
                gone.setdefault(key, lost[nominal])
    parts = [{key: v for key, v in part.items() if key not in gone} for part in parts]
    leaves = [Leaf({key: _value(key, v, merges) for key, v in part.items()}, {}) for part in parts]
    total = leaves[0]
    for leaf in leaves[1:]:
        total = merge_leaves(total, leaf)
    return {key: value.value for key, value in total.outputs.items()}, gone


def _value(key: tuple[str, str | None, str], value: Any, merges: Mapping[str, Any]) -> Value:
    if key[0] not in merges:
        return Value(value, None)
    # A user's function may change what it is given.
    return Value(deepcopy(value), merges[key[0]] or _lost_function)


def _lost_function(_left: Any, _right: Any) -> Any:
    raise MergeError(
        "its merge= function was not kept on disk, or cannot be imported here; write it as a function of a module, and "
        "import that module before the result is loaded"
    )


def add_by_name(
    parts: Mapping[str, Sequence[tuple[Outputs, Lost]]], merges: Mapping[str, Any]
) -> tuple[dict[str, dict[Any, Any]], dict[str, dict[Key, str]]]:
    """Add the outputs of each dataset or group; what has one part alone stays as it is."""
    outputs: dict[str, dict[Any, Any]] = {}
    not_kept: dict[str, dict[Key, str]] = {}
    for name, mine in parts.items():
        values, lost = [value for value, _ in mine], [gone for _, gone in mine]
        added = add_outputs(values, merges, lost) if len(mine) > 1 else (dict(values[0]), dict(lost[0]))
        outputs[name], gone = added
        if gone:
            not_kept[name] = gone
    return outputs, not_kept


def _initial(results: Sequence[Result]) -> dict[str, Count]:
    """Add what all rows weigh; not of a dataset of which one result does not know."""
    unknown = {dataset for result in results for dataset in result.outputs if dataset not in result.initial}
    total = add_by_key(result.initial for result in results)
    return {dataset: count for dataset, count in total.items() if dataset not in unknown}


def _chunks(results: Sequence[Result]) -> dict[str, Any]:
    """Give of each dataset what chunks took together, and of their memory what the run says that needed most."""
    datasets = dict.fromkeys(name for result in results for name in result.predicted)
    memory = sorted((one for result in results for one in result.memory.items()), key=lambda one: one[1]["most"])
    return {
        "predicted": {name: add_by_key(one.predicted.get(name, {}) for one in results) for name in datasets},
        "memory": dict(memory),
    }


def _ledger(results: Sequence[Result]) -> Ledger:
    """What one result failed at or never got to is settled where another one did it."""
    told: dict[tuple[str, str], Intervals] = defaultdict(Intervals)  # rows accounted for
    opened: set[tuple[str, str]] = set()
    done: list[Entry] = []
    problems: list[tuple[Entry, list[tuple[str, str]]]] = []
    for entry, keys in (one for result in results for one in _with_names(result)):
        if entry.stop is not None:
            opened.update(keys)
        if entry.state != "done" or entry.stop is None:
            problems.append((entry, keys))
            continue
        done.append(entry)
        for key in keys:
            told[key].add(entry.start, entry.stop)
    left: list[Entry] = []
    for entry, keys in problems:
        if entry.stop is None:
            # The one that opened the file has accounted for its rows.
            if opened.isdisjoint(keys):
                left.append(entry)
                opened.update(keys)
            continue
        known = next((told[key] for key in keys if key in told), Intervals())
        for start, stop in list(known.gaps(entry.start, entry.stop)):
            left.append(replace(entry, start=start, stop=stop))
            for key in keys:
                told[key].add(start, stop)
    return Ledger(tuple(sorted([*done, *left], key=lambda e: (e.dataset, e.file, e.start))))


def _distinct(items: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for one in items for item in one))


# -- where the rows are ------------------------------------------------------------------------


class SeveralSources:
    """The sources of several results, one after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._places = [(source, item) for source in sources for item in source.inputs]
        self.inputs = tuple(replace(item, index=number) for number, (_, item) in enumerate(self._places))
        self.datasets = {name: meta for source in sources for name, meta in source.datasets.items()}

    def open(self, index: int) -> Reader:
        source, item = self._places[index]
        return source.open(item.index)


def _kept(results: Sequence[Result]) -> KeptRows | None:
    """Rows of all results; None where one of them kept none, as half of the rows would look like all."""
    if any(result.kept is None for result in results):
        return None
    files: list[Any] = []
    sets: dict[tuple[str, int], tuple[Any, ...]] = {}
    places: dict[tuple[str, str, str], int] = {}
    offset = 0
    for result in results:
        for position, file in enumerate(result.kept.files):
            key = (file.dataset, file.label, file.identity)
            if key not in places:
                places[key] = len(files)
                files.append(replace(file, index=file.index + offset))
            for region in result.kept.regions:
                where = (region, places[key])
                rows = (*sets.get(where, ()), *result.kept.sets.get((region, position), ()))
                if rows:
                    sets[where] = tuple(sorted(rows, key=lambda part: part.start))
        offset += len(result.source.inputs) if result.source is not None else 0
    return KeptRows(tuple(files), results[0].kept.regions, sets)
