"""The supervisor's process: forks workers, watches their trees and ends them.

It is started with a fresh interpreter, imports once what workers need, and forks them from its only thread.

**Whom it finds.** Each worker adopts what its descendants leave behind (child subreaper), and the server adopts what a worker leaves
behind. So while a worker lives, its tree is all that descends from it, daemons included; and whatever the server has for a child that
it did not fork belonged to a worker that has ended, and is killed.

**When it ends.** The driver is gone when its socket is closed, or when the server has another parent, at which it looks at least once
a second (the kernel signals it, PDEATHSIG, but that follows the *thread* that started the server: a hint and no more). The server
then kills all trees and ends. If the server is killed, the kernel kills its workers, and the driver looks for what they leave behind.

**What a limit means.** The memory of an attempt is all that the worker's process tree has in memory, interpreter and libraries
included, as ``process_tree`` counts it; processes that an earlier attempt left running count too. It is looked at every 10 ms, so a
limit is passed by what is allocated meanwhile: ``benchmarks/memory_limit.py`` measures it.

**What workers notice of it.** A worker adopts orphans: ``os.wait()`` in a step may return the pid of a grandchild, and daemons that
end stay as zombies until the worker ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from windrow.engines.supervisor.process_tree import ProcessTree, children, descendants, end_all, look, send_signal
from windrow.engines.supervisor.status_page import WATCHFUL_S, StatusPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.engines.supervisor.status_page import AttemptStatus

#: How often a worker is looked at where there are limits, or several processes, and else.
FAST_S, SLOW_S = 0.01, 0.1
#: How often a tree is searched for new processes.
DISCOVER_S = 0.05
#: How often it is asked whether a worker is stopped, and for how long it may be.
STATE_S, STOPPED_S = 0.5, 2.0
#: How long a stop signal may take to show.
FREEZE_S = 0.05
#: How long the report of an end waits for the last of the tree to be gone.
LINGER_S = 1.0
#: How long everything may take to be gone when the server ends.
ENDING_S = 5.0
#: How often a server without workers looks whether its driver is there; a fork of the driver may hold the socket open.
PARENT_S = 1.0
MESSAGE_BYTES = 1 << 17

END_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: The exit code of a worker after an exception that no code caught (EX_SOFTWARE of sysexits.h).
BROKEN = 70


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why a worker is ended, or has ended."""

    kind: str
    resource: str = ""
    limit: float = 0.0
    used: float = 0.0


class WatchedWorker:
    """A worker, the page it writes to and the tree that grows from it."""

    def __init__(self, worker: int, incarnation: int, pid: int, page: StatusPage) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.pid = pid
        self.page = page
        self.reason: EndReason | None = None  #: once it is to be ended
        self.due = 0.0  #: when to look next
        self.peak = 0  #: bytes of the tree in this attempt
        self.exit_code = 0  #: once it has ended; negative: the signal
        self.report_by = 0.0
        self._tree = ProcessTree(pid)
        self._sequence = 0
        self._watchful_until = 0.0
        self._discovered = 0.0
        self._state_seen = 0.0
        self._was_stopped = False
        self._stopped_s = 0.0

    def close(self) -> None:
        self.page.close()
        self._tree.close()

    def look(self, now: float) -> None:
        """See whether it keeps to its limits, and say when to look again."""
        if self.reason is not None:
            self._end_tree()
            self.due = now + FAST_S
            return
        if now - self._state_seen >= STATE_S:
            self._look_at_state(now)
        attempt = self.page.attempt()
        changed = self.page.sequence != self._sequence
        if changed:
            self._sequence = self.page.sequence
            self._discovered = self.peak = 0
        if attempt is not None:
            self._look_at_attempt(attempt, now)
        if self.page.limited and (changed or attempt is not None):
            self._watchful_until = now + WATCHFUL_S
        fast = now < self._watchful_until or (attempt is not None and len(self._tree) > 1)
        self.due = now + (FAST_S if fast else SLOW_S)

    def condemn(self, reason: EndReason) -> None:
        """End it, and all that descends from it; the first reason stands."""
        if self.reason is None:
            self.reason = reason
            self.due = 0.0
            self._end_tree()

    def _end_tree(self) -> None:
        # Until it is waited for, no other process can have its number.
        end_all(lambda: [self.pid, *descendants(self.pid)])

    def _look_at_attempt(self, attempt: AttemptStatus, now: float) -> None:
        if now - self._discovered >= DISCOVER_S:
            self._discovered = now
            self._tree.discover()
        memory = self._tree.memory()
        if 0 < attempt.memory_limit < memory and len(self._tree) > 1:
            memory = self._tree.memory(exactly=True)  # the cheap answer errs on the side of more
        self.peak = max(self.peak, memory)
        self.page.tell_peak(attempt.sequence, self.peak)
        seconds = (time.monotonic_ns() - attempt.started_ns) / 1e9
        if 0 < attempt.memory_limit < memory:
            self._condemn_for(attempt, EndReason("exceeded", "memory", attempt.memory_limit, self.peak))
        elif 0 < attempt.seconds_limit < seconds:
            self._condemn_for(attempt, EndReason("exceeded", "seconds", attempt.seconds_limit, seconds))

    def _look_at_state(self, now: float) -> None:
        """Count for how long it is stopped, by looks: a supervisor that was stopped itself cannot tell."""
        process = look(self.pid)
        stopped = process is not None and process.state == "T"  # "t" is a debugger's business
        if not stopped:
            self._stopped_s = 0.0
        elif self._was_stopped:
            self._stopped_s += min(now - self._state_seen, STATE_S)
        self._was_stopped, self._state_seen = stopped, now
        if self._stopped_s >= STOPPED_S:
            self.condemn(EndReason("stopped", "seconds", STOPPED_S, self._stopped_s))

    def _condemn_for(self, attempt: AttemptStatus, reason: EndReason) -> None:
        """End it for what an attempt did, unless it is at another one by now."""
        process = look(self.pid)
        if process is None or not send_signal(process, signal.SIGSTOP):
            return
        give_up = time.monotonic() + FREEZE_S
        while process is not None and process.state in "RS" and time.monotonic() < give_up:
            time.sleep(0.0002)
            process = look(self.pid)
        if self.page.attempt() == attempt:
            self.condemn(reason)
        elif process is not None:
            send_signal(process, signal.SIGCONT)


class _Server:
    """The loop and the workers it watches."""

    def __init__(self, control: socket.socket, driver: int) -> None:
        self._control = control
        self._driver = driver
        self._workers: dict[int, WatchedWorker] = {}  #: by pid; those that run
        self._ended: list[WatchedWorker] = []  #: not reported yet
        self._outgoing: deque[bytes] = deque()
        self._ending = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._signals, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        control.setblocking(False)
        self._poll = select.poll()  # no epoll: a fork would share it
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        self._poll.register(self._signals, select.POLLIN)
        self._own = set(children(os.getpid()))  # a module that was imported may have started something

    def serve(self) -> None:
        """Work until the driver says stop or is gone; then leave no process behind."""
        self._tell("ready")
        while not self._ending and os.getppid() == self._driver:
            for fd, _ in self._poll.poll(self._wait_ms()):
                if fd == self._control.fileno():
                    self._send()
                    self._receive()
                elif fd == self._bell:  # an attempt with limits began
                    os.eventfd_read(fd)
                    for worker in self._workers.values():
                        worker.due = 0.0
                else:
                    self._ending |= bool({*os.read(fd, 4096)} & {*END_SIGNALS})
            self._reap()
            now = time.monotonic()
            for worker in self._workers.values():
                if worker.due <= now:
                    worker.look(now)
            self._report_ends()
        self._end_everybody()

    def _wait_ms(self) -> float:
        now = time.monotonic()
        due = [worker.due - now for worker in self._workers.values()]
        if self._ended:
            due.append(FAST_S)
        return max(0.0, min(due, default=PARENT_S)) * 1000

    # --- talking with the driver

    def _tell(self, *message: Any) -> None:
        self._outgoing.append(json.dumps(message).encode())
        self._send()

    def _send(self) -> None:
        if not self._outgoing:
            return
        while self._outgoing:
            try:
                self._control.send(self._outgoing[0])
            except BlockingIOError:
                break
            except OSError:
                self._ending = True
                return
            self._outgoing.popleft()
        wanted = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
        self._poll.modify(self._control, wanted)

    def _receive(self) -> None:
        while True:
            try:
                text, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 2)
            except BlockingIOError:
                return
            except OSError:
                text = b""
            if not text:
                self._ending = True
                return
            verb, *rest = json.loads(text)
            if verb == "fork":
                self._fork(fds[0], fds[1], *rest)
            elif verb == "load":
                modules, sys.path[:] = rest
                _import_all(modules, self._driver)
                self._own.update(set(children(os.getpid())) - self._workers.keys())
                self._tell("ready")
            elif verb == "kill":
                for worker in self._workers.values():
                    if [worker.worker, worker.incarnation] == rest:
                        worker.condemn(EndReason("killed"))
            else:
                self._ending = True

    # --- making workers

    def _fork(self, sock: int, page: int, worker: int, incarnation: int, entry: str, path: list[str]) -> None:
        server = os.getpid()
        try:
            with warnings.catch_warnings():
                # Libraries have threads, and look after them; this code has one.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError as error:
            os.close(sock)
            os.close(page)
            self._tell("refused", str(error))
            return
        if pid == 0:
            try:
                # Let go of files as their owners, or they would close others' later.
                signal.set_wakeup_fd(-1)
                for watched in [*self._workers.values(), *self._ended]:
                    watched.close()
                self._control.close()
                _become_worker(server, sock, page, self._bell, entry, path)
            finally:
                os._exit(1)  # whatever happens, there is one server
        os.close(sock)
        own = StatusPage(page)
        own.close_fd()
        self._workers[pid] = WatchedWorker(worker, incarnation, pid, own)
        self._tell("forked", pid)

    # --- ending workers

    def _orphans(self) -> Iterator[int]:
        for pid in children(os.getpid()):
            if pid not in self._workers and pid not in self._own:
                yield pid
                yield from descendants(pid)

    def _reap(self) -> int:
        """Take in all who ended, workers and orphans; return how many."""
        count = 0
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                count += 1
                self._own.discard(pid)
                worker = self._workers.pop(pid, None)
                if worker is not None:
                    worker.exit_code = os.waitstatus_to_exitcode(status)
                    worker.peak = max(worker.peak, usage.ru_maxrss * 1024)
                    worker.report_by = time.monotonic() + LINGER_S
                    self._ended.append(worker)
        return count

    def _report_ends(self) -> None:
        if not self._ended:
            return
        # The kernel's list of children may be short of one while it changes.
        left = end_all(self._orphans) + self._reap()
        now = time.monotonic()
        waiting = [worker for worker in self._ended if left and now < worker.report_by]
        for worker in self._ended:
            if worker not in waiting:
                self._report(worker)
        self._ended = waiting

    def _report(self, worker: WatchedWorker) -> None:
        code = worker.exit_code
        reason = EndReason("exit" if code >= 0 else "signal")
        if worker.reason is not None and code == -signal.SIGKILL:
            reason = worker.reason
        worker.close()
        told = reason.kind, abs(code), reason.resource, reason.limit, reason.used, worker.peak
        self._tell("ended", worker.worker, worker.incarnation, *told)

    def _end_everybody(self) -> None:
        give_up = time.monotonic() + ENDING_S
        with contextlib.suppress(ChildProcessError):  # nobody is left
            while time.monotonic() < give_up:
                end_all(lambda: descendants(os.getpid()))
                while os.wait4(-1, os.WNOHANG)[0]:
                    pass
                time.sleep(0.001)


# --- a new worker's first moments


def _process_control(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _become_worker(server: int, sock: int, page: int, bell: int, entry: str, path: list[str]) -> NoReturn:
    """Run ``entry`` ("module:function") with the socket and the page, and exit."""
    code = BROKEN
    try:
        os.setsid()
        _process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(BROKEN)  # it died before the line above: the signal will not come
        _process_control(PR_SET_CHILD_SUBREAPER, 1)
        _reset_signals()
        _close_all_but({0, 1, 2, sock, page, bell})
        _reset_libraries()
        sys.path[:] = path
        module, _, name = entry.partition(":")
        function = getattr(importlib.import_module(module), name)
        own = StatusPage(page, bell)
        own.close_fd()
        with socket.socket(fileno=sock) as link:
            function(link, own)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - printed: this is the end of the process
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code & 0xFF)


def _reset_signals() -> None:
    # Ctrl-C is the driver's; the other two as Python has them.
    ignored = {signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_all_but(keep: set[int]) -> None:
    # Whoever held a sibling's socket would keep it open after the sibling's death.
    for path in Path("/proc/self/fd").iterdir():
        if int(path.name) not in keep:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(int(path.name))


def _reset_libraries() -> None:
    faulthandler.disable()
    # Steps may have processes of their own; those of the server are none of theirs.
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes._children.clear()
    utilities = sys.modules.get("multiprocessing.util")
    if utilities is not None:
        utilities._finalizer_registry.clear()
        utilities._run_after_forkers()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or none
            continue


# --- the server's beginning


def _wake_loop(_number: int, _frame: object) -> None:
    """Do nothing: a signal with a handler of Python's wakes the loop, which looks what is to be done."""


def _import_all(modules: list[str], driver: int) -> None:
    for name in modules:
        if os.getppid() != driver:
            os._exit(1)
        # Whoever really needs it will import it again and say what is wrong.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    sys.stdout.flush()  # or each worker would print it again
    gc.collect()
    gc.freeze()  # what is never looked at is never copied: workers share these pages


def main(control: int, driver: int, preload: list[str]) -> None:
    """Serve the driver on the other end of a socket; never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    _process_control(PR_SET_PDEATHSIG, signal.SIGCONT)
    _process_control(PR_SET_CHILD_SUBREAPER, 1)
    _import_all(preload, driver)
    for number in (signal.SIGCHLD, signal.SIGCONT, *END_SIGNALS):
        signal.signal(number, _wake_loop)
    with socket.socket(fileno=control) as link:
        _Server(link, driver).serve()
    os._exit(0)
