"""Threads or processes: decided by how long threads wait for the interpreter's lock.

A thread that neither computes nor waits for a processor waits for the lock or for data. Waiting for data leaves the
processors idle; waiting for the lock leaves one of them busy all the time, as a thread holds it. Throughput cannot decide
this: code that shares memory well and code that is held up by the lock can be equally fast on two cores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.core.records import Measurement

#: Work that must have been seen before anything is said: the first chunks compile and open files.
SEEN_S = 1.0
SEEN_TASKS = 4

#: Share of their time that threads may wait. Code that lets go of the lock waits for 0.00 to 0.04 of it, code that does
#: not for 0.45 to 0.48 on two cores.
WAITING = 0.2

#: Processors that are wanted if it is the lock that is waited for: at least about one, as a thread holds it. Where data
#: came from a disk, also at most about one: more are wanted only by threads that wait for something else.
BUSY = (0.75, 1.1)

#: Seconds that changing over has to save: processes take about one to start, and compile and open files anew.
WORTH_S = 3.0


class LockWatch:
    """Adds up what attempts of several threads took."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._tasks = 0
        self._wall = self._wait = 0.0
        self._began: float | None = None
        self._skip = workers  # the first task of each worker

    @property
    def share(self) -> float:
        """The share of their time that threads waited."""
        return self._wait / self._wall if self._wall else 0.0

    def add(self, used: Measurement, now: float) -> None:
        if self._skip:
            self._skip -= 1
            return
        if self._began is None:
            self._began = now - used.wall
        self._tasks += 1
        self._wall += used.wall
        self._wait += used.lock_wait

    def change(self, now: float, how_long: Callable[[], float | None], from_disk: Callable[[], bool]) -> str:
        """Say why to change over to processes; empty if there is no reason.

        ``how_long`` tells the seconds still to go, ``from_disk`` whether some of the waiting may have been for data. Both
        are asked only where they decide.
        """
        if self._tasks < SEEN_TASKS or self._wall < SEEN_S or self._began is None:
            return ""
        elapsed = max(now - self._began, 1e-9)
        # A thread that is ready but has no processor wants one as much as a thread that runs.
        busy = (self._wall - self._wait) / elapsed
        if self.share < WAITING or busy < BUSY[0]:
            return ""
        left_s = how_long()
        if left_s is None or self.share * left_s < WORTH_S or (busy > BUSY[1] and from_disk()):
            return ""
        return (
            f"{self._workers} threads waited {self.share:.0%} of their time for the interpreter's lock, and some "
            f"{left_s:.0f} s were still to go"
        )
