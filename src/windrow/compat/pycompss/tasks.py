"""``@task`` as PyCOMPSs has it: a call becomes a task of the session, and gives futures of what the function returns."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.arguments import Body, CallArguments, RunningBody, follow, inside, returned_values
from windrow.compat.pycompss.decorators import NOTES
from windrow.compat.pycompss.options import Binary, CompssOptions, Notes, read_options
from windrow.compat.pycompss.waiting import current_task_group, forget_files, session_for_calls, take_back_cancelled
from windrow.errors import UsageError
from windrow.tasks.commands.command import Command
from windrow.tasks.declare import Declared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.compat.pycompss.arguments import Arguments, PathArgument
    from windrow.tasks.session import Session


def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a function as a task.

    Parameters
    ----------
    returns
        How many values it returns, or their types; found out if it is not said.
    priority, time_out, on_failure, defaults
        Run it first; fail it after so many seconds; what a failure means; and what it leaves then.
    target_direction, varargs_type
        What it does with ``self``, and with ``*args``.
    others
        One for each parameter: ``IN`` (or nothing), ``INOUT``, ``OUT``, ``FILE_IN``, ``COLLECTION_INOUT`` ...
    """
    if function is not None:
        return CompssTask(function, options)
    return lambda body: CompssTask(body, options)


class CompssTask:
    """A function that runs elsewhere; made by ``task``."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any], notes: Notes | None = None) -> None:
        if isinstance(function, (classmethod, staticmethod)):
            raise UsageError(f"@task stands below @{type(function).__name__}: it is put on the function itself")
        if isinstance(function, CompssTask) or not callable(function):
            raise UsageError(f"@task is put on a function, once; got {function!r}")
        functools.update_wrapper(self, function)
        self.function = function
        self._options = dict(options)
        self._notes = {**getattr(function, NOTES, {}), **(notes or {})}
        self._known: tuple[CompssOptions, Declared] | None = None
        self._variants: dict[Any, Declared] = {}  #: by outputs and paths
        self._signature = inspect.signature(function)
        said = dict(options)
        if isinstance(said.get("returns"), str):
            del said["returns"]  # may name a global that comes below
        read_options(function, self._signature, said, self._notes)  # says now what is wrong

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None, "_variants": {}}

    def __repr__(self) -> str:
        return f"<pycompss task {self.function.__qualname__!r}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else partial(self, instance)

    def with_note(self, decorator: str, options: Mapping[str, Any]) -> CompssTask:
        return CompssTask(self.function, self._options, {**self._notes, decorator: options})

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call it: in the program a task, inside another task the plain function."""
        options, _ = self._what()
        session = session_for_calls()
        if session is None:
            return self._call_plainly(options, args, keywords)
        if options.chunk_size > 1:
            return self._reduce(session, options, args, keywords)
        return self._call(session, args, keywords)

    def _what(self) -> tuple[CompssOptions, Declared]:
        if self._known is None:
            options = read_options(self.function, self._signature, self._options, self._notes)
            body = Body(
                options.name,
                options.body,
                len(options.returns),
                ignores=options.rule == "ignore",
                defaults=options.defaults,
                names=dict(enumerate(options.positional)),
                time_out=options.time_out,
            )
            memory = int(dict(options.needs.amounts).get("memory", 0))
            command = Command(memory=memory) if isinstance(options.body, Binary) else None
            declared = Declared(
                name=options.name,
                function=body,
                needs=options.needs,
                priority=options.priority,
                on_failure=options.rule,
                reuse=False,  # nobody said that calls have no effects
                command=command,
            )
            self._known = (options, declared)
        return self._known

    def _call_plainly(self, options: CompssOptions, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        running = RunningBody(options.name, len(options.returns), pass_on=False)
        with inside(running):
            result = options.body(*args, **keywords)
        if not running.released:
            return result
        values = returned_values(running, result)
        return values[0] if len(values) == 1 else tuple(values)

    def _call(self, session: Session, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        take_back_cancelled()
        options, _ = self._what()
        bound = self._bind(args, keywords)
        if any(name not in bound.arguments for name in options.left_out):
            bound.apply_defaults()
            args, keywords = bound.args, bound.kwargs
        given = CallArguments(session, ignores=options.rule == "ignore")
        arguments: Arguments = dict(enumerate(args))
        arguments.update(keywords.items())
        sent = {
            place: given.argument(options.parameter_at(place), options.name_at(place), place, value)
            for place, value in arguments.items()
        }
        group = current_task_group(session)
        returns = len(options.returns)
        layout = given.layout(returns, 0 if group is None else 1)
        declared = self._variant(layout.outputs, given.paths)
        made = session.call(declared, (layout, sent, *[one.path for one in given.paths]), {})
        futures = list(made) if layout.outputs > 1 else [made]
        returned, changed = futures[:returns], futures[returns:]
        take_back = [change.becomes(session, future) for change, future in zip(given.changes, changed, strict=False)]
        for thing in given.used_up:
            session.versions.forget(thing)
        if group is not None:
            paths = [one.path for one in given.paths if one.kind.writes]
            group.watch(futures[-1], [*take_back, *([partial(forget_files, session, paths)] if paths else [])])
        return self._given(session, options, returned)

    def _bind(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **keywords)
        except TypeError as error:  # the caller's fault, here and now
            raise TypeError(f"task {self._what()[0].name!r} was called wrongly: {error}") from None

    def _reduce(self, session: Session, options: CompssOptions, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call the task for parts of its collection, then for what it made of them, until one call is left.

        The tree depends on the number of elements alone, so the answer is the same in every run. It is that of one call
        for the whole collection if the function is associative.
        """
        found = [
            name
            for name, one in options.parameters.items()
            if one.kind == "COLLECTION" and one.direction in ("IN", "IN_DELETE")
        ]
        if len(found) != 1 or len(options.returns) != 1:
            raise UsageError(
                f"task {options.name!r}: @reduction needs one COLLECTION_IN parameter and one return value; it has "
                f"{len(found)} and {len(options.returns)}"
            )
        bound = self._bind(args, keywords)
        elements = bound.arguments.get(found[0])
        if not isinstance(elements, (list, tuple)) or session.latest(elements) is not elements:
            return self._call(session, args, keywords)

        def call(part: list[Any]) -> Any:
            bound.arguments[found[0]] = part
            return self._call(session, bound.args, bound.kwargs)

        left, size = list(elements), options.chunk_size
        while len(left) > size:
            parts = [left[start : start + size] for start in range(0, len(left), size)]
            left = [call(part) if len(part) > 1 else part[0] for part in parts]
        return call(left)

    def _given(self, session: Session, options: CompssOptions, futures: list[Any]) -> Any:
        """Give futures; of a class that has tasks itself, an object on which they can be called."""
        for number, kind in enumerate(options.returns):
            classes = () if kind is None else kind.__mro__
            if any(isinstance(one, CompssTask) for each in classes for one in vars(each).values()):
                made: Any = kind
                stand_in = made.__new__(made)
                follow(session, stand_in, futures[number])
                futures[number] = stand_in
        if not futures:
            return None
        return futures[0] if len(futures) == 1 else futures

    def _variant(self, outputs: int, paths: list[PathArgument]) -> Declared:
        key = (outputs, tuple([(one.name, one.kind) for one in paths]))
        found = self._variants.get(key)
        if found is None:
            _, declared = self._what()
            found = self._variants[key] = replace(
                declared,
                outputs=outputs,
                files={one.name: one.kind for one in paths},
                positions={one.name: 2 + number for number, one in enumerate(paths)},
            )
        return found
