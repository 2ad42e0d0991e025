"""The code of tasks in the lineage of their calls: looked at when a task is first called, and again when it may have changed."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.store.fingerprint_code import plain, read_code
from windrow.store.fingerprint_libraries import (
    library_of_class,
    library_of_module,
    library_of_names,
)
from windrow.store.fingerprints import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.tasks.declare import Declared

__all__ = ["Codes", "Known", "NotReusable", "digest_of"]

#: Functions that are remembered; of those made for one call each there is no end.
MOST = 1000


class NotReusable(Exception):
    """A call has no lineage; the message says why, and goes on from the task's name."""


class Known(NamedTuple):
    """What was found of a function when it was looked at."""

    function: Any  #: kept, so that no other one gets its identity
    digest: str  #: empty if its code goes in circles
    opaque: str  #: what cannot be looked into
    held: list[Any] | None  #: what it hung on
    draws: str = ""  #: the module from whose global state it takes random numbers


class Codes:
    """Digests of functions."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._sent: dict[int, tuple[Any, str]] = {}  #: by the function's identity, which is kept

    def look(self, declared: Declared) -> Known:
        """Look at what the user wrote of a task; NotReusable if what it does is not known."""
        known = self.look_at(_body(declared), declared.name)
        if not known.digest:
            raise NotReusable("its code goes in circles")
        if known.opaque and not declared.version:
            raise NotReusable(
                f"its code depends on what cannot be looked into: {known.opaque}; say version='1', and another one "
                "whenever it means something else"
            )
        if (
            known.draws
            and not declared.version
            and not any(one.writes for one in declared.files.values())
        ):
            raise NotReusable(
                f"it draws from the global state of {known.draws}, so that each call gives other numbers; make a generator "
                "from a seed that it is given, or say version='1' if one draw will do"
            )
        return known

    def look_at(self, function: Any, name: str) -> Known:
        """Look at a function, if it may have changed since that was done last."""
        known = self._known.get(id(function))
        if known is None or not _is_the_same(known):
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[id(function)] = _looked_at(function, name)
        return known

    def must_be_sent(self, declared: Declared, known: Known) -> bool:
        """Whether a function is not the one any more that was last sent to processes; from now on it is."""
        before = self._sent.get(id(declared.function))
        if before is not None and before[1] == known.digest:
            return False
        if len(self._sent) >= MOST:
            self._sent.clear()
        self._sent[id(declared.function)] = (declared.function, known.digest)
        return True


def digest_of(declared: Declared, known: Known) -> bytes:
    """Say in bytes what a task does."""
    said = f"{declared.name} {declared.version}" if declared.version else ""
    how = declared.command
    # How many cores and bytes it gets makes no difference to what comes out.
    with_what = repr((how.shell, how.env)) if how is not None else ""
    if known.opaque:
        return f"version {said}\0{with_what}".encode()
    return f"{said}\0{known.digest}\0{with_what}".encode()


def _is_the_same(known: Known) -> bool:
    if known.held is None:
        return False
    now = held_by(known.function)
    return now is not None and len(now) == len(known.held) and all(map(_is, now, known.held))


def _is(one: Any, other: Any) -> bool:
    return one is other


def _looked_at(function: Any, name: str) -> Known:
    held = held_by(function)
    try:
        found = fingerprint(function, name=f"task {name}")
    except RecursionError:
        return Known(function, "", "", held)
    opaque = found.opaque[0] if found.opaque else ""
    return Known(function, found.digest, opaque, held, _draws_from(function))


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


def _draws_from(function: Any) -> str:
    """Name the module from whose global state a function, or one it calls, takes random numbers without a seed of its own."""
    drawn: set[str] = set()
    seeded: set[str] = set()
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if type(one) is not FunctionType or id(one) in seen or library_of_names(one.__globals__):
            continue
        seen.add(id(one))
        waiting += _used_by(one)
        for value in _followed(one):
            module = _random_state(value)
            if module:
                (seeded if value.__name__ in _SEEDING else drawn).add(module)
    return next(iter(sorted(drawn - seeded)), "")


#: Functions that say where random numbers begin.
_SEEDING = ("seed", "set_state", "setstate")


def _random_state(value: Any) -> str:
    """Name the module whose state, which everybody shares, a function uses; nothing if it does not."""
    owner = getattr(value, "__self__", None)
    if owner is not None and owner is getattr(sys.modules.get("random"), "_inst", None):
        return "random"
    numbers = sys.modules.get("numpy.random.mtrand")
    if numbers is None or not callable(value):
        return ""
    # Some are functions of the module, and most are methods of its state.
    functions = (numbers.seed, numbers.sample, numbers.ranf)
    if owner is numbers._rand or any(value is one for one in functions):
        return "numpy.random"
    return ""


def _followed(function: FunctionType) -> Iterator[Any]:
    """Give what a function takes from modules, and its globals themselves."""
    for origin in read_code(function.__code__).reads:
        value = function.__globals__.get(origin.name) if origin.kind == "global" else None
        if origin.kind == "import":
            value = sys.modules.get(origin.name)
        for name in origin.attributes:
            if not isinstance(value, ModuleType):
                break
            value = vars(value).get(name)
        yield value


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
