"""``TaskGroup``: tasks that are waited for together, and that one of them may cancel by raising."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from windrow.compat.pycompss.body import COMPSsException
from windrow.compat.pycompss.runtime import raise_failures, session_for_calls, session_or_none
from windrow.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token
    from types import TracebackType

    from windrow.tasks.future import Future
    from windrow.tasks.groups import Group
    from windrow.tasks.session import Session

_current: ContextVar[TaskGroup | None] = ContextVar("windrow_pycompss_group", default=None)
_known: dict[str, TaskGroup] = {}  #: the latest of each name
_cancelled: list[TaskGroup] = []  #: groups whose tasks have left things as they were


def take_back_cancelled() -> None:
    """Have tasks that are called now find what was there before tasks that were cancelled, when all of those are over."""
    while _cancelled:
        _cancelled.pop().take_back()


def forget_files(session: Session, paths: list[Any]) -> None:
    """Have tasks find files as they are: what was to write them was cancelled, and left them alone."""
    session.barrier()
    for path in paths:
        session.files.forget(path)


def current_task_group(session: Session) -> TaskGroup | None:
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
        #: By a future of each of its tasks that has not ended well: how to let the program forget that it was called.
        self._watched: dict[Future, list[Callable[[], None]]] = {}
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

    def watch(self, outcome: Future, take_back: list[Callable[[], None]]) -> None:
        """Look at the end of one of its tasks; ``take_back`` is called if it comes to nothing."""
        self._watched[outcome] = take_back
        outcome.add_done_callback(self._ended)

    def _ended(self, outcome: Any) -> None:
        if outcome.cancelled():
            return
        error = outcome._exception
        if error is None:
            self._watched.pop(outcome, None)
        elif isinstance(error, COMPSsException) and self.raised is None:
            self.raised = error
            self.cancel()

    def take_back(self) -> None:
        """Let the program know things and files as they were before tasks of the group that came to nothing."""
        for one in self._inner:
            one.take_back()
        if self._group is not None and any(self._watched.values()):
            self._group.barrier()
        for outcome, take_back in reversed(list(self._watched.items())):
            if outcome.cancelled() or outcome._exception is not None:
                for call in take_back:
                    call()
                self._watched[outcome] = []

    def cancel(self) -> None:
        if self._group is not None:
            self._group.cancel()
            _cancelled.append(self)

    def barrier(self) -> None:
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
        take_back_cancelled()
        raised, self.raised = self.raised or raised, None
        self._watched = {}
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
        take_back_cancelled()
        raise_failures(session)
