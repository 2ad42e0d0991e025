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


FORKING = """
import os
import sys
from pathlib import Path

import numpy as np
import windrow as wr

CHILD = Path(sys.argv[1])


def forked(how):
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        CHILD.write_text(f"{CHILD.read_text() if CHILD.exists() else ''}{how} {status}\\n")
        return False
    if how == "exits":
        sys.exit(0)
    if how == "raises":
        raise ValueError("in the child")
    return True


@wr.task
def returns(how):
    return "child" if forked(how) else "parent"


@wr.task(outputs=2)
def yields():
    yield 1
    yield "child" if forked("yields") else "parent"


def result_of(how, kind):
    analysis = wr.Pipeline("forking")

    def forks(x):
        return x < 0 if (x == 7).any() and forked(how) else x >= 0

    getattr(analysis, kind)(forks if kind == "cut" else lambda x: len(x[forks(x)]), name="forks")
    analysis.output(lambda x: len(x), name="rows")
    source = wr.data.open({"x": np.arange(40)}, grid=10)
    return analysis.run(source, engine="{engine}", workers=1, progress=False, chunk=10)


if __name__ == "__main__":
    with wr.Session(engine="{engine}", workers=1) as session:
        print(*session.gather([returns(how) for how in ("returns", "exits", "raises")]), *session.gather(yields()))
    print(*(result_of(how, "cut")["rows"] for how in ("returns", "exits", "raises")), result_of("returns", "output")["forks"])
"""


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_a_child_that_comes_back_from_user_code_is_not_believed(engine: str, tmp_path: Path) -> None:
    program, children = tmp_path / "program.py", tmp_path / "children"
    program.write_text(FORKING.replace("{engine}", engine))
    done = subprocess.run(
        [sys.executable, str(program), str(children)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "parent parent parent 1 parent\n40 40 40 40\n"
    ended = children.read_text().splitlines()
    assert set(ended) == {"returns 1", "exits 1", "raises 1", "yields 1"}


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_fork_is_told_and_ends(engine: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("{engine}", engine))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5 3 4 None\n"
