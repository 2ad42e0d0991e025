"""Things that tasks change: which future stands for what has become of them.

A task gets the latest version of what it is given, by identity. Parts of a thing have an identity of their own, and what a
body did to the whole, or to a part of it, is not seen there: such calls are refused, as they would get what the sequential
program has long changed.
"""

from __future__ import annotations

import enum
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.tasks.call import CONTAINERS
from windrow.tasks.future import Future, StreamFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Nobody can change these, and equal ones may be one object, which others use for something else.
UNCHANGING = (
    int, float, complex, str, bytes, bool, frozenset, range, type(None), type, enum.Enum,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip

_NO_PARTS = (*UNCHANGING, Future, StreamFuture)
#: References to the array behind a view while we look at it, if the view alone has one: that, our variable and the question.
_OWN_REFERENCES = 3


class Versions:
    """By the identity of a thing: the future of its latest version.

    A program that has lost a thing cannot ask for it: it is forgotten then, and the values that tasks made of it may go. Lists,
    dictionaries and other things without weak references are kept as long as the session, since another one could get
    their identity otherwise.
    """

    def __init__(self) -> None:
        #: By the identity of a thing: what keeps that from being another thing's, and the future.
        self._latest: dict[int, tuple[Callable[[], Any], Future]] = {}
        #: Of what is inside of things that tasks change: what keeps its identity, and the task that changes the whole.
        self._inside: dict[int, tuple[Callable[[], Any], str]] = {}
        self.any = False  #: whether there were any so far; asked for with every call

    def latest(self, thing: Any) -> Any:
        found = self._latest.get(id(thing))
        return thing if found is None else found[1]

    def follow(self, thing: Any, future: Future) -> None:
        """A task makes a new version of a thing; no other task reads the one before, so it may go.

        What cannot be changed has none: the task may be given ``None`` for something that it need not have.
        """
        if isinstance(thing, UNCHANGING) or (type(thing) is tuple and not thing):
            return
        key = id(thing)
        found = self._latest.get(key)
        holds = _hold(thing, self._latest) if found is None else found[0]
        self._latest[key] = (holds, future)
        self.any = True

    def forget(self, thing: Any) -> None:
        self._latest.pop(id(thing), None)

    def note_parts(self, things: Iterable[Any], task: str) -> None:
        """A task changes some things: note what is inside of them, and not changed in its own right along with them."""
        whole = {id(one) for one in things}
        for thing in things:
            for part in _walk(thing, lambda _: False):
                if id(part) not in whole and id(part) not in self._inside:
                    self._inside[id(part)] = (_hold(part, self._inside), task)

    def refuse(self, who: str, given: Any) -> None:
        """Raise if something of what a task is given, containers being looked into, is a part of what tasks change."""
        if not self.any:  # by far the most
            return
        for thing in _walk(given, lambda one: self.latest(one) is not one):
            found = self._inside.get(id(thing))
            if found is not None:
                raise UsageError(
                    f"{who} is given a {type(thing).__name__} that is inside of something which task {found[1]!r} changes: what "
                    "has become of it is known only with the whole. Give the whole, or a part of what "
                    "session.gather(whole) returns; or have tasks change the parts, and none the whole"
                )
            array = _behind(thing)
            if array is not None and self.latest(array) is not array:
                raise UsageError(
                    f"{who} is given a view of an array which a task changes: what has become of it is known only with the "
                    "whole. Give the whole array, or a view of what session.gather(array) returns"
                )

    def refuse_views(self, task: str, things: Iterable[Any]) -> None:
        """Raise if a task is to change a view of an array that the program has too: it would not see it."""
        for thing in things:
            array = _behind(thing)
            if array is not None and sys.getrefcount(array) > _OWN_REFERENCES:
                raise UsageError(
                    f"task {task!r} changes a view of an array that is held elsewhere, where the change would not be seen: have it "
                    "change the whole array, or return its part; or give it a copy (x.copy())"
                )


def _hold(thing: Any, table: dict[int, Any]) -> Callable[[], Any]:
    """See to it that no other thing gets the identity of one that is in a table: it is kept, or taken out when it is lost."""
    key = id(thing)
    try:
        return weakref.ref(thing, lambda _: table.pop(key, None))
    except TypeError:
        return lambda: thing


def _behind(thing: Any) -> Any:
    """Give the array of which a thing is a view, if it is one."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(thing, numpy.ndarray):
        return None
    return thing.base if isinstance(thing.base, numpy.ndarray) else None


def _walk(whole: Any, passes: Callable[[Any], bool]) -> Iterator[Any]:
    """List what can be changed of a thing and what is inside of it, each once; not what is inside of those passed by."""
    waiting, known = [whole], {id(whole)}
    while waiting:
        thing = waiting.pop()
        if not isinstance(thing, tuple):
            yield thing
        if not isinstance(thing, CONTAINERS) or passes(thing):
            continue
        for one in thing.values() if isinstance(thing, dict) else thing:
            if id(one) not in known and not isinstance(one, _NO_PARTS):
                known.add(id(one))
                waiting.append(one)
