"""How much results may take: what was used longest ago goes first, and nothing that an open session may need.

Each session that uses a store holds a lock in it, which says since when. What was written or used since the oldest of
them began stays, whatever its size. The system lets go of the lock of a session that is killed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windrow.store.lock import LOCK, DirectoryLock, take_lock
from windrow.store.results import ENDING, PART

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_USED_BY = "sessions"
#: Where there are no locks, a session is thought to be over after a week.
_FORGOTTEN_S = 7 * 86400
#: A session that has just begun may not have its lock yet.
_BEGINNING_S = 60
#: Clocks of file systems are coarse, and may be another machine's: what is this much older may have been used as well.
_COARSE_S = 2.0
#: This part of the budget is written before it is looked how much there is, and made free at a time.
_CLEARLY = 0.1
#: Of its time a writer spends no more than one part in so many on looking in vain.
_RARELY = 20


class Usage:
    """A session's claim on what it uses."""

    def __init__(self, directory: Path) -> None:
        # The name says when: the times of a file on another machine's disk are those of another clock.
        self._own = directory / _USED_BY / f"{int(time.time())}-{uuid.uuid4().hex}"
        self._own.mkdir(parents=True, mode=0o700)
        self._lock: DirectoryLock | None = take_lock(self._own)

    def end(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            with contextlib.suppress(OSError):
                self._own.rmdir()


class Kept(NamedTuple):
    """One file of a store."""

    path: str
    size: int
    used: float  #: when, in seconds of the epoch


class Room:
    """What one process may write to a store: room is made before it is needed, and where none can be made it is said."""

    def __init__(self, directory: Path, budget: float) -> None:
        self._directory = directory
        self._budget = budget
        self._left = _CLEARLY * budget  #: to be written without looking
        self._look_at = 0.0  #: there is no room; when that may have changed
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        with self._lock:
            if size <= self._left:
                self._left -= size
                return True
            began = time.monotonic()
            if size > self._budget or began < self._look_at:
                return False
            wanted = max(size, _CLEARLY * self._budget)
            free = self._budget - evict(self._directory, self._budget - wanted)
            self._left = max(0.0, min(free, wanted) - size)
            if size > free:
                now = time.monotonic()
                self._look_at = now + _RARELY * (now - began)
            return size <= free


def evict(directory: Path, budget: float) -> int:
    """Remove what is above a budget, and what killed processes left behind; return the bytes that stay."""
    since = _in_use_since(directory)
    kept, parts = _listed(directory)
    for part in parts:
        if part.used < since:
            _remove(part.path)
    gone = [one.size for one in plan_eviction(kept, budget, since) if _remove_unless_used(one)]
    return sum(one.size for one in kept) - sum(gone)


def plan_eviction(kept: Iterable[Kept], budget: float, since: float) -> list[Kept]:
    """Say what has to go: the one used longest ago first, none that was used since a time."""
    kept = sorted(kept, key=lambda one: one.used)
    above = sum(one.size for one in kept) - budget
    going: list[Kept] = []
    for one in kept:
        if above <= 0 or one.used >= since:
            break
        going.append(one)
        above -= one.size
    return going


def _listed(directory: Path) -> tuple[list[Kept], list[Kept]]:
    kept: list[Kept] = []
    parts: list[Kept] = []
    for group in _entries(directory):
        if len(group.name) != 2:  # ours have two letters
            continue
        for entry in _entries(Path(group.path)):
            to = kept if entry.name.endswith(ENDING) else parts
            if entry.name.endswith((ENDING, PART)):
                with contextlib.suppress(OSError):  # somebody else has removed it
                    status = entry.stat(follow_symlinks=False)
                    # Of short ones, most of what they take is what is left of a block.
                    size = max(status.st_size, 512 * getattr(status, "st_blocks", 0))
                    to.append(Kept(entry.path, size, status.st_mtime))
    return kept, parts


def _in_use_since(directory: Path) -> float:
    """Say when the oldest session began that is open; now, if none is."""
    now = time.time()
    since = now
    for entry in _entries(directory / _USED_BY):
        said = entry.name.partition("-")[0]
        if said.isdigit() and _is_open(Path(entry.path), now - int(said)):
            since = min(since, int(said))
    return since - _COARSE_S


def _is_open(own: Path, age_s: float) -> bool:
    if not (own / LOCK).exists() and age_s < _BEGINNING_S:
        return True
    try:
        lock = take_lock(own)
    except OSError:
        return False  # it has just ended
    if lock is None:
        return True
    lock.release()
    if not lock.real and age_s < _FORGOTTEN_S:
        return True
    with contextlib.suppress(OSError):
        own.rmdir()
    return False


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except OSError:
        return


def _remove_unless_used(one: Kept) -> bool:
    """Remove a result, unless a session that began meanwhile has just found it."""
    try:
        return Path(one.path).stat().st_mtime == one.used and _remove(one.path)
    except OSError:
        return False


def _remove(path: str) -> bool:
    try:
        Path(path).unlink()
    except OSError:
        return False
    return True
