"""The disk of the model check: what survives a driver, which may die at any step of writing to it.

The journal is the real one; its database is in memory.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Self

from windrow.store.journal import journal as journal_module
from windrow.store.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator


class Death(BaseException):
    """The driver is gone in the middle of what it was doing."""


class Disk:
    """The database of a run directory. Counts steps, one of which may be the driver's last."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(journal_module._TABLES)
        self.fuse: int | None = None  #: steps until the driver dies
        self.any_step = True  #: whether steps beside the disk count

    def step(self, *, on_disk: bool = True) -> None:
        if self.fuse is not None and (on_disk or self.any_step):
            self.fuse -= 1
            if self.fuse <= 0:
                raise Death


class ModelJournal(Journal):
    """The journal, which may be left in the middle of a transaction."""

    disk: Disk

    @classmethod
    def on(cls, disk: Disk) -> Self:
        """Open what is on a disk; everything there is checked."""
        journal = cls(Path("journal.sqlite"), disk.connection)
        journal.disk = disk
        journal.validate()
        return journal

    def _delete(self, numbers: list[int]) -> None:  # type: ignore[override]
        self.disk.step()
        super()._delete(numbers)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self.disk.step()
        with super()._writing():
            yield
            self.disk.step()  # not committed
        self.disk.step()
