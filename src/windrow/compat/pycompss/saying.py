"""What is said of a task, by ``@task`` and the decorators around it, understood and checked."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.binaries import Binary
from windrow.compat.pycompss.failing import rule_of
from windrow.compat.pycompss.needs import from_environment, needs_of
from windrow.compat.pycompss.parameters import COLLECTION_KINDS, IN, INOUT, PATH_KINDS, Parameter, parameter_of
from windrow.compat.pycompss.returning import NOT_SAID, Returns, returns_of
from windrow.errors import NotYetError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.core.records import Needs
    from windrow.tasks.declare import OnFailure

__all__ = ["Said", "understood"]

#: Options of ``@task`` that change something here.
_USED = (
    "returns", "priority", "time_out", "on_failure", "defaults", "target_direction", "varargs_type",
    "is_reduce", "chunk_size",
)  # fmt: skip
#: About where a task runs and what is recorded of it: the answer is the same.
_HARMLESS = ("cache_returns", "is_replicated", "is_distributed", "tracing_hook")
#: With these values they mean nothing.
_ONLY = {"computing_nodes": (1, "1"), "processes_per_node": (1, "1")}
_COMPILING = ("numba", "numba_flags", "numba_signature", "numba_declaration")
_KNOWN = {*_USED, *_HARMLESS, *_ONLY, *_COMPILING}
_OLD_NAMES = {
    "isReplicated": "is_replicated", "isDistributed": "is_distributed", "computingNodes": "computing_nodes",
    "targetDirection": "target_direction", "varargsType": "varargs_type", "timeOut": "time_out",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is known of a task."""

    name: str
    body: Callable[..., Any]
    returns: Returns
    needs: Needs
    rule: OnFailure
    priority: int = 0
    time_out: float = 0.0
    chunk_size: int = 0  #: of a reduction
    positional: tuple[str, ...] = ()
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    others: Parameter = IN  #: of ``*args``
    defaults: Mapping[str, Any] = field(default_factory=dict)  #: of a failed task
    #: What the body takes where nothing is given, as far as a task reads or changes it by its name.
    left_out: Mapping[str, Any] = field(default_factory=dict)

    def at(self, number: int) -> Parameter:
        """Say how the argument at a position is used."""
        if number < len(self.positional):
            return self.named(self.positional[number])
        return self.others

    def name_at(self, number: int) -> str:
        """Give the name of the argument at a position."""
        return self.positional[number] if number < len(self.positional) else f"*args[{number}]"

    def named(self, name: str) -> Parameter:
        """Say how an argument is used that is given by its name."""
        return self.parameters.get(name, IN)


def understood(
    function: Callable[..., Any],
    signature: inspect.Signature,
    options: Mapping[str, Any],
    notes: Mapping[str, Mapping[str, Any]],
) -> Said:
    """Understand all that is said of a task."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"task {name!r} is a generator, which PyCOMPSs tasks cannot be: use wr.task, which releases what is yielded"
        )
    options = {_OLD_NAMES.get(one, one): value for one, value in options.items()}
    kinds = inspect.Parameter
    positional = tuple(
        one.name
        for one in signature.parameters.values()
        if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    )
    takes_any = any(one.kind is kinds.VAR_KEYWORD for one in signature.parameters.values())
    parameters = {
        one: parameter_of(name, one, value)
        for one, value in options.items()
        if (one in signature.parameters or takes_any) and (one not in _KNOWN or isinstance(value, Parameter))
    }
    _check(name, options, parameters, signature)
    if positional[:1] == ("self",) and "self" not in parameters:
        target = options.get("target_direction", INOUT)
        parameters["self"] = parameter_of(name, "target_direction", target)
    failing = notes.get("on_failure", {})
    binary = notes.get("binary")
    runs = function if binary is None else Binary(name, function, parameters, positional, **binary)
    rule = rule_of(name, failing.get("management", options.get("on_failure", "RETRY")))
    defaults = {**options.get("defaults", {}), **failing.get("defaults", {})}
    _check_defaults(name, rule, defaults, parameters, signature)
    returns = options.get("returns", NOT_SAID)
    if binary is not None and returns is NOT_SAID:
        returns = 0
    return Said(
        name=name,
        body=runs,
        returns=returns_of(name, function, returns),
        needs=needs_of(name, notes),
        rule=rule,
        priority=int(bool(options.get("priority", False))),
        time_out=float(from_environment(options.get("time_out", 0))),
        chunk_size=_chunk_size(options, notes),
        positional=positional,
        parameters=parameters,
        others=parameter_of(name, "varargs_type", options.get("varargs_type", IN)),
        defaults=defaults,
        left_out=_left_out(signature, parameters),
    )


def _left_out(signature: inspect.Signature, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    return {
        name: one.default
        for name, one in signature.parameters.items()
        if name in parameters
        and (parameters[name].kind != "OBJECT" or parameters[name].writes)
        and one.default is not inspect.Parameter.empty
        and one.default is not None
    }


def _check_defaults(
    name: str,
    rule: OnFailure,
    defaults: Mapping[str, Any],
    parameters: Mapping[str, Parameter],
    signature: inspect.Signature,
) -> None:
    for one in defaults:
        if one != "returns" and one not in signature.parameters:
            raise UsageError(
                f"task {name!r}: what a failed task leaves is said of {one!r}, which is no parameter"
                f"{nearest(one, {'returns', *signature.parameters})}"
            )
        kind = parameters.get(one, IN).kind
        if kind in COLLECTION_KINDS or (kind in PATH_KINDS and rule == "cancel_successors"):
            raise NotYetError(
                f"task {name!r}: {one}= of on_failure: a failed task cannot leave a collection yet, and files only with IGNORE"
            )


def _check(name: str, options: Mapping[str, Any], parameters: Mapping[str, Any], signature: inspect.Signature) -> None:
    for one, value in options.items():
        if one in parameters:
            continue
        if one not in _KNOWN:
            raise UsageError(
                f"task {name!r} has neither a parameter nor an option {one!r}"
                f"{nearest(one, _KNOWN | set(signature.parameters))}"
            )
        if one in _COMPILING and value:
            raise NotYetError(
                f"task {name!r}: {one}= would have the function compiled, which is not done yet; put @numba.njit on it"
            )
        if one in _ONLY and value not in _ONLY[one]:
            raise NotYetError(f"task {name!r}: {one}={value!r}: tasks on several machines do not exist yet in Windrow")


def _chunk_size(options: Mapping[str, Any], notes: Mapping[str, Mapping[str, Any]]) -> int:
    """Say into how large parts a reduction is cut; 0 if the task is none."""
    said = notes.get("reduction", {}).get("chunk_size")
    if said is None and options.get("is_reduce"):
        said = options.get("chunk_size", 0)
    return 0 if said is None else int(from_environment(said))
