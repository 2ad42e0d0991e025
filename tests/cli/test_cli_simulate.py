"""``windrow simulate``: what it prints, and what it says when it cannot."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import windrow as wr
from recorded_run import record, uneven
from windrow.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


def windrow(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


@pytest.fixture
def rundir(tmp_path: Path) -> Path:
    model = uneven(memory_fixed=1e8, memory_per_row=1e4)
    record(tmp_path / "run", model, 2, kind="processes")
    return tmp_path / "run"


def test_it_says_what_n_workers_would_give(rundir: Path) -> None:
    done = windrow(rundir, "--workers", 12)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("recorded: 2 workers (processes), ")
    table = [line.split() for line in lines if line[:9].strip().isdigit()]
    assert [line[0] for line in table[:5]] == ["1", "2", "4", "8", "12"]
    assert any(line.startswith("12 processes: ") for line in lines)
    assert any(line.startswith("limited by ") for line in lines)


def test_one_worker_is_one(rundir: Path) -> None:
    done = windrow(rundir, "--workers", 1)
    assert "\n1 process: " in done.output
    done = windrow(rundir, "--workers", 1, "--engine", "threads")
    assert "\n1 thread: " in done.output


def test_too_many_workers_are_refused(rundir: Path) -> None:
    done = windrow(rundir, "--workers", 100_001)
    assert done.exit_code == 1
    assert "1<=x<=100000" in done.output


def test_computing_and_its_largest_loss_are_shares_of_the_same_time(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(), 1, kind="processes", outside_s=20.0)
    found = json.loads(windrow(tmp_path / "run", "--workers", 4, "--json").output)
    for one in found["forecasts"]:
        lost = re.search(r"before the first .* \((\d+)% of the workers' time\)", one["limit"])
        assert lost is not None
        assert one["utilisation"] + int(lost[1]) / 100 <= 1.005


def test_json_has_all_of_it(rundir: Path) -> None:
    done = windrow(rundir, "--workers", 4, "--json")
    found = json.loads(done.output)
    walls = [one["seconds"] for one in found["forecasts"]]
    assert walls == sorted(walls, reverse=True)
    assert found["forecasts"][1]["speedup"] == pytest.approx(1.0, rel=0.05)
    assert found["forecasts"][1]["efficiency"] == pytest.approx(1.0, rel=0.05)
    assert found["recorded"]["workers"] == 2
    one = found["forecasts"][0]
    assert one["low"] <= one["seconds"] <= one["high"]


def test_memory_bounds_the_workers(rundir: Path) -> None:
    done = windrow(rundir, "--workers", 64, "--memory", "1 GB")
    assert "memory: 8 of 64 workers fit into 1 GB" in done.output
    assert "\n8 processes: " in done.output
    done = windrow(rundir, "--workers", 4, "--memory", "1 GB")
    assert "4 of 4 workers fit into 1 GB, with 480 MB" in done.output


def test_memory_that_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(), 2, kind="processes")
    done = windrow(tmp_path / "run", "--workers", 4, "--memory", "1 GB")
    assert done.exit_code == 0
    assert "whether 4 fit into 1 GB is not known" in done.output


def test_threads_and_processes_differ_by_the_lock(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(lock_share=1.0), 2, kind="threads")
    threads = json.loads(windrow(tmp_path / "run", "--workers", 4, "--json").output)
    options = ("--workers", 4, "--json", "--engine", "processes")
    processes = json.loads(windrow(tmp_path / "run", *options).output)
    assert processes["forecasts"][-1]["seconds"] < 0.5 * threads["forecasts"][-1]["seconds"]
    assert "lock" in threads["forecasts"][-1]["limit"]


def test_a_seed_gives_the_same_answer_twice(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(sigma=0.3), 2)
    first, again, other = (
        windrow(tmp_path / "run", "--workers", 4, "--json", "--seed", seed).output for seed in (1, 1, 9)
    )
    assert first == again
    assert first != other


def test_a_killed_run_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(), 2, ended=False)
    done = windrow(tmp_path / "run", "--workers", 2)
    assert done.exit_code == 0
    assert "did not come to its end" in done.output
    assert "speed-ups compare all rows with those done" in done.output


def test_errors_are_sentences(rundir: Path, tmp_path: Path) -> None:
    for arguments, words in [
        ((tmp_path / "nowhere",), "no run directory"),
        ((tmp_path,), "not the directory of a run"),
        ((rundir, "--memory", "50 MB"), "too little for one worker"),
        ((rundir, "--memory", "lots"), "a size is written"),
        ((rundir, "--device", "local-disc"), "did you mean 'local-disk'"),
    ]:
        done = windrow(*arguments)
        assert done.exit_code == 1
        assert done.output.startswith("windrow: error: ")
        assert words in done.output
    (rundir / "events.jsonl").unlink()
    assert "no event log" in windrow(rundir).output


@wr.task
def half_second(number: int, before: Any = None) -> int:
    time.sleep(0.05)
    return number


def test_a_session_is_foretold_too(tmp_path: Path) -> None:
    with wr.Session(engine="threads", workers=2, name="s", rundir=tmp_path / "run") as session:
        chain = half_second(0, half_second(0, half_second(0)))
        session.gather([chain, *(half_second(number) for number in range(9))])
    done = CliRunner().invoke(main, ["simulate", str(tmp_path / "run"), "--workers", "16", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["recorded"]["tasks"] == 12
    by_workers = {one["workers"]: one["seconds"] for one in found["forecasts"]}
    assert list(by_workers) == [1, 2, 4, 8, 16]
    # Twelve tasks of 50 ms one after the other; the chain of three is the least.
    assert by_workers[1] >= 0.6
    assert by_workers[16] >= 0.15
    assert by_workers[1] > by_workers[2] > by_workers[4] >= by_workers[16]
    text = CliRunner().invoke(main, ["simulate", str(tmp_path / "run")]).output
    assert "recorded: 2 workers (threads)" in text
    assert "limited by" in text
    refused = CliRunner().invoke(main, ["simulate", str(tmp_path / "run"), "--device", "node-ssd"])
    assert refused.exit_code == 1
