"""The key of a call: a digest of all that its result depends on, known before anything has run.

In it: the code of the function, the arguments, for a future the key of the call that makes it, for a file its size and time
or the key of the call that writes it. Contents of arrays are not in it, since hashing them can take longer than the task: a
call with an array among its arguments has no key, unless that is asked for. No code of the user's runs.
"""

from __future__ import annotations

import mmap
import os
from array import array
from bisect import bisect_left
from copy import deepcopy
from hashlib import blake2b
from inspect import CO_VARKEYWORDS
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.store.fingerprint.code import plain
from windrow.store.fingerprint.libraries import static_attribute
from windrow.store.fingerprint.walk import Walk
from windrow.tasks.body import STREAM
from windrow.tasks.call import map_nested
from windrow.tasks.future import Future, StreamFuture
from windrow.tasks.groups import current_group
from windrow.tasks.reuse.code import NotReusable, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.store.fingerprint.adapters import Shape
    from windrow.store.fingerprint.walk import Open, Way
    from windrow.tasks.call import Call
    from windrow.tasks.files.annotations import FileKind
    from windrow.tasks.reuse.code import Known


#: Raised when equal calls would get other keys than before.
_FORMAT = b"windrow lineage 2"
#: Bytes of text or raw data in one argument that count as an array.
LARGE = 64 * 1024
#: Things in the arguments of a call; more than that is a large one in itself.
_SEARCHED = 100_000
#: Bytes of all arguments of a call together: hashing them takes some milliseconds.
_ALL_TOGETHER = 16 * 1024 * 1024

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
_ASK = "say reuse='content' to have it hashed with every call"


def key_of(call: Call, known: Known, files: list[bytes], *, content: bool = False) -> str:
    """Make the key of a call; NotReusable, with the reason, if it can have none.

    ``known`` is what its code does, ``files`` says what is in the files that it reads, ``content`` whether arrays are taken by
    their content.
    """
    declared = call.declared
    _refuse_what_has_no_result(call)
    given = _given(call)
    out = [_FORMAT, digest_of(declared, known), f"{declared.outputs!r} {[name for name, _ in given]}".encode()]
    out += _encode_arguments(given, call.session.latest, content=content)
    if declared.command is not None:
        out.append(b"#in " + str(Path.cwd()).encode())  # where it runs
    out += [f"#as {name} {kind!r}".encode() for name, kind in declared.files.items()]
    out += [b"#file " + one for one in files]
    digest = blake2b(b"%r" % [len(piece) for piece in out], digest_size=20)
    digest.update(b"".join(out))
    return digest.hexdigest()


def _given(call: Call) -> list[tuple[str, Any]]:
    declared, positions = call.declared, call.declared.positions
    names = sorted(positions, key=positions.__getitem__)
    given = [
        (names[number] if number < len(names) else f"*{number}", value) for number, value in enumerate(call.arguments)
    ]
    code = getattr(declared.function, "__code__", None)
    others = list(call.keywords.items())
    if isinstance(code, CodeType) and not code.co_flags & CO_VARKEYWORDS:
        others.sort(key=lambda one: (positions.get(one[0], len(names)), one[0]))
    else:  # of ``**keywords`` the body sees the order
        others.sort(key=lambda one: positions.get(one[0], len(names)))
    return given + others


# -- arguments -------------------------------------------------------------------------------------


class _Output(NamedTuple):
    """Stands for a future among arguments: which output of which call it is."""

    said: str


def _encode_arguments(given: list[tuple[str, Any]], latest: Callable[[Any], Any], *, content: bool) -> list[bytes]:
    """Write arguments down so that equal bytes mean equal values, and that two of them are one thing counts."""
    encoded = [plain(value) for _, value in given]
    pieces = [piece for piece in encoded if piece is not None and len(piece) <= LARGE]
    if len(pieces) == len(given):
        return pieces
    stands: dict[str, Any] = {}
    for name, value in given:
        try:
            stands[name] = map_nested(
                value, lambda thing: _Output(lineage_of(one)) if isinstance(one := latest(thing), Future) else one
            )
        except NotReusable as refused:
            raise NotReusable(f"argument {name.lstrip('*')!r} {refused}") from None
    walk = _Arguments(stands, content=content)
    if walk.opaque:
        raise NotReusable(f"what it is given cannot be looked into: {min(walk.opaque)}")
    return [b"#" + walk.digest]


class _Arguments(Walk):
    """Walks through arguments; refuses what takes longer to look through than many a task takes."""

    def __init__(self, given: dict[str, Any], *, content: bool) -> None:
        self._content = content
        self._things = self._bytes = 0
        super().__init__(given, "arguments", identity=True)

    def _piece(
        self, one: Any, way: Way | str, numbers: dict[int, bytes] | None, *, judged: bool = False
    ) -> bytes | Open:
        found = super()._piece(one, way, numbers, judged=judged)
        if not self._content:
            self._things += 1
            size = len(found) if isinstance(found, bytes) else 0
            self._bytes += size
            if size > LARGE or self._bytes > _ALL_TOGETHER:
                raise self._refused(way, f"holds {max(size, self._bytes):,} bytes; {_ASK}")
            if self._things > _SEARCHED:
                raise self._refused(way, f"holds more than {_SEARCHED:,} things; {_ASK}")
        return found

    def _look(self, one: Any, way: Way | str, *, judged: bool) -> Shape:
        kind = type(one)
        if issubclass(kind, (Future, StreamFuture)):
            raise self._refused(way, "is a stream" if issubclass(kind, StreamFuture) else "hides a future")
        if not self._content and not issubclass(kind, (np.generic, type)):
            signs = (static_attribute(kind, sign) for sign in _SIGNS_OF_ARRAYS)
            if issubclass(kind, _BUFFERS) or any(sign is not None for sign in signs):
                name = f"{kind.__module__}.{kind.__qualname__}"
                raise self._refused(way, f"is or holds an array ({name}); {_ASK}")
        return super()._look(one, way, judged=judged)

    def _refused(self, way: Way | str, why: str) -> NotReusable:
        said = str(way).removesuffix(" of arguments").rpartition(" of item ")[2].removeprefix("item ")
        return NotReusable(f"argument {said} {why}")


def copied(thing: Any, latest: Callable[[Any], Any]) -> Any:
    """Copy all that can change, so that it stays what its key says; NotReusable if that cannot be."""
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


def lineage_of(future: Future) -> str:
    call = future.call
    if call.key is None:
        raise NotReusable(f"is made by task {call.name!r}, which is not reused itself; give that reuse=True too")
    return f"output {call.key} {future.output.partition('.')[2]}"


# -- files -----------------------------------------------------------------------------------------


def _refuse_what_has_no_result(call: Call) -> None:
    """Refuse calls that do more than give values, or may give other values."""
    declared, session = call.declared, call.session
    if declared.inout or any(one.reads and one.writes for one in declared.files.values()):
        raise NotReusable("it changes what it is given")
    for parameter, kind in declared.files.items():
        _refuse_unknown_files(call, parameter, kind)
    if declared.outputs == STREAM:
        raise NotReusable("its outputs are a stream")
    group = current_group(session)
    rule = declared.on_failure or (group and group.on_failure) or session.on_failure
    if rule == "ignore":
        raise NotReusable("with on_failure='ignore' what it gives may be None in place of a result")


def _refuse_unknown_files(call: Call, parameter: str, kind: FileKind) -> None:
    """Refuse paths of which nothing is known at the call: those of futures, of large directories, and addresses.

    The value of a command is the path of what it writes, which its lineage covers. The value of a task that writes files
    most often is, too; as it may be any other, what was read is noted with the result.
    """
    known = sorted(one.path for one in call.files if one.parameter == parameter)
    for one in _paths(call, parameter):
        if isinstance(one, Future) and kind.reads and one.call.writes_files:
            if kind.pattern and one.call.declared.command is None:
                raise NotReusable(
                    f"its {kind.name} {parameter!r} is the value of a future, so that it is not known which files match"
                )
            continue
        start = None if isinstance(one, Future) else os.fspath(one)
        # In order, those that begin with it come right after where it would be.
        found = known if kind.pattern else known[bisect_left(known, start or "") :]
        if start is None or not found or not (kind.pattern or found[0].startswith(start)):
            words = "the value of a future" if start is None else start
            raise NotReusable(f"its {kind.name} {parameter!r} is {words}, of which nothing is known at the call")


def makers_of_paths(call: Call) -> list[Future]:
    """List the futures that a call is given as paths of what it reads, of tasks that write files."""
    reads = [parameter for parameter, kind in call.declared.files.items() if kind.reads]
    given = [one for name in reads for one in _paths(call, name)]
    return [one for one in given if isinstance(one, Future) and one.call.writes_files]


def _paths(call: Call, parameter: str) -> list[Any]:
    place = call.place(parameter)
    if place is not None:
        given = [call.get(place)]
    else:  # as in ``*paths`` and ``**paths``: whatever has no parameter of its own
        positions = call.declared.positions
        others = [value for name, value in call.keywords.items() if name not in positions]
        given = [*call.arguments[len(positions) :], *others]
    flat = [one for some in given for one in (some if isinstance(some, (list, tuple)) else [some])]
    return [one for one in flat if isinstance(one, (Future, str, os.PathLike))]
