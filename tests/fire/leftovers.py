"""What must not be there after a run: processes, shared memory, temporary files, open files. Found without Windrow's help."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import sqlite3
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

__all__ = [
    "Killer",
    "Scene",
    "names_in",
    "nothing_left",
    "send",
    "server_of",
    "wait_until",
    "workers_of",
    "written_rows",
]

#: How long anything here may take to become true, on a machine that many others use too: only what hangs takes longer.
PATIENCE_S = 300.0


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until, f"it never came true: {what}"
        time.sleep(0.005)


# -- processes ---------------------------------------------------------------------------------------


def _numbers() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def _read(pid: int, what: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_bytes()
    return b""


def parent_of(pid: int) -> int:
    """Who started a process; 0 if it is gone, or has ended and waits to be noticed."""
    state, parent, *_ = _read(pid, "stat").rpartition(b")")[2].split() or (b"Z", b"0")
    return 0 if state in b"ZX" else int(parent)


def children_of(pid: int) -> set[int]:
    return {one for one in _numbers() if parent_of(one) == pid}


def server_of(driver: int) -> int | None:
    """The process that makes the workers of a driver."""
    for pid in children_of(driver):
        if b"engines.supervisor.server" in _read(pid, "cmdline"):
            return pid
    return None


def workers_of(driver: int) -> list[int]:
    server = server_of(driver)
    return [] if server is None else sorted(children_of(server))


def send(pid: int, parent: int, number: int) -> bool:
    """Send a signal to a child of ``parent``; False if it is gone, whoever has its number now."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if parent_of(pid) != parent:
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def slowness() -> float:
    """How much longer workers take to begin than on a quiet machine: hits faster than that would let nobody finish."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Killer(threading.Thread):
    """Sends one of some signals to a random worker of this process, or to their server, again and again."""

    def __init__(
        self, seed: int, signals: Sequence[int] = (signal.SIGKILL,), *, every_s: float = 0.1, servers: float = 0.0
    ) -> None:
        super().__init__(daemon=True)
        self.hits = 0
        self._random = random.Random(seed)
        self._signals = signals
        self._every_s = every_s
        self._servers = servers  #: share of the hits that go to the server
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._every_s * slowness()):
            server = server_of(os.getpid())
            if server is None:
                continue
            workers = sorted(children_of(server))
            if workers and self._random.random() < self._servers:
                self.hits += send(server, os.getpid(), signal.SIGKILL)
            elif workers:
                number = self._random.choice(self._signals)
                self.hits += send(self._random.choice(workers), server, number)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


# -- the scene ---------------------------------------------------------------------------------------


def _open_files() -> Counter[str]:
    """What this process has open; the directory that is read here is no part of it."""
    gc.collect()
    found: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[str(entry.readlink())] += 1
    # What tells whether memory was written to is opened once in a process, and stays.
    own = ("/fd", "/pagemap", "[userfaultfd]")
    return +Counter({name: n for name, n in found.items() if not name.endswith(own)})


def _shared_memory() -> set[str]:
    """Files only: tests that run beside these have temporary directories there."""
    with contextlib.suppress(OSError):
        return {entry.name for entry in Path("/dev/shm").iterdir() if not entry.is_dir()}
    return set()


def _is_left(name: str) -> bool:
    """Whether a piece of shared memory is there and nobody has it: what other programs use is theirs.

    Semaphores are Dask's: tests that run meanwhile kill its workers, and we make none.
    """
    if name.startswith("sem.") or not Path("/dev/shm", name).exists():
        return False
    wanted = f"/dev/shm/{name}"
    for pid in _numbers():
        if wanted.encode() in _read(pid, "maps"):
            return False
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(entry.readlink()) == wanted:
                        return False
    return True


class Scene:
    """A place to compare before and after; ``mark`` is in the environment of everything that a run starts."""

    def __init__(self, mark: str, temporary: Path) -> None:
        self.mark = mark
        self.temporary = temporary
        self._children = children_of(os.getpid())
        self._shared = _shared_memory()
        self._threads = threading.active_count()
        self._files = _open_files()

    def marked(self) -> list[int]:
        """Processes that were started here and live."""
        mark = self.mark.encode()
        return [pid for pid in _numbers() if pid != os.getpid() and mark in _read(pid, "environ") and parent_of(pid)]

    def check(self) -> None:
        """Nothing is left; the last processes have a moment to be gone."""
        wait_until(lambda: not self.marked(), f"no process is left (there is {self.marked()})")
        assert children_of(os.getpid()) <= self._children
        assert [name for name in _shared_memory() - self._shared if _is_left(name)] == []
        assert sorted(str(path) for path in self.temporary.rglob("*")) == []
        assert dict(_open_files() - self._files) == {}
        assert threading.active_count() <= self._threads


#: Seconds after which a test is taken not to end.
NO_END_S = 300


@contextlib.contextmanager
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Look at what is left in the end; end a test that does not end."""
    mark = f"fire-{uuid.uuid4().hex}"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("WINDROW_TREE", mark)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = Scene(mark, temporary)
    previous = signal.signal(signal.SIGALRM, _no_end)
    signal.alarm(NO_END_S)
    try:
        yield before
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    before.check()


def _no_end(number: int, frame: object) -> None:
    raise AssertionError(f"no end after {NO_END_S} s")


def written_rows(rundir: Path) -> int:
    """Rows that the journal says are done; quick, as the run goes on meanwhile."""
    try:
        connection = sqlite3.connect(f"file:{rundir / 'journal.sqlite'}?mode=ro", uri=True)
        with contextlib.closing(connection):
            found = connection.execute("SELECT rows FROM blobs").fetchall()
    except sqlite3.OperationalError:  # not there yet
        return 0
    return sum(stop - start for (rows,) in found for start, stop in json.loads(rows))


def names_in(directory: Path) -> set[str]:
    """What a run directory holds."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}
