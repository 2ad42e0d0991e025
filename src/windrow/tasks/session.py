"""A session: tasks that are called in it become a graph, which runs while the program goes on."""

from __future__ import annotations

import threading
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from windrow.core.events import CancelRequested, Closed, Released, Wanted
from windrow.core.records import Needs, Task
from windrow.errors import TaskError
from windrow.tasks.blame import way_to_the_root
from windrow.tasks.body import STREAM
from windrow.tasks.calling import Calling
from windrow.tasks.calls import looked_into
from windrow.tasks.current import current
from windrow.tasks.declare import Declared, task
from windrow.tasks.driving import Driver
from windrow.tasks.file_table import FileTable
from windrow.tasks.future import ELSEWHERE, Future, StreamFuture
from windrow.tasks.groups import Group, current_group
from windrow.tasks.record import Record
from windrow.tasks.reusing import Reuse
from windrow.tasks.staffed import PLACE
from windrow.tasks.versions import Versions
from windrow.tasks.workload import Content

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import Token
    from types import TracebackType

    from windrow.tasks.declare import OnFailure

__all__ = ["Session"]


class Session:
    """Where tasks run; as a context it waits for all of them in the end.

    Parameters
    ----------
    engine
        "processes" (isolated, can be limited and killed), "threads" (shared memory) or "inline" (one after the other).
    workers
        Tasks at a time; by default as many as there are cores.
    resources
        What there is of other things, such as ``{"gpu": 2, "licence": 1}``.
    on_failure
        What becomes of other tasks when one fails, unless the task says so itself.
    """

    def __init__(
        self,
        *,
        engine: str = "processes",
        workers: int | None = None,
        resources: Mapping[str, float] | None = None,
        on_failure: OnFailure = "cancel_successors",
        reuse: bool = False,
        name: str = "session",
    ) -> None:
        self.name = name
        self.on_failure = on_failure
        self.reuse = reuse
        self.records: WeakValueDictionary[int, Record] = WeakValueDictionary()
        self.futures: WeakValueDictionary[str, Future] = WeakValueDictionary()
        self.open: dict[int, Record] = {}  #: tasks that have not ended
        self.changed = threading.Condition()
        self.files = FileTable()
        self.reusing = Reuse()
        self._versions = Versions()
        self._numbers = count(1)
        self._groups = count(1)
        self._token: Token[Session | None] | None = None
        self._driver = Driver(self, engine, workers, dict(resources or {}))

    # -- life

    def __enter__(self) -> Self:
        self._token = current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            current.reset(self._token)
            self._token = None
        self.close(cancel=error is not None)
        if error is None:
            self._driver.raise_unseen()

    def close(self, *, cancel: bool = False) -> None:
        """Wait for all tasks, or cancel them, and end the workers."""
        if cancel:
            self._driver.tell(CancelRequested("the session was left by an exception"))
        self._driver.tell(Closed())
        try:
            self._driver.join()
        finally:
            self.files.close()
            self.reusing.close()

    def end_later(self) -> None:
        """End when all tasks have, without waiting for that."""
        self._driver.tell(Closed())

    # -- calls

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Call a plain function as a task, as executors do."""
        declared = getattr(function, "declared", None)
        if not isinstance(declared, Declared):
            declared = task(function).declared
        return self.call(declared, arguments, keywords)

    def call(
        self,
        declared: Declared,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        kind: type[Future] = Future,
    ) -> Any:
        """Make a task of a call and give its futures."""
        self._driver.check()
        calling = Calling(self, next(self._numbers), declared, arguments, keywords)
        if declared.files:
            self.files.enter(calling)
        if self.reuse if declared.reuse is None else declared.reuse:
            found = self.reusing.find(calling)
            if found is not None:
                return found
        changed = self._places(calling)
        things = [calling.get(place) for place in changed]
        calling.take_futures_out()
        record = Record(calling)
        futures, end = self._futures(record, calling.made, len(changed), kind)
        self._rename(things, record)
        group = current_group(self)
        record.rule = declared.on_failure or (group and group.on_failure) or self.on_failure
        record.group = group.number if group else 0
        record.content = self._driver.packed(
            record,
            Content(
                declared.name,
                declared.function,
                calling.arguments,
                calling.keywords,
                declared.outputs,
                changed,
                record.rule == "ignore",
                tuple(calling.around),
            ),
        )
        self._driver.submit(record, self._task(record, tuple(calling.after)))
        given: Any = StreamFuture(self, record, end) if end is not None else tuple(futures)
        if declared.outputs == 1:
            given = futures[0]
        if calling.files:
            self.files.submitted(calling, record)
        if calling.key is not None:
            self.reusing.submitted(calling, record, given)
        return given

    def _task(self, record: Record, after: tuple[int, ...]) -> Task:
        declared = record.declared
        amounts = {**dict(declared.needs.amounts), PLACE: 1}
        return Task(
            record.id,
            declared.name,
            (),
            1,
            Needs.of(amounts),
            record.outputs,
            declared.priority,
            record.group,
            None if declared.deadline is None else monotonic() + declared.deadline,
            declared.retries if record.rule == "retry" else 0,
            declared.restartable,
            record.slots,
            after,
        )

    def _futures(
        self, record: Record, more: list[str], changed: int, kind: type[Future]
    ) -> tuple[list[Future], Future | None]:
        """Make the futures of a call; of a stream only the one of its end."""
        outputs, prefix = record.declared.outputs, f"{record.id}."
        names = (
            [f"{prefix}end"] if outputs == STREAM else [f"{prefix}{n}" for n in range(int(outputs))]
        )
        futures = [kind(self, record, name) for name in names]
        names += [f"{prefix}v{number}" for number in range(changed)]
        record.outputs = (*names, *more)
        for future in futures:
            self.futures[future.output] = future
        return futures, futures[0] if outputs == STREAM else None

    # -- what bodies change

    def _places(self, calling: Calling) -> tuple[int | str, ...]:
        """Say where in the call the arguments are that the body changes."""
        found = [calling.place(name) for name in calling.declared.inout]
        return tuple(place for place in found if place is not None)

    def _rename(self, things: list[Any], record: Record) -> None:
        """From now on what was changed is known by its next version."""
        for number, thing in enumerate(things):
            self._versions.follow(thing, self.promise(record, f"v{number}"))

    def promise(self, record: Record, name: str) -> Future:
        """Make the future of an output of a task that its caller is not given."""
        future = Future(self, record, f"{record.id}.{name}")
        self.futures[future.output] = future
        return future

    def latest(self, thing: Any) -> Any:
        """Give the future of what tasks have made of a thing, or the thing itself if none changes it."""
        return self._versions.latest(thing)

    # -- waiting

    def gather(self, things: Any) -> Any:
        """Wait for all futures in a structure of lists, tuples and dictionaries; return it with their values."""

        def ask(thing: Any) -> Any:
            latest = self._versions.latest(thing)
            if isinstance(latest, Future):
                self.expect(latest)
            return thing

        def value(thing: Any) -> Any:
            if isinstance(thing, StreamFuture):
                return [future.result() for future in thing]
            latest = self._versions.latest(thing)
            return latest.result() if isinstance(latest, Future) else thing

        looked_into(things, ask)
        return looked_into(things, value)

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until every task that was called has ended, well or badly."""
        with self.changed:
            if not self.changed.wait_for(lambda: not self.open, timeout):
                raise TimeoutError(f"{len(self.open)} tasks had not ended after {timeout} s")

    def group(self, name: str = "", *, on_failure: OnFailure | None = None) -> Group:
        """Tasks called in this context belong together: they can be waited for and cancelled."""
        return Group(self, next(self._groups), name, on_failure)

    # -- the side of futures

    def expect(self, future: Future) -> None:
        """Somebody will want the value: have it brought when it is there."""
        self._driver.tell(Wanted(future.output))

    def bring(self, future: Future, timeout: float | None) -> Any:
        """Wait for a value that exists elsewhere."""
        self.expect(future)
        with future._condition:
            found = future._condition.wait_for(
                lambda: future._result is not ELSEWHERE or self._driver.over, timeout
            )
        if future._exception is not None:
            raise future._exception
        if future._result is ELSEWHERE:
            if not found:
                raise TimeoutError
            raise TaskError(f"the session ended before the value of {future!r} was brought")
        return future._result

    def seen(self, future: Future) -> None:
        """Somebody has looked at the end of a task, and so of all that led to it."""
        if future.done():
            for record in way_to_the_root(future.record):
                self._driver.seen(record)

    def forget(self, output: str) -> None:
        """Nobody will ask for an output any more."""
        self._driver.leave(Released(output))

    def cancel_task(self, record: Record) -> None:
        """A task is not wanted any more."""
        self._driver.tell(CancelRequested("cancel() was called", task=record.id))

    def cancel_group(self, group: Group) -> None:
        """A group of tasks is not wanted any more."""
        self._driver.tell(CancelRequested("its group was cancelled", group=group.number))

    def next_of_stream(self, record: Record, number: int, end: Future) -> Future | None:
        """Wait for an output of a stream; None if there are no more."""
        with self.changed:
            self.changed.wait_for(
                lambda: len(record.streamed) > number or end.done() or self._driver.over
            )
            if number >= len(record.streamed):
                return None
            future, record.streamed[number] = record.streamed[number], None
            return future
