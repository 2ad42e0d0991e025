"""Continuing a run: the answer is the one of a fresh run, and only what is missing or changed is run."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.errors import StepError, UsageError
from windrow.pipeline.resume.plan import begin
from windrow.pipeline.resume.step_digest import step_fingerprints
from windrow.store.journal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: What other processes kept is used here, or the other way round.
pytestmark = pytest.mark.usefixtures("new_program")

#: A cut fails above the number in this file: a switch that is no part of what the analysis is.
SWITCH = Path(tempfile.gettempdir()) / f"windrow-test-boom-{os.getpid()}"

SOURCE = """
from pathlib import Path
import numpy as np
import windrow as wr

FACTOR = 2.0
OFFSET = 1.0
SWITCH = Path(@SWITCH@)

def helper(x):
    return x * FACTOR

def analysis(shift=0.5, correction=None, extra=False, high=0.3):
    made = wr.Pipeline("resumed")

    @made.weight
    def w(g):
        return g

    @made.cut
    def some(x):
        if SWITCH.exists() and (x > float(SWITCH.read_text())).any():
            raise ValueError("boom")
        return x > 0.2

    @made.cut
    def more(y):
        return y > high

    made.region("A", "some")
    made.region("B", "some", "more")
    if extra:
        made.region("C", "more")

    @made.column
    def scaled(x):
        return helper(x)

    @made.column
    def shifted(y):
        return y + shift

    @made.column
    def moved(y):
        return y + OFFSET

    @made.output
    def count(x):
        return len(x)

    @made.output
    def weighted(x, weight):
        return np.histogram(x, bins=20, range=(0.0, 1.0), weights=weight)[0]

    @made.output
    def scales(scaled):
        return scaled.sum()

    @made.output
    def shifts(shifted):
        return shifted.sum()

    @made.output
    def moves(moved):
        return moved.sum()

    @made.output(region=None)
    def corrected(x):
        return (x * (float(correction()) if correction else 1.0)).sum()

    return made
""".replace("@SWITCH@", repr(str(SWITCH)))

OUTPUTS = {"count", "weighted", "scales", "shifts", "moves", "corrected"}


def load(source: str = SOURCE) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "an_analysis"}
    exec(compile(source, "an_analysis.py", "exec"), space)
    return space


@contextlib.contextmanager
def failing_above(value: float) -> Iterator[None]:
    SWITCH.write_text(str(value))
    try:
        yield
    finally:
        SWITCH.unlink()


def events(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.random(rows), "y": rng.random(rows), "g": rng.normal(1.0, 0.2, rows)}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    fileset: dict[str, list[str]] = {}
    for dataset, sizes in {"one": (1000, 700), "two": (400,)}.items():
        fileset[dataset] = []
        for number, rows in enumerate(sizes):
            path = tmp_path / f"{dataset}{number}.parquet"
            pq.write_table(pa.table(events(rows, number)), path, row_group_size=100)
            fileset[dataset].append(str(path))
    return fileset


def opened(fileset: Any) -> Any:
    return wr.data.open(fileset, grid=100)


def said(result: Any) -> dict[str, Any]:
    """Everything of a result that must not depend on how it came about, bit by bit."""
    outputs = {
        (dataset, *key): np.asarray(value).tobytes()
        for dataset, values in result.outputs.items()
        for key, value in values.items()
    }
    kept = {
        (region, number): result.kept.rows(region, number).tolist()
        for region in result.regions
        for number in range(len(result.kept.files))
    }
    return {"outputs": outputs, "cutflow": without_estimates(result.cutflow.as_dict()), "kept": kept}


def without_estimates(table: Any) -> Any:
    """Leave out tables of the written order that are estimated or missing: which rows were shown to all cuts is chance."""
    if not isinstance(table, dict):
        return table
    lines = table.get("written", ())
    if lines is None or any(line["kind"] == "estimated" for line in lines):
        table = {name: value for name, value in table.items() if name not in ("written", "why_no_written")}
    return {name: without_estimates(value) for name, value in table.items()}


def calls(result: Any) -> set[str]:
    """The outputs that were evaluated in this run."""
    return {name for name, step in result.steps.items() if name in OUTPUTS and step.calls}


def test_a_complete_run_is_taken_over_whole(tmp_path: Path, files: Any) -> None:
    load()["analysis"]().run(opened(files), rundir=tmp_path / "run", progress=False, max_rows=0)
    first = load()["analysis"]().run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    assert first.decisions[0] == "resume: no rows are done already"
    again = load()["analysis"]().run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    assert said(again) == said(first)
    assert again.reads == []
    assert again.complete
    assert again.ledger == first.ledger
    assert again.engine == "inline"
    assert any("2,100 rows that are done already" in line for line in again.decisions)
    assert said(wr.load(tmp_path / "run")) == said(first)


def with_text(old: str, new: str) -> Callable[[Path], Any]:
    assert old in SOURCE
    return lambda _: load(SOURCE.replace(old, new))["analysis"]()


def with_correction(text: str) -> Callable[[Path], Any]:
    def make(place: Path) -> Any:
        (place / "correction.txt").write_text(text)
        return load()["analysis"](correction=wr.file(place / "correction.txt"))

    return make


#: What is changed, and the outputs that follow from it.
CHANGES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any], set[str]]] = {
    "nothing": (with_text("x", "x"), with_text("x", "x"), set()),
    "a helper function": (
        with_text("FACTOR = 2.0", "FACTOR = 2.0"),
        with_text("return x * FACTOR", "return x * FACTOR + 1"),
        {"scales"},
    ),
    "a global": (with_text("OFFSET = 1.0", "OFFSET = 1.0"), with_text("OFFSET = 1.0", "OFFSET = 3.0"), {"moves"}),
    "a global that a helper reads": (
        with_text("FACTOR = 2.0", "FACTOR = 2.0"),
        with_text("FACTOR = 2.0", "FACTOR = 2.5"),
        {"scales"},
    ),
    "a closure value": (lambda _: load()["analysis"](), lambda _: load()["analysis"](shift=0.75), {"shifts"}),
    "a correction file": (with_correction("1.5"), with_correction("1.25"), {"corrected"}),
    "a weight": (with_text("return g", "return g"), with_text("return g", "return g * 1.5"), {"weighted"}),
    "an output": (
        with_text("return len(x)", "return len(x)"),
        with_text("return len(x)", "return 2 * len(x)"),
        {"count"},
    ),
    "a cut of one region": (
        lambda _: load()["analysis"](),
        lambda _: load()["analysis"](high=0.6),
        OUTPUTS - {"corrected"},
    ),
    "a region": (lambda _: load()["analysis"](), lambda _: load()["analysis"](extra=True), OUTPUTS - {"corrected"}),
    "comments": (
        lambda _: load()["analysis"](),
        with_text("def helper(x):\n", "\ndef helper(x):\n    # better\n"),
        set(),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("engine", ["inline", pytest.param("threads", marks=pytest.mark.slow)])
def test_exactly_what_a_change_touches_is_done_again(change: str, engine: str, tmp_path: Path, files: Any) -> None:
    before, after, expected = CHANGES[change]
    before(tmp_path).run(opened(files), rundir=tmp_path / "run", progress=False)
    fresh = after(tmp_path).run(opened(files), progress=False)
    again = after(tmp_path).run(
        opened(files), rundir=tmp_path / "run", resume=True, engine=engine, chunk=300,
        progress=False,
    )  # fmt: skip
    assert calls(again) == expected
    assert said(again) == said(fresh)
    assert again.complete
    assert again.ledger == fresh.ledger
    # What was kept of both now makes one whole.
    third = after(tmp_path).run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    assert calls(third) == set()
    assert said(third) == said(fresh)


def test_a_changed_cut_leaves_the_other_region_alone(tmp_path: Path, files: Any) -> None:
    load()["analysis"]().run(opened(files), rundir=tmp_path / "run", progress=False)
    again = load()["analysis"](high=0.6).run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    whole = load()["analysis"](high=0.6).run(opened(files), progress=False)
    assert again.steps["count"].calls < whole.steps["count"].calls
    assert said(again) == said(whole)


@pytest.mark.slow
@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(
    stop=st.floats(0.9, 1.0),
    first=st.tuples(st.sampled_from([100, 250, 1000]), st.sampled_from(["inline", "threads"])),
    second=st.tuples(st.sampled_from([100, 300, 2000]), st.sampled_from(["inline", "threads"])),
    limits=st.tuples(st.sampled_from([None, 150, 300, 1250]), st.sampled_from([None, 250, 1250])),
    extra=st.booleans(),
)
def test_a_run_that_failed_somewhere_goes_on_in_any_other_way(
    stop: float,
    first: tuple[int, str],
    second: tuple[int, str],
    limits: tuple[int | None, int | None],
    extra: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("resume")
    data = opened({"one": events(1000, 1), "two": events(470, 2)})
    analysis = load()["analysis"]
    with failing_above(stop), contextlib.suppress(StepError):
        analysis().run(
            data, rundir=place, chunk=first[0], engine=first[1], max_rows=limits[0],
            progress=False,
        )  # fmt: skip
    again = analysis(extra=extra).run(
        data, rundir=place, resume=True, chunk=second[0], engine=second[1], max_rows=limits[1],
        progress=False,
    )  # fmt: skip
    fresh = analysis(extra=extra).run(data, engine="inline", max_rows=limits[1], progress=False)
    assert said(again) == said(fresh)
    assert again.ledger == fresh.ledger
    assert again.complete


def test_only_missing_rows_are_read(tmp_path: Path, files: Any) -> None:
    analysis = load()["analysis"]
    analysis().run(opened(files), rundir=tmp_path / "run", max_rows=500, progress=False)
    again = analysis().run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    rows: dict[str, list[tuple[int, int]]] = {}
    for label, column, start, stop in again.reads:
        if column == "x":
            rows.setdefault(label, []).append((start, stop))
    first, second, other = files["one"][0], files["one"][1], files["two"][0]
    assert sorted(rows) == sorted([first, second])
    assert sum(stop - start for start, stop in rows[first]) == 500
    assert min(start for start, _ in rows[first]) == 500
    assert sum(stop - start for start, stop in rows[second]) == 700
    assert other not in rows
    assert said(again) == said(analysis().run(opened(files), progress=False))


def test_a_changed_file_is_read_again(tmp_path: Path, files: Any) -> None:
    analysis = load()["analysis"]
    analysis().run(opened(files), rundir=tmp_path / "run", progress=False)
    pq.write_table(pa.table(events(300, 9)), files["one"][1], row_group_size=100)
    again = analysis().run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    assert {label for label, *_ in again.reads} == {files["one"][1]}
    assert any("1 of 3 files have changed" in line for line in again.decisions)
    assert said(again) == said(analysis().run(opened(files), progress=False))


def test_arrays_are_the_same_by_their_content(tmp_path: Path) -> None:
    analysis = load()["analysis"]
    data = events(500, 3)
    analysis().run(opened(data), rundir=tmp_path / "run", progress=False)
    copy = {name: values.copy() for name, values in data.items()}
    again = analysis().run(opened(copy), rundir=tmp_path / "run", resume=True, progress=False)
    assert again.reads == []
    copy["x"][17] += 1e-9
    changed = analysis().run(opened(copy), rundir=tmp_path / "run", resume=True, progress=False)
    assert sum(stop - start for _, name, start, stop in changed.reads if name == "x") == 500


def test_what_cannot_be_looked_into_is_never_the_same(tmp_path: Path, files: Any) -> None:
    def analysis(thing: Any) -> wr.Pipeline:
        made = wr.Pipeline("opaque")

        @made.output
        def plain(x: Any) -> Any:
            return x.sum()

        @made.output
        def odd(y: Any) -> Any:
            return y.sum() if thing else 0.0

        return made

    def opaque() -> Any:
        return iter([1])  # an iterator does not say what is left of it

    first = analysis(opaque()).run(opened(files), rundir=tmp_path / "run", progress=False)
    again = analysis(opaque()).run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    assert {name for name, step in again.steps.items() if step.calls} == {"odd"}
    assert any("'thing'" in line and "cannot be looked into" in line for line in again.decisions)
    assert again["plain"] == first["plain"]


def test_a_version_stands_for_what_cannot_be_looked_into(tmp_path: Path, files: Any) -> None:
    def analysis(version: Any) -> wr.Pipeline:
        made = wr.Pipeline("opaque")
        thing: Any = iter([1])

        @made.output(version=version)
        def odd(y: Any) -> Any:
            return y.sum() if thing else 0.0

        return made

    analysis(1).run(opened(files), rundir=tmp_path / "run", progress=False)
    for version, again in ((1, False), (2, True), (2, False)):
        result = analysis(version).run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
        assert bool(result.reads) == again


RECORDS = """
import awkward as ak
class Muon(ak.Record):
    @property
    def scale(self):
        return 1.0
def add(one, two):
    return one
def mixed(function):
    return lambda *both: function(*both)
"""


def test_behaviours_of_records_that_the_user_wrote_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def analysis() -> wr.Pipeline:
        made = wr.Pipeline("records")

        @made.output
        def total(x: Any) -> Any:
            return x.sum() * ak.Array([{"a": 1}], with_name="TestMuon")[0].scale

        return made

    def run() -> Any:
        return analysis().run(opened(events(300, 1)), rundir=tmp_path / "run", resume=True, progress=False)

    def register(text: str) -> None:
        space: dict[str, Any] = {"__name__": "an_analysis"}
        exec(compile(text, "records.py", "exec"), space)
        monkeypatch.setitem(ak.behavior, "TestMuon", space["Muon"])
        key = (np.add, "TestMuon", "TestMuon")
        monkeypatch.setitem(ak.behavior, key, space["mixed"](space["add"]))

    register(RECORDS)
    first = run()["total"]
    register(RECORDS)
    assert run().reads == []
    register(RECORDS.replace("return 1.0", "return 2.0"))
    changed = run()
    assert changed.reads != []
    assert changed["total"] == 2.0 * first
    register(RECORDS.replace("return one", "return two"))
    assert run().reads != []
    # What a library offers counts by its name.
    monkeypatch.setitem(ak.behavior, "TestJet", vector.backends.awkward.VectorRecord3D)
    assert run().reads != []
    assert run().reads == []
    monkeypatch.setitem(ak.behavior, "TestJet", vector.backends.awkward.VectorRecord4D)
    assert run().reads != []


COMPILED = """
import functools
import numba
import windrow as wr

FACTOR = 1.0

@numba.njit
def compiled(x):
    return x.sum() * FACTOR

@functools.cache
def cached():
    return FACTOR

def analysis():
    made = wr.Pipeline("frozen")

    @made.output
    def one(x):
        return compiled(x)

    @made.output
    def two(x):
        return x.sum() * cached()

    return made
"""


def test_what_a_process_has_frozen_is_not_there_for_the_next(tmp_path: Path) -> None:
    """A global that changed after it was compiled in: its old result must not be found under its new value."""
    data = opened(events(300, 1))
    here = load(COMPILED)
    first = here["analysis"]().run(data, rundir=tmp_path / "run", progress=False)
    here["FACTOR"] = 2.0
    frozen = here["analysis"]().run(data, rundir=tmp_path / "run", resume=True, progress=False)
    assert frozen["one"] == first["one"]
    assert any("'compiled' has frozen" in line for line in frozen.decisions)
    assert any("'cached' remembers" in line for line in frozen.decisions)
    # A new process has the new value.
    there = load(COMPILED.replace("FACTOR = 1.0", "FACTOR = 2.0"))
    again = there["analysis"]().run(data, rundir=tmp_path / "run", resume=True, progress=False)
    assert again["one"] == 2 * first["one"]
    assert again["two"] == 2 * first["two"]


def test_saved_files_are_complete_after_resuming(tmp_path: Path, files: Any) -> None:
    def analysis() -> Any:
        made = load()["analysis"]()
        made.save(str(tmp_path / "{dataset}.parquet"), columns=["x", "scaled"], region="A")
        return made

    with failing_above(0.999), pytest.raises(StepError):
        analysis().run(opened(files), rundir=tmp_path / "run", chunk=100, progress=False)
    again = analysis().run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
    assert calls(again) <= OUTPUTS
    table = pq.read_table(tmp_path / "one.parquet")
    x = np.concatenate([pq.read_table(path)["x"].to_numpy() for path in files["one"]])
    assert np.array_equal(table["x"].to_numpy(), x[x > 0.2])
    assert np.array_equal(table["scaled"].to_numpy(), 2.0 * x[x > 0.2])


def test_resuming_needs_a_directory() -> None:
    with pytest.raises(UsageError, match="rundir="):
        load()["analysis"]().run({"x": np.arange(3.0)}, resume=True)


def test_resuming_in_a_new_directory_simply_runs(tmp_path: Path, files: Any) -> None:
    result = load()["analysis"]().run(opened(files), rundir=tmp_path / "new", resume=True, progress=False)
    assert result.complete


DRIVER = """
import sys, time
import windrow as wr
namespace = {"__name__": "an_analysis"}
exec(compile(open(sys.argv[1]).read(), "an_analysis.py", "exec"), namespace)
made = namespace["analysis"]()

@made.column
def slow(x):
    import time
    time.sleep(0.01)
    return x

@made.output
def slows(slow):
    return slow.sum()

data = wr.data.open(sys.argv[3:], grid=100)
result = made.run(data, rundir=sys.argv[2], chunk=100, engine="threads", progress=False)
"""


def test_a_killed_driver_loses_little(tmp_path: Path) -> None:
    paths = []
    for number in range(6):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(events(5000, number)), path, row_group_size=100)
        paths.append(str(path))
    (tmp_path / "analysis.py").write_text(SOURCE)
    (tmp_path / "driver.py").write_text(textwrap.dedent(DRIVER))
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path / "analysis.py")]
    process = subprocess.Popen([*command, str(tmp_path / "run"), *paths])
    try:
        _wait_until(lambda: _written(tmp_path / "run") >= 3, process)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    made = load()["analysis"]
    again = made().run(
        wr.data.open(paths, grid=100), rundir=tmp_path / "run", resume=True, chunk=700,
        progress=False,
    )  # fmt: skip
    fresh = made().run(wr.data.open(paths, grid=100), progress=False)
    assert said(again) == said(fresh)
    assert again.complete
    read = sum(stop - start for _, name, start, stop in again.reads if name == "x")
    assert read < 30_000


def _written(place: Path) -> int:
    """Count the partials that are written down; the run may go on meanwhile."""
    if not (place / "journal.sqlite").exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{place / 'journal.sqlite'}?mode=ro", uri=True)) as connection:
        try:
            (count,) = connection.execute("SELECT count(*) FROM blobs").fetchone()
        except sqlite3.OperationalError:  # a commit goes on
            return 0
    return int(count)


def _wait_until(happened: Callable[[], bool], process: Any) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if happened():
            return
        time.sleep(0.01)
    raise AssertionError(f"nothing was written down; the driver ended with {process.poll()}")


def test_said_can_tell_results_apart(files: Mapping[str, Any]) -> None:
    """The comparison used here is not blind."""
    one = load()["analysis"]().run(opened(files), progress=False)
    other = load()["analysis"](shift=0.5000001).run(opened(files), progress=False)
    assert said(one) != said(other)


FAILING = SOURCE.replace("return y + shift", "assert not (y > 0.999).any() or len(y) > 10**9; return y + shift")


@pytest.mark.parametrize("before", [SOURCE, FAILING])
def test_rows_that_are_left_out_leave_everything_after_resuming_too(before: str, tmp_path: Path) -> None:
    """A row that fails in one output is in no other, whether or not that one was made before."""
    data = opened({"one": events(5000, 1)})
    options = {"on_error": "skip", "progress": False}
    load(before)["analysis"]().run(data, rundir=tmp_path / "run", **options)
    fresh = load(FAILING)["analysis"]().run(data, **options)
    assert fresh.ledger.failed > 0
    again = load(FAILING)["analysis"]().run(data, rundir=tmp_path / "run", resume=True, chunk=700, **options)
    assert said(again) == said(fresh)
    assert again.ledger.failed == fresh.ledger.failed
    assert any("left out" in note for note in again.notes)


# -- what an input is the same by ------------------------------------------------------------------


def joined_analysis() -> wr.Pipeline:
    made = wr.Pipeline("joined")

    @made.output
    def product(x: Any, q: Any) -> Any:
        return (x * q).sum()

    @made.output
    def alone(x: Any) -> Any:
        return x.sum()

    return made


def write_rows(path: Path, seed: int, name: str, first: int = 0, rows: int = 300) -> str:
    values = {name: np.random.default_rng(seed).random(rows), "ev": np.arange(first, first + rows)}
    if name == "q":
        values["ev_q"] = values.pop("ev")
    pq.write_table(pa.table(values), path, row_group_size=100)
    return str(path)


def continued(made: Callable[[], Any], data: Callable[[], Any], place: Path, **options: Any) -> Any:
    """Continue a run, and compare it with a fresh one."""
    again = made().run(data(), rundir=place, resume=True, progress=False, **options)
    fresh = made().run(data(), progress=False, **options)
    assert said(again) == said(fresh)
    assert again.ledger == fresh.ledger
    assert [file.label for file in again.kept.files] == [file.label for file in fresh.kept.files]
    return again


@pytest.mark.parametrize("change", ["nothing", "rewritten", "another", "arrays", "renamed columns"])
def test_a_friend_counts_as_much_as_the_file_it_is_joined_to(change: str, tmp_path: Path) -> None:
    main = write_rows(tmp_path / "main.parquet", 1, "x")
    friend: Any = write_rows(tmp_path / "friend.parquet", 2, "q")
    joined_analysis().run(
        wr.data.join(main, friend), rundir=tmp_path / "run", progress=False
    )  # fmt: skip
    suffix = ""
    if change == "rewritten":
        write_rows(tmp_path / "friend.parquet", 3, "q")
    elif change == "another":
        friend = write_rows(tmp_path / "other.parquet", 3, "q")
    elif change == "arrays":
        friend = {"q": np.full(300, 2.0)}
    elif change == "renamed columns":
        friend, suffix = {"": np.ones(300)}, "q"

    def data() -> Any:
        return wr.data.join(main, friend, suffix=suffix)

    again = continued(joined_analysis, data, tmp_path / "run")
    assert bool(again.reads) == (change != "nothing")
    assert continued(joined_analysis, data, tmp_path / "run").reads == []
    if change == "arrays":
        friend["q"][7] = 3.0
        assert continued(joined_analysis, data, tmp_path / "run").reads != []


def test_friends_found_by_identity_are_looked_at_all(tmp_path: Path) -> None:
    mains = [write_rows(tmp_path / f"m{i}.parquet", i, "x", 300 * i) for i in range(2)]
    friends = [tmp_path / f"f{i}.parquet" for i in range(3)]

    def write(number: int, seed: int) -> None:
        q = np.random.default_rng(seed).random(200)
        rows = {"q": q, "ev": np.arange(200 * number, 200 * number + 200)}
        pq.write_table(pa.table(rows), friends[number])

    for number in range(3):
        write(number, 10 + number)

    def data() -> Any:
        return wr.data.join(mains, [str(path) for path in friends], on="ev")

    joined_analysis().run(data(), rundir=tmp_path / "run", progress=False)
    assert continued(joined_analysis, data, tmp_path / "run").reads == []
    write(1, 99)
    assert {label for label, *_ in continued(joined_analysis, data, tmp_path / "run").reads} == {*mains}


def test_row_by_row_the_files_before_count_too(tmp_path: Path) -> None:
    """The rows of a friend that belong to a file begin where those of the files before it end."""
    paths = [tmp_path / f"m{number}.parquet" for number in range(3)]
    for number, rows in enumerate((300, 300, 300)):
        write_rows(paths[number], number, "x", rows=rows)
    friend = write_rows(tmp_path / "f.parquet", 9, "q", rows=900)

    def data() -> Any:
        return wr.data.join([str(path) for path in paths], friend)

    joined_analysis().run(data(), rundir=tmp_path / "run", progress=False)
    write_rows(paths[0], 0, "x", rows=290)
    write_rows(paths[2], 2, "x", rows=310)
    again = continued(joined_analysis, data, tmp_path / "run")
    assert str(paths[1]) in {label for label, *_ in again.reads}


def test_other_units_are_another_input(tmp_path: Path) -> None:
    data = {"one": {**events(1000, 1), "x": np.random.default_rng(1).normal(0, 1e3, 1000)}}
    analysis = load()["analysis"]
    analysis().run(wr.data.open(data, grid=100), rundir=tmp_path / "run", max_rows=300, progress=False)
    again = continued(analysis, lambda: wr.data.open(data, grid=70), tmp_path / "run")
    assert {(start, stop) for _, name, start, stop in again.reads if name == "x"} == {(0, 1000)}


def test_a_file_that_only_looks_the_same_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"

    def write(seed: int) -> None:
        table = pa.table(events(500, seed))
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=100)

    def data() -> Any:
        return wr.data.open(str(path))

    write(1)
    before = path.stat()
    analysis = load()["analysis"]
    analysis().run(data(), rundir=tmp_path / "run", progress=False)
    path.chmod(0o640)
    assert continued(analysis, data, tmp_path / "run").reads == []
    write(2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert continued(analysis, data, tmp_path / "run").reads != []


def test_a_file_that_is_not_there_for_a_while_costs_nothing(tmp_path: Path, files: Any) -> None:
    analysis = load()["analysis"]
    analysis().run(opened(files), rundir=tmp_path / "run", progress=False)
    data = opened(files)
    (tmp_path / "one0.parquet").rename(tmp_path / "away")
    with pytest.raises(wr.errors.WindrowError):
        analysis().run(data, rundir=tmp_path / "run", resume=True, progress=False)
    (tmp_path / "away").rename(tmp_path / "one0.parquet")
    assert continued(analysis, lambda: opened(files), tmp_path / "run").reads == []


# -- what stays in the journal ---------------------------------------------------------------------


@pytest.mark.parametrize("rows", [100, 150, 1200])
def test_a_look_at_a_few_rows_costs_nothing(rows: int, tmp_path: Path, files: Any) -> None:
    analysis = load()["analysis"]
    analysis().run(opened(files), rundir=tmp_path / "run", progress=False)
    continued(analysis, lambda: opened(files), tmp_path / "run", max_rows=rows)
    continued(lambda: analysis(shift=0.1), lambda: opened(files), tmp_path / "run", max_rows=rows, chunk=50)
    assert continued(analysis, lambda: opened(files), tmp_path / "run").reads == []


def test_a_slip_of_the_pen_costs_nothing(tmp_path: Path, files: Any) -> None:
    analysis = load()["analysis"]
    analysis().run(opened(files), rundir=tmp_path / "run", progress=False)
    with pytest.raises(StepError):
        load(SOURCE.replace("return x > 0.2", "return x > 0.2 / 0"))["analysis"]().run(
            opened(files), rundir=tmp_path / "run", resume=True, progress=False
        )
    assert continued(analysis, lambda: opened(files), tmp_path / "run").reads == []


def test_what_is_of_no_use_goes_when_a_run_is_complete(tmp_path: Path, files: Any) -> None:
    analysis = load()["analysis"]
    for number in range(6):
        analysis(shift=number / 10).run(opened(files), rundir=tmp_path / "run", resume=True, progress=False)
        # One of the first run, for what has not changed since, and one of the last.
        assert _written(tmp_path / "run") == (3 if number == 0 else 6)


def test_only_the_torn_unit_is_done_again(tmp_path: Path) -> None:
    data = {"one": events(1000, 1)}
    analysis = load()["analysis"]
    analysis().run(
        opened(data), rundir=tmp_path / "run", max_rows=650, chunk=100, engine="threads",
        workers=4, progress=False,
    )  # fmt: skip
    same = analysis().run(opened(data), rundir=tmp_path / "run", max_rows=650, resume=True, progress=False)
    # And what a worker had added up together with it.
    assert 50 <= sum(stop - start for _, name, start, stop in same.reads if name == "x") < 650
    again = continued(analysis, lambda: opened(data), tmp_path / "run")
    read = sum(stop - start for _, name, start, stop in again.reads if name == "x")
    assert 350 <= read < 1000
    assert continued(analysis, lambda: opened(data), tmp_path / "run").reads == []


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(
    runs=st.lists(
        st.fixed_dictionaries(
            {
                "shift": st.sampled_from([0.1, 0.2]),
                "boom": st.sampled_from([2.0, 2.0, 0.95, 0.999]),
                "max_rows": st.sampled_from([None, None, 150, 300, 730]),
                "on_error": st.sampled_from(["stop", "stop", "skip"]),
                "chunk": st.sampled_from(["auto", 100, 130, 1000]),
                "engine": st.sampled_from(["inline", "threads"]),
                "grid": st.sampled_from([100, 100, 100, 70]),
            }
        ),
        min_size=2,
        max_size=6,
    )
)
def test_any_runs_may_follow_each_other(runs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("runs")
    data = {"one": events(700, 1), "two": events(430, 2)}
    for options in map(dict, runs):
        shift, boom, grid = (options.pop(name) for name in ("shift", "boom", "grid"))
        source = wr.data.open(data, grid=grid)
        made = load()["analysis"]
        with failing_above(boom):
            try:
                again = made(shift=shift).run(source, rundir=place, resume=True, progress=False, **options)
            except StepError:
                assert options["on_error"] == "stop"
                continue
        if not again.complete:
            continue  # rows that fail now may have been done before the switch was set
        fresh = made(shift=shift).run(source, engine="inline", max_rows=options["max_rows"], progress=False)
        assert said(again) == said(fresh)


def test_a_directory_that_others_could_write_to_is_not_continued(tmp_path: Path) -> None:
    analysis = load()["analysis"]
    analysis().run(events(100, 1), rundir=tmp_path / "run", progress=False)
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(wr.errors.DataError, match="chmod go-w"):
        analysis().run(events(100, 1), rundir=tmp_path / "run", resume=True, progress=False)


@pytest.mark.parametrize("resume", [True, False])
def test_a_directory_of_an_earlier_version_is_refused(resume: bool, tmp_path: Path) -> None:
    analysis = load()["analysis"]
    analysis().run(events(100, 1), rundir=tmp_path / "run", progress=False)
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 1'))
    for use in (
        lambda: analysis().run(events(100, 1), rundir=tmp_path / "run", resume=resume, progress=False),
        lambda: wr.load(tmp_path / "run"),
    ):
        with pytest.raises(wr.errors.DataError, match=r"made by an earlier version.*name another directory"):
            use()


def test_an_order_that_was_asked_for_shows_in_cutflows_alone(tmp_path: Path) -> None:
    data = opened({"one": events(300, 1)})
    made = load()["analysis"]()
    made.run(data, rundir=tmp_path / "run", progress=False)
    definition = made.definition(0)
    steps = step_fingerprints(definition)
    with Journal.open(tmp_path / "run") as journal:
        plain = begin(definition, data, journal, None, steps)
        order = ("more", "some", "w")
        asked = begin(definition, data, journal, None, steps, orders={"one": order})
    assert plain.specs == []
    (feed,) = asked.feeds.values()
    assert feed.products is not None
    assert {product.kind for product in feed.products} == {"cutflow"}


ORDERS: list[dict[str, Any]] = [{}, {"order": ["more", "some"]}, {"cutflow": "exact"}]


@pytest.mark.parametrize("rows", [None, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("after", ORDERS, ids=str)
@pytest.mark.parametrize("before", ORDERS, ids=str)
def test_cutflows_are_in_the_order_that_was_asked_for(
    before: dict[str, Any], after: dict[str, Any], rows: int | None, tmp_path: Path
) -> None:
    data = {"one": events(1000, 1)}
    analysis = load()["analysis"]
    analysis().run(opened(data), rundir=tmp_path / "run", max_rows=rows, progress=False, **before)
    again = continued(analysis, lambda: opened(data), tmp_path / "run", **after)
    assert str(again.cutflow) == str(analysis().run(opened(data), progress=False, **after).cutflow)
