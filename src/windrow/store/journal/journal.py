"""The journal of a run: which rows of which input are in which merged partial, so that a killed run continues.

It knows nothing of analyses: inputs, digests of products, ranges of rows, bytes. It is one SQLite database; a partial and
the removal of those it supersedes are one transaction. So whenever the run is killed or the power cut, the journal speaks
of whole partials only. The database is the truth: nothing is remembered here that a Ctrl-C could make wrong.

Used by one thread, in a directory that its process has locked.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import xxhash

from windrow.core.intervals import Intervals
from windrow.errors import CorruptFileError, DataError, InternalError, JournalError, MissingFileError, WindrowError
from windrow.store.disk import check_private, part_of, sync_directory

#: The database, in the directory of the run.
JOURNAL = "journal.sqlite"
#: Every name in the directory of a run that belongs to a journal; without the first there is none.
NAMES = (JOURNAL, JOURNAL + "-journal", JOURNAL + ".part")
#: Version of the tables. Version 1 kept partials in files of their own.
FORMAT = 2
#: What to do with a journal that cannot be used.
START_ANEW = "run with resume=False, which starts from the beginning"
#: Bytes of a partial in one entry: SQLite takes up to a billion, but keeps a copy of the last one, and makes more of each.
PIECE = 32_000_000

_APPLICATION = int.from_bytes(b"wrow", "big")
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
#: Everything that SQLite raises about a file; about a damaged one it may be in letters that are none.
_READING = (OSError, sqlite3.DatabaseError, UnicodeDecodeError)
#: EXTRA: no power cut takes a commit back. Pages that are free are given back by the incremental vacuum alone.
_TABLES = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA synchronous = EXTRA;
BEGIN;
CREATE TABLE inputs (key TEXT PRIMARY KEY, facts TEXT, seal TEXT);
CREATE TABLE product_sets (id INTEGER PRIMARY KEY, products TEXT UNIQUE);
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, input TEXT, products INTEGER, rows TEXT, bytes INTEGER, digest TEXT, seal TEXT
);
CREATE INDEX blobs_of_input ON blobs (input);
CREATE TABLE pieces (blob INTEGER, number INTEGER, content BLOB, PRIMARY KEY (blob, number));
CREATE TABLE notes (key TEXT PRIMARY KEY, value TEXT, seal TEXT);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_SELECT_BLOBS = """
SELECT blobs.id, input, product_sets.products, rows, bytes, digest, seal
FROM blobs LEFT JOIN product_sets ON product_sets.id = blobs.products
"""


@dataclass(frozen=True, slots=True)
class KnownInput:
    """An input of a run, as it was when its rows were counted."""

    key: str  #: unique among the inputs of the run
    dataset: str
    label: str
    identity: str  #: changes when the content does
    rows: int
    borders: tuple[int, ...]  #: of its units
    size: int | None
    mtime_ns: int | None

    @property
    def has(self) -> tuple[Any, ...]:
        """The same as that of another one: partials over rows of the other are partials over rows of this one."""
        return self.dataset, self.identity, self.rows, self.borders


@dataclass(frozen=True, slots=True)
class Blob:
    """A merged partial that is written down."""

    id: int
    input: str  #: key of the input
    products: tuple[str, ...]
    rows: tuple[tuple[int, int], ...]  #: sorted, disjoint, coalesced
    bytes: int
    digest: str

    def shares(self, products: Iterable[str], rows: Intervals) -> bool:
        return not set(products).isdisjoint(self.products) and any(not rows.free(*part) for part in self.rows)


class Journal:
    """A journal that is open."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    @classmethod
    def create(cls, directory: Path) -> Self:
        """Make an empty journal in a run directory that the caller has locked; one that is there is replaced."""
        path, part = directory / JOURNAL, part_of(directory / JOURNAL)
        try:
            remove_journal(directory)
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # SQLite keeps these rights
            with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = MEMORY")  # no file beside one that has no name yet
                connection.executescript(_TABLES)
            part.replace(path)
            sync_directory(directory)
            return cls(path, _connect(path))
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"{path} cannot be made: {error}") from error

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the journal of a run to continue it: every entry and every partial is good, or all are refused."""
        path = directory / JOURNAL
        if not path.exists():
            raise MissingFileError(f"{directory} has no {JOURNAL}, so nothing can be continued there")
        for name in NAMES[:2]:
            if (directory / name).exists():
                check_private(directory / name, (directory / name).stat())
        try:
            journal = cls(path, _connect(path))
        except WindrowError:
            raise
        except _READING as error:
            raise _cannot_be_read(path, error) from error
        try:
            journal.validate()
        except BaseException:
            journal.close()
            raise
        return journal

    @staticmethod
    def exists(directory: Path) -> bool:
        return (directory / JOURNAL).exists()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what is known -------------------------------------------------------------------------

    def inputs(self) -> dict[str, KnownInput]:
        return {one.key: one for one in self._inputs("SELECT key, facts, seal FROM inputs")}

    def blobs(self) -> list[Blob]:
        return self._blobs(f"{_SELECT_BLOBS} ORDER BY blobs.id")

    def blobs_of(self, input: str) -> list[Blob]:  # noqa: A002 - what it is
        return self._blobs(f"{_SELECT_BLOBS} WHERE input = ? ORDER BY blobs.id", input)

    def noted(self, key: str) -> Any:
        for value, sealed in self._ask("SELECT value, seal FROM notes WHERE key = ?", key):
            self._check(sealed == _seal(key, value), f"the note {key!r} has changed")
            return json.loads(value)
        return None

    def read(self, blob: Blob) -> bytes:
        pieces = self._ask("SELECT content FROM pieces WHERE blob = ? ORDER BY number", blob.id)
        try:
            content = b"".join(piece for (piece,) in pieces)
        except TypeError:
            content = b""
        good = (len(content), _digest(content)) == (blob.bytes, blob.digest)
        self._check(good, f"the content of blob {blob.id} has changed")
        return content

    # -- what becomes known --------------------------------------------------------------------

    def know(self, inputs: Sequence[KnownInput]) -> None:
        """Make inputs known; one that has other rows now than it had loses the blobs made of them."""
        with self._writing():
            for one in inputs:
                before = self._inputs("SELECT key, facts, seal FROM inputs WHERE key = ?", one.key)
                if before and one.has != before[0].has:
                    self._delete([blob.id for blob in self.blobs_of(one.key)])
                facts = _plain(astuple(one))
                values = (one.key, facts, _seal(one.key, facts))
                self._connection.execute("INSERT OR REPLACE INTO inputs VALUES (?, ?, ?)", values)

    def write(
        self,
        input: str,  # noqa: A002 - what it is
        products: Sequence[str],
        rows: Iterable[tuple[int, int]],
        content: Sequence[bytes | memoryview],
        supersedes: Sequence[int] = (),
    ) -> Blob:
        """Write a merged partial down; from then on it counts, and those it supersedes do not.

        A row of a product that another blob holds already is a bug and refused.
        """
        held = Intervals(rows)
        for blob in self.blobs_of(input):
            if blob.id not in supersedes and blob.shares(products, held):
                raise InternalError(f"rows of input {input!r} are held twice for one of the products {list(products)}")
        whole = memoryview(b"".join(content))
        names, ranges, digest = _plain(products), _plain(tuple(held)), _digest(whole)
        with self._writing():
            ask = self._connection.execute
            ask("INSERT OR IGNORE INTO product_sets (products) VALUES (?)", (names,))
            (mine,) = ask("SELECT id FROM product_sets WHERE products = ?", (names,)).fetchone()
            entry = (input, mine, ranges, len(whole), digest)
            added = ask("INSERT INTO blobs (input, products, rows, bytes, digest) VALUES (?, ?, ?, ?, ?)", entry)
            number = added.lastrowid
            sealed = _seal(number, input, names, ranges, len(whole), digest)
            ask("UPDATE blobs SET seal = ? WHERE id = ?", (sealed, number))
            for place in range(0, len(whole), PIECE):
                ask("INSERT INTO pieces VALUES (?, ?, ?)", (number, place, whole[place : place + PIECE]))
            self._delete(supersedes)
        return Blob(number or 0, input, tuple(products), tuple(held), len(whole), digest)

    def drop(self, blobs: Sequence[int]) -> None:
        """Forget blobs, and give their room back; those that are not there any more are no error."""
        with self._writing():
            self._delete(blobs)
        with contextlib.suppress(sqlite3.Error):  # room that is not given back is used again
            self._connection.executescript("PRAGMA incremental_vacuum")

    def note(self, key: str, value: Any) -> None:
        """Keep a small fact, which must be JSON, in place of what was noted under that name."""
        text = _plain(value)
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (key, text, _seal(key, text)))

    # -- entries -------------------------------------------------------------------------------

    def validate(self) -> None:
        said = self._ask("PRAGMA integrity_check(1)")
        self._check(said == [("ok",)], f"it is damaged ({said})")
        self.inputs()
        for (key,) in self._ask("SELECT key FROM notes"):
            self.noted(key)
        for blob in self.blobs():
            self.read(blob)

    def _inputs(self, question: str, *values: object) -> list[KnownInput]:
        found = []
        for key, facts, sealed in self._ask(question, *values):
            self._check(sealed == _seal(key, facts), f"the entry of input {key!r} has changed")
            entry = json.loads(facts)
            entry[5] = tuple(entry[5])
            found.append(KnownInput(*entry))
        return found

    def _blobs(self, question: str, *values: object) -> list[Blob]:
        found = []
        sets: dict[str, tuple[str, ...]] = {}  # few, and each may name hundreds of products
        for number, key, products, rows, length, digest, sealed in self._ask(question, *values):
            good = sealed == _seal(number, key, products, rows, length, digest)
            self._check(good, f"the entry of blob {number} has changed")
            if products not in sets:
                sets[products] = tuple(json.loads(products))
            ranges = tuple((start, stop) for start, stop in json.loads(rows))
            found.append(Blob(number, key, sets[products], ranges, length, digest))
        return found

    def _delete(self, numbers: Sequence[int]) -> None:
        for table in ("blobs WHERE id", "pieces WHERE blob"):
            self._connection.executemany(f"DELETE FROM {table} = ?", [(number,) for number in numbers])  # noqa: S608

    def _ask(self, question: str, *values: object) -> list[Any]:
        try:
            return self._connection.execute(question, values).fetchall()
        except sqlite3.ProgrammingError:
            raise  # closed, or of another thread
        except _READING as error:
            raise _cannot_be_read(self._path, error) from error

    def _check(self, good: bool, why: str) -> None:
        if not good:
            raise CorruptFileError(f"{self._path}: {why}; {START_ANEW}", file=str(self._path))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Write in one transaction; what cannot be written down is one kind of error, and a run goes on without it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except WindrowError:
            raise
        except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
            raise JournalError(f"{self._path}: what was done so far cannot be written down: {error}") from error
        finally:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")


def remove_journal(directory: Path) -> None:
    for name in NAMES:
        (directory / name).unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, timeout=5)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        _check_marks(path, application, version)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_marks(path: Path, application: int, version: int) -> None:
    if application != _APPLICATION:
        raise CorruptFileError(f"{path} is not a journal that Windrow wrote; name another directory", file=str(path))
    if version != FORMAT:
        whose = "a newer" if version > FORMAT else "an earlier"
        raise DataError(
            f"{path} was made by {whose} version of Windrow (format {version}, this one has {FORMAT}): continue with that "
            f"version, or {START_ANEW}"
        )


def _cannot_be_read(path: Path, error: Exception) -> WindrowError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # none: text that is no text
    if not isinstance(error, OSError) and code & 0xFF in _DAMAGED:
        return CorruptFileError(f"{path} is damaged ({error}); {START_ANEW}", file=str(path))
    return JournalError(f"{path} cannot be read now ({error}); try again, or {START_ANEW}")


def _plain(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _digest(content: bytes | memoryview) -> str:
    return xxhash.xxh3_128_hexdigest(content)


def _seal(*values: Any) -> str:
    """Give the checksum of an entry: a database notices that its pages are damaged, not that a digit has changed."""
    return xxhash.xxh3_64_hexdigest(_plain(values).encode())


# -- writing a run down as it goes: what has changed longest ago first, and only when it costs next to nothing
#
# Nothing here may harm the run: what cannot be written down is noted once, and not tried again.

#: Writing takes at most this share of the time a run has taken so far.
SHARE = 0.01
#: What a write takes is guessed for a disk that is not fast: so much each, and so much per byte.
FIXED_S, S_PER_BYTE = 0.010, 1 / 200e6

Key = tuple[str, tuple[str, ...]]  # key of an input, products


class Keeper:
    """Keeps the newest state of every merged partial until it is worth writing it down.

    ``replaceable`` are blobs of earlier runs that are of no use to this one: they go where their rows are done again.
    """

    def __init__(
        self,
        journal: Journal,
        pack: Callable[[Any], Sequence[bytes | memoryview]],
        clock: Callable[[], float],
        replaceable: Container[int] = (),
    ) -> None:
        self._journal = journal
        self._pack = pack
        self._clock = clock
        self._replaceable = replaceable
        self._started = clock()
        #: (rows, partial); the one that changed longest ago first
        self._unsaved: dict[Key, tuple[Iterable[tuple[int, int]], Any]] = {}
        self._due = self._started + FIXED_S / SHARE  #: before this time nothing is worth writing
        self.spent_s = 0.0  #: time that packing and writing took
        self.notes: tuple[str, ...] = ()  #: why it stopped, if it did

    def changed(self, key: Key, rows: Iterable[tuple[int, int]], partial: Any) -> None:
        """Tell that a merged partial now holds these rows, all of them.

        It may be changed in place between ``changing`` and this.
        """
        if not self.notes:
            self._unsaved[key] = rows, partial

    def changing(self, key: Key) -> None:
        self._unsaved.pop(key, None)

    def maybe_write(self, now: float) -> None:
        """Write what is worth it; next to free when nothing is."""
        while self._unsaved and now >= self._due:
            self._save(next(iter(self._unsaved)), only_if_worth_it=True)
            now = self._clock()

    def flush(self) -> None:
        """Write all that is not written, whatever it costs: a run that ends early keeps everything."""
        while self._unsaved:
            self._save(next(iter(self._unsaved)), only_if_worth_it=False)

    def _save(self, key: Key, *, only_if_worth_it: bool) -> None:
        begun = self._clock()
        rows, partial = self._unsaved[key]
        deferred = 0.0
        try:
            content = self._pack(partial)
            guess = FIXED_S + S_PER_BYTE * sum(memoryview(piece).nbytes for piece in content)
            # Up to twice the cost is accepted, since the next one then waits longer; what costs more is packed again later.
            if only_if_worth_it and self.spent_s + guess / 2 > SHARE * (begun - self._started):
                deferred = guess
            else:
                self._write(key, Intervals(rows), content)
                del self._unsaved[key]
        except InternalError:
            raise  # rows that are held twice: no result can be trusted after that
        except JournalError as error:
            self._stop(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a user's object raises when it is pickled
            self._stop(f"{type(error).__name__}: {error}")
        finally:
            took = self._clock() - begun
            self.spent_s += took
            # The next one is thought to take as long: a disk that others use is slow now and then.
            self._due = self._started + (self.spent_s + (deferred or took)) / SHARE

    def _write(self, key: Key, rows: Intervals, content: Sequence[bytes | memoryview]) -> None:
        """Write a partial down in place of the one before it, and of those of no use that share rows with it."""
        input_key, products = key
        # Asked anew each time: a Ctrl-C may have come between a write and the knowledge of it.
        superseded = [
            blob.id
            for blob in self._journal.blobs_of(input_key)
            if blob.shares(products, rows)
            and (
                blob.id in self._replaceable
                or (blob.products == products and not any(rows.gaps(*one) for one in blob.rows))
            )
        ]
        self._journal.write(input_key, products, tuple(rows), content, superseded)

    def _stop(self, why: str) -> None:
        self._unsaved.clear()
        self.notes = (
            f"from some point on this run was not written down, so that it could not be continued from there: {why}",
        )
