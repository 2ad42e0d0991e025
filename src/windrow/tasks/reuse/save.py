"""Keeping results where they are made: the worker writes them to the store when all of a call's files are in place.

Nothing here may harm a task: what cannot be kept is not kept, and the reason is left in its place.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import CorruptFileError
from windrow.store.results import AGAIN, Results, Room
from windrow.tasks.call import map_nested
from windrow.tasks.files.paths import is_remote
from windrow.tasks.files.stamps import Stamp, content_digest, stamp, stamps_of
from windrow.tasks.resident import made_of_others
from windrow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.store.results import Entry
    from windrow.tasks.reuse.code import Codes
    from windrow.tasks.worker import RunningCall


#: What is noted with a result: the stamps of the files that the task wrote, and of those that it read,
#: digests of their content if that was asked for, and why there are no values. Of files that it
#: made beside those it declares only the paths are: other tasks may leave some by the same names.
FILES = "files"
BESIDE = "beside"
DIGESTS = "digests"
READ = "read"
READ_DIGESTS = "read digests"
WHY_NOT = "why not"

#: Buffers from this size on are written as they are, without a copy in the pickle.
_APART = 1024


class KeptValue(NamedTuple):
    """Stands for a value that is in the store: among arguments it travels in its place."""

    directory: str
    key: str
    name: str  #: of the output

    def load(self) -> Any:
        pieces = Results(Path(self.directory)).load(self.key, self.name)
        try:
            return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301 - nobody else can have written it
        except Exception as error:
            Results(Path(self.directory)).remove(self.key)
            raise CorruptFileError(
                f"a kept result in {self.directory} cannot be made again ({type(error).__name__}: {error}), perhaps as its "
                f"class has changed; {AGAIN}"
            ) from error


class Fetch:
    """Puts values where stand-ins are among the arguments, before the body runs."""

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:
        loaded: dict[KeptValue, Any] = {}

        def value(thing: Any) -> Any:
            if type(thing) is not KeptValue:
                return thing
            if thing not in loaded:
                loaded[thing] = thing.load()
            return loaded[thing]

        going.arguments = map_nested(going.arguments, value)
        going.keywords = map_nested(going.keywords, value)
        yield


class Keep(NamedTuple):
    """Keeps the outputs of a call under its lineage."""

    directory: str
    key: str
    name: str  #: of the task
    code: str = ""  #: the digest of the function, if that is in the lineage
    made_by: tuple[str, ...] = ()  #: keys of calls whose futures say which files it reads
    by_content: bool = False  #: whether files that it writes are known by their content
    budget: float = math.inf  #: of the store

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:
        going.keeps = True
        going.released = _Released()
        try:
            why_not = self._why_not(going)
        except Exception as error:  # noqa: BLE001 - it is told when the body has ended
            why_not = f"{type(error).__name__}: {error}"
        yield
        if not going.cancelled():
            self._keep(going, why_not)

    def _why_not(self, going: RunningCall) -> str:
        """Say why what comes out will not be what the lineage says; nothing if it will.

        Since the call, globals may have changed; a process has imported modules by itself, and tasks there may have changed
        them.
        """
        if not self.code:
            return ""
        if _code_here(going.function, self.name) != self.code:
            return (
                "what it means where it runs is not what it meant in the program when it was called: a global that it "
                "uses, or its module, was changed since, by the program or by tasks that ran before"
            )
        other = made_of_others(going.function)
        return f"{other} means something else now than when this worker used it" if other else ""

    def _keep(self, going: RunningCall, why_not: str) -> None:
        results = Results(Path(self.directory))
        facts: dict[str, Any] = {"task": self.name}
        try:
            self._check(results, why_not)
            facts[FILES], seen = _written(going), _seen(going)
            if seen:
                facts[READ] = seen
            if going.beside:
                facts[BESIDE] = going.beside
            if self.by_content:
                facts[DIGESTS] = [content_digest(one.path) for one in facts[FILES]]
                facts[READ_DIGESTS] = [content_digest(one.path) for one in seen]
            outputs = dict(_outputs(going))
            size = sum(memoryview(one).nbytes for some in outputs.values() for one in some)
            if size > _APART or not facts[FILES]:  # what files are like is noted in any case
                self._take_room(size)
            results.write(self.key, outputs, facts)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task has its result
            why = str(error) if isinstance(error, _NotKept) else f"{type(error).__name__}: {error}"
            if isinstance(error, _NoRoom) and not facts[FILES]:
                if (self.directory, self.name) in _told:
                    return  # of each task one call says so: that takes room too
                _told.add((self.directory, self.name))
            with contextlib.suppress(OSError):
                if results.find(self.key) is None:  # another program may have kept it meanwhile
                    results.write(self.key, {}, {**facts, WHY_NOT: why})

    def _take_room(self, size: int) -> None:
        if not _room(self.directory, self.budget).take(size):
            raise _NoRoom(
                f"it takes {format_bytes(size)}, and of the {format_bytes(self.budget)} that results may take no more is free "
                "while sessions are open that use the others; give wr.Session a larger store_budget="
            )

    def _check(self, results: Results, why_not: str) -> None:
        if why_not:
            raise _NotKept(why_not)
        if not all(is_as_it_was_made(results, key) for key in self.made_by):
            raise _NotKept("a file that it reads was changed since the task wrote it whose future it was given")


def _code_here(function: Any, name: str) -> str:
    from windrow.tasks.commands.command import CommandBody

    if isinstance(function, CommandBody):
        function = function.function
    return _codes().look_at(function, name, content=True).digest


@cache
def _codes() -> Codes:
    from windrow.tasks.reuse.code import Codes

    return Codes()


@cache
def _room(directory: str, budget: float) -> Room:
    return Room(Path(directory), budget)


def look_for_room_again() -> None:
    """A session has ended, and what it used may go: what was found before does not count here any more."""
    _room.cache_clear()
    _told.clear()


class _Released(dict[str, Any]):
    """Outputs that were released before the body's end, as they were then: their readers, or the body, may change them."""

    def __setitem__(self, name: str, value: Any) -> None:
        try:
            packed: Any = [bytes(piece) for piece in _packed(value)]
        except Exception as error:  # noqa: BLE001 - it is told when the body has ended
            packed = error
        super().__setitem__(name, packed)


def _outputs(going: RunningCall) -> Iterator[tuple[str, list[bytes | memoryview]]]:
    for number in range(int(going.outputs)):
        name = f"{going.task}.{number}"
        if name in going.made:
            yield f"{number}", _packed(going.made[name])
        elif isinstance(going.released[name], Exception):
            raise going.released[name]
        else:
            yield f"{number}", going.released[name]


class _NotKept(Exception):
    """A result that must not be kept."""


class _NoRoom(_NotKept):
    """A result for which the store has no room."""


#: Stores and tasks for which it was said that there is no room.
_told: set[tuple[str, str]] = set()


def _packed(value: Any) -> list[bytes | memoryview]:
    """Pickle a value by names alone: what is written down by value would be another class in the next run."""
    buffers: list[memoryview] = []

    def goes_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _APART:
            return True
        buffers.append(raw)
        return False

    content = pickle.dumps(value, 5, buffer_callback=goes_inside)
    if b"__main__" in content:
        raise _NotKept(
            "its value has a class or function of the program's main file, which a worker does not find by name; put "
            "that into a module of its own"
        )
    return [content, *buffers]


def _written(going: RunningCall) -> list[Stamp]:
    prefix = f"{going.task}.f"
    return [one for name, said in going.made.items() if name.startswith(prefix) for one in stamps_of(said)]


def _seen(going: RunningCall) -> list[Stamp]:
    """List stamps of the files that were read; _NotKept if one can have none."""
    for one in going.seen:
        if is_remote(one.path):
            raise _NotKept(f"a future said that it reads {one.path}, which may change unseen")
    return list(dict.fromkeys(going.seen))


def stamps_in(entry: Entry) -> list[Stamp]:
    return [Stamp(*one) for one in entry.facts.get(FILES, ())]


def beside_in(entry: Entry) -> list[Stamp]:
    """Give the stamps that files have now which a task made beside those it declares."""
    found = []
    for path in entry.facts.get(BESIDE, ()):
        with contextlib.suppress(OSError):  # a link that leads nowhere, or it was just removed
            found.append(stamp(path))
    return found


def is_as_it_was_made(results: Results, key: str) -> bool:
    """Whether the files that a call wrote are what it left; False if that is not known."""
    entry = results.find(key)
    return entry is not None and bool(stamps_in(entry)) and still_there(entry) is not None


def still_there(entry: Entry) -> list[Stamp] | None:
    """Give the stamps that files have now, if they are what the task wrote; None if one is not, or was removed."""
    if not all(os.path.lexists(one) for one in entry.facts.get(BESIDE, ())):
        return None
    return _unchanged(stamps_in(entry), entry.facts.get(DIGESTS) or [])


def still_as_read(entry: Entry) -> list[Stamp] | None:
    """Give the stamps of the files that a task read; None if one has changed."""
    return _unchanged([Stamp(*one) for one in entry.facts.get(READ, ())], entry.facts.get(READ_DIGESTS) or [])


def _unchanged(stamps: list[Stamp], digests: list[str]) -> list[Stamp] | None:
    found: list[Stamp] = []
    for number, said in enumerate(stamps):
        try:
            now = stamp(said.path)
            if now != said and (not digests or content_digest(said.path) != digests[number]):
                return None
        except OSError:
            return None
        found.append(now)
    return found
