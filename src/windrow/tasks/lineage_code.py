"""The code of tasks in the lineage of their calls: looked at when a task is first called, and again when it may have changed."""

from __future__ import annotations

import sys
from functools import cache
from operator import is_
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.store.fingerprint_code import plain, read_code
from windrow.store.fingerprint_libraries import library_of_class, library_of_module, library_of_names
from windrow.store.fingerprint_names import InLibrary, absolute, content_of, imported
from windrow.store.fingerprint_unseen import CURRENT
from windrow.store.fingerprint_values import static_attribute
from windrow.store.fingerprints import fingerprint
from windrow.tasks.captured import used_by
from windrow.tasks.lineage_draws import draws_from
from windrow.units import format_bytes

if TYPE_CHECKING:
    from windrow.tasks.declare import Declared


#: Functions that are remembered; of those made for one call each there is no end.
MOST = 1000
#: Bytes of an array outside a function that are hashed with every call: that takes a few milliseconds.
_LONG = 16 * 1024 * 1024
#: Things in a container that is searched for arrays.
_SEARCHED = 1000

#: What a command line may name of what it is given.
_AMOUNTS = ("cores", "memory", "gpus")


class NotReusable(Exception):
    """A call has no lineage; the message says why, and goes on from the task's name."""


class Known(NamedTuple):
    """What was found of a function when it was looked at."""

    function: Any  #: kept, so that no other one gets its identity
    digest: str  #: empty if its code goes in circles
    opaque: str  #: what cannot be looked into
    held: list[tuple[Any, list[Any]]] | None  #: what it hung on, with what was in that
    draws: str = ""  #: how it takes random numbers that nobody has chosen


class Codes:
    """Digests of functions."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], Known] = {}
        self._sent: dict[int, tuple[Any, str]] = {}  #: by the function's identity, which is kept

    def look(self, declared: Declared, *, content: bool = False) -> Known:
        """Look at what the user wrote of a task; NotReusable if what it does is not known.

        ``content`` says whether arrays are taken by their content.
        """
        known = self.look_at(_body(declared), declared.name, content=content)
        if not known.digest:
            raise NotReusable("its code goes in circles")
        if declared.command is not None and known.opaque.endswith(CURRENT):
            known = known._replace(opaque="")  # where a command runs is in its key
        if known.opaque and not declared.version:
            raise NotReusable(
                f"its code depends on what cannot be looked into: {known.opaque}; say version='1', and another one "
                "whenever it means something else"
            )
        if known.draws and not declared.version and not any(one.writes for one in declared.files.values()):
            raise NotReusable(
                f"it {known.draws}, so that each call gives other numbers; make a generator from a seed that it is given, "
                "or say version='1' if one draw will do"
            )
        return known

    def look_at(self, function: Any, name: str, *, content: bool) -> Known:
        """Look at a function, if it may have changed since that was done last."""
        known = self._known.get((id(function), content))
        if known is None or not _is_the_same(known):
            if len(self._known) >= MOST:
                self._known.clear()
            known = _looked_at(function, name, content=content)
            self._known[id(function), content] = known
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
    # How many cores and bytes it gets makes no difference to what comes out, unless its line says so.
    with_what = repr((how.shell, how.env)) if how is not None else ""
    if how is not None and (named := amounts_named(known.function)):
        with_what += repr([(one, getattr(how, one)) for one in named])
    if known.opaque:
        return f"version {_home(declared.function)} {said}\0{with_what}".encode()
    return f"{said}\0{known.digest}\0{with_what}".encode()


def amounts_named(function: Any) -> list[str]:
    """Say which amounts the command line of a function may name: those in its texts and in those that it takes from outside.

    All of them if it uses something that may have any texts: an object, a module of the user's.
    """
    code = getattr(function, "__code__", None)
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()
    sought = [one for one in _AMOUNTS if one not in own]  # a parameter of that name is meant
    found: set[str] = set()
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting and len(found) < len(sought):
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind = type(one)
        if kind is str:
            found.update(name for name in sought if f"{{{name}}}" in one)
        elif kind is CodeType:
            waiting += one.co_consts
        elif kind in _CHANGING:
            waiting += _inside(one)
        elif kind is tuple or kind is frozenset:
            waiting += one
        elif plain(one) is None and not _belongs_to_a_library(one):
            return sought
    return [one for one in sought if one in found]


def _home(function: Any) -> str:
    """Name the file that a function is from: one of the same name in another file is another one."""
    module = str(getattr(function, "__module__", ""))
    if module != "__main__":
        return module
    return Path(getattr(sys.modules.get(module), "__file__", None) or "").stem


def _is_the_same(known: Known) -> bool:
    return known.held is not None and all(_are(_inside(one), held) for one, held in known.held)


def _are(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _looked_at(function: Any, name: str, *, content: bool) -> Known:
    array = "" if content else _large_array(function)
    if array:
        return Known(function, "not looked at", array, None)
    held = held_by(function)
    try:
        found = fingerprint(function, name=f"task {name}")
    except RecursionError:
        return Known(function, "", "", held)
    # One that a command may have comes last.
    opaque = min(found.opaque, key=lambda one: one.endswith(CURRENT), default="")
    return Known(function, found.digest, opaque, held, draws_from(function))


def _body(declared: Declared) -> Any:
    """Give what the user wrote."""
    if declared.command is None:
        return declared.function
    return getattr(declared.function, "function", declared.function)


def held_by(function: Any) -> list[tuple[Any, list[Any]]] | None:
    """List what may change of all that a function's meaning hangs on, each with what is in it now.

    None if something may change in other ways: an object, a module of the user's. Then only looking again tells.
    """
    held: list[tuple[Any, list[Any]]] = []
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is str or kind is float or kind is int or id(one) in seen:
            continue
        seen.add(id(one))
        if kind in _CHANGING:
            if kind is FunctionType and _imports_what_may_change(one):
                return None
            inside = _inside(one)
            held.append((one, inside))
            waiting += inside
        elif kind is tuple or kind is frozenset:
            waiting += one
        elif plain(one) is None and kind is not CodeType and not _belongs_to_a_library(one):
            return None
    return held


_CHANGING = (FunctionType, list, dict, set)


def _inside(one: Any) -> list[Any]:
    """List what something that may change is made of now; the same things mean that it has not changed."""
    if type(one) is dict:
        return [*one, *one.values()]
    if type(one) is not FunctionType:
        return list(one)
    if library_of_names(one.__globals__) is None:
        return [*used_by(one), *one.__dict__, *one.__dict__.values()]
    # Of a library: what its decorator or factory was given.
    return [*map(content_of, one.__closure__ or ()), *one.__dict__.values()]


def _large_array(function: Any) -> str:
    """Name a large array that a function, or one it calls, finds outside: hashing that with every call would take too long."""
    waiting: list[Any] = [function]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if kind is FunctionType or (kind in (list, dict, tuple) and len(one) <= _SEARCHED):
            waiting += one if kind is tuple else _inside(one)
        elif _bytes_of(one) > _LONG:
            return f"an array of {format_bytes(_bytes_of(one))} among its globals (or say reuse='content')"
    return ""


def _bytes_of(thing: Any) -> int:
    """Say how large an array of a library is; 0 of anything else."""
    kind = type(thing)
    known = static_attribute(kind, "nbytes") is not None and library_of_class(kind) is not None
    return int(thing.nbytes) if known else 0


def _imports_what_may_change(function: FunctionType) -> bool:
    """Whether a function imports a module of the user's when it runs."""
    if library_of_names(function.__globals__) is not None:
        return False
    reads = read_code(function.__code__).reads
    try:
        names = [absolute(one.name, function.__globals__) for one in reads if one.kind == "import"]
    except (ImportError, ValueError):  # relative to nothing
        return True
    return not all(map(_is_of_a_library, names))


@cache
def _is_of_a_library(module: str) -> bool:
    return type(imported(module)) is InLibrary


def _belongs_to_a_library(one: Any) -> bool:
    if isinstance(one, ModuleType):
        return library_of_module(one) is not None
    if type(one) is BuiltinFunctionType:
        return isinstance(one.__self__, ModuleType) and _belongs_to_a_library(one.__self__)
    return isinstance(one, type) and library_of_class(one) is not None
