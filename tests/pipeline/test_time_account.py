"""Where the time of a run went: the parts add up to all of it, whatever the engine."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.core.events import Finished, WorkerJoined
from windrow.core.records import Evidence, Life, Measurement, Opened, RowsReport, StepCost, Worker
from windrow.pipeline.results.ledger import Ledger
from windrow.pipeline.run.time_account import TimeAccount

if TYPE_CHECKING:
    from pathlib import Path

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


def test_what_chunks_were_predicted_to_take_is_told_beside_what_they_took(tmp_path: Path) -> None:
    data = {name: {"x": np.arange(1000.0)} for name in ("a", "b")}
    made = analysis()
    first = made.run(data, engine="inline", progress=False)
    assert first.predicted == {}  # one chunk each, of which nothing was known
    result = made.run(data, engine="inline", progress=False, rundir=tmp_path / "run")
    again = wr.load(tmp_path / "run")
    for one in (result, again, wr.merge(result)):
        assert set(one.predicted) == {"a", "b"}
        facts = one.predicted["a"]
        assert facts["predicted"] == 1
        assert abs(facts["predicted_s"] - facts["used_s"]) <= facts["off_s"] * (1 + 1e-9)
        assert json.loads(one.to_json())["predicted"] == one.predicted
    assert '<section id="predictions">' in result.report().read_text()
    other = analysis().run({"c": {"x": np.arange(9.0)}}, engine="inline", progress=False)
    assert '<section id="predictions">' not in other.report(tmp_path / "other.html").read_text()
    other.predicted = {"c": {"predicted": 2, "predicted_s": 1.0, "used_s": 4.0, "off_s": 3.0}}
    assert "predictions: chunks were to take 1 s and took 4 s (2 of them), off by 75 % on average" in other.explain()
    assert wr.merge(result, other).predicted == {**result.predicted, **other.predicted}
    result.predicted, result.ledger = {"c": result.predicted["a"]}, Ledger(())
    assert wr.merge(result, other).predicted["c"]["used_s"] == result.predicted["c"]["used_s"] + 4.0


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
