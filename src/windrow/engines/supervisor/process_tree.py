"""Process trees as /proc shows them: descent, memory, killing.

**Memory.** A process that is alone counts with its resident set, all of it. Processes that were forked from one another share pages,
and adding up resident sets would count those once for each; so several processes count with their proportional sets, in which a page
used by n is charged 1/n to each. The kernel walks all pages to tell those, so they are read now and then and the growth of the
resident sets since then is added. That errs on the side of more, until the next exact reading; the one exception is a page that is
copied because it was written to, which shows only then.

**Identity.** A process is (pid, start time); pids are used again. A signal goes through a pidfd, and an open ``/proc/PID/statm``
never turns into that of another process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: Exact readings take at most this share of the time (they cost about 2 ms per GB).
EXACT_SHARE = 0.05
EXACT_EVERY_S = 0.1
#: A process that forks while it is being stopped is found again; nobody is that persistent.
STOP_ROUNDS = 100


class Process(NamedTuple):
    """One process at one moment; ``state`` as in ps(1): R, S, D, T (stopped), t (traced), Z (ended)."""

    pid: int
    started: int  #: clock ticks since boot; with the pid it names a process for ever
    state: str
    parent: int
    session: int


def _read(path: str) -> bytes:
    # This runs a hundred times a second, for each process: no buffers, no path objects.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def look(pid: int) -> Process | None:
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name, in parentheses, may hold anything, even parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[19]), fields[0].decode(), int(fields[1]), int(fields[3]))


def children(pid: int) -> list[int]:
    """The children of all threads of a process, ended ones that were not waited for included."""
    if not _kernel_lists_children():
        return [process.pid for process in _everybody() if process.parent == pid]
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.scandir(f"/proc/{pid}/task"):
            # A thread that just ended has handed its children to another one.
            with contextlib.suppress(OSError):
                found += map(int, _read(thread.path + "/children").split())
    return found


@functools.cache
def _kernel_lists_children() -> bool:
    # Not if built without CONFIG_PROC_CHILDREN: then all processes must be looked at.
    return Path("/proc/self/task", str(os.getpid()), "children").exists()


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    known = {pid}
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            if child not in known:
                known.add(child)
                found.append(child)
                waiting.append(child)
    return found


def _everybody() -> Iterable[Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (process := look(int(entry.name))) is not None:
            yield process


def marked(marker: str, sessions: Iterable[int] = (), since: int = 0) -> list[Process]:
    """Give all processes started with ``marker`` in the environment, or in one of the sessions; not ended or older ones.

    The environment of /proc is the one a process was started with, and a fork keeps it.
    """
    wanted, among = marker.encode(), set(sessions)
    found = []
    for process in _everybody():
        if process.state in "ZX" or process.pid == os.getpid() or process.started < since:
            continue
        if process.session in among:
            found.append(process)
            continue
        with contextlib.suppress(OSError):  # gone, or another user's
            if wanted in _read(f"/proc/{process.pid}/environ"):
                found.append(process)
    return found


def send_signal(process: Process, number: int) -> bool:
    """Send a signal to this very process; False if it is gone."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # no pidfds before Linux 5.3, nor in some sandboxes
        fd = -1
    try:
        now = look(process.pid)
        if now is None or now.started != process.started:
            return False
        if fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it became another user's (sudo); it is there and not ours to end
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def end_all(find: Callable[[], Iterable[int]]) -> int:
    """Stop all that ``find`` finds, until it finds no new ones, then kill them; return how many.

    A stopped process forks no more: no child slips through between finding and killing. They may
    take a moment to be gone: call it until it returns 0.
    """
    seen: dict[int, Process] = {}
    for _ in range(STOP_ROUNDS):
        new = [look(pid) for pid in find() if pid not in seen]
        alive = [process for process in new if process is not None and process.state not in "ZX"]
        for process in alive:
            seen[process.pid] = process
            send_signal(process, signal.SIGSTOP)
        if not alive:
            break
    return sum([send_signal(process, signal.SIGKILL) for process in seen.values()])


@dataclass(slots=True)
class _Member:
    statm: int  #: open file
    resident: int = 0
    proportional: int = 0
    resident_then: int = 0  #: when the proportional set was read


class ProcessTree:
    """The memory of a process and its descendants, cheap enough to be asked every 10 ms."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._members: dict[int, _Member] = {}
        self._exact_due = 0.0
        self._admit({pid})

    def __len__(self) -> int:
        return len(self._members)

    def discover(self, members: Iterable[int] | None = None) -> None:
        """Find out who belongs to it now; ``members`` are known otherwise, where the root is gone."""
        now = {self.pid, *descendants(self.pid)} if members is None else set(members)
        for gone in self._members.keys() - now:
            self._dismiss(gone)
        self._admit(now - self._members.keys())

    def memory(self, *, exactly: bool = False) -> int:
        """Bytes of all members; with ``exactly`` shared pages are looked at now."""
        for pid, member in list(self._members.items()):
            try:
                text = os.pread(member.statm, 128, 0)
                member.resident = int(text.split()[1]) * PAGE_BYTES
            except (OSError, IndexError):
                self._dismiss(pid)
        members = self._members.values()
        if len(members) < 2:
            return sum(member.resident for member in members)
        if exactly or time.monotonic() >= self._exact_due:
            self._look_exactly()
        return sum(member.proportional + max(0, member.resident - member.resident_then) for member in members)

    def close(self) -> None:
        for pid in list(self._members):
            self._dismiss(pid)

    def _admit(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(OSError):
                fd = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
                self._members[pid] = _Member(fd)
                self._exact_due = 0.0

    def _dismiss(self, pid: int) -> None:
        os.close(self._members.pop(pid).statm)

    def _look_exactly(self) -> None:
        begin = time.monotonic()
        for pid, member in self._members.items():
            member.resident_then = member.resident
            member.proportional = _proportional(pid, member.resident)
        now = time.monotonic()
        self._exact_due = now + max(EXACT_EVERY_S, (now - begin) / EXACT_SHARE)


def _proportional(pid: int, otherwise: int) -> int:
    """Bytes of a process with shared pages divided among those who share them."""
    try:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return otherwise
