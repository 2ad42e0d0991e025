"""What the functions of tasks do: looked at when a task is first called, and again when that may have changed."""

from __future__ import annotations

import sys
from operator import is_
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.store.fingerprint.api import summarise
from windrow.store.fingerprint.describe import CURRENT
from windrow.store.fingerprint.walk import Walk, contents

if TYPE_CHECKING:
    from windrow.tasks.declare import Declared


#: Functions that are remembered; of those made for one call each there is no end.
MOST = 1000
#: Bytes of an array outside a function that are hashed with every call: that takes a few milliseconds.
_LONG = 16 * 1024 * 1024

#: What a command line may name of what it is given.
_AMOUNTS = ("cores", "memory", "gpus")


class NotReusable(Exception):
    """A call has no lineage; the message says why, and goes on from the task's name."""


class Known(NamedTuple):
    """What was found of a function when it was looked at."""

    function: Any  #: kept, so that no other one gets its identity
    digest: str
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
    said = f"{declared.name} {declared.version}" if declared.version else ""
    how = declared.command
    # How many cores and bytes it gets makes no difference to what comes out, unless its line says so.
    with_what = repr((how.shell, how.env)) if how is not None else ""
    if how is not None and (named := amounts_named(known)):
        with_what += repr([(one, getattr(how, one)) for one in named])
    if known.opaque:
        return f"version {_home(declared.function)} {said}\0{with_what}".encode()
    return f"{said}\0{known.digest}\0{with_what}".encode()


def amounts_named(known: Known) -> list[str]:
    """Say which amounts the command line of a function may name: those in its texts and in those that it takes from outside.

    All of them if it uses something that may have any texts: an object, a module of the user's.
    """
    code = getattr(known.function, "__code__", None)
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()
    sought = [one for one in _AMOUNTS if one not in own]  # a parameter of that name is meant
    if known.held is None:
        return sought
    found: set[str] = set()
    waiting = [one for _, inside in known.held for one in inside]
    while waiting:
        one = waiting.pop()
        if type(one) is str:
            found.update(name for name in sought if f"{{{name}}}" in one)
        elif type(one) is CodeType:
            waiting += one.co_consts
        elif type(one) in (tuple, frozenset):
            waiting += one
    return [one for one in sought if one in found]


def _home(function: Any) -> str:
    """Name the file that a function is from: one of the same name in another file is another one."""
    module = str(getattr(function, "__module__", ""))
    if module != "__main__":
        return module
    return Path(getattr(sys.modules.get(module), "__file__", None) or "").stem


def _is_the_same(known: Known) -> bool:
    return known.held is not None and all(
        len(now := contents(one)) == len(before) and all(map(is_, now, before)) for one, before in known.held
    )


def _looked_at(function: Any, name: str, *, content: bool) -> Known:
    walk = Walk(function, f"task {name}", most=None if content else _LONG)
    found = summarise(walk)
    # One that a command may have comes last.
    opaque = min(found.opaque, key=lambda one: one.endswith(CURRENT), default="")
    held = walk.held if walk.is_settled else None
    return Known(function, found.digest, opaque, held, next(iter(found.draws), ""))


def _body(declared: Declared) -> Any:
    if declared.command is None:
        return declared.function
    return getattr(declared.function, "function", declared.function)
