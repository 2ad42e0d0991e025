"""Steps that raise, files that break and Ctrl-C: what is left, and what the ledger says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from description import Dataset, File, MemoryReader, MemorySource
from windrow import errors

#: What other processes kept is used here, or the other way round.
pytestmark = pytest.mark.usefixtures("new_program")

ROWS, UNIT = 70, 10

WAYS = [
    pytest.param({"engine": "inline", "chunk": UNIT}, id="inline-unit"),
    pytest.param({"engine": "inline", "chunk": 3 * UNIT}, id="inline-three"),
    pytest.param({"engine": "inline"}, id="inline-auto"),
    pytest.param({"engine": "inline", "_block_rows": 4}, id="inline-blocks"),
    pytest.param({"engine": "threads", "workers": 3, "chunk": 2 * UNIT}, id="threads-two"),
    pytest.param({"engine": "threads", "workers": 2}, id="threads-auto"),
]


class OddError(Exception):
    """Nobody but the user knows it."""


def dataset(name: str = "d", rows: int = ROWS) -> Dataset:
    file = File(
        label=f"{name}.mem",
        columns={"x": np.arange(rows), "half": np.arange(rows) / 2},
        borders=(*range(0, rows, UNIT), rows),
    )
    return Dataset(name=name, files=(file,))


def fragile(*bad: int) -> Any:
    """Cut "odd" raises on the rows ``bad``; rows below 5 never reach it."""
    analysis = wr.Pipeline("fragile")

    @analysis.cut
    def late(x):  # type: ignore[no-untyped-def]
        return x >= 5

    @analysis.cut
    def odd(x):  # type: ignore[no-untyped-def]
        if np.isin(x, bad).any():
            raise OddError("no such luck")
        return x % 2 == 1

    analysis.region("signal", "late", "odd")

    @analysis.output(regions="*")
    def rows(x):  # type: ignore[no-untyped-def]
        return x.tolist()

    @analysis.output(region=None)
    def everything(x):  # type: ignore[no-untyped-def]
        return x.tolist()

    return analysis


class TestStop:
    @pytest.mark.parametrize("options", WAYS)
    def test_the_error_says_where(self, options: dict[str, Any]) -> None:
        with pytest.raises(errors.StepError) as info:
            fragile(33).run(MemorySource([dataset()]), progress=False, **options)
        error = info.value
        assert isinstance(error.__cause__, OddError)
        for word in ("odd", "d.mem", "OddError", "no such luck"):
            assert word in str(error)
        facts = error.facts
        assert (facts["step"], facts["file"]) == ("odd", "d.mem")
        assert facts["start"] <= 33 < facts["stop"]
        if options.get("chunk") == UNIT:
            assert 30 <= facts["start"] < facts["stop"] <= 40

    def test_rows_removed_above_do_not_raise(self) -> None:
        result = fragile(3).run(MemorySource([dataset()]), progress=False)
        assert result["rows", "signal"] == list(range(5, ROWS, 2))

    def test_an_output_that_raises(self) -> None:
        analysis = fragile()

        @analysis.output(regions="*")
        def broken(x):  # type: ignore[no-untyped-def]
            raise OddError("in the output")

        with pytest.raises(errors.StepError, match=r"broken.*OddError|OddError.*broken"):
            analysis.run(MemorySource([dataset()]), progress=False)

    def test_a_weight_that_raises(self) -> None:
        analysis = fragile()

        @analysis.weight
        def heavy(x):  # type: ignore[no-untyped-def]
            raise OddError("too heavy")

        @analysis.output
        def total(weight):  # type: ignore[no-untyped-def]
            return float(weight.sum())

        with pytest.raises(errors.StepError, match="heavy"):
            analysis.run(MemorySource([dataset()]), progress=False)


class TestSkip:
    @pytest.mark.parametrize("options", WAYS)
    def test_rows_that_fail_are_left_out_and_listed(self, options: dict[str, Any]) -> None:
        source = MemorySource([dataset()])
        result = fragile(33, 61, 62).run(source, progress=False, on_error="skip", **options)
        left = [x for x in range(ROWS) if x not in (33, 61, 62)]
        assert result["everything"] == left
        assert result["rows", "signal"] == [x for x in left if x >= 5 and x % 2]
        ledger = result.ledger
        assert (ledger.total, ledger.done, ledger.failed, ledger.missing) == (ROWS, 67, 3, 0)
        assert not ledger.complete
        assert not result.complete
        assert result.exit_code == 2
        failed = [entry for entry in ledger.entries if entry.state == "failed"]
        rows = sorted(row for entry in failed for row in range(entry.start, entry.stop))
        assert rows == [33, 61, 62]
        assert all("odd" in entry.reason and "OddError" in entry.reason for entry in failed)
        lines = result.cutflow["signal"].executed
        assert [line.passed for line in lines] == [67, 62, len(result["rows", "signal"])]

    def test_all_rows_fail_that_can(self) -> None:
        source = MemorySource([dataset()])
        result = fragile(*range(ROWS)).run(source, progress=False, on_error="skip")
        # Rows below 5 never reach the cut.
        assert (result.ledger.done, result.ledger.failed) == (5, ROWS - 5)
        assert result["rows", "signal"] == []
        assert result.exit_code == 2

    def test_a_guarded_step_is_not_skipped(self) -> None:
        source = MemorySource([dataset()])
        analysis = fragile(1, 2)
        result = analysis.run(source, progress=False, order=["odd", "late"])
        assert result.complete
        assert result["rows", "signal"] == list(range(5, ROWS, 2))
        assert ("odd", "late") in analysis.guards

    def test_a_wrong_result_is_skipped_too(self) -> None:
        analysis = fragile()

        @analysis.cut
        def short(x):  # type: ignore[no-untyped-def]
            return (x > 0)[: None if x.max() < 60 else -1]

        analysis.region("short", "late", "short")
        source = MemorySource([dataset()])
        result = analysis.run(source, progress=False, on_error="skip", chunk=UNIT)
        assert (result.ledger.done, result.ledger.failed) == (60, 10)

    def test_other_files_go_on(self) -> None:
        datasets = [dataset("a"), dataset("b")]
        source = Breaking(datasets, file=0, rows=range(20, 30))
        result = fragile().run(source, progress=False, on_error="skip")
        assert result["everything", "nominal", "b"] == list(range(ROWS))
        assert result["everything", "nominal", "a"] == [*range(20), *range(30, ROWS)]
        assert (result.ledger.failed, result.exit_code) == (10, 2)


class Breaking(MemorySource):
    """A source one of whose files cannot be read in some rows."""

    def __init__(self, datasets: list[Dataset], file: int, rows: range) -> None:
        super().__init__(datasets)
        self.file, self.rows = file, rows

    def open(self, index: int) -> MemoryReader:
        reader = super().open(index)
        if index == self.file:
            original = reader.read

            def read(columns: Any, start: int, stop: int) -> dict[str, Any]:
                if start < self.rows.stop and self.rows.start < stop:
                    raise errors.CorruptFileError(f"{self.inputs[index].label}: bad block")
                return original(columns, start, stop)

            reader.read = read  # type: ignore[method-assign]
        return reader


class TestBadFiles:
    def test_a_bad_block_stops(self) -> None:
        source = Breaking([dataset("a"), dataset("b")], file=1, rows=range(40, 45))
        with pytest.raises(errors.DataError, match=r"b\.mem"):
            fragile().run(source, progress=False)

    def test_a_file_that_does_not_open_is_skipped_and_said(self, tmp_path: Path) -> None:
        good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
        pq.write_table(pa.table({"x": np.arange(ROWS)}), good)
        bad.write_text("not parquet at all" * 10)
        with pytest.raises(errors.CorruptFileError, match=r"bad\.parquet"):
            fragile().run([str(good), str(bad)], progress=False)
        result = fragile().run([str(good), str(bad)], progress=False, on_error="skip")
        assert result["everything"] == list(range(ROWS))
        assert not result.complete
        assert result.exit_code == 2
        assert any("bad.parquet" in entry.file for entry in result.ledger.entries)


# --- Ctrl-C ---------------------------------------------------------------------------------------


def check_partial(result: Any, source_rows: int) -> None:
    ledger = result.ledger
    assert not result.complete
    assert result.exit_code == 2
    assert ledger.total == source_rows
    assert ledger.missing > 0
    assert ledger.done + ledger.failed + ledger.missing == ledger.total
    done: set[int] = set()
    missing: set[int] = set()
    for entry in ledger.entries:
        {"done": done, "missing": missing}[entry.state].update(range(entry.start, entry.stop))
    assert not done & missing
    assert done | missing == set(range(source_rows))
    assert (len(done), len(missing)) == (ledger.done, ledger.missing)
    assert sorted(result["everything"]) == sorted(done)


class TestInterrupt:
    def test_inline(self) -> None:
        analysis = fragile()

        @analysis.column
        def stop(x):  # type: ignore[no-untyped-def]
            if 45 in x:
                raise KeyboardInterrupt
            return x

        @analysis.output(region=None)
        def stops(stop):  # type: ignore[no-untyped-def]
            return len(stop)

        result = analysis.run(MemorySource([dataset()]), progress=False, engine="inline", chunk=UNIT)
        check_partial(result, ROWS)
        assert result.ledger.done == 40
        assert str(result.cutflow["signal"])

    def test_a_signal_while_threads_work(self, tmp_path: Path) -> None:
        """The process sends itself the signal from a step, then waits for it to have arrived."""
        script = tmp_path / "script.py"
        script.write_text(THREADS)
        here = Path(__file__).parent
        done = subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), *sys.path])},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "partial result checked" in done.stdout


THREADS = """
import os, signal, threading
import test_pipeline_failures as tests
arrived = threading.Event()
def handler(number, frame):
    arrived.set()
    signal.default_int_handler(number, frame)
signal.signal(signal.SIGINT, handler)
rows = 4000
analysis = tests.fragile()
@analysis.column
def stop(x):
    if 45 in x and not arrived.is_set():   # once: a step is asked about its first rows a second time
        os.kill(os.getpid(), signal.SIGINT)
        arrived.wait(10)   # ends at once where the run keeps the handler it found
    return x
@analysis.output(region=None)
def stops(stop): return len(stop)
source = tests.MemorySource([tests.dataset(rows=rows)])
result = analysis.run(source, progress=False, engine="threads", workers=2, chunk=10)
tests.check_partial(result, rows)
print("partial result checked")
"""


# --- the command line -----------------------------------------------------------------------------


ANALYSIS = """
import os, signal
import numpy as np, windrow as wr
one = wr.Pipeline("one")
@one.cut
def tight(x): {body}
@one.output
def rows(x): return len(x)
"""


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": np.arange(200_000)}), path, row_group_size=20_000)
    return path


def command(*arguments: Any) -> subprocess.CompletedProcess[str]:
    main = "import sys; from windrow.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", main, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


class TestCommandLine:
    def write(self, tmp_path: Path, text: str) -> Path:
        path = tmp_path / "analysis.py"
        path.write_text(textwrap.dedent(text))
        return path

    def test_a_good_run_exits_0(self, tmp_path: Path, parquet: Path) -> None:
        path = self.write(tmp_path, ANALYSIS.format(body="return x >= 100_000"))
        done = command("run", path, parquet)
        assert done.returncode == 0, done.stderr
        assert "100" in done.stdout
        assert "tight" in done.stdout

    def test_no_pipeline(self, tmp_path: Path, parquet: Path) -> None:
        done = command("run", self.write(tmp_path, "x = 1"), parquet)
        assert done.returncode == 1
        assert "analysis.py" in done.stderr
        assert "Pipeline" in done.stderr
        assert "Traceback" not in done.stderr

    def test_two_pipelines(self, tmp_path: Path, parquet: Path) -> None:
        text = ANALYSIS.format(body="return x > 1") + "two = wr.Pipeline('two')\n"
        done = command("run", self.write(tmp_path, text), parquet)
        assert done.returncode == 1
        for word in ("analysis.py", "one", "two"):
            assert word in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("what", ["data", "column", "option"])
    def test_mistakes_exit_1(self, tmp_path: Path, parquet: Path, what: str) -> None:
        body = "return x > 1" if what != "column" else "return undefined > 1"
        path = self.write(tmp_path, ANALYSIS.format(body=body))
        data = parquet if what != "data" else tmp_path / "nowhere.parquet"
        extra = ["--no-such-option"] if what == "option" else []
        done = command("run", path, data, *extra)
        assert done.returncode == 1, (done.stdout, done.stderr)
        word = {"data": "nowhere.parquet", "column": "tight", "option": "no-such-option"}[what]
        assert word in done.stderr

    def test_interrupted_exits_2(self, tmp_path: Path) -> None:
        # More units than are worked on at once: what runs may finish, the rest is missing.
        path = tmp_path / "many.parquet"
        table = pa.table({"x": np.arange(1_400_000)})
        pq.write_table(table, path, row_group_size=140_000)
        body = """
    if 70_000 in x:
        os.kill(os.getpid(), signal.SIGINT)
        arrived.wait(10)   # the signal goes to the main thread, which stops the run
    return x > 1
import threading
arrived = threading.Event()
def handler(number, frame):
    arrived.set()
    signal.default_int_handler(number, frame)
signal.signal(signal.SIGINT, handler)
"""
        done = command("run", self.write(tmp_path, ANALYSIS.format(body=body)), path)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert "missing" in (done.stdout + done.stderr).lower()
        assert signal.SIGINT.name not in done.stderr
