"""What the processes of the supervisor's tests do: workers ("supervisor_workers:name"), and drivers that die.

A worker says a line of JSON on its socket when it has come to the point of its test.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    from windrow.engines.supervisor.status_page import StatusPage

MB = 1 << 20
FOR_EVER = [sys.executable, "-c", "import time; time.sleep(600)"]


def say(sock: socket.socket, *words: Any) -> None:
    sock.sendall(json.dumps(words).encode() + b"\n")


def rest(sock: socket.socket) -> None:
    """Wait for a word, or for the other end to be closed."""
    sock.recv(1)


def forked(function: Any, *args: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            function(*args)
        finally:
            os._exit(0)
    return pid


def sleep_for_ever() -> None:
    while True:
        time.sleep(600)


def daemonise(report: int) -> None:
    """Leave the session and the parent, as daemons do, and tell the pid."""
    os.setsid()

    def second() -> None:
        os.setpgid(0, 0)
        os.write(report, b"%d\n" % os.getpid())
        sleep_for_ever()

    forked(second)


def daemon() -> int:
    reading, writing = os.pipe()
    os.waitpid(forked(daemonise, writing), 0)
    pid = int(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    return pid


def family() -> list[int]:
    """A forked child, an executed one, and two daemons: one forked, one executed."""
    executed = subprocess.Popen(FOR_EVER)
    executed.returncode = 0  # nobody will wait for it
    away = subprocess.run([sys.executable, "-c", _DAEMON], stdout=subprocess.PIPE, check=True, text=True)
    return [forked(sleep_for_ever), executed.pid, daemon(), int(away.stdout)]


_DAEMON = """
import subprocess, sys
code = "import time; time.sleep(600)"
null = subprocess.DEVNULL
away = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=null)
print(away.pid)
away.returncode = 0
"""


# --- workers ----------------------------------------------------------------------------------------


def at_once(sock: socket.socket, page: StatusPage) -> None:
    pass


def wait(sock: socket.socket, page: StatusPage) -> None:
    say(sock, os.getpid())
    rest(sock)


def exit_3(sock: socket.socket, page: StatusPage) -> None:
    sys.stdout.write("said before the end\n")
    sys.exit(3)


def exit_text(sock: socket.socket, page: StatusPage) -> None:
    sys.exit("a reason")


def raises(sock: socket.socket, page: StatusPage) -> None:
    raise ValueError("nobody catches this")


def hard_exit(sock: socket.socket, page: StatusPage) -> None:
    os._exit(17)


def segfault(sock: socket.socket, page: StatusPage) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def with_family(sock: socket.socket, page: StatusPage) -> None:
    page.begin(1)
    say(sock, os.getpid(), *family())
    rest(sock)


def with_hidden_daemon(sock: socket.socket, page: StatusPage) -> None:
    """A daemon without the mark, without the session, without the parent."""
    away = subprocess.run([sys.executable, "-c", _DAEMON], stdout=subprocess.PIPE, check=True, text=True, env={})
    say(sock, os.getpid(), int(away.stdout))
    rest(sock)


def relay(sock: socket.socket, page: StatusPage) -> None:
    """A process that always forks the next one and ends: hard to catch."""

    def run() -> None:
        while True:
            if os.fork():
                os._exit(0)
            time.sleep(0.0005)

    forked(run)
    say(sock, os.getpid())
    rest(sock)


def hog(sock: socket.socket, page: StatusPage) -> None:
    page.begin(5, 200 * MB)
    say(sock, "begun")
    kept = []
    while True:
        kept.append(b"x" * (10 * MB))
        time.sleep(0.005)


def hog_in_child(sock: socket.socket, page: StatusPage) -> None:
    page.begin(5, 200 * MB)
    forked(hold_more_and_more)
    say(sock, "begun")
    sleep_for_ever()


def hog_in_program(sock: socket.socket, page: StatusPage) -> None:
    page.begin(5, 200 * MB)
    code = "import supervisor_workers; supervisor_workers.hold_more_and_more()"
    subprocess.Popen([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)})
    say(sock, "begun")
    sleep_for_ever()


def hold_more_and_more() -> None:
    kept = []
    while True:
        kept.append(b"x" * (10 * MB))
        time.sleep(0.005)


def sharing(sock: socket.socket, page: StatusPage) -> None:
    """A family of five that shares 150 MB and may have 400."""
    shared = mmap.mmap(-1, 150 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    shared.write(b"x" * len(shared))
    page.begin(5, 400 * MB)
    for _ in range(4):
        forked(sleep_for_ever)
    say(sock, "begun")
    while page.attempt() is not None and not page.peak:
        time.sleep(0.01)
    time.sleep(0.3)
    say(sock, page.end()[0])


def copying(sock: socket.socket, page: StatusPage) -> None:
    """The same family, but everybody writes to what was shared."""
    shared = mmap.mmap(-1, 150 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    shared.write(b"x" * len(shared))
    page.begin(5, 400 * MB)

    def write() -> None:
        for at in range(0, len(shared), 4096):
            shared[at] = 0
        sleep_for_ever()

    for _ in range(4):
        forked(write)
    say(sock, "begun")
    sleep_for_ever()


def slow(sock: socket.socket, page: StatusPage) -> None:
    page.begin(6, 0, 0.3)
    say(sock, "begun")
    sleep_for_ever()


def quick_then_slow(sock: socket.socket, page: StatusPage) -> None:
    """Limits hold for one attempt: neither after it nor for the next one."""
    page.begin(1, 60 * 1024 * MB, 0.2)
    page.end()
    time.sleep(0.5)
    page.begin(2)
    time.sleep(0.5)
    page.end()


def frees(sock: socket.socket, page: StatusPage) -> None:
    """Peaks of three attempts, of which the middle one is large."""
    peaks: list[int] = []
    for size in (1, 150, 1):
        page.begin(len(peaks))
        kept = b"x" * (size * MB)
        del kept
        peaks.append(page.end()[0])
    say(sock, *peaks)


def family_peak(sock: socket.socket, page: StatusPage) -> None:
    """The peak of an attempt without limits counts the child's memory."""
    page.begin(0)

    def hold() -> None:
        kept = b"x" * (150 * MB)
        sleep_for_ever()
        del kept

    pid = forked(hold)
    while page.peak < 150 * MB:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    say(sock, page.end()[0])


def busy(sock: socket.socket, page: StatusPage) -> None:
    page.begin(1)
    say(sock, os.getpid())
    rest(sock)


def deaf(sock: socket.socket, page: StatusPage) -> None:
    """Does not notice that the driver is gone."""
    page.begin(1)
    say(sock, os.getpid())
    sleep_for_ever()


def circumstances(sock: socket.socket, page: StatusPage) -> None:
    """Where it finds itself."""
    files = {path.name: str(path.readlink()) for path in _open_files()}
    with multiprocessing.Pool(2) as pool:
        squares = pool.map(abs, [-1, -2, -3])
    say(
        sock,
        {
            "leader": os.getsid(0) == os.getpid() == os.getpgid(0),
            "interrupt": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
            "terminate": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
            "child": signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL,
            "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
            "children": len(multiprocessing.active_children()),
            "squares": squares,
            "preloaded": "wave" in sys.modules,
            "echo": subprocess.run(["echo", "hello"], capture_output=True, check=True).stdout == b"hello\n",
            "files": files,
        },
    )


def _open_files() -> list[Path]:
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink() or path.exists()]


def scribble(sock: socket.socket, page: StatusPage) -> None:
    """Attempts whose numbers belong together, as fast as possible."""
    say(sock, "begun")
    sock.setblocking(False)
    number = 0
    while True:
        number += 1
        page.begin(number, number << 40, number * 1000.0)
        if random.random() < 0.5:
            page.end()
        try:
            if not sock.recv(1):
                return
        except BlockingIOError:
            pass


# --- drivers, which are programs of their own ---------------------------------------------------------


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def driver(how: str) -> None:
    """Start two workers with families, say everybody's pid, and do as told."""
    from windrow.engines.supervisor.client import Supervisor

    supervisor = Supervisor()
    if how == "thread":
        thread = threading.Thread(target=supervisor.start)
        thread.start()
        thread.join()
    entry = {"both": "deaf", "idle": "at_once"}.get(how, "with_family")
    children = [supervisor.fork(number, 0, f"supervisor_workers:{entry}") for number in range(2)]
    assert supervisor._server is not None
    pids = [os.getpid(), supervisor._server.pid]
    for child in children if how != "idle" else ():
        with child.socket.makefile() as lines:
            pids += json.loads(lines.readline())
    ended = 0
    while how == "idle" and ended < len(children):  # nobody is left for the server to look at
        ended += len(supervisor.reports())
        time.sleep(0.01)
    if how in {"fork", "idle"}:
        pids.append(forked(sleep_for_ever))
    tell(json.dumps(pids))
    sys.stdin.readline()
    if how == "exit":
        sys.exit(4)
    if how == "thread":
        # The thread that started the server has ended, which must not have hurt anybody.
        os.kill(children[0].pid, 0)
        assert supervisor.reports() == []
        tell("alive")
    sleep_for_ever()


def driver_with_stopped_server(moment: str) -> None:
    """Start a server, stop it before it serves, say the pids and wait to be killed."""
    from windrow.engines.supervisor.client import Supervisor

    supervisor = Supervisor(["numpy"])
    supervisor.start()
    assert supervisor._server is not None
    if moment == "importing":
        time.sleep(0.05)
    os.kill(supervisor._server.pid, signal.SIGSTOP)
    tell(json.dumps([os.getpid(), supervisor._server.pid]))
    sleep_for_ever()


if __name__ == "__main__":
    if sys.argv[1] == "stopped":
        driver_with_stopped_server(sys.argv[2])
    driver(sys.argv[1])
