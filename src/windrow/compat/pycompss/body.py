"""What runs in the worker: the function with arguments of its own, and what becomes of its results and failures."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.arguments import look_up
from windrow.errors import TaskOutputError, UsageError
from windrow.tasks.body import ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windrow.compat.pycompss.arguments import Arguments, CallLayout, Place


class COMPSsException(Exception):
    """Raised in a task of a ``TaskGroup``: the rest of the group is cancelled, and the group's end raises it."""

    #: Trying the task again would say the same.
    final = True


@dataclass(slots=True)
class RunningBody:
    """A body that runs in this context."""

    name: str
    returns: int
    pass_on: bool  #: whether what is released goes to others at once
    released: dict[int, Any] = field(default_factory=dict)


_running: ContextVar[RunningBody | None] = ContextVar("windrow_pycompss_body", default=None)


@contextmanager
def inside(running: RunningBody) -> Iterator[None]:
    token = _running.set(running)
    try:
        yield
    finally:
        _running.reset(token)


def running_body() -> RunningBody | None:
    return _running.get()


def compss_ready_value(value: Any, index: int = 0) -> None:
    """Release a return value of the task that runs: tasks that need it need not wait for the task's end."""
    running = _running.get()
    if running is None:
        raise UsageError(
            "compss_ready_value(value, index) was called outside a task; it releases a return value of the task that runs"
        )
    if not 0 <= index < running.returns:
        raise UsageError(
            f"task {running.name!r}: compss_ready_value was given the index {index!r}, but the task has "
            f"returns={running.returns}; they are numbered from 0"
        )
    if running.pass_on:
        ready(value, index)
    elif index in running.released:
        raise TaskOutputError(f"task {running.name!r} made return value {index} twice; it is final")
    running.released[index] = value


#: Set where a body came from another process: there nobody opens sessions.
abroad = threading.Event()


@dataclass(eq=False)
class Body:
    """The function of a task, as it travels."""

    name: str
    function: Callable[..., Any]
    returns: int
    ignores: bool = False  #: a failure leaves defaults, and what was there before
    defaults: Mapping[str, Any] = field(default_factory=dict)  #: by parameter, and "returns"
    names: Mapping[Any, str] = field(default_factory=dict)  #: of parameters, by position
    time_out: float = 0.0
    home: int = field(default_factory=os.getpid)

    def __call__(self, layout: CallLayout, arguments: Arguments, *paths: Any) -> Any:
        if os.getpid() != self.home:
            abroad.set()
        running = RunningBody(self.name, self.returns, pass_on=True)
        with inside(running):
            made = self._made(layout, arguments, paths, running)
        made += [None] * (layout.outputs - len(made))
        left = [one for number, one in enumerate(made) if number not in running.released]
        return tuple(left) if len(left) > 1 else left[0] if left else None

    def _made(
        self, layout: CallLayout, arguments: Arguments, paths: tuple[Any, ...], running: RunningBody
    ) -> list[Any]:
        own = layout.private(arguments, paths)
        try:
            with time_limit(self.name, self.time_out):
                result = self.function(
                    *[value for place, value in own.items() if isinstance(place, int)],
                    **{place: value for place, value in own.items() if isinstance(place, str)},
                )
            returned = returned_values(running, result)
        except COMPSsException:
            raise
        except Exception as error:
            if not self.ignores:
                raise
            sys.stderr.write(f"windrow: task {self.name!r} failed and is ignored: {type(error).__name__}: {error}\n")
            for number, directory in layout.written:
                _empty(Path(paths[number]), directory)
            before = layout.private(arguments, paths)  # files, too, are as they were
            made = _default_returns(self.defaults, self.returns)
            return made + [self.defaults.get(self._name_at(way), look_up(before, way)) for way in layout.changed]
        return [*returned, *[look_up(own, way) for way in layout.changed]]

    def _name_at(self, place: Place) -> str:
        """Give the name of the parameter at a place; elements of collections have none."""
        return self.names.get(place[0], str(place[0])) if len(place) == 1 else ""


def _empty(path: Path, directory: bool) -> None:
    """Leave nothing of what a failed body has written, but an empty file or directory."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if not path.exists():  # else it is a device
        path.mkdir() if directory else path.touch()


def _default_returns(defaults: Mapping[str, Any], returns: int) -> list[Any]:
    said = defaults.get("returns")
    if returns > 1 and isinstance(said, (list, tuple)) and len(said) == returns:
        return list(said)
    return [said] * returns


def returned_values(running: RunningBody, result: Any) -> list[Any]:
    """Divide what a function returned among what it declares; what it released counts as returned."""
    wanted = running.returns
    if wanted <= 1:
        return [running.released.get(0, result)] * wanted
    if isinstance(result, (tuple, list)) and len(result) == wanted:
        return [running.released.get(number, one) for number, one in enumerate(result)]
    left = [number for number in range(wanted) if number not in running.released]
    rest = [result] if len(left) == 1 else list(result) if isinstance(result, (tuple, list)) else []
    if left and len(rest) != len(left):
        what = f"{len(result)} values" if isinstance(result, (tuple, list)) else repr(type(result))
        raise TaskOutputError(
            f"task {running.name!r} declares returns={wanted}, so it returns a tuple or list of {wanted}; it returned {what}"
        )
    given = dict(zip(left, rest, strict=False))
    return [running.released.get(number, given.get(number)) for number in range(wanted)]


@contextmanager
def time_limit(name: str, seconds: float) -> Iterator[None]:
    """End a body that takes longer than it may; in a thread, where nothing can, fail it when it has ended."""
    if not seconds:
        yield
        return
    story = f"task {name!r} ran for longer than its time_out={seconds:g} s"

    def ring(*_: Any) -> None:
        raise TimeoutError(story)

    alarm = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    since = monotonic()
    if alarm:
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        if alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    if monotonic() - since > seconds:
        raise TimeoutError(story)
