"""Looking at the interpreter lock: what counts as held, and that nothing is left behind."""

from __future__ import annotations

import io
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from attempt_records import finished, launched, rows_task
from windrow.core.records import Measurement, Opened, OpenInput, Rows, Task
from windrow.watch import lockmeter
from windrow.watch.lockmeter import LATE_S, PAUSE_S, LockMeter
from windrow.watch.log import MOST_BORDERS, EventLog
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from pathlib import Path


class Pauses:
    """Stands for the event that ends the looking: so many pauses, each late by so much."""

    def __init__(self, late: list[float], queued: list[float], monkeypatch: Any) -> None:
        self.late, self.waits = iter(late), iter(queued)
        self.now = self.queued = 0.0
        monkeypatch.setattr(lockmeter, "perf_counter", lambda: self.now)
        monkeypatch.setattr(lockmeter, "_queued", lambda file: self.queued)

    def wait(self, timeout: float) -> bool:
        late = next(self.late, None)
        if late is None:
            return True
        self.now += timeout + late
        self.queued += next(self.waits)
        return False


@pytest.mark.parametrize(
    ("late", "queued", "share"),
    [
        ([0.0, LATE_S / 2, 0.005, 0.005], [0.0] * 4, 0.5),
        ([0.005, 0.005], [0.005, 0.004], 0.5),  # late for want of a processor, and for the lock
        ([], [], None),
    ],
)
def test_late_means_that_somebody_had_the_lock(
    late: list[float], queued: list[float], share: float | None, monkeypatch: Any
) -> None:
    meter = LockMeter()
    meter._ended = Pauses(late, queued, monkeypatch)  # type: ignore[assignment]
    meter._look()
    assert meter.share == share
    assert meter.looks == len(late)


def test_a_meter_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    meter = LockMeter()
    meter.stop()
    meter = LockMeter()
    meter.start()
    meter.start()
    assert threading.active_count() == before + 1
    meter.stop()
    assert threading.active_count() == before
    assert PAUSE_S > 10 * LATE_S


def test_a_log_in_a_file_looks_at_the_lock_until_it_is_closed(tmp_path: Path) -> None:
    before = threading.active_count()
    log = EventLog.open(tmp_path / "log.jsonl")
    log([], [], 0.0)
    assert threading.active_count() == before + 1
    log.close()
    assert threading.active_count() == before


def test_the_log_says_how_often_the_lock_was_held() -> None:
    stream, meter = io.StringIO(), LockMeter()
    meter.start = lambda: None  # type: ignore[method-assign]
    log = EventLog(stream, lambda: 7, meter)
    log([], [], 0.0)
    meter.held, meter.looks = 3, 4
    log([], [], 1.0)
    log.flush()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert "held" not in first
    assert (second["rss"], second["held"], second["looks"]) == (7, 0.75, 4)


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


def test_a_task_about_no_rows_is_logged_too() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    log([], [launched(rows_task(1))], 0.0)
    log([finished(1)], [], 0.0)
    log.flush()
    assert read_log([stream.getvalue()]).attempts.input.tolist() == [-1]
