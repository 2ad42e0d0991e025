"""The rows of a stream during a run over them: taken in, cut into units, read, and forgotten.

Rows are numbered from 0 over the whole stream. What was taken is in memory until it is released; a
limit in bytes holds the producer back, so the memory does not depend on who is faster.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, overload

import awkward as ak
import numpy as np

from windrow.data.arrays import ArrayTable, as_read, concatenate
from windrow.data.base import MAX_UNIT_ROWS, FileInfo, Input
from windrow.data.columns import check_request, find_collections
from windrow.errors import DataError, SpecError, UsageError, nearest

#: Pieces of an unfinished unit that are kept apart: a producer of single rows must not cost an object for each.
MANY_PIECES = 64


class Borders(Sequence[int]):
    """The borders of all units that ever came, for a stream without an end.

    Of one that was forgotten it is only known that it is below those that are not. It is answered by the least that it
    can have been, its own number, so that rows that are in memory are looked up by bisection as in any list of borders.
    """

    def __init__(self) -> None:
        # Forgotten ones, and those that are known: replaced as a whole, as other threads look at them meanwhile.
        self._state = 0, array("q", [0])

    def extend(self, ends: Iterable[int]) -> None:
        forgotten, known = self._state
        self._state = forgotten, known + array("q", ends)

    def forget(self, row: int) -> None:
        """Forget the borders below a row; the last is always known."""
        forgotten, known = self._state
        count = min(bisect_left(known, row), len(known) - 1)
        self._state = forgotten + count, known[count:]

    def __len__(self) -> int:
        forgotten, known = self._state
        return forgotten + len(known)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        forgotten, known = self._state
        places = range(forgotten + len(known))[place]
        if isinstance(places, int):
            return places if places < forgotten else known[places - forgotten]
        return tuple(n if n < forgotten else known[n - forgotten] for n in places)


@dataclass(frozen=True, slots=True)
class Portion:
    """Whole units that follow each other: what is handed over at a time."""

    start: int
    ends: tuple[int, ...]  #: where its units end
    bytes: int

    @property
    def stop(self) -> int:
        return self.ends[-1]


class Flow:
    """The rows of one run over a stream; a source with one input."""

    def __init__(
        self,
        *,
        label: str,
        dataset: str,
        metadata: Mapping[str, Any],
        batch: int | None,
        columns: Sequence[str] | None,
        buffer: int,
        max_rows: int | None = None,
    ) -> None:
        self.inputs = (Input(index=0, dataset=dataset, label=label, location=None, format="arrays"),)
        self.datasets = MappingProxyType({dataset: metadata})
        self.buffer = buffer
        self.borders = Borders()  #: of the units that were handed over
        self.taken = 0  #: rows that came so far
        self.held = 0  #: bytes of rows that wait or are being worked on
        self.most_held = 0
        self.ended = False  #: nothing more comes
        self._batch = batch
        self._names = columns
        self._left = max_rows
        self._columns: Columns | None = None
        self._info: FileInfo | None = None
        self._changed = threading.Condition()
        self._unfinished: list[tuple[int, ArrayTable]] = []  #: first row, rows of the last unit
        self._ready: deque[Portion] = deque()
        self._starts: list[int] = []  #: of the tables in memory
        self._tables: list[ArrayTable] = []

    def __reduce__(self) -> Any:
        item = self.inputs[0]
        return _gone, (item.label, item.dataset, dict(self.datasets[item.dataset]))

    # -- the producer's side -----------------------------------------------------------------

    def wait_for_room(self) -> bool:
        """Wait until less than the limit is held; False if nothing more is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or self.held < self.buffer)
            return not self.ended

    def push(self, batch: Any, where: str) -> bool:
        """Take a batch in; False if no more are wanted, this one included if the flow has ended."""
        table = table_of(batch, where, self._names)
        if self._columns is None:
            self._columns = Columns(table, where)
            # The rows are those of the first batch, as its bytes are what is known of the size of a row; how many rows
            # will come is not known. Rows are identified like those of arrays: by the dataset and their place in it.
            self._info = FileInfo(
                rows=table.rows,
                borders=(0,),
                columns=table.infos,
                identity=self.inputs[0].dataset,
                collections=find_collections(table.infos),
            )
        else:
            table = self._columns.checked(table, where)
        if self._left is not None and table.rows > self._left:
            table = part(table, 0, self._left)
        with self._changed:
            if self.ended:
                return False
            if table.rows:
                self._cut(table)
                self.taken += table.rows
            if self._left is not None:
                self._left -= table.rows
            return self._left is None or self._left > 0

    def end(self) -> None:
        """Nothing more comes: what there is of the last unit is a unit."""
        with self._changed:
            if not self.ended:
                self.ended = True
                if self._unfinished:
                    self._hand_on(self._unfinished, (self.taken,))
                    self._unfinished = []
            self._changed.notify_all()

    def _cut(self, table: ArrayTable) -> None:
        start, stop = self.taken, self.taken + table.rows
        grid = self._batch
        if grid is None:
            ends = (*range(start + MAX_UNIT_ROWS, stop, MAX_UNIT_ROWS), stop)
            self._hand_on([(start, table)], ends)
            return
        last = stop - stop % grid
        if last <= start:
            self._unfinished.append((start, table))
            if len(self._unfinished) >= MANY_PIECES:
                self._unfinished = _fewer(self._unfinished)
            return
        first = start - start % grid + grid
        head = table if last == stop else part(table, 0, last - start)
        self._hand_on([*self._unfinished, (start, head)], tuple(range(first, last + 1, grid)))
        self._unfinished = []
        if last < stop:
            self._unfinished = [(last, packed(part(table, last - start, stop - start)))]

    def _hand_on(self, pieces: list[tuple[int, ArrayTable]], ends: tuple[int, ...]) -> None:
        for start, table in pieces:
            self._starts.append(start)
            self._tables.append(table)
        size = sum(int(column.nbytes) for _, table in pieces for column in table.columns.values())
        portion = Portion(pieces[0][0], ends, size)
        self._ready.append(portion)
        self.held += portion.bytes
        self.most_held = max(self.most_held, self.held)

    # -- the side of the run -----------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        return bool(self._ready)

    def take(self) -> Portion | None:
        """Hand over the units that wait, a quarter of the limit at most: while they are worked on, more can come."""
        with self._changed:
            if not self._ready:
                return None
            first = self._ready.popleft()
            size, ends = first.bytes, list(first.ends)
            while self._ready and size + self._ready[0].bytes <= self.buffer // 4:
                following = self._ready.popleft()
                size += following.bytes
                ends += following.ends
            self.borders.extend(ends)
            return Portion(first.start, tuple(ends), size)

    def release(self, portion: Portion) -> None:
        with self._changed:
            first = bisect_right(self._starts, portion.start) - 1
            stop = bisect_right(self._starts, portion.stop - 1)
            del self._starts[first:stop]
            del self._tables[first:stop]
            self.borders.forget(self._starts[0] if self._starts else self.borders[-1])
            self.held -= portion.bytes
            self._changed.notify_all()

    def close(self) -> None:
        self.end()
        with self._changed:
            self._ready.clear()
            self._starts.clear()
            self._tables.clear()
            self.held = 0

    def open(self, index: int) -> StreamReader:  # noqa: ARG002 - there is one
        if self._columns is None or self._info is None:
            raise DataError(f"{self.inputs[0].label}: no batch has come, so that its columns are not known")
        return StreamReader(self, self._columns, self._info)

    def find(self, start: int, stop: int) -> list[tuple[ArrayTable, int, int]]:
        """List the tables that hold rows, and which of theirs these are."""
        with self._changed:
            at = bisect_right(self._starts, start) - 1
            found = []
            while 0 <= at < len(self._starts) and self._starts[at] < stop:
                first, table = self._starts[at], self._tables[at]
                low, high = max(start - first, 0), min(stop - first, table.rows)
                if low < high:
                    found.append((table, low, high))
                at += 1
        if sum(high - low for _, low, high in found) != stop - start:
            raise DataError(f"{self.inputs[0].label}: rows {start}-{stop} are gone: a stream is read once, as it runs")
        return found


def _gone(label: str, dataset: str, metadata: Mapping[str, Any]) -> Flow:
    flow = Flow(label=label, dataset=dataset, metadata=metadata, batch=None, columns=None, buffer=1)
    flow.close()
    return flow


def _fewer(pieces: list[tuple[int, ArrayTable]]) -> list[tuple[int, ArrayTable]]:
    """Join neighbours of similar size, until each has more than twice the rows of the next.

    However many pieces come, a row is copied no more often than what it is in can grow by half.
    """
    groups: list[list[tuple[int, ArrayTable]]] = []
    sizes: list[int] = []
    for piece in pieces:
        groups.append([piece])
        sizes.append(piece[1].rows)
        while len(groups) > 1 and sizes[-2] <= 2 * sizes[-1]:
            last, size = groups.pop(), sizes.pop()
            groups[-1] += last
            sizes[-1] += size
    return [_one(group) for group in groups]


def _one(pieces: list[tuple[int, ArrayTable]]) -> tuple[int, ArrayTable]:
    if len(pieces) == 1:
        return pieces[0]
    names = pieces[0][1].columns
    columns = {name: concatenate([table.columns[name] for _, table in pieces]) for name in names}
    return pieces[0][0], ArrayTable(columns, "a part of a unit")


class StreamReader:
    """Reads rows that are in memory at the moment; one thread's."""

    def __init__(self, flow: Flow, columns: Columns, info: FileInfo) -> None:
        self.info = info
        self.bytes_read = 0
        self.reads: list[tuple[str, int, int]] = []
        self._flow = flow
        self._empty = columns.empty

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        check_request(self.info, self._flow.inputs[0].label, columns, 0, 0)
        if not 0 <= start <= stop:
            raise UsageError(f"a stream has no rows [{start}, {stop})")
        places = self._flow.find(start, stop) if start < stop else [(self._empty, 0, 0)]
        out: dict[str, Any] = {}
        for name in columns:
            values = concatenate([table.columns[name][low:high] for table, low, high in places])
            out[name] = values = as_read(self.info.columns[name].kind, values)
            self.bytes_read += values.nbytes
            self.reads.append((name, start, stop))
        return out

    def close(self) -> None:
        """Release nothing: rows go when they are done."""


def table_of(batch: Any, where: str, columns: Sequence[str] | None = None) -> ArrayTable:
    """Make a table of a batch; ``columns`` are the only ones that are taken, if it says so."""
    arrays = _named_arrays(batch, where)
    if columns is not None:
        names = list(arrays) if isinstance(arrays, Mapping) else list(arrays.fields)
        for name in columns:
            if name not in names:
                raise DataError(f"{where} has no column {name!r}{nearest(name, names)}")
        arrays = {name: arrays[name] for name in columns}
    try:
        return packed(ArrayTable(arrays, where))
    except SpecError as error:
        raise DataError(error.message) from error


def _named_arrays(batch: Any, where: str) -> Any:
    if isinstance(batch, Mapping):
        return batch
    if isinstance(batch, np.ndarray) and batch.dtype.names:
        return {name: batch[name] for name in batch.dtype.names}
    if isinstance(batch, ak.Array) and batch.fields:
        return batch
    if hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__"):
        return _from_arrow(batch)
    raise DataError(
        f"{where} is a {type(batch).__name__} ({batch!r:.60}); a batch is a mapping of arrays, an awkward array of "
        "records, or a record batch or table of Arrow"
    )


def _own(column: Any) -> Any:
    """Return a column in memory of its own: who fills the same memory again cannot know when this batch is done.

    Awkward and Arrow arrays may be views of such memory as well, and do not tell.
    """
    if isinstance(column, np.ndarray):
        safe = column.flags.owndata and not column.flags.writeable
        return column if safe else column.copy()
    return ak.copy(ak.to_packed(column))  # packed first: of a slice only what it shows


def _from_arrow(batch: Any) -> dict[str, Any]:
    import pyarrow as pa

    from windrow.data.formats.parquet import convert, find_leaves

    table = pa.table(batch)
    leaves = find_leaves(table.schema)
    return {name: convert(leaf, table) for name, leaf in leaves.items()}


class Columns:
    """What the batches of a stream have in common."""

    def __init__(self, first: ArrayTable, where: str) -> None:
        self.where = where  #: the batch that decided
        self.kinds = {name: _kind(column) for name, column in first.columns.items()}
        for name, column in first.columns.items():
            if isinstance(column, ak.Array) and _is_unknown(column.type.content):
                raise DataError(
                    f"column {name!r} has no values in {where}, the first of the stream, so that its type is not known "
                    f"({self.kinds[name]}): begin with a batch that has some, or say the type, for instance with "
                    'ak.enforce_type(array, "var * float64")'
                )
        self.empty = packed(part(first, 0, 0))  #: no rows, of the right types

    def checked(self, table: ArrayTable, where: str) -> ArrayTable:
        """Return a later batch with the types of the first; raise where it has other types."""
        if differing := sorted(self.kinds.keys() ^ table.columns.keys()):
            name = differing[0]
            has, lacks = (self.where, where) if name in self.kinds else (where, self.where)
            raise DataError(
                f"{has} has the column {name!r} and {lacks} has not: all batches of a stream have the same columns; "
                "name those you need with columns=[...]"
            )
        changed: dict[str, Any] = {}
        for name, wanted in self.kinds.items():
            column = table.columns[name]
            found = _kind(column)
            if found == wanted:
                continue
            # What only says less about its type is converted: no missing values among it, or no values at all.
            if wanted == f"?{found}" or "unknown" in found:
                changed[name] = ak.concatenate([self.empty.columns[name], column])
            if _kind(changed.get(name, column)) != wanted:
                raise DataError(
                    f"column {name!r} is of type {found} in {where} and of type {wanted} in {self.where}: it has one type "
                    "in all batches of a stream"
                )
        return ArrayTable({**table.columns, **changed}, where) if changed else table


def _kind(column: Any) -> str:
    return _name(column.dtype) if isinstance(column, np.ndarray) else str(column.type.content)


def _is_unknown(kind: Any) -> bool:
    inside = getattr(kind, "contents", None) or [getattr(kind, "content", None)]
    return isinstance(kind, ak.types.UnknownType) or any(_is_unknown(one) for one in inside if one is not None)


@lru_cache(maxsize=64)  # numpy takes 20 us to write one down, for each column of each batch
def _name(dtype: np.dtype[Any]) -> str:
    return str(dtype.newbyteorder("="))


def part(table: ArrayTable, start: int, stop: int) -> ArrayTable:
    return ArrayTable({n: c[start:stop] for n, c in table.columns.items()}, "a part of a batch")


def packed(table: ArrayTable) -> ArrayTable:
    """Return the same rows in memory of their own, so that those around them can go."""
    return ArrayTable({name: _own(column) for name, column in table.columns.items()}, "a part of a batch")
