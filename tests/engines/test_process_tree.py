"""Process trees from /proc, compared with psutil."""

from __future__ import annotations

import mmap
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import supervisor_workers
from windrow.engines.supervisor import process_tree
from windrow.engines.supervisor.process_tree import ProcessTree, children, descendants, end_all, look, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")

MB = 1 << 20
PATIENCE_S = 120.0

FAMILY = """
import os, sys, time
for _ in range(2):
    if os.fork() == 0:
        os.fork()
        break
time.sleep(600)
"""


def until(condition: Callable[[], Any]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@pytest.fixture
def family() -> Iterator[psutil.Process]:
    """A process with two children and two grandchildren."""
    process = subprocess.Popen([sys.executable, "-c", FAMILY])
    own = psutil.Process(process.pid)
    until(lambda: len(own.children(recursive=True)) == 4)
    everybody = own.children(recursive=True)
    yield own
    process.kill()
    process.wait()
    for each in everybody:
        if each.is_running():
            each.kill()


def test_a_process_is_looked_at(family: psutil.Process) -> None:
    process = look(family.pid)

    assert process is not None
    assert process.pid == family.pid
    assert process.parent == os.getpid()
    assert process.session == os.getsid(family.pid)
    assert process.state in "RS"
    since_boot = process.started / os.sysconf("SC_CLK_TCK")
    assert abs(psutil.boot_time() + since_boot - family.create_time()) < 2


def test_nobody_is_nobody() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert look(ended.pid) is None
    assert children(ended.pid) == []
    assert descendants(ended.pid) == []


@pytest.mark.parametrize("name", ["plain", "a) b (c", ") S 1 1 1", "((("])
def test_any_name_will_do(name: str) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        Path("/proc/self/comm").write_text(name)
        os.write(tell, b"x")
        supervisor_workers.sleep_for_ever()
    try:
        os.read(told, 1)
        assert f"({name})" in Path(f"/proc/{child}/stat").read_text()

        process = look(child)

        assert process is not None
        assert process.parent == os.getpid()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)


@pytest.mark.parametrize("listed", [True, False])
def test_descendants(family: psutil.Process, listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not listed:  # as on kernels without the list
        monkeypatch.setattr(process_tree, "_kernel_lists_children", lambda: False)

    assert sorted(children(family.pid)) == sorted(p.pid for p in family.children())
    expected = sorted(p.pid for p in family.children(recursive=True))
    assert sorted(descendants(family.pid)) == expected


def test_children_of_threads_are_children() -> None:
    made: list[subprocess.Popen[bytes]] = []
    go_on = threading.Event()

    def start() -> None:
        made.append(subprocess.Popen(supervisor_workers.FOR_EVER))
        go_on.wait(PATIENCE_S)

    thread = threading.Thread(target=start)
    thread.start()
    try:
        until(lambda: made)
        assert made[0].pid in children(os.getpid())
    finally:
        go_on.set()
        thread.join()
        made[0].kill()
        made[0].wait()


def test_a_signal_for_one_who_had_the_number_before_goes_nowhere(family: psutil.Process) -> None:
    process = look(family.pid)
    assert process is not None

    assert not process_tree.send_signal(process._replace(started=process.started - 1), signal.SIGKILL)
    assert family.is_running()
    assert process_tree.send_signal(process, signal.SIGKILL)
    family.wait(PATIENCE_S)
    assert not process_tree.send_signal(process, signal.SIGKILL)


def test_signals_without_pidfds(family: psutil.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_call(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", no_such_call)
    process = look(family.pid)
    assert process is not None

    assert not process_tree.send_signal(process._replace(started=process.started - 1), signal.SIGKILL)
    assert family.is_running()
    assert process_tree.send_signal(process, signal.SIGKILL)
    os.waitpid(family.pid, 0)
    assert not process_tree.send_signal(process, signal.SIGKILL)


def test_end_all(family: psutil.Process) -> None:
    everybody = [family, *family.children(recursive=True)]

    assert end_all(lambda: [family.pid, *descendants(family.pid)]) == 5

    until(lambda: end_all(lambda: [process.pid for process in everybody]) == 0)
    assert not any(process.is_running() and process.status() != "zombie" for process in everybody)


def test_who_appears_while_the_others_are_stopped_is_ended_too() -> None:
    first, second = (subprocess.Popen(supervisor_workers.FOR_EVER) for _ in range(2))
    answers = iter([[first.pid], [first.pid, second.pid]])

    count = end_all(lambda: next(answers, []))

    assert count == 2
    assert first.wait(PATIENCE_S) == second.wait(PATIENCE_S) == -signal.SIGKILL


def test_marked() -> None:
    token = secrets.token_hex(8)
    environ = {**os.environ, "WINDROW_TREE": f"outer/{token}"}
    by_mark = subprocess.Popen(supervisor_workers.FOR_EVER, env=environ)
    by_session = subprocess.Popen(supervisor_workers.FOR_EVER, start_new_session=True)
    other = subprocess.Popen(supervisor_workers.FOR_EVER)
    try:
        assert {p.pid for p in marked(token)} == {by_mark.pid}
        found = {p.pid for p in marked(token, [by_session.pid])}
        assert found == {by_mark.pid, by_session.pid}
        by_mark.kill()
        os.waitid(os.P_PID, by_mark.pid, os.WEXITED | os.WNOWAIT)
        assert marked(token) == []  # ended, though nobody has waited for it
    finally:
        for process in (by_mark, by_session, other):
            process.kill()
            process.wait()


# --- memory -------------------------------------------------------------------------------------------


def test_one_process_counts_with_its_resident_set(family: psutil.Process) -> None:
    lone = ProcessTree(family.children()[0].children()[0].pid)
    try:
        assert len(lone) == 1
        assert lone.memory() == psutil.Process(lone.pid).memory_info().rss
        assert lone.memory(exactly=True) == lone.memory()
    finally:
        lone.close()


def test_several_count_with_their_proportional_sets(family: psutil.Process) -> None:
    whole = ProcessTree(family.pid)
    try:
        whole.discover()
        assert len(whole) == 5
        everybody = [family, *family.children(recursive=True)]
        expected = sum(process.memory_full_info().pss for process in everybody)
        assert abs(whole.memory(exactly=True) - expected) < MB
        assert whole.memory() < sum(process.memory_info().rss for process in everybody)
    finally:
        whole.close()


def test_growth_shows_at_once_and_the_dead_do_not_count() -> None:
    kept = mmap.mmap(-1, 50 * MB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    told, tell = os.pipe()
    grown, grow = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(told, 1)
        kept.write(b"x" * len(kept))
        os.write(grow, b"x")
        supervisor_workers.sleep_for_ever()
    whole = ProcessTree(os.getpid())
    try:
        whole.discover()
        before, others = whole.memory(), len(whole) - 1  # whatever other tests left running
        whole._exact_due = time.monotonic() + 1000  # cheap answers only
        os.write(tell, b"x")
        os.read(grown, 1)
        assert 45 * MB < whole.memory() - before < 120 * MB
        assert 45 * MB < whole.memory(exactly=True) - before < 60 * MB
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if others == 1:  # else those of other tests are in it, and may have had children since
            assert abs(whole.memory() - psutil.Process().memory_info().rss) < 5 * MB
            assert len(whole) == 1
    finally:
        whole.close()
        for fd in (told, tell, grown, grow):
            os.close(fd)
        kept.close()


def test_files_are_closed() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    own = ProcessTree(os.getpid())
    own.memory()

    own.close()

    assert len(list(Path("/proc/self/fd").iterdir())) == before
