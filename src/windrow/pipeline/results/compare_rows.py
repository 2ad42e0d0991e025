"""Which rows left or entered a region between two runs.

Files that both runs read are compared row number by row number. Where the files are not the same, for instance a skim
and what it was made from, rows are matched by the columns that identify them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import WindrowError
from windrow.pipeline.results.reading_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from windrow.pipeline.results.region_rows import KeptFile, KeptRows
    from windrow.pipeline.results.result import Result


#: Rows whose identity is read at once.
PIECE = 1_000_000


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that is in a region in one run and not in the other."""

    region: str
    dataset: str
    file: str
    row: int  #: number in the file, of the run that has it in the region
    left: bool  #: whether it was in the region in the first run and is not in the second
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def change(self) -> str:
        """From where to where."""
        return f"{self.region} -> out" if self.left else f"out -> {self.region}"

    def __str__(self) -> str:
        who = "".join(f" {name}={value}" for name, value in self.identity.items())
        return f"{self.change}: {self.file} row {self.row}{who}"


@dataclass(frozen=True, slots=True)
class Changes:
    """All rows that changed side, counted, and the first of them."""

    count: int | None  #: None where rows could not be compared
    by_region: Mapping[str, tuple[int, int]]  #: region -> rows that left it, rows that entered it
    shown: tuple[ChangedRow, ...]
    notes: tuple[str, ...]  #: what could not be compared, and why

    @property
    def headline(self) -> str:
        """Say how much changed; a row that goes from one region to another leaves one and enters one."""
        if not self.count:
            return "no row changed side"
        times = "once" if self.count == 1 else f"{self.count:,} times"
        return f"rows changed side: one left or entered a region {times}"

    def text(self) -> list[str]:
        """Say it in lines."""
        lines: list[str] = []
        if self.count is not None:
            lines.append(self.headline)
            for region, (left, entered) in self.by_region.items():
                if left or entered:
                    lines.append(f"  {region}: {left:,} left, {entered:,} entered")
            lines += [f"  {row}" for row in self.shown]
            if self.count > len(self.shown):
                lines.append(f"  and {self.count - len(self.shown):,} more")
        return [*lines, *(f"note: {note}" for note in self.notes)]


def changed_rows(first: Result, second: Result, limit: int) -> Changes:
    """Find the rows that changed side, and read the identity of those that are shown."""
    for which, result in (("first", first), ("second", second)):
        if result.kept is None:
            why = f"rows cannot be compared: the {which} result did not keep which rows its regions have"
            return Changes(None, {}, (), (why,))
    regions = [region for region in first.kept.regions if region in second.kept.regions]
    notes = [
        f"region {region!r} is in one result only, not compared"
        for region in dict.fromkeys([*first.kept.regions, *second.kept.regions])
        if region not in regions
    ]
    pairs = _same_files(first.kept, second.kept)
    alone = (_without(first.kept, {a for a, _ in pairs}), _without(second.kept, {b for _, b in pairs}))
    found: list[ChangedRow] = []
    counts = dict.fromkeys(regions, (0, 0))
    for pair in pairs:
        _by_number(first, second, pair, regions, counts, found, limit, notes)
    compared = bool(pairs)
    if alone[0] or alone[1]:
        compared = _by_identity(first, second, alone, regions, counts, found, limit, notes) or compared
    if not compared:
        return Changes(None, {}, (), tuple(notes))
    count = sum(left + entered for left, entered in counts.values())
    shown = tuple(_with_identities(found, first, second, notes))
    return Changes(count, counts, shown, tuple(dict.fromkeys(notes)))


def _same_files(one: KeptRows, two: KeptRows) -> list[tuple[int, int]]:
    """Pair the files that say they are the same one, in the same dataset."""
    places: dict[tuple[str, str], list[int]] = {}
    for position, file in enumerate(two.files):
        places.setdefault((file.dataset, file.identity), []).append(position)
    pairs = []
    for position, file in enumerate(one.files):
        others = places.get((file.dataset, file.identity), [])
        if others:
            pairs.append((position, others.pop(0)))
    return pairs


def _without(kept: KeptRows, known: set[int]) -> list[int]:
    return [position for position in range(len(kept.files)) if position not in known]


def _done(result: Result, file: KeptFile, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each row whether the run processed it."""
    mask = np.zeros(len(rows), dtype=bool)
    for entry in result.ledger.entries:
        if entry.state == "done" and (entry.dataset, entry.file) == (file.dataset, file.label):
            mask |= (rows >= entry.start) & (rows < (entry.stop or 0))
    return mask


def _by_number(
    first: Result,
    second: Result,
    pair: tuple[int, int],
    regions: list[str],
    counts: dict[str, tuple[int, int]],
    found: list[ChangedRow],
    limit: int,
    notes: list[str],
) -> None:
    one, two = first.kept.files[pair[0]], second.kept.files[pair[1]]
    skipped = 0
    for region in regions:
        mine, theirs = first.kept.rows(region, pair[0]), second.kept.rows(region, pair[1])
        left = np.setdiff1d(mine, theirs, assume_unique=True)
        entered = np.setdiff1d(theirs, mine, assume_unique=True)
        # A row that the other run never looked at has not changed side.
        both = _done(second, two, left), _done(first, one, entered)
        skipped += int((~both[0]).sum() + (~both[1]).sum())
        left, entered = left[both[0]], entered[both[1]]
        counts[region] = (counts[region][0] + len(left), counts[region][1] + len(entered))
        for rows, file, gone in ((left, one, True), (entered, two, False)):
            room = max(limit - len(found), 0)
            found += [ChangedRow(region, file.dataset, file.label, row, gone) for row in rows[:room].tolist()]
    if skipped:
        notes.append(f"{one.label}: {skipped:,} rows were processed by one run only, not compared")


def _by_identity(
    first: Result,
    second: Result,
    alone: tuple[list[int], list[int]],
    regions: list[str],
    counts: dict[str, tuple[int, int]],
    found: list[ChangedRow],
    limit: int,
    notes: list[str],
) -> bool:
    """Match rows of different files by their identity columns; False, with a note, where that cannot be done."""
    what = f"{len(alone[0])} files of the first and {len(alone[1])} of the second run are not the same"
    columns = first.identity
    if not columns or columns != second.identity:
        notes.append(
            f"{what}: their rows can be matched only if both analyses declare the same identity columns, for instance "
            'wr.Pipeline(name, identity=("run", "luminosityBlock", "event"))'
        )
        return False
    sides = ((first, alone[0]), (second, alone[1]))
    try:
        moved = {region: _moved(*(_identities(*side, region, columns, notes) for side in sides)) for region in regions}
        # A row that the other run never looked at has not changed side.
        unseen = [
            _unseen({key for rows in moved.values() for key in rows[number]}, *other, columns)
            for number, other in enumerate((sides[1], sides[0]))
        ]
    except (WindrowError, OSError) as error:
        notes.append(f"{what}, and their identity columns cannot be read: {error}")
        return False
    for region, rows in moved.items():
        known = [[row for k, row in rows[n].items() if k not in unseen[n]] for n in (0, 1)]
        counts[region] = (counts[region][0] + len(known[0]), counts[region][1] + len(known[1]))
        for moving, gone in zip(known, (True, False), strict=True):
            room = max(limit - len(found), 0)
            found += [replace(row, left=gone) for row in moving[:room]]
    for keys, which, other, result in ((unseen[0], "first", "second", second), (unseen[1], "second", "first", first)):
        if keys:
            notes.append(_about_unseen(keys, which, other, result))
    return True


Identities = dict[tuple[Any, ...], ChangedRow]


def _moved(mine: Identities, theirs: Identities) -> tuple[Identities, Identities]:
    """Return the rows that only the first has in a region, and those that only the second has."""
    return (
        {key: row for key, row in mine.items() if key not in theirs},
        {key: row for key, row in theirs.items() if key not in mine},
    )


def _unseen(
    keys: set[tuple[Any, ...]], result: Result, files: list[int], columns: tuple[str, ...]
) -> set[tuple[Any, ...]]:
    """Return those of the rows that a run has not processed, or that its files do not have."""
    unseen = set(keys)
    for position in files:
        file = result.kept.files[position]
        wanted = [key[1:] for key in unseen if key[0] == file.dataset]
        if not wanted:
            continue
        values_wanted = [np.array(values) for values in zip(*wanted, strict=True)]
        for entry in result.ledger.entries:
            if entry.state != "done" or (entry.dataset, entry.file) != (file.dataset, file.label):
                continue
            for start in range(entry.start, entry.stop or 0, PIECE):
                rows = np.arange(start, min(start + PIECE, entry.stop or 0))
                read = read_rows(result.source, file.index, columns, rows)
                likely = np.ones(len(rows), dtype=bool)
                for column, values in zip(columns, values_wanted, strict=True):
                    likely &= np.isin(read[column], values)
                found = zip(*(read[column][likely].tolist() for column in columns), strict=True)
                unseen.difference_update((file.dataset, *key) for key in found)
    return unseen


def _about_unseen(keys: set[tuple[Any, ...]], which: str, other: str, result: Result) -> str:
    datasets = dict.fromkeys(key[0] for key in keys)
    skims = [name for name in datasets if "skim" in result.datasets.get(name, {})]
    why = "has not processed them, or its files do not have them"
    if len(skims) == len(datasets):
        why = f"reads a skim of {', '.join(map(repr, skims))} that does not have them, or has not processed them"
    return f"{len(keys):,} rows of regions of the {which} run are not compared: the {other} {why}"


def _identities(
    result: Result, files: list[int], region: str, columns: tuple[str, ...], notes: list[str]
) -> Identities:
    """Read who the rows of a region are; the dataset is part of it, as simulated samples repeat their numbers."""
    found: Identities = {}
    for position in files:
        file = result.kept.files[position]
        rows = result.kept.rows(region, position)
        values = read_rows(result.source, file.index, columns, rows)
        keys = zip(*(values[column].tolist() for column in columns), strict=True)
        for row, key in zip(rows.tolist(), keys, strict=True):
            if (file.dataset, *key) in found:
                notes.append(f"{file.label}: several rows have the same {', '.join(columns)}; one is compared")
            who = dict(zip(columns, key, strict=True))
            found[file.dataset, *key] = ChangedRow(region, file.dataset, file.label, row, True, who)
    return found


def _with_identities(rows: list[ChangedRow], first: Result, second: Result, notes: list[str]) -> list[ChangedRow]:
    """Read who the rows are that were found by their number, file by file."""
    places: dict[tuple[bool, str, str], list[int]] = {}
    for place, row in enumerate(rows):
        if not row.identity and (first if row.left else second).identity:
            places.setdefault((row.left, row.dataset, row.file), []).append(place)
    found = list(rows)
    for (left, dataset, label), mine in places.items():
        result = first if left else second
        file = next(f for f in result.kept.files if (f.dataset, f.label) == (dataset, label))
        numbers = np.unique([rows[place].row for place in mine])
        try:
            values = read_rows(result.source, file.index, result.identity, numbers)
        except (WindrowError, OSError) as error:
            notes.append(f"who the rows are cannot be read: {error}")
            continue
        for place in mine:
            at = int(np.searchsorted(numbers, rows[place].row))
            who = {name: values[name][at].item() for name in result.identity}
            found[place] = replace(rows[place], identity=who)
    return found
