"""The worker's side of a call: values take the places of slots, and the body runs inside what surrounds it.

What is done around a body - files, devices, residents, keeping results - travels with the call; a plain call has none.
"""

from __future__ import annotations

from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from windrow.core.records import Failure, FailureKind, make_record
from windrow.engines.base import NO_MEASUREMENT, NO_READING, Outcome
from windrow.engines.processes.messages import Packed
from windrow.engines.processes.values import own_copy
from windrow.errors import InitializerError, TaskFileError, error_text
from windrow.tasks.body import STREAM, run_body
from windrow.tasks.call import Content, fill_slots, map_nested
from windrow.tasks.future import BEGINNING
from windrow.tasks.resident import begin_worker, end_worker
from windrow.tasks.unpack import WithArrays, open_function, open_here, refuse_unsendable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractContextManager
    from types import ModuleType

    from windrow.core.records import Plan, Task
    from windrow.engines.base import Job
    from windrow.tasks.call import Call
    from windrow.tasks.weak_table import WeakTable


class RunningCall:
    """A call whose body runs, or is about to; what surrounds the body may change all of it."""

    __slots__ = (
        "arguments", "beside", "cancelled", "function", "keeps", "keywords", "made", "name", "outputs", "released",
        "seen", "side", "task", "values",
    )  # fmt: skip

    def __init__(
        self,
        task: int,
        name: str,
        function: Callable[..., Any],
        arguments: list[Any],
        keywords: dict[str, Any],
        outputs: int | str,
        side: CallSide | None,
        cancelled: Callable[[], bool],
    ) -> None:
        self.task = task  #: its number, of which the names of its outputs are made
        self.name = name
        self.function = function
        self.arguments = arguments  #: values, where futures were
        self.keywords = keywords
        self.outputs = outputs  #: as the task declares
        self.side = side  #: of the worker, if there is one
        self.cancelled = cancelled  #: nobody wants the result any more: leave no trace
        self.made: dict[str, Any] = {}  #: by name, when the body has ended: what was not released
        self.keeps = False  #: whether what is released is noted too, in ``released``
        self.released: dict[str, Any] = {}
        self.seen: list[Any] = []  #: stamps of files that it read
        self.beside: list[str] = []  #: files that were put into place though they are no declared outputs
        self.values: tuple[Any, ...] = ()  #: of all that the task reads, by slot

    def get(self, place: int | str) -> Any:
        return self.keywords[place] if isinstance(place, str) else self.arguments[place]

    def put(self, place: int | str, value: Any) -> None:
        if isinstance(place, str):
            self.keywords[place] = value
        else:
            self.arguments[place] = value


class Around(Protocol):
    """A context for a body; travels with the call, so it is small and can be pickled.

    An exception inside the context is the task's failure. Outputs that it makes itself are put into ``running.made``.
    """

    def around(self, going: RunningCall) -> AbstractContextManager[None]: ...


class CallWorkload:
    """The work of a session; the records stay at home."""

    def __init__(
        self, records: WeakTable[int, Call] | dict[int, Call], initializer: Callable[[], object] | None = None
    ) -> None:
        self._records: WeakTable[int, Call] | dict[int, Call] | None = records
        self._initializer = initializer

    def __getstate__(self) -> dict[str, Any]:
        return {"_records": None, "_initializer": self._initializer}

    def content(self, task: Task) -> Content | None:
        """Give what a worker needs to run a task, or None if it was cancelled just now; asked at home, when it begins."""
        assert self._records is not None
        record = self._records.get(task.id)
        if record is None:
            return None
        with BEGINNING:
            if record.state == "cancelled":
                return None
            record.state = "running"
        content: Content = record.content
        return content

    def open_worker(self, worker: int) -> CallSide:
        if self._initializer is not None:
            from windrow.tasks.captured import initialize  # heavy, and seldom needed

            try:
                initialize(self._initializer)
            except BaseException as error:
                raise InitializerError(
                    f"the initializer failed in worker {worker}, so that nothing can run: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return CallSide()

    def describe(self, task: Task) -> str:
        return f"task {task.id} ({task.category})"

    def hear(self, news: Any) -> None:
        """Workers have no news."""

    def is_own(self, module: ModuleType) -> bool:  # noqa: ARG002 - a Protocol's
        """No module goes along by itself: functions travel with their calls."""
        return False

    def classify(self, error: BaseException) -> Failure:
        """Say whose fault an exception is: a task's own, nearly always."""
        if isinstance(error, MemoryError):
            kind = FailureKind.EXHAUSTED
        elif isinstance(error, InitializerError):
            kind = FailureKind.INTERNAL
        elif isinstance(error, TaskFileError) and error.facts.get("again"):
            kind = FailureKind.TRANSIENT_IO  # what it read was changed under its hands
        else:
            kind = FailureKind.USER
        final = getattr(error, "final", False) is True  # as those of other systems say
        return Failure(kind, type(error).__name__, error_text(error), "", error, final)


class CallSide:
    """One worker's side."""

    reading = NO_READING
    #: CPU seconds and peak memory of programs that the last call ran, until the engine has taken note
    used: tuple[float, int] | None = None

    def __init__(self) -> None:
        begin_worker()

    def prepare(self, task: Task, plan: Plan) -> None:
        """Calls read nothing ahead."""

    def news(self) -> None:
        """Calls tell nothing but their outcome."""

    def run(self, job: Job) -> Outcome:
        if type(job.content) is Packed:  # a thread beside processes
            outcome = self.run(open_here(job))
            for value in outcome.outputs.values():
                refuse_unsendable(value)
            return outcome
        task, content = job.task, job.content
        if type(content) is WithArrays:
            content = content.open(job.common)
        if type(content) is not Content:  # a plain tuple: it came from another process
            content = Content._make(content)
        function = content.function
        if isinstance(function, int):
            assert job.common is not None
            function = open_function(job.common(function), job.common)
        values = job.values
        if values:
            values = tuple([None if type(one) is Ignored else one for one in values])
            if job.mine is not None:
                values = _own(values, () if content.around else job.mine)
        arguments, keywords = content.arguments, content.keywords
        if values:
            arguments, keywords = fill_slots(arguments, keywords, values)
        if content.outputs == 1 == len(task.makes) and not (content.around or content.ignores):
            # By far the most, and many of them are short.
            only = task.makes[0]
            release = lambda _, one: job.release(only, one)  # noqa: E731
            made = run_body(content.name, function, arguments, keywords, 1, release, task.needs)
            return make_record(Outcome, ({only: made[0]} if made else {}, None, NO_MEASUREMENT))  # {}: it was released
        return Outcome(self._carefully(job, content, function, arguments, dict(keywords)))

    def _carefully(
        self,
        job: Job,
        content: Content,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> dict[str, Any]:
        """Run a task of which more is asked than one value."""
        task, prefix = job.task, f"{job.task.id}."
        former = [keywords[place] if isinstance(place, str) else arguments[place] for place in content.changed]
        if job.mine is None or content.ignores or content.around:
            arguments, keywords = _private(content.changed, arguments, keywords)
        released: set[str] = set()
        going = RunningCall(
            task.id, content.name, function, list(arguments), keywords, content.outputs, self, job.cancelled
        )  # fmt: skip
        going.values = tuple([None if type(one) is Ignored else one for one in job.values])

        def release(number: int, value: Any) -> None:
            name = f"{prefix}{number}"
            if going.keeps:
                going.released[name] = value
            released.add(name)
            job.release(name, value)

        try:
            with ExitStack() as stack:
                for one in content.around:
                    stack.enter_context(one.around(going))
                made = run_body(
                    going.name, going.function, going.arguments, going.keywords, going.outputs, release, task.needs
                )
                going.made.update((f"{prefix}{number}", value) for number, value in made.items())
                if going.outputs == STREAM:
                    going.made[f"{prefix}end"] = None
                going.made.update((f"{prefix}v{number}", going.get(one)) for number, one in enumerate(content.changed))
        except Exception as error:
            if not content.ignores:
                raise
            why = Ignored(type(error).__name__, error_text(error))
            # What was released is final, and what the body did not get to change is as it was.
            instead: dict[str, Any] = {name: why for name in task.makes if name not in released}
            instead.update((f"{prefix}v{number}", one) for number, one in enumerate(former))
            return instead
        return going.made

    def close(self) -> None:
        end_worker()


class Ignored(NamedTuple):
    """Stands for the output of a task that failed and may: a task that reads it gets None."""

    type: str
    message: str


def _own(values: tuple[Any, ...], mine: Collection[int]) -> tuple[Any, ...]:
    """Copy what other tasks may read too, now or later: bodies may do with their arguments what they like."""
    memo: dict[int, Any] = {}
    return tuple([one if place in mine else own_copy(one, memo) for place, one in enumerate(values)])


def _private(
    changed: tuple[int | str, ...], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy what the body changes: other tasks may read the version before. What is one thing to the caller stays one thing."""
    if not changed:
        return arguments, keywords
    copies: dict[int, Any] = {}
    for place in changed:
        deepcopy(keywords[place] if isinstance(place, str) else arguments[place], copies)

    def own(thing: Any) -> Any:
        return copies.get(id(thing), thing)

    return map_nested(arguments, own), map_nested(keywords, own)
