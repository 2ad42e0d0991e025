"""Parts of things that tasks change: what has become of one is known with the whole alone.

A task gets the latest version of what it is given, by identity. Parts have an identity of their own, and what a body did to
the whole, or to a part of it, is not seen there: such calls are refused, as they would get what the sequential program
has long changed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.tasks.calls import CONTAINERS
from windrow.tasks.future import Future, StreamFuture
from windrow.tasks.versions import UNCHANGING, hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windrow.tasks.versions import Versions

__all__ = ["Parts"]

_NO_PARTS = (*UNCHANGING, Future, StreamFuture)
#: References to the array behind a view while we look at it, if the view alone has one: that, our variable and the question.
_OWN_REFERENCES = 3


class Parts:
    """What is inside of things that tasks change, by identity."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        #: What keeps its identity from being another thing's, and the task that changes the whole.
        self._inside: dict[int, tuple[Callable[[], Any], str]] = {}

    def of(self, things: Iterable[Any], task: str) -> None:
        """A task changes some things: note what is inside of them, and not changed in its own right along with them."""
        whole = {id(one) for one in things}
        for thing in things:
            for part in _walk(thing, lambda _: False):
                if id(part) not in whole and id(part) not in self._inside:
                    self._inside[id(part)] = (hold(part, self._inside), task)

    def refuse(self, who: str, given: Any) -> None:
        """Raise if something of what is given to somebody, containers being looked into, is a part of what tasks change."""
        if not self._versions.any:  # by far the most
            return
        for thing in _walk(given, lambda one: self._versions.latest(one) is not one):
            self._check(who, thing)

    def _check(self, who: str, thing: Any) -> None:
        found = self._inside.get(id(thing))
        if found is not None:
            raise UsageError(
                f"{who} is given a {type(thing).__name__} that is inside of something which task {found[1]!r} changes: what has "
                "become of it is known only with the whole. Give the whole, or a part of what session.gather(whole) "
                "returns; or have tasks change the parts, and none the whole"
            )
        array = _behind(thing)
        if array is not None and self._versions.latest(array) is not array:
            raise UsageError(
                f"{who} is given a view of an array which a task changes: what has become of it is known only with the whole. "
                "Give the whole array, or a view of what session.gather(array) returns"
            )

    def refuse_views(self, task: str, things: Iterable[Any]) -> None:
        """Raise if a task is to change a view of an array that others have too: they would not see it."""
        for thing in things:
            array = _behind(thing)
            if array is not None and sys.getrefcount(array) > _OWN_REFERENCES:
                raise UsageError(
                    f"task {task!r} changes a view of an array that is held elsewhere, where the change would not be seen: have it "
                    "change the whole array, or return its part; or give it a copy (x.copy())"
                )


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
