"""``compss_wait_on`` and its like: where the program waits for what tasks make."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.arguments import trackable
from windrow.compat.pycompss.groups import take_back_cancelled
from windrow.compat.pycompss.runtime import closed_session, session_or_none
from windrow.engines.processes.values import own_copy
from windrow.errors import NotYetError, UsageError
from windrow.tasks.call import map_nested
from windrow.tasks.future import Future

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.tasks.session import Session

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
    """One wait for several things."""

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
