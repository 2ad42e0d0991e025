"""Files and directories on disk: written whole or not at all, locked by one run, private to their owner."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windrow.errors import CorruptFileError, DataError, UsageError

#: What a file system answers that cannot, or need not, be told to keep a directory.
_NO_DIRECTORY_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF, errno.EACCES}


def write_whole(
    path: Path, pieces: Sequence[bytes | memoryview], *, part: Path | None = None, sync: bool = True, mode: int = 0o600
) -> None:
    """Write a file, by default for its owner alone, at ``part``, and move it to its place when it is complete.

    The caller may want its name synced too. Without ``sync`` a power cut may leave a file that is not whole.
    """
    if part is None:
        part = part_of(path)
        part.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        # No buffer: pieces can be large and need not be copied on their way.
        with os.fdopen(os.open(part, flags, mode), "wb", buffering=0) as stream:
            for piece in pieces:
                write_all(stream.fileno(), piece)
            if sync:
                os.fsync(stream.fileno())
        part.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(path)  # of a full disk the system tells no name
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def sync_directory(place: Path) -> None:
    """Have the names in a directory survive a power cut."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise
    finally:
        os.close(handle)


def part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def write_all(handle: int, piece: bytes | memoryview) -> None:
    """Write all of a piece; a system call may write less."""
    if not memoryview(piece).nbytes:
        return  # which cannot be cast
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]


# -- a lock on a directory, held by one run at a time and let go of by the system if that run is killed


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
    """Lock a directory; None if another process has it. Where the file system has no locks, every process may."""
    path = directory / LOCK
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        real = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            real = False  # not on this file system
        with contextlib.suppress(FileNotFoundError):
            # Still the file of that name, and not one that was released in between.
            if os.path.samestat(os.fstat(handle), path.stat()):
                return DirectoryLock(path, real, handle)
        os.close(handle)


# -- who else can write here: pickles are read only from where nobody but their owner can have written them


def check_private(path: Path, status: os.stat_result) -> None:
    """Refuse a file that other users can change, or replace; ``status`` is that of the open file."""
    if not stat.S_ISREG(status.st_mode):
        raise CorruptFileError(f"{path} is not a file")
    refuse_if_shared(path.resolve().parent)
    refuse_if_shared(path, status)


def refuse_if_shared(place: Path, status: os.stat_result | None = None) -> None:
    if _may_be_changed_by_others(status or place.stat()):
        raise DataError(
            f"{place} can be changed by other users, and reading it runs code that is in it: "
            f"if you trust it, copy it to a directory of your own, or say chmod go-w {place}"
        )


def keep_others_out(place: Path, *, ours: bool) -> None:
    """Close a directory to other users where it is ours to close; otherwise say now that its result could not be read."""
    status = place.stat()
    if not _may_be_changed_by_others(status):
        return
    shared = bool(status.st_mode & stat.S_ISVTX)  # sticky: meant for everybody
    if ours and not shared and status.st_uid == os.getuid():
        place.chmod(0o700)
        return
    raise UsageError(
        f"{place} can be written to by other users, and a result is read only from a directory that you alone can "
        f"write to: name a new directory inside it, for instance {place / 'run'}, or say chmod go-w {place}"
    )


def _may_be_changed_by_others(status: os.stat_result) -> bool:
    trusted = status.st_uid in (os.getuid(), 0)
    return not trusted or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
