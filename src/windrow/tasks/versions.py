"""Things that tasks change: which future stands for what has become of them."""

from __future__ import annotations

import enum
import types
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.tasks.future import Future

__all__ = ["UNCHANGING", "Versions", "hold"]

#: Nobody can change these, and equal ones may be one object, which others use for something else.
UNCHANGING = (
    int, float, complex, str, bytes, bool, frozenset, range, type(None), type, enum.Enum,
    types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
)  # fmt: skip

#: By the identity of a thing: what keeps that from being another thing's, and the future.
_Latest = dict[int, "tuple[Callable[[], Any], Future]"]


class Versions:
    """By the identity of a thing: the future of its latest version.

    Whoever has lost a thing cannot ask for it: it is forgotten then, and the values that tasks made of it may go. Lists,
    dictionaries and others that nobody can look at weakly are kept as long as the session, since another one could get
    their identity otherwise.
    """

    def __init__(self) -> None:
        self._latest: _Latest = {}
        self.any = False  #: whether there were any so far; asked for with every call

    def latest(self, thing: Any) -> Any:
        """Give the latest version of a thing; the thing itself if nobody changes it."""
        found = self._latest.get(id(thing))
        return thing if found is None else found[1]

    def follow(self, thing: Any, future: Future) -> None:
        """A task makes a new version of a thing; nobody else knows the one before, so it may go.

        What nobody can change has none: the task may be given ``None`` for something that it need not have.
        """
        if isinstance(thing, UNCHANGING) or (type(thing) is tuple and not thing):
            return
        key = id(thing)
        found = self._latest.get(key)
        holds = hold(thing, self._latest) if found is None else found[0]
        self._latest[key] = (holds, future)
        self.any = True

    def forget(self, thing: Any) -> None:
        """Nobody will use a thing any more."""
        self._latest.pop(id(thing), None)


def hold(thing: Any, table: dict[int, Any]) -> Callable[[], Any]:
    """See to it that no other thing gets the identity of one that is in a table: it is kept, or taken out when it is lost."""
    try:
        return weakref.ref(thing, partial(_lost, table, id(thing)))
    except TypeError:
        return lambda: thing


def _lost(table: dict[int, Any], key: int, _: Any) -> None:
    table.pop(key, None)
