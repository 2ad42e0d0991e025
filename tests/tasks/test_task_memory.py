"""Memory of calls: what they use is learned, and no more of them run at a time than fit."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import windrow as wr

MB = 10**6


@wr.task
def large(number: int, place: str) -> int:
    values = np.ones(200 * MB // 8)
    with Path(place, f"begun {number}").open("x"):
        time.sleep(0.05)
    running = len(list(Path(place).glob("begun *")))
    Path(place, f"begun {number}").unlink()
    return running if values.sum() > 0 else 0


@pytest.mark.parametrize("engine", ["processes", "auto"])
def test_calls_that_need_more_than_their_share_run_fewer_at_a_time(tmp_path: Path, engine: str) -> None:
    # A call has 200 MB and its worker 25 to 95: more than a quarter, and less than a third.
    with wr.Session(workers=4, engine=engine, resources={"memory": 900 * MB}):
        first = [large(number, str(tmp_path)) for number in range(8)]
        assert len([one.result() for one in first]) == 8
        later = [large(number, str(tmp_path)).result for number in range(100, 116)]
        most = max(one() for one in later)
    assert 1 <= most <= (3 if engine == "processes" else 4)  # threads share their memory: nothing is known of one call


def test_calls_that_fit_are_given_no_limit(tmp_path: Path) -> None:
    with wr.Session(workers=2, engine="processes", resources={"memory": "4 GB"}):
        assert [one.result() > 0 for one in [large(number, str(tmp_path)) for number in range(12)]] == [True] * 12
