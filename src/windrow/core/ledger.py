"""The ledger: what became of every row, exactly once.

A row of an input is missing, held (its worker keeps a partial of it), done (the partial was
fetched) or failed. A handle is accepted all or nothing. Only the methods here move rows between
these states, and none of them can make two handles own a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from windrow.core.intervals import Intervals
from windrow.core.records import Failure, Handle, Rows
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Book", "Entry", "FailedRows", "Ledger", "RowState", "covers"]

RowState = Literal["done", "failed", "held", "missing"]


class FailedRows(NamedTuple):
    """Rows that were given up, and why."""

    rows: Rows
    failure: Failure


class Entry(NamedTuple):
    """What became of a range of rows of an input; no stop where nobody knows how many there are."""

    start: int
    stop: int | None
    state: RowState
    reason: str


def covers(rows: Iterable[Rows], parts: Iterable[Rows]) -> bool:
    """Say whether parts are just these rows, each once; none of them may be empty."""
    parts = list(parts)
    return all(part.start < part.stop for part in parts) and _joined(parts) == _joined(rows)


def _joined(rows: Iterable[Rows]) -> list[Rows]:
    """Sort rows and join neighbours; rows that are there twice stay apart."""
    joined: list[Rows] = []
    for part in sorted(rows):
        if joined and joined[-1].input == part.input and joined[-1].stop == part.start:
            joined[-1] = joined[-1]._replace(stop=part.stop)
        else:
            joined.append(part)
    return joined


class Book:
    """The rows of one input, for one output."""

    __slots__ = ("done", "everything", "failed", "taken")

    def __init__(self) -> None:
        self.everything = Intervals()  #: rows that the run is asked for
        self.taken = Intervals()  #: held, done or failed: nobody else may own them
        self.failed = Intervals()
        self.done = 0  #: how many; which ones are those taken and neither held nor failed


class Ledger:
    """Interval sets per (input, output), and who holds what."""

    def __init__(self, outputs: tuple[str, ...] = ("",)) -> None:
        self.outputs = outputs
        self.books: dict[tuple[int, str], Book] = {}
        self.held: dict[int, Handle] = {}  #: handle id -> handle; each row is in at most one
        self.failures: dict[int, list[FailedRows]] = {}  #: by input
        self.failed_inputs: dict[int, Failure] = {}  #: never opened, so their rows are not known
        self.unopened: dict[int, None] = {}  #: inputs whose rows are not known yet
        self.known_rows = self.held_rows = self.done_rows = self.failed_rows = 0
        self.closed_inputs = 0  #: books in which every row is done or failed

    def expect(self, input_id: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Say which rows of an input belong to the run."""
        self.unopened.pop(input_id, None)
        ranges = list(ranges)
        for output in self.outputs:
            book = self.books[input_id, output] = Book()
            book.everything = Intervals(ranges)
            self.known_rows += book.everything.total
            self.closed_inputs += not book.everything.total

    def accept(self, handle: Handle, skipped: tuple[tuple[Rows, Failure], ...] = ()) -> bool:
        """Let a handle hold its rows, and give up ``skipped`` ones; False if one has an owner."""
        rows = handle.rows
        taken = self._book(handle).taken
        if skipped and not all(taken.free(part.start, part.stop) for part, _ in skipped):
            return False
        if len(rows) > 1 and not all(taken.free(part.start, part.stop) for part in rows):
            return False
        for _, start, stop in rows:
            if not taken.add(start, stop):
                if len(rows) == 1:  # adding one range is all or nothing by itself
                    return False
                raise InternalError(f"{handle} names a row twice")
            self.held_rows += stop - start
        self.held[handle.id] = handle
        for part, failure in skipped:
            self.fail(part, failure)
        return True

    def _book(self, handle: Handle) -> Book:
        return self.books[handle.rows[0].input, handle.output]  # a handle covers one input only

    def unowned(self, rows: Iterable[Rows]) -> list[Rows]:
        """List the parts of rows that nobody owns."""
        return [
            Rows(part.input, start, stop)
            for part in rows
            for start, stop in self.books[part.input, self.outputs[0]].taken.gaps(*part[1:])
        ]

    def replace(self, inputs: Iterable[int], into: Handle) -> None:
        """Let a merged handle, whose rows are those of its inputs, own what they owned."""
        for handle_id in inputs:
            del self.held[handle_id]
        self.held[into.id] = into

    def settle(self, handle_id: int) -> None:
        """The handle's partial is safe: its rows are done."""
        handle = self.held.pop(handle_id)
        book = self._book(handle)
        rows = sum([stop - start for _, start, stop in handle.rows])
        book.done += rows
        self.held_rows -= rows
        self.done_rows += rows
        self._count_closed(book)

    def release(self, handle_id: int) -> tuple[Rows, ...]:
        """The handle is gone: its rows have no owner any more."""
        handle = self.held.pop(handle_id)
        taken = self._book(handle).taken
        for _, start, stop in handle.rows:
            taken.remove(start, stop)
            self.held_rows -= stop - start
        return handle.rows

    def fail(self, rows: Rows, failure: Failure) -> None:
        """Give rows up for all outputs."""
        for output in self.outputs:
            book = self.books[rows.input, output]
            if not book.taken.add(rows.start, rows.stop):
                raise InternalError(f"{rows} cannot be given up: some of them have an owner")
            book.failed.add(rows.start, rows.stop)
            self.failed_rows += rows.stop - rows.start
            self._count_closed(book)
        self.failures.setdefault(rows.input, []).append(FailedRows(rows, failure))

    def fail_input(self, input_id: int, failure: Failure) -> None:
        """Give up an input that could not be opened."""
        self.unopened.pop(input_id, None)
        self.failed_inputs[input_id] = failure

    def _count_closed(self, book: Book) -> None:
        if book.done + book.failed.total == book.everything.total:
            self.closed_inputs += 1

    @property
    def complete(self) -> bool:
        """Whether every row of every input is done."""
        return self.accounted and not self.failed_rows and not self.failed_inputs

    @property
    def accounted(self) -> bool:
        """Whether every row of every input is done or failed."""
        return not self.unopened and self.done_rows + self.failed_rows == self.known_rows

    def missing(self) -> tuple[Rows, ...]:
        """List the known rows that are neither done nor failed, by input and range."""
        return tuple(
            Rows(input_id, entry.start, entry.stop)
            for input_id in sorted({input_id for input_id, _ in self.books})
            for entry in self.account(input_id)
            if entry.stop is not None and entry.state in ("held", "missing")
        )

    def last_row(self, input_id: int, output: str = "") -> int:
        """Give the end of the last row that the run is asked for; 0 if there is none."""
        book = self.books.get((input_id, output))
        return 0 if book is None else max((stop for _, stop in book.everything), default=0)

    def account(self, input_id: int, output: str = "") -> list[Entry]:
        """List what became of the rows of an input, in order; one open entry if it has no book."""
        book = self.books.get((input_id, output))
        if book is None:
            failure = self.failed_inputs.get(input_id)
            if failure is None:
                return [Entry(0, None, "missing", "never opened")]
            return [Entry(0, None, "failed", failure.message)]
        found = [
            Entry(rows.start, rows.stop, "failed", failure.message) for rows, failure in self.failures.get(input_id, ())
        ]
        for handle in self.held.values():
            if handle.output == output:
                found += (Entry(rows.start, rows.stop, "held", "") for rows in handle.rows if rows.input == input_id)
        for begin, end in book.everything:
            found += (Entry(*gap, "missing", "") for gap in book.taken.gaps(begin, end))
        # What is left is done.
        others = Intervals((entry.start, entry.stop or 0) for entry in found)
        for begin, end in book.everything:
            found += (Entry(*gap, "done", "") for gap in others.gaps(begin, end))
        return sorted(found, key=lambda entry: entry.start)
