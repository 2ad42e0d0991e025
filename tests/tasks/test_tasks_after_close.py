"""Values outlive the workers that made them: whoever still has a future gets its value after the end."""

from __future__ import annotations

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
