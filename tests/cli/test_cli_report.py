"""``windrow report``: run directories that ended, and those that did not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from click.testing import CliRunner

import windrow as wr
from windrow.cli.main import main
from windrow.pipeline.results.load import keep

if TYPE_CHECKING:
    from pathlib import Path


def kept_run(directory: Path) -> Path:
    analysis = wr.Pipeline("kept")

    @analysis.cut
    def positive(x: Any) -> Any:
        return x > 0

    @analysis.output
    def total(x: Any) -> Any:
        return float(np.sum(x))

    analysis.region("SR", "positive")
    rundir = directory / "run"
    result = analysis.run({"x": np.arange(-5.0, 5.0)}, progress=False, engine="inline")
    keep(result, rundir)
    return rundir


def test_the_report_of_a_run_directory(tmp_path: Path) -> None:
    rundir = kept_run(tmp_path)
    done = CliRunner().invoke(main, ["report", str(rundir)])
    assert done.exit_code == 0, done.output
    assert "Complete: 10 of 10 rows done." in done.output
    page = (rundir / "report.html").read_text()
    assert "<h1>kept</h1>" in page
    events = json.loads((rundir / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["rows"] for e in events if e["ph"] == "X"] == [10]


def test_page_and_trace_go_where_they_are_wanted(tmp_path: Path) -> None:
    rundir = kept_run(tmp_path)
    out, trace = tmp_path / "a.html", tmp_path / "b.json"
    done = CliRunner().invoke(main, ["report", str(rundir), "--out", str(out), "--trace", str(trace)])
    assert done.exit_code == 0, done.output
    assert out.is_file()
    assert trace.is_file()
    assert not (rundir / "report.html").exists()
    CliRunner().invoke(main, ["report", str(rundir), "--out", str(out)])
    assert (tmp_path / "a.trace.json").is_file()


def test_a_killed_run_has_a_report(tmp_path: Path) -> None:
    rundir = kept_run(tmp_path)
    (rundir / "result.pickle").unlink()
    (rundir / "summary.json").unlink()
    log = (rundir / "events.jsonl").read_text().splitlines(keepends=True)
    log = [line for line in log if '"Resolve"' not in line]
    (rundir / "events.jsonl").write_text("".join(log) + log[-1][:30])
    done = CliRunner().invoke(main, ["report", str(rundir)])
    assert done.exit_code == 2, done.output
    assert "This run did not end" in done.output
    assert "10 rows are finished" in (rundir / "report.html").read_text()


def test_no_run_directory_is_an_error(tmp_path: Path) -> None:
    for place, words in ((tmp_path / "nowhere", "no run directory"), (tmp_path, "not the directory of a run")):
        done = CliRunner().invoke(main, ["report", str(place)])
        assert done.exit_code == 1
        assert words in done.output
        assert "Traceback" not in done.output
