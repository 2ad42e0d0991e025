"""``stream``: rows that come while the run goes on, and are gone when they are done."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windrow.data.source import open as open_source
from windrow.data.spec import BARE_DATASET
from windrow.data.stream.flow import Flow
from windrow.errors import DataError, SpecError, UsageError
from windrow.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from windrow.data.base import Reader

    Batches = Generator[tuple[str, Any], None, None]


class Stream:
    """A source whose rows are not there yet; each run over it begins anew."""

    def __init__(self, open_tap: Callable[[], Tap], open_flow: Callable[..., Flow]) -> None:
        self._open_tap, self._open_flow = open_tap, open_flow
        nothing = open_flow()
        self.inputs, self.datasets = nothing.inputs, nothing.datasets

    def __repr__(self) -> str:
        return f"<{self.inputs[0].label}>"

    def open(self, index: int) -> Reader:  # noqa: ARG002 - a source's
        """Refuse: there are no rows but in a run."""
        raise UsageError(
            f"{self.inputs[0].label} has rows only while a run takes them: look at a batch of it as arrays, or run"
        )

    def begin(self, max_rows: int | None = None) -> tuple[Tap, Flow]:
        """Give what one run needs: where batches come from, and where they go."""
        return self._open_tap(), self._open_flow(max_rows=max_rows)


def stream(
    source: Any,
    *,
    dataset: str = BARE_DATASET,
    metadata: Mapping[str, Any] | None = None,
    batch: int | None = None,
    columns: Sequence[str] | None = None,
    buffer: str | float = "64 MB",
    until_idle: str | float | None = None,
) -> Stream:
    """Return a source of rows that come while the run goes on; memory stays bounded, whether the producer or the run is faster.

    Parameters
    ----------
    source
        An iterator, generator or other iterable of batches (mappings of arrays, awkward arrays of records, Arrow record
        batches or tables); a directory, or ``"directory/*.parquet"``, whose files are taken as they appear, until one called
        ``stream.end`` does; or ``"tcp://localhost:PORT"``, to which a sender of Arrow's stream format listens.
    dataset, metadata
        What the rows belong to, and what is known of it.
    batch
        Rows of a mini-batch, on which outputs are evaluated. With it the result has the same bits as a run over the same
        rows as arrays, ``wr.data.open(arrays, grid=batch)``, however the producer cut them. By default each batch that
        comes is one (above 262,144 rows it is cut).
    columns
        Take these only; by default all, and all batches must have the same.
    buffer
        Bytes of rows that may wait or be worked on before the producer is made to wait; one batch more, at most.
    until_idle
        Of a directory: end after so long without a new file.
    """
    if batch is not None and (type(batch) is not int or batch < 1):
        raise SpecError(f"batch= is the number of rows of a mini-batch and at least 1, not {batch!r}")
    if isinstance(columns, str):
        raise SpecError(f"columns= is a list of names, got {columns!r}")
    size = parse_bytes(buffer)
    if size < 1:
        raise SpecError(f"buffer= must be more than nothing, got {buffer!r}")
    names = None if columns is None else tuple(columns)
    label, open_tap = _find_source(source, names, until_idle)
    about = MappingProxyType({"dataset": dataset, **(metadata or {})})
    flow = partial(Flow, label=label, dataset=dataset, metadata=about, batch=batch, columns=names, buffer=size)
    return Stream(open_tap, flow)


def _find_source(
    source: Any, columns: Sequence[str] | None, until_idle: str | float | None
) -> tuple[str, Callable[[], Tap]]:
    """Return what to call the source, and what opens it for one run."""
    is_socket = isinstance(source, str) and source.startswith("tcp://")
    is_directory = isinstance(source, str | os.PathLike) and not is_socket
    if until_idle is not None and not is_directory:
        raise SpecError("until_idle= is for directories: iterators and sockets end by themselves")
    if is_socket:
        label = f"stream {source}"
        return label, partial(Tap, partial(take_from_socket, loopback_address(source), label))
    if is_directory:
        path = Path(source)
        pattern = path.name if any(sign in path.name for sign in "*?[") else ""
        place = path.parent if pattern else path
        if not place.is_dir():
            raise SpecError(f"{place} is no directory: a stream of files needs one that exists")
        idle = None if until_idle is None else parse_seconds(until_idle)
        return f"stream {path}", lambda: Tap(DirectoryWatch(place, pattern, columns, idle).batches)
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return "stream", _Iterations(source).open
    raise SpecError(
        f"cannot stream from {source!r:.60}; expected an iterable of batches, a directory or tcp://localhost:PORT"
        + ("; a mapping of arrays is no stream: run over it as it is, or give [it]" * isinstance(source, Mapping))
    )


class _Iterations:
    """An iterable of batches; an iterator can be gone through once."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._used = False

    def open(self) -> Tap:
        if iter(self._batches) is self._batches:
            if self._used:
                raise UsageError(
                    "this stream was run before, and its iterator gives its batches once: make a new one, or give a "
                    "list or another thing that can be gone through again"
                )
            self._used = True
        return Tap(self._take, ends_at_once=False)

    def _take(self, _: threading.Event) -> Batches:
        items = iter(self._batches)
        try:
            for number, batch in enumerate(items):
                yield f"batch {number} of the stream", batch
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()


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
