"""Reports, run directories and progress of real sessions."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import windrow as wr
from attempt_records import done, finished, launched
from windrow.cli.main import main
from windrow.core.commands import Recall, TaskEnded
from windrow.core.events import Cancelled
from windrow.core.policies import NO_TRIES
from windrow.core.records import Life, Measurement, Task
from windrow.errors import UsageError
from windrow.shape.allocation.policy import Allocation, NodeSize
from windrow.tasks.history import History
from windrow.watch import progress as watch_progress
from windrow.watch.graph_run import waits
from windrow.watch.progress import SessionProgress, SessionSnapshot
from windrow.watch.report.memory import calls_table

if TYPE_CHECKING:
    from collections.abc import Callable

ENGINES = ["inline", "threads", "processes"]
MEMORY = '<section id="memory">'
HALF_A_SECOND = Measurement(wall=0.5)


@wr.task
def one(x: int = 0) -> int:
    return x + 1


@wr.task
def total(parts: list[int]) -> int:
    return sum(parts)


@wr.task
def broken() -> int:
    raise ValueError("no such sample")


def small(**options: Any) -> wr.Session:
    """Run ten tasks and one that needs them all, and one that fails."""
    with wr.Session(workers=2, **options) as session:
        assert total([one(number) for number in range(10)]).result() == 55
        assert isinstance(broken().exception(), ValueError)
    return session


def data_of(page: Path) -> Any:
    return json.loads(re.search(r'id="data">(.*?)</script>', page.read_text())[1])  # type: ignore[index]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kept", [False, True])
def test_the_report_of_a_session(engine: str, kept: bool, tmp_path: Path) -> None:
    session = small(engine=engine, name="small", rundir=tmp_path / "run" if kept else None)
    page = session.report(None if kept else tmp_path / "page.html")
    assert page == tmp_path / ("run/report.html" if kept else "page.html")
    trace = page.with_name("trace.json" if kept else "page.trace.json")
    text = page.read_text()
    assert "11 of 12 tasks are done, 1 failed" in text
    assert "ValueError: no such sample" in text
    assert set(data_of(page)["timeline"]["colours"]) == {"one", "total", "broken"}
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 12
    assert sum(event["ph"] == "f" for event in events) == 10


@pytest.mark.parametrize("engine", ENGINES)
def test_the_log_says_the_same_as_the_memory(engine: str, tmp_path: Path) -> None:
    session = small(engine=engine, rundir=tmp_path / "run")
    logged, remembered = session.watched.run(), session.watched.watch.run()
    assert logged.tasks == remembered.tasks
    assert logged.log.offers == remembered.log.offers
    assert logged.workers == remembered.workers
    for number, shared in waits(logged).items():
        task = logged.tasks[number]
        assert sum(shared.values()) == task.end - task.called


def test_the_command_writes_the_same_page(tmp_path: Path) -> None:
    session = small(engine="threads", name="small", rundir=tmp_path / "run")
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "other.html")])  # fmt: skip
    assert answer.exit_code == 2, answer.output
    assert "Incomplete: 11 of 12 tasks are done, 1 failed." in answer.output
    assert data_of(tmp_path / "other.html") == data_of(session.report())
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["session"] == "small"
    assert manifest["state"] == "complete"
    assert manifest["tasks"] == {"called": 12, "done": 11, "failed": 1, "cancelled": 0}


@pytest.mark.parametrize("kept", [False, True])
def test_memory_of_calls_is_told_where_some_was_learned(kept: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with wr.Session(engine="processes", workers=1, rundir=tmp_path / "run" if kept else None) as session:
        assert one(1).result() == 2  # the first call of a worker is measured, however short it is
        session.barrier()
        assert MEMORY in session.report(page).read_text()
    assert "known to use" in session.report(page).read_text()
    if kept:
        CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--out", str(page)])
        assert MEMORY in page.read_text()
    assert MEMORY not in small(engine="threads").report(page).read_text()


def test_words_about_the_memory_of_calls() -> None:
    policy = Allocation(nodes=[NodeSize(1e9, 2)])
    assert calls_table(policy.describe(lines=False)) == ""
    for number in range(9):
        task = Task(number, "big", makes=(f"{number}.0",))
        policy.grant(task, NO_TRIES)
        policy.seen(task, Measurement(wall=1.0, peak_memory=600_000_000, baseline=50_000_000))
    cells = re.findall(r"<t[hd][^>]*>([^<]+)", calls_table(policy.describe(lines=False)))
    told = dict(zip(cells[:8], cells[8:], strict=True))
    assert (told["task"], told["calls measured"]) == ("big", "9")
    assert (told["most used"], told["known to use"], told["predictions off by"]) == ("600 MB", "600 MB", "0 %")
    assert (told["granted at most"], told["share of a worker"], told["used too much"]) == ("604 MB", "500 MB", "-")


def test_the_log_says_how_long_a_session_was_also_if_nothing_was_left_to_write(tmp_path: Path) -> None:
    with wr.Session(engine="threads", workers=1, rundir=tmp_path / "run") as session:
        assert one(1).result() == 2
        session.barrier()
        assert session.watched.log is not None
        session.watched.log.flush()
        time.sleep(0.01)
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "other.html")])
    assert answer.exit_code == 0, answer.output
    assert data_of(tmp_path / "other.html") == data_of(session.report())


def test_a_session_that_goes_on_can_be_reported(tmp_path: Path) -> None:
    with wr.Session(engine="threads", workers=1, rundir=tmp_path / "run") as session:
        assert one(1).result() == 2
        session.barrier()
        assert "This session had not ended:" in session.report().read_text()
        assert len(session.watched.run().tasks) == 1
    assert "Complete:" in session.report().read_text()


def test_what_ends_while_a_page_is_made_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    with wr.Session(engine="threads", workers=1, rundir=tmp_path / "run") as session:
        held = session.submit(go.wait, 30)
        log = session.watched.log
        assert log is not None
        lines = log.lines

        def ends_meanwhile() -> Path:
            path = lines()
            monkeypatch.setattr(log, "flush", lambda: None)
            go.set()
            assert held.result(120)
            session.barrier()
            return path

        monkeypatch.setattr(log, "lines", ends_meanwhile)
        assert len(session.watched.run().tasks) == 1
        monkeypatch.undo()


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    session = wr.Session(engine="threads", workers=1, rundir=tmp_path / "run")
    log = session.watched.log
    assert log is not None
    log._stream.close()
    with Path("/dev/full").open("w") as log._stream:
        assert [session.submit(abs, -n).result(120) for n in range(3)] == [0, 1, 2]
        log.flush()
        with pytest.warns(UserWarning, match=r"is not complete: .*No space left on device"):
            session.close()
    wr.Session(engine="inline", rundir=tmp_path / "run").close()  # nobody has the directory any more


def test_a_session_left_by_an_exception_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyError), wr.Session(engine="threads", rundir=tmp_path / "run"):
        raise KeyError("x")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["state"] == "failed"
    assert "left it by an exception" in manifest["error"]


def test_a_killed_session_has_a_report(tmp_path: Path) -> None:
    program = (
        "import os, time\nimport windrow as wr\nimport sys\n"
        "@wr.task\ndef one(x):\n    return x\n"
        "@wr.task\ndef endless(x):\n    time.sleep(60)\n"
        "session = wr.Session(engine='threads', workers=1, rundir=sys.argv[1]).__enter__()\n"
        "one(1).result()\nsession.barrier()\nendless(1)\n"
        # Nothing happens any more that would have the log written: it is, all the same.
        "while '\"tasks\": 2' not in open(sys.argv[1] + '/events.jsonl').read(): time.sleep(0.05)\n"
        "os._exit(9)\n"
    )
    (tmp_path / "program.py").write_text(program)
    run = tmp_path / "run"
    done = subprocess.run([sys.executable, str(tmp_path / "program.py"), str(run)], check=False)
    assert done.returncode == 9
    answer = CliRunner().invoke(main, ["report", str(run)])
    assert answer.exit_code == 2, answer.output
    assert "This session had not ended: 1 of 2 tasks are done, 1 have not ended." in answer.output
    assert "1 of these tasks had been called and are not in the log" in answer.output
    assert "are not in the log" in (run / "report.html").read_text()


@pytest.mark.parametrize("kept", [True, False])
def test_reused_calls_are_counted(kept: bool, tmp_path: Path) -> None:
    """Also while the session goes on."""
    rundir = tmp_path / "run" if kept else None
    with wr.Session(engine="threads", reuse=True, store=tmp_path / "store", rundir=rundir) as session:
        assert {one(1).result(), one(1).result()} == {2}
        session.barrier()
        assert session.watched.run().log.reused == {"one": 1}
        assert "1 calls were answered" in session.explain()


def test_the_last_words_of_a_failed_command_are_kept(tmp_path: Path) -> None:
    @wr.command
    def talk() -> str:
        return f"echo {'x' * 3000} >&2; echo the true reason >&2; exit 3"

    with wr.Session(engine="threads", workers=1, rundir=tmp_path / "run") as session:
        assert talk().exception() is not None
    assert "the true reason" in (tmp_path / "run" / "events.jsonl").read_text()
    assert "the true reason" in session.report().read_text()
    assert "the true reason" in session.explain(1)


def test_a_rundir_is_not_shared(tmp_path: Path) -> None:
    with (
        wr.Session(engine="threads", rundir=tmp_path / "run"),
        pytest.raises(UsageError, match="another run is going on"),
    ):
        wr.Session(engine="threads", rundir=tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        wr.Session(engine="threads", rundir=tmp_path / "file")
    with pytest.raises(UsageError, match="no directory"):
        small(engine="inline").report(tmp_path / "nowhere" / "page.html")


# -- what is remembered ----------------------------------------------------------------------------


def test_a_long_session_is_remembered_in_sums() -> None:
    watch = History("s", "threads", most=10)
    for number in range(1, 101):
        task = Task(number, "a" if number % 2 else "b")
        watch.called(task)
        watch([], [launched(task)], monotonic())
        watch([finished(number, used=HALF_A_SECOND)], [done(number)], monotonic())
    run = watch.run()
    assert sorted(run.tasks) == list(range(91, 101))
    assert {name: (sums.count, sums.time, sums.longest) for name, sums in run.dropped.items()} == {
        "a": (45, 22_500_000, 500_000),
        "b": (45, 22_500_000, 500_000),
    }
    assert watch.counts["done"] == 100


def test_an_attempt_that_was_recalled_was_none() -> None:
    watch, task = History("s", "threads"), Task(1, "a")
    watch.called(task)
    began = monotonic()
    watch([], [launched(task, 1), Recall(1, Life(0, 0))], began + 1)
    watch([Cancelled(1, Life(0, 0))], [launched(task, 2, worker=1)], began + 2)
    watch([finished(2, worker=1, used=HALF_A_SECOND)], [done(1, attempt=2)], began + 4)
    (only,) = watch.run().tasks[1].tries
    assert (only.attempt, only.worker, only.how) == (2, 1, "done")


def test_an_attempt_that_was_called_off_does_not_count() -> None:
    watch, task = History("s", "threads"), Task(1, "a")
    began = monotonic()
    watch.called(task)
    watch([], [launched(task, 1)], began + 1)
    watch([], [launched(task, 2, worker=1)], began + 2)
    watch([finished(1, used=HALF_A_SECOND)], [], began + 3)
    watch([finished(2, worker=1, used=HALF_A_SECOND)], [done(1, attempt=2)], began + 4)
    run = watch.run()
    assert [(one.attempt, one.how) for one in run.tasks[1].tries] == [(1, "cancelled"), (2, "done")]
    watch([], [TaskEnded(1, "failed")], began + 5)
    assert watch.counts == {"called": 1, "done": 0, "failed": 1, "cancelled": 0}


def test_what_waits_at_a_worker_does_not_run() -> None:
    watch, tasks = History("s", "threads"), [Task(n, "a") for n in (1, 2, 3)]
    for task in tasks:
        watch.called(task)
    watch([], [launched(task) for task in tasks], monotonic())
    assert [one.state for one in watch.run().tasks.values()] == ["running", "waiting", "waiting"]
    shot = watch.snapshot(workers=1)
    assert (shot.running, shot.waiting) == (1, 2)


def test_a_session_says_how_far_it_is() -> None:
    session = small(engine="threads", name="small")
    assert repr(session) == "<session 'small': 11 of 12 tasks done, 1 failed, closed>"


# -- progress --------------------------------------------------------------------------------------


def test_progress_is_told_in_numbers() -> None:
    shots: list[SessionSnapshot] = []
    seen = threading.Event()

    def show(shot: SessionSnapshot) -> None:
        shots.append(shot)
        seen.set()

    with wr.Session(engine="threads", workers=1, name="small", progress=show) as session:
        first = session.submit(seen.wait, 60)
        assert first.result()
        assert [session.submit(one, number).result() for number in range(3)] == [1, 2, 3]
    assert (shots[0].finished, shots[0].called, shots[0].running) == (False, 1, 1)
    assert shots[-1].finished
    assert (shots[-1].called, shots[-1].done, shots[-1].failed, shots[-1].running) == (4, 4, 0, 0)
    assert all(shot.waiting >= 0 for shot in shots)
    assert all(shot.left_s is None for shot in shots if shot.called < 4)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((10, 3, 0, 0, 2, None), "s: 3 of 10 tasks done, 2 running, 5 waiting"),
        ((10, 3, 1, 2, 2, 7.2), "s: 3 of 10 tasks done, 2 running, 2 waiting, 1 failed, 2 cancelled, at least 7 s left"),
    ],
)  # fmt: skip
def test_the_line(numbers: tuple[Any, ...], words: str) -> None:
    called, done, failed, cancelled, running, left = numbers
    shot = SessionSnapshot(
        name="s", called=called, done=done, failed=failed, cancelled=cancelled, running=running, elapsed_s=1.0, left_s=left
    )  # fmt: skip
    assert shot.line == words


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    small(engine="threads")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(UsageError, match="progress= is True, False, None"):
        wr.Session(engine="threads", progress="yes")  # type: ignore[arg-type]


class Terminal(io.StringIO):
    """A terminal as far as one can tell."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(watch_progress, "SESSION_FIRST_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "120")
    with wr.Session(engine="threads", workers=1, name="small") as session:

        def until_seen() -> None:
            until = monotonic() + 60
            while "1 running" not in stream.getvalue():
                assert monotonic() < until

        session.submit(until_seen).result()
    assert "1 of 1 tasks done" in stream.getvalue()
    assert "took" in stream.getvalue()


def test_lines_are_written_where_nobody_looks_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    small(engine="threads", name="small", progress=True)
    (last,) = capsys.readouterr().err.splitlines()
    assert last.startswith("small: 11 of 12 tasks done, 1 failed, took")


def test_nobody_is_disturbed_while_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(watch_progress, "SESSION_FIRST_S", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    session = wr.Session(engine="threads", workers=1, name="left open")
    session.submit(time.sleep, 0.3).result()
    assert stream.getvalue() == ""
    session.close()


def test_the_last_line_is_true_while_nothing_happens() -> None:
    watch, task = History("s", "threads"), Task(1, "a")
    shots: list[SessionSnapshot] = []
    progress = SessionProgress(lambda finished: watch.snapshot(1, finished=finished), watch_progress.Call(shots.append))

    def until(true: Callable[[], bool]) -> None:
        latest = monotonic() + 60
        while not true():
            assert monotonic() < latest

    watch.called(task)
    watch([], [launched(task)], monotonic())
    until(lambda: bool(shots and shots[-1].running))
    watch([finished(1, used=HALF_A_SECOND)], [done(1)], monotonic())  # and nothing more
    until(lambda: shots[-1].done == 1)
    assert not shots[-1].finished
    progress.end()
    assert shots[-1].finished


def test_a_terminal_that_goes_away_ends_only_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError("gone")

    monkeypatch.setattr(sys, "stderr", Gone())
    small(engine="threads", progress=True)
