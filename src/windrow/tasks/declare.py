"""``@wr.task``: a plain function that becomes a task where a session is open, and stays a function everywhere else."""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, overload

from windrow.core.records import Needs
from windrow.errors import UsageError, nearest
from windrow.tasks.accepting import Accepts, check_call
from windrow.tasks.body import STREAM, is_generator, run_body
from windrow.tasks.current import current
from windrow.tasks.file_kinds import FileKind, file_parameters
from windrow.tasks.option_checks import check_numbers, check_on_failure, checked_needs
from windrow.tasks.resident import Resident, made_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.tasks.command import Command

__all__ = ["Declared", "InOut", "Task", "task"]

#: What becomes of the other tasks when one fails for good.
OnFailure = Literal["stop", "ignore", "cancel_successors", "retry"]
#: Whether identical calls are one task; "content": also those that are given arrays, by what is in them.
Reuse = bool | Literal["content"]
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
    reuse: Reuse | None = None  #: None: as the session says
    version: str = ""
    inout: tuple[str, ...] = ()  #: parameters that the body changes
    files: Mapping[str, FileKind] = field(default_factory=dict)  #: parameters that are paths of dependencies
    positions: Mapping[str, int] = field(default_factory=dict, repr=False)  #: of parameters, by name
    resident: tuple[str, ...] = ()  #: parameters that each worker makes once
    command: Command | None = None  #: a command line instead of Python


class Task:
    """A function that may run elsewhere; made by ``wr.task``."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self._accepts = Accepts(declared.function)
        functools.update_wrapper(self, declared.function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Inside a session, promise what the function will return; outside, just call it."""
        session = current.get()
        if session is not None:
            right, count = self._accepts, len(arguments)
            if not (right.named(count, keywords) if keywords else right.least <= count <= right.most):
                check_call(self.declared.name, self.declared.function, arguments, keywords)
            return session.call(self.declared, arguments, keywords)
        return self.plainly(arguments, keywords)

    def plainly(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run the body here and now; what it changes is changed."""
        declared = self.declared
        if declared.resident:
            keywords = {**keywords, **self._made_here(arguments, keywords)}
        if declared.outputs == STREAM and is_generator(declared.function):
            return declared.function(*arguments, **keywords)
        made = run_body(declared.name, declared.function, arguments, keywords, declared.outputs)
        if declared.outputs == 1:
            return made[0]
        return tuple(value for _, value in sorted(made.items()))

    def _made_here(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Make what the caller has not given, if it was not made before."""
        declared, last = self.declared, len(arguments)
        missing = [one for one in declared.resident if one not in keywords]
        missing = [one for one in missing if declared.positions.get(one, last) >= last]
        return made_here(declared.name, declared.function, tuple(missing))

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
    memory = amounts.pop("memory", None)
    return {
        "outputs": declared.outputs,
        "cores": amounts.pop("cores", 0),
        "memory": None if memory is None else f"{memory} B",
        "gpus": amounts.pop("gpu", 0),
        "resources": amounts,
        "priority": declared.priority,
        "deadline": declared.deadline,
        "on_failure": declared.on_failure,
        "retries": None if declared.on_failure is None else declared.retries,
        "restartable": declared.restartable,
        "reuse": declared.reuse,
        "version": declared.version,
        "inout": declared.inout,
        "name": declared.name,
    }


class TaskOptions(TypedDict, total=False):
    """What may be said of a task; ``task`` says what it means."""

    outputs: int | str | None
    cores: float
    memory: str | float | None
    gpus: float
    resources: Mapping[str, float] | None
    priority: int
    deadline: float | None
    on_failure: OnFailure | None
    retries: int | None
    restartable: bool
    reuse: Reuse | None
    version: str
    inout: str | tuple[str, ...]
    name: str | None


_DEFAULTS: TaskOptions = {
    "outputs": None,
    "cores": 1,
    "memory": None,
    "gpus": 0,
    "resources": None,
    "priority": 0,
    "deadline": None,
    "on_failure": None,
    "retries": None,
    "restartable": True,
    "reuse": None,
    "version": "",
    "inout": (),
    "name": None,
}


@overload
def task(function: Callable[..., Any], /, **options: Unpack[TaskOptions]) -> Task: ...
@overload
def task(**options: Unpack[TaskOptions]) -> Callable[[Callable[..., Any]], Task]: ...
def task(function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
    """Declare a function as a task.

    Options
    -------
    outputs
        How many things it makes. A call gives as many futures; with "stream" an iterator of futures. A generator's
        outputs are released as they are yielded; without a number they are a stream.
    cores, memory, gpus, resources
        What it needs while it runs; ``resources`` are amounts of what ``Session(resources=...)`` has. A task that exceeds
        its memory in a process is ended, and tried once more with twice as much.
    priority, deadline
        Higher ones run first; a task that is not done so many seconds after its call has failed.
    on_failure
        "cancel_successors": what needs it fails too; "stop": the session ends; "ignore": its outputs are None;
        "retry": try again, ``retries`` times, as ``retries`` alone says. Without it the group or session decides.
    restartable
        Whether a second run makes the same outputs again, so that what was released stays valid.
    reuse, version
        Whether identical calls are one task; change ``version`` when the function means something else.
    inout
        Parameters that the body changes, as an annotation with ``wr.InOut`` says too.
    """
    if function is None:
        return lambda body: Task(_declared(body, {**options}))
    return Task(_declared(function, {**options}))


def _declared(function: Callable[..., Any], asked: dict[str, Any]) -> Declared:
    unknown = [one for one in asked if one not in _DEFAULTS]
    if unknown:
        raise UsageError(
            f"wr.task has no option {unknown[0]!r}{nearest(unknown[0], list(_DEFAULTS))}; it has {', '.join(_DEFAULTS)}"
        )
    options: dict[str, Any] = {**_DEFAULTS, **asked}
    name = options.pop("name") or getattr(function, "__qualname__", None) or repr(function)
    _check(name, function, options["on_failure"], options["reuse"])
    check_numbers(name, options)
    parameters = _parameters(function)
    needs = [options.pop(one) for one in ("cores", "memory", "gpus", "resources")]
    outputs, inout = options.pop("outputs"), options.pop("inout")
    if options["retries"] is None:
        del options["retries"]
    elif options["on_failure"] is None:
        options["on_failure"] = "retry"  # what else could be meant
    return Declared(
        name=name,
        function=function,
        outputs=_outputs(name, function, outputs),
        needs=Needs.of(checked_needs(name, *needs)),
        inout=_changed(name, parameters, inout),
        files=file_parameters(function),
        positions=_positions(parameters),
        resident=tuple(n for n, one in parameters.items() if isinstance(one.default, Resident)),
        **options,
    )


def _check(name: str, function: Any, on_failure: Any, reuse: Any) -> None:
    if not callable(function):
        raise UsageError(f"wr.task is put on a function, got {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"task {name!r} is an async function, of which a call gives no value but a coroutine; make it a plain function "
            "that calls asyncio.run(...)"
        )
    check_on_failure(f"task {name!r}", on_failure)
    if reuse not in (None, True, False, "content"):
        raise UsageError(
            f"task {name!r}: reuse= is True, False or 'content' (which looks into arrays too), got {reuse!r}"
        )


def _outputs(name: str, function: Callable[..., Any], outputs: int | str | None) -> int | str:
    if outputs is None:
        return STREAM if is_generator(function) else 1
    if outputs == STREAM or (isinstance(outputs, int) and outputs > 0):
        return outputs
    raise UsageError(
        f'task {name!r}: outputs= is a number from 1 on, or "stream" where that is not known; got {outputs!r}'
    )


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (ValueError, TypeError):  # some builtins do not tell
        return {}


def _positions(parameters: Mapping[str, inspect.Parameter]) -> dict[str, int]:
    """Say where arguments of parameters are in a call, unless they are given by name."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {one.name: number for number, one in enumerate(parameters.values()) if one.kind in plain}


def _changed(name: str, parameters: Mapping[str, inspect.Parameter], inout: str | tuple[str, ...]) -> tuple[str, ...]:
    """Find the parameters that the body changes."""
    wanted = (inout,) if isinstance(inout, str) else tuple(inout)
    for one in wanted:
        if parameters and one not in parameters:
            raise UsageError(f"task {name!r}: inout= names {one!r}, but it has no such parameter")
    marked = [one.name for one in parameters.values() if _is_inout(one.annotation)]
    return tuple(dict.fromkeys((*wanted, *marked)))


def _is_inout(annotation: Any) -> bool:
    """Whether it says so, also as text under any name of the package, or beside others: ``Annotated[dict, wr.InOut]``."""
    if isinstance(annotation, str):
        return re.search(r"\bInOut\b", annotation) is not None
    return annotation is InOut or any(_is_inout(one) for one in get_args(annotation))
