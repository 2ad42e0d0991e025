"""The disk of the model check: what survives a driver, which may die at any step of writing to it.

The journal is the real one; its database is in memory, and its files are those of a pretended directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from windrow.errors import CorruptFileError
from windrow.store import journal as journal_module
from windrow.store import journal_file
from windrow.store.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Death", "Disk", "ModelJournal", "pretended_disk", "remove_blobs", "write_blob"]


class Death(BaseException):
    """The driver is gone in the middle of what it was doing."""


class Disk:
    """The run directory: a database and files. Counts steps, one of which may be the driver's last."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(journal_file._TABLES)
        self.files: dict[int, bytes] = {}
        self.fuse: int | None = None  #: steps until the driver dies
        self.any_step = True  #: whether steps beside the disk count

    def __truediv__(self, name: str) -> str:
        return name

    def step(self, *, on_disk: bool = True) -> None:
        if self.fuse is not None and (on_disk or self.any_step):
            self.fuse -= 1
            if self.fuse <= 0:
                raise Death


def write_blob(disk: Disk, number: int, content: Sequence[Any]) -> tuple[int, str]:
    whole = b"".join(content)
    disk.step()
    disk.files[number] = whole
    disk.step()
    return len(whole), hashlib.sha256(whole).hexdigest()


def read_blob(disk: Disk, number: int, length: int, digest: str) -> bytes:
    content = disk.files.get(number)
    if content is None or (len(content), hashlib.sha256(content).hexdigest()) != (length, digest):
        raise CorruptFileError(f"blob {number} is not there, or another")
    return content


def remove_blobs(disk: Disk, numbers: Sequence[int]) -> None:
    for number in numbers:
        disk.step()
        disk.files.pop(number, None)


def remove_unknown_blobs(disk: Disk, known: Any = ()) -> None:
    remove_blobs(disk, [number for number in disk.files if number not in known])


@contextlib.contextmanager
def pretended_disk() -> Iterator[None]:
    """Let journals write to a ``Disk`` in place of a directory."""
    with pytest.MonkeyPatch.context() as patch:
        for function in (write_blob, read_blob, remove_blobs, remove_unknown_blobs):
            patch.setattr(journal_module, function.__name__, function)
        patch.setattr(journal_module, "open_file", lambda disk, read_only: disk.connection)
        yield


class ModelJournal(Journal):
    """The journal, which may be left in the middle of a transaction."""

    def close(self) -> None:
        """A disk stays when its driver dies while it opens the journal."""

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._disk.step()
        with super()._transaction():
            yield
            self._disk.step()  # not committed
        self._disk.step()

    @property
    def _disk(self) -> Any:
        return self._directory
