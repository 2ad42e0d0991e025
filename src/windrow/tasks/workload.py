"""What a worker does with a task of a graph: finds the function, puts values where slots are, runs the body."""

from __future__ import annotations

from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.records import Failure, FailureKind
from windrow.errors import EngineError, UsageError
from windrow.tasks.body import STREAM, run_body
from windrow.tasks.calls import filled
from windrow.tasks.going import Going

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from weakref import WeakValueDictionary

    from windrow.core.records import Plan, Rows, Task
    from windrow.engines.base import Call, Outcome
    from windrow.tasks.going import Around
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
    around: tuple[Around, ...] = ()  #: what is done around the body, outermost first


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
        content: Content = self._records[task].content
        return content

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

    def run(self, rows: tuple[Rows, ...], plan: Plan) -> Outcome:
        """Graphs have no rows."""
        raise UsageError(f"a graph has no rows {rows}, and no {plan}")

    def merge(self, partials: Sequence[Any]) -> Any:
        """Graphs have no partials."""
        raise UsageError(f"a graph has no partials to merge, got {len(partials)}")

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
        going = Going(
            task.id, content.name, function, list(arguments), keywords, content.outputs, self, call.cancelled
        )  # fmt: skip
        try:
            if not content.around:
                self._body(going, content.changed, call.release)
            else:
                with ExitStack() as stack:
                    for one in content.around:
                        stack.enter_context(one.around(going))
                    self._body(going, content.changed, call.release)
        except Exception as error:
            if not content.ignores:
                raise
            return dict.fromkeys(task.outputs, Ignored(type(error).__name__, str(error)))
        return going.made

    def _body(
        self, going: Going, changed: tuple[int | str, ...], pass_on: Callable[[str, Any], None]
    ) -> None:
        """Run the body; what it made and did not release is then ``going.made``."""
        prefix, outputs = f"{going.task}.", going.outputs

        def release(number: int, value: Any) -> None:
            name = f"{prefix}{number}"
            if going.keeps:
                going.released[name] = value
            pass_on(name, value)

        made = run_body(
            going.name,
            going.function,
            going.arguments,
            going.keywords,
            outputs,
            release if outputs != 1 else None,
        )
        for number, value in made.items():
            going.made[f"{prefix}{number}"] = value
        if outputs == STREAM:
            going.made[f"{prefix}end"] = None
        for number, place in enumerate(changed):
            going.made[f"{prefix}v{number}"] = going.get(place)

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
