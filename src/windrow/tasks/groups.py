"""Groups of tasks: what is called in the context of one can be waited for and cancelled together."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from contextvars import Token

    from windrow.tasks.declare import OnFailure
    from windrow.tasks.session import Session

__all__ = ["Group", "current_group"]

_current: ContextVar[Group | None] = ContextVar("windrow_group", default=None)


def current_group(session: Session) -> Group | None:
    """Give the innermost group of a session in this context."""
    group = _current.get()
    return group if group is not None and group.session is session else None


class Group:
    """Tasks that belong together; made by ``session.group``."""

    def __init__(
        self, session: Session, number: int, name: str, on_failure: OnFailure | None
    ) -> None:
        self.session = session
        self.number = number
        self.name = name or f"group {number}"
        self.on_failure = on_failure
        self._token: Token[Group | None] | None = None

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def cancel(self) -> None:
        """Cancel all its tasks that have not ended."""
        self.session.cancel_group(self)

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all its tasks have ended, well or badly."""
        session = self.session
        with session.changed:
            done = session.changed.wait_for(
                lambda: all(one.group != self.number for one in session.open.values()), timeout
            )
        if not done:
            raise TimeoutError(f"tasks of {self.name!r} had not ended after {timeout} s")
