from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.events import CancelRequested
from windrow.core.rows import Standing
from windrow.errors import UsageError
from windrow.watch.progress import Rate, Snapshot, snapshot, watching

if TYPE_CHECKING:
    from pathlib import Path


def standing(**numbers: int) -> Standing:
    return Standing(**{**dict.fromkeys(Standing._fields, 0), **numbers})


class Scheduler:
    """Says what it is told, and counts how often it is asked."""

    def __init__(self, now: Standing) -> None:
        self.now = now
        self.asked = 0

    def standing(self) -> Standing:
        self.asked += 1
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


HALF = standing(known=1_000_000, done=400_000, held=100_000, inputs=4)


def shot(numbers: Standing = HALF, **more: Any) -> Snapshot:
    return snapshot(numbers, **{"name": "dimuon", "rate": 250_000.0, "elapsed_s": 2.0, **more})


# -- numbers --------------------------------------------------------------------------------------


def test_a_steady_rate_is_found_at_once_and_stays() -> None:
    rate = Rate(10.0)
    found = [rate.update(100 * step, 10.0 + step) for step in range(1, 50)]
    assert found == pytest.approx([100.0] * 49)


def test_a_rate_follows_a_change_without_jumping() -> None:
    rate = Rate(0.0, memory_s=10.0)
    rate.update(10_000, 100.0)
    first = rate.update(10_000, 101.0)
    assert 80 < first < 100
    for step in range(60):
        last = rate.update(10_000, 102.0 + step)
    assert last < 1


def test_a_rate_knows_no_time_and_no_negative_speed() -> None:
    rate = Rate(5.0)
    assert rate.update(100, 5.0) == 0.0
    assert rate.update(100, 6.0) == 100.0
    assert rate.update(0, 6.5) == 0.0


@given(st.lists(st.tuples(st.integers(0, 10**9), st.floats(1e-3, 1e5)), min_size=1, max_size=20))
def test_a_rate_lies_between_the_slowest_and_the_fastest_stretch(stretches: list[tuple[int, float]]) -> None:
    rate, rows, now = Rate(0.0), 0, 0.0
    speeds = []
    for more, spent in stretches:
        rows, before, now = rows + more, now, now + spent
        speeds.append(more / (now - before))
        found = rate.update(rows, now)
        assert min(speeds) * (1 - 1e-9) <= found <= max(speeds) * (1 + 1e-9)


def test_rows_held_count_as_done() -> None:
    assert shot().rows_done == 500_000
    assert shot().eta_s == pytest.approx(2.0)


def test_failed_rows_are_not_waited_for() -> None:
    assert shot(HALF._replace(failed=250_000)).eta_s == pytest.approx(1.0)


def test_expected_rows_are_waited_for() -> None:
    found = shot(HALF._replace(expected=1_000_000, inputs_unopened=2))
    assert found.eta_s == pytest.approx(6.0)
    assert (found.files_open, found.files_total) == (2, 4)
    assert found.estimated


@pytest.mark.parametrize(
    ("numbers", "more"),
    [(HALF, {"rate": 0.0}), (HALF._replace(inputs_unopened=2), {}), (HALF, {"finished": True})],
    ids=["no rate", "nothing known of the other files", "finished"],
)
def test_no_end_is_foretold_where_nobody_knows(numbers: Standing, more: dict[str, Any]) -> None:
    assert shot(numbers, **more).eta_s is None


def test_a_finished_run_has_the_rate_of_the_whole() -> None:
    assert shot(finished=True, elapsed_s=4.0, rate=1.0).rate == 125_000
    assert shot(finished=True, elapsed_s=0.0).rate == 0.0


# -- text -----------------------------------------------------------------------------------------


def test_a_line_says_rows_rate_end_and_files() -> None:
    assert shot().line == "dimuon: 500 k of 1 M rows (50 %), 250 k rows/s, 2 s left, 4 of 4 files"


def test_an_estimate_is_marked() -> None:
    some = shot(HALF._replace(expected=1_000_000, inputs_unopened=2))
    assert some.amount == "500 k of ~2 M rows"
    assert "(25 %)" in some.line


def test_a_total_that_nobody_can_estimate_is_marked() -> None:
    some = shot(HALF._replace(inputs_unopened=2))
    assert some.amount == "500 k of 1 M+ rows"
    assert "%" not in some.line
    assert "left" not in some.line


def test_failed_rows_are_said() -> None:
    assert shot(HALF._replace(failed=1234)).amount == "500 k of 1 M rows, 1.23 k failed"


def test_one_row_short_is_not_all() -> None:
    assert "(99 %)" in shot(standing(known=1_000_000, done=999_999, inputs=1)).line
    assert "(100 %)" in shot(standing(known=1_000_000, done=1_000_000, inputs=1)).line


def test_the_end_says_how_long_it_took() -> None:
    assert shot(finished=True).pace == "250 k rows/s, took 2 s, 4 of 4 files"


def test_no_rows_is_a_line_too() -> None:
    assert shot(standing(inputs=1), rate=0.0).line == "dimuon: 0 of 0 rows, 0 rows/s, 1 of 1 file"


# -- when and where -------------------------------------------------------------------------------


def run(progress: Any, stream: io.StringIO, times: list[float], scheduler: Scheduler) -> None:
    clock = Clock()
    with watching(scheduler, progress=progress, name="dimuon", clock=clock, stream=stream) as observers:
        for time in times:
            clock.now = 100.0 + time
            for observer in observers:
                observer([], [], clock.now)


def test_plain_lines_every_five_seconds_and_at_the_end() -> None:
    stream, scheduler = io.StringIO(), Scheduler(HALF)
    run(True, stream, [0, 1, 4.9, 5, 5.1, 9.9, 10, 17, 18], scheduler)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert all(text.startswith("dimuon: 500 k of 1 M rows (50 %)") for text in lines)
    assert lines[-1].endswith("rows/s, took 18 s, 4 of 4 files")
    assert scheduler.asked == 4  # between drawings nobody is even asked


def test_a_short_run_gives_one_plain_line() -> None:
    stream = io.StringIO()
    run(True, stream, [0, 1], Scheduler(HALF))
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("progress", [None, False])
def test_silent_where_nobody_looks(progress: Any) -> None:
    stream, scheduler = io.StringIO(), Scheduler(HALF)
    run(progress, stream, [0, 10, 20], scheduler)
    assert stream.getvalue() == ""
    assert scheduler.asked == 0


def test_false_is_silent_on_a_terminal_too() -> None:
    stream = Terminal()
    run(False, stream, [0, 10, 20], Scheduler(HALF))
    assert stream.getvalue() == ""


@pytest.mark.parametrize("progress", [None, True])
def test_a_bar_on_a_terminal(progress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream, scheduler = Terminal(), Scheduler(HALF)
    run(progress, stream, [step / 100 for step in range(200)], scheduler)
    text = stream.getvalue()
    assert "dimuon" in text
    assert "500 k of 1 M rows" in text
    assert "4 of 4 files" in text
    # Two seconds at ten drawings a second, and the last one.
    assert 10 <= scheduler.asked <= 21


def test_a_bar_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    run(True, stream, [0, 1], Scheduler(HALF))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert all(len(text) <= 40 for text in re.split(r"[\r\n]|\x1b\[[0-9?]*[A-Za-z]", shown))
    assert "dimuon" in shown
    assert shown.count("\n") == 1  # one line, drawn in place


def test_a_very_short_run_draws_no_bar() -> None:
    stream, scheduler = Terminal(), Scheduler(HALF)
    run(None, stream, [0, 0.1, 0.2], scheduler)
    assert stream.getvalue() == ""


def test_what_the_user_prints_stays_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    clock = Clock()
    with watching(Scheduler(HALF), progress=True, name="x", clock=clock, stream=stream) as observers:
        clock.now += 1
        observers[0]([], [], clock.now)
        print("mine")  # noqa: T201
    assert capsys.readouterr().out == "mine\n"
    assert "mine" not in stream.getvalue()


def test_a_callable_gets_records_and_the_last_one() -> None:
    shots: list[Snapshot] = []
    run(shots.append, io.StringIO(), [0, 0.05, 0.1, 0.15, 0.2], Scheduler(HALF))
    assert [round(found.elapsed_s, 2) for found in shots] == [0, 0.1, 0.2, 0.2]
    assert [found.finished for found in shots] == [False, False, False, True]


def test_a_callable_that_raises_is_called_no_more() -> None:
    calls = []

    def broken(found: Snapshot) -> None:
        calls.append(found)
        raise OSError("mine")

    with pytest.raises(OSError, match="mine"):
        run(broken, io.StringIO(), [0, 1], Scheduler(HALF))
    assert len(calls) == 1


def test_a_terminal_that_goes_away_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        writes = 0

        def write(self, text: str, /) -> int:
            self.writes += 1
            raise BrokenPipeError("gone")

    stream = Gone()
    run(True, stream, [0, 5, 10, 20], Scheduler(HALF))
    assert stream.writes == 1


def test_the_last_line_is_written_when_the_run_fails() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError, match="run"), watching(Scheduler(HALF), progress=True, name="x", stream=stream):
        raise RuntimeError("run")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("progress", ["yes", 1, 0])
def test_anything_else_is_refused(progress: Any) -> None:
    with (
        pytest.raises(UsageError, match=r"progress= is True, False, None .* got"),
        watching(Scheduler(HALF), progress=progress),
    ):
        pass


def test_rich_is_imported_only_for_drawing() -> None:
    code = (
        "import io, sys\n"
        "from windrow.watch.progress import watching\n"
        "with watching(None, progress=None, stream=io.StringIO()): pass\n"
        "sys.exit('rich' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- the log --------------------------------------------------------------------------------------


def test_a_run_directory_is_made_and_gets_the_log(tmp_path: Path) -> None:
    rundir = tmp_path / "runs" / "first"
    with watching(Scheduler(HALF), progress=False, rundir=rundir) as observers:
        for observer in observers:
            observer([CancelRequested("enough")], [], 1.0)
    memory, text = (rundir / "events.jsonl").read_text().splitlines()
    assert json.loads(memory)["event"] == "memory"
    assert json.loads(text)["reason"] == "enough"


def test_a_run_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match=r"rundir= .*file.* cannot be written to"),
        watching(Scheduler(HALF), rundir=tmp_path / "file"),
    ):
        pass
