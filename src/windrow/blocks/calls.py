"""Calling a user's function on some rows of a chunk: arguments gathered, blocks cut, answers checked, costs measured.

The arguments of a step are gathered once for its rows; the function then sees all of them, a block of them or a sample,
always through the same door.
"""

from __future__ import annotations

import copy
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.blocks.collections import collection
from windrow.blocks.fetch_ahead import Lookahead
from windrow.blocks.results import checked, joined
from windrow.blocks.scalars import Jagged
from windrow.core.records import StepCost
from windrow.errors import StepError, error_text
from windrow.random import Rng, entry_identities, identity_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.columns import ColumnStore, Ranges
    from windrow.blocks.program import Argument, BoundOutput, BoundStep, Program
    from windrow.blocks.selection import Selection

#: A step that computes for less than this share of its time waits for itself (a file, a server); of other steps the time that they
#: did not compute was taken by other threads and programs.
WAITS = 0.1


class Stopwatch:
    """Seconds that something takes, without reading: of the processor, unless it does little but wait.

    Other threads and programs make everything take longer, a step that drops no row as much as one that drops all: what
    they take is no cost of a step.
    """

    __slots__ = ("_computed", "_store", "_wall")

    def __init__(self, store: ColumnStore | None = None) -> None:
        self._store = store
        self._wall, self._computed = self._now()

    def _now(self) -> tuple[float, float]:
        store = self._store
        if store is None:
            return perf_counter(), thread_time()
        return perf_counter() - store.read_seconds, thread_time() - store.read_cpu_s

    def seconds(self) -> float:
        wall, computed = self._now()
        wall, computed = max(wall - self._wall, 0.0), max(computed - self._computed, 0.0)
        return computed if computed > WAITS * wall else wall


@dataclass(slots=True)
class Meter:
    """Sums for one step: enough to fit its fixed and its per-row cost later."""

    calls: int = 0
    rows_in: int = 0
    rows_out: int = 0
    wall: float = 0.0
    rows_squared: float = 0.0
    rows_wall: float = 0.0
    bytes_read: int = 0
    read_s: float = 0.0

    def call(self, rows: int, seconds: float) -> None:
        """Count one call of the user's function."""
        self.calls += 1
        self.rows_in += rows
        self.wall += seconds
        self.rows_squared += float(rows) * rows
        self.rows_wall += rows * seconds

    @contextmanager
    def reading(self, store: ColumnStore) -> Iterator[None]:
        """Count what is read from the file meanwhile, wherever that happens, and how long it takes."""
        size, seconds = store.reader.bytes_read, store.read_seconds
        try:
            yield
        finally:
            self.bytes_read += store.reader.bytes_read - size
            self.read_s += store.read_seconds - seconds

    def cost(self) -> StepCost:
        return StepCost(**{name: getattr(self, name) for name in StepCost._fields})


#: A choice among gathered rows: None for all, a slice for a block, positions for a sample.
Pick = slice | Any | None


def sealed(values: Any) -> Any:
    """Return a view whose numbers cannot be written to: other steps, and perhaps the user, read the same array."""
    if isinstance(values, np.ndarray):
        values = values.view()
        values.flags.writeable = False
    elif isinstance(values, ak.Array):
        layout = _sealed_layout(values.layout)
        if layout is not values.layout:
            values = ak.Array(layout, behavior=values.behavior, attrs=values.attrs)
    elif isinstance(values, dict):
        values = {name: sealed(value) for name, value in values.items()}
    return values


def _sealed_layout(layout: Any) -> Any:
    """Seal the numbers of an awkward layout; fields that were not read yet come sealed when they are."""
    if layout.is_numpy:
        if isinstance(layout.data, np.ndarray) and layout.data.flags.writeable:
            return layout.copy(data=sealed(layout.data))
    elif layout.is_record or layout.is_union:
        contents = [_sealed_layout(content) for content in layout.contents]
        if any(one is not other for one, other in zip(contents, layout.contents, strict=True)):
            return layout.copy(contents=contents)
    elif layout.is_list or layout.is_option or layout.is_indexed:
        content = _sealed_layout(layout.content)
        if content is not layout.content:
            return layout.copy(content=content)
    return layout


def is_flat(arguments: Sequence[Any]) -> bool:
    """Say whether all arguments are plain NumPy arrays, so that blocks may be small."""
    return all(isinstance(argument, np.ndarray) or argument is None for argument in arguments)


class Caller:
    """Gathers arguments for the steps of one chunk and calls them."""

    def __init__(
        self,
        program: Program,
        store: ColumnStore,
        alive: Callable[[tuple[int, ...]], Selection],
        order: Sequence[str] | None = None,
    ) -> None:
        self.program = program
        self.store = store
        self.blocks: Mapping[str, int] = {}  #: rows at once of steps that take plain arrays
        self.block_rows: int | None = None  #: rows at once of every step at most; None: any number
        self._alive = alive  #: rows that any of the given lanes still wants
        self._ahead: Lookahead | None = None  #: only over a slow link
        if store.link is not None:
            steps = program.written if order is None else order
            self._ahead = Lookahead(program, store, store.link, alive, steps)
        self._current = ""
        self._records: dict[str, tuple[Selection, tuple[int, ...], Any]] = {}
        self._identity: tuple[Selection, NDArray[np.uint64]] | None = None

    def clear(self) -> None:
        self._records.clear()
        self._identity = None
        if self._ahead is not None:
            self._ahead.finish()

    def prepare(self, name: str, arguments: Sequence[Argument], selection: Selection) -> None:
        """Read everything a step is known to need, in one request for each range."""
        self._current = name
        columns = self.program.file_columns(name, arguments)
        if self._ahead is not None:
            self._ahead.need(name, columns, selection)
        if columns:
            self.store.load(columns, selection)

    def answer(self, step: BoundStep, selection: Selection, meter: Meter | None = None) -> Any:
        """Call a step on some rows, in blocks where it takes plain arrays, and check what it returns.

        A step on awkward arrays has a high price per call: it sees all rows at once.
        """
        self.prepare(step.name, step.arguments, selection)
        if step.kernel is not None:
            return self.each(step, selection)(meter)
        arguments = self.gather(step.arguments, selection, step.lanes)
        return self._answer_blocks(step, arguments, selection, meter)

    def gathered(self, step: BoundStep, selection: Selection) -> Callable[[Meter | None], Any] | None:
        """Give a function that does the rest of ``answer`` and reads nothing; None if the step takes more than plain arrays."""
        self.prepare(step.name, step.arguments, selection)
        if step.kernel is not None:
            return self.each(step, selection)
        arguments = self.gather(step.arguments, selection, step.lanes)
        if not is_flat(arguments):
            return None
        return lambda meter: self._answer_blocks(step, arguments, selection, meter)

    def _answer_blocks(
        self, step: BoundStep, arguments: Sequence[Any], selection: Selection, meter: Meter | None
    ) -> Any:
        count = selection.count
        size = self.blocks.get(step.name, count) if arguments and is_flat(arguments) else count
        size = min(size, self.block_rows or size)
        if count <= size:
            return checked(step, self.call(step, arguments, selection, None, meter), count)
        parts = []
        for start in range(0, count, size):
            pick = slice(start, min(start + size, count))
            value = self.call(step, arguments, selection, pick, meter)
            parts.append(checked(step, value, pick.stop - pick.start))
        return joined(parts)

    def gather(self, arguments: Sequence[Argument], selection: Selection, lanes: tuple[int, ...]) -> list[Any]:
        """Return the arguments of a function for the rows of ``selection``, sealed against writing."""
        return [sealed(self._argument(argument, selection, lanes)) for argument in arguments]

    def rng(self, selection: Selection, pick: Pick = None) -> Rng:
        """Return the random numbers of some rows; identity columns are read only if numbers are drawn."""
        seed = self.program.seed
        if pick is None:
            return Rng(seed, lambda: self.identities(selection), selection.count)
        return Rng(seed, lambda: self.identities(selection)[pick], _size(pick))

    def call(
        self,
        step: BoundStep | BoundOutput,
        arguments: Sequence[Any],
        selection: Selection,
        pick: Pick = None,
        meter: Meter | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function on the picked rows of its gathered arguments."""
        keywords = dict(step.keywords)
        if extra:
            keywords.update(extra)
        if step.wants_rng:
            keywords["rng"] = self.rng(selection, pick)
        picked = [_own(argument, pick) for argument in arguments]
        self._current = step.name
        watch = Stopwatch(self.store)
        with _within_step():
            value = step.function(*picked, **keywords)
        if meter is not None:
            meter.call(selection.count if pick is None else _size(pick), watch.seconds())
        return value

    def each(self, step: BoundStep, selection: Selection) -> Callable[[Meter | None], Any]:
        """Make an ``each=True`` step ready to run: jagged columns as they are stored, with the selection, wherever that works."""
        kernel = step.kernel
        assert kernel is not None
        self._current = step.name
        whole = self._whole(step.arguments, selection)
        if whole is None:
            gathered = [self._argument(a, selection, step.lanes) for a in step.arguments]
            whole = [_scalars(argument) for argument in gathered], None, selection.count
        arguments, rows, length = whole
        kernel.compile_for(arguments, length)

        def run(meter: Meter | None) -> Any:
            watch = Stopwatch(self.store)  # identity columns are read when the first number is drawn
            rng = self.rng(selection) if step.wants_rng else None
            with _within_step():
                value = kernel(arguments, rows, length, rng)
            if meter is not None:
                meter.call(selection.count, watch.seconds())
            return checked(step, value, selection.count)

        return run

    # -- inside ------------------------------------------------------------------------------

    def _argument(self, argument: Argument, selection: Selection, lanes: tuple[int, ...]) -> Any:
        if argument.kind == "file":
            return self.store.file(argument.source, selection)
        if argument.kind == "made":
            return self.store.made(argument.source, selection)
        if argument.kind == "collection":
            return self._collection(argument, selection, lanes)
        if argument.kind == "glob":
            return {name: self.store.file(name, selection) for name in argument.members}
        if argument.default is None:
            return None
        return np.full(selection.count, argument.default)

    def _collection(self, argument: Argument, selection: Selection, lanes: tuple[int, ...]) -> Any:
        held = self._records.get(argument.source)
        if held is not None and held[0] is selection and held[1] == lanes:
            return held[2]

        def touch(column: str) -> Ranges:
            # Called whenever a field is first used: by this step, or by one that got the records through a
            # made column. Both belong to lanes that need this step, so no other row will ever be looked at.
            known = self.program.touched.get(self._current, frozenset())
            self.program.touched[self._current] = known | {column}
            ranges = self.store.ranges(self._alive(lanes))
            if self._ahead is not None:
                self._ahead.touch(self._current, column, argument.members, ranges)
            return ranges

        records = collection(self.store, argument.source, argument.members, self.program.columns, selection, touch)
        self._records[argument.source] = (selection, lanes, records)
        return records

    def identities(self, selection: Selection) -> NDArray[np.uint64]:
        """Return one number per row that is the same wherever the row is stored."""
        if self._identity is None or self._identity[0] is not selection:
            names = self.program.identity
            if names:
                self.store.load(names, selection)
                rows = identity_hash([self.store.file(name, selection) for name in names])
            elif (column := self.store.reader.info.identity_column) is not None:
                rows = np.asarray(self.store.file(column, selection), dtype=np.uint64)
            else:
                file = self.store.reader.info.identity
                rows = entry_identities(file, self.store.start, selection.count, selection.index)
            self._identity = (selection, rows)
        return self._identity[1]

    def _whole(
        self, arguments: Sequence[Argument], selection: Selection
    ) -> tuple[list[Any], NDArray[np.int64] | None, int] | None:
        """Stored arrays and where the rows stand in them, if all columns were read for the same ranges."""
        if any(argument.kind not in ("file", "default") for argument in arguments):
            return None
        stored = {a.source: self.store.whole(a.source, selection) for a in arguments if a.source}
        ranges = {column.ranges for column in stored.values()}
        if len(ranges) != 1:
            return None
        (common,) = ranges
        length = sum(last - first for first, last in common)
        values = [_scalars(stored[a.source].array) if a.kind == "file" else a.default for a in arguments]
        return values, self.store.locate(selection, common), length


@contextmanager
def _within_step() -> Iterator[None]:
    """Make an error of what would end the program, or pass for something else, if a step raises it."""
    process = os.getpid()
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"a step must not end the program: sys.exit({error.code!r})") from error
    except Exception:
        raise
    except BaseException as error:
        at_driver = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and at_driver and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise  # Ctrl-C arrives there, and not in the processes of workers
        raise RuntimeError(f"a step raised {type(error).__name__}: {error_text(error)}") from error
    finally:
        if os.getpid() != process:
            os._exit(1)  # a child that the step forked and did not end: the rows are those of its parent


def _own(argument: Any, pick: Pick) -> Any:
    """Return the picked rows of an argument as an object of the call's own: a step may assign fields to it."""
    if isinstance(argument, dict):
        return {name: _own(value, pick) for name, value in argument.items()}
    if argument is None or (pick is None and isinstance(argument, np.ndarray)):
        return argument
    return copy.copy(argument) if pick is None else argument[pick]


def _size(pick: Any) -> int:
    return pick.stop - pick.start if isinstance(pick, slice) else len(pick)


def _scalars(values: Any) -> Any:
    """Turn a column into what kernels take: a flat array, or offsets and content."""
    if not isinstance(values, ak.Array):
        return values
    try:
        if values.ndim == 1:
            return ak.to_numpy(values, allow_missing=False)
        layout = ak.to_packed(values).layout
        if layout.is_option or (layout.is_list and layout.content.is_option):
            layout = _without_option(values)
        return Jagged(np.asarray(layout.offsets, dtype=np.int64), np.asarray(layout.content.data))
    except (ValueError, AttributeError) as error:
        raise StepError(
            f"each=True takes numbers or lists of numbers, got {values.type}; where values are missing, fill them with "
            "ak.fill_none in a column of its own first"
        ) from error


def _without_option(values: ak.Array) -> Any:
    """Return lists that might have missing values, but have none, as plain ones."""
    if any(ak.any(ak.is_none(values, axis=axis), axis=None) for axis in (0, 1)):
        raise ValueError("values are missing")
    return ak.to_packed(ak.drop_none(values)).layout
