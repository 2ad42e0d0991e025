"""A fork of a session's process has no run: it is told so, ends by itself, and does no harm to the session."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os
import signal
import sys
import time

import windrow as wr
from windrow.errors import UsageError


def refused(ask):
    try:
        ask()
    except UsageError as error:
        assert "was forked" in str(error), error
        return True
    return False


def in_fork(what):
    child = os.fork()
    if not child:
        signal.alarm(20)
        what()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def asks():
    assert refused(lambda: executor.submit(abs, -1))
    assert refused(waits.result)
    assert refused(session.barrier)
    assert refused(lambda: session.submit(abs, -1))
    assert done.result() == 2
    sys.exit(5)  # leaves both blocks, and comes to the end of the interpreter


if __name__ == "__main__":
    with wr.Session(engine="{engine}", workers=1) as session, wr.Executor(1, engine="{engine}") as executor:
        done, waits = executor.submit(abs, -2), session.submit(time.sleep, 1.5)
        assert done.result() == 2
        print(in_fork(asks), executor.submit(abs, -3).result(), session.submit(abs, -4).result(), waits.result())
"""


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_fork_is_told_and_ends(engine: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{engine}", engine))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5 3 4 None\n"
