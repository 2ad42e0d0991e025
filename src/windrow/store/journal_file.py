"""The database file of a journal: made whole, opened if it is ours, and in a mode that survives a power cut."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING
from urllib.parse import quote

from windrow.errors import CorruptFileError, DataError, JournalError, MissingFileError
from windrow.store.blobs import BLOBS, remove_unknown_blobs
from windrow.store.local_disk import is_on_local_disk
from windrow.store.private import check_private, check_private_directory
from windrow.store.whole import part_of, sync_directory

if TYPE_CHECKING:
    from pathlib import Path


#: The database, in the directory of the run.
JOURNAL = "journal.sqlite"

#: Version of the tables; raised when older code cannot read them.
FORMAT = 1

#: What to do with a journal that cannot be used.
START_ANEW = "run with resume=False, which starts from the beginning"

#: What SQLite puts beside its file.
_BESIDE = ("-wal", "-shm", "-journal")

_APPLICATION = int.from_bytes(b"wrow", "big")
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}

#: Since 3.37 a column holds nothing but what it is declared for; before, nobody looks.
_STRICT = "STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""
_TABLES = f"""
CREATE TABLE inputs (
    key TEXT NOT NULL PRIMARY KEY, dataset TEXT NOT NULL, label TEXT NOT NULL, identity TEXT NOT NULL,
    rows INTEGER NOT NULL, borders TEXT NOT NULL, size INTEGER, mtime_ns INTEGER, seal TEXT NOT NULL
) {_STRICT};
CREATE TABLE product_sets (id INTEGER PRIMARY KEY, products TEXT NOT NULL UNIQUE) {_STRICT};
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY, input TEXT NOT NULL REFERENCES inputs (key),
    products INTEGER NOT NULL REFERENCES product_sets (id), rows TEXT NOT NULL,
    bytes INTEGER NOT NULL, digest TEXT NOT NULL, seal TEXT NOT NULL
) {_STRICT};
CREATE INDEX blobs_of_input ON blobs (input);
CREATE TABLE notes (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL, seal TEXT NOT NULL) {_STRICT};
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
"""


def journal_names() -> tuple[str, ...]:
    """List every name in the run directory that belongs to a journal; without the first there is none."""
    return (JOURNAL, *(JOURNAL + end for end in _BESIDE), JOURNAL + ".part", BLOBS)


def remove_journal(directory: Path) -> None:
    """Remove a journal and its blobs, the one that speaks of the others first."""
    for name in journal_names():
        if name != BLOBS:
            (directory / name).unlink(missing_ok=True)
    remove_unknown_blobs(directory)
    blobs = directory / BLOBS
    if blobs.is_dir() and not blobs.is_symlink() and not any(blobs.iterdir()):
        blobs.rmdir()


def create_file(directory: Path) -> sqlite3.Connection:
    """Make an empty journal in place of one that may be there."""
    remove_journal(directory)
    sync_directory(directory)  # what is left of an old log must not be read into the new file
    (directory / BLOBS).mkdir(mode=0o700, exist_ok=True)
    path, part = directory / JOURNAL, part_of(directory / JOURNAL)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # SQLite keeps these rights
    connection = sqlite3.connect(part, isolation_level=None)
    try:
        connection.executescript(f"PRAGMA journal_mode = MEMORY; BEGIN; {_TABLES} COMMIT;")
    finally:
        connection.close()
    handle = os.open(part, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    part.replace(path)
    sync_directory(directory)
    return _connect(path, read_only=False)


def open_file(directory: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open a journal; one that is not ours, is newer, or could have been written by others is refused."""
    path = directory / JOURNAL
    if not path.exists():
        raise MissingFileError(f"{directory} has no {JOURNAL}, so nothing can be continued there")
    if not (directory / BLOBS).is_dir():
        raise CorruptFileError(f"{directory / BLOBS} is missing; {START_ANEW}")
    for name in (JOURNAL, JOURNAL + "-wal", JOURNAL + "-journal"):
        if (directory / name).exists():
            check_private(directory / name, (directory / name).stat())
    check_private_directory(directory / BLOBS)
    if not read_only:
        # Before SQLite touches it. Not beside a live journal in the same process: closing a file gives up its locks.
        with path.open("rb") as stream:
            _check_head(path, stream.read(72))
    return _connect(path, read_only=read_only)


def _check_head(path: Path, head: bytes) -> None:
    """Refuse other databases by what stands at fixed places in the first page."""
    if len(head) < 72 or not head.startswith(b"SQLite format 3\0"):
        raise CorruptFileError(f"{path} is no database, or cut off; {START_ANEW}", file=str(path))
    _check_marks(path, int.from_bytes(head[68:72], "big"), int.from_bytes(head[60:64], "big"))


def _check_marks(path: Path, application: int, version: int) -> None:
    if application != _APPLICATION:
        raise CorruptFileError(f"{path} is not a journal that Windrow wrote; name another directory", file=str(path))
    if version > FORMAT:
        raise DataError(
            f"{path} has format {version}, this Windrow reads formats up to {FORMAT}: use a newer Windrow, or {START_ANEW}"
        )
    if version < 1:
        raise CorruptFileError(f"{path} has changed: it has no format; {START_ANEW}", file=str(path))


#: All that SQLite says of a file; of a damaged one it may say it in letters that are none.
READING = (OSError, sqlite3.DatabaseError, UnicodeDecodeError)


def cannot_be_read(path: Path, error: Exception) -> DataError | JournalError:
    """Say whether a file is damaged, or just out of reach."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)  # none: text that is no text
    if not isinstance(error, OSError) and code & 0xFF in _DAMAGED:
        return CorruptFileError(f"{path} is damaged ({error}); {START_ANEW}", file=str(path))
    return JournalError(f"{path} cannot be read now ({error}); try again, or {START_ANEW}")


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    address = f"file:{quote(str(path))}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=5)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        if read_only:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            _check_marks(path, application, version)
        else:
            _choose_mode(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _choose_mode(path: Path, connection: sqlite3.Connection) -> None:
    """Take the write-ahead log where its shared memory works: one sync per commit. Elsewhere take the old way.

    EXTRA: in the old way a power cut could otherwise take back a commit after which files were removed.
    """
    mode = "wal" if is_on_local_disk(path.parent) else "delete"
    try:
        (mode,) = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
    except sqlite3.OperationalError:
        if mode == "delete":
            raise
        (mode,) = connection.execute("PRAGMA journal_mode = delete").fetchone()
    connection.execute(f"PRAGMA synchronous = {'FULL' if mode == 'wal' else 'EXTRA'}")
