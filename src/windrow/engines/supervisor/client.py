"""The driver's side of the supervisor: asks it for worker processes and hears how they ended. Used by one thread.

Who cleans up: the supervisor's process (``server``), whatever happens to workers or to the driver; the kernel and the driver, if the
supervisor is killed. What the workers started is then found by a mark in the environment and by their sessions; only a process that
has left both, a daemon with a cleaned environment, is not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from windrow.engines.supervisor.process_tree import end_all, marked
from windrow.engines.supervisor.status_page import StatusPage
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The environment variable by which everything that was ever started here is known.
MARK = "WINDROW_TREE"
#: The longest the server may take to answer, its imports included, before it counts as hung.
ANSWER_S = 120.0
#: The longest it may take to end all trees, itself included, before it is killed.
ENDING_S = 10.0
#: How long the driver looks for what a killed server left behind.
SWEEP_S = 5.0
MESSAGE_BYTES = 1 << 17
#: What the kernel hands on to a new process, of what it says of one; see proc(5).
_INHERITED = (b"Umask", b"Uid", b"Gid", b"Groups", b"Cpus_allowed", b"Mems_allowed")

_PROGRAM = """\
import json, sys
control, driver, preload, sys.path[:] = json.loads(sys.argv.pop())
from windrow.engines.supervisor.server import main
main(control, driver, preload)
"""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker process; its owner closes it."""

    worker: int
    incarnation: int
    pid: int
    socket: socket.socket
    page: StatusPage

    def close(self) -> None:
        self.socket.close()
        self.page.close()


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a worker process ended, all its descendants being gone too.

    ``exit`` and ``signal``: by itself or from outside, with the ``code``. ``exceeded``: it used more of ``resource`` (memory,
    seconds) than its ``limit``. ``stopped``: a signal stopped it and none continued it. ``killed``: by ``Supervisor.kill``.
    ``lost``: with the server.
    """

    worker: int
    incarnation: int
    kind: Literal["exit", "signal", "exceeded", "stopped", "killed", "lost"]
    code: int = 0
    resource: str = ""
    limit: float = 0.0
    used: float = 0.0
    peak_memory: int = 0  #: bytes; of the tree as watched, or of one process as the kernel saw it


class Supervisor:
    """Makes worker processes and tells how they ended."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self.alive = False  #: whether the server runs; ``fork`` starts another one
        self.mark = ""  #: in the environment of everything the present server started
        self._preload = list(preload)
        self._loading = 0  #: lots of modules of which the server has not said that they are imported
        self._surroundings: tuple[object, ...] = ()  #: of this process when the server was started
        self._owner = 0
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._children: dict[tuple[int, int], int] = {}  #: pid by (worker, incarnation)
        self._reports: list[ProcessEnd] = []
        self._answer: int | str | None = None
        self._epoll: select.epoll | None = None
        self._bell = -1

    def start(self) -> None:
        if sys.platform != "linux":
            raise EngineError(
                f"worker processes are watched through Linux's /proc, and this is {sys.platform}; use engine='threads'"
            )
        if self.alive:
            return
        if self._epoll is None:
            self._owner = os.getpid()
            self._epoll = select.epoll()
            self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._epoll.register(self._bell, select.EPOLLIN)
        # A driver may itself be in another supervisor's tree, and stays marked as that.
        self.mark = "/".join(filter(None, [os.environ.get(MARK), secrets.token_hex(8)]))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._server = self._execute(theirs.fileno())
            except OSError as error:
                ours.close()
                raise EngineError(
                    f"the process that makes workers could not be started: {error}; it is run by "
                    f"the interpreter sys.executable={sys.executable!r}"
                ) from error
            _continue_at_messages(theirs, self._server.pid)
        ours.settimeout(ANSWER_S)
        self._control = ours
        self._epoll.register(ours, select.EPOLLIN)
        self._surroundings, self._loading = _surroundings(), 1
        self.alive = True

    def load(self, modules: Sequence[str]) -> None:
        """Have more modules imported before the next worker is made."""
        more = [name for name in dict.fromkeys(modules) if name not in self._preload]
        self._preload += more
        if more and self.alive:
            self._loading += 1
            self._send(["load", more, _search_path()])

    def is_usable(self) -> bool:
        """Say whether the server runs, is this process's own, and was started in what are still its surroundings."""
        if self._owner != os.getpid():
            return False
        self._receive(0.0)
        return self.alive and self._surroundings == _surroundings()

    def is_ready(self) -> bool:
        """Say whether the server has imported all that it was told to."""
        self._receive(0.0)
        return self.alive and not self._loading

    def fileno(self) -> int:
        """Readable when reports wait; the same for as long as the supervisor is not stopped."""
        if self._epoll is None:
            raise EngineError("the supervisor was not started; call start() first")
        return self._epoll.fileno()

    def fork(self, worker: int, incarnation: int, entry: str) -> WorkerProcess:
        """Make a worker that runs ``entry`` ("module:function") with a socket and a page."""
        for _ in range(2):  # a server may have died unnoticed; if the next one does too, say so
            self.start()
            made = self._ask_for(worker, incarnation, entry)
            if made is not None:
                return made
        code = self._server.returncode if self._server is not None else None
        raise EngineError(
            f"the process that makes workers ended twice while worker {worker} was being made, the "
            f"last time with exit code {code}; what it printed says why"
        )

    def reports(self) -> list[ProcessEnd]:
        """Give the ends since the last call; does not wait."""
        if self._epoll is None:
            return []
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        self._receive(0.0)
        reports, self._reports = self._reports, []
        return reports

    def kill(self, worker: int, incarnation: int) -> None:
        """End a worker and all that descends from it; its end is reported as usual."""
        if (worker, incarnation) in self._children:
            self._send(["kill", worker, incarnation])

    def end_workers(self) -> bool:
        """End all workers and all that descends from them; False if some may be left."""
        for life in list(self._children):
            self.kill(*life)
        until = time.monotonic() + ENDING_S
        while self._children and self.alive and self._receive(until - time.monotonic()):
            pass
        self.reports()
        return self.alive and not self._children

    def stop(self) -> None:
        """End all workers, all that descends from them and the server; doing it twice is allowed."""
        if self._epoll is None:
            return
        if self.alive and os.getpid() == self._owner:
            self._send(["stop"])
            self._end_server()
        if self._control is not None:
            self._control.close()
            self._control = None
        self._epoll.close()
        os.close(self._bell)
        self._epoll, self._bell, self.alive = None, -1, False
        self._children.clear()
        self._reports.clear()

    def _execute(self, control: int) -> subprocess.Popen[bytes]:
        setup = [control, os.getpid(), self._preload, _search_path()]
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        return subprocess.Popen(  # noqa: S603 - this very interpreter, code of our own
            [sys.executable, *flags, "-c", _PROGRAM, json.dumps(setup)],
            stdin=subprocess.DEVNULL,
            pass_fds=[control],
            start_new_session=True,
            env={**os.environ, MARK: self.mark},
        )

    # --- talking with the server

    def _ask_for(self, worker: int, incarnation: int, entry: str) -> WorkerProcess | None:
        page = StatusPage.create()
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as unless_made:
            unless_made.callback(page.close)
            unless_made.callback(ours.close)
            with theirs:
                request = ["fork", worker, incarnation, entry, _search_path()]
                self._send(request, [theirs.fileno(), page.fd])
            page.close_fd()
            self._answer = None
            deadline = time.monotonic() + ANSWER_S
            while self.alive and self._answer is None:
                if not self._receive(deadline - time.monotonic()):
                    self._clean_up()
            if self._answer is None:
                return None
            if isinstance(self._answer, str):
                raise EngineError(
                    f"the system refused to make a process for worker {worker}: {self._answer}; "
                    "use fewer workers or raise the limit on processes (ulimit -u) or memory"
                )
            self._children[worker, incarnation] = self._answer
            unless_made.pop_all()
            return WorkerProcess(worker, incarnation, self._answer, ours, page)

    def _send(self, message: list[object], fds: Sequence[int] = ()) -> None:
        if self._control is None:
            return
        if os.getpid() != self._owner:
            raise EngineError("a fork of the program cannot use its workers; start others there")
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds)
        except OSError:
            self._clean_up()

    def _receive(self, timeout: float) -> bool:
        """Take in all messages, waiting for the first one; False if there is none in time."""
        anything = False
        while self._control is not None:
            waiting = select.poll()
            waiting.register(self._control, select.POLLIN)
            if not waiting.poll(0 if anything else max(0.0, timeout) * 1000):
                break
            anything = True
            try:
                text = self._control.recv(MESSAGE_BYTES)
            except OSError:
                text = b""
            if not text:
                self._clean_up()
                break
            verb, *rest = json.loads(text)
            if verb == "ended":
                ended = ProcessEnd(*rest)
                self._children.pop((ended.worker, ended.incarnation), None)
                self._report(ended)
            elif verb == "ready":
                self._loading -= 1
            else:  # a pid, or why there is none
                (self._answer,) = rest
        return anything

    def _report(self, ended: ProcessEnd) -> None:
        self._reports.append(ended)
        os.eventfd_write(self._bell, 1)  # what was taken from the socket makes it readable no more

    # --- the end of the server

    def _clean_up(self) -> None:
        """Clean up after a server that died or hangs, and report the end of all its workers."""
        assert self._control is not None
        self._control.close()
        self._control = None
        self._end_server()
        self.alive = False
        for worker, incarnation in self._children:
            self._report(ProcessEnd(worker, incarnation, "lost"))
        self._children.clear()

    def _end_server(self) -> None:
        assert self._server is not None
        try:
            code = self._server.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            code = self._server.wait()
        if code == 0:
            return
        # It could not end everybody: find them by the mark and by their sessions.
        token, sessions = self.mark.rpartition("/")[2], set(self._children.values())
        give_up = time.monotonic() + SWEEP_S
        while end_all(lambda: [process.pid for process in marked(token, sessions)]):
            if time.monotonic() > give_up:
                break
            time.sleep(0.002)


def _continue_at_messages(control: socket.socket, pid: int) -> None:
    """Let the kernel continue the server, should a signal have stopped it, at each message and when the driver is gone.

    The setting belongs to the open socket, whichever process holds it; so it holds before the server's first line runs.
    """
    with contextlib.suppress(
        OSError
    ):  # some sandboxes have no such signals: a stopped server is then killed after ANSWER_S
        fcntl.fcntl(control, fcntl.F_SETOWN, pid)
        fcntl.fcntl(control, fcntl.F_SETSIG, signal.SIGCONT)
        fcntl.fcntl(control, fcntl.F_SETFL, fcntl.fcntl(control, fcntl.F_GETFL) | os.O_ASYNC)


def _surroundings() -> tuple[object, ...]:
    """What a process takes over from the one that starts it, as it is here and now."""
    found: list[object] = [dict(os.environ), subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
    for place in ("cwd", "fd/1", "fd/2"):
        with contextlib.suppress(OSError):
            found.append((place, Path(f"/proc/self/{place}").stat()[1:3]))
    for name in ("limits", "cgroup", "status"):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/self/{name}").read_bytes().splitlines()
            found.append([line for line in lines if name != "status" or line.startswith(_INHERITED)])
    return tuple(found)


def _search_path() -> list[str]:
    return [str(entry) for entry in sys.path]  # some put path objects there
