"""The ledger as a user sees it: every row by file and range, done, failed or missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from windrow.core.records import FailureKind

if TYPE_CHECKING:
    from windrow.core.ledger import Ledger as Book


def left_out_notes(book: Book) -> list[str]:
    """Say how many rows were left out because of which step; the ledger has them one by one."""
    rows: Counter[str] = Counter()
    for failures in book.failures.values():
        for part, failure in failures:
            if failure.kind is FailureKind.USER:
                rows[failure.place.partition(", ")[0]] += part.stop - part.start
    return [
        f"{count:,} {'row was' if count == 1 else 'rows were'} left out because of errors in {step!r}"
        for step, count in rows.items()
    ]


@dataclass(frozen=True, slots=True)
class Entry:
    """A range of rows of one file and what became of it."""

    file: str
    dataset: str
    start: int
    stop: int | None  #: None where a file could not be opened, so that nobody knows
    state: str  #: done, failed or missing
    reason: str = ""

    @property
    def rows(self) -> int:
        """How many rows, 0 where unknown."""
        return 0 if self.stop is None else self.stop - self.start

    def __str__(self) -> str:
        rows = "all rows (never opened)" if self.stop is None else f"rows {self.start}-{self.stop}"
        return f"{self.file}: {rows} {self.state}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Ledger:
    """Accounts for every row of a run."""

    entries: tuple[Entry, ...]

    def _rows(self, state: str) -> int:
        return sum(entry.rows for entry in self.entries if entry.state == state)

    @property
    def done(self) -> int:
        """Rows whose outputs are in the result."""
        return self._rows("done")

    @property
    def failed(self) -> int:
        """Rows left out because they, or their file, failed."""
        return self._rows("failed")

    @property
    def missing(self) -> int:
        """Rows that were not processed."""
        return self._rows("missing")

    @property
    def total(self) -> int:
        """All rows that are known."""
        return sum(entry.rows for entry in self.entries)

    @property
    def complete(self) -> bool:
        """Whether every row is done."""
        return all(entry.state == "done" for entry in self.entries)

    @property
    def problems(self) -> tuple[Entry, ...]:
        """Everything that is not done."""
        return tuple(entry for entry in self.entries if entry.state != "done")

    def summary(self) -> str:
        """Say in a sentence how many rows are done and what is wrong with the rest."""
        text = f"{self.done:,} of {self.total:,} rows done"
        if self.failed:
            text += f", {self.failed:,} failed"
        if self.missing:
            text += f", {self.missing:,} missing"
        unknown = sum(entry.stop is None for entry in self.entries)
        if unknown:
            text += f", {unknown} file{'s' if unknown > 1 else ''} never opened"
        return text

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and everything that is not done, as plain data."""
        counts = {name: getattr(self, name) for name in ("total", "done", "failed", "missing")}
        return {**counts, "problems": [asdict(entry) for entry in self.problems]}

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(str(entry) for entry in self.problems)])

    __repr__ = __str__
