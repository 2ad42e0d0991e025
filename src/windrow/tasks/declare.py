"""``@wr.task``: a plain function that becomes a task where a session is open, and stays a function everywhere else."""

from __future__ import annotations

import functools
import inspect
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, overload

from windrow.core.records import Needs
from windrow.errors import UsageError
from windrow.tasks.body import STREAM, is_generator, run_body
from windrow.tasks.files.annotations import FileKind, file_parameters, parameters_of
from windrow.tasks.options import check_names, check_options, task_needs
from windrow.tasks.resident import Resident, made_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.tasks.commands.command import Command
    from windrow.tasks.session import Session

#: The innermost session that was opened in this context: calls of tasks go to it. Threads begin with none: a task that is called in
#: the body of another one is its plain function.
current: ContextVar[Session | None] = ContextVar("windrow_session", default=None)

#: What becomes of the other tasks when one fails for good.
OnFailure = Literal["stop", "ignore", "cancel_successors", "retry"]
#: Whether identical calls are one task; "content": also those that are given arrays, by what is in them.
Reuse = bool | Literal["content"]
_IN_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Shapes of right calls that are remembered; with ``**keywords`` there is no end of them.
MOST_SHAPES = 100
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
    asked: Mapping[str, Any] = field(default_factory=dict, repr=False)  #: options as they were written


class Task:
    """A function that may run elsewhere; made by ``wr.task``."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self._accepts = AcceptedCalls(declared.function)
        functools.update_wrapper(self, declared.function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        session = current.get()
        if session is not None:
            if (len(arguments), *keywords) not in self._accepts.right:
                self._accepts.check(self.declared.name, arguments, keywords)
            return session.call(self.declared, arguments, keywords)
        return self.plainly(arguments, keywords)

    def plainly(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run the body here and now; what it changes is changed."""
        declared = self.declared
        if declared.resident:
            given = len(arguments)
            missing = [
                one for one in declared.resident if one not in keywords and declared.positions.get(one, given) >= given
            ]
            keywords = {**keywords, **made_here(declared.name, declared.function, missing)}
        if declared.outputs == STREAM and is_generator(declared.function):
            return declared.function(*arguments, **keywords)
        made = run_body(declared.name, declared.function, arguments, keywords, declared.outputs)
        if declared.outputs == 1:
            return made[0]
        return tuple(value for _, value in sorted(made.items()))

    def options(self, **changes: Any) -> Task:
        """Give the same task with other options."""
        return task(self.declared.function, **{**self.declared.asked, **changes})

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<task {self.declared.name!r}>"


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
        return lambda body: Task(_declare(body, options))
    return Task(_declare(function, options))


def _declare(function: Callable[..., Any], asked: TaskOptions) -> Declared:
    check_names("wr.task", asked, list(TaskOptions.__annotations__))
    name = asked.get("name") or getattr(function, "__qualname__", None) or repr(function)
    options: dict[str, Any] = {**asked}
    if not callable(function):
        raise UsageError(f"wr.task is put on a function, got {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"task {name!r} is an async function, of which a call gives no value but a coroutine; make it a plain function "
            "that calls asyncio.run(...)"
        )
    check_options(f"task {name!r}", **options)
    parameters = parameters_of(function)
    if options.get("retries") is None:
        options.pop("retries", None)
    elif options.get("on_failure") is None:
        options["on_failure"] = "retry"  # what else could be meant
    as_written = ("priority", "deadline", "on_failure", "retries", "restartable", "reuse", "version")
    return Declared(
        name=name,
        function=function,
        outputs=options.get("outputs") or (STREAM if is_generator(function) else 1),
        needs=Needs.of(task_needs(name, options)),
        inout=_changed(name, parameters, options.get("inout", ())),
        files=file_parameters(function),
        positions={one.name: n for n, one in enumerate(parameters.values()) if one.kind in _IN_ORDER},
        resident=tuple(n for n, one in parameters.items() if isinstance(one.default, Resident)),
        asked={**asked, "name": name},
        **{one: options[one] for one in as_written if one in options},
    )


def _changed(name: str, parameters: Mapping[str, inspect.Parameter], inout: str | tuple[str, ...]) -> tuple[str, ...]:
    wanted = (inout,) if isinstance(inout, str) else tuple(inout)
    for one in wanted:
        if parameters and one not in parameters:
            raise UsageError(f"task {name!r}: inout= names {one!r}, but it has no such parameter")
    marked = [one.name for one in parameters.values() if _is_inout(one.annotation)]
    return tuple(dict.fromkeys((*wanted, *marked)))


def _is_inout(annotation: Any) -> bool:
    """Whether it says so, also as text under any name of the package, or beside other annotations: ``Annotated[dict, wr.InOut]``."""
    if isinstance(annotation, str):
        return re.search(r"\bInOut\b", annotation) is not None
    return annotation is InOut or any(_is_inout(one) for one in get_args(annotation))


class AcceptedCalls:
    """Calls that a function accepts: a wrong one fails where it is made, as that of a plain function does, not in a worker.

    How many arguments come in order and which by name decides that, so Python is asked once for calls of one shape.
    """

    __slots__ = ("_function", "right")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.right: set[tuple[int | str, ...]] = set()  #: shapes of calls: arguments in order, and names of the others

    def __reduce__(self) -> Any:
        return AcceptedCalls, (self._function,)  # that it was called makes no task another one

    def check(self, name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """Raise what Python raises for a call that the function does not accept."""
        try:
            signature = inspect.signature(self._function)
        except (ValueError, TypeError):  # some builtins do not tell
            pass
        else:
            try:
                signature.bind(*arguments, **keywords)
            except TypeError as error:
                raise TypeError(f"{name}() {error}; it is called as {name}{signature}") from None
        if len(self.right) < MOST_SHAPES:
            self.right.add((len(arguments), *keywords))
