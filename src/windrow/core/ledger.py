"""The ledger: what became of every row, exactly once.

A row of an input is missing, held (a partial of it is somewhere), done (the partial is in the driver's hands) or
failed. A partial is accepted all or nothing. Only the methods here move rows between these states, and none of them
can make two partials own a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from windrow.core.intervals import Intervals
from windrow.core.records import Failure, Rows
from windrow.errors import InternalError

RowState = Literal["done", "failed", "held", "missing"]


class FailedRows(NamedTuple):
    """Rows that were given up, and why."""

    rows: Rows
    failure: Failure


class Entry(NamedTuple):
    """What became of a range of rows of an input; no stop where the input was never opened."""

    start: int
    stop: int | None
    state: RowState
    reason: str


def without(rows: Iterable[Rows], gone: Iterable[Rows]) -> tuple[Rows, ...]:
    """Take ranges out of rows; InternalError if they are not all among them."""
    left = {number: Intervals() for number, _, _ in rows}
    for number, start, stop in rows:
        left[number].add(start, stop)
    for number, start, stop in gone:
        if start >= stop or number not in left:
            raise InternalError(f"rows {start} to {stop} of input {number} were left out, but were not asked for")
        left[number].remove(start, stop)
    return tuple(Rows(number, *part) for number, parts in left.items() for part in parts)


def join_rows(rows: Iterable[Rows]) -> tuple[Rows, ...]:
    joined: list[Rows] = []
    for part in sorted(rows):
        if joined and joined[-1].input == part.input and joined[-1].stop == part.start:
            joined[-1] = joined[-1]._replace(stop=part.stop)
        else:
            joined.append(part)
    return tuple(joined)


class Book:
    """The rows of one input."""

    __slots__ = ("done", "everything", "failed", "taken")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.everything = Intervals(ranges)  #: rows that the run is asked for
        self.taken = Intervals()  #: held, done or failed: nobody else may own them
        self.failed = Intervals()
        self.done = 0  #: how many; which ones are those taken and neither held nor failed


class Ledger:
    """Sets of rows per input, and which partial holds what."""

    def __init__(self) -> None:
        self.books: dict[int, Book] = {}
        self.held: dict[str, tuple[Rows, ...]] = {}  #: by output: the rows of a partial; each row is in at most one
        #: by output: rows that failed when it was made, and do if it is again
        self.left_out: dict[str, list[Rows]] = {}
        self.failures: dict[int, list[FailedRows]] = {}  #: by input
        self.failed_inputs: dict[int, Failure] = {}  #: never opened, so their rows are not known
        self.unopened: dict[int, None] = {}  #: inputs whose rows are not known yet
        self.known_rows = self.held_rows = self.done_rows = self.failed_rows = 0

    def expect(self, input_id: int, ranges: Iterable[tuple[int, int]]) -> None:
        self.unopened.pop(input_id, None)
        book = self.books[input_id] = Book(ranges)
        self.known_rows += book.everything.total

    def accept(self, output: str, rows: tuple[Rows, ...], skipped: Sequence[tuple[Rows, Failure]] = ()) -> bool:
        """Let a partial hold its rows, and give up ``skipped`` ones; False, and no change, if one has an owner."""
        if len(rows) == 1 and not skipped:  # by far the most; adding one range is all or nothing by itself
            number, start, stop = rows[0]
            if not self.books[number].taken.add(start, stop):
                return False
            self.held_rows += stop - start
            self.held[output] = rows
            return True
        parts = [*rows, *[part for part, _ in skipped]]
        if not all(self.books[one.input].taken.free(one.start, one.stop) for one in parts):
            return False
        for number, start, stop in rows:
            if not self.books[number].taken.add(start, stop):
                raise InternalError(f"{output!r} names a row twice: {rows}")
            self.held_rows += stop - start
        if rows:
            self.held[output] = rows
        self._fail_all(output, skipped)
        return True

    def _fail_all(self, output: str, skipped: Sequence[tuple[Rows, Failure]]) -> None:
        for part, failure in skipped:
            self.fail(part, failure)
        if skipped and output in self.held:
            self.left_out[output] = [part for part, _ in skipped]

    def unowned(self, rows: Iterable[Rows]) -> list[Rows]:
        return [
            Rows(part.input, start, stop)
            for part in rows
            for start, stop in self.books[part.input].taken.gaps(part.start, part.stop)
        ]

    def replace(self, outputs: Iterable[str], into: str) -> None:
        outputs = tuple(outputs)
        self.held[into] = join_rows([part for output in outputs for part in self.held.pop(output)])
        left_out = [part for output in outputs for part in self.left_out.pop(output, ())]
        if left_out:
            self.left_out[into] = left_out

    def leave_out(self, output: str, skipped: Sequence[tuple[Rows, Failure]]) -> None:
        """Give up rows that a partial holds; one that is left without any holds nothing."""
        rows = self.held[output] = without(self.held[output], [part for part, _ in skipped])
        if not rows:
            del self.held[output]
        for (number, start, stop), _ in skipped:
            self.books[number].taken.remove(start, stop)
            self.held_rows -= stop - start
        self._fail_all(output, skipped)

    def settle(self, output: str) -> tuple[Rows, ...]:
        rows = self.held.pop(output)
        self.left_out.pop(output, None)
        for number, start, stop in rows:
            book = self.books[number]
            book.done += stop - start
            self.held_rows -= stop - start
            self.done_rows += stop - start
        return rows

    def release(self, output: str) -> tuple[Rows, ...]:
        """A partial is gone: its rows, and those left out of it, have no owner any more; none if it held none."""
        rows = self.held.pop(output, ())
        for number, start, stop in rows:
            self.books[number].taken.remove(start, stop)
            self.held_rows -= stop - start
        left_out = self.left_out.pop(output, None)
        if left_out is None:
            return rows
        for number, start, stop in left_out:
            self.books[number].taken.remove(start, stop)
            self.books[number].failed.remove(start, stop)
            self.failed_rows -= stop - start
            self.failures[number] = [one for one in self.failures[number] if one.rows != (number, start, stop)]
        return join_rows([*rows, *left_out])  # a unit is run whole, or its sums would be others

    def fail(self, rows: Rows, failure: Failure) -> None:
        book = self.books[rows.input]
        if not book.taken.add(rows.start, rows.stop):
            raise InternalError(f"{rows} cannot be given up: some of them have an owner")
        book.failed.add(rows.start, rows.stop)
        self.failed_rows += rows.stop - rows.start
        self.failures.setdefault(rows.input, []).append(FailedRows(rows, failure))

    def fail_input(self, input_id: int, failure: Failure) -> None:
        self.unopened.pop(input_id, None)
        self.failed_inputs[input_id] = failure

    def forget(self, input_id: int) -> bool:
        book = self.books.get(input_id)
        if book is None or book.done != book.everything.total:
            return False
        del self.books[input_id]
        self.known_rows -= book.done
        self.done_rows -= book.done
        return True

    @property
    def complete(self) -> bool:
        return self.accounted and not self.failed_rows and not self.failed_inputs

    @property
    def accounted(self) -> bool:
        return not self.unopened and self.done_rows + self.failed_rows == self.known_rows

    def last_row(self, input_id: int) -> int:
        """Give the end of the last row that the run is asked for; 0 if there is none."""
        book = self.books.get(input_id)
        return 0 if book is None else max((stop for _, stop in book.everything), default=0)

    def account(self, input_id: int) -> list[Entry]:
        """List what became of the rows of an input, in order; one open entry if it has no book."""
        book = self.books.get(input_id)
        if book is None:
            failure = self.failed_inputs.get(input_id)
            if failure is None:
                return [Entry(0, None, "missing", "never opened")]
            return [Entry(0, None, "failed", failure.message)]
        found: list[Entry] = []
        last: Failure | None = None
        for rows, failure in sorted(self.failures.get(input_id, ()), key=lambda one: one.rows.start):
            start = found.pop().start if failure is last and found[-1].stop == rows.start else rows.start
            found.append(Entry(start, rows.stop, "failed", failure.message))  # a unit may have failed in pieces
            last = failure
        for held in self.held.values():
            found += (Entry(rows.start, rows.stop, "held", "") for rows in held if rows.input == input_id)
        for begin, end in book.everything:
            found += (Entry(*gap, "missing", "") for gap in book.taken.gaps(begin, end))
        # What is left is done.
        others = Intervals((entry.start, entry.stop or 0) for entry in found)
        for begin, end in book.everything:
            found += (Entry(*gap, "done", "") for gap in others.gaps(begin, end))
        return sorted(found, key=lambda entry: entry.start)
