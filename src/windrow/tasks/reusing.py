"""Reuse of results: identical calls of a session are one task, and results of earlier runs are taken from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.tasks.calling import Calling
    from windrow.tasks.record import Record

__all__ = ["Reuse"]


class Reuse:
    """What a session knows of calls whose results may be used again."""

    def find(self, calling: Calling) -> Any:  # noqa: ARG002
        """Give what an identical call gave its caller; None if there was none. Notes the lineage with the call."""
        return None

    def submitted(self, calling: Calling, record: Record, given: Any) -> None:
        """A call was made, and its caller was given this."""

    def close(self) -> None:
        """The session has ended."""
