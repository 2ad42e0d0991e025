"""Calls of tasks: futures among the arguments are taken out and put back as values where the task runs.

Lists, tuples, dictionaries, sets and deques are looked into; whatever else hides a future is refused where it is pickled.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["CONTAINERS", "Slot", "filled", "looked_into"]


class Slot(NamedTuple):
    """Stands for the value of a future among the arguments of a call."""

    number: int  #: among what the task reads


#: What is looked into.
CONTAINERS = (list, tuple, dict, set, frozenset, deque)


def looked_into(thing: Any, replace: Callable[[Any], Any], known: dict[int, Any] | None = None) -> Any:
    """Replace what ``replace`` replaces, in containers too; what has nothing of it is returned itself.

    A container is looked into once, wherever it is found; one that is inside itself stays as it is there.
    """
    new = replace(thing)
    if new is not thing or not isinstance(thing, CONTAINERS):
        return new
    known = {} if known is None else known
    if id(thing) not in known:
        known[id(thing)] = thing
        known[id(thing)] = _inside(thing, replace, known)
    return known[id(thing)]


def _inside(thing: Any, replace: Callable[[Any], Any], known: dict[int, Any]) -> Any:
    kind = type(thing)
    if kind is list or kind is set or kind is frozenset:
        items = [looked_into(one, replace, known) for one in thing]
        return kind(items) if _differ(items, thing) else thing
    if isinstance(thing, tuple):
        items = [looked_into(one, replace, known) for one in thing]
        if not _differ(items, thing):
            return thing
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if isinstance(thing, dict):
        values = [looked_into(one, replace, known) for one in thing.values()]
        if not _differ(values, thing.values()):
            return thing
        if kind is dict:
            return dict(zip(thing, values, strict=True))
        own = copy(thing)  # of a kind of its own, which has more than what is in it
        for key, value in zip(thing, values, strict=True):
            own[key] = value
        return own
    if isinstance(thing, (list, deque)):
        items = [looked_into(one, replace, known) for one in thing]
        if _differ(items, thing):
            thing = copy(thing)
            for number, value in enumerate(items):
                thing[number] = value
    return thing


def _differ(new: Sequence[Any], old: Any) -> bool:
    return any(one is not other for one, other in zip(new, old, strict=True))


def filled(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any], values: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put values where slots are."""
    if not values:
        return arguments, dict(keywords)

    def value(thing: Any) -> Any:
        return values[thing.number] if type(thing) is Slot else thing

    return looked_into(arguments, value), looked_into(dict(keywords), value)
