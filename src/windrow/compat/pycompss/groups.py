"""``TaskGroup``: tasks that are waited for together, and that one of them may cancel by raising."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from windrow.compat.pycompss.body import COMPSsException
from windrow.compat.pycompss.runtime import raise_failures, session_for_calls, session_or_none
from windrow.errors import UsageError, nearest

if TYPE_CHECKING:
    from contextvars import Token
    from types import TracebackType

    from windrow.tasks.future import Future
    from windrow.tasks.groups import Group
    from windrow.tasks.session import Session

_current: ContextVar[TaskGroup | None] = ContextVar("windrow_pycompss_group", default=None)
_known: dict[str, TaskGroup] = {}  #: the latest of each name


def current_task_group(session: Session) -> TaskGroup | None:
    """Give the innermost group of this context, if it belongs to the session."""
    group = _current.get()
    return group if group is not None and group.session is session else None


class TaskGroup:
    """Tasks called in this context belong together.

    At its end all of them are waited for, unless ``implicit_barrier=False``: then ``compss_barrier_group(name)`` does.
    """

    def __init__(self, group_name: str, implicit_barrier: bool = True) -> None:
        self.name = str(group_name)
        self.session: Session | None = None
        self.raised: COMPSsException | None = None  #: by the first of its tasks that did
        self._waits = implicit_barrier
        self._inner: list[TaskGroup] = []
        self._group: Group | None = None
        self._watched: list[Future] = []
        self._token: Token[TaskGroup | None] | None = None

    def __enter__(self) -> Self:
        self.session = session_for_calls()
        if self.session is None:  # inside a body: tasks are plain functions
            return self
        around = current_task_group(self.session)
        if around is not None:
            around._inner.append(self)
        _known[self.name] = self
        self._group = self.session.group(self.name)
        self._group.__enter__()
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is None or self._group is None:
            return
        _current.reset(self._token)
        self._token = None
        self._group.__exit__()
        if self._waits and error is None:
            self.barrier()

    def watch(self, outcome: Future) -> None:
        """Look at the end of one of its tasks."""
        self._watched.append(outcome)
        outcome.add_done_callback(self._ended)

    def _ended(self, outcome: Any) -> None:
        if outcome.cancelled():
            return
        error = outcome._exception
        if isinstance(error, COMPSsException) and self.raised is None:
            self.raised = error
            self.cancel()

    def cancel(self) -> None:
        """Cancel its tasks that have not ended, and those of groups in it."""
        for one in self._inner:
            one.cancel()
        if self._group is not None:
            self._group.cancel()

    def barrier(self) -> None:
        """Wait for its tasks and for those of groups in it; raise what one of them raised."""
        raised: COMPSsException | None = None
        for one in self._inner:
            try:
                one.barrier()
            except COMPSsException as inner:
                raised = raised or inner
        if self._group is None or self.session is None:
            return
        session, group = self.session, self._group
        group.barrier()
        for outcome in self._watched:
            if not outcome.cancelled() and isinstance(outcome._exception, COMPSsException):
                session.seen(outcome)
        raised, self.raised = self.raised or raised, None
        self._watched = []
        if self._token is None:  # it was left: its name is known for ever, but keeps nothing alive
            self.session, self._group, self._inner = None, None, []
        raise_failures(session, group.number)
        if raised is not None:
            raise raised


def _group_of(name: str) -> TaskGroup:
    found = _known.get(str(name))
    if found is None:
        raise UsageError(f"there is no TaskGroup {name!r}{nearest(str(name), _known)}")
    return found


def compss_barrier_group(group_name: str) -> None:
    """Wait for the tasks of a group; raises the ``COMPSsException`` that one of them raised."""
    _group_of(group_name).barrier()


def compss_cancel_group(group_name: str) -> None:
    """Cancel the tasks of a group that have not ended."""
    _group_of(group_name).cancel()


def compss_barrier(no_more_tasks: bool = False) -> None:  # noqa: ARG001 - means nothing here
    """Wait for all tasks; raises if one of them failed for good."""
    session = session_or_none()
    if session is not None:
        session.barrier()
        raise_failures(session)
