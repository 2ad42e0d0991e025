"""What simulated jobs make: the rows they are about, or, where a workload is really run, what that makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from windrow.core import events as happened
from windrow.core.commands import Fetch, Inspect, Launch, Merge
from windrow.core.records import Failure, FailureKind, Handle, Measurement
from windrow.engines.shelf import Shelf, failure_event, warn_unclosed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.core.events import Event
    from windrow.core.records import Task
    from windrow.engines.base import Workload
    from windrow.engines.simulated.model import Costs, SimulatedInput

__all__ = ["Results", "sent_along"]

Timed: TypeAlias = Launch | Inspect | Merge | Fetch

NOTHING = Measurement()


def sent_along(event: Event, task: Task, costs: Mapping[str, Costs]) -> Event:
    """Let outputs of graphs travel with the report that they are there, where fetching them would cost nothing."""
    if task.inputs or costs[task.category].fetch_s or not isinstance(event, happened.Finished):
        return event
    return event._replace(handle=event.handle._replace(here=True))


class Results:
    """The partials of all simulated workers."""

    def __init__(self, inputs: tuple[SimulatedInput, ...]) -> None:
        self.workload: Workload | None = None  #: is run for its results
        self.fetched: dict[int, Any] = {}  #: handle id -> partial
        self._inputs = inputs
        self._shelves: dict[int, Shelf] = {}

    def join(self, worker: int, incarnation: int) -> None:
        """Make room for what a worker keeps."""
        if self.workload is not None:
            self._shelves[worker] = Shelf(self.workload, worker, incarnation)

    def leave(self, worker: int) -> None:
        """Lose what a worker keeps."""
        shelf = self._shelves.pop(worker, None)
        if shelf is not None:
            warn_unclosed({worker: shelf.close()})

    def forget(self, handle: Handle) -> None:
        """Drop a partial, wherever it is."""
        self.fetched.pop(handle.id, None)
        if handle.worker in self._shelves:
            self._shelves[handle.worker].partials.pop(handle.id, None)

    def of(self, command: Timed, life: tuple[int, int], measured: Measurement = NOTHING) -> Event:
        """Say how a job ended that took its time."""
        worker, incarnation = life
        if worker in self._shelves:
            return self._really(self._shelves[worker], command, measured)
        if isinstance(command, Launch):
            number = command.attempt
            handle = Handle(number, number, worker, incarnation, command.task.inputs)
            return happened.Finished(number, worker, incarnation, handle, measured)
        if isinstance(command, Inspect):
            found = self._inputs[command.input]
            return happened.Discovered(command.input, found.rows, found.borders, *life)
        if isinstance(command, Merge):
            ids = tuple(handle.id for handle in command.handles)
            return happened.Merged(command.into, ids, worker, incarnation)
        self.fetched[command.handle.id] = command.handle.rows
        return happened.Fetched(command.handle)

    def _really(self, shelf: Shelf, command: Timed, measured: Measurement) -> Event:
        if isinstance(command, Fetch):
            self.fetched[command.handle.id] = shelf.partials.pop(command.handle.id)
            return happened.Fetched(command.handle)
        try:
            event = shelf.do(command)
        except KeyboardInterrupt:
            lost = Failure(FailureKind.LOST, "KeyboardInterrupt", "interrupted")
            return failure_event(command, lost)
        if isinstance(event, happened.Finished):
            # What was read is a fact; how long it took is the model's to say.
            read = event.measurement.bytes_read
            return event._replace(measurement=measured._replace(bytes_read=read))
        return event
