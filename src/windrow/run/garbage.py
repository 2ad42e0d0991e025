"""How often Python looks for garbage while many small records are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: What Python begins with, in its several versions.
DEFAULTS = ((700, 10, 10), (2000, 10, 10), (2000, 10, 0))
#: New objects, less those that are gone, after which the young ones are looked at.
YOUNG = 10_000
#: Those of a call that has not ended, and of one that has, with its future: they are no garbage, however many calls wait.
OF_A_CALL, OF_AN_END = 30, 17
#: Calls that have ended and count at most, as nobody knows how many futures are kept.
MOST_ENDED = 2_000

_lock = threading.Lock()
_found: list[tuple[int, int, int]] = []  #: the thresholds before, once for each session that is open
_chosen = YOUNG  #: what we have set last


@contextmanager
def collecting_less() -> Iterator[None]:
    """Look for garbage less often while a session is open or a run is simulated; the last to end puts things back.

    A task that waits is about a dozen objects, and Python looks at the young ones again with every 700 that are made: with
    many tasks at a time that was a quarter of all that calls, scheduling and results cost (10,000 short calls at a time in
    threads: 115 us each, 83 us this way). Tasks leave no circles of references behind. A program that has chosen other
    thresholds, or turned the collector off, is left alone.
    """
    with _lock:
        now = gc.get_threshold()
        _found.append(_found[0] if _found else now)
        if now in DEFAULTS:
            _choose(YOUNG)
    try:
        yield
    finally:
        with _lock:
            before = _found.pop()
            if not _found and before in DEFAULTS and gc.get_threshold() == (_chosen, *before[1:]):
                gc.set_threshold(*before)


class CallsSeen:
    """Calls of a session that had ended when Python last looked for garbage."""

    def __init__(self) -> None:
        self._looks, self._ended = -1, 0

    def leave_calls(self, waiting: int, ended: int) -> None:
        """Have Python look after as many more objects as those calls have that wait, or have ended since it looked."""
        looks = gc.get_stats()[0]["collections"]
        if looks != self._looks:
            self._looks, self._ended = looks, ended
        more = OF_A_CALL * waiting + OF_AN_END * min(ended - self._ended, MOST_ENDED)
        with _lock:
            if _found and _found[0] in DEFAULTS and gc.get_threshold()[0] == _chosen:
                _choose(YOUNG + more)


def _choose(young: int) -> None:
    global _chosen
    _chosen = young
    gc.set_threshold(young, *gc.get_threshold()[1:])
