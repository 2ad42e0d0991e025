"""The columns of one chunk: read late, unit by unit, and gathered for the rows that are still wanted.

A file column is read when a step first needs it, and only for the units that still hold a wanted row. All columns a
step needs are asked for together, in one request for each contiguous range of units. What was gathered for a selection
is kept until another selection asks. Over a slow link bytes may be fetched earlier, in one request, than they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.fetch_ahead import Link
    from windrow.blocks.program import Argument
    from windrow.blocks.selection import Selection
    from windrow.data.base import Reader

#: Contiguous, ascending row ranges within a chunk.
Ranges = tuple[tuple[int, int], ...]


def take(values: Any, positions: NDArray[np.int64] | None) -> Any:
    """Gather rows of a NumPy or awkward array; None takes all of them, without a copy."""
    return values if positions is None else values[positions]


def concatenate(parts: Sequence[Any]) -> Any:
    """Join arrays of the same kind along the rows."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return ak.concatenate(parts)


class Stored:
    """A file column as far as it was read: the rows of ``ranges``, one after the other."""

    __slots__ = ("array", "ranges")

    def __init__(self, ranges: Ranges, array: Any) -> None:
        self.ranges = ranges
        self.array = array


class ColumnStore:
    """File columns and made columns of one chunk of ``length`` rows that starts at row ``start`` of its file."""

    def __init__(self, reader: Reader, start: int, length: int, borders: NDArray[np.int64]) -> None:
        self.reader = reader
        self.start = start
        self.length = length
        self.borders = borders  #: of what is read or left out, within the chunk: 0 ... length
        #: what fetching costs, if the file is remote; None: nothing is fetched ahead
        self.link: Link | None = getattr(reader, "link", None)
        self._fetched: dict[str, Ranges] = {}  #: rows of columns whose bytes are here
        self._stored: dict[str, Stored] = {}
        self._made: dict[str, tuple[Selection, Any]] = {}
        # Apart, because a glob may read a file column that has the name of a weight.
        self._gathered: dict[tuple[str, str], tuple[Selection, Any]] = {}
        self._ranges: tuple[Selection, Ranges] | None = None
        self.read_seconds = 0.0  #: time spent reading, which may happen inside a user's function
        self.read_cpu_s = 0.0  #: of that, computing: the rest is waiting, for data or for others
        self.read_error: Exception | None = None  #: why a read failed, wherever it happened

    def clear(self) -> None:
        self._stored.clear()
        if self.link is not None:
            self._fetched.clear()
            self.reader.forget()  # type: ignore[attr-defined]  # what has a link has it
        self._made.clear()
        self._gathered.clear()
        self._ranges = None

    def adopt(self, columns: Mapping[str, Any]) -> None:
        """Take over file columns that were read elsewhere, each for all rows of the chunk."""
        for name, values in columns.items():
            self._stored[name] = Stored(((0, self.length),), values)
            self._gathered.pop(("file", name), None)

    def give_away(self) -> dict[str, Any]:
        """Give all columns that are here for every row, read or only fetched, for another store to adopt; forget all."""
        whole: Ranges = ((0, self.length),)
        self._load([name for name, ranges in self._fetched.items() if ranges == whole], whole)
        given = {name: one.array for name, one in self._stored.items() if one.ranges == whole}
        self.clear()
        return given

    def fork(self) -> ColumnStore:
        """Return a store that shares what is read from the file and has made columns of its own; it fetches nothing ahead."""
        other = ColumnStore(self.reader, self.start, self.length, self.borders)
        other._stored, other._fetched, other.link = self._stored, self._fetched, None
        return other

    def excerpt(self, first: int, last: int) -> ColumnStore:
        """Return a store of some of the rows that has what was read of them; what it reads itself is not read into this one."""
        other = ColumnStore(self.reader, self.start + first, last - first, np.array([0, last - first]))
        other.link = None
        for name, stored in self._stored.items():
            if any(begin <= first and last <= end for begin, end in stored.ranges):
                shift = _shift(stored.ranges, first)
                other.adopt({name: stored.array[first - shift : last - shift]})
        return other

    def forget_made(self) -> None:
        """Forget all columns but those read from the file."""
        self._made.clear()
        self._gathered.clear()

    # -- made columns ------------------------------------------------------------------------

    def put(self, name: str, selection: Selection, values: Any) -> None:
        """Keep a column that a step made for the rows of ``selection``."""
        self._made[name] = (selection, values)
        self._gathered.pop(("made", name), None)

    def made_for(self, name: str) -> tuple[Selection, Any]:
        """Return a made column with the rows it was made for."""
        return self._made[name]

    def made(self, name: str, selection: Selection) -> Any:
        """Return a made column for the rows of ``selection``, a subset of those it was made for."""
        home, values = self._made[name]
        if home is selection:
            return values
        return self._gather(("made", name), selection, values, selection.within(home))

    # -- file columns ------------------------------------------------------------------------

    def ranges(self, selection: Selection) -> Ranges:
        """Return the contiguous row ranges of all units that hold a selected row."""
        if self._ranges is not None and self._ranges[0] is selection:
            return self._ranges[1]
        result: Ranges
        if selection.index is None:
            result = ((0, self.length),)
        else:
            counts = np.diff(np.searchsorted(selection.index, self.borders))
            result = _runs(self.borders, counts > 0)
        self._ranges = (selection, result)
        return result

    def load(self, columns: Iterable[str], selection: Selection) -> None:
        """Read what is missing of ``columns`` for the units of ``selection``: one request per contiguous range."""
        self._load(columns, self.ranges(selection))

    def _load(self, columns: Iterable[str], wanted: Ranges) -> None:
        missing = self.lacking(columns, wanted, unread=True)
        if self.link is not None and missing:
            self.fetch(self.lacking([name for names in missing.values() for name in names], wanted))
        for ranges, names in missing.items():
            parts = [self._read(names, first, last) for first, last in ranges]
            for name in names:
                self._store(name, ranges, [part[name] for part in parts])

    def lacking(self, columns: Iterable[str], wanted: Ranges, *, unread: bool = False) -> dict[Ranges, list[str]]:
        """Say which rows of which columns are neither read nor fetched, of those that are wanted; ``unread``: not read."""
        lacking: dict[Ranges, list[str]] = {}
        for column in dict.fromkeys(columns):
            rest = wanted
            stored = self._stored.get(column)
            for had in (stored.ranges if stored else (), () if unread else self._fetched.get(column, ())):
                rest = _subtract(rest, had, self.borders) if had else rest
            if rest:
                lacking.setdefault(rest, []).append(column)
        return lacking

    def fetch(self, wanted: Mapping[Ranges, Sequence[str]]) -> None:
        """Fetch bytes ahead, all in one request; only for what ``lacking`` said."""
        if not wanted:
            return
        requests = [
            (names, self.start + first, self.start + last) for ranges, names in wanted.items() for first, last in ranges
        ]
        with self._timed():
            self.reader.prefetch(requests)  # type: ignore[attr-defined]  # what has a link has it
        for ranges, names in wanted.items():
            for name in names:
                had = self._fetched.get(name, ())
                self._fetched[name] = _joined(sorted((*had, *ranges)))

    def file(self, column: str, selection: Selection) -> Any:
        """Return a file column for the rows of ``selection``, reading it if need be."""
        held = self._gathered.get(("file", column))
        if held is not None and held[0] is selection:
            return held[1]
        self.load((column,), selection)
        stored = self._stored[column]
        positions = self.locate(selection, stored.ranges)
        return self._gather(("file", column), selection, stored.array, positions)

    def whole(self, column: str, selection: Selection) -> Stored:
        """Return a file column as it is stored, read at least for the units of ``selection``."""
        self.load((column,), selection)
        return self._stored[column]

    def has(self, column: str, ranges: Ranges) -> bool:
        """Say whether a file column was read for exactly these rows."""
        stored = self._stored.get(column)
        return stored is not None and stored.ranges == ranges

    def over(self, column: str, ranges: Ranges) -> Any:
        """Return a file column for exactly the rows of ``ranges``, which must have been read or be readable."""
        stored = self._stored.get(column)
        if stored is None or _subtract(ranges, stored.ranges, self.borders):
            self._load((column,), ranges)
            stored = self._stored[column]
        if stored.ranges == ranges:
            return stored.array
        parts = []
        for first, last in ranges:
            shift = _shift(stored.ranges, first)
            parts.append(stored.array[first - shift : last - shift])
        return concatenate(parts)

    def locate(self, selection: Selection, ranges: Ranges) -> NDArray[np.int64] | None:
        """Where the selected rows stand in an array of the rows of ``ranges``; None if they are all of it, in order."""
        if selection.count == sum(last - first for first, last in ranges):
            return None
        index = selection.positions()
        if len(ranges) == 1:
            return index - ranges[0][0] if ranges[0][0] else index
        firsts = np.array([first for first, _ in ranges])
        sizes = np.array([last - first for first, last in ranges])
        shifts = firsts - (np.cumsum(sizes) - sizes)
        located: NDArray[np.int64] = index - shifts[np.searchsorted(firsts, index, side="right") - 1]
        return located

    # -- inside ------------------------------------------------------------------------------

    def _read(self, names: list[str], first: int, last: int) -> dict[str, Any]:
        with self._timed():
            return self.reader.read(names, self.start + first, self.start + last)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began, computed = perf_counter(), thread_time()
        try:
            yield
        except Exception as error:
            # Fields are read inside the user's function, where awkward rewrites exceptions.
            self.read_error = error
            raise
        finally:
            self.read_seconds += perf_counter() - began
            self.read_cpu_s += thread_time() - computed

    def _gather(
        self, key: tuple[str, str], selection: Selection, values: Any, positions: NDArray[np.int64] | None
    ) -> Any:
        held = self._gathered.get(key)
        if held is not None and held[0] is selection:
            return held[1]
        gathered = take(values, positions)
        self._gathered[key] = (selection, gathered)
        return gathered

    def _store(self, column: str, ranges: Ranges, parts: list[Any]) -> None:
        stored = self._stored.get(column)
        pieces = list(zip(ranges, parts, strict=True))
        if stored is not None:
            at = 0
            for first, last in stored.ranges:
                pieces.append(((first, last), stored.array[at : at + last - first]))
                at += last - first
            pieces.sort(key=lambda piece: piece[0])
        self._gathered.pop(("file", column), None)
        self._stored[column] = Stored(
            _joined(piece[0] for piece in pieces), concatenate([piece[1] for piece in pieces])
        )


def _runs(borders: NDArray[np.int64], wanted: NDArray[np.bool_]) -> Ranges:
    """Join neighbouring wanted units to ranges."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], wanted, [False])).astype(np.int8)))
    return tuple((int(borders[first]), int(borders[last])) for first, last in zip(edges[::2], edges[1::2], strict=True))


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def _subtract(wanted: Ranges, had: Ranges, borders: NDArray[np.int64]) -> Ranges:
    """What of ``wanted`` is not in ``had``, both made of whole units."""
    if wanted == had or had == ((0, int(borders[-1])),):
        return ()
    starts = borders[:-1]
    lacking = _covers(wanted, starts) & ~_covers(had, starts)
    return _runs(borders, lacking)


def _covers(ranges: Ranges, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    covered = np.zeros(len(starts), dtype=bool)
    for first, last in ranges:
        covered |= (starts >= first) & (starts < last)
    return covered


def _shift(ranges: Ranges, row: int) -> int:
    """How much to subtract from ``row`` to find it in an array of the rows of ``ranges``."""
    before = 0
    for first, last in ranges:
        if first <= row < last:
            return first - before
        before += last - first
    raise IndexError(f"row {row} is outside {ranges}")


def rows_reading_nan(store: ColumnStore, arguments: Sequence[Argument], rows: Selection) -> NDArray[np.bool_] | None:
    """Return a mask of the rows with NaN in a column that a step reads; None if there are none."""
    found: NDArray[np.bool_] | None = None
    for argument in arguments:
        if argument.kind not in ("file", "made"):
            continue
        read = store.file if argument.kind == "file" else store.made
        mask = rows_with_nan(read(argument.source, rows))
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def rows_with_nan(values: Any) -> NDArray[np.bool_] | None:
    """Return a mask of the rows with NaN; None if there are none, which is nearly always and found by one sum."""
    if isinstance(values, ak.Array):
        # A field of records may not have been read, and looking at it would read it for nothing.
        if values.fields or not values.layout.is_all_materialized:
            return None
        numbers = ak.to_numpy(ak.flatten(values, axis=None))
        if not _any_nan(numbers):
            return None
        bad = np.isnan(values)
        while bad.ndim > 1:
            bad = ak.any(bad, axis=-1)
        mask: NDArray[np.bool_] = ak.to_numpy(ak.fill_none(bad, False))
        return mask
    if not isinstance(values, np.ndarray) or values.ndim != 1 or not _any_nan(values):
        return None
    return np.isnan(values)


def _any_nan(numbers: Any) -> bool:
    if numbers.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        # Infinities of both signs add up to NaN as well.
        return bool(np.isnan(numbers.sum())) and bool(np.isnan(numbers).any())
