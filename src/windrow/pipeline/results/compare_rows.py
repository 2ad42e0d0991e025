"""Which rows left or entered a region between two runs.

A row has a 64-bit key. In files that both runs read it is the row's number; where the files are not the same, for instance
a skim and what it was made from, it is a hash of the columns that identify the row. Rows are compared by their keys, those of
one dataset at a time, as simulated samples repeat their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import WindrowError
from windrow.pipeline.results.region_rows import read_rows
from windrow.random import identity_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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

    def __str__(self) -> str:
        who = "".join(f" {name}={value}" for name, value in self.identity.items())
        change = f"{self.region} -> out" if self.left else f"out -> {self.region}"
        return f"{change}: {self.file} row {self.row}{who}"


@dataclass(frozen=True, slots=True)
class Changes:
    """All rows that changed side, counted, and the first of them."""

    count: int | None  #: None where rows could not be compared
    by_region: Mapping[str, tuple[int, int]]  #: region -> rows that left it, rows that entered it
    shown: tuple[ChangedRow, ...]
    notes: tuple[str, ...]  #: what could not be compared, and why

    def text(self) -> list[str]:
        """Say how much changed; a row that goes from one region to another leaves one and enters one."""
        lines: list[str] = []
        if self.count is not None:
            times = "once" if self.count == 1 else f"{self.count:,} times"
            lines.append(
                f"rows changed side: one left or entered a region {times}" if self.count else "no row changed side"
            )
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
                counts[region][number] += len(sides[number][1])
        for region, sides in moved.items():
            for files, (places, rows, _), left in zip(pair, sides, (True, False), strict=True):
                shown = slice(max(limit - len(found), 0))
                found += files.name_rows(region, places[shown], rows[shown], notes, left=left)
    for count, which, other in zip(unseen, ("first", "second"), ("second", "first"), strict=True):
        if count:
            notes.append(
                f"{count:,} rows of regions of the {which} run are not compared: the {other} has not processed them, or its "
                "files, perhaps a skim, do not have them"
            )
    if not compared:
        return Changes(None, {}, (), tuple(notes))
    by_region = {region: (left, entered) for region, (left, entered) in counts.items()}
    return Changes(sum(map(sum, counts.values())), by_region, tuple(found), tuple(dict.fromkeys(notes)))


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
            for entry in self.result.ledger.entries:
                if entry.state == "done" and (entry.dataset, entry.file) == (self.dataset, label):
                    for start in range(entry.start, entry.stop or 0, PIECE):
                        rows = np.arange(start, min(start + PIECE, entry.stop or 0))
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
