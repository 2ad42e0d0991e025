"""The code of tasks in the lineage of their calls: looked at when a task is first called, and again when it may have changed."""

from __future__ import annotations

from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.store.fingerprint_code import plain
from windrow.store.fingerprint_libraries import (
    library_of_class,
    library_of_module,
    library_of_names,
)
from windrow.store.fingerprints import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.tasks.declare import Declared

__all__ = ["Codes", "NotReusable"]


class NotReusable(Exception):
    """A call has no lineage; the message says why, and goes on from the task's name."""


class _Known(NamedTuple):
    function: Any  #: kept, so that no other one gets its identity
    digest: bytes | NotReusable
    held: list[Any] | None  #: what it hung on


class Codes:
    """Digests of functions."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, str], _Known] = {}
        self._sent: set[int] = set()

    def digest(self, declared: Declared) -> bytes:
        """Give the digest of what a task does; NotReusable if that is not known."""
        function = declared.function
        place = (id(function), declared.name, declared.version)
        known = self._known.get(place)
        if known is None or not (id(function) in self._sent or _is_the_same(known)):
            known = self._known[place] = _Known(function, _looked_at(declared), held_by(function))
        if isinstance(known.digest, NotReusable):
            raise known.digest
        return known.digest

    def sent(self, declared: Declared) -> None:
        """A function travels to processes, once: from now on its globals are there as they are now."""
        self._sent.add(id(declared.function))


def _is_the_same(known: _Known) -> bool:
    if known.held is None:
        return False
    now = held_by(known.function)
    return now is not None and len(now) == len(known.held) and all(map(_is, now, known.held))


def _is(one: Any, other: Any) -> bool:
    return one is other


def _looked_at(declared: Declared) -> bytes | NotReusable:
    said = f"{declared.name} {declared.version}" if declared.version else ""
    try:
        found = [fingerprint(_body(declared), name=f"task {declared.name}")]
        if declared.command is not None:
            # How many cores and bytes it gets makes no difference to what comes out.
            found.append(fingerprint((declared.command.shell, declared.command.env)))
    except RecursionError:
        return NotReusable("its code goes in circles")
    opaque = [words for one in found for words in one.opaque]
    if opaque and not said:
        return NotReusable(
            f"its code depends on what cannot be looked into: {opaque[0]}; say version='1', and another one whenever it "
            "means something else"
        )
    if opaque:
        return f"version {said}".encode()
    return "\0".join([said, *(one.digest for one in found)]).encode()


def _body(declared: Declared) -> Any:
    """Give what the user wrote."""
    if declared.command is None:
        return declared.function
    return getattr(declared.function, "function", declared.function)


def held_by(function: Any) -> list[Any] | None:
    """List all objects that a function's meaning hangs on, if they cannot change as long as they are the same objects.

    None if some can: a list, an object, a module of the user's. Then only looking again tells.
    """
    held: list[Any] = []
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        held.append(one)
        if id(one) in seen or plain(one) is not None:
            continue
        seen.add(id(one))
        if type(one) is FunctionType:
            if library_of_names(one.__globals__) is None:
                if one.__dict__:
                    return None
                waiting += _used_by(one)
        elif type(one) is tuple:
            waiting += one
        elif type(one) is not CodeType and not _belongs_to_a_library(one):
            return None
    return held


def _belongs_to_a_library(one: Any) -> bool:
    if isinstance(one, ModuleType):
        return library_of_module(one) is not None
    return isinstance(one, type) and library_of_class(one) is not None


def _used_by(function: FunctionType) -> Iterator[Any]:
    yield function.__code__
    yield function.__defaults__
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
    names = function.__globals__
    for name in _names(function.__code__):
        if name in names:
            yield names[name]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
