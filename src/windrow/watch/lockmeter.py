"""How much of the time somebody holds the interpreter lock, seen by one who now and then wants it.

A single worker never waits for the lock, so its measurements cannot say how far threads would get
into each other's way. A thread of its own sleeps and wakes: if it is late by more than it waited
for a processor, somebody had the lock. It costs a change of hands some twenty times a second.
"""

from __future__ import annotations

import os
import threading
from time import perf_counter

#: Seconds between two looks: a thousand looks take under a minute, and Python changes hands every 5 ms.
PAUSE_S = 0.05

#: Seconds a wake-up may take without anybody in the way: timers are late by some 60 us.
LATE_S = 0.0003


class LockMeter:
    """Looks at the lock from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self.looks = 0
        self.held = 0  #: looks at which somebody had the lock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def share(self) -> float | None:
        """Share of the time with the lock in somebody's hands; None before the first look."""
        return self.held / self.looks if self.looks else None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="windrow-lock", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        try:
            file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            return  # being late for want of a processor could not be told from the lock
        try:
            while True:
                queued, begin = _queued(file), perf_counter()
                if self._ended.wait(PAUSE_S):
                    return
                late = perf_counter() - begin - PAUSE_S - (_queued(file) - queued)
                self.looks += 1
                self.held += late > LATE_S
        finally:
            os.close(file)


def _queued(file: int) -> float:
    """Give the seconds this thread was ready to run and had no processor."""
    return int(os.pread(file, 80, 0).split()[1]) * 1e-9
