"""The rows of a stream while somebody runs over them: taken in, cut into units, read, and forgotten.

Rows are numbered from 0 over the whole stream. What was taken is in memory until it is released; a
limit in bytes holds the producer back, so the memory does not depend on who is faster.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from windrow.data.arrays import as_read, concatenate
from windrow.data.base import MAX_UNIT_ROWS, FileInfo, Input
from windrow.data.columns import check_request, find_collections
from windrow.data.stream.batches import Columns, packed, part, size_of, table_of
from windrow.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windrow.data.arrays import ArrayTable


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
        self.datasets = {dataset: metadata}
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
            columns = Columns(table, where)
            info = _info(columns, self.inputs[0].dataset)
            self._columns, self._info = columns, info
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
        portion = Portion(pieces[0][0], ends, size_of(table for _, table in pieces))
        self._ready.append(portion)
        self.held += portion.bytes
        self.most_held = max(self.most_held, self.held)

    # -- the side of the run -----------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        return bool(self._ready)

    def take(self) -> Portion | None:
        """Hand over the units that wait, a quarter of the limit at most: while they are worked on, others can come."""
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
        """Forget everything but the types of columns."""
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
    from windrow.data.arrays import ArrayTable

    if len(pieces) == 1:
        return pieces[0]
    names = pieces[0][1].columns
    columns = {name: concatenate([table.columns[name] for _, table in pieces]) for name in names}
    return pieces[0][0], ArrayTable(columns, "a part of a unit")


def _info(columns: Columns, dataset: str) -> FileInfo:
    # The rows are those of the first batch, as its bytes are what is known of the size of a row; how many rows will
    # come is not known. Rows are identified like those of arrays: by the dataset and their place in it.
    return FileInfo(
        rows=columns.first_rows,
        borders=(0,),
        columns=columns.infos,
        identity=dataset,
        collections=find_collections(columns.infos),
    )


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
