"""Results of calls, kept across runs: one file per call, named by the call's lineage, whole or not there.

Of each output there are the bytes of its pickle and of its buffers, so that one can be read alone. What is
short is checked when it is found, what is long when it is read. Several processes may write, read and remove at once: a
file comes by a rename, and one that has gone is one that never was. Nothing is pickled or unpickled here.
"""

# ruff: noqa: PTH123 - calls that find their result do little else than come here, and making a Path takes as long as opening

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from windrow.errors import CorruptFileError, DataError
from windrow.store.disk import LOCK, DirectoryLock, check_private, take_lock, write_whole

#: How files of results end, and those that are being written.
ENDING = ".result"
PART = ".part"
#: What to do about a damaged one.
AGAIN = "it was removed, so run the program again and the task is done again"

_MAGIC = b"windrow result\n\0"
_FORMAT = 1
_HEADER = struct.Struct("<16sIIQ16s")  # magic, format, length of the head, of the file, digest
#: Read in one go, and checked at once. Longer ones are synced when they are written instead: so much is cheap to check
#: (10 us) and too little to wait for a disk (1 ms and more).
SHORT = 64 * 1024


class Output(NamedTuple):
    """Where one output stands in its file."""

    start: int
    lengths: tuple[int, ...]  #: of the pickle and of each buffer
    digest: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a result without reading its values."""

    path: str
    size: int
    outputs: Mapping[str, Output]
    facts: Mapping[str, Any]  #: what the writer noted


class Results:
    """The results in one directory, which is made when something is written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._text = str(directory)
        self._numbers = itertools.count()
        self._writer = ""

    def path(self, key: str) -> Path:
        """Say where a result stands; a directory with a million files would be slow."""
        return Path(self._place(key))

    def _place(self, key: str) -> str:
        return f"{self._text}/{key[:2]}/{key}{ENDING}"

    def write(self, key: str, outputs: Mapping[str, Sequence[bytes | memoryview]], facts: Mapping[str, Any]) -> int:
        """Keep a result, whole or not at all; returns how long the file is. OSError if that cannot be."""
        places, pieces, start = {}, [], 0
        for name, own in outputs.items():
            views = [memoryview(piece).cast("B") if len(piece) else memoryview(b"") for piece in own]
            lengths = [view.nbytes for view in views]
            places[name] = [start, lengths, _digest(views)]
            start += sum(lengths)
            pieces += views
        head = json.dumps({"outputs": places, "facts": facts}).encode()
        size = _HEADER.size + len(head) + start
        header = _HEADER.pack(_MAGIC, _FORMAT, len(head), size, xxhash.xxh3_128_digest(head))
        # No two writers have the same name, not even for the same key.
        self._writer = self._writer or uuid.uuid4().hex
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f"{path.stem}.{self._writer}{next(self._numbers)}{PART}")
        # Short ones in one piece: a system call each would take as long as the rest.
        content: list[bytes | memoryview] = [header, head, *pieces]
        if size <= SHORT:
            content = [b"".join(content)]
        write_whole(path, content, part=part, sync=size > SHORT)
        return size

    def find(self, key: str) -> Entry | None:
        path = self._place(key)
        try:
            with open(path, "rb", buffering=0) as stream:
                size = os.fstat(stream.fileno()).st_size
                entry, body = _opened(path, size, stream)
                if size <= SHORT:
                    for output in entry.outputs.values():
                        _pieces(path, output, body, stream)
        except CorruptFileError:
            self.remove(key)
            return None
        except (DataError, OSError):
            return None
        return entry

    def load(self, key: str, name: str) -> list[bytearray]:
        """Read the pickle and the buffers of an output; CorruptFileError, and no such result any more, if it is damaged."""
        path = self._place(key)
        try:
            with open(path, "rb", buffering=0) as stream:
                status = os.fstat(stream.fileno())
                check_private(Path(path), status)
                entry, body = _opened(path, status.st_size, stream)
                output = entry.outputs.get(name)
                if output is None:
                    raise _damaged(path, "was replaced by one that has no such output")
                pieces = _pieces(path, output, body, stream)
        except CorruptFileError:
            self.remove(key)
            raise
        except OSError as error:
            raise CorruptFileError(
                f"{path}, a kept result, has gone or cannot be read ({error}) since it was found; {AGAIN}", file=path
            ) from error
        return pieces

    def touch(self, key: str) -> bool:
        try:
            os.utime(self._place(key))
        except OSError:
            return False
        return True

    def remove(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self.path(key).unlink(missing_ok=True)


def _opened(path: str, size: int, stream: FileIO) -> tuple[Entry, int]:
    start: bytes | bytearray = stream.read(SHORT)
    if len(start) < _HEADER.size or not start.startswith(_MAGIC):
        raise _damaged(path, "is not a whole result that Windrow wrote")
    _, version, length, expected, digest = _HEADER.unpack_from(start)
    body = _HEADER.size + length
    if version != _FORMAT:
        # Of another version, which may be in use as well: it is no use here, and nothing is wrong with it.
        raise DataError(f"{path}, a kept result, has format {version}, and this Windrow reads format {_FORMAT}")
    if size != expected or body > size:
        raise _damaged(path, f"should have {expected} bytes and has {size}")
    if len(start) < body:
        stream.seek(0)
        start = _exactly(path, stream, body)
    head = start[_HEADER.size : body]
    if xxhash.xxh3_128_digest(head) != digest:
        raise _damaged(path, "has changed: its checksum is wrong")
    said = json.loads(bytes(head))
    outputs = {name: Output(at, tuple(lengths), words) for name, (at, lengths, words) in said["outputs"].items()}
    return Entry(path, size, outputs, said["facts"]), body


def _pieces(path: str, output: Output, body: int, stream: FileIO) -> list[bytearray]:
    stream.seek(body + output.start)
    pieces = [_exactly(path, stream, length) for length in output.lengths]
    if _digest(pieces) != output.digest:
        raise _damaged(path, "has changed: the checksum of an output is wrong")
    return pieces


def _exactly(path: str, stream: FileIO, length: int) -> bytearray:
    # Buffers of arrays are made of this, and who gets an array may write to it.
    content = bytearray(length)
    rest = memoryview(content)
    while rest:
        got = stream.readinto(rest)
        if not got:
            raise _damaged(path, "is cut off")
        rest = rest[got:]
    return content


def _digest(pieces: Sequence[bytearray | memoryview]) -> str:
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _damaged(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(f"{path}, a kept result, {why}; {AGAIN}", file=path)


# -- how much results may take: what was used longest ago goes first, and nothing that an open session may need
#
# Each session that uses a store holds a lock in it, which says since when. What was written or used since the oldest of
# them began stays, whatever its size. The system lets go of the lock of a session that is killed.

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
