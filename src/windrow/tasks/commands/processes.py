"""The processes of a command: who belongs to it, who is still at work on its outputs, and a guard that ends them.

All that a command starts inherits a mark in its environment. In a worker's process the supervisor ends what is left. Elsewhere
(threads, or no session at all) the first command starts one small process that sleeps until this one has ended, however that
happened, and then kills what its commands left running.

No shell waits for its process substitutions: in ``tee >(gzip > {out})`` it may end long before gzip, which is done when it
has read all that tee wrote. Ended with the shell it would leave half a file that looks like a whole one; and bash's ``wait``
would wait for servers in the background, too, which are to be ended. So the open files tell: who has an output open for
writing is at work on it, and so is who reads from a pipe into which nobody writes any more, or only such as are at work: it
may open its output when it has read all (``>(sort -o {out})``). Others hold nothing of the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import secrets
import select
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.engines.supervisor.client import MARK
from windrow.engines.supervisor.process_tree import children, descendants, end_all, look, marked
from windrow.tasks.files.stamps import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from windrow.engines.supervisor.process_tree import Process

#: The environment variable by which all that a command started is known.
COMMAND = "WINDROW_COMMAND"
PR_GET_CHILD_SUBREAPER = 37
#: How often a guard looks where the kernel cannot wake it.
LOOK_S = 0.2
#: How long killed processes may take to be gone.
ENDING_S = 5.0

_PROGRAM = """\
import sys
driver, mark, source = sys.argv[1:]
sys.path.insert(0, source)
from windrow.tasks.commands.processes import guard
guard(int(driver), mark)
"""

_numbers = itertools.count(1)


@functools.cache
def _is_worker(_process: int) -> bool:
    if sys.platform != "linux" or MARK not in os.environ:
        return False
    found = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


def in_worker() -> bool:
    return _is_worker(os.getpid())


def new_mark() -> str:
    """Give the mark of a new command, and see to it that somebody guards it."""
    return f"{_guarded(os.getpid())}.{next(_numbers)}."


@functools.cache
def _guarded(process: int) -> str:
    """Start the guard of this process; give what the marks of its commands begin with."""
    # A program that is itself part of a command stays marked as that.
    mark = "/".join(filter(None, [os.environ.get(COMMAND), secrets.token_hex(8)]))
    if sys.platform == "linux" and not in_worker():
        source = str(Path(__file__).resolve().parents[3])
        words = [sys.executable, "-S", "-E", "-c", _PROGRAM, str(process), mark, source]
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        os.posix_spawn(sys.executable, words, os.environ, file_actions=nothing, setsid=True)
    return mark


def guard(driver: int, mark: str) -> None:
    """Sleep until the driver is gone, then end all that its commands left."""
    try:
        descriptor = os.pidfd_open(driver)
        if os.getppid() == driver:  # else it had ended before, and the number may be another's
            select.select([descriptor], [], [])
    except ProcessLookupError:
        pass
    except OSError:  # no pidfds before Linux 5.3, nor in some sandboxes
        while os.getppid() == driver:
            time.sleep(LOOK_S)
    sessions: set[int] = set()  #: of commands; some in them may have cleaned their environment

    def find() -> Iterable[int]:
        found = marked(f"{COMMAND}={mark}.", sessions)
        sessions.update(one.session for one in found)
        return [pid for one in found for pid in (one.pid, *descendants(one.pid))]

    _end(find, lambda: None)


def _end(find: Callable[[], Iterable[int]], between: Callable[[], None]) -> None:
    give_up = time.monotonic() + ENDING_S
    while end_all(find) and time.monotonic() < give_up:
        between()
        time.sleep(0.001)
    between()


class CommandProcesses:
    """All processes of one command: those that descend from its leader, or have its mark or its session."""

    def __init__(self, leader: Process, mark: str, places: Sequence[str]) -> None:
        self._leader = leader
        self._mark = f"{COMMAND}={mark}"
        self._places = tuple(places)  #: how the paths of its outputs begin
        self._seen: set[int] = set()

    def find(self) -> set[int]:
        leader = self._leader
        strays = marked(self._mark, {leader.pid}, since=leader.started)
        found = {*descendants(leader.pid), *[one.pid for one in strays]}
        self._seen |= found
        return found

    def at_work(self, members: Iterable[int]) -> set[int]:
        opened = {pid: _open_files(pid, self._places) for pid in members}
        found = {pid for pid, one in opened.items() if one.written}
        while True:
            idle = {pid: one for pid, one in opened.items() if pid not in found}

            def is_fed(pid: int, pipe: Any, idle: dict[int, _OpenFiles] = idle) -> bool:
                return any(pipe in one.feeds for other, one in idle.items() if other != pid)

            more = {pid for pid, one in idle.items() if any(not is_fed(pid, pipe) for pipe in one.reads)}
            if not more:
                return found
            found |= more

    def end(self) -> dict[int, str]:
        """End all of them, and return when they are gone; say who was stopped with an output open for writing."""
        torn: dict[int, str] = {}

        def find() -> Iterable[int]:
            found = {self._leader.pid, *self.find()}
            for pid in found:
                if written := _open_files(pid, self._places).written:
                    torn[pid] = f"{_name(pid)} (process {pid}) was writing {Path(written).name}"
            return found

        _end(find, self.take_in)
        return torn

    def take_in(self) -> None:
        """Take in the ends of what a worker has adopted, as it does with all that others leave behind: nobody else would."""
        if not in_worker():
            return
        leader = self._leader.pid
        for pid in children(os.getpid()):
            process = look(pid)
            if process is None or process.state != "Z" or pid == leader:
                continue
            if pid in self._seen or process.session == leader:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def places_of(directory: str, values: Iterable[Any]) -> tuple[str, ...]:
    """Say how the paths of a command's outputs begin: with all of their private directory, where they have one."""
    found: dict[str, None] = {}
    for value in values:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, (str, os.PathLike)):
                path = Path(directory, one)
                found[f"{path.parent.resolve()}/" if OURS in str(path) else f"{path.resolve()}"] = None
    return tuple(found)


class _OpenFiles(NamedTuple):
    """The files that a process has open."""

    written: str  #: one of the outputs, if any
    reads: set[tuple[int, int]]  #: pipes, by device and number
    feeds: set[tuple[int, int]]


def _open_files(pid: int, places: tuple[str, ...]) -> _OpenFiles:
    written, reads, feeds = "", set(), set()
    with contextlib.suppress(OSError):  # gone, or another user's
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed by now
                facts = entry.stat()
                way = entry.stat(follow_symlinks=False).st_mode  # how it was opened
                if stat.S_ISFIFO(facts.st_mode):
                    pipe = (facts.st_dev, facts.st_ino)
                    if way & stat.S_IRUSR:
                        reads.add(pipe)
                    if way & stat.S_IWUSR:
                        feeds.add(pipe)
                elif stat.S_ISREG(facts.st_mode) and way & stat.S_IWUSR:
                    path = os.readlink(entry.path)  # noqa: PTH115 - of what is open, not of a path
                    written = path if path.startswith(places) else written
    return _OpenFiles(written, reads, feeds)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program"
