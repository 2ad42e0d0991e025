"""The session behind a PyCOMPSs program, and where the program waits for what tasks make: ``compss_wait_on`` and its like.

A session is opened by the first task and closed when the program ends. A ``with wr.Session(...)`` around (a part of) the
program takes precedence. ``WINDROW_ENGINE`` and ``WINDROW_WORKERS`` choose what is opened otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import traceback
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from windrow.compat.pycompss.arguments import COMPSsException, abroad, running_body, trackable
from windrow.engines.processes.values import own_copy
from windrow.errors import NotYetError, UsageError, nearest
from windrow.tasks.call import map_nested
from windrow.tasks.declare import current
from windrow.tasks.failures import error_of
from windrow.tasks.future import Future
from windrow.tasks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token
    from types import TracebackType

    from windrow.tasks.groups import Group


ENGINE, WORKERS = "WINDROW_ENGINE", "WINDROW_WORKERS"


class _Opened:
    """The session of this program, if its tasks have opened one."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.process = 0  #: that has opened it; a fork of it has none
        self.latest: Session | None = None  #: in which a task was called last, the program's or one opened for it
        self.watched = False
        self.lock = threading.RLock()

    def get(self) -> Session | None:
        return self.session if self.process == os.getpid() else None


_opened = _Opened()


def session_for_calls() -> Session | None:
    """Give the session that a call of a task goes to; None inside a body, where tasks are plain functions."""
    if running_body() is not None:
        return None
    session = current.get()
    if session is None and not abroad.is_set():
        session = _opened.get() or _open()
    if session is not None:
        _opened.latest = session
    return session


def session_or_none() -> Session | None:
    if running_body() is not None:
        return None
    return current.get() or _opened.get()


def closed_session() -> Session | None:
    """Give the session in which the program called its tasks, where none is open any more."""
    return None if running_body() is not None else _opened.latest


def _open() -> Session:
    with _opened.lock:
        session = _opened.get()
        if session is None:
            workers = os.environ.get(WORKERS) or None
            if workers is not None and not (workers.isdecimal() and int(workers)):
                raise UsageError(f"{WORKERS} is a number of workers, got {workers!r}")
            number = None if workers is None else int(workers)
            session = Session(engine=os.environ.get(ENGINE) or "processes", workers=number, name="pycompss")
            session.tells = False  # they are raised
            _opened.session, _opened.process = session, os.getpid()
            if not _opened.watched:
                _opened.watched = True
                # While threads can still be started, which they cannot when ``atexit`` calls.
                getattr(threading, "_register_atexit", atexit.register)(_close_at_exit)
                atexit.register(_fail_at_exit)
        return session


def compss_start(*_: Any, **__: Any) -> None:
    """Open the session now rather than with the first task; what PyCOMPSs is told about logs and traces has no meaning."""
    if session_or_none() is None:
        session_for_calls()


def compss_stop(code: int = 0) -> None:
    """Wait for all tasks and end the workers; raises if a task failed whose value was never asked for."""
    session = _opened.get()
    if session is None:
        return
    _opened.session = None
    session.close(cancel=code != 0)
    raise_failures(session)


def raise_failures(session: Session, group: int | None = None) -> None:
    """Raise the first failure that no result was asked of, once; those that only cancel their successors are none."""
    unseen = session._driver.unseen
    for record in list(unseen.values()):
        if group is not None and record.group != group:
            continue
        unseen.pop(record.id, None)
        if record.rule != "cancel_successors" and record.failure is not None:
            raise error_of(record, record.failure)


# -- the end of the program

_failed: list[BaseException] = []


def _close_at_exit() -> None:
    broken = getattr(sys, "last_value", None) is not None  # the program ended with an exception
    try:
        compss_stop(code=1 if broken else 0)
    except BaseException as error:  # noqa: BLE001 - told below: the program is past where it could catch it
        if not broken:
            _failed.append(error)


def _fail_at_exit() -> None:
    if not _failed:
        return
    traceback.print_exception(_failed[0])
    sys.stderr.write("windrow: a task failed, and the program has not asked for its result\n")
    atexit.unregister(_fail_at_exit)
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()  # what others have to do at the end, since nothing comes after us
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


# -- waiting


# -- objects


def compss_wait_on(*objs: Any, mode: str = "rw", to_write: bool | None = None) -> Any:
    """Wait for what tasks make of objects: futures, objects that they change, and lists and dictionaries of such.

    One object gives one, several a list. With ``mode="r"``, once ``to_write=False``, the program promises not to change
    what it gets.
    """
    if to_write is not None:
        mode = "rw" if to_write else "r"
    if mode not in ("r", "rw"):
        raise UsageError(f'compss_wait_on: mode= is "r" or "rw", got {mode!r}')
    take_back_cancelled()
    session = session_or_none()
    values = list(objs)
    if session is not None:
        waiting = _Waiting(session, copies="w" in mode)
        map_nested(values, waiting.expect)
        values = [map_nested(one, waiting.value) for one in values]
    elif (closed := closed_session()) is not None:  # what tasks have made in it is kept
        waiting = _Waiting(closed, copies=False)
        values = [map_nested(one, waiting.value) for one in values]
    return values[0] if len(values) == 1 else values


class _Waiting:
    def __init__(self, session: Session, copies: bool) -> None:
        self._session = session
        self._copies = copies  #: tasks may still need what the program gets as it is
        self._memo: dict[int, Any] = {}

    def expect(self, thing: Any) -> Any:
        latest = self._session.latest(thing)
        if isinstance(latest, Future):
            self._session.expect(latest)
        return thing

    def value(self, thing: Any) -> Any:
        latest = self._session.latest(thing)
        if not isinstance(latest, Future):
            return thing
        value = latest.result()
        if not self._copies or not trackable(value):
            return value
        return own_copy(value, self._memo)


def compss_delete_object(*objs: Any) -> Any:
    """Forget what tasks have made of objects; they are not used any more."""
    session = session_or_none()
    if session is not None:
        for one in objs:
            session.versions.forget(one)
    return _one_or_list([True] * len(objs))


def local(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a plain function wait for its arguments."""

    @functools.wraps(function)
    def waiting(*args: Any, **keywords: Any) -> Any:
        return function(
            *[compss_wait_on(one) for one in args], **{name: compss_wait_on(one) for name, one in keywords.items()}
        )

    return waiting


# -- files


def _for_each(names: tuple[Any, ...], ask: Callable[[Any], Any]) -> Any:
    def answer(name: Any) -> Any:
        return [answer(one) for one in name] if isinstance(name, (list, tuple)) else ask(name)

    return _one_or_list([answer(name) for name in names])


def compss_open(file_name: Any, mode: str = "r") -> Any:
    """Open a file when the tasks that write it have ended; to write it, when all that use it have."""
    compss_wait_on_file(file_name)
    session = session_or_none()
    if session is not None and set(mode) & set("wax+"):
        session.barrier()
        session.files.forget(file_name)
    return Path(file_name).open(mode)


def compss_wait_on_file(*file_name: Any) -> Any:
    """Wait for the tasks that write files, and give the names; raises what the tasks raised."""
    take_back_cancelled()
    session = session_or_none()

    def wait(name: Any) -> Any:
        if session is not None:
            session.files.wait(name)
        return name

    return _for_each(file_name, wait)


def compss_wait_on_directory(*directory_name: Any) -> Any:
    return compss_wait_on_file(*directory_name)


def compss_file_exists(*file_name: Any) -> Any:
    """Say of files whether they exist, when the tasks that write them have ended."""
    compss_wait_on_file(*file_name)
    return _for_each(file_name, lambda name: Path(name).exists())


def compss_delete_file(*file_name: Any) -> Any:
    """Delete files, when all tasks have ended that may use them; say of each whether it was there."""
    session = session_or_none()
    if session is not None:
        session.barrier()

    def delete(name: Any) -> bool:
        if session is not None:
            session.files.forget(name)
        path = Path(name)
        there = path.exists()
        path.unlink(missing_ok=True)
        return there

    return _for_each(file_name, delete)


# -- the machine


def compss_get_number_of_resources() -> int:
    """Say how many machines there are: this one."""
    return 1


def compss_request_resources(*_: Any, **__: Any) -> None:
    """Do nothing: there is one machine, and results are not kept for another run."""


compss_free_resources = compss_snapshot = compss_request_resources


def compss_set_wall_clock(wall_clock_limit: float) -> None:
    """Limit the time of the whole program: not yet."""
    raise NotYetError(
        f"compss_set_wall_clock({wall_clock_limit!r}): a limit for the whole program does not exist yet in Windrow; use the "
        "batch system's, or time_out= of @task"
    )


def _one_or_list(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


# -- groups: tasks that are waited for together, and that one of them may cancel by raising

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
        if around is not None and around.is_cancelled:
            self._cancel_later_calls()
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
        if self.is_cancelled:
            _cancelled.append(self)

    def _ended(self, outcome: Any) -> None:
        if outcome.cancelled():
            return
        error = outcome._exception
        if error is None:
            self._watched.pop(outcome, None)
        elif isinstance(error, COMPSsException) and self.raised is None:
            self.raised = error
            # Before the others are: what is called from now on may find things as they were before the group.
            self._cancel_later_calls()
            self.cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether one of its tasks, or of a group around it, has raised: what is called in it is cancelled, too."""
        cancelled = set() if self.session is None else self.session._driver.cancelled_groups
        return self._group is not None and self._group.number in cancelled

    def _cancel_later_calls(self) -> None:
        if self.session is not None and self._group is not None:
            self.session._driver.cancelled_groups.update(self._group._all())

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
        if self.raised is not None:
            session._driver.cancelled_groups.difference_update(group._all())
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
