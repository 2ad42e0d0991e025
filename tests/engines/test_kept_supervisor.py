"""The supervisor that is kept between engines: used again by the next one, unless the program's surroundings have changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import windrow as wr
from windrow.engines.supervisor import kept

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are watched through Linux's /proc")


OTHERS: list[psutil.Process] = []  #: children that were there before a test: of other tests in the same process


def new_children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one not in OTHERS]


@pytest.fixture(autouse=True)
def keeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kept, "KEEPING", True)
    OTHERS[:] = psutil.Process().children(recursive=True)
    yield
    kept.stop_kept()
    assert new_children() == []


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("kept")

    @made.column
    def where(x: Any) -> Any:
        return x * 0 + os.getpid()

    @made.output(region=None)
    def pids(where: Any) -> Any:
        return {str(int(pid)): 1 for pid in where}

    @made.output(region=None)
    def seen(x: Any) -> Any:
        return {f"{os.environ.get('WINDROW_TEST_SEEN', '')} {Path.cwd()}": len(x)}

    return made


def run() -> wr.Result:
    return analysis().run({"x": list(range(100))}, engine="processes", workers=2, progress=False)


def server() -> int:
    """The only process that is left between two runs."""
    (left,) = new_children()
    return int(left.pid)


def test_the_next_run_uses_the_same_server_and_no_worker_is_left() -> None:
    first = run()
    one = server()
    second = run()
    assert server() == one
    assert not first["pids"].keys() & second["pids"].keys()  # workers of their own


def test_workers_see_the_environment_and_the_directory_of_their_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run()
    before = server()
    monkeypatch.setenv("WINDROW_TEST_SEEN", "here")
    monkeypatch.chdir(tmp_path)
    assert list(run()["seen"]) == [f"here {tmp_path}"]
    assert server() != before


def test_files_get_the_mode_that_the_program_wants_now() -> None:
    run()
    before = server()
    old = os.umask(0o077)
    try:
        run()
        assert server() != before
    finally:
        os.umask(old)


def test_who_needs_a_second_server_at_the_same_time_gets_one() -> None:
    one, other = kept.borrow(()), kept.borrow(())
    one.start()
    other.start()
    kept.give_back(one)
    kept.give_back(other)
    assert server() > 0  # one of them was stopped


def test_a_server_that_was_killed_is_replaced() -> None:
    run()
    before = server()
    os.kill(before, signal.SIGKILL)
    assert sum(run()["pids"].values()) > 0
    assert server() != before


def test_a_server_can_be_warmed_and_says_when_it_is() -> None:
    kept.warm(["wave"])
    while not kept.is_warm():
        assert psutil.pid_exists(server())
    kept.warm(["aifc"])  # more is imported by the same one
    while not kept.is_warm():
        assert psutil.pid_exists(server())
    assert "pids" in run().output_names


def test_workers_that_are_still_there_are_ended_when_it_is_given_back() -> None:
    one = kept.borrow(())
    made = one.fork(0, 0, "supervisor_workers:with_family")
    said = made.socket.recv(1 << 16)  # who is there: the family has been started
    family = {child.pid for child in psutil.Process(made.pid).children(recursive=True)}
    assert said
    assert family
    kept.give_back(one)
    assert not any(map(psutil.pid_exists, {made.pid, *family}))
    made.close()
    assert server() > 0


def test_a_fork_of_the_program_starts_its_own() -> None:
    run()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if not kept.is_warm() and kept.borrow(()).mark == "" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    before = server()
    run()
    assert server() == before  # what the fork did is nothing to us


def test_nothing_is_left_when_the_program_ends() -> None:
    program = (
        "import windrow as wr; p = wr.Pipeline('end')\n"
        "@p.output(region=None)\ndef total(x): return len(x)\n"
        "p.run({'x': list(range(9))}, engine='processes', workers=1, progress=False)\n"
        "import psutil; print(*[c.pid for c in psutil.Process().children()])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    (left,) = map(int, done.stdout.split())
    assert not psutil.pid_exists(left)
    assert done.stderr == ""


def test_a_worker_keeps_the_memory_that_its_steps_free() -> None:
    program = (
        "import resource, numpy as np\n"
        "from windrow.engines.processes.startup import tune_malloc\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20): np.zeros(2_000_000).fill(1)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "print(faults(), tune_malloc(), faults(), faults())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, tuned, _, after = done.stdout.split()
    if tuned != "True":
        pytest.skip("this C library has no mallopt")
    assert int(after) < int(before) / 5
