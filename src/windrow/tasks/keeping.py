"""Keeping results where they are made: the worker writes them to the store when all of a call's files are in place.

Nothing here may harm a task: what cannot be kept is not kept, and the reason is left in its place.
"""

from __future__ import annotations

import contextlib
import pickle
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import CorruptFileError
from windrow.store.results import AGAIN, Results
from windrow.tasks.calls import looked_into
from windrow.tasks.file_stamps import Stamp, content_digest, stamp, stamps_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.store.results import Entry
    from windrow.tasks.going import Going

__all__ = ["WHY_NOT", "Fetch", "Keep", "KeptValue", "still_there"]

#: What is noted with a result: the stamps of the files that the task wrote, digests of their content if that was asked for,
#: and why there are no values.
FILES = "files"
DIGESTS = "digests"
WHY_NOT = "why not"

#: Buffers from this size on are written as they are, without a copy in the pickle.
_APART = 1024


class KeptValue(NamedTuple):
    """Stands for a value that is in the store: among arguments it travels in its place."""

    directory: str
    key: str
    name: str  #: of the output

    def load(self) -> Any:
        """Read the value; CorruptFileError if that cannot be."""
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
    def around(self, going: Going) -> Iterator[None]:
        """Read them all."""

        def value(thing: Any) -> Any:
            return thing.load() if type(thing) is KeptValue else thing

        going.arguments = looked_into(going.arguments, value)
        going.keywords = looked_into(going.keywords, value)
        yield


class Keep(NamedTuple):
    """Keeps the outputs of a call under its lineage."""

    directory: str
    key: str
    name: str  #: of the task
    by_content: bool = False  #: whether files that it writes are known by their content

    @contextmanager
    def around(self, going: Going) -> Iterator[None]:
        """Let all be done, then keep what was made."""
        going.keeps = True
        going.released = _Released()
        yield
        if not going.cancelled():
            self._keep(going)

    def _keep(self, going: Going) -> None:
        results = Results(Path(self.directory))
        facts: dict[str, Any] = {"task": self.name}
        try:
            facts[FILES] = _written(going)
            if self.by_content:
                facts[DIGESTS] = [content_digest(one.path) for one in facts[FILES]]
            outputs = dict(_outputs(going))
            results.write(self.key, outputs, facts)
        except Exception as error:  # noqa: BLE001 - whatever it is, the task has its result
            why = str(error) if isinstance(error, _NotKept) else f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):
                results.write(self.key, {}, {**facts, WHY_NOT: why})


class _Released(dict[str, Any]):
    """Outputs that were released before the body's end, as they were then: their readers, or the body, may change them."""

    def __setitem__(self, name: str, value: Any) -> None:
        try:
            packed: Any = [bytes(piece) for piece in _packed(value)]
        except Exception as error:  # noqa: BLE001 - it is told when the body has ended
            packed = error
        super().__setitem__(name, packed)


def _outputs(going: Going) -> Iterator[tuple[str, list[bytes | memoryview]]]:
    """Give the outputs of the function as they are written, by their numbers."""
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


def _written(going: Going) -> list[Stamp]:
    """List stamps of the files that were written, as those who wrote them say."""
    prefix = f"{going.task}.f"
    return [
        one
        for name, said in going.made.items()
        if name.startswith(prefix)
        for one in stamps_of(said)
    ]


def stamps_in(entry: Entry) -> list[Stamp]:
    """Give the stamps of the files that a task wrote."""
    return [Stamp(*one) for one in entry.facts.get(FILES, ())]


def still_there(entry: Entry) -> list[Stamp] | None:
    """Give the stamps that files have now, if they are what the task wrote; None if one is not."""
    found: list[Stamp] = []
    digests = entry.facts.get(DIGESTS) or []
    for number, said in enumerate(stamps_in(entry)):
        try:
            now = stamp(said.path)
            if now != said and (not digests or content_digest(said.path) != digests[number]):
                return None
        except OSError:
            return None
        found.append(now)
    return found
