"""How a call travels: what of its arguments the body changes, where files are, and what comes back.

What a body changes comes back as outputs of its own, after what it returns. So elements of collections that it replaces
count as those that it changes in place. In the worker, the function runs with arguments of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.compat.pycompss.options import COLLECTION_KINDS, PATH_KINDS, Parameter
from windrow.engines.processes.values import own_copy
from windrow.errors import TaskOutputError, UsageError
from windrow.tasks.body import ready
from windrow.tasks.files.annotations import FileKind
from windrow.tasks.future import Future
from windrow.tasks.inout import UNCHANGING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windrow.tasks.session import Session


class COMPSsException(Exception):
    """Raised in a task of a ``TaskGroup``: the rest of the group is cancelled, and the group's end raises it."""

    #: Trying the task again would say the same.
    final = True


@dataclass(slots=True)
class RunningBody:
    """A body that runs in this context."""

    name: str
    returns: int
    pass_on: bool  #: whether a released output goes to waiting tasks at once
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


#: Set where a body came from another process: there no session is opened.
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
            said, names = self.defaults.get("returns"), self.names
            made = [said] * self.returns
            if self.returns > 1 and isinstance(said, (list, tuple)) and len(said) == self.returns:
                made = list(said)
            for way in layout.changed:
                name = names.get(way[0], str(way[0])) if len(way) == 1 else ""  # elements of collections have none
                made.append(self.defaults.get(name, look_up(before, way)))
            return made
        return [*returned, *[look_up(own, way) for way in layout.changed]]


def _empty(path: Path, directory: bool) -> None:
    """Leave nothing of what a failed body has written, but an empty file or directory."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if not path.exists():  # else it is a device
        path.mkdir() if directory else path.touch()


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


# -- the arguments on their way out and in


#: Where something is among the arguments: the position or the name of one, then the way into collections.
Place = tuple[Any, ...]
#: The arguments of a call, by position or name.
Arguments = dict[int | str, Any]

#: Where a directory is written that has files of others.
_KEEPING = "declare the parameter as DIRECTORY_INOUT, which keeps what is there"

#: Depth of collections of paths, which contain nothing else.
_ALL_THE_WAY = 99

#: Here tuples have no versions either, but their elements may.
_UNCHANGING = (*UNCHANGING, tuple)

_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})


def trackable(thing: Any) -> bool:
    """Whether a thing can be known by its identity while tasks change it."""
    return not isinstance(thing, _UNCHANGING)


def follow(session: Session, thing: Any, future: Future) -> None:
    """From now on a thing is known by its next version; no other task reads the one before, so it may go."""
    versions = session.versions
    former = versions.latest(thing)
    versions.follow(thing, future)
    if former is not thing:
        versions.forget(former)


class Fresh(NamedTuple):
    """Stands for an argument that the body fills: a new one is made where it runs."""

    kind: type


@dataclass(frozen=True, slots=True)
class CallLayout:
    """What the worker must know of a call; not a tuple, so that no futures are looked for in it."""

    outputs: int  #: all of them
    changed: tuple[Place, ...] = ()
    containers: tuple[tuple[Any, int], ...] = ()  #: arguments whose elements are changed, with their depth
    paths: tuple[Place, ...] = ()  #: where the paths go that follow the arguments; nowhere if they are copied
    written: tuple[tuple[int, bool], ...] = ()  #: which of the paths are, and whether as directories
    lent: tuple[int | str, ...] = ()  #: arguments that are read, and that others may use too

    def __reduce__(self) -> Any:
        # One goes with every call: dataclasses take nearly twice as long by themselves.
        return CallLayout, (self.outputs, self.changed, self.containers, self.paths, self.written, self.lent)

    def private(self, arguments: Arguments, paths: tuple[Any, ...]) -> Arguments:
        """Give the body arguments of its own: other tasks may read the versions before."""
        own = dict(arguments)
        for place, depth in self.containers:
            own[place] = _copied(own[place], depth)
        memo: dict[int, Any] = {}  # one for all: what is the same thing stays the same thing
        copies: dict[int, Any] = {}
        for way in self.changed:
            thing = look_up(own, way)
            if type(thing) is Fresh:
                new = thing.kind()
            else:
                new = copies[id(thing)] = deepcopy(thing, memo)
            _put(own, way, new)
        for place in self.lent:
            own[place] = own_copy(own[place], memo)
        # An argument that is also given to be changed is changed, as in a plain call.
        own = {place: copies.get(id(value), value) for place, value in own.items()}
        before = None
        for way, path in zip(self.paths, paths, strict=True):
            if not way:
                before = path
                continue
            _put(own, way, path)
            if before is not None:
                if Path(before).is_dir():
                    shutil.copytree(before, path, dirs_exist_ok=True)
                else:
                    shutil.copy2(before, path)
                before = None
        return own


def look_up(arguments: Arguments, way: Place) -> Any:
    thing: Any = arguments
    for key in way:
        thing = thing[key]
    return thing


def _put(arguments: Arguments, way: Place, value: Any) -> None:
    look_up(arguments, way[:-1])[way[-1]] = value


def _copied(container: Any, depth: int) -> Any:
    """Copy containers, but not the elements; tuples become lists, as their elements are put in."""
    if depth == 0:
        return container
    if isinstance(container, dict):
        return {key: _copied(value, depth - 1) for key, value in container.items()}
    if isinstance(container, (list, tuple)):
        return [_copied(value, depth - 1) for value in container]
    return container


class Change(NamedTuple):
    """Something that a call changes, as the program knows it."""

    thing: Any
    container: Any = None  #: the list or dictionary that has it, if one does
    key: Any = None

    def becomes(self, session: Session, future: Future) -> Callable[[], None]:
        """Let the program know it by its next version; give what takes that back, if nothing has come after it."""
        former = session.latest(self.thing)
        if not trackable(self.thing):
            self.container[self.key] = future
        else:
            follow(session, self.thing, future)

        def take_back() -> None:
            if not trackable(self.thing):
                if self.container[self.key] is future:
                    self.container[self.key] = self.thing
            elif session.latest(self.thing) is future:
                session.versions.forget(self.thing)
                if former is not self.thing:
                    session.versions.follow(self.thing, former)

        return take_back


class PathArgument(NamedTuple):
    """A path of a call."""

    name: str
    kind: FileKind
    path: Any


@dataclass(slots=True)
class CallArguments:
    """The arguments of a call on their way out."""

    session: Session
    ignores: bool = False  #: a failure leaves files as they were
    changes: list[Change] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    containers: list[tuple[Any, int]] = field(default_factory=list)
    paths: list[PathArgument] = field(default_factory=list)
    path_places: list[Place] = field(default_factory=list)
    written: list[tuple[int, bool]] = field(default_factory=list)
    lent: list[int | str] = field(default_factory=list)
    used_up: list[Any] = field(default_factory=list)  #: that nobody needs after the call

    def argument(self, parameter: Parameter, name: str, place: int | str, value: Any) -> Any:
        if parameter.direction == "IN_DELETE":
            self.used_up.append(value)
        if parameter.kind in PATH_KINDS:
            return self._path(parameter, name, (place,), value)
        if parameter.kind == "COLLECTION_FILE":
            return self._paths(parameter, name, (place,), value)
        if not parameter.writes:
            if self._is_lent(value):
                self.lent.append(place)
            return value
        if parameter.kind in COLLECTION_KINDS and self._is_open(value):
            self.containers.append((place, parameter.depth))
            return self._elements(parameter, (place,), value, parameter.depth)
        if not trackable(value):
            return value
        return self._changed(parameter, (place,), Change(value))

    def layout(self, returns: int, more: int) -> CallLayout:
        outputs = max(returns + len(self.changes) + more, 1)
        paths, written = tuple(self.path_places), tuple(self.written)
        return CallLayout(outputs, tuple(self.places), tuple(self.containers), paths, written, tuple(self.lent))

    def _is_lent(self, value: Any) -> bool:
        """Whether other tasks may use the object that a body reads: wherever memory is shared. In processes it is the body's own."""
        if self.session._driver._isolated or type(value) in _PLAIN:
            return False
        if isinstance(value, Future) or self.session.latest(value) is not value or trackable(value):
            return True
        if isinstance(value, (list, tuple, set, frozenset)):
            return any(self._is_lent(one) for one in value)
        return isinstance(value, dict) and any(self._is_lent(one) for one in value.values())

    def _is_open(self, value: Any) -> bool:
        """Whether we can look into a collection: it is here, and no task changes it as a whole."""
        return isinstance(value, (list, tuple, dict)) and self.session.latest(value) is value

    def _elements(self, parameter: Parameter, place: Place, container: Any, depth: int) -> Any:
        def one(key: Any, value: Any) -> Any:
            if depth > 1 and self._is_open(value):
                return self._elements(parameter, (*place, key), value, depth - 1)
            if not trackable(value) and isinstance(container, tuple):
                return value
            return self._changed(parameter, (*place, key), Change(value, container, key))

        return _mapped(container, one)

    def _changed(self, parameter: Parameter, place: Place, change: Change) -> Any:
        self.changes.append(change)
        self.places.append(place)
        kind: Any = type(change.thing)
        if parameter.reads or not _makeable(kind):
            return change.thing
        return Fresh(kind)

    def _path(self, parameter: Parameter, name: str, place: Place, value: Any) -> Any:
        if value is None:  # an optional file that was not given
            return None
        directory = parameter.kind == "DIRECTORY"
        known_as = f"{parameter.kind}_{parameter.direction}"
        reads = parameter.reads
        if reads and parameter.writes and (directory or self.ignores):
            # The body gets a new one to fill, into which the one before is copied; again if it fails and may.
            self.paths.append(PathArgument(f"{name} before", FileKind(known_as, True, False, directory), value))
            self.path_places.append(())
            reads = False
        if parameter.writes:
            self.written.append((len(self.paths), directory))
        # Its programs may leave files empty.
        kind = FileKind(
            known_as,
            reads,
            parameter.writes,
            directory,
            may_be_empty=True,
            keeps_nothing=_KEEPING if directory and not parameter.reads else "",
        )
        self.paths.append(PathArgument(name, kind, value))
        self.path_places.append(place)
        return None

    def _paths(self, parameter: Parameter, name: str, place: Place, value: Any) -> Any:
        if not isinstance(value, (list, tuple, dict)):
            return self._path(parameter, name, place, value)
        if len(place) == 1:
            self.containers.append((place[0], _ALL_THE_WAY))
        return _mapped(value, lambda key, one: self._paths(parameter, f"{name}[{key!r}]", (*place, key), one))


def _mapped(container: Any, one: Callable[[Any, Any], Any]) -> Any:
    if isinstance(container, dict):
        return {key: one(key, value) for key, value in container.items()}
    return [one(key, value) for key, value in enumerate(container)]


@lru_cache(maxsize=1000)
def _makeable(kind: type) -> bool:
    try:
        kind()
    except Exception:  # noqa: BLE001 - whatever its constructor says, the answer is no
        return False
    return True
