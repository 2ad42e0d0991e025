"""What a worker does with a task of a graph: finds the function, puts values where slots are, runs the body."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.records import Failure, FailureKind
from windrow.errors import EngineError, UsageError
from windrow.tasks.body import STREAM, run_body
from windrow.tasks.calls import filled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from weakref import WeakValueDictionary

    from windrow.core.records import Task
    from windrow.engines.base import Call
    from windrow.tasks.record import Record

__all__ = ["Content", "TaskWorkload"]


class Content(NamedTuple):
    """What travels to a worker with a call."""

    name: str
    function: Any  #: or the number of one that travels apart
    arguments: tuple[Any, ...]  #: with slots where futures were
    keywords: Mapping[str, Any]
    outputs: int | str
    changed: tuple[int | str, ...]  #: places of the arguments that the body changes
    ignores: bool  #: what it raises is told, and its outputs are None


class TaskWorkload:
    """The work of a session; the records stay at home."""

    def __init__(self, records: WeakValueDictionary[int, Record]) -> None:
        self._records: WeakValueDictionary[int, Record] | None = records

    def __getstate__(self) -> dict[str, Any]:
        return {"_records": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._records = None

    def content(self, task: int) -> Content:
        """Give what a worker needs to run a task; asked at home."""
        assert self._records is not None
        return self._records[task].content

    def open_worker(self, worker: int) -> TaskSide:
        """Make the worker's side."""
        return TaskSide(worker)

    def classify(self, error: BaseException) -> Failure:
        """Say whose fault an exception is: a task's own, nearly always."""
        if isinstance(error, MemoryError):
            kind = FailureKind.EXHAUSTED
        elif isinstance(error, EngineError):
            kind = FailureKind.INTERNAL
        else:
            kind = FailureKind.USER
        return Failure(kind, type(error).__name__, str(error), "", error)


class TaskSide:
    """One worker's side."""

    def __init__(self, worker: int) -> None:
        self._worker = worker

    def inspect(self, input: int) -> tuple[int, tuple[int, ...]]:  # noqa: A002 - the word of the house
        """Graphs have no rows."""
        raise UsageError(f"a graph has no input {input}")

    run = merge = inspect

    def call(self, task: Task, call: Call) -> dict[str, Any]:
        """Run a task; return what it made and did not release, by name."""
        content: Content = call.content
        values = tuple([None if type(one) is Ignored else one for one in call.values])
        arguments, keywords = filled(content.arguments, content.keywords, values)
        arguments, keywords = _private(content.changed, arguments, keywords)
        function = content.function
        if isinstance(function, int):
            assert call.common is not None
            function = call.common(function)
        names, prefix = task.outputs, f"{task.id}."

        def release(number: int, value: Any) -> None:
            call.release(f"{prefix}{number}", value)

        several = content.outputs == STREAM or content.outputs != 1
        try:
            made = run_body(
                content.name,
                function,
                arguments,
                keywords,
                content.outputs,
                release if several else None,
            )
        except Exception as error:
            if not content.ignores:
                raise
            return dict.fromkeys(names, Ignored(type(error).__name__, str(error)))
        found = {f"{prefix}{number}": value for number, value in made.items()}
        if content.outputs == STREAM:
            found[names[0]] = None
        for number, place in enumerate(content.changed):
            value = keywords[place] if isinstance(place, str) else arguments[place]
            found[f"{prefix}v{number}"] = value
        return found

    def close(self) -> None:
        """Nothing is open."""


class Ignored(NamedTuple):
    """Stands for the output of a task that failed and may: whoever reads it gets None."""

    type: str
    message: str


def _private(
    changed: tuple[int | str, ...], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy what the body changes: others may read the version before."""
    if not changed:
        return arguments, keywords
    own = list(arguments)
    for place in changed:
        if isinstance(place, str):
            keywords[place] = deepcopy(keywords[place])
        else:
            own[place] = deepcopy(own[place])
    return tuple(own), keywords
