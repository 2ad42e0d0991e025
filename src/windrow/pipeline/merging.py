"""Adding up results of the same analysis over different rows: ``merge(a, b, ...)``.

Nothing may be counted twice, and nothing that means something else may be added: both are refused, saying what it is.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.core.intervals import Intervals
from windrow.errors import MergeError, UsageError
from windrow.pipeline.kept import KeptRows
from windrow.pipeline.ledger import Entry, Ledger
from windrow.pipeline.result import Result, StepSummary

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.data.base import Input, Reader

__all__ = ["SeveralSources", "add_outputs", "merge"]

Outputs = Mapping[tuple[str, str | None, str], Any]


def merge(*results: Result) -> Result:
    """Add results of one analysis over different rows, for instance of jobs that had different files.

    Raises if rows are in more than one of them, or if they are not of the same analysis.
    """
    for result in results:
        if not isinstance(result, Result):
            raise UsageError(f"merge takes results, got {type(result).__name__} {result!r:.60}")
    if not results:
        raise UsageError("merge takes results, got none")
    first = results[0]
    for other in results[1:]:
        _check_same_analysis(first, other)
    _check_no_row_twice(results)
    if len(results) == 1:
        return replace(first)
    merges = _merges(results)
    cutflow, nminus1 = first.cutflow, first.nminus1
    for other in results[1:]:
        cutflow, nminus1 = cutflow + other.cutflow, nminus1 + other.nminus1
    environments = [result.environment for result in results]
    same = all(environment == environments[0] for environment in environments)
    return replace(
        first,
        outputs=_outputs(results, merges),
        merges=merges,
        cutflow=cutflow,
        nminus1=nminus1,
        ledger=_ledger(results),
        steps=_steps(results),
        order=_distinct(result.order for result in results),
        decisions=_distinct(result.decisions for result in results),
        notes=_distinct(result.notes for result in results),
        guards=_distinct(result.guards for result in results),
        reads=[read for result in results for read in result.reads],
        bytes_read=sum(result.bytes_read for result in results),
        seconds=sum(result.seconds for result in results),
        engine=" and ".join(_distinct((result.engine,) for result in results)),
        workers=max(result.workers for result in results),
        interrupted=any(result.interrupted for result in results),
        reasons_absent={k: v for result in results for k, v in result.reasons_absent.items()},
        datasets={name: meta for result in results for name, meta in result.datasets.items()},
        source=_sources(results),
        environment=environments[0] if same else {"merged": environments},
        log=None,
        rundir=None,
        kept=_kept(results),
        saved=tuple(file for result in results for file in result.saved),
    )


# -- what may be added -------------------------------------------------------------------------


def _check_same_analysis(first: Result, other: Result) -> None:
    pairs: list[tuple[str, Any, Any]] = [
        ("names", first.name, other.name),
        ("seeds", first.seed, other.seed),
        ("identity columns", first.identity, other.identity),
        ("outputs", first.output_names, other.output_names),
        ("regions with N-1 tables", tuple(first.nminus1), tuple(other.nminus1)),
    ]
    mine, theirs = _regions(first), _regions(other)
    pairs.append(("regions", tuple(mine), tuple(theirs)))
    pairs += [
        (f"cuts of region {name!r}", mine[name], theirs[name]) for name in mine if name in theirs
    ]
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


def _check_no_row_twice(results: Sequence[Result]) -> None:
    """Compare by every name a file goes by: its label, its place and, where known, what it says it is."""
    taken: dict[tuple[str, str], list[tuple[int, int, int, str]]] = defaultdict(list)
    for number, result in enumerate(results):
        names = _FileNames(result)
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


class _FileNames:
    """The names a result's files go by."""

    def __init__(self, result: Result) -> None:
        files = result.kept.files if result.kept is not None else ()
        self._identities = {(file.dataset, file.label): file.identity for file in files}

    def of(self, entry: Entry) -> set[str]:
        names = {entry.file}
        identity = self._identities.get((entry.dataset, entry.file))
        if identity is not None:
            names.add(identity)
        if os.path.exists(entry.file):  # noqa: PTH110 - a label may be anything, also a URL
            names.add(os.path.realpath(entry.file))
        return names


# -- adding ------------------------------------------------------------------------------------


def add_outputs(parts: Sequence[Outputs], merges: Mapping[str, Any]) -> dict[Any, Any]:
    """Add the outputs of datasets or results as the parts of a run are added; none of them is changed.

    ``merges`` has the functions of outputs that were given ``merge=``, None for one that was lost on disk.
    """
    leaves = [Leaf({key: _value(key, v, merges) for key, v in part.items()}, {}) for part in parts]
    total = leaves[0]
    for leaf in leaves[1:]:
        total = merge_leaves(total, leaf)
    return {key: value.value for key, value in total.outputs.items()}


def _value(key: tuple[str, str | None, str], value: Any, merges: Mapping[str, Any]) -> Value:
    if key[0] not in merges:
        return Value(value, None)
    function: Callable[[Any, Any], Any] | None = merges[key[0]]
    if function is None:
        name = key[0]

        def function(_left: Any, _right: Any) -> Any:
            raise MergeError(
                f"its merge= function has no name and was not kept on disk; write it as a function of a module ({name!r})"
            )

    # A user's function may change what it is given.
    return Value(deepcopy(value), function)


def _merges(results: Sequence[Result]) -> dict[str, Any]:
    """How outputs with a merge= of their own are added; one result may still have what another lost."""
    found: dict[str, Any] = {}
    for result in results:
        for name, function in result.merges.items():
            found[name] = found.get(name) or function
    return found


def _outputs(results: Sequence[Result], merges: Mapping[str, Any]) -> dict[str, dict[Any, Any]]:
    by_dataset: dict[str, list[Outputs]] = defaultdict(list)
    for result in results:
        for dataset, values in result.outputs.items():
            by_dataset[dataset].append(values)
    return {dataset: add_outputs(parts, merges) for dataset, parts in by_dataset.items()}


def _ledger(results: Sequence[Result]) -> Ledger:
    """What one result failed at or never got to is settled where another one did it."""
    told: dict[tuple[str, str], Intervals] = defaultdict(Intervals)  # rows accounted for
    opened: set[tuple[str, str]] = set()
    names = [_FileNames(result) for result in results]
    done: list[Entry] = []
    problems: list[tuple[Entry, list[tuple[str, str]]]] = []
    for number, result in enumerate(results):
        for entry in result.ledger.entries:
            keys = [(entry.dataset, name) for name in sorted(names[number].of(entry))]
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


def _steps(results: Sequence[Result]) -> dict[str, StepSummary]:
    found: dict[str, list[StepSummary]] = defaultdict(list)
    for result in results:
        for name, step in result.steps.items():
            found[name].append(step)
    return {name: _add_steps(steps) for name, steps in found.items()}


def _add_steps(steps: Sequence[StepSummary]) -> StepSummary:
    calls, rows = sum(s.calls for s in steps), sum(s.rows_in for s in steps)
    return StepSummary(
        name=steps[0].name,
        kind=steps[0].kind,
        calls=calls,
        rows_in=rows,
        rows_out=sum(s.rows_out for s in steps),
        seconds=sum(s.seconds for s in steps),
        fixed_s=sum(s.fixed_s * s.calls for s in steps) / max(calls, 1),
        per_row_s=sum(s.per_row_s * s.rows_in for s in steps) / max(rows, 1),
        bytes_read=sum(s.bytes_read for s in steps),
    )


def _distinct(items: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for one in items for item in one))


# -- where the rows are ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SeveralSources:
    """The sources of several results, one after the other."""

    sources: tuple[Any, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """All files, numbered through."""
        found = [item for source in self.sources for item in source.inputs]
        return tuple(replace(item, index=number) for number, item in enumerate(found))

    @property
    def datasets(self) -> Mapping[str, Mapping[str, Any]]:
        """Metadata of all datasets."""
        return {name: meta for source in self.sources for name, meta in source.datasets.items()}

    def open(self, index: int) -> Reader:
        """Open one of them."""
        for source in self.sources:
            if index < len(source.inputs):
                reader: Reader = source.open(index)
                return reader
            index -= len(source.inputs)
        raise IndexError(index)


def _sources(results: Sequence[Result]) -> Any:
    if any(result.source is None for result in results):
        return None
    return SeveralSources(tuple(result.source for result in results))


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
