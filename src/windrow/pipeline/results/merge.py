"""Adding up results of the same analysis over different rows: ``merge(a, b, ...)``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.program import NOMINAL
from windrow.core.intervals import Intervals
from windrow.errors import MergeError, UsageError
from windrow.pipeline.results.ledger import Entry, Ledger
from windrow.pipeline.results.mergeable import (
    FileNames,
    check_no_row_twice,
    check_same_analysis,
    check_same_scale,
    check_same_steps,
)
from windrow.pipeline.results.region_rows import KeptRows
from windrow.pipeline.results.result import Result, StepSummary

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.data.base import Input, Reader
    from windrow.pipeline.cutflow.nminus1 import Count


Key = tuple[str, str | None, str]
Outputs = Mapping[Key, Any]
#: Outputs that were not kept, and why.
Lost = Mapping[Key, str]


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
        check_same_analysis(first, other)
    check_same_steps(results)
    check_same_scale(results)
    check_no_row_twice(results)
    if len(results) == 1:
        return replace(first)
    merges = _merges(results)
    cutflow, nminus1 = first.cutflow, first.nminus1
    for other in results[1:]:
        cutflow, nminus1 = cutflow + other.cutflow, nminus1 + other.nminus1
    environments = [result.environment for result in results]
    same = all(environment == environments[0] for environment in environments)
    outputs, not_kept = _outputs(results, merges)
    return replace(
        first,
        outputs=outputs,
        not_kept=not_kept,
        merges=merges,
        initial=_initial(results),
        scaled=_scaled(results),
        fingerprints={n: digest for result in results for n, digest in result.fingerprints.items()},
        parameters={n: said for result in results for n, said in result.parameters.items()},
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


# -- adding ------------------------------------------------------------------------------------


def add_outputs(
    parts: Sequence[Outputs], merges: Mapping[str, Any], not_kept: Sequence[Lost] = ()
) -> tuple[dict[Any, Any], dict[Key, str]]:
    """Add the outputs of datasets or results as the parts of a run are added; none of them is changed.

    ``merges`` has the functions of outputs that were given ``merge=``, None for one that was lost on disk. What one part
    has ``not_kept`` is in no sum; it is returned apart, with the reason.
    """
    gone = _gone(parts, not_kept)
    parts = [{key: v for key, v in part.items() if key not in gone} for part in parts]
    leaves = [Leaf({key: _value(key, v, merges) for key, v in part.items()}, {}) for part in parts]
    total = leaves[0]
    for leaf in leaves[1:]:
        total = merge_leaves(total, leaf)
    return {key: value.value for key, value in total.outputs.items()}, gone


def _gone(parts: Sequence[Outputs], not_kept: Sequence[Lost]) -> dict[Key, str]:
    """Return the outputs that one of the parts has lost."""
    gone = {key: why for lost in not_kept for key, why in lost.items()}
    for part, lost in zip(parts, not_kept, strict=False):
        for key in {key for other in parts for key in other}:
            nominal = (key[0], key[1], NOMINAL)
            # A part without this variation would add its nominal.
            if key not in part and nominal in lost:
                gone.setdefault(key, lost[nominal])
    return gone


def _value(key: tuple[str, str | None, str], value: Any, merges: Mapping[str, Any]) -> Value:
    if key[0] not in merges:
        return Value(value, None)
    function: Callable[[Any, Any], Any] | None = merges[key[0]]
    if function is None:
        name = key[0]

        def function(_left: Any, _right: Any) -> Any:
            raise MergeError(
                f"its merge= function was not kept on disk, or cannot be imported here; write it as a function "
                f"of a module, and import that module before the result is loaded ({name!r})"
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


def _outputs(
    results: Sequence[Result], merges: Mapping[str, Any]
) -> tuple[dict[str, dict[Any, Any]], dict[str, dict[Key, str]]]:
    outputs: dict[str, dict[Any, Any]] = {}
    not_kept: dict[str, dict[Key, str]] = {}
    for dataset in dict.fromkeys(name for result in results for name in result.outputs):
        parts = [result for result in results if dataset in result.outputs]
        outputs[dataset], gone = add_outputs(
            [part.outputs[dataset] for part in parts], merges, [part.not_kept.get(dataset, {}) for part in parts]
        )
        if gone:
            not_kept[dataset] = gone
    return outputs, not_kept


def _scaled(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """The factors of all; a group may have other members in another result."""
    found: dict[str, dict[str, float]] = {}
    for result in results:
        for name, factors in result.scaled.items():
            found.setdefault(name, {}).update(factors)
    return found


def _initial(results: Sequence[Result]) -> dict[str, Count]:
    """What all rows weigh, of datasets of which every result knows it."""
    found: dict[str, Count] = {}
    for dataset in dict.fromkeys(name for result in results for name in result.initial):
        parts = [result for result in results if dataset in result.outputs]
        if all(dataset in part.initial for part in parts):
            found[dataset] = reduce(add, (part.initial[dataset] for part in parts))
    return found


def _ledger(results: Sequence[Result]) -> Ledger:
    """What one result failed at or never got to is settled where another one did it."""
    told: dict[tuple[str, str], Intervals] = defaultdict(Intervals)  # rows accounted for
    opened: set[tuple[str, str]] = set()
    names = [FileNames(result) for result in results]
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
