"""One call of a task: what it was given, what it reads, comes after and makes, and what has become of it.

Futures among the arguments are taken out, and put back as values where the task runs. Lists, tuples, dictionaries, sets and
deques are looked into; whatever else hides a future is refused where it is pickled.
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError
from windrow.tasks.body import STREAM
from windrow.tasks.declare import Declared, task
from windrow.tasks.future import Future, StreamFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windrow.core.records import Failure
    from windrow.tasks.files.annotations import FileKind
    from windrow.tasks.reuse.save import KeptValue
    from windrow.tasks.session import Session
    from windrow.tasks.worker import Around

#: Containers that are looked into.
CONTAINERS = (list, tuple, dict, set, frozenset, deque)
#: What may be a future, or have one in it.
_HOLDERS = (Future, StreamFuture, *CONTAINERS)
#: Functions and declared tasks that are remembered; of those made for one call each there is no end.
MOST = 1000

_NO_FUTURES: deque[Any] = deque()  #: nothing is ever put into it


class FileArgument(NamedTuple):
    """A path of a call that is a dependency."""

    parameter: str
    kind: FileKind
    path: str  #: absolute
    maker: Future | None = None  #: of a file that an earlier task of the session writes
    stamp: Any = None  #: of a file that was there before: what it is like now
    among: str = ""  #: the path that was given, where that stands for several files


class Content(NamedTuple):
    """The part of a call that travels to a worker."""

    name: str
    function: Any  #: or the number of one that travels apart
    arguments: tuple[Any, ...]  #: with slots where futures were
    keywords: Mapping[str, Any]
    outputs: int | str
    changed: tuple[int | str, ...]  #: places of the arguments that the body changes
    ignores: bool  #: what it raises is told, and its outputs are None
    around: tuple[Around, ...] = ()  #: what is done around the body, outermost first


class Call:
    """One call, from the moment it is made.

    Futures hold their call, and a call those that it reads from. So what it takes to make an output again is there as long
    as anybody may need that, and no longer. What only its making needs is forgotten with ``made``.
    """

    __slots__ = (
        "__weakref__", "_places", "after", "arguments", "around", "beside", "content", "declared", "failure", "files", "group",
        "id", "key", "keywords", "more", "outputs", "parents", "reads", "root", "rule", "session", "slots", "state", "streamed",
    )  # fmt: skip

    # While it is made, if it is not a plain one:
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    reads: list[Future]  #: in the order of slots
    after: list[int]  #: tasks that must have ended before
    beside: list[int]  #: tasks that must have ended before files of it are put into place
    around: list[Around]  #: what the worker does around the body, outermost first
    files: list[FileArgument]
    more: list[str]  #: names of outputs beside those of the function
    _places: dict[str, int]
    root: Call  #: once known: the task that is to blame for its failure, if that is another

    def __init__(self, session: Session, number: int, declared: Declared) -> None:
        self.session = session
        self.id = number
        self.declared = declared
        self.parents: tuple[Call, ...] = ()
        self.slots: tuple[str, ...] = ()  #: names of what it reads, by slot
        self.key: str | None = None  #: the lineage, where the result may be reused
        self.outputs: tuple[str, ...] = ()
        self.content: Any = None  #: what travels to a worker
        self.rule = ""  #: what becomes of others if it fails
        #: of a stream: futures that nobody has taken yet
        self.streamed: deque[Future] = deque() if declared.outputs == STREAM else _NO_FUTURES
        self.group = 0
        self.state = "waiting"  #: "waiting", "running", "done", "failed" or "cancelled"
        self.failure: Failure | None = None

    @property
    def name(self) -> str:
        return self.declared.name

    @property
    def writes_files(self) -> bool:
        """Whether it puts files into place, which it must not do once more when later tasks have overwritten them."""
        files = self.declared.files
        return bool(files) and any(one.writes for one in files.values())

    def begin(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Call:
        self.arguments, self.keywords = arguments, dict(keywords)
        self.reads, self.after, self.beside, self.around, self.files, self.more = [], [], [], [], [], []
        self._places = {}
        return self

    def made(self) -> None:
        """Keep what is read by its makers, and let go what was given: futures would be kept for ever."""
        self.parents = tuple({one.call.id: one.call for one in self.reads}.values())
        self.slots = tuple([one.output for one in self.reads])
        del self.arguments, self.keywords, self.reads, self.after, self.beside, self.around, self.files, self.more
        del self._places

    # -- its arguments

    def place(self, parameter: str) -> int | str | None:
        """Say where a parameter's argument is; None if its default is used."""
        if parameter in self.keywords:
            return parameter
        number = self.declared.positions.get(parameter)
        return number if number is not None and number < len(self.arguments) else None

    def get(self, place: int | str) -> Any:
        return self.keywords[place] if isinstance(place, str) else self.arguments[place]

    def put(self, place: int | str, value: Any) -> None:
        if isinstance(place, str):
            self.keywords[place] = value
        else:
            own = list(self.arguments)
            own[place] = value
            self.arguments = tuple(own)

    def read(self, future: Future) -> Slot | KeptValue:
        """The call needs the value of a future; give what stands for it among the arguments."""
        if future._session is not self.session:
            raise UsageError(f"{future!r} belongs to another session; ask for its value with result() first")
        if future.kept is not None:
            from windrow.tasks.reuse.save import Fetch

            if not any(type(one) is Fetch for one in self.around):
                self.around.insert(0, Fetch())
            stand_in: KeptValue = future.kept
            return stand_in
        number = self._places.get(future.output)
        if number is None:
            number = self._places[future.output] = len(self.reads)
            self.reads.append(future)
        return Slot(number)

    def take_futures_out(self) -> None:
        """Put slots where futures are, and where things are that tasks change."""
        session = self.session
        if not session.versions.any and has_no_futures(self.arguments) and has_no_futures(self.keywords.values()):
            return  # by far the most
        latest = session.versions.latest if session.versions.any else None

        def slot(thing: Any) -> Any:
            found = thing if latest is None else latest(thing)
            if isinstance(found, StreamFuture):
                raise UsageError(
                    f"task {self.name!r} is given {found!r}, of which nobody knows yet how many outputs there will be; "
                    "call it for each of them, or with list(stream), which waits until all are there"
                )
            return self.read(found) if isinstance(found, Future) else thing

        known: dict[int, Any] = {}
        self.arguments = tuple([map_nested(one, slot, known) for one in self.arguments])
        self.keywords = {name: map_nested(one, slot, known) for name, one in self.keywords.items()}


# -- things in containers


class Slot(NamedTuple):
    """Stands for the value of a future among the arguments of a call."""

    number: int  #: among what the task reads


def has_no_futures(things: Iterable[Any]) -> bool:
    """Whether there can be no future among or inside of things."""
    for one in things:  # noqa: SIM110 - a generator takes twice as long, for every call
        if isinstance(one, _HOLDERS):
            return False
    return True


def map_nested(thing: Any, replace: Callable[[Any], Any], known: dict[int, Any] | None = None) -> Any:
    """Replace what ``replace`` replaces, in containers too; what has nothing of it is returned itself.

    A container is looked into once, wherever it is found; one that is inside itself stays as it is there.
    """
    new = replace(thing)
    if new is not thing or not isinstance(thing, CONTAINERS):
        return new
    known = {} if known is None else known
    if id(thing) not in known:
        known[id(thing)] = thing
        known[id(thing)] = _map_inside(thing, replace, known)
    return known[id(thing)]


def _map_inside(thing: Any, replace: Callable[[Any], Any], known: dict[int, Any]) -> Any:
    kind = type(thing)
    old = list(thing.values() if isinstance(thing, dict) else thing)
    new = [map_nested(one, replace, known) for one in old]
    if all(one is other for one, other in zip(new, old, strict=True)):
        return thing
    if kind is list or kind is set or kind is frozenset:
        return kind(new)
    if isinstance(thing, tuple):
        return kind(*new) if hasattr(kind, "_fields") else kind(new)
    if kind is dict:
        return dict(zip(thing, new, strict=True))
    if isinstance(thing, (set, frozenset)):
        return thing  # of a kind of its own: how one is made is not known
    own = copy(thing)  # of a kind of its own, which has more than what is in it
    for key, value in zip(thing if isinstance(thing, dict) else range(len(new)), new, strict=True):
        own[key] = value
    return own


def fill_slots(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any], values: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def value(thing: Any) -> Any:
        return values[thing.number] if type(thing) is Slot else thing

    return map_nested(arguments, value), map_nested(dict(keywords), value)


# -- what a session knows of all calls of a task


class TaskTraits(NamedTuple):
    """Facts about a declared task, found out by a session once for all calls of it."""

    declared: Declared
    devices: float  #: how many it needs
    #: Calls without futures among their arguments are nothing but a function and its arguments.
    plain: bool


class DeclaredFunctions:
    """Declarations of plain functions that were submitted more than once, by identity, which is thus kept.

    One that was made for a single call is not kept, with all that it sees.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Declared]] = {}
        self._once: dict[int, weakref.ref[Any]] = {}

    def declare(self, function: Callable[..., Any]) -> Declared:
        made = task(function).declared
        for table in (self.known, self._once):
            if len(table) >= MOST:
                table.clear()
        seen = self._once.get(id(function))
        if seen is None or seen() is not function:
            with suppress(TypeError):  # some cannot be looked at weakly
                self._once[id(function)] = weakref.ref(function)
                return made
        self.known[id(function)] = (function, made)
        return made
