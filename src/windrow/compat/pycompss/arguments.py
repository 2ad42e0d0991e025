"""How a call travels: what of its arguments the body changes, where files are, and what comes back.

What a body changes comes back as outputs of its own, after what it returns. So elements of collections that it replaces
count as those that it changes in place.
"""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.compat.pycompss.parameters import COLLECTION_KINDS, PATH_KINDS, Parameter
from windrow.engines.processes.values import own_copy
from windrow.tasks.files.annotations import FileKind
from windrow.tasks.future import Future
from windrow.tasks.inout import UNCHANGING

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.tasks.session import Session

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
    """From now on a thing is known by its next version; nobody else knows the one before, so it may go."""
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
    """What the worker must know of a call; not a tuple, so that nobody looks for futures in it."""

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
        """Give the body arguments of its own: others may read the versions before."""
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
                copy_path(before, path)
                before = None
        return own


def look_up(arguments: Arguments, way: Place) -> Any:
    thing: Any = arguments
    for key in way:
        thing = thing[key]
    return thing


def _put(arguments: Arguments, way: Place, value: Any) -> None:
    look_up(arguments, way[:-1])[way[-1]] = value


def copy_path(source: Any, target: Any) -> None:
    if Path(source).is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


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
        """Whether others may use the very thing that a body reads: wherever memory is shared. In processes it is the body's own."""
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
