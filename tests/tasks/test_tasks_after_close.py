"""Values outlive the workers that made them: whoever still has a future gets its value after the end."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import wait

import numpy as np
import pytest

import windrow as wr

ENGINES = ("inline", "threads", "processes")


def ones(size: int) -> np.ndarray:
    return np.ones(size)


def late(size: int) -> np.ndarray:
    time.sleep(0.05)
    return np.full(size, 2.0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [10, 5_000, 200_000])
def test_values_of_held_futures_are_there_after_the_session(engine: str, size: int) -> None:
    make, make_late = wr.task(ones), wr.task(late)
    with wr.Session(engine=engine, workers=2) as session:
        done = make(size)
        wait([done])
        pending = [make_late(size) for _ in range(3)]
        session.submit(ones, size)  # nobody has this one
    assert done.result().sum() == size
    assert [one.result().sum() for one in pending] == [2 * size] * 3


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("at_once", [True, False])
def test_an_executor_loses_no_large_result_when_it_is_shut_down(engine: str, at_once: bool) -> None:
    executor = wr.Executor(2, engine=engine)
    futures = [executor.submit(ones, 10_000 + n) for n in range(6)]
    executor.shutdown(wait=at_once)
    assert [len(one.result()) for one in futures] == [10_000 + n for n in range(6)]


LEFT_OPEN = """
import time
import windrow as wr

for end in (wr.Session.close, wr.Session.barrier, str):
    session = wr.Session(engine="threads", workers=1, store=False, name=end.__name__)
    done = session.submit(abs, -1)
    assert done.result() == 1
    lost = session.submit(time.sleep, 60 if end is str else 0)
    end(session)
"""


def test_a_program_that_forgets_to_close_is_told_what_it_loses() -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert "session 'str' was not closed: 1 of 2 tasks had not ended and are lost" in line
