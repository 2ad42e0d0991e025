"""A journal under fire: killed at any moment it speaks of whole blobs only, and of all that were written."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import journal_faults
from journal_writer import content
from searching import few_by_day
from windrow.store.journal.journal import Journal

HERE = Path(__file__).resolve().parents[1]
#: What each scenario may leave, besides the state before and the one after.
BETWEEN = {"create": "no journal", "new run": "no journal"}


def run(scenario: str, rule: str = "") -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(HERE / "journal_faults.py"), scenario, rule]
    return subprocess.run(program, check=False, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("scenario", few_by_day(journal_faults.SCENARIOS, 3))
def test_dying_at_any_step_leaves_the_state_before_or_the_one_after(scenario: str) -> None:
    done = run(scenario)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] >= 10
    states = list(found["states"])
    assert states[-1] == found["after"]
    if scenario in BETWEEN:
        assert states.pop(1) == BETWEEN[scenario]
    changes = scenario != "resumed run"
    assert len(states) == 1 + changes


def test_without_one_transaction_the_check_fails() -> None:
    done = run("write", "one transaction")
    assert done.returncode != 0
    assert "CorruptFileError" in done.stderr


def killed_after(place: Path, seed: int, lines: int, delay_s: float) -> None:
    """Start the writer, wait until its protocol has so many lines, kill it a moment later."""
    protocol = place / "protocol"
    writer = subprocess.Popen([sys.executable, str(HERE / "journal_writer.py"), place, str(seed)])
    try:
        while writer.poll() is None:
            if protocol.exists() and protocol.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.0002)
        time.sleep(delay_s)
    finally:
        writer.kill()
        code = writer.wait()
    assert code == -9


def test_a_killed_writer_loses_nothing_it_was_told_is_written(tmp_path: Path) -> None:
    """Many rounds in one directory: what was done is there, what was tried may be, and nothing else is."""
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    rng = random.Random(20)
    done: dict[str, int] = {}
    tried: dict[str, int] = {}
    for round_ in range(15):
        killed_after(place, round_, rng.randint(1, 20), rng.uniform(0, 0.004))
        for line in (place / "protocol").read_text().splitlines():
            word, key, stop = line.split()
            (done if word == "done" else tried)[key] = int(stop)
        (place / "protocol").unlink()
        with Journal.open(place) as journal:
            journal.validate()
            held = {blob.input: blob for blob in journal.blobs()}
            assert len(held) == len(journal.blobs())
            assert set(done) <= set(held) <= set(tried)
            for key, blob in held.items():
                ((first, last),) = blob.rows
                assert first == 0
                assert last in (done.get(key), tried[key])
                assert journal.read(blob) == content(key, last)
                done[key] = last  # also if it was killed before it could say so
    assert sum(done.values()) > 30
