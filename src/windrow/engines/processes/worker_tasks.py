"""The worker's side of graphs in processes: calls, what they read, and what they made."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Launch
from windrow.core.events import Cancelled, Failed, Finished
from windrow.core.records import Needs, Plan, Task
from windrow.engines.base import Call
from windrow.engines.processes.messages import CONTENT, INPUT, RELEASED
from windrow.engines.processes.transport import Arrival, pack
from windrow.engines.processes.values import is_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from windrow.core.records import Handle
    from windrow.engines.shelf import Shelf

__all__ = ["TaskLaunches"]

NO_PLAN = Plan(id=0, category="")


class TaskLaunches:
    """What a worker has of graphs."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self._worker = worker
        self._incarnation = incarnation
        self._contents: dict[int, Arrival] = {}  #: by task, until it is run
        self._common: dict[int, Any] = {}  #: what calls share; unpacked when first needed
        self._inputs: dict[int, Arrival] = {}  #: by number, until it is known what they are
        self._waiting: dict[int, tuple[list[Any], bytes | None]] = {}  #: by attempt
        #: by attempt and name: made here, or copies, which are unpacked when first needed
        self.outputs: dict[int, dict[str, Any]] = {}

    def arrived(self, arrival: Arrival) -> bool:
        """Take a parcel; False if it is none of ours."""
        kinds = {CONTENT: self._contents, INPUT: self._inputs}
        if arrival.kind not in kinds:
            return False
        kinds[arrival.kind][arrival.tag] = arrival
        return True

    def read(self, written: list[Any]) -> Launch:
        """Make a launch of what came among the commands."""
        attempt, number, names, limits, reads, small, ahead, mine = written
        self._waiting[attempt] = (reads, small)
        task = Task(number, "", (), 1, outputs=names)
        key = (attempt, self._worker, self._incarnation)
        return Launch(task, *key, NO_PLAN, Needs(limits), ahead=ahead, mine=mine)

    def waits(self, attempt: int) -> bool:
        """Whether an attempt came and has not begun."""
        return attempt in self._waiting

    def cancelled(self, launch: Launch) -> None:
        """A launch will not be run."""
        reads, _ = self._waiting.pop(launch.attempt)
        self._contents.pop(launch.task.id, None)
        self._keep_copies(reads)  # they are for others too

    def run(
        self,
        shelf: Shelf,
        launch: Launch,
        tell: Callable[..., None],
        cancelled: Callable[[int], bool],
        meanwhile: AbstractContextManager[None],
    ) -> Any:
        """Run a task; returns its report, as it travels. Only when it has begun others may look what came ``meanwhile``."""
        number = launch.attempt
        if launch.ahead and self._lacks(launch):
            self.cancelled(launch)
            return Cancelled(number, self._worker, self._incarnation)
        reads, small = self._waiting.pop(number)
        arrival = self._contents.pop(launch.task.id, None)

        def release(name: str, value: Any) -> None:
            self.outputs.setdefault(number, {})[name] = value
            if is_small(value):
                tell((number, name, (value,)))
                return
            # At once: it was released because others wait for it.
            try:
                parcel = pack(value, RELEASED, number)
            except BaseException:  # noqa: BLE001 - whoever asks for it is told why
                tell((number, name, None))
            else:
                tell((number, name, ()), parcel)

        with meanwhile:
            try:
                values = self._values(reads)
                content = pickle.loads(small) if small is not None else arrival.open()  # type: ignore[union-attr] # noqa: S301
            except BaseException as error:  # noqa: BLE001 - a user's object that cannot be made again
                story = "raised while the arguments of the call were unpickled in a worker's process"
                error.add_note(story)
                return Failed(number, self._worker, self._incarnation, shelf.classify(error))
            call = Call(content, values, release, self.common, lambda: cancelled(number), launch.mine)
            event, made = shelf.call(launch, call)
        if made:
            self.outputs.setdefault(number, {}).update(made)
        if not isinstance(event, Finished):
            return event
        return self._report(event, made)

    def _report(self, event: Finished, made: dict[str, Any]) -> tuple[Any, ...]:
        values = made if all(is_small(value) for value in made.values()) else None
        return (event.attempt, tuple(event.measurement), values, 0)

    def _lacks(self, launch: Launch) -> bool:
        """Whether something was not made that was being made when the launch was sent."""
        reads, _ = self._waiting[launch.attempt]
        return any(not more and name not in self.outputs.get(attempt, {}) for attempt, name, *more in reads)

    def _keep_copies(self, reads: list[Any]) -> None:
        """Put copies that came with a launch where all launches find them."""
        for attempt, name, *more in reads:
            if len(more) == 2:
                self.outputs.setdefault(attempt, {})[name] = self._inputs.pop(more[0])

    def _values(self, reads: list[Any]) -> tuple[Any, ...]:
        self._keep_copies(reads)
        return tuple(
            [more[0] if len(more) == 1 else _opened(self.outputs[attempt], name) for attempt, name, *more in reads]
        )

    def keep_common(self, arrival: Arrival) -> None:
        """Take what calls have in common."""
        self._common[arrival.tag] = arrival

    def forget_common(self, numbers: tuple[int, ...]) -> None:
        """Forget some of it, or all; launches that come later bring it again."""
        if not numbers:
            self._common.clear()
        for number in numbers:
            self._common.pop(number, None)

    def common(self, number: int) -> Any:
        """Give what calls have in common; of memory each gets its own."""
        thing = self._common[number]
        if type(thing) is Arrival and not thing.pickled:
            return thing.fresh()
        return _opened(self._common, number)

    def get(self, handle: Handle) -> Any:
        """Give an output that was made here; it stays."""
        return self.outputs[handle.id][handle.output]

    def discard(self, handle: Handle) -> None:
        """Forget an output, or all that an attempt made."""
        if not handle.output:
            self.outputs.pop(handle.id, None)
            return
        made = self.outputs.get(handle.id)
        if made is not None:
            made.pop(handle.output, None)
            if not made:
                del self.outputs[handle.id]


def _opened(table: dict[Any, Any], key: Any) -> Any:
    """Give what is in a table, unpacked; what cannot be unpacked stays as it is, so that everybody is told why."""
    thing = table[key]
    if type(thing) is Arrival:
        thing = table[key] = thing.open()
    return thing
