"""A lock on a directory, held by one run at a time and let go of by the system if that run is killed."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


#: Hidden, and ours by its name: nobody else calls a file that.
LOCK = ".windrow-lock"


@dataclass(slots=True)
class DirectoryLock:
    """A lock that was taken."""

    path: Path
    real: bool  #: False where the file system has no locks: then nobody knows who else has it
    _handle: int | None

    def release(self) -> None:
        if self._handle is not None:
            # While it is still locked: who waits for this file then finds that it is not the one in place.
            self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None


def take_lock(directory: Path) -> DirectoryLock | None:
    """Lock a directory; None if somebody else has it. Where the file system has no locks, everybody may."""
    path = directory / LOCK
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        locked = _locked(handle)
        if locked is False:
            os.close(handle)
            return None
        if _is_in_place(handle, path):
            return DirectoryLock(path, bool(locked), handle)
        os.close(handle)


def _locked(handle: int) -> bool | None:
    """Lock a file; False if somebody else has, None where there are no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None  # not on this file system
    return True


def _is_in_place(handle: int, path: Path) -> bool:
    """Whether the file is still the one of that name, and not one that was released in between."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
