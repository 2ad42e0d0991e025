"""Reading event logs back, and what a report draws over time."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attempt_records import finished, launched, rows_task
from windrow.core.commands import Resolve, Uncounted
from windrow.core.events import WorkerLost
from windrow.core.records import Life, Measurement, Opened, OpenInput, Plan, Rows, Task
from windrow.errors import DataError
from windrow.watch.log import EventLog
from windrow.watch.readlog import Log, read_log
from windrow.watch.report import timeline as report_timeline
from windrow.watch.report.timeline import memory_data, shares, spread, throughput, timeline

PLAN = Plan(id=3, category="data", order=())


def written(tasks: list[tuple[int, float, float, float]], *, discard: frozenset[int] = frozenset()) -> list[str]:
    """Write (worker, sent, heard, wall) with the real event log; task i has rows 10 i to 10 i + 10 of input i % 3."""
    stream = io.StringIO()
    log = EventLog(stream)
    moments: list[tuple[float, int, Any, Any]] = []
    for number, (worker, sent, heard, wall) in enumerate(tasks):
        rows = Rows(number % 3, 10 * number, 10 * number + 10)
        launch = launched(rows_task(number, rows, category=f"set {number % 3}"), worker=worker, plan=PLAN)
        used = Measurement(wall, 0.5 * wall, 0.25 * wall, bytes_read=100)
        moments.append((sent, 0, [], [launch]))
        ends = [Uncounted(number)] if number in discard else []
        moments.append((heard, 1, [finished(number, worker, used)], ends))
    for now, _, events, commands in sorted(moments, key=lambda one: one[:2]):
        log(events, commands, now)
    log.flush()
    return stream.getvalue().splitlines(keepends=True)


def test_what_was_written_is_read_back() -> None:
    lines = written([(0, 5.0, 7.0, 1.5), (1, 5.5, 6.5, 1.0)], discard=frozenset({1}))
    log = read_log(lines)
    by_task = dict(zip(log.attempts.task.tolist(), range(2), strict=True))
    zero, one = by_task[0], by_task[1]
    assert [log.attempts.begin[zero], log.attempts.end[zero]] == [0.5, 2.0]
    assert [log.attempts.begin[one], log.attempts.end[one]] == [0.5, 1.5]
    assert log.attempts.rows.tolist() == [10, 10]
    assert log.attempts.done.tolist() == [n == 0 for n in log.attempts.task]
    assert log.attempts.plan.tolist() == [3, 3]
    assert (log.span, log.unreadable, log.dropped) == (2.0, 0, 0)
    assert log.ended is None
    used = shares(log, 4)
    assert used["tasks"] == 2
    assert (used["cpu"], used["lock"], used["waiting"]) == (0.5, 0.25, 0.25)
    assert used["busy"] == pytest.approx(2.5 / (4 * 2.0))


def test_ends_that_were_heard_of_together_are_taken_apart() -> None:
    # The driver heard of both at 10 s; each took 3 s, one after the other.
    log = read_log(written([(0, 1.0, 10.0, 3.0), (0, 1.0, 10.0, 3.0)]))
    assert sorted(zip(log.attempts.begin.tolist(), log.attempts.end.tolist(), strict=True)) == [(3.0, 6.0), (6.0, 9.0)]


@pytest.mark.parametrize(
    "bad",
    ['{"t":3,"event":"attem', "[1, 2]", "5", '{"event":"Failed"}', '{"t":"x","event":"Failed"}',
     '{"t":1.5,"event":"Failed"}', '{"t":1,"event":"attempt"}', '{"t":1}'],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_counted_and_costs_nothing_else(bad: str) -> None:
    lines = written([(0, 5.0, 7.0, 1.5)])
    log = read_log([*lines, "\n", bad])
    assert log.unreadable == 1
    assert len(log.attempts) == 1
    assert log.span == 2.0


@pytest.mark.parametrize("kind", ["finished", "discarded", "task"])
def test_a_log_of_an_earlier_version_is_refused(kind: str) -> None:
    with pytest.raises(DataError, match="made by an earlier version"):
        read_log([json.dumps({"t": 1.5, "event": kind, "task": 1})])


def test_rare_events_memory_and_the_end() -> None:
    stream = io.StringIO()
    log = EventLog(stream, memory=iter(range(1000, 2000)).__next__)
    log([], [launched(Task(1, "data", payload=OpenInput(0)))], 100.0)
    log([finished(1, report=Opened(40, (0, 10, 40)))], [], 100.0)
    log([WorkerLost(Life(1, 0))], [], 101.0)
    log([], [Resolve("failed", None, "for a reason")], 102.0)
    log.flush()
    found = read_log([*stream.getvalue().splitlines(), '{"event":"dropped","lines":7}'])
    assert [line["event"] for line in found.rare] == ["Discovered", "WorkerLost", "Resolve"]
    assert [line["t"] for line in found.rare] == [0.0, 1.0, 2.0]
    assert found.ended is not None
    assert found.ended["reason"] == "for a reason"
    assert found.memory.tolist() == [[0.0, 1000.0], [1.0, 1001.0], [2.0, 1002.0]]
    assert memory_data(found) == {"time": [0.0, 1.0, 2.0], "bytes": [1000, 1001, 1002]}
    assert memory_data(found, 2) == {"time": [0.0, 2.0], "bytes": [1001, 1002]}
    assert found.dropped == 7
    assert (found.inputs[0]["rows"], found.inputs[0]["t"]) == (40, 0.0)


def test_an_empty_log_has_nothing_to_draw() -> None:
    log = read_log([])
    assert (len(log.attempts), log.span) == (0, 0.0)
    assert timeline(log) is None
    assert throughput(log) is None
    assert memory_data(log) is None
    assert shares(log)["cpu"] is None


times = st.floats(0, 50, allow_nan=False)
schedules = st.lists(st.tuples(st.integers(0, 3), times, st.floats(0.001, 5), st.floats(0, 2)), min_size=1, max_size=30)


def logged(schedule: list[tuple[int, float, float, float]]) -> Log:
    """Make a log in which workers do (worker, _, wall, pause) one after the other."""
    free = dict.fromkeys(range(4), 10.0)
    tasks = []
    for worker, late, wall, pause in schedule:
        begin = free[worker] + pause
        free[worker] = begin + wall
        # Sent some time before, heard of at once.
        tasks.append((worker, max(begin - late, 10.0), begin + wall, wall))
    return read_log(written(tasks))


@given(schedules)
def test_a_worker_does_one_thing_at_a_time(schedule: list[Any]) -> None:
    tasks = logged(schedule).attempts
    assert (tasks.end >= tasks.begin).all()
    for worker in np.unique(tasks.worker):
        mine = np.flatnonzero(tasks.worker == worker)
        mine = mine[np.argsort(tasks.end[mine], kind="stable")]
        assert (tasks.begin[mine][1:] >= tasks.end[mine][:-1] - 1e-9).all()
    # Times are logged in microseconds; nothing else is lost of how long a task took.
    assert np.allclose(tasks.end - tasks.begin, tasks.wall, atol=1e-5)


@given(schedules, st.integers(1, 40))
def test_what_is_shared_out_over_time_is_all_there(schedule: list[Any], bins: int) -> None:
    log = logged(schedule)
    amount = log.attempts.rows.astype(float)
    which, step, part = spread(log.attempts.begin, log.attempts.end, amount, log.span, bins)
    assert np.allclose(np.bincount(which, weights=part, minlength=len(amount)), amount)
    assert ((step >= 0) & (step < bins)).all()
    # Each part lies where its task does.
    width = log.span / bins
    assert (step * width <= log.attempts.end[which] + 1e-6).all()
    assert ((step + 1) * width >= log.attempts.begin[which] - 1e-6).all()
    speed = throughput(log)
    assert speed is not None
    assert sum(speed["rows"]) * speed["step"] == pytest.approx(amount.sum(), rel=1e-4)
    assert sum(speed["read"]) * speed["step"] == pytest.approx(100.0 * len(amount), rel=1e-4)


@given(schedules)
def test_few_tasks_are_drawn_one_by_one(schedule: list[Any]) -> None:
    log = logged(schedule)
    drawn = timeline(log)
    assert drawn is not None
    assert not drawn["joined"]
    assert len(drawn["blocks"]["lane"]) == len(schedule)
    assert sum(drawn["blocks"]["rows"]) == 10 * len(schedule)
    named = [drawn["colours"][place] for place in drawn["blocks"]["colour"]]
    assert named == [f"set {source}" for source in log.attempts.input]


def test_many_tasks_are_joined_and_gaps_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_timeline, "MOST_BLOCKS", 200)
    tasks = [(n % 4, 100 + 0.1 * (n // 4), 100.1 + 0.1 * (n // 4), 0.1) for n in range(2000)]
    # Worker 2 rests for the second quarter of the time.
    tasks = [task for task in tasks if not (task[0] == 2 and 112.5 <= task[1] < 125)]
    log = read_log(written(tasks))
    drawn = timeline(log)
    assert drawn is not None
    assert drawn["joined"]
    blocks = drawn["blocks"]
    assert len(blocks["lane"]) <= 200
    assert sum(blocks["tasks"]) == len(tasks)
    assert sum(blocks["rows"]) == 10 * len(tasks)
    area = sum(b * (e - s) for b, s, e in zip(blocks["busy"], blocks["begin"], blocks["end"], strict=True))
    assert area == pytest.approx(float((log.attempts.end - log.attempts.begin).sum()), rel=0.02)
    resting = [
        busy
        for lane, begin, end, busy in zip(*(blocks[k] for k in ("lane", "begin", "end", "busy")), strict=True)
        if lane == 2 and begin >= 12.6 and end <= 24.9
    ]  # fmt: skip
    assert resting == []


def test_many_workers_share_lanes_and_many_datasets_a_colour() -> None:
    tasks = [(n, 1.0, 2.0 + 0.001 * n, 1.0) for n in range(500)]
    drawn = timeline(read_log(written(tasks)))
    assert drawn is not None
    assert len(drawn["lanes"]) <= report_timeline.MOST_LANES
    assert drawn["lanes"][0].startswith("0-")
    lines = [json.loads(line) for line in written([(0, float(n), n + 0.5, 0.4) for n in range(40)])]
    many = read_log(json.dumps({**line, "name": f"set {number}"}) for number, line in enumerate(lines))
    colours = timeline(many)
    assert colours is not None
    assert len(colours["colours"]) == report_timeline.MOST_COLOURS
    assert colours["colours"][-1] == "other datasets"
