"""Who else can write here: pickles are read only from where nobody but their owner can have written them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from windrow.errors import CorruptFileError, DataError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def check_private(path: Path, status: os.stat_result) -> None:
    """Refuse a file that others can change, or replace; ``status`` is that of the open file."""
    if not stat.S_ISREG(status.st_mode):
        raise CorruptFileError(f"{path} is not a file")
    check_private_directory(path.resolve().parent)
    _refuse_if_shared(path, status)


def check_private_directory(place: Path) -> None:
    _refuse_if_shared(place, place.stat())


def _refuse_if_shared(place: Path, status: os.stat_result) -> None:
    if _may_be_changed_by_others(status):
        raise DataError(
            f"{place} can be changed by other users, and reading it runs code that is in it: "
            f"if you trust it, copy it to a directory of your own, or say chmod go-w {place}"
        )


def keep_others_out(place: Path, *, ours: bool) -> None:
    """Close a directory to others where it is ours to close; otherwise say now that its result could not be read."""
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
