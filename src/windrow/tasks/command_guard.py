"""Who belongs to a command, and a guard that ends all of them when the program that started them is gone.

In a worker's process the supervisor does that. Elsewhere (threads, or no session at all) the first command starts one small
process that sleeps until this one has ended, however that happened, and then kills what its commands left running. They
are found by a mark in their environment, which all that they start inherits.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import secrets
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.engines.supervisor.client import MARK
from windrow.engines.supervisor.process_tree import children, descendants, end_all, look, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
from windrow.tasks.command_guard import main
main(int(driver), mark)
"""

_numbers = itertools.count(1)


@functools.cache
def _in_worker(_process: int) -> bool:
    if sys.platform != "linux" or MARK not in os.environ:
        return False
    found = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


def in_worker() -> bool:
    """Whether this is a worker's process, whose tree the supervisor watches, limits and ends."""
    return _in_worker(os.getpid())


def new_mark() -> str:
    """Give the mark of a new command, and see to it that somebody guards it."""
    mine = _guarded(os.getpid())
    return f"{mine}.{next(_numbers)}."


@functools.cache
def _guarded(process: int) -> str:
    """Give what the marks of this process's commands begin with."""
    # A program that is itself part of a command stays marked as that.
    mark = "/".join(filter(None, [os.environ.get(COMMAND), secrets.token_hex(8)]))
    if sys.platform == "linux" and not in_worker():
        source = str(Path(__file__).resolve().parents[2])
        words = [sys.executable, "-S", "-E", "-c", _PROGRAM, str(process), mark, source]
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        os.posix_spawn(sys.executable, words, os.environ, file_actions=nothing, setsid=True)
    return mark


def members(leader: Process, mark: str) -> set[int]:
    """Find all who belong to a command and have not ended."""
    return {*descendants(leader.pid), *_strays(leader, mark)}


def end_members(leader: Process, mark: str, look_on: Callable[[Iterable[int]], None] | None = None) -> None:
    """End a command, or what it has left running; returns when all of that is gone.

    ``look_on`` is told who is there, last when all of them are stopped.
    """
    give_up = time.monotonic() + ENDING_S
    seen: set[int] = set()

    def find() -> Iterable[int]:
        found = {leader.pid, *members(leader, mark)}
        if look_on is not None:
            look_on(found)
        seen.update(found)
        return found

    while end_all(find) and time.monotonic() < give_up:
        take_in(leader, seen)
        time.sleep(0.001)
    take_in(leader, seen)


def take_in(leader: Process, known: set[int]) -> None:
    """Take in the ends of what a worker has adopted, as it does with all that others leave behind: nobody else would."""
    if not in_worker():
        return
    for pid in children(os.getpid()):
        process = look(pid)
        if process is None or process.state != "Z" or pid == leader.pid:
            continue
        if pid in known or process.session == leader.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _strays(leader: Process, mark: str) -> list[int]:
    """Everybody in the leader's session or with its mark; its parents may be gone."""
    found = []
    wanted = f"{COMMAND}={mark}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        process = look(int(entry.name))
        if process is None or process.started < leader.started or process.state in "ZX":
            continue
        if process.session == leader.pid:
            found.append(process.pid)
            continue
        with contextlib.suppress(OSError):  # gone, or another user's
            if wanted in Path(entry.path, "environ").read_bytes():
                found.append(process.pid)
    return found


def main(driver: int, mark: str) -> None:
    """Sleep until the driver is gone, then end all that its commands left."""
    _wait_for_the_end(driver)
    give_up = time.monotonic() + ENDING_S
    sessions: set[int] = set()  #: of commands; some in them may have cleaned their environment

    def find() -> Iterable[int]:
        found = marked(f"{COMMAND}={mark}.", sessions)
        sessions.update(one.session for one in found)
        return [pid for one in found for pid in (one.pid, *descendants(one.pid))]

    while end_all(find) and time.monotonic() < give_up:
        time.sleep(0.005)


def _wait_for_the_end(driver: int) -> None:
    try:
        descriptor = os.pidfd_open(driver)
    except ProcessLookupError:
        return
    except OSError:  # no pidfds before Linux 5.3, nor in some sandboxes
        while os.getppid() == driver:
            time.sleep(LOOK_S)
        return
    if os.getppid() == driver:  # else it had ended before, and the number may be another's
        select.select([descriptor], [], [])
