"""What a PyCOMPSs task does with its parameters: the names of ``pycompss.api.parameter``, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windrow.errors import NotYetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys of the dictionary form, such as ``{Type: FILE_IN, Prefix: "--in="}``.
Type = "type"
Direction = "direction"
StdIOStream = "stream"
Prefix = "prefix"
Depth = "depth"
Weight = "weight"
Keep_rename = "keep_rename"
Cache = "cache"
#: These say where data should be, or what it is called there: the answer is the same without them.
_HARMLESS = {Weight, Keep_rename, Cache}

STREAMS = ("STDIN", "STDOUT", "STDERR")
PATH_KINDS = ("FILE", "DIRECTORY")
COLLECTION_KINDS = ("COLLECTION", "DICTIONARY", "COLLECTION_FILE")


@dataclass(frozen=True, slots=True)
class Parameter:
    """How a task uses a parameter."""

    kind: str = "OBJECT"  #: OBJECT, FILE, DIRECTORY, COLLECTION, DICTIONARY, COLLECTION_FILE or STREAM
    direction: str = "IN"
    stream: str = ""  #: of a command line: STDIN, STDOUT or STDERR
    prefix: str = ""  #: of a command line: what stands before the value
    depth: int = 1  #: of a collection: how deep its elements are; what they contain is part of them

    @property
    def reads(self) -> bool:
        return self.direction != "OUT"

    @property
    def writes(self) -> bool:
        return self.direction not in ("IN", "IN_DELETE")


def _aliases() -> dict[str, Parameter]:
    plain = ("IN", "OUT", "INOUT", "CONCURRENT", "COMMUTATIVE", "IN_DELETE")
    found = {one: Parameter("OBJECT", one) for one in plain}
    directions = {
        "FILE": ("IN", "OUT", "INOUT", "CONCURRENT", "COMMUTATIVE"),
        "DIRECTORY": ("IN", "OUT", "INOUT"),
        "COLLECTION": ("IN", "OUT", "INOUT", "IN_DELETE"),
        "COLLECTION_FILE": ("IN", "OUT", "INOUT"),
        "DICTIONARY": ("IN", "OUT", "INOUT", "IN_DELETE"),
    }
    for kind, ways in directions.items():
        found[kind] = Parameter(kind)
        found.update({f"{kind}_{way}": Parameter(kind, way) for way in ways})
    for way in directions["FILE"]:
        found.update({f"FILE_{way}_{one}": Parameter("FILE", way, one) for one in STREAMS})
    for one, way in zip(STREAMS, ("IN", "OUT", "OUT"), strict=True):
        found[f"FILE_{one}"] = Parameter("FILE", way, one)
        found[one] = Parameter("FILE", way, one)
    found.update({f"STREAM_{way}": Parameter("STREAM", way) for way in ("IN", "OUT")})
    return found


ALIASES: Mapping[str, Parameter] = _aliases()
IN, INOUT = ALIASES["IN"], ALIASES["INOUT"]


def parameter_of(task: str, name: str, said: Any) -> Parameter:
    if isinstance(said, Parameter):
        found = said
    elif isinstance(said, dict):
        found = _of_dictionary(task, name, said)
    else:
        raise UsageError(
            f"task {task!r}: {name}= is a name of pycompss.api.parameter, such as INOUT or FILE_OUT, or a dictionary such as "
            f"{{Type: FILE_IN, Prefix: '--in='}}; got {said!r}"
        )
    if found.kind == "STREAM":
        raise NotYetError(
            f"task {task!r}: parameter {name!r} is a distributed stream, which Windrow does not have yet; a task with "
            'outputs="stream" (wr.task) gives results one by one'
        )
    return found


def _of_dictionary(task: str, name: str, said: dict[Any, Any]) -> Parameter:
    unknown = [one for one in said if one not in {Type, Direction, StdIOStream, Prefix, Depth, *_HARMLESS}]
    if unknown:
        raise UsageError(f"task {task!r}: parameter {name!r} has no property {unknown[0]!r}")
    found = parameter_of(task, name, said.get(Type, IN))
    if Direction in said:
        found = replace(found, direction=parameter_of(task, name, said[Direction]).direction)
    if StdIOStream in said:
        stream = said[StdIOStream]
        found = replace(found, stream=stream.stream if isinstance(stream, Parameter) else str(stream))
    return replace(found, prefix=str(said.get(Prefix, "")), depth=int(said.get(Depth, 1)))
