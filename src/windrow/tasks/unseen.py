"""Failures that nobody has looked at: they would be lost in the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from windrow.tasks.blame import last_word

if TYPE_CHECKING:
    from windrow.tasks.record import Record

__all__ = ["Unseen"]


class Unseen:
    """Tasks of a session that failed by themselves, and nobody knows yet."""

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}

    def add(self, record: Record) -> None:
        """A task has failed."""
        self._records[record.id] = record

    def seen(self, record: Record) -> None:
        """Somebody knows of it."""
        self._records.pop(record.id, None)

    def records(self) -> list[Record]:
        """List them."""
        return list(self._records.values())

    def tell(self, first: BaseException | None) -> None:
        """Raise the first, and name the others; ``first`` is what has stopped the session, if anything did."""
        error = last_word(self.records(), first)
        if error is not None:
            raise error

    def mention(self, first: BaseException | None) -> None:
        """Say the same where nobody is there who could be raised at."""
        error = last_word(self.records(), first)
        if error is not None:
            notes = "".join(f"; {one}" for one in getattr(error, "__notes__", ())[-1:])
            sys.stderr.write(f"windrow: nobody has looked at {type(error).__name__}: {error}{notes}\n")
