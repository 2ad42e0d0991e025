"""The event log: one line of JSON per task."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.commands import Discard
from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.records import Failure, FailureKind, Handle, InputSpec, Measurement, Rows, Worker
from windrow.core.scheduler import Scheduler
from windrow.engines.base import Outcome
from windrow.engines.inline import InlineEngine
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.watch.log import PAUSE_S, PIECE, EventLog, own_memory

if TYPE_CHECKING:
    from pathlib import Path


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
    tasks = [line for line in lines if line["event"] == "finished"]
    assert [(line["start"], line["stop"], line["read"]) for line in tasks] == [(0, 10, 77), (10, 20, 77), (30, 40, 77)]
    assert all(line["t"] >= line["launched"] for line in tasks)
    assert len({line["attempt"] for line in tasks}) == 3
    (failed,) = [line for line in lines if line["event"] == "Failed"]
    assert 'a "quoted" reason' in failed["failure"]
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
    assert json.loads(stream.getvalue())["event"] == "discarded"


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
    assert [(line["t"], line["rss"]) for line in lines] == [(0.0, 100), (0.25, 101), (0.5, 102), (0.75, 103)]


def test_this_process_has_memory() -> None:
    assert own_memory()() > 1_000_000
