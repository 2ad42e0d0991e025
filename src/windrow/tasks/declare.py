"""``@wr.task``: a plain function that becomes a task where a session is open, and stays a function everywhere else."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

from windrow.core.records import Needs
from windrow.errors import UsageError
from windrow.tasks.body import STREAM, is_generator, run_body
from windrow.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Declared", "InOut", "Task", "task"]

#: What becomes of the other tasks when one fails for good.
OnFailure = Literal["stop", "ignore", "cancel_successors", "retry"]
ON_FAILURE = ("stop", "ignore", "cancel_successors", "retry")
#: Times that a task is tried again with ``on_failure="retry"``.
RETRIES = 2


class InOut:
    """Annotation of a parameter that the body changes: tasks called later get the changed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What is known of a task before it is called."""

    name: str
    function: Callable[..., Any] = field(repr=False)
    outputs: int | str = 1
    needs: Needs
    priority: int = 0
    deadline: float | None = None  #: seconds from the call
    on_failure: OnFailure | None = None  #: None: as the group or session says
    retries: int = RETRIES
    restartable: bool = True
    reuse: bool | None = None
    version: str = ""
    inout: tuple[str, ...] = ()  #: parameters that the body changes
    resident: tuple[str, ...] = ()  #: parameters that each worker makes once


class Task:
    """A function that may run elsewhere; made by ``wr.task``."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        functools.update_wrapper(self, declared.function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Inside a session, promise what the function will return; outside, just call it."""
        from windrow.tasks.current import current_session

        session = current_session()
        if session is not None:
            return session.call(self.declared, arguments, keywords)
        return self.plainly(arguments, keywords)

    def plainly(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run the body here and now; what it changes is changed."""
        declared = self.declared
        if declared.outputs == STREAM and is_generator(declared.function):
            return declared.function(*arguments, **keywords)
        made = run_body(declared.name, declared.function, arguments, keywords, declared.outputs)
        if declared.outputs == 1:
            return made[0]
        return tuple(value for _, value in sorted(made.items()))

    def options(self, **changes: Any) -> Task:
        """Give the same task with other options."""
        return task(self.declared.function, **{**_asked(self.declared), **changes})

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<task {self.declared.name!r}>"


def _asked(declared: Declared) -> dict[str, Any]:
    amounts = dict(declared.needs.amounts)
    amounts.pop("slot", None)
    return {
        "outputs": declared.outputs,
        "cores": amounts.pop("cores", 0),
        "memory": amounts.pop("memory", None),
        "gpus": amounts.pop("gpu", 0),
        "resources": amounts,
        "priority": declared.priority,
        "deadline": declared.deadline,
        "on_failure": declared.on_failure,
        "retries": declared.retries,
        "restartable": declared.restartable,
        "reuse": declared.reuse,
        "version": declared.version,
        "inout": declared.inout,
        "name": declared.name,
    }


@overload
def task(function: Callable[..., Any], /) -> Task: ...
@overload
def task(function: None = None, /, **options: Any) -> Callable[[Callable[..., Any]], Task]: ...
@overload
def task(function: Callable[..., Any], /, **options: Any) -> Task: ...


def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    outputs: int | str | None = None,
    cores: float = 1,
    memory: str | float | None = None,
    gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    priority: int = 0,
    deadline: float | None = None,
    on_failure: OnFailure | None = None,
    retries: int | None = None,
    restartable: bool = True,
    reuse: bool | None = None,
    version: str = "",
    inout: str | tuple[str, ...] = (),
    name: str | None = None,
) -> Any:
    """Declare a function as a task.

    Parameters
    ----------
    outputs
        How many things it makes. A call gives as many futures; with "stream" an iterator of futures. A generator's
        outputs are released as they are yielded; without a number they are a stream.
    cores, memory, gpus, resources
        What it needs while it runs; ``resources`` are amounts of what ``Session(resources=...)`` has.
    priority, deadline
        Higher ones run first; a task that is not done so many seconds after its call has failed.
    on_failure
        "cancel_successors": what needs it fails too; "stop": the session ends; "ignore": its outputs are None;
        "retry": try again, ``retries`` times. Without it the group or session decides.
    restartable
        Whether a second run makes the same outputs again, so that what was released stays valid.
    reuse, version
        Whether identical calls are one task; change ``version`` when the function means something else.
    inout
        Parameters that the body changes, as an annotation with ``wr.InOut`` says too.
    """
    if function is None:
        options = dict(locals())
        del options["function"]
        return lambda body: task(body, **options)
    name = name or getattr(function, "__qualname__", None) or repr(function)
    _check(name, function, on_failure)
    return Task(
        Declared(
            name=name,
            function=function,
            outputs=_outputs(name, function, outputs),
            needs=_needs(cores, memory, gpus, resources),
            priority=priority,
            deadline=deadline,
            on_failure=on_failure,
            retries=RETRIES if retries is None else retries,
            restartable=restartable,
            reuse=reuse,
            version=version,
            inout=_changed(name, function, inout),
        )
    )


def _check(name: str, function: Any, on_failure: Any) -> None:
    if not callable(function):
        raise UsageError(f"wr.task is put on a function, got {function!r}")
    if on_failure is not None and on_failure not in ON_FAILURE:
        raise UsageError(f"task {name!r}: on_failure is one of {ON_FAILURE}, got {on_failure!r}")


def _needs(
    cores: float,
    memory: str | float | None,
    gpus: float,
    resources: Mapping[str, float] | None,
) -> Needs:
    needs = {"cores": cores, "gpu": gpus, **(resources or {})}
    if memory is not None:
        needs["memory"] = parse_bytes(memory) if isinstance(memory, str) else memory
    return Needs.of(needs)


def _outputs(name: str, function: Callable[..., Any], outputs: int | str | None) -> int | str:
    if outputs is None:
        return STREAM if is_generator(function) else 1
    if outputs == STREAM or (isinstance(outputs, int) and outputs > 0):
        return outputs
    raise UsageError(
        f'task {name!r}: outputs= is a number from 1 on, or "stream" where that is not known; got {outputs!r}'
    )


def _changed(
    name: str, function: Callable[..., Any], inout: str | tuple[str, ...]
) -> tuple[str, ...]:
    """Find the parameters that the body changes."""
    wanted = (inout,) if isinstance(inout, str) else tuple(inout)
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):  # some builtins do not tell
        return ()
    for one in wanted:
        if one not in parameters:
            raise UsageError(f"task {name!r}: inout= names {one!r}, but it has no such parameter")
    marked = [
        one.name
        for one in parameters.values()
        if one.annotation is InOut or one.annotation in ("InOut", "wr.InOut")
    ]
    return tuple(dict.fromkeys((*wanted, *marked)))
