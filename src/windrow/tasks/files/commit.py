"""Moving what a task has made into place: each file in one step, a directory as a whole or file by file."""

# ruff: noqa: PTH104, PTH105, PTH112, PTH114, PTH115, PTH116, PTH117, PTH118, PTH120, PTH123, PTH206, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat as modes

from windrow.errors import TaskFileError
from windrow.tasks.files.ownership import mark_directory, mark_file, others_in
from windrow.tasks.files.stamps import OURS, files_in

#: Nanoseconds by which a file is made younger, until its time differs: some file systems keep seconds only.
_STEPS_NS = (1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)

#: Of the kernel.
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def replace(source: str, target: str, task: str) -> None:
    if not os.path.isdir(source) or os.path.islink(source):
        _replace_file(source, target, task)
        return
    if os.path.isdir(target):
        for one in files_in(source):
            _tell_apart(one, os.path.join(target, os.path.relpath(one, source)))
        shutil.copymode(target, source)
    mark_directory(source, target, task, without=set(others_in(target)))
    _replace_directory(source, target)


def _replace_directory(source: str, target: str) -> None:
    try:
        os.rename(source, target)  # nothing is there, or an empty one
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(source, target):
            _exchange_in_steps(source, target)
        shutil.rmtree(source, ignore_errors=True)


def _exchange(one: str, other: str) -> bool:
    """Exchange two directories in one step, where the system can: nobody ever finds none there."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    return not function(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)


def _exchange_in_steps(source: str, target: str) -> None:
    aside = f"{os.path.dirname(source)}{os.sep}{OURS}aside-{secrets.token_hex(4)}"
    os.rename(target, aside)
    try:
        os.rename(source, target)
    except OSError:
        with contextlib.suppress(OSError):
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def merge(source: str, target: str, task: str) -> None:
    """Put a file in place, or all files of a directory into another, beside what is there."""
    if not os.path.isdir(source) or os.path.islink(source):
        replace(source, target, task)
        return
    if not os.path.lexists(target):
        mark_directory(source, target, task)
        os.rename(source, target)
        return
    for name in sorted(os.listdir(source)):
        merge(os.path.join(source, name), os.path.join(target, name), task)


def _replace_file(source: str, target: str, task: str) -> None:
    if not os.path.islink(source) and os.lstat(source).st_nlink == 1:  # else it is somebody's file
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(target, source)  # who may read it does not change
        _tell_apart(source, target)
        mark_file(source, target, task)
    os.replace(source, target)


def _tell_apart(source: str, target: str) -> None:
    """See that size and time tell a file from the one it replaces, however fast one follows the other."""
    for step in _STEPS_NS:
        new = os.lstat(source)
        if new.st_nlink > 1 or not modes.S_ISREG(new.st_mode):
            return  # by another name it is somebody's input, perhaps, which stays as it is
        try:
            former = os.stat(target)
        except OSError:
            return
        if (new.st_size, new.st_mtime_ns) != (former.st_size, former.st_mtime_ns):
            return
        os.utime(source, ns=(new.st_atime_ns, new.st_mtime_ns + step))


def check_links(task: str, private: str) -> None:
    """Refuse links that would lead elsewhere from where the files are put: a link stays within its own directory."""
    for place, directories, files in os.walk(private):
        top = os.path.join(private, os.path.relpath(place, private).split(os.sep)[0], "")
        for name in (*directories, *files):
            link = os.path.join(place, name)
            if not os.path.islink(link):
                continue
            to = os.readlink(link)
            inside = os.path.join(os.path.normpath(os.path.join(place, to)), "").startswith(top)
            stays = OURS not in to if os.path.isabs(to) else inside
            if place == private or not stays:
                raise TaskFileError(
                    f"task {task!r} has made {os.path.relpath(link, private)}, a link to {to}; an output is a file or a directory "
                    "itself, in which links lead to what is in it by a relative path, or elsewhere by an absolute one: write a copy"
                )


def copy_file(source: str, target: str) -> None:
    """Copy content and rights; a file system that can share the blocks does."""
    with open(source, "rb") as read, open(target, "wb") as write:
        try:
            left = os.fstat(read.fileno()).st_size
            while left > 0:
                count = os.copy_file_range(read.fileno(), write.fileno(), left)
                if not count:
                    break
                left -= count
        except (AttributeError, OSError):
            read.seek(0)
            write.seek(0)
            write.truncate()
            shutil.copyfileobj(read, write, 1 << 20)
    shutil.copymode(source, target)
