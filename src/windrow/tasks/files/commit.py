"""Moving what a task has made into place: each file in one step, a directory as a whole or file by file."""

# ruff: noqa: PTH104, PTH105, PTH107, PTH110, PTH112, PTH114, PTH115, PTH116, PTH117, PTH118, PTH120, PTH123, PTH208, PTH211
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat as modes
from typing import TYPE_CHECKING

from windrow.tasks.files.ownership import mark_directory, mark_file, others_in
from windrow.tasks.files.scratch import MOST_TRIES
from windrow.tasks.files.stamps import OURS, files_in

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        with contextlib.suppress(FileNotFoundError):  # another session replaces it too
            shutil.copymode(target, source)
    mark_directory(source, target, task, without=set(others_in(target)))
    _replace_directory(source, target)


def _replace_directory(source: str, target: str) -> None:
    """Put a directory where another may be; other sessions may do the same meanwhile."""
    for _ in range(MOST_TRIES):
        try:
            os.rename(source, target)  # nothing is there, or an empty one
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        else:
            return
        try:
            if not _exchange(source, target):
                _exchange_in_steps(source, target)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue  # another session was faster
        shutil.rmtree(source, ignore_errors=True)
        return
    os.rename(source, target)


def _exchange(one: str, other: str) -> bool:
    """Exchange two directories in one step, where the system can: nobody ever finds none there."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    ended = function(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    if ended and ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), other)
    return not ended


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
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another session was faster
        else:
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


def replace_link(source: str, path: str) -> None:
    """Put a file or link in the place of a link; what that leads to stays as it is."""
    part = os.path.join(os.path.dirname(path), f"{OURS}part-{secrets.token_hex(4)}")
    try:
        os.rename(source, part)
    except OSError:  # another file system
        shutil.copy2(source, part, follow_symlinks=False)
    os.replace(part, path)


def settle_links(private: str, names: Mapping[str, str]) -> None:
    """Make links in a private directory such that they lead to the same from where they will be.

    ``names`` has the final names of private directories and files. What leads nowhere from here is meant from there.
    """
    for place, directories, files in os.walk(private):
        for name in (*directories, *files):
            link = os.path.join(place, name)
            if not os.path.islink(link) or not os.path.exists(link):
                continue
            to = os.readlink(link)
            above, last = os.path.split(os.path.join(os.path.realpath(place), to))
            full = os.path.join(os.path.realpath(above), last)
            final = final_name(full, names)
            if final == full if os.path.isabs(to) else full.startswith(private + os.sep):
                continue
            os.remove(link)
            os.symlink(os.path.relpath(final, final_name(place, names)), link)


def final_name(path: str, names: Mapping[str, str]) -> str:
    private = path
    while OURS in private:
        if private in names:
            return names[private] + path[len(private) :]
        private = os.path.dirname(private)
    return path


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
