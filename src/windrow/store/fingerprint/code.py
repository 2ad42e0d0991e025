"""What compiled code does and what it takes from outside, found by reading its instructions.

Not in it: line numbers, file names, docstrings, names of local variables. Code is what Python compiled before it
specialised it, so that it is the same before and after a thousand calls.

A name is followed by the attributes that are taken right behind it, and through a local variable that stands for it alone.
Anything else counts as used whole: more than needed may be found, never less.
"""

from __future__ import annotations

import dis
import functools
import inspect
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from types import CodeType
from typing import Any, Literal, NamedTuple

#: Compiled code differs between versions of Python.
CODE_OF = (sys.implementation.cache_tag or sys.version).encode()


class Origin(NamedTuple):
    """Where something comes from: a global, a closure variable or an import, and the attributes taken from there."""

    kind: Literal["global", "free", "import"]
    name: str  #: of a module: with a dot for each level of a relative import
    attributes: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        return ".".join((self.name, *self.attributes))


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found in code, that of the functions inside it included."""

    content: bytes
    #: What it takes from outside. True: it is called right there, with something of which nothing says that it may be None.
    uses: Mapping[tuple[Origin, bool], frozenset[str]]  #: with the variables that are then among the arguments
    stores: tuple[str, ...]  #: what it writes to, of what is not its own
    bare: frozenset[str]  #: globals that are called without arguments
    names: frozenset[str]  #: all that it names: globals, attributes, modules

    @property
    def reads(self) -> dict[Origin, None]:
        return dict.fromkeys(origin for origin, _ in self.uses)


@functools.lru_cache(maxsize=4096)
def read_code(code: CodeType, given: tuple[str, ...] = ()) -> Reading:
    """Read code; once, as code does not change. Parameters that are ``given`` count like closure variables."""
    reader = _Reader()
    content = reader.read(code, {name: Origin("free", name) for name in (*code.co_freevars, *given)}, is_inner=False)
    return Reading(content, reader.uses, tuple(reader.stores), frozenset(reader.bare), frozenset(reader.names))


def digest(*pieces: bytes) -> bytes:
    """Return a digest of a sequence of byte strings; where one ends is part of it."""
    lengths = b"%r" % [len(piece) for piece in pieces]
    return blake2b(b"".join((lengths, *pieces)), digest_size=16).digest()


def plain(value: Any) -> bytes | None:
    """Return the bytes of a plain value, which differ wherever type or bits do; None if it is not plain."""
    kind = type(value)
    if kind is str:
        return b"s" + str(value).encode("utf-8", "surrogatepass")
    if kind is float:
        return b"f" + struct.pack("<d", value)
    if kind is int:
        return b"i%x" % value
    if kind is bool or value is None or value is ... or value is NotImplemented:
        return b"c" + repr(value).encode()
    if kind is bytes:
        return b"b" + bytes(value)
    if kind is complex:
        return b"z" + struct.pack("<dd", value.real, value.imag)
    return None


# -- instructions ----------------------------------------------------------------------------------

_FROM_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_FROM_VARIABLES = {
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF",
}  # fmt: skip
_TO_VARIABLES = {"STORE_FAST", "STORE_DEREF"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_WRITES_ATTRIBUTE = {"STORE_ATTR", "DELETE_ATTR"}
_WRITES_ITEM = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}
_MARKS = ("CALL", "STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
_CALLS = {"CALL": 1, "CALL_KW": 2}  #: what they take besides the arguments, less what they give
_IN_PLACE = [("BINARY_OP", number) for number in range(13, 26)]  #: "+=" and its kin
#: Keyword arguments that seed a generator.
_SEEDS = {"seed", "entropy", "x"}

_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_VARIABLES = {*dis.haslocal, *dis.hasfree}
_CONSTANTS = {*dis.hasconst}
_CACHE = dis.opmap.get("CACHE", 0)  #: room for what the interpreter remembers while it runs

#: Bits of an argument that are not part of the number of a name.
_FLAGS = dict.fromkeys(dis.hasname, 0) | {dis.opmap["LOAD_GLOBAL"]: 1}
if sys.version_info >= (3, 12):
    _FLAGS |= {dis.opmap["LOAD_ATTR"]: 1, dis.opmap["LOAD_SUPER_ATTR"]: 2}

#: Of the flags of code: what is in a call, and what a call gives.
_SHAPE = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


class _Instruction(NamedTuple):
    opcode: int
    opname: str
    arg: int
    said: Any  #: the name it is about, a global, an attribute, a variable; or the constant
    start: tuple[int | None, int | None]  #: line and column where the expression begins


_Steps = list[_Instruction]


def _instructions(code: CodeType) -> _Steps:
    """Take code apart; what ``dis`` says besides takes ten times as long to find."""
    found = []
    own = [name for name in code.co_cellvars if name not in code.co_varnames]
    variables = (*code.co_varnames, *own, *code.co_freevars)
    content, extended = code.co_code, 0
    for place, position in zip(range(0, len(content), 2), code.co_positions(), strict=False):
        opcode, arg = content[place], content[place + 1] | extended
        extended = 0
        said: Any = ""
        if opcode == dis.EXTENDED_ARG:
            extended = arg << 8
            continue
        if opcode == _CACHE:
            continue
        if opcode in _FLAGS:
            said = code.co_names[arg >> _FLAGS[opcode]]
        elif opcode in _VARIABLES and arg < len(variables):
            said = variables[arg]
        elif opcode in _CONSTANTS:
            said = code.co_consts[arg]
        found.append(_Instruction(opcode, dis.opname[opcode], arg, said, (position[0], position[2])))
    return found


class _Reader:
    """Reads code and the code inside it, and gathers what all of it takes from outside."""

    def __init__(self) -> None:
        self.uses: dict[tuple[Origin, bool], frozenset[str]] = {}
        self.stores: dict[str, None] = {}
        self.bare: set[str] = set()
        self.names: set[str] = set()

    def read(self, code: CodeType, known: Mapping[str, Origin], *, is_inner: bool) -> bytes:
        """Return a digest; ``known`` are the closure variables of which it is known what they stand for."""
        steps = _instructions(code)
        self.bare.update(_called_bare(steps))
        self.names.update(code.co_names)
        aliases = {**known, **dict(self._aliases(code, steps))}
        empty = _may_be_none(steps)
        if is_inner:
            empty |= {*code.co_varnames[: len(_arguments(code))]}  # nobody knows their defaults
        own = {one.said for one in steps if one.opname == "STORE_NAME"}  # names of a class body
        marks = [(number, one) for number, one in enumerate(steps) if one.opname.startswith(_MARKS)]
        for number, one in enumerate(steps):
            origin = None
            if one.opname in _FROM_GLOBALS and (one.opname == "LOAD_GLOBAL" or one.said not in own):
                origin = Origin("global", one.said)
            elif one.opname in _FROM_VARIABLES:
                origin = aliases.get(one.said)
            elif "_FAST_" in one.opname and "CHECK" not in one.opname and "BORROW" not in one.opname:
                self._use(*aliases.values())  # several variables at once
            if origin is not None:
                self._take(origin, number, steps, marks, empty)
            in_place = one.opname == "STORE_FAST" and steps[number - 1][1:3] in _IN_PLACE
            if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                (in_place or one.opname in ("STORE_DEREF", "DELETE_DEREF")) and one.said in known
            ):
                self.stores[one.said] = None
        return self._content(code, steps, aliases)

    def _use(self, *origins: Origin, given: frozenset[str] | None = None) -> None:
        for origin in origins:
            key = origin, given is not None
            self.uses[key] = self.uses.get(key, frozenset()) | (given or frozenset())

    def _take(
        self, origin: Origin, number: int, steps: _Steps, marks: list[tuple[int, _Instruction]], empty: set[str]
    ) -> None:
        """Note what is loaded by an instruction, with the attributes right behind, and what is written to there."""
        first, last = steps[number], number
        while steps[last + 1].opname in _ATTRIBUTE:
            last += 1
            origin = _attribute(origin, steps[last].said)
        if steps[last + 1].opname in _WRITES_ATTRIBUTE:
            origin = _attribute(origin, steps[last + 1].said)
            self.stores[origin.said] = None
        given = _given(steps, last)
        self._use(origin, given=None if given is None or given & empty else given)
        # What is written to begins with it in the text, and no call comes between.
        for at, one in marks:
            if at <= last or one.start != first.start or one.start[0] is None:
                continue
            if one.opname in _WRITES_ITEM:
                self.stores[f"{origin.said}[...]"] = None
            elif one.opname in _WRITES_ATTRIBUTE and at > last + 1:
                self.stores[f"{origin.said}.{one.said}"] = None
            elif one.opname.startswith("CALL"):
                break

    def _aliases(self, code: CodeType, steps: _Steps) -> Iterator[tuple[str, Origin]]:
        """Give the variables that stand for an import or a global and for nothing else; other imports are used whole."""
        stored = Counter(one.said for one in steps if one.opname in _TO_VARIABLES)
        stored.update(_stored_inside(code))
        stored.update((*_arguments(code), *code.co_freevars))
        module = Origin("import", "")
        for number, one in enumerate(steps):
            last = number
            if one.opname == "IMPORT_NAME":
                value = module = _imported(one, steps[number - 2 : number])
            elif one.opname == "IMPORT_FROM":
                value = _attribute(module, one.said)
            elif one.opname == "LOAD_GLOBAL":
                value = Origin("global", one.said)
                while steps[last + 1].opname in _ATTRIBUTE:
                    last += 1
                    value = _attribute(value, steps[last].said)
            else:
                continue
            after = steps[last + 1]
            if value.kind == "import" and after.opname == "SWAP":  # import a.b as c
                module, after = value, steps[last + 3]
            if after.opname in _TO_VARIABLES and stored[after.said] == 1:
                yield after.said, value
            elif value.kind == "import" and after.opname not in ("IMPORT_FROM", "POP_TOP"):
                self._use(value)

    def _content(self, code: CodeType, steps: _Steps, aliases: Mapping[str, Origin]) -> bytes:
        pieces = [
            CODE_OF,
            b"%d %d" % (code.co_argcount, code.co_posonlyargcount),
            b"%d %d" % (code.co_kwonlyargcount, code.co_flags & _SHAPE),
            # They are in the signature, unlike other local variables.
            *(name.encode() for name in _arguments(code)),
            b"code",
        ]
        for one in steps:
            if one.opcode in _CONSTANTS:
                # Not its number: a docstring moves them all.
                pieces += (b"%d" % one.opcode, self._constant(one.said, aliases))
            elif one.opcode in _FLAGS:
                pieces += (b"%d" % one.opcode, one.said.encode("utf-8", "surrogatepass"))
            else:
                pieces.append(b"%d %d" % (one.opcode, one.arg))
        return digest(*pieces, code.co_exceptiontable)

    def _constant(self, value: Any, aliases: Mapping[str, Origin]) -> bytes:
        encoded = plain(value)
        if encoded is not None:
            return encoded
        if isinstance(value, CodeType):
            passed_on = {name: aliases[name] for name in value.co_freevars if name in aliases}
            return b"code" + self.read(value, passed_on, is_inner=True)
        items = [self._constant(item, aliases) for item in value]
        if isinstance(value, frozenset):
            return b"frozenset" + digest(*sorted(items))
        return type(value).__name__.encode() + digest(*items)


def _attribute(origin: Origin, name: str) -> Origin:
    return origin._replace(attributes=(*origin.attributes, name))


def _arguments(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _imported(one: _Instruction, before: list[_Instruction]) -> Origin:
    """Say what an import gives: Python first loads the level, and the names that are taken from the module."""
    level, names = (each.said if each.opcode in _CONSTANTS else each.arg for each in before)
    whole = names is None and not level
    return Origin("import", one.said.partition(".")[0] if whole else "." * level + one.said)


def _stored_inside(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from (one.said for one in _instructions(constant) if one.opname == "STORE_DEREF")
            yield from _stored_inside(constant)


def _called_bare(steps: _Steps) -> Iterator[str]:
    kept = [one for one in steps if one.opname not in ("PRECALL", "PUSH_NULL")]
    for one, after in pairwise(kept):
        if one.opname in _FROM_GLOBALS and after.opname == "CALL" and after.arg == 0:
            yield one.said


# -- what a call is given --------------------------------------------------------------------------

#: Instructions that take so many values and give one; with None, as many as their argument says.
_TAKES = {
    "BINARY_OP": 2,
    "BINARY_SUBSCR": 2,
    "LIST_EXTEND": 2,
    "BUILD_LIST": None,
    "BUILD_TUPLE": None,
    "BUILD_SLICE": None,
}


def _given(steps: _Steps, last: int) -> frozenset[str] | None:
    """Name the variables among the arguments of the call that what was loaded is for.

    None if it is not called, is given nothing or a None, or if there is more in between than values and calls.
    """
    height, names, keywords = 0, [""], ()
    for before, one in pairwise(steps[last:]):
        name = one.opname
        if name == "KW_NAMES":
            keywords = one.said
        elif name in _CALLS:
            if name == "CALL_KW":
                height -= 1
                keywords = before.said
            if one.arg == height:
                seeded = one.arg > len(keywords) or not _SEEDS.isdisjoint(keywords)
                return frozenset(names[1:]) if seeded else None
            height -= one.arg + 1
            keywords = ()
        elif name in _TAKES:
            taken = _TAKES[name] or one.arg
            if height < taken:
                return None
            height -= taken - 1
        elif name in _ATTRIBUTE and height:
            names[-1] += f".{one.said}"
            height += dis.stack_effect(one.opcode, one.arg)
        elif name == "LOAD_CONST" and one.said is not None:
            height += 1
        elif name in _FROM_GLOBALS or name in _FROM_VARIABLES:
            names.append(one.said)
            height += dis.stack_effect(one.opcode, one.arg)
        elif name == "PUSH_NULL" and (height or sys.version_info < (3, 13)):
            height += 1
        elif name not in ("PRECALL", "PUSH_NULL"):
            return None
        if height < 0:
            return None
    return None


def _may_be_none(steps: _Steps) -> set[str]:
    """Name the variables that are None somewhere; all of them where it is not seen which one is."""
    found = set()
    for one, after in pairwise(steps):
        if one.opname == "LOAD_CONST" and one.said is None:
            if after.opname.startswith("STORE_"):
                found.add(after.said)
            elif after.opcode in _JUMPS:
                found.update(each.said for each in steps if each.opname in _TO_VARIABLES)
    return found
