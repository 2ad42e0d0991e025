"""Groups of tasks: what is called in the context of one can be waited for and cancelled together."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from windrow.tasks.future import wait_for
from windrow.tasks.options import check_options

if TYPE_CHECKING:
    from windrow.tasks.declare import OnFailure
    from windrow.tasks.session import Session


#: Those that were entered, outermost first; each context has its own, as several threads may be in one group.
_entered: ContextVar[tuple[Group, ...]] = ContextVar("windrow_groups", default=())


def current_group(session: Session) -> Group | None:
    entered = _entered.get()
    if entered:
        for one in reversed(entered):
            if one.session is session:
                return one
    return None


class Group:
    """Tasks that belong together, also those of groups that are entered inside it; made by ``session.group``."""

    def __init__(self, session: Session, number: int, name: str, on_failure: OnFailure | None) -> None:
        self.session = session
        self.number = number
        self.name = name or f"group {number}"
        check_options(self.name, on_failure=on_failure)
        self.on_failure = on_failure
        self._inner: dict[int, Group] = {}

    def __enter__(self) -> Self:
        around = current_group(self.session)
        if around is not None:
            around._inner[self.number] = self
            self.on_failure = self.on_failure or around.on_failure
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _entered.set(_entered.get()[:-1])

    def _all(self) -> dict[int, Group]:
        found: dict[int, Group] = {}
        waiting = [self]
        while waiting:
            one = waiting.pop()
            if one.number not in found:
                found[one.number] = one
                waiting += one._inner.values()
        return found

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def cancel(self) -> None:
        """Cancel all its tasks that have not ended."""
        self.session.cancel_groups(self._all())  # at once: all open tasks are looked at for that

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until all its tasks have ended, well or badly."""
        session, mine = self.session, self._all()

        def over() -> bool:
            # A copy: the run takes tasks out meanwhile.
            return all(one.group not in mine for one in list(session.open.values()))

        with session.changed:
            if not over():
                session.refuse_to_wait(f"tasks of {self.name!r}")
            done = wait_for(session.changed, over, timeout)
        if not done:
            raise TimeoutError(f"tasks of {self.name!r} had not ended after {timeout} s")
