"""The journal of a run: which rows of which input are in which merged partial, so that a killed run continues.

It knows nothing of analyses: inputs, digests of products, ranges of rows, bytes. A partial is a file in ``blobs/``; one
transaction says that it is there and that those it supersedes are not, and only then their files are removed. So
whenever the run is killed or the power cut, the journal speaks of whole blobs only, and files it does not speak of are
removed when it is opened. The database is the truth: nothing is remembered here that a Ctrl-C could make wrong.

Used by one thread, in a directory that its process has locked; others may open it to read.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Self

from windrow.errors import CorruptFileError, InternalError, JournalError, WindrowError
from windrow.store.blobs import read_blob, remove_blobs, remove_unknown_blobs, write_blob
from windrow.store.journal_file import JOURNAL, READING, START_ANEW, cannot_be_read, create_file, open_file
from windrow.store.journal_records import Blob, KnownInput, check_disjoint, plain, seal, set_of_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Blob", "Journal", "KnownInput"]

_SELECT_BLOBS = """
SELECT blobs.id, input, product_sets.products, rows, bytes, digest, seal
FROM blobs JOIN product_sets ON product_sets.id = blobs.products
"""


class Journal:
    """A journal that is open."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, *, read_only: bool) -> None:
        self._directory = directory
        self._path = directory / JOURNAL
        self._connection = connection
        self._read_only = read_only
        #: Never given twice, also not after an error: a commit that failed may be found to have happened after all.
        self._next = 1

    @classmethod
    def create(cls, directory: Path) -> Self:
        """Make an empty journal in a run directory that the caller has locked; one that is there is replaced."""
        try:
            return cls(directory, create_file(directory), read_only=False)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"{directory / JOURNAL} cannot be made: {error}") from error

    @classmethod
    def open(cls, directory: Path, *, read_only: bool = False) -> Self:
        """Open the journal of a run to continue it, or to look at it while it goes on.

        One to be continued is accepted as a whole or not at all: every entry and every blob is checked. A reader looks
        at the entries alone, because the run may remove a blob at any time.
        """
        try:
            journal = cls(directory, open_file(directory, read_only=read_only), read_only=read_only)
        except WindrowError:
            raise
        except READING as error:
            raise cannot_be_read(directory / JOURNAL, error) from error
        try:
            known = journal._check_entries()
            if not read_only:
                journal._check_files(known)
                remove_unknown_blobs(directory, {blob.id for blob in known})
                journal._next = max((blob.id for blob in known), default=0) + 1
        except BaseException:
            journal.close()
            raise
        return journal

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether there is a journal, good or not."""
        return (directory / JOURNAL).exists()

    def close(self) -> None:
        """Close the files; once is enough."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what is known -------------------------------------------------------------------------

    def inputs(self) -> dict[str, KnownInput]:
        """Return the inputs by their key."""
        entries = self._ask("SELECT key, dataset, label, identity, rows, borders, size, mtime_ns, seal FROM inputs")
        found = {}
        for *values, sealed in entries:
            self._check(sealed == seal(*values), f"the entry of input {values[0]!r} has changed")
            values[5] = tuple(json.loads(values[5]))
            found[values[0]] = KnownInput(*values)
        return found

    def blobs(self) -> list[Blob]:
        """Return the merged partials, the oldest first."""
        return self._blobs(f"{_SELECT_BLOBS} ORDER BY blobs.id")

    def blobs_of(self, input: str) -> list[Blob]:  # noqa: A002 - what it is
        """Return the merged partials of one input, the oldest first."""
        return self._blobs(f"{_SELECT_BLOBS} WHERE input = ? ORDER BY blobs.id", input)

    def noted(self, key: str) -> Any:
        """Return a fact that was noted; None if there is none."""
        for value, sealed in self._ask("SELECT value, seal FROM notes WHERE key = ?", key):
            self._check(sealed == seal(key, value), f"the note {key!r} has changed")
            return json.loads(value)
        return None

    def read(self, blob: Blob) -> bytes:
        """Return what was written, byte by byte."""
        return read_blob(self._directory, blob.id, blob.bytes, blob.digest)

    def validate(self) -> None:
        """Check every entry and every blob; raises what ``open`` would raise."""
        self._check_files(self._check_entries())

    # -- what becomes known --------------------------------------------------------------------

    def know(self, inputs: Sequence[KnownInput]) -> None:
        """Make inputs known; one that has other rows now than it had loses the blobs made of them."""
        with self._writing():
            before = self.inputs()
            new = [one for one in inputs if before.get(one.key) != one]
            other = [one.key for one in new if one.key in before and not one.has_the_rows_of(before[one.key])]
            gone = [blob.id for key in other for blob in self.blobs_of(key)]
            with self._transaction():
                self._delete(gone)
                for one in new:
                    values = list(astuple(one))
                    values[5] = plain(one.borders)
                    self._connection.execute(
                        "INSERT INTO inputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                        "dataset = excluded.dataset, label = excluded.label, identity = excluded.identity, "
                        "rows = excluded.rows, borders = excluded.borders, size = excluded.size, "
                        "mtime_ns = excluded.mtime_ns, seal = excluded.seal",
                        (*values, seal(*values)),
                    )
            remove_blobs(self._directory, gone)

    def write(
        self,
        input: str,  # noqa: A002 - what it is
        products: Sequence[str],
        rows: Sequence[tuple[int, int]],
        content: Sequence[bytes | memoryview],
        supersedes: Sequence[int] = (),
    ) -> Blob:
        """Write a merged partial down; from then on it counts, and those it supersedes do not.

        A row of a product that another blob holds already, or one that is not in the input, is a bug and refused.
        """
        with self._writing():
            wanted = self._wanted(input, tuple(products), rows, supersedes)
            number, self._next = self._next, self._next + 1
            # Should the commit fail, the file stays until the journal is opened again: a disk that says that it could
            # not keep the commit may have kept it.
            length, digest = write_blob(self._directory, number, content)
            blob = Blob(number, input, wanted.products, wanted.rows, length, digest)
            with self._transaction():
                self._insert(blob)
                self._delete(supersedes)
            remove_blobs(self._directory, supersedes)
        return blob

    def drop(self, blobs: Sequence[int]) -> None:
        """Forget blobs; those that are not there any more are no error."""
        with self._writing():
            with self._transaction():
                self._delete(blobs)
            remove_blobs(self._directory, blobs)

    def note(self, key: str, value: Any) -> None:
        """Keep a small fact, which must be JSON, in place of what was noted under that name."""
        text = plain(value)
        with self._writing(), self._transaction():
            self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (key, text, seal(key, text)))

    # -- entries -------------------------------------------------------------------------------

    def _wanted(
        self, key: str, products: tuple[str, ...], rows: Sequence[tuple[int, int]], supersedes: Sequence[int]
    ) -> Blob:
        """Refuse a blob that would make the journal wrong."""
        total = self._ask("SELECT rows FROM inputs WHERE key = ?", key)
        if not total or not products or len(set(products)) < len(products):
            raise InternalError(
                f"a blob of input {key!r} with the products {list(products)}: the input must be known, and each "
                "product be named once"
            )
        blob = Blob(0, key, products, set_of_rows(rows, total[0][0]), 0, "")
        there = {number for (number,) in self._ask("SELECT id FROM blobs")} if supersedes else set()
        if not there.issuperset(supersedes):
            raise InternalError(f"blobs {sorted(set(supersedes) - there)} are superseded and not there")
        check_disjoint([*(old for old in self.blobs_of(key) if old.id not in supersedes), blob])
        return blob

    def _insert(self, blob: Blob) -> None:
        products, rows = plain(blob.products), plain(blob.rows)
        self._connection.execute("INSERT OR IGNORE INTO product_sets (products) VALUES (?)", (products,))
        sealed = seal(blob.id, blob.input, products, rows, blob.bytes, blob.digest)
        self._connection.execute(
            "INSERT INTO blobs SELECT ?, ?, id, ?, ?, ?, ? FROM product_sets WHERE products = ?",
            (blob.id, blob.input, rows, blob.bytes, blob.digest, sealed, products),
        )

    def _delete(self, numbers: Sequence[int]) -> None:
        self._connection.executemany("DELETE FROM blobs WHERE id = ?", [(n,) for n in numbers])

    def _blobs(self, question: str, *values: object) -> list[Blob]:
        found = []
        sets: dict[str, tuple[str, ...]] = {}  # few, and each may name hundreds of products
        for number, key, products, rows, length, digest, sealed in self._ask(question, *values):
            good = sealed == seal(number, key, products, rows, length, digest)
            self._check(good, f"the entry of blob {number} has changed")
            ranges = tuple((start, stop) for start, stop in json.loads(rows))
            if products not in sets:
                sets[products] = tuple(json.loads(products))
            found.append(Blob(number, key, sets[products], ranges, length, digest))
        return found

    def _ask(self, question: str, *values: object) -> list[Any]:
        try:
            return self._connection.execute(question, values).fetchall()
        except sqlite3.ProgrammingError:
            raise  # closed, or of another thread
        except READING as error:
            raise cannot_be_read(self._path, error) from error

    # -- checks --------------------------------------------------------------------------------

    def _check(self, good: bool, why: str) -> None:
        if not good:
            raise CorruptFileError(f"{self._path}: {why}; {START_ANEW}", file=str(self._path))

    def _check_entries(self) -> list[Blob]:
        """Check the database; returns the blobs it speaks of."""
        said = self._ask("PRAGMA integrity_check(1)")
        self._check(said == [("ok",)], f"it is damaged ({said})")
        self._check(not self._ask("PRAGMA foreign_key_check"), "a blob of an unknown input")
        inputs, blobs = self.inputs(), self.blobs()
        for (key,) in self._ask("SELECT key FROM notes"):
            self.noted(key)
        (count,) = self._ask("SELECT count(*) FROM blobs")[0]
        self._check(count == len(blobs), "a blob without products")
        try:
            for blob in blobs:
                good = set_of_rows(blob.rows, inputs[blob.input].rows) == blob.rows
                self._check(good, f"the rows of blob {blob.id} are not in order")
            check_disjoint(blobs)
        except InternalError as error:
            self._check(False, str(error))
        return blobs

    def _check_files(self, blobs: Sequence[Blob]) -> None:
        for blob in blobs:
            self.read(blob)

    # -- transactions --------------------------------------------------------------------------

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Say in one way that something could not be written down: a run goes on without it."""
        if self._read_only:
            raise InternalError(f"{self._path} was opened to be read")
        try:
            yield
        except WindrowError:
            raise
        except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
            raise JournalError(f"{self._path}: what was done so far cannot be written down: {error}") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise
