"""An engine whose workers draw on what a session has: cores, memory, devices, licences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.events import Event, PoolChanged, WorkerJoined
from windrow.core.records import Needs

if TYPE_CHECKING:
    from windrow.core.records import Handle
    from windrow.engines.base import Engine

__all__ = ["PLACE", "POOL", "Staffed", "Unreadable"]

#: What a worker has itself: the place for one task at a time. All else is the session's.
PLACE = "place"
POOL = "session"


class Staffed:
    """Passes everything on, and says of each worker that joins what it may draw on."""

    def __init__(self, engine: Engine, offers: Needs) -> None:
        self._engine: Any = engine
        self._offers: Needs | None = offers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what happened."""
        events: list[Event] = self._engine.wait(timeout)
        for number, event in enumerate(events):
            if type(event) is WorkerJoined:
                own = Needs(((PLACE, 1),))
                events[number] = WorkerJoined(event.worker._replace(offers=own, pools=(POOL,)))
        if self._offers is not None:
            events.insert(0, PoolChanged(POOL, self._offers))
            self._offers = None
        return events

    def take(self, handle: Handle) -> Any:
        """Hand over a value. What a user's object raises while it is made again is the value's fault, not the run's."""
        if handle.here:
            return self._engine.take(handle)
        try:
            return self._engine.take(handle)
        except BaseException as error:  # noqa: BLE001 - raised again where somebody asks for the value
            return Unreadable(error)


class Unreadable(NamedTuple):
    """Stands for a value that was made elsewhere and cannot be made again here."""

    error: BaseException
