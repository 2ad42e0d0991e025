"""Files that are whole or not there: written beside their place, on the disk for good, then moved."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


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
                _write_all(stream.fileno(), piece)
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


def _write_all(handle: int, piece: bytes | memoryview) -> None:
    if not memoryview(piece).nbytes:
        return  # which cannot be cast
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]
