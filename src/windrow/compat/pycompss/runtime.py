"""The session behind a PyCOMPSs program: opened by its first task, closed when the program ends.

A ``with wr.Session(...)`` around (a part of) the program takes precedence. ``WINDROW_ENGINE`` and ``WINDROW_WORKERS``
choose what is opened otherwise.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from typing import Any

from windrow.compat.pycompss.body import abroad, running_body
from windrow.errors import UsageError
from windrow.tasks.declare import current
from windrow.tasks.failures import error_of
from windrow.tasks.session import Session

ENGINE, WORKERS = "WINDROW_ENGINE", "WINDROW_WORKERS"


class _Opened:
    """The session of this program, if its tasks have opened one."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.process = 0  #: that has opened it; a fork of it has none
        self.latest: Session | None = None  #: in which a task was called, whoever opened it
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
            session = Session(engine=os.environ.get(ENGINE) or "processes", workers=_workers(), name="pycompss")
            session.tells = False  # they are raised
            _opened.session, _opened.process = session, os.getpid()
            if not _opened.watched:
                _opened.watched = True
                # While threads can still be started, which they cannot when ``atexit`` calls.
                getattr(threading, "_register_atexit", atexit.register)(_close_at_exit)
                atexit.register(_fail_at_exit)
        return session


def _workers() -> int | None:
    said = os.environ.get(WORKERS)
    if not said:
        return None
    if not said.isdecimal() or not int(said):
        raise UsageError(f"{WORKERS} is a number of workers, got {said!r}")
    return int(said)


def compss_start(*_: Any, **__: Any) -> None:
    """Open the session now rather than with the first task; what PyCOMPSs is told about logs and traces has no meaning."""
    if session_or_none() is None:
        session_for_calls()


def compss_stop(code: int = 0) -> None:
    """Wait for all tasks and end the workers; raises if a task failed that nobody asked for."""
    session = _opened.get()
    if session is None:
        return
    _opened.session = None
    session.close(cancel=code != 0)
    raise_failures(session)


def raise_failures(session: Session, group: int | None = None) -> None:
    """Raise the first failure that nobody has seen, once; those that only cancel their successors are none."""
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
    except BaseException as error:  # noqa: BLE001 - told below: nobody can catch it any more
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
