"""The driver's store of outputs: small values that came with reports, others as they came, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.engines.processes.messages import INPUT
from windrow.engines.processes.values import own_copy

if TYPE_CHECKING:
    from windrow.core.commands import Launch
    from windrow.core.records import Handle
    from windrow.engines.processes.transport import Arrival, Parcel


class DriverOutputs:
    """Outputs of which a copy is with the driver."""

    def __init__(self) -> None:
        self._values: dict[Handle, Any] = {}  #: small ones
        self._arrivals: dict[Handle, Arrival] = {}
        self._opened: dict[Handle, Any] = {}  #: of arrivals: for the first who takes them
        self._numbers = 0

    def keep_value(self, handle: Handle, value: Any) -> None:
        """A small output came with a report."""
        self._values[handle] = value

    def keep_arrival(self, handle: Handle, arrival: Arrival) -> None:
        """An output came in a parcel."""
        self._arrivals[handle] = arrival

    def open(self, handle: Handle) -> None:
        """Unpickle an output that came; raises what that raises, and then it is not kept."""
        try:
            self._opened[handle] = self._arrivals[handle].open(own=True)
        except BaseException:
            del self._arrivals[handle]
            raise

    def is_small(self, handle: Handle) -> bool:
        """Whether it is here and was small."""
        return handle in self._values

    def take(self, handle: Handle, *, mine: bool) -> Any:
        """Give an output; without ``mine`` the program gets one of its own, and tasks are given the one that stays here."""
        if handle in self._values:
            return self._values.pop(handle) if mine else own_copy(self._values[handle], {})
        arrival = self._arrivals.pop(handle) if mine else self._arrivals[handle]
        return self._opened.pop(handle) if handle in self._opened else arrival.open(own=not mine)

    def discard(self, handle: Handle) -> None:
        """Forget an output."""
        self._values.pop(handle, None)
        self._arrivals.pop(handle, None)
        self._opened.pop(handle, None)

    def bring(self, launch: Launch) -> tuple[dict[int, Any], dict[int, int], list[Parcel]]:
        """Say how inputs that the worker lacks travel: small ones along with the launch, others by the numbers of parcels."""
        along: dict[int, Any] = {}
        numbers: dict[int, int] = {}
        parcels: list[Parcel] = []
        for position in launch.bring:
            handle = launch.inputs[position]
            if handle in self._values:
                along[position] = self._values[handle]
            else:
                self._numbers += 1
                numbers[position] = self._numbers
                parcels.append(self._arrivals[handle].again(INPUT, self._numbers))
        return along, numbers, parcels

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._arrivals.clear()
        self._opened.clear()
