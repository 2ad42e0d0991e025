"""Decorators beside ``@task``; they may stand above or below it, and note what they say for the task.

Those whose machinery Windrow does not have yet say so, and what to do instead.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NoReturn

from windrow.errors import NotYetError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.tasks.declare import OnFailure

#: Attribute of a function that ``@task`` has not seen yet.
NOTES = "__windrow_pycompss__"
#: What becomes of a program when a task fails: what PyCOMPSs calls it, and what Windrow does.
RULES: Mapping[str, OnFailure] = {
    "RETRY": "retry",
    "IGNORE": "ignore",
    "CANCEL_SUCCESSORS": "cancel_successors",
    "FAIL": "stop",
}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_BANDWIDTH = "storagebw"
_CONSTRAINTS = {
    "computingunits", "memorysize", "processors", "processortype", _BANDWIDTH,
    # About the machine that is chosen: there is one, and the answer is the same.
    "processorname", "processorspeed", "processorarchitecture", "processorpropertyname",
    "processorpropertyvalue", "processorinternalmemorysize", "memorytype", "storagesize", "storagetype",
    "operatingsystemtype", "operatingsystemdistribution", "operatingsystemversion", "appsoftware",
    "hostqueues", "wallclocklimit", "islocal",
}  # fmt: skip


def _noting(decorator: str, options: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Make a decorator that notes what was said, for the task that the function is or becomes."""

    def note(thing: Any) -> Any:
        if hasattr(thing, "with_note"):
            return thing.with_note(decorator, dict(options))
        if not callable(thing) or isinstance(thing, type):
            raise UsageError(f"@{decorator} is put on a function together with @task, got {thing!r}")
        setattr(thing, NOTES, {**getattr(thing, NOTES, {}), decorator: dict(options)})
        return thing

    return note


def constraint(**said: Any) -> Callable[[Any], Any]:
    """Say what a task needs: ``computing_units`` are cores, ``memory_size`` is in gigabytes; values may be "$VARIABLE"."""
    options = {}
    for name, value in said.items():
        key = name.lower().replace("_", "")
        if key not in _CONSTRAINTS:
            raise UsageError(f"@constraint has no {name!r}{nearest(key, _CONSTRAINTS)}")
        if key == _BANDWIDTH:
            raise NotYetError(
                f"@constraint({name}={value!r}): bandwidth of storage as a resource does not exist yet in Windrow; leave it "
                "out to run the task without a limit"
            )
        options[key] = value
    return _noting("constraint", options)


def IO() -> Callable[[Any], Any]:  # noqa: N802 - the name that programs have
    """Say that a task reads and writes rather than computes: it needs no core."""
    return _noting("IO", {})


def on_failure(*, management: str = "RETRY", **defaults: Any) -> Callable[[Any], Any]:
    """Say what happens if a task fails, and what its parameters and ``returns`` are then."""
    rule_of("on_failure", management)
    return _noting("on_failure", {"management": management, "defaults": defaults})


def rule_of(task: str, said: Any) -> OnFailure:
    found = RULES.get(str(said).upper())
    if found is None:
        raise UsageError(
            f"task {task!r}: on_failure is one of {', '.join(RULES)}; got {said!r}{nearest(str(said), RULES)}"
        )
    return found


def reduction(*, chunk_size: int | str = 2) -> Callable[[Any], Any]:
    """Say that a task with one ``COLLECTION_IN`` can be called for parts of it, of so many elements."""
    return _noting("reduction", {"chunk_size": chunk_size})


def binary(
    *,
    binary: str,
    args: str = "",
    working_dir: str = "",
    fail_by_exit_value: bool | str = False,
    engine: str = "",
    image: str = "",
) -> Callable[[Any], Any]:
    """Say that a task runs a program; ``{{name}}`` in ``args`` is the value of a parameter."""
    if engine or image:
        container()
    return _noting(
        "binary", {"program": binary, "template": args, "directory": working_dir, "fails": fail_by_exit_value}
    )


def from_environment(said: Any) -> Any:
    """Put the environment's values where "$NAME" or "${NAME}" stands; what is no text is given as it is."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise UsageError(f"{said} was asked for, but the environment has no {name}")
        return os.environ[name]

    return _VARIABLE.sub(value, said) if isinstance(said, str) else said


def _not_yet(name: str, what: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotYetError(f"@{name}: {what} do not exist yet in Windrow; {instead}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not yet: {what}."
    return refuse


_COMMAND = "a program on one machine is @binary, or wr.command"
compss = _not_yet("compss", "workflows inside a task", "call their tasks from this program")
container = _not_yet("container", "tasks in containers", "call the container's engine with @binary")
data_transformation = _not_yet("data_transformation", "conversions of arguments", "call a task that converts")
decaf = _not_yet("decaf", "tasks of Decaf", _COMMAND)
epilog = _not_yet("epilog", "programs after a task", "call them with @binary")
http = _not_yet("http", "tasks that are requests", "ask for the address in the body of a task")
implement = _not_yet("implement", "several implementations of a task", "call the one that you want")
julia = _not_yet("julia", "tasks in Julia", _COMMAND)
mpi = _not_yet("mpi", "tasks of several MPI ranks", _COMMAND)
mpmd_mpi = _not_yet("mpmd_mpi", "tasks of several MPI programs", _COMMAND)
multinode = _not_yet("multinode", "tasks on several machines", _COMMAND)
ompss = _not_yet("ompss", "tasks of OmpSs", _COMMAND)
opencl = _not_yet("opencl", "tasks of OpenCL", "use a library for it in the body of a task")
prolog = _not_yet("prolog", "programs before a task", "call them with @binary")
software = _not_yet("software", "tasks that a file describes", "write the decorators down")
