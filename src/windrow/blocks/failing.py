"""Which rows a failing call is to be held against: those on which the function raises by themselves.

They are found by asking again about halves, on the columns that are there, within a budget: a function that fails
everywhere is not asked row by row. What raises only for several rows together, or is no matter of rows at all (no
memory, an unreadable block, an answer of the wrong length), is left to those who leave out whole units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windrow.blocks.failures import described, exception_of, named_error, regions_with
from windrow.blocks.selection import Selection
from windrow.core.records import Failure, FailureKind, Rows
from windrow.errors import StepError, WindrowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundOutput, BoundStep

    #: What a function raises on the rows at these positions; None: nothing.
    Ask = Callable[[NDArray[np.int64]], Exception | None]


#: Offending rows of a chunk. Beyond it the chunk fails, and then its units one by one: what counts in the end is that
#: a unit has no more, whatever the chunks.
MOST_ROWS = 64
#: Calls to find them: two for each halving, so that they are enough for so many rows of any unit (a quarter of a
#: million rows at most), one by one.
MOST_PROBES = 2_500
#: Exceptions of a chunk that are kept; of the others, the words.
KEPT_EXCEPTIONS = 3


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is left out, and why."""

    row: int  #: of the file
    step: str
    what: str  #: which function raised what
    region: str
    cause: Exception | None = None


class RowsFailed(Exception):
    """A function fails on these rows of a chunk, each by itself: the chunk is to be run without them."""

    def __init__(self, rows: tuple[LeftOut, ...]) -> None:
        super().__init__(f"{len(rows)} rows fail")
        self.rows = rows


class _NotRows(Exception):
    """The failure cannot be held against a few rows."""


def is_about_rows(error: Exception) -> bool:
    """Say whether an exception of a user's function may be the fault of some of its rows."""
    return not isinstance(error, WindrowError | MemoryError)


class Search:
    """Looks for offending rows; its budget is for all attempts at one chunk."""

    def __init__(self, rows: int = MOST_ROWS, probes: int = MOST_PROBES) -> None:
        self._rows = rows
        self._probes = probes
        self._exceptions = KEPT_EXCEPTIONS

    def of_step(
        self, run: ChunkRun, step: BoundStep, rows: Selection, error: Exception | None
    ) -> tuple[LeftOut, ...] | None:
        """Find all rows on which a step fails; None if it is not for a few rows that it does.

        ``error`` is what it raised on exactly these rows, if that is known.
        """

        def ask(index: NDArray[np.int64]) -> Exception | None:
            found = exception_of(run, step, Selection(rows.length, index))
            self._refuse_unreadable(run, step, rows, found)
            return found

        return self.of(run, step, step.lanes, rows.positions(), ask, error)

    def of(
        self,
        run: ChunkRun,
        step: BoundStep | BoundOutput,
        lanes: tuple[int, ...],
        index: NDArray[np.int64],
        ask: Ask,
        error: Exception | None,
    ) -> tuple[LeftOut, ...] | None:
        """Find all rows among the positions ``index`` of a chunk on which a function fails, as ``of_step``."""
        found: list[tuple[int, Exception]] = []

        def asked(part: NDArray[np.int64]) -> Exception | None:
            run.stop_if_asked()
            self._probes -= 1
            if self._probes < 0:
                raise _NotRows
            raised = ask(part)
            if raised is not None and not is_about_rows(raised):
                raise _NotRows
            return raised

        try:
            if error is None:
                error = asked(index)
            if error is not None:
                self._descend(index, error, asked, found)
        except _NotRows:
            return None
        return tuple(self._left_out(run, step, lanes, row, raised) for row, raised in found)

    def _descend(
        self, index: NDArray[np.int64], error: Exception | None, ask: Ask, found: list[tuple[int, Exception]]
    ) -> None:
        """Go down into rows that fail; ``error`` is None if that is only known from the others, which do not."""
        if len(index) == 1:
            error = ask(index) if error is None else error
            if error is None or self._rows == 0:
                raise _NotRows
            self._rows -= 1
            found.append((int(index[0]), error))
            return
        left, right = np.array_split(index, 2)
        raised = ask(left)
        if raised is None:
            self._descend(right, None, ask, found)
            return
        self._descend(left, raised, ask, found)
        raised = ask(right)
        if raised is not None:
            self._descend(right, raised, ask, found)

    def _left_out(
        self, run: ChunkRun, step: BoundStep | BoundOutput, lanes: tuple[int, ...], row: int, error: Exception
    ) -> LeftOut:
        cause = None
        if self._exceptions:
            self._exceptions -= 1
            # Its frames would keep the arrays of the chunk alive until the run ends.
            cause = error.with_traceback(None)
        region = regions_with(run, lanes, row)
        return LeftOut(run.start + row, step.name, described(step, error), region, cause)

    @staticmethod
    def _refuse_unreadable(run: ChunkRun, step: BoundStep, rows: Selection, error: Exception | None) -> None:
        if error is not None and run.store.read_error is not None:
            raise named_error(run, step, rows, error) from error


def skipped(
    rows: Iterable[LeftOut],
    input: int,  # noqa: A002 - the word of the house
    label: str,
) -> tuple[tuple[Rows, Failure], ...]:
    """Say why rows of an input were left out; neighbours with the same reason are told together."""
    groups: list[list[LeftOut]] = []
    for row in sorted(rows, key=lambda one: one.row):
        last = groups[-1][-1] if groups else None
        if last is not None and last.row + 1 == row.row and _reason(last) == _reason(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple(_entry(group, input, label) for group in groups)


def _reason(row: LeftOut) -> tuple[str, str, str]:
    return row.step, row.what, row.region


def _entry(
    group: list[LeftOut],
    input: int,  # noqa: A002 - the word of the house
    label: str,
) -> tuple[Rows, Failure]:
    first = group[0]
    start, stop = first.row, group[-1].row + 1
    where = f"row {start}" if stop == start + 1 else f"rows {start}-{stop}"
    message = f"{first.what} [{label}, {where}; region {first.region}]"
    error = None
    if first.cause is not None:
        error = StepError(
            message,
            step=first.step, file=label, start=start, stop=stop, region=first.region,
        )  # fmt: skip
        error.__cause__ = first.cause
    place = f"{first.step}, {label}"
    failure = Failure(FailureKind.USER, StepError.__name__, message, place, error)
    return Rows(input, start, stop), failure
