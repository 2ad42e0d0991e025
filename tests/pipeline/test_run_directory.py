"""What a run leaves in its directory: while it goes on, when it ends, and when it fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import StepError, UsageError
from windrow.store import disk

if TYPE_CHECKING:
    from pathlib import Path

#: What other processes kept is used here, or the other way round.
pytestmark = pytest.mark.usefixtures("new_program")


def counting() -> wr.Pipeline:
    analysis = wr.Pipeline("counting")

    @analysis.cut
    def positive(x: Any) -> Any:
        return x > 0

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    return analysis


def manifest(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
    return found


def test_a_run_can_be_had_back(tmp_path: Path) -> None:
    place = tmp_path / "run"
    data = {"a": {"x": np.arange(-3, 5)}, "b": {"x": np.arange(4)}}
    result = counting().run(data, rundir=place, nminus1=True, progress=False)
    assert oct(place.stat().st_mode & 0o777) == "0o700"
    assert sorted(item.name for item in place.iterdir()) == [
        "events.jsonl",
        "journal.sqlite",
        "manifest.json",
        "result.pickle",
        "summary.json",
    ]
    again = wr.load(place)
    assert again["count"] == result["count"] == {"a": 4, "b": 3}
    assert again.cutflow.as_dict() == result.cutflow.as_dict()
    assert again.nminus1.as_dict() == result.nminus1.as_dict()
    assert again.ledger == result.ledger
    assert again.kept.rows("all", 0).tolist() == [4, 5, 6, 7]
    facts = manifest(place)
    assert facts["state"] == "complete"
    assert facts["options"]["nminus1"] is True
    assert facts["environment"]["packages"]["numpy"] == np.__version__
    assert [item["dataset"] for item in facts["inputs"]] == ["a", "b"]


def test_a_run_that_fails_says_so(tmp_path: Path) -> None:
    analysis = counting()

    @analysis.column
    def broken(x: Any) -> Any:
        raise ValueError("no good")

    @analysis.output
    def total(broken: Any) -> int:
        return len(broken)

    with pytest.raises(StepError):
        analysis.run({"x": np.arange(5)}, rundir=tmp_path / "run", progress=False)
    facts = manifest(tmp_path / "run")
    assert facts["state"] == "failed"
    assert "no good" in facts["error"]
    with pytest.raises(Exception, match="the run failed"):
        wr.load(tmp_path / "run")


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    analysis = counting()
    analysis.run({"x": np.arange(5)}, rundir=tmp_path / "run", progress=False)
    analysis.run({"x": np.arange(9)}, rundir=tmp_path / "run", progress=False)
    assert wr.load(tmp_path / "run")["count"] == 8


def test_a_place_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        counting().run({"x": np.arange(5)}, rundir=tmp_path / "file", progress=False)
    assert (tmp_path / "file").read_text() == "mine"


SLOW = """
import sys, time
import numpy as np
import windrow as wr
analysis = wr.Pipeline("slow")
@analysis.output
def count(x):
    time.sleep(0.02)
    return len(x)
print("go", flush=True)
analysis.run(wr.data.open({"x": np.arange(20000)}, grid=10), chunk=10, rundir=sys.argv[1], progress=False)
"""


def test_a_killed_run_leaves_a_log_and_no_result(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", SLOW, str(place)], stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (place / "events.jsonl").exists() or not (place / "events.jsonl").stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert manifest(place)["state"] == "running"
    with pytest.raises(Exception, match=r"still going on, or was killed.*resume=True"):
        wr.load(place)
    lines = (place / "events.jsonl").read_text().splitlines()
    assert any(json.loads(line).get("how") == "done" for line in lines[:-1])


def test_the_content_of_files_that_steps_use_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "scale.json").write_text("2.5")
    scale = wr.file(tmp_path / "scale.json")
    analysis = counting()

    @analysis.column
    def scaled(x: Any) -> Any:
        return scale() * x

    @analysis.output
    def total(scaled: Any, *, factor: Any = scale) -> float:
        return float(factor() * scaled.sum())

    analysis.cut(wr.hep.lumi_mask({"1": [[1, 5]]}), name="golden", reads=["run", "lumi"])
    columns = {"x": np.arange(5), "run": np.ones(5, int), "lumi": np.arange(5)}
    result = analysis.run(columns, rundir=tmp_path / "run", progress=False)
    assert result["total"] == 2.5 * 2.5 * 10
    contents = manifest(tmp_path / "run")["contents"]
    assert list(contents["scaled"].values()) == [scale.fingerprint]
    assert contents["total"]["factor"] == scale.fingerprint
    assert "golden" in contents
    assert "positive" not in contents


class Full:
    """A disk on which nothing fits any more, from the moment that is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write, self.full = disk.write_all, False
        monkeypatch.setattr(disk, "write_all", self)

    def __call__(self, *given: Any) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write(*given)


def test_a_full_disk_does_not_cost_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Full(monkeypatch)
    analysis = counting()

    @analysis.output
    def total(x: Any) -> float:
        disk.full = True
        return float(x.sum())

    with pytest.warns(
        UserWarning, match=r"the result could not be written to .*No space left.*result\.pickle.*save it elsewhere"
    ):
        result = analysis.run({"x": np.arange(5)}, rundir=tmp_path / "run", engine="inline", progress=False)
    assert result.complete
    assert result["total"] == 10
    assert "the result could not be written" in result.notes[-1]
    assert not list((tmp_path / "run").glob("*.part"))


def test_a_full_disk_does_not_hide_why_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Full(monkeypatch)
    analysis = wr.Pipeline("failing")

    @analysis.output
    def total(x: Any) -> float:
        disk.full = True
        raise ValueError("no such thing")

    with pytest.raises(StepError, match="no such thing"):
        analysis.run({"x": np.arange(5)}, rundir=tmp_path / "run", engine="inline", progress=False)
