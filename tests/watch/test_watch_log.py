"""The event log: one line of JSON per task."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from attempt_records import finished, launched, rows_task
from row_workload import RowSide, RowWork
from windrow.core.commands import Uncounted
from windrow.core.events import Exhausted, WorkerJoined
from windrow.core.policies import Policies
from windrow.core.records import (
    Failure,
    FailureKind,
    InputSpec,
    Life,
    Measurement,
    Needs,
    Opened,
    OpenInput,
    Plan,
    Rows,
    RowsReport,
    Task,
    Worker,
)
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.inline import InlineEngine
from windrow.errors import StepError
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.store.rundir import RunDirectory
from windrow.watch.log import MOST_BORDERS, PAUSE_S, PIECE, EventLog, own_memory
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from collections.abc import Sequence


class Work(RowSide, RowWork):
    def open_worker(self, worker: int) -> Work:
        return self

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.USER, type(error).__name__, 'a "quoted" reason', "", error)

    def open_input(self, number: int) -> tuple[int, tuple[int, ...]]:
        return 40, (0, 10, 20, 30, 40)

    def run_rows(self, rows: tuple[Rows, ...], plan: Plan, prepared: Any) -> tuple[Any, Measurement, None]:
        if rows[0].start == 20:
            raise ValueError
        return [], Measurement(bytes_read=77), None

    def merge(self, partials: Sequence[Any]) -> Any:
        return []


def test_every_task_has_one_line_and_every_line_is_json(tmp_path: Path) -> None:
    feeder = RowFeeder([InputSpec(id=0, category="data")], Policies(Fixed(10)), RowOptions(on_error="skip"))
    scheduler = Scheduler(feeder)
    with EventLog.open(tmp_path / "log.jsonl") as log:
        run(scheduler, InlineEngine(), Work(), observers=[log])
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    tasks = [line for line in lines if line.get("how") == "done"]
    assert [(line["start"], line["stop"], line["read"]) for line in tasks] == [(0, 10, 77), (10, 20, 77), (30, 40, 77)]
    assert all(line["t"] >= line["launched"] for line in tasks)
    assert len({line["attempt"] for line in tasks}) == 3
    (failed,) = [line for line in lines if line.get("how") == "failed"]
    assert 'a "quoted" reason' in failed["why"]
    (found,) = [line for line in lines if line["event"] == "Discovered"]
    assert (found["rows"], found["units"]) == (40, 4)
    assert lines[-1]["event"] == "Resolve"
    assert lines[-1]["status"] == "incomplete"


def run_chunk(log: EventLog, number: int, now: float) -> None:
    log([], [launched(rows_task(number, Rows(0, 0, 10)))], now)
    log([finished(number)], [], now)


def test_a_discarded_report_says_so() -> None:
    """Of two attempts at one task the scheduler names the one that does not count, in the batch of its end."""
    stream = io.StringIO()
    log = EventLog(stream)
    task = rows_task(7, Rows(0, 0, 10))
    log([], [launched(task, 1), launched(task, 2, worker=1)], 0.0)
    log([finished(2, worker=1), finished(1)], [Uncounted(1)], 1.0)
    log.flush()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["attempt"], line["how"]) for line in lines] == [(2, "done"), (1, "discarded")]


def test_lines_are_written_in_pieces_or_after_a_pause() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    run_chunk(log, 1, 0.0)
    log([WorkerJoined(Worker(Life(0, 0)))], [], PAUSE_S / 2)
    assert stream.getvalue() == ""
    log([], [], PAUSE_S)
    assert stream.getvalue().count("\n") == 2
    written = 2
    for number in range(PIECE // 100):
        run_chunk(log, number, PAUSE_S)
        written += 1
        if stream.getvalue().count("\n") > 2:
            break
    assert stream.getvalue().count("\n") == written


def test_a_log_in_memory_is_bounded_and_says_what_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setattr("windrow.watch.log.REMEMBERED", 400)
    log = EventLog.remembered()
    for number in range(10):
        log([WorkerJoined(Worker(Life(number, 1)))], [], 2.0 * number)
    log.close()
    assert log.text is not None
    lines = [json.loads(line) for line in log.text.splitlines()]
    assert len(log.text) < 500
    assert lines[-1]["event"] == "dropped"
    assert lines[-1]["lines"] + len(lines) - 1 == 20  # a worker and a look at the memory each time


def test_memory_is_looked_at_now_and_then() -> None:
    stream = io.StringIO()
    seen = iter(range(100, 200))
    log = EventLog(stream, lambda: next(seen))
    for number in range(100):
        log([], [], number / 100)
    log.flush()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["t"], line["rss"]) for line in lines] == [(0, 100), (250_000, 101), (500_000, 102), (750_000, 103)]


def test_this_process_has_memory() -> None:
    assert own_memory()() > 1_000_000


@pytest.mark.parametrize("lines", [1, 2 * PIECE])
def test_a_full_disk_loses_lines_and_nothing_else(lines: int) -> None:
    """Whether it is noticed while the run goes on or at its end."""
    log = EventLog(Path("/dev/full").open("w"))  # noqa: SIM115 - the log closes it
    for number in range(lines // 100 + 1):
        run_chunk(log, number, 0.0)
    with pytest.warns(
        UserWarning, match=r"the log /dev/full is not complete: .*No space left on device; the result is not"
    ):
        log.close()


def test_a_run_whose_log_does_not_fit_has_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventLog, "open", lambda _: EventLog(Path("/dev/full").open("w")))  # noqa: SIM115
    analysis = wr.Pipeline("full")

    @analysis.output
    def total(x: Any) -> Any:
        return x.sum()

    with pytest.warns(UserWarning, match="the log /dev/full is not complete"):
        result = analysis.run({"x": np.arange(10)}, rundir=tmp_path / "run", progress=False)
    assert result.complete
    assert result["total"] == 45


def test_a_run_directory_that_is_full_costs_neither_the_result_nor_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    analysis = wr.Pipeline("full")

    @analysis.output
    def total(x: Any) -> Any:
        if x[0] < 0:
            raise ValueError("negative")
        return x.sum()

    monkeypatch.setattr(RunDirectory, "write_result", full)
    with pytest.warns(UserWarning, match=r"could not be written to .*No space left on device; save it elsewhere"):
        result = analysis.run({"x": np.arange(10)}, rundir=tmp_path / "run", progress=False)
    assert result.complete
    assert result["total"] == 45
    assert result.rundir is None
    write = RunDirectory.write_manifest
    monkeypatch.setattr(RunDirectory, "write_manifest", lambda *a: full() if "error" in a[1] else write(*a))
    with pytest.raises(StepError, match="ValueError: negative"):
        analysis.run({"x": np.array([-1.0])}, rundir=tmp_path / "other", progress=False)


def test_rows_that_are_left_out_are_not_finished(tmp_path: Path) -> None:
    analysis = wr.Pipeline("skipping")

    @analysis.cut
    def positive(x: Any) -> Any:
        if (x == 17).any():
            raise ValueError("no seventeens")
        return x > 0

    analysis.output(lambda x: len(x), name="count")
    data = wr.data.open({"x": np.arange(1000)}, grid=100)
    result = analysis.run(data, rundir=tmp_path / "run", on_error="skip", progress=False, engine="inline")
    assert result.ledger.done == 999
    log = read_log((tmp_path / "run" / "events.jsonl").read_text().splitlines())
    assert log.attempts.rows[log.attempts.done].sum() == 999


def test_the_line_of_a_chunk_says_whose_it_is_and_counts_the_rows_of_its_result() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    task = rows_task(7, Rows(0, 10, 20), Rows(0, 30, 40), category="ttbar")
    log([], [launched(task, 5, worker=3, plan=Plan(id=2, category="ttbar"))], 1.0)
    bad = Failure(FailureKind.USER, "ValueError", "no")
    left_out = RowsReport(skipped=((Rows(0, 12, 15), bad),))
    log([finished(5, 3, Measurement(wall=0.5), left_out)], [], 2.0)
    log.flush()
    (line,) = (json.loads(text) for text in stream.getvalue().splitlines())
    assert (line["task"], line["name"], line["worker"], line["plan"]) == (7, "ttbar", 3, 2)
    assert (line["start"], line["stop"], line["rows"]) == (10, 40, 17)
    assert (line["attempt"], line["how"]) == (5, "done")


def test_inputs_are_logged_with_their_borders_unless_there_are_too_many() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    many = tuple(range(MOST_BORDERS + 1))
    for number, found in enumerate([Opened(20, (0, 10, 20)), Opened(MOST_BORDERS, many)]):
        log([], [launched(Task(number, "data", payload=OpenInput(number)))], 0.0)
        log([finished(number, report=found)], [], 0.0)
    log.flush()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["input"], first["units"], first["borders"]) == (0, 2, [0, 10, 20])
    assert (second["input"], second["units"]) == (1, MOST_BORDERS)
    assert "borders" not in second


def test_peaks_are_logged_and_read() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    log([], [launched(rows_task(1, Rows(0, 0, 10)))], 0.0)
    log([finished(1, used=Measurement(peak_memory=12345))], [], 0.0)
    log.flush()
    text = stream.getvalue()
    assert read_log([text]).attempts.peak.tolist() == [12345]


def test_limits_are_logged_with_what_came_of_them() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    tasks = [rows_task(number, Rows(0, 10 * number, 10 * number + 10)) for number in range(4)]
    tasks[1] = tasks[1]._replace(payload=tasks[1].payload._replace(block=5))
    limits = [
        Needs.of({"memory": 1000}),
        Needs.of({"memory": 2000}),
        Needs.of({"memory": 3000}),
        Needs.of({"seconds": 1}),
    ]
    log([], [launched(task)._replace(limits=limit) for task, limit in zip(tasks, limits, strict=True)], 0.0)
    used = Measurement(peak_memory=900)
    log([finished(0, used=used), finished(1, used=used), Exhausted(2, Life(0, 0), "memory", 3000, 3100)], [], 1.0)
    log([Exhausted(3, Life(0, 0), "seconds", 1.0, 1.1)], [], 2.0)
    log.flush()
    text = stream.getvalue().splitlines()
    found = read_log(text).attempts
    assert found.limit.tolist() == [1000, 2000, 3000, 0]
    assert found.block.tolist() == [0, 5, 0, 0]
    assert found.tried.tolist() == [0, 0, 10, 0]
    assert found.peak.tolist() == [900, 900, 3100, 0]
    assert found.rows.tolist() == [10, 10, 0, 0]
    assert [json.loads(line)["how"] for line in text] == ["done", "done", "failed", "failed"]


def test_a_task_about_no_rows_is_logged_too() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    log([], [launched(rows_task(1))], 0.0)
    log([finished(1)], [], 0.0)
    log.flush()
    assert read_log([stream.getvalue()]).attempts.input.tolist() == [-1]
