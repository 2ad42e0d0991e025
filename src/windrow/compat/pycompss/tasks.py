"""``@task`` as PyCOMPSs has it: a call becomes a task of the session, and gives futures of what the function returns."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.bodies import Body, Running, default_returns, inside, returned_values
from windrow.compat.pycompss.groups import current_task_group
from windrow.compat.pycompss.layout import Outgoing, follow
from windrow.compat.pycompss.notes import NOTES
from windrow.compat.pycompss.reducing import reduced
from windrow.compat.pycompss.runtime import session_for_calls
from windrow.compat.pycompss.saying import Said, understood
from windrow.compat.pycompss.synchronising import instead_of_failures
from windrow.errors import UsageError
from windrow.tasks.declare import Declared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.compat.pycompss.layout import PathArgument, Place
    from windrow.tasks.session import Session

__all__ = ["CompssTask", "task"]


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

    def __init__(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        notes: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if isinstance(function, (classmethod, staticmethod)):
            raise UsageError(f"@task stands below @{type(function).__name__}: it is put on the function itself")
        if isinstance(function, CompssTask) or not callable(function):
            raise UsageError(f"@task is put on a function, once; got {function!r}")
        functools.update_wrapper(self, function)
        self.function = function
        self._options = dict(options)
        self._notes = {**getattr(function, NOTES, {}), **(notes or {})}
        self._known: tuple[Said, Declared] | None = None
        self._variants: dict[Any, Declared] = {}  #: by outputs and paths
        self._signature = inspect.signature(function)
        understood(function, self._signature, self._options, self._notes)  # says now what is wrong

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None, "_variants": {}}

    def __repr__(self) -> str:
        return f"<pycompss task {self.function.__qualname__!r}>"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def with_note(self, decorator: str, options: Mapping[str, Any]) -> CompssTask:
        """Give the same task, of which another decorator says something."""
        return CompssTask(self.function, self._options, {**self._notes, decorator: options})

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call it: in the program a task, inside another task the plain function."""
        said, _ = self._what()
        session = session_for_calls()
        if session is None:
            return self._plainly(said, args, keywords)
        if said.chunk_size > 1:
            return reduced(self._called, said, session, self._signature, args, keywords)
        return self._called(session, args, keywords)

    def _what(self) -> tuple[Said, Declared]:
        if self._known is None:
            said = understood(self.function, self._signature, self._options, self._notes)
            names = dict(enumerate(said.positional))
            body = Body(
                said.name,
                said.body,
                len(said.returns),
                ignores=said.rule == "ignore",
                defaults=said.defaults,
                names=names,
                time_out=said.time_out,
            )
            declared = Declared(
                name=said.name,
                function=body,
                needs=said.needs,
                priority=said.priority,
                on_failure=said.rule,
                reuse=False,  # nobody said that calls have no effects
            )
            self._known = (said, declared)
        return self._known

    def _plainly(self, said: Said, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        running = Running(said.name, len(said.returns), pass_on=False)
        with inside(running):
            result = said.body(*args, **keywords)
        if not running.released:
            return result
        values = returned_values(running, result)
        return values[0] if len(values) == 1 else tuple(values)

    def _called(self, session: Session, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        said, _ = self._what()
        try:
            bound = self._signature.bind(*args, **keywords)
        except TypeError as error:  # the caller's fault, here and now
            raise TypeError(f"task {said.name!r} was called wrongly: {error}") from None
        if any(name not in bound.arguments for name in said.left_out):
            bound.apply_defaults()
            args, keywords = bound.args, bound.kwargs
        out = Outgoing(session, ignores=said.rule == "ignore")
        sent = tuple(
            [out.argument(said.at(number), said.name_at(number), number, value) for number, value in enumerate(args)]
        )
        named = {name: out.argument(said.named(name), name, name, value) for name, value in keywords.items()}
        group = current_task_group(session)
        returns = len(said.returns)
        layout = out.layout(returns, 0 if group is None else 1)
        declared = self._variant(layout.outputs, out.paths)
        paths = [one.path for one in out.paths]
        made = session.call(declared, (layout, sent, named, *paths), {})
        futures = list(made) if layout.outputs > 1 else [made]
        for change, future in zip(out.changes, futures[returns:], strict=False):
            change.becomes(session, future)
        for thing in out.used_up:
            session.versions.forget(thing)
        if group is not None:
            group.watch(futures[-1])
        given = futures[:returns]
        if said.rule == "cancel_successors" and said.defaults:
            self._note_defaults(said, given, out.places, futures[returns:])
        return self._given(session, said, given)

    def _note_defaults(self, said: Said, given: list[Any], places: list[Place], changed: list[Any]) -> None:
        """Say what the program gets if the task fails."""
        if "returns" in said.defaults:
            instead_of_failures(given, default_returns(said.defaults, len(given)))
        for place, future in zip(places, changed, strict=False):
            name = said.name_at(place[0]) if isinstance(place[0], int) else place[0]
            if name in said.defaults:
                instead_of_failures([future], [said.defaults[name]])

    def _given(self, session: Session, said: Said, futures: list[Any]) -> Any:
        """Give futures; of a class that has tasks itself, an object on which they can be called."""
        for number, kind in enumerate(said.returns):
            if kind is not None and _has_tasks(kind):
                made: Any = kind
                stand_in = made.__new__(made)
                follow(session, stand_in, futures[number])
                futures[number] = stand_in
        if not futures:
            return None
        return futures[0] if len(futures) == 1 else futures

    def _variant(self, outputs: int, paths: list[PathArgument]) -> Declared:
        """Say what is known of a call: how much it makes, and which of its arguments are paths."""
        key = (outputs, tuple([(one.name, one.kind) for one in paths]))
        found = self._variants.get(key)
        if found is None:
            _, declared = self._what()
            found = self._variants[key] = replace(
                declared,
                outputs=outputs,
                files={one.name: one.kind for one in paths},
                positions={one.name: 3 + number for number, one in enumerate(paths)},
            )
        return found


def _has_tasks(kind: type) -> bool:
    return any(isinstance(one, CompssTask) for each in kind.__mro__ for one in vars(each).values())
