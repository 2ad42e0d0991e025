"""Waiting: of many futures all are asked for before the first is waited for, and nobody waits for himself."""

from __future__ import annotations

import threading
from collections.abc import ItemsView, Iterator, ValuesView
from typing import TYPE_CHECKING, Any

from windrow.errors import TaskError, UsageError
from windrow.tasks.call import map_nested
from windrow.tasks.future import ELSEWHERE, Future, StreamFuture

if TYPE_CHECKING:
    from windrow.tasks.driving import Driver
    from windrow.tasks.pack import Packer
    from windrow.tasks.session import Session


#: Seconds without the end of a task after which a program that makes large things goes on.
PATIENCE_S = 5.0


def gather(session: Session, things: Any) -> Any:
    """Give a structure with the values of the futures in it, and of things that tasks change."""
    if isinstance(things, Iterator | ValuesView | ItemsView):
        things = list(things)
    versions = session.versions
    if type(things) is list and not versions.any and _are_futures(things):  # by far the most
        for one in things:
            session.prepare(one)
        return [one.result() for one in things]

    session.parts.refuse("session.gather", things)

    def ask(thing: Any) -> Any:
        latest = versions.latest(thing)
        if isinstance(latest, Future):
            session.prepare(latest)
        return thing

    def value(thing: Any) -> Any:
        if isinstance(thing, StreamFuture):
            return [future.result() for future in thing]
        latest = versions.latest(thing)
        return latest.result() if isinstance(latest, Future) else thing

    map_nested(things, ask)
    return map_nested(things, value)


def _are_futures(things: list[Any]) -> bool:
    for one in things:  # noqa: SIM110 - a generator takes twice as long
        if not isinstance(one, Future):
            return False
    return True


def bring(session: Session, future: Future, timeout: float | None) -> Any:
    """Wait for a value that exists elsewhere, and give it."""
    session.expect(future)
    with future._condition:
        if future._result is ELSEWHERE and not session._driver.over:
            session.refuse_to_wait(f"{future!r}, whose value has to be brought,")
        found = future._condition.wait_for(lambda: future._result is not ELSEWHERE or session._driver.over, timeout)
    if future._exception is not None:
        raise future._exception
    if future._result is ELSEWHERE:
        if not found:
            raise TimeoutError
        raise TaskError(f"the session ended before the value of {future!r} was brought")
    return future._result


def wait_for_room(session: Session, packer: Packer) -> None:
    """Wait until less of what calls were given waits for being sent, as long as tasks end meanwhile."""
    driver = session._driver
    if driver.forked or threading.get_ident() == driver.thread.ident:
        return
    with session.changed:
        while packer.is_full() and session.open and not driver.over:
            before = len(session.open)
            if not session.changed.wait_for(lambda: len(session.open) < before or driver.over, PATIENCE_S):  # noqa: B023
                return  # they may wait for the program


def refuse_in_fork(driver: Driver, what: str) -> None:
    """Raise in a fork of the process that has the run: nothing would ever be done there, or answered."""
    if driver.forked:
        raise UsageError(
            f"{what} in a process that was forked (os.fork, multiprocessing) from the one that opened the session: the "
            "session runs in that one alone; open another one here"
        )


def refuse_to_wait(driver: Driver, what: str) -> None:
    """Raise where a wait would never end: in the thread that runs a session, or where no thread does."""
    refuse_in_fork(driver, f"{what} cannot be waited for")
    if threading.get_ident() == driver.thread.ident:
        raise UsageError(
            f"{what} cannot be waited for in the session's own thread, which would wait for itself: done-callbacks run there, and "
            'bodies with engine="inline"; give the future to a task, or wait for it where the task was called'
        )
