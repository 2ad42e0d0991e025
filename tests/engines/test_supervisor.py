"""The supervisor under fire: whatever ends, nobody is left behind, and the reason is told."""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import supervisor_workers
from windrow.engines.supervisor import client, server
from windrow.engines.supervisor.client import MARK, ProcessEnd, Supervisor, WorkerProcess
from windrow.engines.supervisor.status_page import StatusPage
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

MB = 1 << 20
PATIENCE_S = 120.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for something to become true, within bounds."""
    give_up = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < give_up, what
        time.sleep(0.005)
    return result


def marked(token: str) -> list[int]:
    """Everybody alive who was started with the token in the environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if token in Path(f"/proc/{process.pid}/environ").read_text(errors="replace"):
                found.append(process.pid)
        except OSError:
            continue
    return found


def living(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def open_files() -> list[str]:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(path.readlink()).partition(":[")[0])
        except OSError:  # the one that lists them
            continue
    return sorted(found)


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Marks everybody a test starts; nobody of them may be left when it ends."""
    made = secrets.token_hex(8)
    monkeypatch.setenv(MARK, made)
    yield made
    until(lambda: not marked(made), "somebody is left behind")


class Ward:
    """A supervisor, and what a test asks of it."""

    def __init__(self) -> None:
        self.supervisor = Supervisor(["wave", "a_module_that_does_not_exist"])
        self.children: list[WorkerProcess] = []
        self.ended: list[ProcessEnd] = []

    def fork(self, entry: str, worker: int = 0, incarnation: int = 0) -> WorkerProcess:
        child = self.supervisor.fork(worker, incarnation, f"supervisor_workers:{entry}")
        child.socket.settimeout(PATIENCE_S)
        self.children.append(child)
        return child

    def end(self, worker: int = 0, incarnation: int = 0) -> ProcessEnd:
        """Wait until a worker's end is reported."""

        def look() -> ProcessEnd | None:
            select.select([self.supervisor], [], [], 0.1)
            self.ended += self.supervisor.reports()
            for ended in self.ended:
                if (ended.worker, ended.incarnation) == (worker, incarnation):
                    return ended
            return None

        found: ProcessEnd = until(look, f"the end of worker {worker} was not reported")
        return found

    @property
    def server(self) -> int:
        assert self.supervisor._server is not None
        return self.supervisor._server.pid


@pytest.fixture
def ward(token: str) -> Iterator[Ward]:
    before = open_files()
    made = Ward()
    yield made
    pids = [child.pid for child in made.children]
    made.supervisor.stop()
    made.supervisor.stop()
    assert living(pids) == []
    assert marked(token) == []
    for child in made.children:
        child.close()
        child.close()
    assert open_files() == before


def heard(child: WorkerProcess) -> Any:
    """The next line a worker says."""
    with child.socket.makefile() as lines:
        return json.loads(lines.readline())


# --- how workers end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind", "code"),
    [
        ("at_once", "exit", 0),
        ("exit_3", "exit", 3),
        ("exit_text", "exit", 1),
        ("raises", "exit", 70),
        ("hard_exit", "exit", 17),
        ("segfault", "signal", signal.SIGSEGV),
        ("no_such_function", "exit", 70),
    ],
)
def test_an_end_is_told(ward: Ward, entry: str, kind: str, code: int) -> None:
    ward.fork(entry, 3, 8)

    ended = ward.end(3, 8)

    assert (ended.kind, ended.code, ended.resource) == (kind, code, "")
    assert ended.peak_memory > 1 * MB


def test_what_a_worker_prints_is_not_lost(ward: Ward, capfd: pytest.CaptureFixture[str]) -> None:
    ward.fork("exit_3", 0)
    ward.fork("raises", 1)
    ward.end(0)
    ward.end(1)

    out, err = capfd.readouterr()
    assert out == "said before the end\n"
    assert err.endswith("ValueError: nobody catches this\n")


def test_a_worker_ends_when_its_driver_closes_the_socket(ward: Ward) -> None:
    """It does not, if a sibling made later holds the other end too."""
    child, sibling = ward.fork("wait", 0), ward.fork("wait", 1)
    heard(child), heard(sibling)

    child.socket.close()

    assert ward.end(0).kind == "exit"
    assert living([sibling.pid]) == [sibling.pid]


def test_kill_takes_the_whole_family(ward: Ward) -> None:
    family, neighbour = ward.fork("with_family", 0), ward.fork("wait", 1)
    pids = heard(family)
    heard(neighbour)
    assert living(pids) == pids
    assert len(pids) == 5

    ward.supervisor.kill(0, 1)  # another incarnation, another worker: nobody
    ward.supervisor.kill(5, 0)
    ward.supervisor.kill(0, 0)

    assert (ward.end(0).kind, ward.end(0).code) == ("killed", signal.SIGKILL)
    assert living(pids) == []
    assert living([neighbour.pid]) == [neighbour.pid]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_leaves_nobody(ward: Ward, number: int) -> None:
    family, neighbours = ward.fork("with_family", 0), ward.fork("with_family", 1)
    pids, others = heard(family), heard(neighbours)

    os.kill(family.pid, number)

    assert (ward.end(0).kind, ward.end(0).code) == ("signal", number)
    assert living(pids) == []
    assert living(others) == others


def test_a_daemon_that_bears_no_mark_is_found_all_the_same(ward: Ward) -> None:
    first, second = ward.fork("with_hidden_daemon", 0), ward.fork("with_hidden_daemon", 1)
    pids, others = heard(first), heard(second)

    os.kill(first.pid, signal.SIGKILL)

    ward.end(0)
    assert living(pids) == []
    assert living(others) == others
    ward.supervisor.kill(1, 0)
    ward.end(1)
    assert living(others) == []


def test_a_worker_that_exits_leaves_nobody(ward: Ward) -> None:
    family = ward.fork("with_family")
    pids = heard(family)

    family.socket.close()

    assert ward.end().kind == "exit"
    assert living(pids) == []


def test_who_forks_all_the_time_is_caught(ward: Ward, token: str) -> None:
    heard(ward.fork("relay"))

    ward.supervisor.kill(0, 0)

    assert ward.end().kind == "killed"
    assert marked(token) == [ward.server]


def test_many_at_once(ward: Ward) -> None:
    families = [ward.fork("with_family", number) for number in range(6)]
    pids = [pid for family in families for pid in heard(family)]
    for family in families[::2]:
        os.kill(family.pid, signal.SIGKILL)
    for number in (1, 3, 5):
        ward.supervisor.kill(number, 0)

    kinds = Counter(ward.end(number).kind for number in range(6))

    assert kinds == {"signal": 3, "killed": 3}
    assert living(pids) == []


def test_incarnations_follow_each_other(ward: Ward) -> None:
    for incarnation in range(3):
        ward.fork("exit_3", 0, incarnation)
        assert ward.end(0, incarnation).code == 3


def test_reports_taken_while_forking_are_still_announced(ward: Ward) -> None:
    ward.fork("at_once", 0)
    until(lambda: select.select([ward.supervisor], [], [], 0.1)[0], "no report")
    heard(ward.fork("wait", 1))  # reads the same socket

    assert select.select([ward.supervisor], [], [], 0)[0]
    assert [ended.worker for ended in ward.supervisor.reports()] == [0]
    assert not select.select([ward.supervisor], [], [], 0)[0]


# --- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["hog", "hog_in_child", "hog_in_program", "copying"])
def test_too_much_memory(ward: Ward, entry: str) -> None:
    neighbour = ward.fork("wait", 1)
    heard(neighbour)
    heard(ward.fork(entry, 0))

    ended = ward.end(0)

    limit = (400 if entry == "copying" else 200) * MB
    assert (ended.kind, ended.resource, ended.limit) == ("exceeded", "memory", limit)
    assert ended.used > limit
    assert ended.peak_memory >= ended.used
    assert living([neighbour.pid]) == [neighbour.pid]


def test_shared_memory_counts_once(ward: Ward) -> None:
    child = ward.fork("sharing")
    assert heard(child) == ["begun"]

    (peak,) = heard(child)

    assert 150 * MB < peak < 400 * MB
    assert ward.end().kind == "exit"


def test_too_much_time(ward: Ward) -> None:
    heard(ward.fork("slow"))

    ended = ward.end()

    assert (ended.kind, ended.resource, ended.limit) == ("exceeded", "seconds", 0.3)
    assert ended.used > 0.3


def test_limits_are_those_of_the_attempt(ward: Ward) -> None:
    ward.fork("quick_then_slow")

    assert (ward.end().kind, ward.end().code) == ("exit", 0)


def test_peaks_are_those_of_the_attempt(ward: Ward) -> None:
    small, large, after = heard(ward.fork("frees"))

    assert large > small + 100 * MB
    assert after < large - 100 * MB


def test_the_peak_is_the_familys(ward: Ward) -> None:
    (peak,) = heard(ward.fork("family_peak"))

    assert peak > 150 * MB


def test_a_stopped_worker_is_ended(ward: Ward) -> None:
    child, neighbour = ward.fork("busy", 0), ward.fork("busy", 1)
    heard(child), heard(neighbour)

    os.kill(child.pid, signal.SIGSTOP)

    assert ward.end(0).kind == "stopped"
    assert living([neighbour.pid]) == [neighbour.pid]


def test_time_in_which_nobody_looked_is_not_counted_as_stopped() -> None:
    process = subprocess.Popen(supervisor_workers.FOR_EVER)
    page = StatusPage.create()
    watched = server.WatchedWorker(0, 0, process.pid, page)
    try:
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "stop")
        watched.look(1000.0)
        watched.look(2000.0)  # the watcher itself was stopped
        assert watched.reason is None
        for now in (2000.5, 2001.0):
            watched.look(now)
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: psutil.Process(process.pid).status() != psutil.STATUS_STOPPED, "continue")
        watched.look(2001.5)
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "stop")
        for now in (2002.0, 2002.5, 2003.0, 2003.5):
            watched.look(now)
        assert watched.reason is None
        watched.look(2004.0)
        assert watched.reason is not None
        assert watched.reason.kind == "stopped"
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        watched.close()


def test_an_attempt_that_ended_just_in_time_is_spared() -> None:
    """The verdict on an attempt does not hit the worker that is at the next one."""
    process = subprocess.Popen(supervisor_workers.FOR_EVER)
    page = StatusPage.create()
    watched = server.WatchedWorker(0, 0, process.pid, page)
    try:
        page.begin(1, 1)  # a byte
        attempt = page.attempt()
        assert attempt is not None
        page.end()
        page.begin(1, 1)
        watched._condemn_for(attempt, server.EndReason("exceeded"))
        assert watched.reason is None
        status = psutil.Process(process.pid).status
        until(lambda: status() == psutil.STATUS_SLEEPING, "it goes on")
        watched.look(1.0)
        assert watched.reason is not None
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        watched.close()


# --- where a worker finds itself ----------------------------------------------------------------------


def test_circumstances(ward: Ward) -> None:
    heard(ward.fork("wait", 0))
    heard(ward.fork("wait", 1))
    (found,) = heard(ward.fork("circumstances", 2))

    files = found.pop("files")
    assert found == {
        "leader": True,
        "interrupt": True,
        "terminate": True,
        "child": True,
        "blocked": 0,
        "children": 0,
        "squares": [1, 2, 3],
        "preloaded": True,
        "echo": True,
    }
    assert files["0"] == "/dev/null"
    kinds = Counter(name.partition(":")[0] for number, name in files.items() if int(number) > 2)
    assert kinds["socket"] == 1
    assert kinds["pipe"] == 0
    assert sum("memfd" in name for name in files.values()) == 1


def test_a_page_is_never_read_half_changed(ward: Ward) -> None:
    child = ward.fork("scribble")
    heard(child)
    seen = set()

    def look() -> bool:
        attempt = child.page.attempt()
        if attempt is not None:
            number = attempt.number
            limits = (number << 40, number * 1000.0)
            assert (attempt.memory_limit, attempt.seconds_limit) == limits
            seen.add(number)
        return len(seen) >= 100

    until(lambda: any(look() for _ in range(1000)), "too few attempts seen")


# --- the deaths of the others -------------------------------------------------------------------------


def test_the_server_is_killed(ward: Ward, token: str) -> None:
    families = [ward.fork("with_family", number, 4) for number in range(2)]
    pids = [pid for family in families for pid in heard(family)]
    assert living(pids) == pids

    os.kill(ward.server, signal.SIGKILL)

    assert {ward.end(number, 4).kind for number in range(2)} == {"lost"}
    until(lambda: living(pids) == [], "a worker outlived its server")  # init may be slow to reap
    assert not ward.supervisor.alive
    assert marked(token) == []
    # The next one is made by a new server, announced on the same file.
    fileno = ward.supervisor.fileno()
    ward.fork("exit_3", 0, 5)
    assert ward.supervisor.alive
    assert ward.supervisor.fileno() == fileno
    assert ward.end(0, 5).code == 3


def test_the_server_was_killed_and_nobody_noticed(ward: Ward) -> None:
    child = ward.fork("with_family", 0)
    pids = heard(child)
    os.kill(ward.server, signal.SIGKILL)

    heard(ward.fork("wait", 1))

    assert ward.end(0).kind == "lost"
    assert living(pids) == []
    ward.supervisor.kill(1, 0)
    assert ward.end(1).kind == "killed"


def test_a_server_that_is_asked_to_end_ends_its_workers(ward: Ward) -> None:
    pids = heard(ward.fork("with_family"))

    os.kill(ward.server, signal.SIGTERM)

    assert ward.end().kind == "lost"
    assert living(pids) == []


def test_a_server_that_is_stopped_while_it_starts_is_continued(ward: Ward) -> None:
    ward.supervisor.start()
    os.kill(ward.server, signal.SIGSTOP)
    until(lambda: psutil.Process(ward.server).status() == psutil.STATUS_STOPPED, "stop")

    ward.fork("exit_3")

    assert ward.end().code == 3


def test_a_server_that_cannot_be_continued_is_replaced(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_continue_at_messages", lambda *_: None)
    monkeypatch.setattr(client, "ENDING_S", 0.2)
    ward.supervisor.start()
    first = ward.server
    os.kill(first, signal.SIGSTOP)
    until(lambda: psutil.Process(first).status() == psutil.STATUS_STOPPED, "stop")
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    ward.supervisor._ask_for(0, 0, "supervisor_workers:exit_3")
    monkeypatch.undo()

    ward.fork("exit_3")

    assert ward.server != first
    assert ward.end().code == 3


@pytest.mark.parametrize("moment", ["at_once", "importing"])
def test_the_driver_dies_while_its_server_is_stopped_and_has_not_begun(token: str, moment: str) -> None:
    process, _ = driver(f"stopped {moment}")
    process.kill()
    process.wait(PATIENCE_S)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    until(lambda: not marked(token), "the stopped server outlived its driver")


def driver(how: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(
        [sys.executable, supervisor_workers.__file__, *how.split()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    pids: list[int] = json.loads(process.stdout.readline())
    assert living(pids) == pids
    return process, pids


@pytest.mark.parametrize("how", ["kill", "exit", "fork", "idle", "thread"])
def test_the_driver_dies(token: str, how: str) -> None:
    """Killed; by itself; while a fork of it holds its files (also with no worker to watch); after its starting thread ended."""
    process, pids = driver(how)
    helper = pids.pop() if how in {"fork", "idle"} else None
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if how in {"exit", "thread"}:
            process.stdin.write("\n")
            process.stdin.flush()
        if how == "thread":
            assert process.stdout.readline() == "alive\n"
            assert living(pids) == pids
        if how == "exit":
            assert process.wait(PATIENCE_S) == 4
        process.kill()
        process.wait(PATIENCE_S)
        # The driver's own child is nobody's worker: it held the files and lives on.
        expected = [] if helper is None else [helper]
        until(lambda: marked(token) == expected, "somebody outlived the driver")
        until(lambda: living(pids) == [], "a worker outlived the driver")  # init may be slow to reap
    finally:
        process.kill()
        if helper is not None:
            os.kill(helper, signal.SIGKILL)
        process.communicate()


def test_the_driver_and_the_server_die(token: str) -> None:
    """Nobody is left to look for the workers: the kernel ends them."""
    process, pids = driver("both")
    with process:
        process.send_signal(signal.SIGSTOP)
        os.kill(pids[1], signal.SIGKILL)
        process.kill()
        process.wait(PATIENCE_S)
        until(lambda: not living(pids), "a worker outlived driver and server")


def test_a_fork_of_the_driver_leaves_the_supervisor_alone(ward: Ward) -> None:
    child = ward.fork("wait")
    heard(child)

    def misuse() -> None:
        with pytest.raises(EngineError, match="a fork of the program"):
            ward.supervisor.kill(0, 0)
        ward.supervisor.stop()
        os._exit(5)

    copy = supervisor_workers.forked(misuse)

    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 5
    assert living([child.pid]) == [child.pid]
    ward.supervisor.kill(0, 0)
    assert ward.end().kind == "killed"


def test_stopping_ends_everybody(ward: Ward) -> None:
    pids = [pid for number in range(2) for pid in heard(ward.fork("with_family", number))]

    ward.supervisor.stop()

    assert living(pids) == []
    assert ward.supervisor.reports() == []
    ward.fork("exit_3", 0, 1)  # a stopped supervisor can be used again
    assert ward.end(0, 1).code == 3


def test_stopping_ends_everybody_with_a_server_that_is_stopped(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = heard(ward.fork("with_family"))
    monkeypatch.setattr("windrow.engines.supervisor.client.ENDING_S", 0.2)
    os.kill(ward.server, signal.SIGSTOP)

    ward.supervisor.stop()

    assert living(pids) == []


# --- preloaded modules ---------------------------------------------------------------------------------


@pytest.fixture
def preloads(ward: Ward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def preload(text: str) -> None:
        name = f"preloaded_{secrets.token_hex(4)}"
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        ward.supervisor = Supervisor([name])

    return preload


def test_a_process_that_a_preloaded_module_started_is_let_be(
    ward: Ward, token: str, preloads: Callable[[str], None]
) -> None:
    preloads(f"import subprocess; process = subprocess.Popen({supervisor_workers.FOR_EVER!r})")
    ward.fork("exit_3")

    ward.end()

    assert len(marked(token)) == 2  # it and the server
    ward.supervisor.stop()
    assert marked(token) == []


def test_a_module_that_raises_is_skipped(ward: Ward, preloads: Callable[[str], None]) -> None:
    preloads("raise RuntimeError('not today')")
    ward.fork("exit_3")

    assert ward.end().code == 3


def test_what_a_preloaded_module_prints_is_printed_once(
    ward: Ward, preloads: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    preloads("import sys; sys.stdout.write('loaded; ')")
    ward.fork("exit_3")
    ward.end()

    assert capfd.readouterr().out == "loaded; said before the end\n"


def test_a_system_that_refuses_more_processes(ward: Ward, preloads: Callable[[str], None]) -> None:
    preloads(
        "import os\ndef fork():\n    raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = fork\n"
    )

    with pytest.raises(EngineError, match=r"worker 0: .*Resource temporarily unavailable; use"):
        ward.fork("wait")

    assert ward.supervisor.alive


# --- misuse -------------------------------------------------------------------------------------------


def test_a_server_that_cannot_start_is_an_error(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(EngineError, match=r"ended twice while worker 0 was being made.* exit code 1"):
        ward.fork("wait")

    assert not ward.supervisor.alive


def test_an_interpreter_that_does_not_exist_is_an_error(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    with pytest.raises(EngineError, match=r"sys.executable='/no/such/python'"):
        ward.fork("wait")

    assert not ward.supervisor.alive


def test_other_systems_are_refused_kindly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(EngineError, match=r"this is darwin; use engine='threads'"):
        Supervisor().start()


def test_a_supervisor_that_was_not_started() -> None:
    supervisor = Supervisor()

    supervisor.stop()

    assert supervisor.reports() == []
    assert not supervisor.alive
    with pytest.raises(EngineError, match=r"call start\(\) first"):
        supervisor.fileno()
