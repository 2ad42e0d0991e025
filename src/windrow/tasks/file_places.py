"""Where a session keeps what is not complete, or not current any more: in a hidden directory beside the files it writes.

Beside them, because a file can be moved into place in one step only within a file system. In that directory are

- ``<task>-<random>``: what one attempt of a task writes, until it is complete;
- ``old/<size>.<time>/<name>``: a file that was overwritten, for readers that have to run again;
- ``done/<digest of name>.<task>``: what a task has begun to move into place, and has completed: a second attempt removes
  what the first one left half done, and changes nothing if it was done;
- ``lock``: held while complete files are moved.

The directory's name has the process that made it, so that later sessions remove what a dead one left.
"""

# ruff: noqa: PTH102, PTH103, PTH105, PTH106, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from windrow.tasks.file_stamps import OURS, Stamp, files_in

if TYPE_CHECKING:
    from collections.abc import Iterator


_SESSION = re.compile(re.escape(OURS) + r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)-(?P<began>\d+)-[0-9a-f]{8}")

# -- names


def new_token() -> str:
    """Make a name for a session: on which machine, by which process, and something random."""
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
    """Give the hidden directory of a session beside files in ``place``."""
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


def remove_session(place: str, token: str) -> None:
    """Remove all that a session keeps beside files in a directory."""
    shutil.rmtree(session_directory(place, token), ignore_errors=True)


# -- what one attempt writes

#: Times that a directory is made again that others remove: links to nowhere never become one.
MOST_TRIES = 1000


def make_private(place: str, token: str, task: int) -> tuple[str, list[str]]:
    """Make the private directory of an attempt, and those above it; return it, and which of those are new."""
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
            os.mkdir(private)
            return private, new
    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)


def _missing(directory: str) -> list[str]:
    """List a directory and those above it that do not exist, outermost first."""
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
    """Remove the private directory of an attempt, and what was made above it if it holds nothing."""
    try:
        os.rmdir(private)  # all is in place, nearly always
    except OSError:
        shutil.rmtree(private, ignore_errors=True)
    for one in new[::-1]:
        with contextlib.suppress(OSError):
            os.rmdir(one)


# -- one at a time


@contextlib.contextmanager
def locked(top: str) -> Iterator[None]:
    """Hold the session's lock on a directory, where the file system has locks: one task at a time moves files there."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(os.path.join(top, "lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        # Said, as a process that was forked meanwhile would hold it otherwise.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


# -- versions


def keep(top: str, target: str) -> None:
    """Keep a file, or those of a directory, as they are, before something else takes their place."""
    place = os.path.dirname(top)
    for path in files_in(target) if os.path.isdir(target) else [target]:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            found = _old(top, place, path, status.st_size, status.st_mtime_ns)
            if not os.path.lexists(found):
                os.makedirs(os.path.dirname(found), exist_ok=True)
                _link_or_copy(path, found)


def _link_or_copy(path: str, to: str) -> None:
    try:
        os.link(path, to)
    except FileNotFoundError:
        raise
    except OSError:  # not on this file system
        part = f"{to}.{secrets.token_hex(4)}"
        shutil.copy2(path, part)
        os.replace(part, to)


def has_kept(top: str, path: str, size: int, mtime_ns: int) -> bool:
    """Whether a version of a file is among those kept."""
    return os.path.lexists(_old(top, os.path.dirname(top), path, size, mtime_ns))


def _old(top: str, place: str, path: str, size: int, mtime_ns: int) -> str:
    return os.path.join(top, "old", f"{size}.{mtime_ns}", os.path.relpath(path, place))


def kept(version: Stamp, token: str) -> tuple[str, str] | None:
    """Find a file that was overwritten: where it is now, and the session's directory that has it; None if nowhere."""
    path = os.path.realpath(version.path)
    place = os.path.dirname(path)
    while True:
        top = session_directory(place, token)
        found = _old(top, place, path, version.size, version.mtime_ns)
        if os.path.lexists(found):
            return found, top
        if place == os.path.dirname(place):
            return None
        place = os.path.dirname(place)


#: Of a note: characters beside the path that a stamp takes at most.
_STAMP_CHARACTERS = 60


def note_begun(top: str, name: str, task: int, new: list[str], paths: list[str]) -> None:
    """Note which files there will be that were not there before, before the first is moved.

    The note takes the room of the one that follows: if the disk is full that is known before anything is in place.
    """
    path = _note(top, name, task)
    with contextlib.suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(json.dumps({"new": new, "paths": paths}) + " " * _STAMP_CHARACTERS * len(paths))


def moved(top: str, name: str, task: int) -> list[str]:
    """List the files that a task has begun to move into place under a name, or has completed."""
    found = _noted(top, name, task)
    return found["paths"] if isinstance(found, dict) else [one[0] for one in found or ()]


def all_moved(top: str) -> set[str]:
    """List the files that tasks of a session have put into place, or are about to, as all notes in a directory say."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for note in os.listdir(os.path.join(top, "done")):
            said = _read_note(os.path.join(top, "done", note))
            found.update(said["paths"] if isinstance(said, dict) else [one[0] for one in said or ()])
    return found


def note_completed(top: str, name: str, task: int, stamps: list[Stamp]) -> None:
    """Note that a task has completed files: it may have to run again, and must not replace what others wrote since."""
    # In the place of the other one, without taking room that may not be there.
    with open(os.open(_note(top, name, task), os.O_WRONLY), "wb") as stream:
        stream.write(json.dumps(stamps).ljust(os.fstat(stream.fileno()).st_size).encode())


def completed(top: str, name: str, task: int) -> tuple[list[Stamp] | None, list[str]]:
    """Say what a task has completed under a name, None if nothing; and what it was about to make, if that is all one knows."""
    found = _noted(top, name, task)
    if isinstance(found, list):
        return [Stamp(*one) for one in found], []
    return None, found["new"] if found else []


def _noted(top: str, name: str, task: int) -> Any:
    return _read_note(_note(top, name, task))


def _read_note(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (FileNotFoundError, ValueError):
        return None  # or it was just being written


def _note(top: str, name: str, task: int) -> str:
    # Names have any length, and any bytes.
    return os.path.join(top, "done", f"{hashlib.sha256(os.fsencode(name)).hexdigest()}.{task}")
