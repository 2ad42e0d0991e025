"""An engine whose workers draw on pools that they share, such as the memory of their node; all else is the engine's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.events import PoolChanged, WorkerJoined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.core.events import Event
    from windrow.core.records import Needs, Worker
    from windrow.engines.base import Engine

#: The pool of what the workers of one machine share.
NODE = "node"


class PooledEngine:
    """An engine with pools: all workers draw on all of them, beside what they have by themselves."""

    def __init__(self, engine: Engine, pools: Mapping[str, Needs]) -> None:
        self._engine: Any = engine
        self._pools = pools
        self._told = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def pools_of(self, worker: Worker) -> Worker:
        """Say what a worker that joined draws on."""
        return worker._replace(pools=(*worker.pools, *self._pools))

    def wait(self, timeout: float | None) -> list[Event]:
        events: list[Event] = self._engine.wait(timeout)
        for number, event in enumerate(events):
            if type(event) is WorkerJoined:
                events[number] = WorkerJoined(self.pools_of(event.worker))
        if not self._told:
            self._told = True
            events[:0] = [PoolChanged(name, offers) for name, offers in self._pools.items()]
        return events
