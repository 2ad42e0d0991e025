"""The status page of a worker: numbers that the driver, the supervisor and the worker look at together, without waiting.

A worker says on it which attempt it is at, since when and within which limits; the supervisor, which watches, says how much memory
the worker's process tree had at most. Each number has one writer. The worker's numbers stand behind a sequence number that is odd
while they change, so that no reader acts on half of an old attempt and half of a new one.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import time
from typing import NamedTuple

# Whole 64-bit words, each of which the machine reads and writes at once.
_SEQUENCE, _BUSY, _ATTEMPT, _STARTED, _MEMORY, _NANOSECONDS = range(6)  # the worker's
_PEAK_OF, _PEAK = range(8, 10)  # the supervisor's
_BYTES = 128
#: Resets the peak of the resident set that the kernel keeps for a process; see proc(5).
_RESET_PEAK = b"5"
#: How long the supervisor goes on looking every 10 ms after an attempt with limits; a worker rings it up after half of that.
WATCHFUL_S = 1.0


class AttemptStatus(NamedTuple):
    """The attempt a worker says it is at; zero means no limit."""

    sequence: int  #: another one: another attempt
    number: int
    started_ns: int  #: CLOCK_MONOTONIC
    memory_limit: int  #: bytes of the process tree
    seconds_limit: float


class StatusPage:
    """One worker's page. ``create`` makes one; other processes attach to its ``fd``."""

    def __init__(self, fd: int, bell: int = -1) -> None:
        self.fd = fd  #: for handing the page on; -1 after ``close_fd``
        self._bell = bell
        self._watched_until = 0.0  #: when the supervisor must be rung up again
        self._map = mmap.mmap(fd, _BYTES)
        self._words = memoryview(self._map).cast("q")
        self._clear_refs = -1
        self._statm = -1
        self._resets = True

    @classmethod
    def create(cls) -> StatusPage:
        """Make a page out of anonymous memory: no file, gone with the last who looks at it."""
        fd = os.memfd_create("windrow-page", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, _BYTES)
            return cls(fd)
        except BaseException:
            os.close(fd)
            raise

    def close_fd(self) -> None:
        """Give up handing the page on, and keep looking at it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        self.close_fd()
        self._words.release()
        self._map.close()
        for fd in (self._clear_refs, self._statm):
            if fd >= 0:
                os.close(fd)
        self._clear_refs = self._statm = -1

    # --- the worker's side

    def begin(self, attempt: int, memory_limit: int = 0, seconds_limit: float = 0.0, *, metered: bool = True) -> None:
        """Say that an attempt begins; from now on its limits hold. Without limits it need not be metered."""
        if metered:
            self._reset_peak()
        words = self._words
        words[_SEQUENCE] += 1
        words[_BUSY] = 1
        words[_ATTEMPT] = attempt
        words[_STARTED] = time.monotonic_ns()
        words[_MEMORY] = memory_limit
        words[_NANOSECONDS] = int(seconds_limit * 1e9)
        words[_SEQUENCE] += 1
        if (memory_limit or seconds_limit) and time.monotonic() >= self._watched_until and self._bell >= 0:
            with contextlib.suppress(OSError):  # a supervisor that died is the driver's business
                os.eventfd_write(self._bell, 1)

    def end(self, *, metered: bool = True) -> tuple[int, int]:
        """Say that it ended; return the most memory the process tree had and what stays, in bytes, if it was metered."""
        words = self._words
        peak = stays = 0
        if metered:
            # The kernel counts pages in batches, and its peak may lag behind by one.
            peak = stays = self._resident()
            if self._resets:
                peak = max(peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
            if words[_PEAK_OF] == words[_SEQUENCE]:
                peak = max(peak, words[_PEAK])
        if words[_MEMORY] or words[_NANOSECONDS]:
            self._watched_until = time.monotonic() + WATCHFUL_S / 2
        words[_SEQUENCE] += 1
        words[_BUSY] = 0
        words[_SEQUENCE] += 1
        return peak, stays

    def _resident(self) -> int:
        """Give the worker's own memory; its file stays open, as it is asked for with every attempt."""
        if self._statm < 0:
            self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(self._statm, 128, 0).split()[1]) * mmap.PAGESIZE

    def _reset_peak(self) -> None:
        # The kernel's own peak is exact and costs no polling; ru_maxrss shows it in a microsecond.
        if not self._resets:
            return
        try:
            if self._clear_refs < 0:
                self._clear_refs = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._clear_refs, _RESET_PEAK)
        except OSError:
            self._resets = False  # a /proc that cannot be written: the supervisor's looks must do

    # --- the others' side

    def attempt(self) -> AttemptStatus | None:
        """Give the attempt the worker is at; None if it is idle or just changing over."""
        words = self._words
        sequence = words[_SEQUENCE]
        busy = words[_BUSY]
        seen = AttemptStatus(sequence, words[_ATTEMPT], words[_STARTED], words[_MEMORY], words[_NANOSECONDS] / 1e9)
        if sequence % 2 or not busy or words[_SEQUENCE] != sequence:
            return None
        return seen

    @property
    def sequence(self) -> int:
        """Changes whenever an attempt begins or ends."""
        return self._words[_SEQUENCE]

    @property
    def limited(self) -> bool:
        """Whether the latest attempt has, or had, limits."""
        return bool(self._words[_MEMORY] or self._words[_NANOSECONDS])

    @property
    def peak(self) -> int:
        """The most memory of the process tree the supervisor saw in the latest attempt it looked at."""
        return self._words[_PEAK]

    def tell_peak(self, sequence: int, peak: int) -> None:
        """Let the worker know the peak of its tree; the supervisor's word."""
        words = self._words
        words[_PEAK_OF] = 0
        words[_PEAK] = peak
        words[_PEAK_OF] = sequence
