"""Continuing a run: the answer is the one of a fresh run, and only what is missing or changed is run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import StepError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SOURCE = """
import os
import numpy as np
import windrow as wr

FACTOR = 2.0
OFFSET = 1.0

def helper(x):
    return x * FACTOR

def analysis(shift=0.5, correction=None, extra=False, high=0.3):
    made = wr.Pipeline("resumed")

    @made.weight
    def w(g):
        return g

    @made.cut
    def some(x):
        if os.environ.get("WINDROW_TEST_BOOM", "") and (x > float(os.environ["WINDROW_TEST_BOOM"])).any():
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
"""

OUTPUTS = {"count", "weighted", "scales", "shifts", "moves", "corrected"}


def load(source: str = SOURCE) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "an_analysis"}
    exec(compile(source, "an_analysis.py", "exec"), space)
    return space


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
    return {"outputs": outputs, "cutflow": result.cutflow.as_dict(), "kept": kept}


def calls(result: Any) -> set[str]:
    """The outputs that were evaluated in this run."""
    return {name for name, step in result.steps.items() if name in OUTPUTS and step.calls}


def test_a_complete_run_is_taken_over_whole(tmp_path: Path, files: Any) -> None:
    first = load()["analysis"]().run(opened(files), rundir=tmp_path / "run", progress=False)
    again = load()["analysis"]().run(
        opened(files), rundir=tmp_path / "run", resume=True, progress=False
    )
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
    "a global": (
        with_text("OFFSET = 1.0", "OFFSET = 1.0"),
        with_text("OFFSET = 1.0", "OFFSET = 3.0"),
        {"moves"},
    ),
    "a global that a helper reads": (
        with_text("FACTOR = 2.0", "FACTOR = 2.0"),
        with_text("FACTOR = 2.0", "FACTOR = 2.5"),
        {"scales"},
    ),
    "a closure value": (
        lambda _: load()["analysis"](),
        lambda _: load()["analysis"](shift=0.75),
        {"shifts"},
    ),
    "a correction file": (with_correction("1.5"), with_correction("1.25"), {"corrected"}),
    "a weight": (
        with_text("return g", "return g"),
        with_text("return g", "return g * 1.5"),
        {"weighted"},
    ),
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
    "a region": (
        lambda _: load()["analysis"](),
        lambda _: load()["analysis"](extra=True),
        OUTPUTS - {"corrected"},
    ),
    "comments": (
        lambda _: load()["analysis"](),
        with_text("def helper(x):\n", "\ndef helper(x):\n    # better\n"),
        set(),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_exactly_what_a_change_touches_is_done_again(
    change: str, engine: str, tmp_path: Path, files: Any
) -> None:
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
    again = load()["analysis"](high=0.6).run(
        opened(files), rundir=tmp_path / "run", resume=True, progress=False
    )
    whole = load()["analysis"](high=0.6).run(opened(files), progress=False)
    assert again.steps["count"].calls < whole.steps["count"].calls
    assert said(again) == said(whole)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINDROW_TEST_BOOM", str(stop))
        with contextlib.suppress(StepError):
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
    again = analysis(opaque()).run(
        opened(files), rundir=tmp_path / "run", resume=True, progress=False
    )
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
        result = analysis(version).run(
            opened(files), rundir=tmp_path / "run", resume=True, progress=False
        )
        assert bool(result.reads) == again


def test_saved_files_are_complete_after_resuming(tmp_path: Path, files: Any) -> None:
    def analysis() -> Any:
        made = load()["analysis"]()
        made.save(str(tmp_path / "{dataset}.parquet"), columns=["x", "scaled"], region="A")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINDROW_TEST_BOOM", "0.999")
        with pytest.raises(StepError):
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
    result = load()["analysis"]().run(
        opened(files), rundir=tmp_path / "new", resume=True, progress=False
    )
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
    blobs = place / "blobs"
    return len(list(blobs.iterdir())) if blobs.is_dir() else 0


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


FAILING = SOURCE.replace(
    "return y + shift", "assert not (y > 0.999).any() or len(y) > 10**9; return y + shift"
)


@pytest.mark.parametrize("before", [SOURCE, FAILING])
def test_rows_that_are_left_out_leave_everything_after_resuming_too(
    before: str, tmp_path: Path
) -> None:
    """A row that fails in one output is in no other, whether or not that one was made before."""
    data = opened({"one": events(5000, 1)})
    options = {"on_error": "skip", "progress": False}
    load(before)["analysis"]().run(data, rundir=tmp_path / "run", **options)
    fresh = load(FAILING)["analysis"]().run(data, **options)
    assert fresh.ledger.failed > 0
    again = load(FAILING)["analysis"]().run(
        data, rundir=tmp_path / "run", resume=True, chunk=700, **options
    )
    assert said(again) == said(fresh)
    assert again.ledger.failed == fresh.ledger.failed
    assert any("left out" in note for note in again.notes)
