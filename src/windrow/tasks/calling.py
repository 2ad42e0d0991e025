"""A call of a task while it is being made: what it reads, comes after and makes, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError
from windrow.tasks.calls import CONTAINERS, Slot, looked_into
from windrow.tasks.future import Future, StreamFuture
from windrow.tasks.keeping import Fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windrow.tasks.declare import Declared
    from windrow.tasks.file_kinds import FileKind
    from windrow.tasks.keeping import KeptValue
    from windrow.tasks.session import Session
    from windrow.tasks.worker import Around

__all__ = ["Calling", "FileArgument"]

#: What may be a future, or have one in it.
_HOLDERS = (Future, StreamFuture, *CONTAINERS)


def has_none(things: Iterable[Any]) -> bool:
    """Whether there can be no future among or inside of things."""
    for one in things:  # noqa: SIM110 - a generator takes twice as long, for every call
        if isinstance(one, _HOLDERS):
            return False
    return True


class FileArgument(NamedTuple):
    """A path of a call that is a dependency."""

    parameter: str
    kind: FileKind
    path: str  #: absolute
    maker: Future | None = None  #: of a file that an earlier task of the session writes
    stamp: Any = None  #: of a file that was there before: what it is like now


class Calling:
    """One call."""

    __slots__ = (
        "_places",
        "after",
        "arguments",
        "around",
        "declared",
        "files",
        "id",
        "key",
        "keywords",
        "made",
        "reads",
        "session",
    )

    def __init__(
        self, session: Session, number: int, declared: Declared, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.id = number
        self.declared = declared
        self.arguments = arguments
        self.keywords = dict(keywords)
        self.reads: list[Future] = []  #: in the order of slots
        self.after: list[int] = []  #: tasks that must have ended before
        self.around: list[Around] = []  #: what the worker does around the body, outermost first
        self.files: list[FileArgument] = []
        self.made: list[str] = []  #: names of outputs beside those of the function
        self.key: str | None = None  #: the lineage, where the result may be reused
        self._places: dict[str, int] = {}

    def place(self, parameter: str) -> int | str | None:
        """Say where a parameter's argument is; None if its default is used."""
        if parameter in self.keywords:
            return parameter
        number = self.declared.positions.get(parameter)
        return number if number is not None and number < len(self.arguments) else None

    def get(self, place: int | str) -> Any:
        """Give an argument."""
        return self.keywords[place] if isinstance(place, str) else self.arguments[place]

    def put(self, place: int | str, value: Any) -> None:
        """Replace an argument."""
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
        if not session.versions.any and has_none(self.arguments) and has_none(self.keywords.values()):
            return  # by far the most
        latest = session.latest

        def slot(thing: Any) -> Any:
            found = latest(thing)
            if isinstance(found, StreamFuture):
                raise UsageError(
                    f"task {self.declared.name!r} is given {found!r}, of which nobody knows yet how many outputs there will be; "
                    "call it for each of them, or with list(stream), which waits until all are there"
                )
            return self.read(found) if isinstance(found, Future) else thing

        self.arguments = looked_into(self.arguments, slot)
        self.keywords = looked_into(self.keywords, slot)
