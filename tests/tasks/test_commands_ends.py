"""However a command ends, and whoever is killed: nothing that it started is left running."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from tasks.command_crowd import CROWD, GRACE_S, alive, all_gone, all_there, crowd
from windrow.engines.processes.engine import ProcessesEngine
from windrow.errors import CommandError, TaskError

ENGINES = ("inline", "threads", "processes")
engines = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a cancelled attempt is given its time is for the tests of the engine."""
    defaults: Any = ProcessesEngine.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "grace_s", GRACE_S)


@pytest.fixture
def number() -> str:
    """A time to sleep that nobody else sleeps: known in the table of processes."""
    return f"1{secrets.randbelow(10**9):09d}.{secrets.randbelow(10**9):09d}"


# -- in this process


@pytest.mark.parametrize("way", ["plain", *ENGINES])
def test_what_a_command_leaves_in_the_background_ends_with_it(way: str, number: str, tmp_path: Path) -> None:
    @wr.command
    def leaves(number: str, flag: Any) -> str:
        return (
            "sleep {number} & setsid sleep {number} & (setsid sleep {number} &>/dev/null &); "
            "(env -i sleep {number} &); until test -e {flag}; do sleep 0.01; done; echo well"
        )

    def let_it_end() -> None:
        all_there(number, 4)
        (tmp_path / "flag").touch()

    thread = threading.Thread(target=let_it_end)
    thread.start()
    if way == "plain":
        assert leaves(number, tmp_path / "flag") == "well\n"
    else:
        with wr.Session(engine=way, workers=1):
            assert leaves(number, tmp_path / "flag").result() == "well\n"
            assert alive(number) == []
    thread.join()
    assert alive(number) == []


def test_a_worker_takes_in_the_ends_of_orphans(number: str) -> None:
    @wr.command
    def leaves() -> str:
        return "(true &); (sleep {number} &); sleep 0.05".replace("{number}", number)

    @wr.task
    def ended_children() -> list[str]:
        own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return [one for one in own if " Z " in Path(f"/proc/{one}/stat").read_text()]

    with wr.Session(engine="processes", workers=1) as session:
        session.gather([leaves() for _ in range(3)])
        assert ended_children().result() == []


@engines
def test_a_session_left_by_an_exception_leaves_nothing(engine: str, number: str) -> None:
    def leave() -> None:
        with wr.Session(engine=engine, workers=1):
            crowd(number)
            all_there(number)
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert alive(number) == []


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_cancelled_group_leaves_nothing(engine: str, number: str) -> None:
    with wr.Session(engine=engine, workers=1) as session:
        with session.group() as group:
            kept = crowd(number)
        all_there(number)
        group.cancel()
        all_gone(number)
        assert wr.command(lambda: "echo next")().result() == "next\n"
    assert kept.cancelled()


@pytest.mark.parametrize("way", ["plain", *ENGINES])
def test_a_deadline_ends_all_of_it(way: str, number: str) -> None:
    late = crowd.options(deadline=1.0)

    def run() -> None:
        if way == "plain":
            late(number)
            return
        with wr.Session(engine=way, workers=1):
            late(number).result()

    with pytest.raises(TaskError, match="by its deadline"):
        run()
    all_gone(number)


def test_an_interrupt_ends_a_plain_call(number: str) -> None:
    def interrupt() -> None:
        all_there(number)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        crowd(number)
    thread.join()
    assert alive(number) == []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_killed_worker_leaves_nothing(number: str, tmp_path: Path) -> None:
    @wr.command
    def first_time(flag: Any, shell: Any, number: str) -> str:
        return "test -e {flag} && exit; echo $$ > {shell}; touch {flag}; " + CROWD

    with wr.Session(engine="processes", workers=1):
        kept = first_time(tmp_path / "flag", tmp_path / "shell", number)
        all_there(number)
        worker = parent_of(int((tmp_path / "shell").read_text()))
        assert worker != os.getpid()
        os.kill(worker, signal.SIGKILL)
        assert kept.result() == ""  # a second attempt, in another worker
        assert alive(number) == []


def test_a_shell_that_is_killed_is_a_failure_and_leaves_nothing(number: str, tmp_path: Path) -> None:
    @wr.command
    def told(shell: Any, number: str) -> str:
        return "echo $$ > {shell}; " + CROWD

    def kill() -> None:
        all_there(number)
        os.kill(int((tmp_path / "shell").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(CommandError, match="ended by SIGKILL"):
        told(tmp_path / "shell", number)
    thread.join()
    assert alive(number) == []


# -- drivers of their own

PROGRAM = """
    import sys
    import windrow as wr
    from command_crowd import all_there, crowd, do_not_wait_long

    def main(way, number):
        if way == "plain":
            crowd(number)
        elif way == "exits":
            wr.Session(engine="threads", workers=1).submit(crowd, number)
            all_there(number)
        else:
            with wr.Session(engine=way, workers=1):
                crowd(number).result()

    if __name__ == "__main__":
        do_not_wait_long()
        main(*sys.stdin.read().split())
"""


def driver(directory: Path, way: str, number: str) -> subprocess.Popen[bytes]:
    script = directory / "driver.py"
    script.write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    assert process.stdin is not None
    process.stdin.write(f"{way} {number}".encode())
    process.stdin.close()
    return process


@pytest.mark.parametrize("way", ["plain", pytest.param("inline", marks=pytest.mark.slow), "threads", "processes"])
def test_a_driver_that_is_killed_leaves_nothing(way: str, number: str, tmp_path: Path) -> None:
    """Two at a time, as most of it is waiting."""
    ends = (signal.SIGKILL, signal.SIGTERM if way == "plain" else signal.SIGINT)
    processes = [(driver(tmp_path, way, f"{number}{end:02d}"), end) for end in ends]
    for process, end in processes:
        all_there(f"{number}{end:02d}")
        process.send_signal(end)
    for process, end in processes:
        assert process.wait(120) != 0
        all_gone(f"{number}{end:02d}")


def test_a_driver_that_ends_without_waiting_leaves_nothing(number: str, tmp_path: Path) -> None:
    assert driver(tmp_path, "exits", number).wait(60) == 0
    all_gone(number)
