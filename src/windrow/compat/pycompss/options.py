"""What a task is told, understood and checked: the names of ``pycompss.api.parameter``, and the options of ``@task``."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import shlex
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from windrow.compat.pycompss.decorators import from_environment, rule_of
from windrow.core.records import IO as IO_PLACE
from windrow.core.records import Needs
from windrow.errors import NotYetError, TaskError, UsageError, nearest
from windrow.tasks.commands.command import circumstances
from windrow.tasks.commands.run import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windrow.tasks.declare import OnFailure


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
_ABOUT_PLACES = {Weight, Keep_rename, Cache}

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


#: What decorators beside ``@task`` say, by decorator; parameters by name.
Notes = Mapping[str, Mapping[str, Any]]
Parameters = Mapping[str, Parameter]


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


ALIASES: Parameters = _aliases()
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
    unknown = [one for one in said if one not in {Type, Direction, StdIOStream, Prefix, Depth, *_ABOUT_PLACES}]
    if unknown:
        raise UsageError(f"task {task!r}: parameter {name!r} has no property {unknown[0]!r}")
    found = parameter_of(task, name, said.get(Type, IN))
    if Direction in said:
        found = replace(found, direction=parameter_of(task, name, said[Direction]).direction)
    if StdIOStream in said:
        stream = said[StdIOStream]
        found = replace(found, stream=stream.stream if isinstance(stream, Parameter) else str(stream))
    return replace(found, prefix=str(said.get(Prefix, "")), depth=int(said.get(Depth, 1)))


# -- the options of a task


GIGABYTE = 1_000_000_000
#: Options of ``@task`` that change something here.
_USED = (
    "returns", "priority", "time_out", "on_failure", "defaults", "target_direction", "varargs_type",
    "is_reduce", "chunk_size",
)  # fmt: skip
#: About where a task runs and what is recorded of it: the answer is the same.
_HARMLESS = ("cache_returns", "is_replicated", "is_distributed", "tracing_hook")
#: Options about several machines; with these values they mean nothing.
_NODES, _ONE = ("computing_nodes", "processes_per_node"), (1, "1")
_COMPILING = ("numba", "numba_flags", "numba_signature", "numba_declaration")
_KNOWN = {*_USED, *_HARMLESS, *_NODES, *_COMPILING}
_OLD_NAMES = {
    "isReplicated": "is_replicated", "isDistributed": "is_distributed", "computingNodes": "computing_nodes",
    "targetDirection": "target_direction", "varargsType": "varargs_type", "timeOut": "time_out",
}  # fmt: skip

#: One type for each value that a task returns; None where the type is not known.
Returns = tuple[type | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompssOptions:
    """All that is known of a task."""

    name: str
    body: Callable[..., Any]
    returns: Returns
    needs: Needs
    rule: OnFailure
    priority: int
    time_out: float
    chunk_size: int  #: of a reduction; 0 if it is none
    positional: tuple[str, ...]
    parameters: Parameters
    others: Parameter  #: of ``*args``
    defaults: Mapping[str, Any]  #: of a failed task
    #: What the body takes where nothing is given, as far as a task reads or changes it by its name.
    left_out: Mapping[str, Any]

    def name_at(self, place: int | str) -> str:
        if isinstance(place, str):
            return place
        return self.positional[place] if place < len(self.positional) else f"*args[{place}]"

    def parameter_at(self, place: int | str) -> Parameter:
        if isinstance(place, int) and place >= len(self.positional):
            return self.others
        return self.parameters.get(self.name_at(place), IN)


def read_options(
    function: Callable[..., Any], signature: inspect.Signature, options: Mapping[str, Any], notes: Notes
) -> CompssOptions:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"task {name!r} is a generator, which PyCOMPSs tasks cannot be: use wr.task, which releases what is yielded"
        )
    options = {_OLD_NAMES.get(one, one): value for one, value in options.items()}
    kinds = {one.name: one.kind for one in signature.parameters.values()}
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = tuple(one for one, kind in kinds.items() if kind in by_position)
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds.values()
    parameters = {
        one: parameter_of(name, one, value)
        for one, value in options.items()
        if (one in kinds or takes_any) and (one not in _KNOWN or isinstance(value, Parameter))
    }
    _check(name, {one: value for one, value in options.items() if one not in parameters}, kinds)
    if positional[:1] == ("self",) and "self" not in parameters:
        parameters["self"] = parameter_of(name, "target_direction", options.get("target_direction", INOUT))
    failing = notes.get("on_failure", {})
    rule = rule_of(name, failing.get("management", options.get("on_failure", "RETRY")))
    defaults = {**options.get("defaults", {}), **failing.get("defaults", {})}
    _check_defaults(name, rule, defaults, parameters, kinds)
    binary = notes.get("binary")
    reduces = notes.get("reduction") or (options if options.get("is_reduce") else {})
    if "returns" in options or binary is not None:
        returns = _returns(name, options.get("returns"), getattr(function, "__globals__", {}))
    else:
        returns = _inferred_returns(name, function)
    return CompssOptions(
        name=name,
        body=function if binary is None else Binary(name, function, parameters, **binary),
        returns=returns,
        needs=_needs(name, notes),
        rule=rule,
        priority=int(bool(options.get("priority", False))),
        time_out=float(from_environment(options.get("time_out", 0))),
        chunk_size=int(from_environment(reduces.get("chunk_size") or 0)),
        positional=positional,
        parameters=parameters,
        others=parameter_of(name, "varargs_type", options.get("varargs_type", IN)),
        defaults=defaults,
        left_out=_left_out(signature, parameters),
    )


def _left_out(signature: inspect.Signature, parameters: Parameters) -> dict[str, Any]:
    return {
        name: one.default
        for name, one in signature.parameters.items()
        if name in parameters
        and (parameters[name].kind != "OBJECT" or parameters[name].writes)
        and one.default is not inspect.Parameter.empty
        and one.default is not None
    }


def _check(name: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for one, value in options.items():
        if one not in _KNOWN:
            raise UsageError(
                f"task {name!r} has neither a parameter nor an option {one!r}{nearest(one, {*_KNOWN, *known})}"
            )
        if one in _COMPILING and value:
            raise NotYetError(
                f"task {name!r}: {one}= would have the function compiled, which is not done yet; put @numba.njit on it"
            )
        if one in _NODES and value not in _ONE:
            raise NotYetError(f"task {name!r}: {one}={value!r}: tasks on several machines do not exist yet in Windrow")


def _check_defaults(
    name: str, rule: OnFailure, defaults: Mapping[str, Any], parameters: Parameters, known: Mapping[str, Any]
) -> None:
    for one in defaults:
        if one != "returns" and one not in known:
            raise UsageError(
                f"task {name!r}: what a failed task leaves is said of {one!r}, which is no parameter"
                f"{nearest(one, {'returns', *known})}"
            )
        if rule == "cancel_successors" or parameters.get(one, IN).kind in (*COLLECTION_KINDS, *PATH_KINDS):
            raise NotYetError(
                f"task {name!r}: {one}= of on_failure: only a task with IGNORE can leave something yet, and no files or collections"
            )


# -- what it needs


def _needs(task: str, notes: Notes) -> Needs:
    said = notes.get("constraint", {})
    amounts = {"gpu": 0.0, "cores": 1.0}
    processors = [
        {name.lower().replace("_", ""): value for name, value in one.items()} for one in said.get("processors", ())
    ]
    if "computingunits" in said:
        processors.insert(0, dict(said))
    for one in processors:
        which = "gpu" if str(one.get("processortype", "CPU")).upper() == "GPU" else "cores"
        amounts[which] = _number(task, "computing_units", one.get("computingunits", 1))
    if "IO" in notes:
        amounts[IO_PLACE] = 1.0
        del amounts["cores"]
    if "memorysize" in said:
        amounts["memory"] = _number(task, "memory_size", said["memorysize"]) * GIGABYTE
    return Needs.of(amounts)


def _number(task: str, name: str, said: Any) -> float:
    value = from_environment(said)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if number < 0:
        raise UsageError(
            f'task {task!r}: @constraint({name}=...) is a number, got {value!r}; it may be "$VARIABLE" of the environment, but '
            "not the name of a global or of a parameter yet"
        )
    return number


# -- what it returns


def _returns(name: str, said: Any, names: Mapping[str, Any]) -> Returns:
    """Understand ``returns=``; ``names`` are the globals of the function."""
    if isinstance(said, str):
        if said.strip().isdecimal():
            said = int(said)
        elif isinstance(names.get(said), (int, type)):
            said = names[said]
        else:
            raise UsageError(
                f"task {name!r}: returns={said!r} is a number or the name of a global that is one (or a type); what depends on "
                "an argument is not known before the call: write the number, or return one list"
            )
    if said is None or said is False:
        return ()
    if isinstance(said, int):  # also True
        if said < 0:
            raise UsageError(f"task {name!r}: returns= is how many values it returns, got {said}")
        return (None,) * int(said)
    if isinstance(said, (list, tuple)):
        return tuple(_plain(one) for one in said)
    if isinstance(said, (type, Parameter, dict)) or get_origin(said) is not None:
        return (_plain(said),)
    raise UsageError(f"task {name!r}: returns= is a number, a type, or a tuple or list of types; got {said!r}")


def _plain(said: Any) -> type | None:
    return said if isinstance(said, type) and get_origin(said) is None else None


def _inferred_returns(name: str, function: Callable[..., Any]) -> Returns:
    annotations = getattr(function, "__annotations__", {})
    if "return" in annotations:
        return _annotated_returns(name, annotations["return"], getattr(function, "__globals__", {}))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # typed in, or made by a program: it may return something
        return (None,)
    values = [one.value for one in _return_statements(tree.body[0])]
    given = [one for one in values if one is not None and not (isinstance(one, ast.Constant) and one.value is None)]
    if not given:
        return ()
    lengths = {len(one.elts) if isinstance(one, ast.Tuple) else 1 for one in given}
    return (None,) * (lengths.pop() if len(lengths) == 1 else 1)


def _annotated_returns(name: str, said: Any, names: dict[str, Any]) -> Returns:
    if isinstance(said, str):  # from __future__ import annotations
        try:
            said = eval(said, names)  # noqa: S307 - what the interpreter would do
        except Exception:  # noqa: BLE001 - a name that only type checkers know
            return (None,)
    if get_origin(said) is tuple:
        inner = get_args(said)
        return (None,) if Ellipsis in inner else tuple(_plain(one) for one in inner)
    if said is None or isinstance(said, (list, tuple, int)):
        return _returns(name, said, names)
    return (_plain(said),)


def _return_statements(node: ast.AST) -> Iterator[ast.Return]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _return_statements(child)


# -- a task that runs a program

_PARAMETER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
#: The prefix of what is no argument of the program.
_HIDDEN = "#"
#: How much of what a program wrote is told when it fails.
_TOLD = 2000
#: Descriptors of this process, for what a program prints.
_STDOUT, _STDERR = 1, 2


class Binary:
    """What runs instead of the function; returns the exit value."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Parameters,
        *,
        program: str,
        template: str,
        directory: str,
        fails: bool | str,
    ) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        self._parameters = dict(parameters)
        self._program = from_environment(program)
        self._template = template
        self._directory = from_environment(directory)
        self._fails = str(from_environment(fails)).lower() in ("true", "1")
        unknown = [one for one in _PARAMETER.findall(template) if one not in self._signature.parameters]
        if unknown:
            raise UsageError(f"task {name!r}: args= of @binary names {unknown[0]!r}, which is no parameter")

    def __call__(self, *args: Any, **keywords: Any) -> int:
        bound = self._signature.bind(*args, **keywords)
        bound.apply_defaults()
        values = bound.arguments
        here = circumstances()
        with contextlib.ExitStack() as stack:
            modes = {"IN": "rb", "OUT": "wb"}
            streams = {
                one.stream.lower(): stack.enter_context(
                    Path(values[name]).open(modes.get(one.direction, "ab"))
                ).fileno()
                for name, one in self._parameters.items()
                if one.stream and values.get(name) is not None
            }
            said = Invocation(
                words=(self._filled(self._program, values), *self._words(values)),
                directory=self._filled(self._directory, values) or ".",
                environment={},
                memory=here.memory,
                unwanted=here.unwanted,
                stdin=streams.get("stdin", subprocess.DEVNULL),
                stdout=streams.get("stdout", _STDOUT),
                stderr=streams.get("stderr", None if self._fails else _STDERR),
            )
            ran = here.run(self._name, said)
        if ran.status and self._fails:
            told = ran.errors.decode(errors="replace")[-_TOLD:]
            raise TaskError(f"task {self._name!r}: {ran.command} ended with {ran.status}: {told}")
        return ran.status

    def _words(self, values: Mapping[str, Any]) -> list[str]:
        if self._template:
            return [self._filled(word, values) for word in shlex.split(self._template)]
        words = []
        for name, value in values.items():
            one = self._parameters.get(name, IN)
            if one.stream or value is None or name == "self" or one.prefix == _HIDDEN:
                continue
            many = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{one.prefix}{each}" for each in many]
        return words

    def _filled(self, text: str, values: Mapping[str, Any]) -> str:
        return _PARAMETER.sub(lambda found: str(values[found[1]]), text)
