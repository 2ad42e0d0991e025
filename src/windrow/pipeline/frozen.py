"""What a function reads from outside itself: its globals and closure, and those of the functions it calls."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_PLAIN_NAMES = frozenset(kind.__name__ for kind in _PLAIN)


def frozen_names(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return a key that changes when a constant the function reads is bound to something else.

    Plain values count by value, files by their content, everything else by identity: an array changed in place is not noticed.
    """
    return tuple(_names(function, set()))


def contents_used(function: Any, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the things a step uses that know their content: files, luminosity masks."""
    found = {
        entry[0] or entry[1]: entry[2]
        for entry in _names(function, set())
        if len(entry) == 3 and entry[1] not in _PLAIN_NAMES
    }
    for name, value in {type(function).__name__: function, **parameters}.items():
        if isinstance(getattr(type(value), "fingerprint", None), property):
            found[name] = value.fingerprint
    return found


class _Same:
    """Equal to itself alone; holding the value keeps its address from being given to another."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _names(function: Any, seen: set[int]) -> Iterator[Any]:
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for cell in function.__closure__ or ():
        try:
            yield from _value("", cell.cell_contents, seen)
        except ValueError:
            continue  # not bound yet
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield from _value(name, function.__globals__[name], seen)


def _value(name: str, value: Any, seen: set[int]) -> Iterator[Any]:
    if isinstance(value, _PLAIN):
        # The type too: 20 and 20.0 are equal and compile to different code.
        yield name, type(value).__name__, value
    elif isinstance(getattr(type(value), "fingerprint", None), property):
        # Things that know their content, such as a file or a luminosity mask, count by it.
        yield name, type(value).__name__, value.fingerprint
    else:
        yield name, _Same(value)
        yield from _names(value, seen)


def _global_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names
