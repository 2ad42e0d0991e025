"""``result.compare(other)``: which outputs, cutflow lines and rows are not the same in two runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import UsageError, WindrowError
from windrow.pipeline.results.region_rows import done_rows, read_rows
from windrow.pipeline.results.result import Result
from windrow.random import identity_hash
from windrow.watch.report.outputs import is_histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Sums of weights that are this close may have been added in another order.
ROUNDING = 1e-12

#: What differs between two values: in words, absolutely and relatively; None where it is no matter of numbers.
Difference = tuple[str, float | None, float | None]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An output that is not the same in two results."""

    dataset: str
    output: str
    region: str | None
    variation: str
    what: str  #: in words
    absolute: float | None = None  #: the largest difference of two numbers
    relative: float | None = None  #: the largest one, relative to the larger number

    @property
    def rounding(self) -> bool:
        """Whether it may be the order of additions alone."""
        return self.relative is not None and self.relative < ROUNDING

    def __str__(self) -> str:
        where = "" if self.region is None else f" in {self.region}"
        shift = "" if self.variation == "nominal" else f", {self.variation}"
        note = " (rounding)" if self.rounding else ""
        return f"{self.output}{where} ({self.dataset}{shift}): {self.what}{note}"


@dataclass(frozen=True, slots=True)
class LineDifference:
    """A line of a cutflow that is not the same in two results; None where one has no such line."""

    region: str
    dataset: str
    cut: str
    first: int | None  #: rows that passed
    second: int | None
    sumw: tuple[float, float] | None = None  #: sums of weights, where only they differ

    def __str__(self) -> str:
        if self.sumw is not None:
            text = f"weighted {self.sumw[0]:.10g} -> {self.sumw[1]:.10g}"
        else:
            one, two = ("none" if n is None else f"{n:,}" for n in (self.first, self.second))
            text = f"{one} -> {two}"
        return f"{self.region} ({self.dataset}) {self.cut}: {text}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two results; ``print`` it, or look at its parts."""

    outputs: tuple[OutputDifference, ...]
    cutflow: tuple[LineDifference, ...]
    changed: int | None  #: how many times a row left or entered a region; None where rows could not be compared
    by_region: Mapping[str, Sequence[int]]  #: region -> rows that left it, rows that entered it
    rows: tuple[ChangedRow, ...]  #: the first that changed side, with their identity where it could be read
    notes: tuple[str, ...]  #: what could not be compared, and why

    @property
    def same(self) -> bool:
        """Whether outputs, cutflows and rows are equal, outputs to the last bit."""
        return not (self.outputs or self.cutflow or self.changed)

    def __str__(self) -> str:
        if self.same:
            text = ["the results are the same"]
        else:
            text = [f"{len(self.outputs)} outputs differ"]
            text += [f"  {difference}" for difference in self.outputs]
            text.append(f"{len(self.cutflow)} cutflow lines differ")
            text += [f"  {difference}" for difference in self.cutflow]
        return "\n".join([*text, *self._row_lines(), *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _row_lines(self) -> Iterator[str]:
        """Say how much changed; a row that goes from one region to another leaves one and enters one."""
        if self.changed is None:
            return
        times = "once" if self.changed == 1 else f"{self.changed:,} times"
        yield f"rows changed side: one left or entered a region {times}" if self.changed else "no row changed side"
        for region, (left, entered) in self.by_region.items():
            if left or entered:
                yield f"  {region}: {left:,} left, {entered:,} entered"
        yield from (f"  {row}" for row in self.rows)
        if self.changed > len(self.rows):
            yield f"  and {self.changed - len(self.rows):,} more"


def compare(first: Result, second: Result, *, rows: int = 20) -> Comparison:
    """Compare two results; ``rows`` is how many changed rows are shown, all of them are counted."""
    if not isinstance(second, Result):
        raise UsageError(f"compare takes another result, got {type(second).__name__}")
    if rows < 0:
        raise UsageError(f"rows= is how many changed rows to show, got {rows!r}")
    return Comparison(
        tuple(_output_differences(first, second)),
        tuple(_cutflow_differences(first, second)),
        *changed_rows(first, second, rows),
    )


def _cutflow_differences(first: Result, second: Result) -> Iterator[LineDifference]:
    flows = first.cutflow, second.cutflow
    keys = dict.fromkeys((region, d) for flow in flows for region in flow.regions for d in flow.datasets)
    for region, dataset in keys:
        one, two = (
            flow[region, dataset] if region in flow.regions and dataset in flow.datasets else None for flow in flows
        )
        if one is None or two is None or one.labels != two.labels:
            # Lines of another order count other rows: only the ends can be compared then.
            ends = [None if table is None else table.passed for table in (one, two)]
            if ends[0] != ends[1]:
                yield LineDifference(region, dataset, "selected", ends[0], ends[1])
            continue
        for mine, theirs in zip(one.executed, two.executed, strict=True):
            if mine.passed != theirs.passed:
                yield LineDifference(region, dataset, mine.label, mine.passed, theirs.passed)
            elif not math.isclose(mine.sumw, theirs.sumw, rel_tol=ROUNDING):
                sums = (mine.sumw, theirs.sumw)
                yield LineDifference(region, dataset, mine.label, mine.passed, theirs.passed, sums)


# -- outputs -----------------------------------------------------------------------------------


def _output_differences(first: Result, second: Result) -> Iterator[OutputDifference]:
    for dataset in dict.fromkeys([*first.outputs, *second.outputs]):
        mine, theirs = first.outputs.get(dataset, {}), second.outputs.get(dataset, {})
        for key in dict.fromkeys([*mine, *theirs]):
            change: Difference | None = (f"only in the {'first' if key in mine else 'second'} result", None, None)
            if key in mine and key in theirs:
                change = difference(mine[key], theirs[key])
            if change is not None:
                yield OutputDifference(dataset, *key, *change)


def difference(left: Any, right: Any) -> Difference | None:
    if is_histogram(left) and is_histogram(right):
        return _histograms(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return _mappings(left, right)
    numbers = _numbers(left), _numbers(right)
    if numbers[0] is not None and numbers[1] is not None:
        return _arrays(numbers[0], numbers[1], "numbers" if numbers[0].ndim else "value")
    if type(left) is not type(right):
        return f"{type(left).__name__} and {type(right).__name__}", None, None
    if isinstance(left, list | tuple) and len(left) != len(right):
        return f"{len(left)} and {len(right)} items", None, None
    if isinstance(left, set | frozenset):
        gone, new = len(left - right), len(right - left)
        return (f"{gone} items gone, {new} new", None, None) if gone or new else None
    if hasattr(left, "to_list"):  # awkward arrays compare item by item
        left, right = left.to_list(), right.to_list()
    try:
        same = bool(left == right)
    except Exception:  # noqa: BLE001 - whatever a user's object raises
        return "cannot be compared", None, None
    return None if same else ("differ", None, None)


def _numbers(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray | list):
        try:
            array = np.asarray(value)
        except ValueError:  # lists of unequal length
            return None
        return array if array.dtype.kind in "biufc" else None
    return None


def _arrays(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], what: str) -> Difference | None:
    if left.shape != right.shape:
        return f"shapes {left.shape} and {right.shape}", None, None
    same = (left == right) | ((left != left) & (right != right))  # NaN is as good as NaN
    if same.all():
        return None
    one, two = left[~same].astype(complex), right[~same].astype(complex)
    with np.errstate(all="ignore"):
        apart = np.abs(one - two)
        relative = apart / np.maximum(np.abs(one), np.abs(two))
    absolute, most = float(np.max(apart)), float(np.max(relative))
    if what == "value" and not left.ndim:
        return f"{left.item()!r} and {right.item()!r}", absolute, most
    count = int((~same).sum())
    words = f"{count} of {left.size} {what} differ, by up to {absolute:.6g} ({100 * most:.3g}%)"
    return words, absolute, most


def _histograms(left: Any, right: Any) -> Difference | None:
    if list(left.axes) != list(right.axes):
        return "histograms with other axes", None, None
    if left.storage_type is not right.storage_type:
        names = left.storage_type.__name__, right.storage_type.__name__
        return f"{names[0]} and {names[1]} storage", None, None
    change = _arrays(left.values(flow=True), right.values(flow=True), "bins")
    if change is not None:
        return change
    one, two = left.variances(flow=True), right.variances(flow=True)
    if one is None or two is None:
        return None
    return _arrays(np.asarray(one), np.asarray(two), "variances")


def _mappings(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> Difference | None:
    changes: list[Difference] = []
    for key in dict.fromkeys([*left, *right]):
        if key not in left or key not in right:
            changes.append((f"{key!r} only in the {'first' if key in left else 'second'}", None, None))
            continue
        change = difference(left[key], right[key])
        if change is not None:
            changes.append((f"{key!r}: {change[0]}", *change[1:]))
    if not changes:
        return None
    words, absolute, relative = zip(*changes, strict=True)
    text = "; ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    if None in absolute:
        return text, None, None
    return text, max(absolute), max(relative)


# -- rows that left or entered a region ---------------------------------------------------------
# A row has a 64-bit key: its number in files that both runs read, otherwise a hash of the columns that identify it. Rows
# of one dataset are compared at a time, as simulated samples repeat their numbers.


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that is in a region in one run and not in the other."""

    region: str
    dataset: str
    file: str
    row: int  #: number in the file, of the run that has it in the region
    left: bool  #: whether it was in the region in the first run and is not in the second
    identity: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        who = "".join(f" {name}={value}" for name, value in self.identity.items())
        change = f"{self.region} -> out" if self.left else f"out -> {self.region}"
        return f"{change}: {self.file} row {self.row}{who}"


#: How often, by region, which ones, and notes: as ``Comparison`` has them.
_Changes = tuple[int | None, Mapping[str, "Sequence[int]"], tuple[ChangedRow, ...], tuple[str, ...]]


def changed_rows(first: Result, second: Result, limit: int) -> _Changes:
    """Find the rows that changed side, and read the identity of those that are shown."""
    for which, result in (("first", first), ("second", second)):
        if result.kept is None:
            why = f"rows cannot be compared: the {which} result did not keep which rows its regions have"
            return None, {}, (), (why,)
    regions = dict.fromkeys([*first.kept.regions, *second.kept.regions])
    common = [name for name in regions if name in first.kept.regions and name in second.kept.regions]
    notes = [f"region {name!r} is in one result only, not compared" for name in regions if name not in common]
    compared = False
    counts = {region: [0, 0] for region in common}
    found: list[ChangedRow] = []
    unseen = [0, 0]  # rows of regions that the other run never looked at
    for pair in _pairs(first, second, notes):
        try:
            moved = {region: _moved(pair, region, notes) for region in common}
        except (WindrowError, OSError) as error:
            notes.append(f"dataset {pair[0].dataset!r}: identity columns cannot be read: {error}")
            continue
        compared = True
        for number in (0, 1):
            alone = [sides[number][2] for sides in moved.values()]
            unseen[number] += len(np.unique(np.concatenate([np.empty(0, np.uint64), *alone])))
        for region, sides in moved.items():
            for number, (files, (places, rows, _)) in enumerate(zip(pair, sides, strict=True)):
                counts[region][number] += len(rows)
                shown = slice(max(limit - len(found), 0))
                found += files.name_rows(region, places[shown], rows[shown], notes, left=number == 0)
    for count, which, other in zip(unseen, ("first", "second"), ("second", "first"), strict=True):
        if count:
            notes.append(
                f"{count:,} rows of regions of the {which} run are not compared: the {other} has not processed them, or its "
                "files, perhaps a skim, do not have them"
            )
    if not compared:
        return None, {}, (), tuple(notes)
    by_region = {region: tuple(count) for region, count in counts.items()}
    return sum(map(sum, counts.values())), by_region, tuple(found), tuple(dict.fromkeys(notes))


def _pairs(first: Result, second: Result, notes: list[str]) -> list[tuple[_Files, _Files]]:
    """Pair the files that are the same by themselves, and all other files of a dataset by identity columns."""
    places: dict[tuple[str, str], list[int]] = {}
    for position, file in enumerate(second.kept.files):
        places.setdefault((file.dataset, file.identity), []).append(position)
    same: dict[int, int] = {}  # position in the first -> in the second
    for position, file in enumerate(first.kept.files):
        if places.get((file.dataset, file.identity)):
            same[position] = places[file.dataset, file.identity].pop(0)
    pairs = []
    for one, two in same.items():
        dataset = first.kept.files[one].dataset
        pairs.append((_Files(first, [one], dataset, ()), _Files(second, [two], dataset, ())))
    others = [
        [place for place in range(len(result.kept.files)) if place not in paired]
        for result, paired in ((first, set(same)), (second, set(same.values())))
    ]
    if not any(others):
        return pairs
    if not first.identity or first.identity != second.identity:
        notes.append(
            f"{len(others[0])} files of the first and {len(others[1])} of the second run are not the same: their rows can "
            "be matched only if both analyses declare the same identity columns, for instance "
            'wr.Pipeline(name, identity=("run", "luminosityBlock", "event"))'
        )
        return pairs
    sides = list(zip((first, second), others, strict=True))
    for dataset in dict.fromkeys(result.kept.files[p].dataset for result, alone in sides for p in alone):
        mine, theirs = (
            _Files(result, [p for p in alone if result.kept.files[p].dataset == dataset], dataset, first.identity)
            for result, alone in sides
        )
        pairs.append((mine, theirs))
    return pairs


@dataclass(frozen=True, slots=True)
class _Files:
    """Some files of one run, all of one dataset."""

    result: Result
    positions: list[int]  #: in ``kept.files``
    dataset: str
    columns: tuple[str, ...]  #: that tell who a row is; empty: its number does, as there is one file

    def keys(self, position: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        if not self.columns:
            return rows.astype(np.uint64)
        read = read_rows(self.result.source, self.result.kept.files[position].index, self.columns, rows)
        return identity_hash([read[column] for column in self.columns])

    def region(self, region: str, notes: list[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        """Return key, position of the file and number of every row of a region."""
        rows = [self.result.kept.rows(region, position) for position in self.positions]
        keys = [self.keys(position, mine) for position, mine in zip(self.positions, rows, strict=True)]
        places = [np.full(len(mine), position) for position, mine in zip(self.positions, rows, strict=True)]
        key = np.concatenate([np.empty(0, np.uint64), *keys])
        _, kept = np.unique(key, return_index=True)
        if len(kept) < len(key):
            who = ", ".join(self.columns)
            notes.append(f"dataset {self.dataset!r}: several rows have the same {who}; one is compared")
        kept.sort()
        empty = np.empty(0, np.int64)
        return key[kept], np.concatenate([empty, *places])[kept], np.concatenate([empty, *rows])[kept]

    def processed(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        mask = np.zeros(len(keys), dtype=bool)
        for position in self.positions if len(keys) else ():
            label = self.result.kept.files[position].label
            for file, rows in done_rows(self.result.ledger, self.dataset):
                if file == label:
                    mask |= np.isin(keys, self.keys(position, rows))
        return mask

    def name_rows(
        self, region: str, places: NDArray[np.int64], rows: NDArray[np.int64], notes: list[str], *, left: bool
    ) -> list[ChangedRow]:
        """Name rows that changed side, with their identity where it can be read."""
        result, found = self.result, []
        for place in dict.fromkeys(places.tolist()):
            file, mine = result.kept.files[place], rows[places == place]
            values: dict[str, Any] = {}
            try:
                if result.identity:
                    values = read_rows(result.source, file.index, result.identity, mine)
            except (WindrowError, OSError) as error:
                notes.append(f"who the rows are cannot be read: {error}")
            for at, row in enumerate(mine.tolist()):
                identity = {name: column[at].item() for name, column in values.items()}
                found.append(ChangedRow(region, self.dataset, file.label, row, left, identity))
        return found


#: Rows of a region that one run has and the other has not: the positions of their files, their numbers, and the keys of
#: those that the other run never looked at, which have not changed side.
_Side = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.uint64]"]


def _moved(pair: tuple[_Files, _Files], region: str, notes: list[str]) -> tuple[_Side, _Side]:
    """Find the rows that only the first run has in a region, and those that only the second has."""
    mine, theirs = (files.region(region, notes) for files in pair)
    sides = []
    for (keys, places, rows), others, other in ((mine, theirs, pair[1]), (theirs, mine, pair[0])):
        only = ~np.isin(keys, others[0])
        seen = other.processed(keys[only])
        sides.append((places[only][seen], rows[only][seen], keys[only][~seen]))
    return sides[0], sides[1]
