"""Where the time of a run went: the parts add up to all of it, whatever the engine."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.core.events import Finished, WorkerJoined
from windrow.core.records import Evidence, Life, Measurement, Opened, RowsReport, StepCost, Worker
from windrow.pipeline.run.time_account import TimeAccount

seconds = st.floats(0, 100)


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("times")

    @made.cut
    def positive(x: Any) -> Any:
        return x > 0

    @made.output
    def count(x: Any) -> int:
        return len(x)

    return made


@pytest.mark.parametrize(("engine", "workers"), [("inline", 1), ("threads", 2), ("processes", 2)])
def test_the_parts_add_up_to_the_wall_time_of_all_workers(engine: str, workers: int) -> None:
    data = {name: {"x": np.arange(1000.0)} for name in ("a", "b", "c")}
    result = analysis().run(data, engine=engine, workers=workers, progress=False)
    assert math.isclose(sum(result.account.values()), result.seconds * workers)
    assert all(spent >= 0 for name, spent in result.account.items() if name != "waiting for work")
    assert "time: " in result.explain()
    merged = wr.merge(result, analysis().run({"d": {"x": np.arange(5.0)}}, engine="inline", progress=False))
    assert merged.account["steps"] > result.account["steps"]


@given(st.lists(seconds, min_size=8, max_size=8), st.integers(1, 8), seconds)
def test_what_is_named_is_what_was_measured(spent: list[float], workers: int, driver: float) -> None:
    opening, rows, lock, merging, read, step, output, wall = spent
    account, life = TimeAccount(), Life(0, 0)
    reports = ((Opened(1, (0, 1), ""), opening), (RowsReport(Evidence()), rows), (None, merging))
    events: list[Any] = [WorkerJoined(Worker(Life(number, 0))) for number in range(workers)]
    events += [Finished(1, life, (), Measurement(wall=took, lock_wait=lock), report) for report, took in reports]
    account(events, (), 0.0)
    cost = StepCost.of_call(1, 1, step)._replace(read_s=read)
    outcome: Any = SimpleNamespace(
        evidence={"all": Evidence(steps=(("s", cost),))}, wall_s=wall, driver_cpu_s=driver
    )  # fmt: skip
    steps = {"s": SimpleNamespace(kind="cut", seconds=step), "o": SimpleNamespace(kind="output", seconds=output)}
    result: Any = SimpleNamespace(workers=workers, steps=steps, seconds=wall + 3.0)
    found = account.settle(result, outcome, 1.0)
    assert math.isclose(sum(found.values()), workers * (wall + 3.0), abs_tol=1e-6)
    assert found["opening files"] == opening
    assert found["adding up partial results"] == merging
    assert found["reading"] == read
    assert found["steps"] == pytest.approx(step, abs=1e-9)
    assert found["outputs"] == output
    assert found["setting up"] == workers
    assert found["putting the result together"] == pytest.approx(2.0 * workers)
    assert found["waiting for the interpreter's lock"] == max(lock - read, 0.0)
