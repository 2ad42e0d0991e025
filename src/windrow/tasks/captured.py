"""What a function takes from outside: whether that is still what it was, asked before every call, so it must be quick.

A function travels to processes once. A global that was given another value since then, or a small container that was
changed, must travel again. Not seen: changes inside of large containers and of other objects.
"""

from __future__ import annotations

from copy import copy, deepcopy
from functools import partial
from inspect import getattr_static
from types import CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from windrow.engines.processes.values import ITEMS, is_small
from windrow.store.fingerprint_libraries import library_of_class, library_of_names, names_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Outside", "called_by", "members_of", "names_in", "used_by"]

_CONTAINERS = (dict, list, set)


class Outside:
    """What a function, and the user's functions, methods and classes that it calls, found under names outside of them."""

    __slots__ = ("_cells", "_contents", "_names")

    def __init__(self, function: Any) -> None:
        self._names: list[tuple[dict[str, Any], str, Any]] = []  #: where, under what name, what
        self._cells: list[tuple[CellType, Any]] = []  #: of closures
        self._contents: list[tuple[Any, Any]] = []  #: containers, and what was in them
        waiting, seen = [function], set()
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if type(one) is FunctionType and library_of_names(one.__globals__) is None:
                waiting += self._look(one)
            elif type(one) in _CONTAINERS and is_small(one):
                self._contents.append((one, deepcopy(one)))
            elif type(one) in _CONTAINERS and len(one) <= ITEMS:  # of functions, say
                self._contents.append((one, copy(one)))
                waiting += one.values() if type(one) is dict else one
            else:
                waiting += [*called_by(one), *(value for _, value in members_of(one))]

    def _look(self, function: FunctionType) -> Iterator[Any]:
        names = function.__globals__
        for name in dict.fromkeys(names_in(function.__code__)):
            if name in names:
                self._names.append((names, name, names[name]))
                yield names[name]
        for cell in function.__closure__ or ():
            content = _content(cell)
            self._cells.append((cell, content))
            yield content

    def is_the_same(self) -> bool:
        """Whether nothing was seen to change."""
        for names, name, value in self._names:
            if names.get(name) is not value:
                return False
        for cell, value in self._cells:
            if _content(cell) is not value:
                return False
        try:
            return all(one == before for one, before in self._contents)
        except Exception:  # noqa: BLE001 - arrays in a list: whether they are equal is not said
            return False


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return cell


def names_in(code: CodeType) -> Iterator[str]:
    """Give all names that code uses, that of the functions inside it included: globals, attributes, modules."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def used_by(function: FunctionType) -> Iterator[Any]:
    """Give what a function consists of: its code, defaults, closure variables, and the globals it names."""
    yield function.__code__
    yield function.__defaults__
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
    names = function.__globals__
    for name in names_in(function.__code__):
        if name in names:
            yield names[name]


def called_by(thing: Any) -> Iterator[Any]:
    """Give what something runs that is no function: a method, one with arguments bound, one with a decorator of a library."""
    if type(thing) is MethodType:
        yield from (thing.__func__, thing.__self__)
    elif type(thing) is partial:
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif type(thing) in (staticmethod, classmethod):
        yield thing.__func__
    elif type(thing) is property:
        yield thing.fget
    else:
        yield getattr_static(thing, "__wrapped__", None)


def members_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """Give what classes of the user's hold, for such a class or an object of one."""
    kind = thing if isinstance(thing, type) else type(thing)
    for one in kind.__mro__:
        if library_of_class(one) is None:
            yield from names_of(one).items()
