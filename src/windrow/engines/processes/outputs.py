"""The driver's side of graphs in processes: outputs that are here, copies that workers were sent, launches as they travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.events import Finished, OutputReady
from windrow.core.records import Handle, Measurement
from windrow.engines.processes.messages import INPUT
from windrow.engines.processes.values import own_copy

if TYPE_CHECKING:
    from windrow.core.commands import Discard, Launch
    from windrow.core.events import Event
    from windrow.engines.processes.connection import Life
    from windrow.engines.processes.messages import Packed
    from windrow.engines.processes.transport import Arrival, Parcel

__all__ = ["ProcessOutputs", "discard_everywhere", "read_task_report"]


class ProcessOutputs:
    """Outputs of graphs of which a copy is here, as they came or opened."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, str], Any] = {}  #: small ones came with the reports
        self._arrivals: dict[tuple[int, str], Arrival] = {}
        self._names: dict[int, set[str]] = {}  #: by attempt: what of it is here
        self._holders: dict[tuple[int, str], set[int]] = {}  #: workers that were sent a copy
        self._numbers = 0

    def keep(self, attempt: int, name: str, value: Any) -> None:
        """A small output came."""
        self._values[attempt, name] = value
        self._names.setdefault(attempt, set()).add(name)

    def came(self, handle: Handle, arrival: Arrival) -> None:
        """An output that was asked for came."""
        self._arrivals[handle.id, handle.output] = arrival
        self._names.setdefault(handle.id, set()).add(handle.output)

    def take(self, handle: Handle) -> Any:
        """Give an output of which the program may do what it likes: others are given the one that stays here."""
        key = handle.id, handle.output
        if key in self._values:
            return own_copy(self._values[key], {})
        return self._arrivals[key].open(own=True)

    def discard(self, handle: Handle) -> set[int]:
        """Forget an output, or all of an attempt; return the workers that were sent copies."""
        names = [handle.output] if handle.output else list(self._names.get(handle.id, ()))
        holders: set[int] = set()
        for name in names:
            key = handle.id, name
            self._values.pop(key, None)
            self._arrivals.pop(key, None)
            holders |= self._holders.pop(key, set())
            if handle.id in self._names:
                self._names[handle.id].discard(name)
                if not self._names[handle.id]:
                    del self._names[handle.id]
        return holders

    def launch(self, life: Life, command: Launch, packed: Packed) -> tuple[list[Parcel], list[Any]]:
        """Say how a launch travels: parcels that must arrive before, and what is among the commands."""
        parcels = [parcel for number, parcel in packed.common.items() if life.is_new(number, parcel)]
        reads: list[Any] = []
        for handle in command.inputs:
            key = handle.id, handle.output
            if handle.worker == life.worker and handle.incarnation == life.incarnation:
                reads.append(key)
            elif key in self._values:
                reads.append((*key, self._values[key]))
            else:
                holders = self._holders.setdefault(key, set())
                if life.worker not in holders:
                    holders.add(life.worker)
                    self._numbers += 1
                    parcels.append(self._arrivals[key].again(INPUT, self._numbers))
                    reads.append((*key, self._numbers, None))
                else:
                    reads.append(key)
        if packed.parcel is not None:
            parcels.append(packed.parcel)
        task, limits = command.task, command.limits.amounts
        written = [command.attempt, task.id, task.outputs, limits, reads, packed.small]
        written += [command.ahead, command.mine]
        return parcels, written

    def lost(self, worker: int) -> None:
        """A worker is gone with its copies."""
        for holders in self._holders.values():
            holders.discard(worker)


def read_task_report(written: tuple[Any, ...], life: Life, outputs: ProcessOutputs) -> Event:
    """Make the event of a report of a task, and keep what came with it."""
    worker, incarnation = life.worker, life.incarnation
    if len(written) == 3:
        attempt, name, value = written
        handle = Handle(attempt, attempt, worker, incarnation, (), 0, name, here=value is not None)
        if value:
            outputs.keep(attempt, name, value[0])
        elif value is not None:
            arrival = life.released.popleft()
            handle = handle._replace(bytes=arrival.bytes)
            outputs.came(handle, arrival)
        return OutputReady(attempt, worker, incarnation, handle)
    attempt, used, values, _ = written
    if values is not None:
        for name, value in values.items():
            outputs.keep(attempt, name, value)
    handle = Handle(attempt, attempt, worker, incarnation, (), 0, "", here=values is not None)
    return Finished(attempt, worker, incarnation, handle, Measurement(*used))


def discard_everywhere(outputs: ProcessOutputs, command: Discard, lives: dict[int, Life]) -> list[Life]:
    """Forget an output here; return the lives that must be told."""
    handle = command.handle
    holders = outputs.discard(handle)
    found = [lives[worker] for worker in holders if worker in lives]
    life = lives.get(handle.worker)
    if life is not None and life.incarnation == handle.incarnation and life not in found:
        found.append(life)
    return found
