"""Where code takes something from outside, and what it does with that: calls it, with what, or hands it on.

Found by reading instructions. A thing that is loaded lies on the stack until an instruction takes it, so counting what is
above it finds the call that it is for, whatever is computed in between.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections import Counter
from inspect import getattr_static
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.store.fingerprint_names import absolute, content_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


_FROM_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME"}
_FROM_CLOSURE = {"LOAD_DEREF", "LOAD_CLASSDEREF"}
_FROM_LOCALS = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_CALLS = {"CALL": 1, "CALL_KW": 2}  #: what they take besides the arguments, less what they give
_GOES_ON_ELSEWHERE = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_NO_ARGUMENT = {"PRECALL", "KW_NAMES", "PUSH_NULL", "EXTENDED_ARG", "NOP"}


class Site(NamedTuple):
    """A place in code where something from outside is taken."""

    value: Any
    place: int  #: in the outermost code
    given: bool  #: it is called there, and is given what is not None
    tested: bool  #: it is no more than asked whether something is of that class
    call: int | None  #: where that call is; None if it is in a function inside


def sites_of(function: FunctionType, wanted: Callable[[Any], bool]) -> list[Site]:
    """List where a function, and those inside it, takes certain things by name, along attributes of modules."""
    code = function.__code__
    free = dict(zip(code.co_freevars, map(content_of, function.__closure__ or ()), strict=True))
    names = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    given |= function.__kwdefaults__ or {}
    nothing = {name for name, value in given.items() if value is None}
    return list(_Code(code, function.__globals__, free, nothing).sites(wanted))


def is_always_run(code: CodeType, place: int) -> bool:
    """Whether nothing leads past an instruction to what comes after it."""
    for one in dis.get_instructions(code):
        if one.offset < place and one.opcode in _JUMPS and int(one.argval) > place:
            return False
    tries: Any = dis.Bytecode(code)
    return not any(one.start <= place < one.target for one in tries.exception_entries)


class _Code:
    """One piece of code, with what its names mean."""

    def __init__(self, code: CodeType, names: dict[str, Any], free: Mapping[str, Any], nothing: set[str]) -> None:
        self._code = code
        self._names = names
        self._steps = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
        self._at = {one.offset: number for number, one in enumerate(self._steps)}
        self._stored = Counter(str(one.argval) for one in self._steps if one.opname.startswith("STORE_"))  # fmt: skip
        self._lost: list[Any] = []  #: imported, and then nobody knows where it is
        self._locals = dict(self._imports())
        self._free = {**free, **self._locals}
        self._nothing = nothing | set(self._emptied())  #: variables that may be None

    def sites(self, wanted: Callable[[Any], bool], inside: int | None = None) -> Iterator[Site]:
        """Give all of them; those of a function inside are where that is made."""
        lost = filter(wanted, self._lost)
        yield from (Site(value, inside or 0, given=False, tested=False, call=None) for value in lost)
        tests = {call for value, last in self._chains() if value is isinstance for call in self._callers(last)}  # fmt: skip
        for value, last in self._chains():
            if not wanted(value):
                continue
            ends = self._ends(last)
            calls = [call for call, is_called in ends if is_called]
            given = len(calls) == len(ends) > 0 and all(self._is_given(last, one) for one in calls)
            tested = len(ends) > 0 and all(not called and at in tests for at, called in ends)
            at = self._steps[last].offset if inside is None else inside
            call = self._steps[calls[0]].offset if given and inside is None else None
            yield Site(value, at, given, tested, call)
        for one in self._steps:
            constant = one.argval
            if isinstance(constant, CodeType):
                outside = set(constant.co_freevars)
                free = {name: self._free[name] for name in outside & set(self._free)}
                inner = _Code(constant, self._names, free, self._nothing & outside)
                yield from inner.sites(wanted, one.offset if inside is None else inside)

    def _emptied(self) -> Iterator[str]:
        """Name the variables that are None somewhere."""
        for before, one in zip(self._steps, self._steps[1:], strict=False):
            if one.opname.startswith("STORE_") and _is_none(before):
                yield str(one.argval)

    # -- what is taken

    def _imports(self) -> Iterator[tuple[str, Any]]:
        """Give the variables that are imports and nothing else."""
        module: Any = None
        for number, one in enumerate(self._steps):
            if one.opname == "IMPORT_NAME":
                module = self._module(number)
                value = module
            elif one.opname == "IMPORT_FROM":
                value = _member(module, str(one.argval))
            else:
                continue
            after = number + 1
            if self._steps[after].opname == "SWAP":  # import a.b as c
                module, after = value, after + 2
            to = self._steps[after]
            if to.opname in ("STORE_FAST", "STORE_DEREF") and self._stored[to.argval] == 1:
                yield str(to.argval), value
            elif to.opname not in ("IMPORT_FROM", "POP_TOP"):
                self._lost.append(value)

    def _module(self, number: int) -> Any:
        level, taken = (one.argval for one in self._steps[number - 2 : number])
        name = str(self._steps[number].argval)
        try:
            name = absolute("." * int(level or 0) + name, self._names)
        except (ImportError, ValueError, TypeError):  # relative to nothing
            return None
        return sys.modules.get(name if taken else name.partition(".")[0])

    def _chains(self) -> Iterator[tuple[Any, int]]:
        """Give what is loaded from outside, with where that is done."""
        for first, one in enumerate(self._steps):
            name = str(one.argval)
            if one.opname in _FROM_GLOBALS:
                value = self._names.get(name, vars(builtins).get(name))
            elif one.opname in _FROM_CLOSURE:
                value = self._free.get(name)
            elif one.opname in _FROM_LOCALS:
                value = self._locals.get(name)
            else:
                continue
            last = first
            while isinstance(value, ModuleType) and self._steps[last + 1].opname in _ATTRIBUTE:
                last += 1
                value = _member(value, str(self._steps[last].argval))
            yield value, last

    # -- what becomes of it

    def _callers(self, last: int) -> list[int]:
        return [call for call, is_called in self._ends(last) if is_called]

    def _ends(self, last: int) -> list[tuple[int, bool]]:
        """List the instructions that take what lies on the stack after one, and whether they call it."""
        return list(dict.fromkeys((at, called) for at, called, _ in self._way(last) if at >= 0))

    def _way(self, last: int) -> Iterator[tuple[int, bool, tuple[int, int]]]:
        """Go all ways from there on: what takes it, or, with -1, each step and how much lies there after that."""
        start = last + 1
        if sys.version_info >= (3, 13) and self._steps[start].opname == "PUSH_NULL":
            start += 1
        waiting, seen = [(start, 1)], set()
        while waiting:
            number, height = waiting.pop()
            if number in seen or number >= len(self._steps):
                continue
            seen.add(number)
            one = self._steps[number]
            if one.opname in _ATTRIBUTE and height == 1:
                yield number, False, (number, 0)
                continue
            after = height + _effect(one, jump=False)
            if after < 1 or (one.opname in ("SWAP", "COPY") and (one.arg or 0) >= height):
                yield number, one.opname in _CALLS and after == 0, (number, after)
                continue
            yield -1, False, (number, after)
            if one.opcode in _JUMPS:
                there = height + _effect(one, jump=True)
                waiting.append((self._at[int(one.argval)], there))
            if not one.opname.startswith(_GOES_ON_ELSEWHERE) and one.opname not in _ENDS:
                waiting.append((number + 1, after))

    def _is_given(self, last: int, call: int) -> bool:
        """Whether a call is given something, of which nothing says that it may be None."""
        if not self._steps[call].arg:
            return False
        passed = [at for found, _, at in self._way(last) if found < 0 and at[0] < call]
        if any(height == 2 and _is_none(self._steps[number]) for number, height in passed):
            return False
        steps = [self._steps[n] for n, _ in sorted(passed)]
        steps = [one for one in steps if one.opname not in _NO_ARGUMENT]
        if self._steps[call].opname == "CALL_KW":
            steps.pop()  # the names
        if any(one.opname not in _ATTRIBUTE for one in steps[1:]):
            return True  # computed
        return not self._may_be_none(steps[0].opname, [str(one.argval) for one in steps])

    def _may_be_none(self, how: str, names: list[str]) -> bool:
        name, *attributes = names
        if how in _FROM_GLOBALS and name in self._names:
            value = self._names[name]
        elif how in _FROM_CLOSURE and name in self._free:
            value = self._free[name]
        else:
            return name in self._nothing and not attributes
        for attribute in attributes:
            value = getattr_static(value, attribute, ...)
        return value is None


def _member(module: Any, name: str) -> Any:
    """Give what a module has under a name, without asking its ``__getattr__``."""
    if not isinstance(module, ModuleType):
        return None
    return vars(module).get(name, sys.modules.get(f"{module.__name__}.{name}"))


def _is_none(one: dis.Instruction) -> bool:
    return one.opname == "LOAD_CONST" and one.argval is None


def _effect(one: dis.Instruction, *, jump: bool) -> int:
    if one.opname == "PRECALL":
        return 0
    if one.opname in _CALLS:
        return -(one.arg or 0) - _CALLS[one.opname]
    given = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(one.opcode, given, jump=jump)
