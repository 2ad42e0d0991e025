"""Whole analyses in real processes while everything goes wrong: the answer is that of a quiet run, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import windrow as wr
from fire.analyses import BAD, PACE, UNIT, analysis, data, opened, said, write_file
from fire.leftovers import Killer, Scene, names_in, nothing_left, send, server_of, wait_until, workers_of, written_rows
from searching import few_by_day
from windrow.errors import EngineError, StepError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What other processes kept is used here, or the other way round.
pytestmark = pytest.mark.usefixtures("new_program")

#: Seconds after which a test is taken to hang; ten times what the longest takes.
TESTS = Path(__file__).resolve().parents[1]
#: The unit in which trouble waits.
BAD_UNIT = (BAD // UNIT * UNIT, BAD // UNIT * UNIT + UNIT)


@cache
def quiet(units: int, trouble: str = "none", on_error: str = "stop") -> Any:
    """The same analysis in this very thread, undisturbed."""
    made = analysis(trouble)
    return made.run(opened(units), engine="inline", chunk=UNIT, on_error=on_error, progress=False)


@pytest.fixture(autouse=True)
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Look at what is left after each test; end a test that does not end."""
    quiet(2)  # imports, and files that stay open
    with nothing_left(tmp_path, monkeypatch) as before:
        yield before


def run(made: wr.Pipeline, units: int, **options: Any) -> Any:
    asked = {"engine": "processes", "workers": 2, "chunk": UNIT, "progress": False, **options}
    return made.run(opened(units), **asked)


def check_ledger(result: Any, units: int, failed: tuple[tuple[int, int], ...] = ()) -> None:
    """Every row is accounted for once: done, or failed for a reason."""
    place = 0
    for entry in result.ledger.entries:
        assert entry.start == place
        place = entry.stop
        assert entry.state in ("done", "failed")
        assert bool(entry.reason) == (entry.state == "failed")
    assert place == units * UNIT
    assert tuple((e.start, e.stop) for e in result.ledger.problems) == failed


def check_numbers(result: Any, units: int, left_out: tuple[int, int] = (0, 0)) -> None:
    """What plain NumPy can say exactly, whatever the order of additions."""
    values = data(units)
    there = np.ones(units * UNIT, bool)
    there[slice(*left_out)] = False
    passed = there & (values["x"] > 0.2)
    assert result["count"]["A"] == passed.sum()
    assert result.kept.rows("A", 0).tolist() == np.flatnonzero(passed).tolist()
    assert result["everything"][:2].tolist() == [there.sum(), values["row"][there].sum()]


def check_whole(result: Any, units: int) -> None:
    assert said(result) == said(quiet(units))
    assert result.complete
    check_ledger(result, units)
    check_numbers(result, units)


# -- workers that are ended from outside -----------------------------------------------------------


def under_a_killer(seed: int, units: int = 500) -> int:
    with Killer(seed) as killer:
        result = run(analysis(pace=PACE), units, workers=3)
    check_whole(result, units)
    return killer.hits


@pytest.mark.parametrize(("units", "least"), [(150, 3), pytest.param(500, 15, marks=pytest.mark.slow)])
def test_workers_are_killed_all_the_time(units: int, least: int) -> None:
    killed = under_a_killer(1, units)
    sys.stdout.write(f"\n{units} chunks, {killed} workers killed, 0 rows wrong\n")
    assert killed >= least


def saving(place: Path) -> wr.Pipeline:
    place.mkdir()
    made = analysis(pace=PACE / 3)
    made.save(str(place / "{dataset}.parquet"), columns=["row", "hard"], region="A")
    return made


@pytest.mark.slow
def test_files_are_written_whole_while_workers_are_killed(tmp_path: Path) -> None:
    with Killer(seed=2):
        result = run(saving(tmp_path / "files"), 100, workers=3)
    check_whole(result, 100)
    assert names_in(tmp_path / "files") == {"data.parquet"}
    values = data(100)
    passed = values["x"] > 0.2
    table = pq.read_table(tmp_path / "files" / "data.parquet")
    assert np.array_equal(table["row"].to_numpy(), values["row"][passed])
    assert np.array_equal(table["hard"].to_numpy(), np.sqrt(values["x"][passed]))


def test_a_run_that_is_interrupted_gives_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "driver").write_text(str(os.getpid()))
    result = run(analysis("an interrupt", pace=PACE, place=str(tmp_path)), 500)
    assert result.interrupted
    done = [entry for entry in result.ledger.entries if entry.state == "done"]
    rows = [row for entry in done for row in range(entry.start, entry.stop)]
    assert 0 < len(rows) < 500 * UNIT
    assert result.ledger.missing == 500 * UNIT - len(rows)
    assert result["everything"][:2].tolist() == [len(rows), sum(rows)]


@pytest.mark.fire
@pytest.mark.parametrize("seed", range(20))
def test_workers_are_killed_all_the_time_in_many_ways(seed: int) -> None:
    assert under_a_killer(seed) >= 15


@pytest.mark.fire
@pytest.mark.parametrize("seed", range(10))
def test_workers_and_their_server_are_hit_all_the_time(seed: int) -> None:
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
    with Killer(seed, signals, every_s=0.2, servers=0.1) as killer:
        result = run(analysis(pace=PACE), 200, workers=3)
    check_whole(result, 200)
    assert killer.hits >= 5


def meanwhile(what: Any) -> threading.Thread:
    """Do something to this run while it goes on, once workers are there."""

    def act() -> None:
        wait_until(lambda: len(workers_of(os.getpid())) > 1, "workers are there")
        what()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def signal_one(number: int) -> None:
    server = server_of(os.getpid())
    assert server is not None
    assert send(workers_of(os.getpid())[0], server, number)


def end_the_server() -> None:
    server = server_of(os.getpid())
    assert server is not None
    assert send(server, os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("number", few_by_day([signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV]))
def test_a_worker_gets_a_signal(number: int) -> None:
    thread = meanwhile(lambda: signal_one(number))
    result = run(analysis(pace=PACE), 100)
    thread.join()
    check_whole(result, 100)


def test_a_worker_is_stopped_in_the_middle_of_a_chunk(tmp_path: Path) -> None:
    result = run(analysis("a worker that is stopped", place=str(tmp_path)), 100)
    assert (tmp_path / "stopped").exists()
    check_whole(result, 100)


def test_the_process_that_watches_is_killed() -> None:
    thread = meanwhile(end_the_server)
    result = run(analysis(pace=PACE), 100)
    thread.join()
    check_whole(result, 100)


# -- rows that end their worker, or would -----------------------------------------------------------

MEMORY = {"memory": "800MB"}
TROUBLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a hog": (MEMORY, ["memory", "the limit is 800 MB"]),  # the row had all there is in the end
    "a hog in a child": (MEMORY, ["memory", "the limit is 800 MB"]),
    "an exit": ({}, ["exited with code 3"]),
    "a segfault": ({}, ["SIGSEGV"]),
    "a hang": ({"timeout": "0.7s"}, ["took more than 0.7", "the limit is 0.7 s"]),
}


def where_of(trouble: str) -> tuple[int, int]:
    """Give the rows at fault: what uses too much memory is divided until one is left; with others nobody knows at which row a worker ends."""
    return (BAD, BAD + 1) if "hog" in trouble else BAD_UNIT


@pytest.mark.parametrize("trouble", few_by_day(["a hang", "a segfault", "a hog", "a hog in a child", "an exit"], 2))
def test_rows_that_end_their_worker_are_named(trouble: str) -> None:
    options, words = TROUBLES[trouble]
    with pytest.raises(EngineError) as caught:
        run(analysis(trouble), 50, **options)
    for word in [*words, *map(str, where_of(trouble))]:
        assert word in str(caught.value)


@pytest.mark.parametrize("trouble", few_by_day(["a hog", "an exit", "a hang", "a hog in a child", "a segfault"], 2))
def test_rows_that_end_their_worker_are_left_out(trouble: str) -> None:
    options, words = TROUBLES[trouble]
    result = run(analysis(trouble), 50, on_error="skip", **options)
    where = where_of(trouble)
    check_ledger(result, 50, failed=(where,))
    (entry,) = result.ledger.problems
    assert all(word in entry.reason for word in words)
    check_numbers(result, 50, left_out=where)
    one_row = "an exception that cannot be pickled"
    expected = quiet(50, one_row if where != BAD_UNIT else "an exception of every row of a unit", "skip")
    assert said(result) == said(expected)


@pytest.mark.slow
def test_what_is_too_large_together_is_done_in_pieces() -> None:
    result = run(analysis("a hog of large chunks"), 16, chunk=4 * UNIT, **MEMORY)
    check_whole(result, 16)


@pytest.mark.slow
def test_rows_may_end_their_worker_once(tmp_path: Path) -> None:
    result = run(analysis("exits that do not come again", place=str(tmp_path)), 100)
    assert len(list(tmp_path.glob("left *"))) == 3
    check_whole(result, 100)


# -- what cannot be sent ------------------------------------------------------------------------------

ERRORS = {
    "an exception that cannot be pickled": "CannotBePickledError",
    "an exception that cannot be made again": "CannotBeMadeAgainError",
    "an exception that becomes something else": "BecomesAnotherError",
}


@pytest.mark.parametrize("trouble", few_by_day(ERRORS))
def test_exceptions_that_cannot_be_sent_are_told(trouble: str) -> None:
    with pytest.raises(StepError, match=f"{ERRORS[trouble]}: row {BAD} is bad") as caught:
        run(analysis(trouble), 50)
    assert f"row {BAD}" in str(caught.value)
    result = run(analysis(trouble), 50, on_error="skip")
    check_ledger(result, 50, failed=((BAD, BAD + 1),))
    check_numbers(result, 50, left_out=(BAD, BAD + 1))
    assert said(result) == said(quiet(50, trouble, "skip"))


def first(one: Any, other: Any) -> Any:
    return one


@pytest.mark.parametrize("kind", few_by_day(["generator", "open file", "lock"]))
def test_results_that_cannot_be_sent_are_named(kind: str) -> None:
    made = analysis()

    @made.output(region=None, merge=first)
    def odd(x: Any) -> Any:
        if kind == "generator":
            return (value for value in x)
        return Path(os.devnull).open("w") if kind == "open file" else threading.Lock()

    with pytest.raises(EngineError, match="cannot be pickled") as caught:
        run(made, 20)
    assert "odd" in str(caught.value)
    assert 'engine="threads"' in str(caught.value)


def test_a_function_as_a_result_can_be_sent() -> None:
    made = analysis()

    @made.output(region=None, merge=first)
    def odd(x: Any) -> Any:
        return lambda: "called"

    result = run(made, 20)
    assert result["odd"]() == "called"


@pytest.mark.parametrize("numbers", few_by_day([8_000_000, 62_500_000]))
def test_a_large_partial_is_sent_whole(numbers: int) -> None:
    """Up to 500 MB at once, by shared memory that nobody can see."""
    made = wr.Pipeline("large")

    @made.output(region=None)
    def large(x: Any) -> Any:
        return np.arange(numbers, dtype=np.float64)

    result = run(made, 1)
    assert result["large"].nbytes == 8 * numbers
    assert np.array_equal(result["large"], np.arange(numbers, dtype=np.float64))
    assert result.complete


# -- the driver is killed ------------------------------------------------------------------------------

#: It writes down what it has fifty times as often as others do, so that it is hit at all of its steps.
DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from windrow.shape import safety
from windrow.store.journal import journal
journal.SHARE = safety.CHEAP = 0.5
from fire.analyses import PACE, analysis, opened
data = opened(int(sys.argv[5]), sys.argv[3])
analysis(pace=PACE).run(data, rundir=sys.argv[2], progress=False, **json.loads(sys.argv[4]))
"""


def kill_driver(rundir: Path, file: str, share: float, units: int = 500, **options: Any) -> None:
    """Start a driver, and kill it when a share of all rows is written down."""
    asked = json.dumps({"workers": 2, "resume": True, **options})
    command = [sys.executable, "-c", DRIVER, str(TESTS), str(rundir), file, asked, str(units)]
    with subprocess.Popen(command) as process:
        try:
            wait_until(
                lambda: process.poll() is not None or written_rows(rundir) >= share * units * UNIT,
                f"{share:.0%} of the rows are written down",
            )
            assert process.poll() is None, f"the driver ended with {process.poll()}"
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert share * units * UNIT <= written_rows(rundir)


def undisturbed_names(tmp_path: Path) -> set[str]:
    analysis().run(opened(20), rundir=tmp_path / "quiet", chunk=UNIT, progress=False)
    return names_in(tmp_path / "quiet")


KILLS = [(0.1, "processes", 1), (0.5, "threads", 3), (0.9, "processes", 2)]


@pytest.mark.parametrize(
    ("kills", "all_units"), [(KILLS[:1], 120), pytest.param(KILLS, 500, marks=pytest.mark.slow)], ids=["once", "thrice"]
)
def test_a_driver_is_killed(kills: list[tuple[float, str, int]], all_units: int, tmp_path: Path, scene: Scene) -> None:
    rundir, file = tmp_path / "run", write_file(tmp_path / "data.parquet", all_units)
    there: list[int] = []
    for share, engine, units in kills:
        kill_driver(rundir, file, share, all_units, engine=engine, chunk=units * UNIT)
        wait_until(lambda: not scene.marked(), "all processes of a killed driver are gone")
        there.append(written_rows(rundir))
    result = analysis(pace=PACE).run(
        opened(all_units, file), rundir=rundir, resume=True, engine="inline", chunk=7 * UNIT,
        progress=False,
    )  # fmt: skip
    check_whole(result, all_units)
    read = sum(stop - start for _, name, start, stop in result.reads if name == "row")
    story = f"{there} of {all_units * UNIT:,} rows were written down, {read:,} were read again"
    sys.stdout.write(f"\nkilled at {[share for share, _, _ in kills]}: {story}\n")
    assert read == all_units * UNIT - there[-1]
    assert names_in(rundir) == undisturbed_names(tmp_path)


@pytest.mark.fire
@pytest.mark.parametrize("first_engine", ["processes", "threads", "inline"])
@pytest.mark.parametrize("then", ["processes", "threads", "inline"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_driver_is_killed_and_any_other_goes_on(
    share: float, first_engine: str, then: str, tmp_path: Path, scene: Scene
) -> None:
    rundir, file = tmp_path / "run", write_file(tmp_path / "data.parquet", 500)
    kill_driver(rundir, file, share, engine=first_engine, chunk=UNIT)
    wait_until(lambda: not scene.marked(), "all processes of a killed driver are gone")
    result = analysis(pace=PACE).run(
        opened(500, file), rundir=rundir, resume=True, engine=then, workers=2, chunk=3 * UNIT,
        progress=False,
    )  # fmt: skip
    check_whole(result, 500)
    assert names_in(rundir) == undisturbed_names(tmp_path)


@pytest.mark.slow
def test_nothing_is_said_where_warnings_are_errors() -> None:
    code = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from fire.analyses import analysis, opened
analysis().run(opened(5), engine="processes", workers=2, progress=False)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_comparison_is_not_blind() -> None:
    assert said(quiet(20)) != said(quiet(21))
    with pytest.raises(AssertionError):
        check_ledger(quiet(20), 21)
    with pytest.raises(AssertionError):
        check_numbers(quiet(20), 20, left_out=(3, 4))
