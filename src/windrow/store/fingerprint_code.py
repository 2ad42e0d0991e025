"""What compiled code does and what it takes from outside, found by reading its instructions.

Not in it: line numbers, file names, docstrings, names of local variables. Code is what Python compiled before it
specialised it, so that it is the same before and after a thousand calls.

Which attributes are taken of what comes from outside is followed along straight lines of instructions only. Wherever
code jumps, what is at hand counts as used whole: more than needed may be found, never less.
"""

from __future__ import annotations

import dis
import functools
import inspect
import struct
import sys
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from windrow.store.fingerprint_graph import digest

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Compiled code differs between versions of Python.
CODE_OF = (sys.implementation.cache_tag or sys.version).encode()


class Origin(NamedTuple):
    """Where something comes from: a global, a closure variable or an import, and the attributes taken from there."""

    kind: Literal["global", "free", "import"]
    name: str  #: of a module: with a dot for each level of a relative import
    attributes: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """Name it as it is written."""
        return ".".join((self.name, *self.attributes))


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found in code, that of the functions inside it included."""

    content: bytes
    reads: tuple[Origin, ...]
    stores: tuple[str, ...]  #: what it writes to, of what is not its own
    bare: frozenset[str]  #: globals that are called without arguments
    names: frozenset[str]  #: all that it names: globals, attributes, modules


@functools.lru_cache(maxsize=4096)
def read_code(code: CodeType) -> Reading:
    """Read code; once, as code does not change."""
    reader = _Reader()
    content = reader.content(code, frozenset(code.co_freevars))
    return Reading(content, tuple(reader.reads), tuple(reader.stores), frozenset(reader.bare), frozenset(reader.names))


# -- plain values ----------------------------------------------------------------------------------


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
_FROM_CLOSURE = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_FROM_LOCALS = {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_ENDS = {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"}

_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_VARIABLES = {*dis.haslocal, *dis.hasfree}
_CONSTANTS = {*dis.hasconst}

#: Bits of an argument that are not part of the number of a name.
_FLAGS = dict.fromkeys(dis.hasname, 0) | {dis.opmap["LOAD_GLOBAL"]: 1}
if sys.version_info >= (3, 12):
    _FLAGS |= {dis.opmap["LOAD_ATTR"]: 1, dis.opmap["LOAD_SUPER_ATTR"]: 2}


class _Instruction(NamedTuple):
    opcode: int
    opname: str
    arg: int
    said: str  #: the name it is about: a global, an attribute, a variable


def _instructions(code: CodeType) -> list[_Instruction]:
    """Take code apart; what ``dis`` says besides takes ten times as long to find."""
    found = []
    own = [name for name in code.co_cellvars if name not in code.co_varnames]
    variables = (*code.co_varnames, *own, *code.co_freevars)
    content, extended = code.co_code, 0
    for place in range(0, len(content), 2):
        opcode, arg = content[place], content[place + 1] | extended
        extended = 0
        if opcode == dis.EXTENDED_ARG:
            extended = arg << 8
        elif opcode in _FLAGS:
            name = code.co_names[arg >> _FLAGS[opcode]]
            found.append(_Instruction(opcode, dis.opname[opcode], arg, name))
        elif opcode in _VARIABLES:
            name = variables[arg] if arg < len(variables) else ""
            found.append(_Instruction(opcode, dis.opname[opcode], arg, name))
        elif opcode != _CACHE:
            found.append(_Instruction(opcode, dis.opname[opcode], arg, ""))
    return found


#: Room for what the interpreter remembers while it runs.
_CACHE = dis.opmap.get("CACHE", 0)

#: Of the flags of code: what is in a call, and what a call gives.
_SHAPE = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


class _Reader:
    """Reads code and the code inside it, and gathers what all of it takes from outside."""

    def __init__(self) -> None:
        self.reads: dict[Origin, None] = {}
        self.stores: dict[str, None] = {}
        self.bare: set[str] = set()
        self.names: set[str] = set()

    def content(self, code: CodeType, outside: frozenset[str]) -> bytes:
        """Return a digest; ``outside`` are the closure variables that are not made by code around it."""
        instructions = _instructions(code)
        _Follower(self, code, outside).follow(instructions)
        self.bare.update(_called_bare(instructions))
        self.names.update(code.co_names)
        pieces = [
            CODE_OF,
            b"%d %d" % (code.co_argcount, code.co_posonlyargcount),
            b"%d %d" % (code.co_kwonlyargcount, code.co_flags & _SHAPE),
            # They are in the signature, unlike other local variables.
            *(name.encode() for name in _arguments(code)),
            b"code",
        ]
        for one in instructions:
            if one.opcode in _CONSTANTS:
                # Not its number: a docstring moves them all.
                constant = self._constant(code.co_consts[one.arg], code, outside)
                pieces += (b"%d" % one.opcode, constant)
            elif one.opcode in _FLAGS:
                name = one.said.encode("utf-8", "surrogatepass")
                pieces += (b"%d" % one.opcode, name)
            else:
                pieces.append(b"%d %d" % (one.opcode, one.arg))
        return digest(*pieces, code.co_exceptiontable)

    def _constant(self, value: Any, around: CodeType, outside: frozenset[str]) -> bytes:
        encoded = plain(value)
        if encoded is not None:
            return encoded
        if isinstance(value, CodeType):
            passed_on = outside & set(around.co_freevars) & set(value.co_freevars)
            return b"code" + self.content(value, passed_on)
        items = [self._constant(item, around, outside) for item in value]
        if isinstance(value, frozenset):
            return b"frozenset" + digest(*sorted(items))
        return type(value).__name__.encode() + digest(*items)


def _called_bare(instructions: list[_Instruction]) -> Iterator[str]:
    """Name the globals that are called with nothing."""
    steps = [one for one in instructions if one.opname not in ("PRECALL", "PUSH_NULL")]
    for one, after in pairwise(steps):
        if one.opname in _FROM_GLOBALS and after.opname == "CALL" and after.arg == 0:
            yield one.said


def _arguments(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


class _Follower:
    """Follows what is on the stack of one piece of code, as far as it comes from outside."""

    def __init__(self, reader: _Reader, code: CodeType, outside: frozenset[str]) -> None:
        self._reader = reader
        self._code = code
        self._outside = outside
        self._stack: list[Origin | None] = []
        self._locals: dict[str, Origin] = {}
        self._own: set[str] = set()  # names of a class body

    def follow(self, instructions: list[_Instruction]) -> None:
        """Go through the instructions from first to last, as if there were no jumps."""
        self._own = {one.said for one in instructions if one.opname == "STORE_NAME"}
        for number, one in enumerate(instructions):
            if one.opname == "IMPORT_NAME":
                self._import(one.said, instructions[number - 2 : number])
            else:
                self._one(one)
            if one.opcode in _JUMPS:
                self._read(*self._stack)  # it may be used in any way where the jump goes
            elif one.opname in _ENDS:
                self._take(len(self._stack))
        self._take(len(self._stack))

    def _one(self, one: _Instruction) -> None:
        name, said = one.opname, one.said
        given = one.arg if one.opcode >= dis.HAVE_ARGUMENT else None
        effect = dis.stack_effect(one.opcode, given, jump=False)
        if name in _FROM_GLOBALS:
            mine = name != "LOAD_GLOBAL" and said in self._own
            self._push(None if mine else Origin("global", said), effect)
        elif name in _FROM_CLOSURE:
            self._push(Origin("free", said) if said in self._outside else None, effect)
        elif name in _FROM_LOCALS:
            self._push(self._locals.get(said), effect)
        elif name in _ATTRIBUTE:
            top = self._stack.pop() if self._stack else None
            self._push(top and _attribute(top, said), effect + 1)
        elif name == "IMPORT_FROM":
            top = self._stack[-1] if self._stack else None
            self._push(top and _attribute(top, said), 1)
        elif name == "COPY":
            self._push(self._stack[-one.arg] if len(self._stack) >= one.arg else None, 1)
        elif name == "SWAP" and len(self._stack) >= one.arg:
            self._stack[-1], self._stack[-one.arg] = self._stack[-one.arg], self._stack[-1]
        elif name == "POP_TOP":
            top = self._stack.pop() if self._stack else None
            if top is not None and top.kind != "import":
                self._read(top)
        elif name.startswith(("STORE_", "DELETE_")) or name == "BINARY_SUBSCR":
            self._write(one, effect)
        else:
            self._other(one, effect)

    def _other(self, one: _Instruction, effect: int) -> None:
        """Anything else: what it takes was read, and what it makes is new."""
        if "_FAST" in one.opname:  # several local variables at once, say
            self._read(*self._locals.values())
        if effect > 0:
            self._stack.extend([None] * effect)
        elif one.opcode in _JUMPS:
            self._take(-effect)
        else:
            self._take(1 - effect)
            self._stack.append(None)

    def _write(self, one: _Instruction, effect: int) -> None:
        name, said = one.opname, one.said
        if name == "STORE_FAST":
            self._store_local(said)
            return
        target = None
        to_closure = name in ("STORE_DEREF", "DELETE_DEREF") and said in self._outside
        if to_closure or name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self._reader.stores[said] = None
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            target = self._stack.pop() if self._stack else None
            effect += 1
            if target is not None:
                # What is written to counts as read: what is there before may matter to what else reads it.
                target = _attribute(target, said)
                self._read(target)
                self._reader.stores[target.said] = None
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR", "BINARY_SUBSCR"):
            target = self._stack[-2] if len(self._stack) > 1 else None
            if target is not None and name != "BINARY_SUBSCR":
                self._reader.stores[f"{target.said}[...]"] = None
        if name == "BINARY_SUBSCR":
            self._take(2)
            self._stack.append(target)  # an item of it is a part of it
        elif "_FAST" in name or effect > 0:
            self._other(one, effect)
        else:
            self._take(-effect)

    def _import(self, name: str, before: list[_Instruction]) -> None:
        """Take what Python puts on the stack first: the level, and the names that are taken from the module."""
        level, names = (self._code.co_consts[one.arg] if one.opcode in _CONSTANTS else one.arg for one in before)
        self._take(2)
        whole = names is None and not level
        self._stack.append(Origin("import", name.partition(".")[0] if whole else "." * level + name))

    def _store_local(self, name: str) -> None:
        value = self._stack.pop() if self._stack else None
        before = self._locals.pop(name, None)
        if before != value:
            self._read(before)
        if value is None:
            return
        if value.kind != "import":
            self._read(value)  # it may be used before this line too, in a loop
        self._locals[name] = value

    def _push(self, value: Origin | None, effect: int) -> None:
        self._take(max(0, 1 - effect))
        self._stack.extend([None] * (effect - 1))
        self._stack.append(value)

    def _take(self, count: int) -> None:
        for _ in range(min(count, len(self._stack))):
            self._read(self._stack.pop())

    def _read(self, *origins: Origin | None) -> None:
        self._reader.reads.update((one, None) for one in origins if one is not None)


def _attribute(origin: Origin, name: str) -> Origin:
    return origin._replace(attributes=(*origin.attributes, name))
