"""A stream of files that appear in a directory.

A file should be written under another name, and renamed when it is complete. One that cannot be read
is looked at again for as long as it changes, and a while longer.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from windrow.data.source import open as open_source
from windrow.errors import DataError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


#: A file of this name in the directory says that no other will come.
END = "stream.end"
#: Seconds between two looks at the directory.
LOOK_S = 0.1
#: Seconds that a file may stay unreadable without changing: whoever writes it may pause.
PATIENCE_S = 5.0

UNFINISHED = (".tmp", ".part")
KINDS = (".parquet", ".pq", ".root")


@dataclass(slots=True)
class _Unreadable:
    """A file that could not be read when it was last looked at."""

    stamp: tuple[int, int]
    since: float
    error: Exception


class DirectoryTap:
    """Batches of the files of a directory, in the order of their names as far as they are there together."""

    def __init__(self, place: Path, pattern: str, columns: Sequence[str] | None, until_idle: float | None) -> None:
        if not place.is_dir():
            raise SpecError(f"{place} is no directory: a stream of files needs one that exists")
        self.label = f"stream {place / pattern if pattern else place}"
        self._place, self._pattern = place, pattern
        self._columns, self._until_idle = columns, until_idle
        self._stopped = threading.Event()
        self._done: set[str] = set()
        self._unreadable: dict[str, _Unreadable] = {}

    def opened(self) -> DirectoryTap:
        """Give what one run reads from: all files once more."""
        return DirectoryTap(self._place, self._pattern, self._columns, self._until_idle)

    def stop(self) -> bool:
        """Take no more files."""
        self._stopped.set()
        return True

    def batches(self) -> Iterator[tuple[str, Any]]:
        """Give the units of files that are complete, with what to call them."""
        news = time.monotonic()
        while not self._stopped.is_set():
            over = (self._place / END).exists()  # looked at first: what was there before it counts
            taken = 0
            for path in self._new_files():
                for batch in self._read(path):
                    yield str(path), batch
                    if self._stopped.is_set():
                        return
                taken += path.name in self._done
            if taken or self._unreadable:
                news = time.monotonic()
            elif over or self._is_idle(news):
                return
            if not taken:
                self._stopped.wait(LOOK_S)

    def _is_idle(self, since: float) -> bool:
        return self._until_idle is not None and time.monotonic() - since >= self._until_idle

    def _new_files(self) -> list[Path]:
        try:
            names = os.listdir(self._place)  # noqa: PTH208 - no object for each of the many done
        except OSError as error:
            raise DataError(f"{self.label} cannot be looked at any more: {error}") from error
        new = sorted([name for name in names if name not in self._done and self._is(name)])
        for name in self._unreadable.keys() - set(new):
            del self._unreadable[name]  # it was taken away again
        return [self._place / name for name in new]

    def _is(self, name: str) -> bool:
        if name.startswith(".") or name.endswith(UNFINISHED) or name == END:
            return False
        return fnmatchcase(name, self._pattern) if self._pattern else name.endswith(KINDS)

    def _read(self, path: Path) -> Iterator[dict[str, Any]]:
        """Give the batches of a file; nothing, for now, of one that is not complete."""
        try:
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns)
            known = self._unreadable.get(path.name)
            if known is not None and known.stamp == stamp and not self._overdue(known):
                return
            reader = open_source(str(path)).open(0)
        except (DataError, OSError) as error:
            self._wait_for(path, error)
            return
        self._unreadable.pop(path.name, None)
        self._done.add(path.name)
        try:
            names = list(reader.info.columns) if self._columns is None else list(self._columns)
            for start, stop in pairwise(reader.info.borders):
                yield reader.read(names, start, stop)
        finally:
            reader.close()

    def _overdue(self, known: _Unreadable) -> bool:
        return time.monotonic() - known.since > PATIENCE_S

    def _wait_for(self, path: Path, error: Exception) -> None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        stamp = (status.st_size, status.st_mtime_ns)
        known = self._unreadable.get(path.name)
        if known is None or known.stamp != stamp:
            self._unreadable[path.name] = _Unreadable(stamp, time.monotonic(), error)
        elif self._overdue(known):
            raise DataError(
                f"{path} cannot be read, and has not changed for {PATIENCE_S:g} s: {error}; write files under another "
                "name (.part), and rename them when they are complete",
                file=str(path),
            ) from error
