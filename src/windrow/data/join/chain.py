"""Rows of a joined source's friend: several files as one long table, read by row number or found by identity.

What is known of the files is shared by all threads; each thread has readers of its own. Identities are looked up by a
64-bit hash and then compared number by number, so that no two of them are ever taken for one another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.data.arrays import concatenate, native_lists
from windrow.errors import CorruptFileError
from windrow.random import identity_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.data.base import ColumnInfo, Reader, Source


#: Files a thread keeps open: rows that are looked up lie close together as a rule.
OPEN_FILES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """What is known of the files without their data; shared between threads, never changed."""

    inputs: tuple[int, ...]  #: which of the source's
    firsts: tuple[int, ...]  #: first row of each file, and the end
    clusters: tuple[tuple[int, ...], ...]  #: of each file: borders at which it can be read apart
    identities: tuple[str, ...]
    columns: Mapping[str, ColumnInfo]  #: those that are alike in all files

    @property
    def rows(self) -> int:
        return self.firsts[-1]


def chain(source: Source, inputs: Sequence[int]) -> Chain:
    firsts, clusters, identities = [0], [], []
    columns: dict[str, ColumnInfo] | None = None
    for index in inputs:
        reader = source.open(index)
        info = reader.info
        reader.close()
        firsts.append(firsts[-1] + info.rows)
        clusters.append(info.clusters or info.borders)
        identities.append(info.identity)
        columns = dict(info.columns) if columns is None else _alike(columns, info.columns)
    return Chain(
        inputs=tuple(inputs),
        firsts=tuple(firsts),
        clusters=tuple(clusters),
        identities=tuple(identities),
        columns=columns or {},
    )


def _alike(known: dict[str, ColumnInfo], more: Mapping[str, ColumnInfo]) -> dict[str, ColumnInfo]:
    def kind(column: ColumnInfo) -> tuple[Any, ...]:
        return column.kind, column.dtype, column.counter

    return {
        name: replace(column, stored_bytes=column.stored_bytes + more[name].stored_bytes)
        for name, column in known.items()
        if name in more and kind(column) == kind(more[name])
    }


class ChainReader:
    """The files of a chain, for one thread; they are opened when they are read."""

    def __init__(self, source: Source, known: Chain) -> None:
        self.known = known
        self._source = source
        self._readers: OrderedDict[int, Reader] = OrderedDict()
        self._closed_bytes = 0  #: read by readers that are closed again

    @property
    def bytes_read(self) -> int:
        return self._closed_bytes + sum(reader.bytes_read for reader in self._readers.values())

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        """Read ``columns`` of rows [start, stop): one request for each file they lie in."""
        firsts = self.known.firsts
        number = min(max(bisect_right(firsts, start) - 1, 0), len(firsts) - 2)
        parts: list[dict[str, Any]] = []
        while not parts or firsts[number] < stop:
            low = max(start, firsts[number])
            high = min(stop, firsts[number + 1])
            if low < high or start == stop:
                reader = self._reader(number)
                parts.append(reader.read(columns, low - firsts[number], high - firsts[number]))
                reader.reads.clear()  # they count this file's rows, which nobody else does
            number += 1
        return {name: concatenate([part[name] for part in parts]) for name in columns}

    def take(self, columns: Sequence[str], rows: NDArray[np.int64], *, option: bool) -> dict[str, Any]:
        """Read ``columns`` of these rows, in their order; with ``option``, row -1 is None."""
        have = rows if not option else rows[rows >= 0]
        first = int(have[0]) if len(have) else 0
        if np.array_equal(have, np.arange(first, first + len(have))):
            places, values = have - first, self.read(columns, first, first + len(have))
        else:
            places, values = self._scattered(columns, have)
        if option:
            every = np.full(len(rows), -1, dtype=np.int64)
            every[rows >= 0] = places
            index = ak.index.Index64(every)
            option_of = ak.contents.IndexedOptionArray.simplified
            return {name: ak.Array(option_of(index, ak.to_layout(values[name]))) for name in columns}
        if len(have) == len(next(iter(values.values()))) and np.array_equal(places, np.arange(len(have))):
            return values
        taken = {name: values[name][places] for name in columns}
        jagged = {name for name in columns if self.known.columns[name].kind == "jagged"}
        return {name: native_lists(column) if name in jagged else column for name, column in taken.items()}

    def _scattered(self, columns: Sequence[str], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Read the clusters these rows lie in; return where the rows stand in what was read."""
        ranges = self._ranges(np.sort(rows))
        parts = [self.read(columns, start, stop) for start, stop in ranges]
        starts = np.array([start for start, _ in ranges])
        sizes = np.array([stop - start for start, stop in ranges])
        shifts = starts - (np.cumsum(sizes) - sizes)
        places = rows - shifts[np.searchsorted(starts, rows, side="right") - 1]
        return places, {name: concatenate([part[name] for part in parts]) for name in columns}

    def _ranges(self, wanted: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Join neighbouring clusters that hold a wanted row; each range begins and ends with one."""
        ranges: list[tuple[int, int]] = []
        for first, clusters in zip(self.known.firsts, self.known.clusters, strict=False):
            borders = first + np.asarray(clusters)
            places = np.searchsorted(wanted, borders)
            held = np.flatnonzero(np.diff(places))
            for run in np.split(held, np.flatnonzero(np.diff(held) > 1) + 1):
                if len(run):
                    low, high = places[run[0]], places[run[-1] + 1] - 1
                    ranges.append((int(wanted[low]), int(wanted[high]) + 1))
        return ranges

    def _reader(self, number: int) -> Reader:
        reader = self._readers.get(number)
        if reader is None:
            index = self.known.inputs[number]
            reader = self._source.open(index)
            rows = self.known.firsts[number + 1] - self.known.firsts[number]
            if (reader.info.identity, reader.info.rows) != (self.known.identities[number], rows):
                reader.close()
                label = self._source.inputs[index].label
                raise CorruptFileError(
                    f"{label} was replaced since it was first opened: join and run again, on files that stay as they are",
                    file=label,
                )
            self._readers[number] = reader
            while len(self._readers) > OPEN_FILES:
                self._close(self._readers.popitem(last=False)[1])
        self._readers.move_to_end(number)
        return reader

    def _close(self, reader: Reader) -> None:
        self._closed_bytes += reader.bytes_read
        reader.close()

    def close(self) -> None:
        while self._readers:
            self._close(self._readers.popitem()[1])


class IdentityIndex:
    """Integer columns, sorted once by their hash; finding costs a binary search for each row."""

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        self._columns = columns
        keys = identity_hash(columns)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return for each identity the row that has it, -1 where there is none."""
        keys = identity_hash(columns)
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        # In order the search walks through memory once, which makes up for the sorting.
        turn = np.argsort(keys)
        rows = np.empty(len(keys), dtype=np.int64)
        rows[turn] = self._order[np.minimum(np.searchsorted(self._keys, keys[turn]), len(self._keys) - 1)]
        for mine, other in zip(columns, self._columns, strict=True):
            rows[mine != other[rows]] = -1
        return rows

    def duplicates(self) -> NDArray[np.int64]:
        """Return a row of each hash that several rows have.

        They have one identity: that two of 100 million rows differ and share 64 bits has a probability of 0.0003.
        """
        same = self._keys[1:] == self._keys[:-1]
        again = np.concatenate(([False], same))
        firsts = ~again[:-1] & same
        rows: NDArray[np.int64] = np.sort(self._order[:-1][firsts])
        return rows
