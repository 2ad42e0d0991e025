"""Patience with chunks at work when a run is to stop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.core.scheduler import Scheduler
    from windrow.pipeline.workload import PipelineWorkload


#: As long as a chunk of known cost takes at most: after Ctrl-C most of what is at work still counts.
PATIENCE_S = 2.0


class Patience:
    """When a run is to stop, chunks at work have a moment to finish; then they end before their next step."""

    def __init__(self, scheduler: Scheduler, workload: PipelineWorkload) -> None:
        self._scheduler = scheduler
        self._timer = threading.Timer(PATIENCE_S, workload.stop.set)
        self._timer.daemon = True
        self._started = False

    def __call__(self, events: Any, commands: Any, now: float) -> None:  # noqa: ARG002 - an observer's
        """Start counting once the scheduler is stopping."""
        if self._scheduler.stopping and not self._started:
            self._started = True
            self._timer.start()

    def end(self) -> None:
        """Stop counting."""
        self._timer.cancel()
