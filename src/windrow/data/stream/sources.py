"""Where the batches of a stream come from: an iterable, files that appear in a directory, or a socket.

Each is a generator of (name, batch) that ends soon after an event is set by another thread.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import threading
import time
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from windrow.data.source import open as open_source
from windrow.errors import DataError, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    Batches = Generator[tuple[str, Any], None, None]

#: A file of this name in the directory says that no other will come.
END = "stream.end"
#: Seconds between two looks at the directory.
LOOK_S = 0.1
#: Seconds that a file may stay unreadable without changing: whoever writes it may pause.
PATIENCE_S = 5.0

UNFINISHED = (".tmp", ".part")
KINDS = (".parquet", ".pq", ".root")

#: Seconds in which whoever sends the stream has to begin to listen: both may be started at the same time.
CONNECT_S = 10.0
#: Between two tries.
AGAIN_S = 0.05


class Tap:
    """The batches of one run, and how to end them from another thread."""

    def __init__(self, generate: Callable[[threading.Event], Batches], *, ends_at_once: bool = True) -> None:
        self._generate = generate
        self._stopped = threading.Event()
        self._ends_at_once = ends_at_once

    def batches(self) -> Batches:
        """Give what to call a batch, and the batch; may wait for as long as it takes."""
        return self._generate(self._stopped)

    def stop(self) -> bool:
        """End ``batches`` from another thread; False if that is not possible before its next batch."""
        self._stopped.set()
        return self._ends_at_once


def take_from_iterable(source: Iterable[Any]) -> Batches:
    """Give what an iterable gives, which nobody can break into between two batches."""
    items = iter(source)
    try:
        for number, batch in enumerate(items):
            yield f"batch {number} of the stream", batch
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


class DirectoryWatch:
    """The files of a directory, in the order of their names as far as they are there together.

    A file should be written under another name, and renamed when it is complete. One that cannot be read
    is looked at again for as long as it changes, and a while longer.
    """

    def __init__(self, place: Path, pattern: str, columns: Sequence[str] | None, until_idle: float | None) -> None:
        self._place, self._pattern = place, pattern
        self._columns, self._until_idle = columns, until_idle
        self._done: set[str] = set()
        #: by name: size and time of a file that could not be read, and since when these are so
        self._unreadable: dict[str, tuple[tuple[int, int], float]] = {}

    def batches(self, stopped: threading.Event) -> Batches:
        """Give the units of files that are complete, with what to call them."""
        news = time.monotonic()
        while not stopped.is_set():
            over = (self._place / END).exists()  # looked at first: what was there before it counts
            taken = 0
            for path in self._new_files():
                for batch in self._read(path):
                    yield str(path), batch
                    if stopped.is_set():
                        return
                taken += path.name in self._done
            if taken or self._unreadable:
                news = time.monotonic()
            elif over or (self._until_idle is not None and time.monotonic() - news >= self._until_idle):
                return
            if not taken:
                stopped.wait(LOOK_S)

    def _new_files(self) -> list[Path]:
        try:
            names = os.listdir(self._place)  # noqa: PTH208 - no object for each of the many done
        except OSError as error:
            raise DataError(f"stream {self._place} cannot be looked at any more: {error}") from error
        new = sorted([name for name in names if name not in self._done and self._is_wanted(name)])
        for name in self._unreadable.keys() - set(new):
            del self._unreadable[name]  # it was taken away again
        return [self._place / name for name in new]

    def _is_wanted(self, name: str) -> bool:
        if name.startswith(".") or name.endswith(UNFINISHED) or name == END:
            return False
        return fnmatchcase(name, self._pattern) if self._pattern else name.endswith(KINDS)

    def _read(self, path: Path) -> Iterator[dict[str, Any]]:
        """Give the batches of a file; nothing, for now, of one that is not complete."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        stamp = (status.st_size, status.st_mtime_ns)
        seen, since = self._unreadable.get(path.name, (None, 0.0))
        overdue = time.monotonic() - since > PATIENCE_S
        if seen == stamp and not overdue:
            return
        try:
            reader = open_source(str(path)).open(0)
        except (DataError, OSError) as error:
            if seen == stamp and path.exists():
                raise DataError(
                    f"{path} cannot be read, and has not changed for {PATIENCE_S:g} s: {error}; write files under "
                    "another name (.part), and rename them when they are complete",
                    file=str(path),
                ) from error
            self._unreadable[path.name] = (stamp, time.monotonic())
            return
        self._unreadable.pop(path.name, None)
        self._done.add(path.name)
        try:
            names = list(reader.info.columns) if self._columns is None else list(self._columns)
            for start, stop in pairwise(reader.info.borders):
                yield reader.read(names, start, stop)
        finally:
            reader.close()


def loopback_address(text: str) -> tuple[str, int]:
    """Split ``tcp://localhost:5555``; only this machine, as nothing here says who may send or listen."""
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise SpecError(f"a socket is given as tcp://localhost:PORT, got {text!r}")
    if not _is_loopback(host):
        raise SpecError(
            f"{text!r} is not on this machine: streams are read from localhost only, as they are neither encrypted nor "
            "is it known who sends them; bring the port here, for instance with ssh -L"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def take_from_socket(address: tuple[str, int], label: str, stopped: threading.Event) -> Batches:
    """Connect to a port, and read Arrow's stream format until the sender ends it or closes the connection."""
    import pyarrow as pa

    connection = _connect(address, label, stopped)
    if connection is None:
        return
    ended = threading.Event()
    threading.Thread(target=_hang_up, args=(connection, stopped, ended), name="windrow-socket", daemon=True).start()
    with connection, connection.makefile("rb") as file:
        try:
            with pa.ipc.open_stream(file) as reader:
                for number, batch in enumerate(reader):
                    yield f"batch {number} of {label}", batch
        except (pa.ArrowException, OSError) as error:
            if not stopped.is_set():
                raise DataError(f"{label} is no stream of Arrow record batches, or broke off: {error}") from error
        finally:
            ended.set()
            stopped.set()


def _hang_up(connection: socket.socket, stopped: threading.Event, ended: threading.Event) -> None:
    stopped.wait()
    if not ended.is_set():
        with contextlib.suppress(OSError):  # the other side may have closed it already
            connection.shutdown(socket.SHUT_RDWR)


def _connect(address: tuple[str, int], label: str, stopped: threading.Event) -> socket.socket | None:
    until = time.monotonic() + CONNECT_S
    while not stopped.is_set():
        try:
            connection = socket.create_connection(address, timeout=1.0)
        except OSError as error:
            if time.monotonic() > until:
                raise DataError(f"{label}: nobody answers there: {error}") from error
            stopped.wait(AGAIN_S)
            continue
        connection.settimeout(None)
        return connection
    return None
