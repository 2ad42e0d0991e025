"""The lineage of a call: a digest of all that its result depends on, known before anything has run.

In it: the code of the function, the arguments, for a future the lineage of the call that makes it, for a file its size
and time or the lineage of the call that writes it. Contents of arrays are not in it, since hashing them can take longer than
the task: a call with an array among its arguments has no lineage, unless that is asked for. No code of the user's runs.
"""

from __future__ import annotations

import gc
import mmap
import os
import pathlib
from array import array
from copy import deepcopy
from hashlib import blake2b
from inspect import CO_VARKEYWORDS
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.store.fingerprint.api import fingerprint
from windrow.store.fingerprint.code import plain
from windrow.store.fingerprint.libraries import static_attribute
from windrow.tasks.body import STREAM
from windrow.tasks.call import map_nested
from windrow.tasks.future import Future, StreamFuture
from windrow.tasks.groups import current_group
from windrow.tasks.reuse.code import MOST, Codes, NotReusable, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.tasks.call import Call
    from windrow.tasks.declare import Declared
    from windrow.tasks.files.annotations import FileKind
    from windrow.tasks.reuse.code import Known

__all__ = ["CONTENT", "Lineage", "NotReusable", "copied", "is_of_command", "makers_of_paths"]

#: As ``reuse=``: also arrays are taken by their content. As ``files=``: files are, whatever their time.
CONTENT = "content"

#: Raised when equal calls would get other keys than before.
_FORMAT = b"windrow lineage 2"
#: Bytes of text or raw data in one argument that count as an array.
LARGE = 64 * 1024
#: Things in an argument that is searched for arrays; more than that is a large one in itself.
_SEARCHED = 100_000
#: Bytes of all arguments of a call together: hashing them takes some milliseconds.
_ALL_TOGETHER = 16 * 1024 * 1024

_PATHS = {pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath}
_BUFFERS = (bytearray, memoryview, array, mmap.mmap)
#: What classes have whose objects hold large data.
_SIGNS_OF_ARRAYS = (
    "__array_interface__",
    "__array__",
    "__arrow_c_array__",
    "__arrow_c_stream__",
    "__dlpack__",
    "__cuda_array_interface__",
)
_NOT_SEARCHED = (type, ModuleType, CodeType)
_ASK = "say reuse='content' to have it hashed with every call"


class Lineage:
    """Makes the keys of a session's calls."""

    def __init__(self) -> None:
        self.codes = Codes()
        #: By the function's identity, which is thus kept: its parameters in order, and whether it takes any others by name.
        self._parameters: dict[int, tuple[Any, list[str], bool]] = {}

    def key(self, calling: Call, known: Known, files: list[bytes], *, content: bool = False) -> str:
        """Make the key of a call; NotReusable, with the reason, if it can have none.

        ``known`` is what its code does, ``files`` says what is in the files that it reads, ``content`` whether arrays are taken by their content.
        """
        declared = calling.declared
        _refuse_what_has_no_result(calling)
        out = [_FORMAT, digest_of(declared, known), f"{declared.outputs!r}".encode()]
        encode = _Encoder(out, calling.session.latest, content=content)
        for name, value in self._given(calling):
            out.append(b"@" + name.encode())
            encode.argument(name, value)
        if declared.command is not None:
            out.append(b"#in " + str(Path.cwd()).encode())  # where it runs
        out += [f"#as {name} {kind!r}".encode() for name, kind in declared.files.items()]
        out += [b"#file " + one for one in files]
        digest = blake2b(b"%r" % [len(piece) for piece in out], digest_size=20)
        digest.update(b"".join(out))
        return digest.hexdigest()

    def _given(self, calling: Call) -> list[tuple[str, Any]]:
        """List the arguments by name, in one order however they were given."""
        declared = calling.declared
        found = self._parameters.get(id(declared.function))
        if found is None:
            if len(self._parameters) >= MOST:
                self._parameters.clear()
            found = self._parameters[id(declared.function)] = _parameters(declared)
        _, names, takes_others = found
        given = [
            (names[number] if number < len(names) else f"*{number}", value)
            for number, value in enumerate(calling.arguments)
        ]
        if calling.keywords:
            # Of ``**keywords`` the body sees the order.
            others = list(calling.keywords.items())
            if takes_others:
                others = [one for one in others if one[0] not in declared.positions]
                named = [one for one in calling.keywords.items() if one[0] in declared.positions]
                given += sorted(named, key=lambda one: declared.positions[one[0]])
            else:
                others.sort(key=lambda one: (declared.positions.get(one[0], len(names)), one[0]))
            given += others
        return given


def _parameters(declared: Declared) -> tuple[Any, list[str], bool]:
    names = sorted(declared.positions, key=declared.positions.__getitem__)
    code = getattr(declared.function, "__code__", None)
    takes_others = not isinstance(code, CodeType) or bool(code.co_flags & CO_VARKEYWORDS)
    return declared.function, names, takes_others


def _refuse_what_has_no_result(calling: Call) -> None:
    """Refuse calls that do more than give values, or may give others."""
    declared, session = calling.declared, calling.session
    if declared.inout or any(one.reads and one.writes for one in declared.files.values()):
        raise NotReusable("it changes what it is given")
    for parameter, kind in declared.files.items():
        _refuse_unknown_files(calling, parameter, kind)
    if declared.outputs == STREAM:
        raise NotReusable("its outputs are a stream")
    group = current_group(session)
    rule = declared.on_failure or (group and group.on_failure) or session.on_failure
    if rule == "ignore":
        raise NotReusable("with on_failure='ignore' what it gives may be None in place of a result")


def _refuse_unknown_files(calling: Call, parameter: str, kind: FileKind) -> None:
    """Refuse paths of which nothing is known at the call: those of futures, of large directories, and addresses.

    The value of a command is the path of what it writes, which its lineage covers. The value of a task that writes files
    most often is, too; as it may be any other, what was read is noted with the result.
    """
    known = [one.path for one in calling.files if one.parameter == parameter]
    for one in _paths(calling, parameter):
        if isinstance(one, Future) and kind.reads and writes_files(one):
            if kind.pattern and not is_of_command(one):
                raise NotReusable(
                    f"its {kind.name} {parameter!r} is the value of a future, so that it is not known which files match"
                )
            continue
        start = None if isinstance(one, Future) else os.fspath(one)
        found = known if kind.pattern else [path for path in known if path.startswith(start or "")]
        if start is None or not found:
            words = "the value of a future" if start is None else start
            raise NotReusable(f"its {kind.name} {parameter!r} is {words}, of which nothing is known at the call")


def writes_files(future: Future) -> bool:
    """Whether a future is of a task that writes files, so that it may stand for one."""
    return any(one.writes for one in future.call.declared.files.values())


def is_of_command(future: Future) -> bool:
    """Whether a future is of a command, whose value is the path of what it writes."""
    return future.call.declared.command is not None


def makers_of_paths(calling: Call) -> list[Future]:
    """List the futures that a call is given as paths of what it reads, of tasks that write files."""
    reads = [parameter for parameter, kind in calling.declared.files.items() if kind.reads]
    given = [one for name in reads for one in _paths(calling, name)]
    return [one for one in given if isinstance(one, Future) and writes_files(one)]


def _paths(calling: Call, parameter: str) -> list[Any]:
    """List what a parameter was given, of paths and futures of them."""
    place = calling.place(parameter)
    if place is not None:
        given = [calling.get(place)]
    else:  # as in ``*paths`` and ``**paths``: whatever has no parameter of its own
        positions = calling.declared.positions
        others = [value for name, value in calling.keywords.items() if name not in positions]
        given = [*calling.arguments[len(positions) :], *others]
    flat = [one for some in given for one in (some if isinstance(some, (list, tuple)) else [some])]
    return [one for one in flat if isinstance(one, (Future, str, os.PathLike))]


class _Encoder:
    """Writes values down so that equal bytes mean equal values; what is no plain value begins with "#"."""

    def __init__(self, out: list[bytes], latest: Callable[[Any], Any], *, content: bool) -> None:
        self._out = out
        self._latest = latest
        self._content = content
        self._seen: dict[int, int] = {}  #: what a body may change, by identity: which one it is
        self._things = self._bytes = 0

    def argument(self, name: str, value: Any) -> None:
        """Write an argument down."""
        try:
            self._value(value)
        except NotReusable as refused:
            raise NotReusable(f"argument {name.lstrip('*')!r} {refused}") from None
        except RecursionError:
            raise NotReusable(f"argument {name.lstrip('*')!r} goes in circles") from None

    def _value(self, value: Any) -> None:
        value = self._latest(value)
        encoded = plain(value)
        if not self._content:
            self._refuse_much(0 if encoded is None else len(encoded))
        kind = type(value)
        if encoded is not None:
            self._out.append(encoded)
        elif isinstance(value, Future):
            self._out.append(lineage_of(value))
        elif kind in _PATHS:
            self._out.append(f"#{kind.__name__} ".encode() + str(value).encode("utf-8", "surrogateescape"))
        elif id(value) in self._seen:
            # Whether two are one matters to a body that changes one of them.
            self._out.append(b"#again %d" % self._seen[id(value)])
        else:
            if kind is not tuple and kind is not frozenset:
                self._seen[id(value)] = len(self._seen)
            self._inside(kind, value)

    def _refuse_much(self, size: int) -> None:
        """Refuse what takes longer to look through than many a task takes."""
        self._things += 1
        self._bytes += size
        if size > LARGE or self._bytes > _ALL_TOGETHER:
            raise NotReusable(f"holds {max(size, self._bytes):,} bytes; {_ASK}")
        if self._things > _SEARCHED:
            raise NotReusable(f"holds more than {_SEARCHED:,} things; {_ASK}")

    def _inside(self, kind: type, value: Any) -> None:
        if kind is list or kind is tuple:
            self._out.append(b"#%s %d" % (kind.__name__.encode(), len(value)))
            for one in value:
                self._value(one)
        elif kind is dict:
            self._out.append(b"#dict %d" % len(value))
            for name, one in value.items():
                self._value(name)
                self._value(one)
        elif kind is set or kind is frozenset:
            self._members(kind.__name__, value)
        else:
            self._other(value)

    def _members(self, kind: str, members: Any) -> None:
        """Write a set down, in an order of our own."""
        digests = []
        for one in members:
            inner: list[bytes] = []
            _Encoder(inner, self._latest, content=self._content)._value(one)
            whole = b"%r" % [len(piece) for piece in inner] + b"".join(inner)
            digests.append(blake2b(whole, digest_size=20).digest())
        self._out.append(b"#%s %d" % (kind.encode(), len(digests)))
        self._out += sorted(digests)

    def _other(self, value: Any) -> None:
        if isinstance(value, StreamFuture):
            raise NotReusable("is a stream")
        if not self._content:
            refuse_arrays(value)
        found = fingerprint(value)
        if found.opaque:
            raise NotReusable(f"cannot be looked into: {found.opaque[0]}")
        self._out.append(b"#object " + found.digest.encode())


def copied(thing: Any, latest: Callable[[Any], Any]) -> Any:
    """Copy all that can change, so that it stays what its lineage says; NotReusable if that cannot be."""
    stays: dict[int, Any] = {}

    def note(one: Any) -> Any:
        if isinstance(one, Future) or latest(one) is not one:
            stays[id(one)] = one
        return one

    try:
        map_nested(thing, note)
        return deepcopy(thing, stays)
    except Exception as error:
        raise NotReusable(
            f"its arguments cannot be copied, so later changes would be seen: {type(error).__name__}: {error}"
        ) from error


def lineage_of(future: Future) -> bytes:
    """Say what a future is: which output of which call."""
    record = future.call
    if record.key is None:
        raise NotReusable(f"is made by task {record.name!r}, which is not reused itself; give that reuse=True too")
    return f"#output {record.key} {future.output.partition('.')[2]}".encode()


def refuse_arrays(value: Any) -> None:
    """Raise NotReusable if a thing is an array, or holds one anywhere; nothing is asked of the thing itself."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _NOT_SEARCHED):
            continue
        seen.add(id(one))
        if len(seen) > _SEARCHED:
            raise NotReusable(f"holds more than {_SEARCHED:,} things; {_ASK}")
        kind = type(one)
        if issubclass(kind, (Future, StreamFuture)):
            raise NotReusable("hides a future")
        if kind is FunctionType:
            cells = (_cell(cell) for cell in one.__closure__ or ())
            waiting += [*cells, one.__defaults__, one.__kwdefaults__]
        elif issubclass(kind, (str, bytes)):
            if _length(kind, one) > LARGE:
                raise NotReusable(f"holds {_length(kind, one):,} bytes; {_ASK}")
        elif issubclass(kind, np.generic):
            continue  # a number
        elif issubclass(kind, _BUFFERS) or any(static_attribute(kind, sign) is not None for sign in _SIGNS_OF_ARRAYS):  # fmt: skip
            raise NotReusable(f"is or holds an array ({kind.__module__}.{kind.__qualname__}); {_ASK}")
        else:
            waiting += gc.get_referents(one)


def _length(kind: type, value: Any) -> int:
    return (str if issubclass(kind, str) else bytes).__len__(value)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
