"""The session that calls of tasks go to: the innermost one that was opened in this context."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.tasks.session import Session

__all__ = ["current", "current_session"]

#: Threads begin with none: a task that is called in the body of another one is its plain function.
current: ContextVar[Session | None] = ContextVar("windrow_session", default=None)


def current_session() -> Session | None:
    """Give the open session of this context, or None."""
    return current.get()
