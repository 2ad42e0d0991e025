"""The supervisor that outlives engines: one is kept while the program lives, so that the next engine's workers start in milliseconds.

An engine has a supervisor to itself and gives it back when its workers have ended. A server has imported what workers need, which
takes most of an engine's start; ``warm`` lets it do that while the program does something else. What a process takes over from the one
that starts it - environment, directory, limits, where output goes - is that of the server's beginning: a server whose surroundings
are no longer the program's is not used again.
"""

from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from windrow.engines.supervisor.client import Supervisor
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Whether a supervisor is kept at all; tests of engines want each to end all it has started.
KEEPING = True

_lock = threading.Lock()
_idle: list[Supervisor] = []  #: at most one


def borrow(preload: Sequence[str]) -> Supervisor:
    """Give a supervisor that no other engine has: the one that was kept, or a new one that was not started yet."""
    with _lock:
        found = _idle.pop() if _idle else None
    if found is not None and not found.is_usable():
        found.stop()
        found = None
    if found is None:
        return Supervisor(preload)
    found.load(preload)
    return found


def give_back(supervisor: Supervisor) -> None:
    """End what is left of its workers, and keep it for the next who asks."""
    if KEEPING and supervisor.is_usable() and supervisor.end_workers():
        with _lock:
            if not _idle:
                _idle.append(supervisor)
                return
    supervisor.stop()


def warm(preload: Sequence[str]) -> None:
    """Have a server import in the background what workers will need."""
    if not KEEPING:
        return
    supervisor = borrow(preload)
    with suppress(EngineError):  # whoever really needs it is told
        supervisor.start()
    give_back(supervisor)


def is_warm() -> bool:
    """Say whether workers would start at once."""
    with _lock:
        return bool(_idle) and _idle[0].is_usable() and _idle[0].is_ready()


@atexit.register
def stop_kept() -> None:
    with _lock:
        found, _idle[:] = list(_idle), []
    for supervisor in found:
        supervisor.stop()
