"""The processes of a command: who belongs to it, who is still at work on its outputs, and a guard that ends them.

All that a command starts inherits a mark in its environment. In a worker's process the supervisor ends what is left. Elsewhere
(threads, or no session at all) the first command starts one small process that sleeps until this one has ended, however that
happened, and then kills what its commands left running.

A program that is still running when the shell has ended well is ended. If it had an output open for writing then, the command
has failed: half a file looks like a whole one.
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
from typing import TYPE_CHECKING, Any

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
    """Give the mark of a new command, and see to it that a guard watches it."""
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

    def end(self) -> dict[int, str]:
        """End all of them, and return when they are gone; say who was stopped with an output open for writing."""
        torn: dict[int, str] = {}

        def find() -> Iterable[int]:
            found = {self._leader.pid, *self.find()}
            for pid in found:
                if written := _written_by(pid, self._places):
                    torn[pid] = f"{_name(pid)} (process {pid}) was writing {Path(written).name}"
            return found

        _end(find, self.take_in)
        return torn

    def take_in(self) -> None:
        """Take in the ends of what a worker has adopted, as it does with all orphans: no other process would."""
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


def _written_by(pid: int, places: tuple[str, ...]) -> str:
    """Give an output that a process has open for writing; empty if there is none."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:  # else gone, or another user's
        for entry in entries:
            with contextlib.suppress(OSError):  # closed by now
                way = entry.stat(follow_symlinks=False).st_mode  # how it was opened
                path = os.readlink(entry.path)  # noqa: PTH115 - of what is open, not of a path
                if way & stat.S_IWUSR and path.startswith(places):
                    return path
    return ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program"
