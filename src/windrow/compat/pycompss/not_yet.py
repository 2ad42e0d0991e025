"""Decorators of PyCOMPSs whose machinery Windrow does not have yet: they say so, and what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from windrow.errors import NotYetError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "compss",
    "container",
    "data_transformation",
    "decaf",
    "epilog",
    "http",
    "implement",
    "julia",
    "mpi",
    "mpmd_mpi",
    "multinode",
    "ompss",
    "opencl",
    "prolog",
    "software",
]


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
