"""The event log: one line of JSON per task."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import windrow as wr
from windrow.core import events as happened
from windrow.core.commands import Discard, Launch, TaskEnded
from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.records import Failure, FailureKind, Handle, InputSpec, Measurement, Plan, Rows, Worker
from windrow.core.scheduler import Scheduler
from windrow.engines.base import Outcome
from windrow.engines.inline import InlineEngine
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.watch.log import PAUSE_S, PIECE, EventLog, own_memory
from windrow.watch.readlog import read_log


class Work:
    def open_worker(self, worker: int) -> Work:
        return self

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.USER, type(error).__name__, 'a "quoted" reason', "", error)

    def inspect(self, number: int) -> tuple[int, tuple[int, ...]]:
        return 40, (0, 10, 20, 30, 40)

    def run(self, rows: Any, plan: Any) -> Outcome:
        if rows[0].start == 20:
            raise ValueError
        return Outcome([], Measurement(bytes_read=77))

    def merge(self, partials: Any) -> Any:
        return []

    def close(self) -> None:
        pass


def test_every_task_has_one_line_and_every_line_is_json(tmp_path: Path) -> None:
    scheduler = Scheduler([InputSpec(id=0, category="data")], Policies(Fixed(10)), Options(on_error="skip"))
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


def report(number: int) -> happened.Finished:
    handle = Handle(number, number, 0, 0, (Rows(0, 0, 10),))
    return happened.Finished(number, 0, 0, handle, Measurement())


def test_a_discarded_report_says_so() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    event = report(1)
    log([event], [Discard(event.handle)], 0.0)
    log.flush()
    assert json.loads(stream.getvalue())["how"] == "discarded"


def test_lines_are_written_in_pieces_or_after_a_pause() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    log([report(1)], [], 0.0)
    log([happened.WorkerJoined(Worker(0, 0))], [], PAUSE_S / 2)
    assert stream.getvalue() == ""
    log([], [], PAUSE_S)
    assert stream.getvalue().count("\n") == 2
    written = 2
    for number in range(PIECE // 100):
        log([report(number)], [], PAUSE_S)
        written += 1
        if stream.getvalue().count("\n") > 2:
            break
    assert stream.getvalue().count("\n") == written


def test_a_log_in_memory_is_bounded_and_says_what_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setattr("windrow.watch.log.REMEMBERED", 400)
    log = EventLog.remembered()
    for number in range(10):
        log([happened.WorkerJoined(Worker(number, 1))], [], 2.0 * number)
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
        log([report(number)], [], 0.0)
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


class Life(NamedTuple):
    worker: int
    incarnation: int


class Payload(NamedTuple):
    rows: tuple[Rows, ...]


class RowsReport(NamedTuple):
    skipped: tuple[tuple[Rows, Any], ...]


def test_events_that_name_a_life_and_carry_a_report_fill_the_same_line() -> None:
    """The words of a scheduler with one kind of task: payloads, lives, reports."""

    class Task(NamedTuple):
        id: int
        category: str
        payload: Payload

    class Finished(NamedTuple):
        attempt: int
        life: Life
        measurement: Measurement
        report: RowsReport

    stream = io.StringIO()
    log = EventLog(stream)
    task: Any = Task(7, "ttbar", Payload((Rows(0, 10, 20), Rows(0, 30, 40))))
    launch: Any = Launch(task, 5, 3, 0, Plan(id=2, category="ttbar"))
    log([], [launch], 1.0)
    skipped = ((Rows(0, 12, 15), None),)
    done: Any = Finished(5, Life(3, 1), Measurement(wall=0.5), RowsReport(skipped))
    ended: Any = TaskEnded(7, "done")
    log([done], [ended], 2.0)
    log.flush()
    (line,) = (json.loads(text) for text in stream.getvalue().splitlines())
    assert (line["task"], line["name"], line["worker"], line["plan"]) == (7, "ttbar", 3, 2)
    assert (line["start"], line["stop"], line["rows"]) == (10, 40, 17)
    # The scheduler tells of a task's end in the batch of the attempt that counts, by its number.
    assert line["how"] == "discarded"
