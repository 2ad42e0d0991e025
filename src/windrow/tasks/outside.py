"""What a function takes from outside: whether that is still what it was, asked before every call, so it must be quick.

A function travels to processes once. A global that was given another value since then, or a small container that was
changed, must travel again. Not seen: changes inside of large containers and of other objects.
"""

from __future__ import annotations

from copy import deepcopy
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from windrow.engines.small import is_small
from windrow.store.fingerprint_libraries import library_of_names

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Outside"]

_CONTAINERS = (dict, list, set)


class Outside:
    """What a function, and the user's functions that it calls, found under names outside of them."""

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

    def _look(self, function: FunctionType) -> Iterator[Any]:
        names = function.__globals__
        for name in dict.fromkeys(_names_in(function.__code__)):
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


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
