"""The files of a session: which task writes a path, who reads it, and what that means for the next call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import NotYetError

if TYPE_CHECKING:
    from windrow.tasks.calling import Calling
    from windrow.tasks.future import Future
    from windrow.tasks.record import Record

__all__ = ["FileTable"]


class FileTable:
    """By path: the latest writer and its readers."""

    def enter(self, calling: Calling) -> None:  # noqa: ARG002
        """Look at the paths of a call: fill its files, what it comes after, what it makes, and what is done around it."""
        raise NotYetError("files")

    def submitted(self, calling: Calling, record: Record) -> None:
        """A call was made: from now on what it writes is known as its work."""

    def latest(self, path: str) -> Future | None:  # noqa: ARG002
        """Give the future of what a task of the session makes of a path; None if none does."""
        return None

    def close(self) -> None:
        """The session has ended: leave nothing private behind."""
