"""The warden: makes worker processes, and sees to it that none of them, nor theirs, is left behind.

This is the driver's side. A server process of its own (``warden_main``) forks the workers, watches
their process trees, enforces limits and reports how each of them ended. Used by one thread.

Who cleans up: the server, whatever happens to workers or to the driver; the kernel and the driver,
if the server is killed. What the workers started is then found by a mark in the environment and by
their sessions; only a process that has left both, a daemon with a cleaned environment, is not.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from windrow.engines.page import Page
from windrow.engines.tree import end_all, marked
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MARK", "Child", "Ended", "Warden"]

#: The environment variable by which everything that was ever started here is known.
MARK = "WINDROW_TREE"
#: The longest the server may take to answer, its imports included, before it counts as hung.
ANSWER_S = 120.0
#: The longest it may take to end all trees, itself included, before it is killed.
ENDING_S = 10.0
SWEEP_S = 5.0
MESSAGE_BYTES = 1 << 17

Kind: TypeAlias = Literal["exit", "signal", "exceeded", "stopped", "killed", "lost"]

_PROGRAM = """\
import json, sys
control, driver, preload, sys.path[:] = json.loads(sys.argv.pop())
from windrow.engines.warden_main import main
main(control, driver, preload)
"""


@dataclass(frozen=True, slots=True)
class Child:
    """A worker process; its owner closes it."""

    worker: int
    incarnation: int
    pid: int
    socket: socket.socket
    page: Page

    def close(self) -> None:
        """Close the driver's end of the socket, and the page."""
        self.socket.close()
        self.page.close()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended, all its descendants being gone too.

    ``exit`` and ``signal``: by itself or from outside, with the ``code``. ``exceeded``: it used
    more of ``resource`` (memory, seconds) than its ``limit``. ``stopped``: somebody stopped it and
    did not continue it. ``killed``: by ``Warden.kill``. ``lost``: with the server.
    """

    worker: int
    incarnation: int
    kind: Kind
    code: int = 0
    resource: str = ""
    limit: float = 0.0
    used: float = 0.0
    peak_memory: int = 0  #: bytes; of the tree as watched, or of one process as the kernel saw it


class Warden:
    """Makes workers and tells how they ended."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self.alive = False  #: whether the server runs; ``fork`` starts another one
        self.mark = ""  #: in the environment of everything the present server started
        self._preload = list(preload)
        self._owner = 0
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._children: dict[tuple[int, int], int] = {}  #: pid by (worker, incarnation)
        self._reports: list[Ended] = []
        self._answer: list[int | str] | None = None
        self._epoll: select.epoll | None = None
        self._bell = -1

    def start(self) -> None:
        """Start the server; it imports while the caller goes on."""
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
        # A driver may itself be in somebody's tree, and stays marked as theirs.
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
        ours.settimeout(ANSWER_S)
        self._control = ours
        self._epoll.register(ours, select.EPOLLIN)
        self._ready = False
        self.alive = True

    def fileno(self) -> int:
        """Readable when reports wait; the same for as long as the warden is not stopped."""
        if self._epoll is None:
            raise EngineError("the warden was not started; call start() first")
        return self._epoll.fileno()

    def fork(self, worker: int, incarnation: int, entry: str) -> Child:
        """Make a worker that runs ``entry`` ("module:function") with a socket and a page."""
        for _ in range(2):  # a server may have died unnoticed; if the next one does too, say so
            self.start()
            child = self._ask_for(worker, incarnation, entry)
            if child is not None:
                return child
        code = self._server.returncode if self._server is not None else None
        raise EngineError(
            f"the process that makes workers ended twice while worker {worker} was being made, the "
            f"last time with exit code {code}; what it printed says why"
        )

    def reports(self) -> list[Ended]:
        """Who ended since the last call; does not wait."""
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

    def _ask_for(self, worker: int, incarnation: int, entry: str) -> Child | None:
        page = Page.create()
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
                    self._died()
            if self._answer is None:
                return None
            (answer,) = self._answer
            if isinstance(answer, str):
                raise EngineError(
                    f"the system refused to make a process for worker {worker}: {answer}; "
                    "use fewer workers or raise the limit on processes (ulimit -u) or memory"
                )
            self._children[worker, incarnation] = answer
            unless_made.pop_all()
            return Child(worker, incarnation, answer, ours, page)

    def _send(self, message: list[object], fds: Sequence[int] = ()) -> None:
        if self._control is None:
            return
        if os.getpid() != self._owner:
            raise EngineError("a fork of the program cannot use its workers; start others there")
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], fds)
        except OSError:
            self._died()

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
            if text:
                self._take(*json.loads(text))
            else:
                self._died()
        return anything

    def _take(self, verb: str, *rest: object) -> None:
        if verb == "ended":
            ended = Ended(*rest)  # type: ignore[arg-type]
            self._children.pop((ended.worker, ended.incarnation), None)
            self._report(ended)
        elif verb in {"forked", "refused"}:
            self._answer = [rest[2]]  # type: ignore[list-item]

    def _report(self, ended: Ended) -> None:
        self._reports.append(ended)
        os.eventfd_write(self._bell, 1)  # what was taken from the socket makes it readable no more

    # --- the end of the server

    def _died(self) -> None:
        """Clean up after the server, and report the end of all its workers."""
        assert self._control is not None
        self._control.close()
        self._control = None
        self._end_server()
        self.alive = False
        for worker, incarnation in self._children:
            self._report(Ended(worker, incarnation, "lost"))
        self._children.clear()

    def _end_server(self) -> None:
        assert self._server is not None
        try:
            code = self._server.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            code = self._server.wait()
        if code != 0:
            self._sweep()

    def _sweep(self) -> None:
        """End everybody the server can no longer end."""
        token, sessions = self.mark.rpartition("/")[2], set(self._children.values())
        give_up = time.monotonic() + SWEEP_S
        while end_all(lambda: [process.pid for process in marked(token, sessions)]):
            if time.monotonic() > give_up:
                break
            time.sleep(0.002)


def _search_path() -> list[str]:
    return [str(entry) for entry in sys.path]  # some put path objects there
