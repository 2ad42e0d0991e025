"""Private directories: where an attempt of a task writes until its files are complete.

They are in a hidden directory of the session beside the files, because a file can be moved into place in one step only
within a file system. Its name has the process that made it, so that later sessions remove what a dead one left. In it is
one directory for each attempt, ``<task>-<random>``, as long as that runs.
"""

# ruff: noqa: PTH102, PTH106, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
from functools import lru_cache

from windrow.tasks.files.stamps import OURS

_SESSION = re.compile(re.escape(OURS) + r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<began>\d+)-[0-9a-f]{8}")
#: Times that a directory is made again that others remove: links to nowhere never become one.
MOST_TRIES = 1000


def new_token() -> str:
    return f"{_machine()}-{os.getpid()}-{_began(os.getpid())}-{secrets.token_hex(4)}"


@lru_cache(maxsize=1)
def _machine() -> str:
    """Tell machines apart, boots of them, and containers: a process number means something within one only."""
    words = list(os.uname()[1:2])
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as stream:
        words.append(stream.read())
    with contextlib.suppress(OSError):
        words.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("".join(words).encode()).hexdigest()[:8]


def _began(pid: int) -> str:
    """Say when a process began, as numbers are used again; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return stream.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "0"  # it lives, and this system does not say since when


def session_directory(place: str, token: str) -> str:
    return os.path.join(place, OURS + token)


def remove_dead(place: str) -> None:
    """Remove what sessions of dead processes of this machine left in a directory."""
    try:
        names = os.listdir(place)
    except OSError:
        return
    for name in names:
        known = _SESSION.fullmatch(name)
        if known and known["machine"] == _machine() and _began(int(known["pid"])) != known["began"]:
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)


def make_private(place: str, token: str, task: int) -> tuple[str, list[str]]:
    """Make the private directory of an attempt, and those above it; return it, and which of those are new.

    What an earlier attempt of the task left, whose worker was killed, is removed.
    """
    top = session_directory(place, token)
    private = os.path.join(top, f"{task}-{secrets.token_hex(4)}")
    new: list[str] = []
    for _ in range(MOST_TRIES):
        for one in _missing(top):
            with contextlib.suppress(FileExistsError):
                os.mkdir(one)
                new.append(one)
        # Another attempt, which had made the one above, may have just removed it.
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(top):
                if name.startswith(f"{task}-"):
                    shutil.rmtree(os.path.join(top, name), ignore_errors=True)
            os.mkdir(private)
            return private, new
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)


def _missing(directory: str) -> list[str]:
    found: list[str] = []
    while True:
        try:
            os.stat(directory)
        except FileNotFoundError:
            found.append(directory)
            directory = os.path.dirname(directory)
        else:
            return found[::-1]


def remove_private(private: str, new: list[str]) -> None:
    """Remove the private directory of an attempt, and those above it that hold nothing and that it made, or the session."""
    try:
        os.rmdir(private)  # all is in place, nearly always
    except OSError:
        shutil.rmtree(private, ignore_errors=True)
    for one in (os.path.dirname(private), *new[::-1]):
        with contextlib.suppress(OSError):
            os.rmdir(one)
