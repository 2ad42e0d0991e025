"""The trace: what Perfetto and Chrome need to open it."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from typing import Any

import pytest

from attempt_records import finished, launched, rows_task
from windrow.core.events import Failed
from windrow.core.records import Failure, FailureKind, Life, Measurement, Rows
from windrow.watch.log import EventLog
from windrow.watch.readlog import Log, read_log
from windrow.watch.trace import trace_text


def small_log(tasks: int = 6) -> Log:
    """Two workers take turns, half a second each; memory grows; one attempt fails."""
    stream = io.StringIO()
    log = EventLog(stream, memory=iter(range(10**6, 10**9, 10**6)).__next__)
    for number in range(tasks):
        rows = Rows(number % 2, 100 * number, 100 * number + 100)
        worker, begin = number % 2, 50 + 0.5 * (number // 2)
        task = rows_task(number, rows, category=f"<set {number % 2}>")
        log([], [launched(task, worker=worker)], begin)
        used = Measurement(0.5, 0.4, 0.05, bytes_read=1000)
        log([finished(number, worker, used)], [], begin + 0.5)
    last = tasks + 1
    log([], [launched(rows_task(last, Rows(0, 0, 1), category="<set 0>"))], 59.5)
    failure = Failure(FailureKind.USER, "ValueError", "in /somewhere/secret/file.root", "", None)
    log([Failed(last, Life(0, 0), failure)], [], 60.0)
    log.flush()
    return read_log(stream.getvalue().splitlines())


def traced(log: Log, **options: Any) -> list[dict[str, Any]]:
    text = trace_text(log, 'a "run"', lambda number: f"file_{number}.root", **options)
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = content["traceEvents"]
    for event in events:
        assert isinstance(event["name"], str)
        assert event["ph"] in "MXCi"
        assert event["pid"] == 1
        if event["ph"] != "M":
            assert event["ts"] >= 0
    return events


def test_every_worker_is_a_thread_and_every_task_an_event() -> None:
    events = traced(small_log())
    names = {(e["name"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {("process_name", 0): 'a "run"', ("thread_name", 1): "worker 0", ("thread_name", 2): "worker 1"}
    tasks = [e for e in events if e["ph"] == "X"]
    assert len(tasks) == 7
    failed = tasks.pop()
    assert (failed["args"]["ended"], failed["args"]["why"]) == ("failed", "ValueError: in file.root")
    first = tasks[0]
    assert (first["name"], first["cat"], first["tid"]) == ("<set 0>", "task", 1)
    assert (first["ts"], first["dur"]) == (0.0, 500_000.0)
    assert first["args"] == {
        "file": "file_0.root", "start": 0, "stop": 100, "rows": 100, "task": 0, "attempt": 0,
        "plan": 0, "cpu_s": 0.4, "lock_s": 0.05, "bytes_read": 1000,
    }  # fmt: skip
    for thread in (1, 2):
        mine = sorted((e["ts"], e["dur"]) for e in tasks if e["tid"] == thread)
        for (begin, length), (following, _) in pairwise(mine):
            assert begin + length <= following + 0.01


def test_counters_and_rare_events() -> None:
    log = small_log()
    events = traced(log)
    memory = [e["args"]["MB"] for e in events if e["ph"] == "C" and e["name"] == "memory"]
    assert memory == sorted(memory)
    assert len(memory) == len(log.memory)
    rates = [e for e in events if e["ph"] == "C" and e["name"] == "rows per second"]
    step = (rates[1]["ts"] - rates[0]["ts"]) / 1e6
    assert sum(e["args"]["rows/s"] for e in rates) * step == pytest.approx(600, rel=1e-3)
    assert "secret" not in json.dumps(events)


def test_a_long_run_gives_a_bounded_trace() -> None:
    log = small_log(1000)
    events = traced(log, most=100)
    assert sum(e["ph"] == "X" for e in events) == 100
    assert "901 later attempts are not in this trace" in [e["name"] for e in events if e["ph"] == "i"]


def test_an_empty_log_is_a_trace_too() -> None:
    assert [e["ph"] for e in traced(read_log([]))] == ["M"]
