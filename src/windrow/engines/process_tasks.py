"""The worker's side of graphs in processes: calls, what they read, and what they made."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Launch
from windrow.core.events import Failed, Finished
from windrow.core.records import Needs, Plan, Task
from windrow.engines.base import Call
from windrow.engines.packed import COMMON, CONTENT, INPUT, RELEASED
from windrow.engines.parcels import pack
from windrow.engines.small import is_small

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.records import Handle
    from windrow.engines.parcels import Arrival
    from windrow.engines.shelf import Shelf

__all__ = ["TaskLaunches"]

NO_PLAN = Plan(id=0, category="")


class TaskLaunches:
    """What a worker has of graphs."""

    def __init__(self, worker: int, incarnation: int) -> None:
        self._worker = worker
        self._incarnation = incarnation
        self._contents: dict[int, Arrival] = {}  #: by task, until it is run
        self._packed: dict[int, Arrival] = {}  #: what calls have in common, by number
        self._common: dict[int, Any] = {}  #: the same, unpacked when first needed
        self._inputs: dict[int, Arrival] = {}  #: by number, until it is known what they are
        self._waiting: dict[int, tuple[list[Any], bytes | None]] = {}  #: by attempt
        self.outputs: dict[int, dict[str, Any]] = {}  #: by attempt and name: made here, or copies

    def arrived(self, arrival: Arrival) -> bool:
        """Take a parcel; False if it is none of ours."""
        kinds = {CONTENT: self._contents, COMMON: self._packed, INPUT: self._inputs}
        if arrival.kind not in kinds:
            return False
        kinds[arrival.kind][arrival.tag] = arrival
        return True

    def read(self, written: list[Any]) -> Launch:
        """Make a launch of what came among the commands."""
        attempt, number, names, limits, reads, small = written
        self._waiting[attempt] = (reads, small)
        task = Task(number, "", (), 1, outputs=names)
        return Launch(task, attempt, self._worker, self._incarnation, NO_PLAN, Needs(limits))

    def waits(self, attempt: int) -> bool:
        """Whether an attempt came and has not begun."""
        return attempt in self._waiting

    def cancelled(self, launch: Launch) -> None:
        """A launch will not be run."""
        reads, _ = self._waiting.pop(launch.attempt)
        self._contents.pop(launch.task.id, None)
        self._values(reads)  # copies that came with it are for others too

    def run(
        self,
        shelf: Shelf,
        launch: Launch,
        tell: Callable[..., None],
        cancelled: Callable[[int], bool],
    ) -> Any:
        """Run a task; returns its report, as it travels."""
        number = launch.attempt
        reads, small = self._waiting.pop(number)
        arrival = self._contents.pop(launch.task.id, None)

        def release(name: str, value: Any) -> None:
            self.outputs.setdefault(number, {})[name] = value
            if is_small(value):
                tell((number, name, (value,)))
                return
            # At once: while it runs the worker cannot be asked for it.
            try:
                parcel = pack(value, RELEASED, number)
            except BaseException:  # noqa: BLE001 - whoever asks for it is told why
                tell((number, name, None))
            else:
                tell((number, name, ()), parcel)

        try:
            values = self._values(reads)
            content = pickle.loads(small) if small is not None else arrival.open()  # type: ignore[union-attr] # noqa: S301
        except BaseException as error:  # noqa: BLE001 - a user's object that cannot be made again
            story = "raised while the arguments of the call were unpickled in a worker's process"
            error.add_note(story)
            return Failed(number, self._worker, self._incarnation, shelf.classify(error))
        call = Call(content, values, release, self.common, lambda: cancelled(number))
        event, made = shelf.call(launch, call)
        if made:
            self.outputs.setdefault(number, {}).update(made)
        if not isinstance(event, Finished):
            return event
        return self._report(event, made)

    def _report(self, event: Finished, made: dict[str, Any]) -> tuple[Any, ...]:
        values = made if all(is_small(value) for value in made.values()) else None
        return (event.attempt, tuple(event.measurement), values, 0)

    def _values(self, reads: list[Any]) -> tuple[Any, ...]:
        values = []
        for attempt, name, *more in reads:
            if len(more) == 1:
                values.append(more[0])
                continue
            if more:
                copy = self._inputs.pop(more[0]).open()
                self.outputs.setdefault(attempt, {})[name] = copy
            values.append(self.outputs[attempt][name])
        return tuple(values)

    def common(self, number: int) -> Any:
        """Give what calls have in common."""
        if number not in self._common:
            self._common[number] = self._packed.pop(number).open()
        return self._common[number]

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
