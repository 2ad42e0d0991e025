"""A journal under fire: killed at any moment it speaks of whole blobs only, and of all that were written."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import journal_faults
from journal_writer import content
from searching import few_by_day
from windrow.store.journal import Journal

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
    assert found["steps"] >= 20
    states = list(found["states"])
    assert states[-1] == found["after"]
    if scenario in BETWEEN:
        assert states.pop(1) == BETWEEN[scenario]
    changes = scenario != "resumed run"
    assert len(states) == 1 + changes


@pytest.mark.parametrize("rule", ["one transaction", "remove last"])
def test_without_a_rule_of_the_protocol_the_check_fails(rule: str) -> None:
    done = run("write", rule)
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
            assert len(list((place / "blobs").iterdir())) == len(held)
    assert sum(done.values()) > 30


def test_nothing_depends_on_what_a_power_cut_could_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is on the disk before it has its name, the name before the commit, the commit before a removal."""
    tmp_path.chmod(0o700)
    journal_faults.prepare(tmp_path / "run")
    trace: list[str] = []
    named: dict[int, str] = {}

    def traced(name: str) -> None:
        function = getattr(os, name)

        def call(first: Any, *args: Any, **kwargs: Any) -> Any:
            what = named.get(first, "?") if isinstance(first, int) else Path(first).name
            answer = function(first, *args, **kwargs)
            if name == "open":
                named[answer] = what
            elif not trace or trace[-1] != f"{name} {what}":
                trace.append(f"{name} {what}")
            return answer

        monkeypatch.setattr(os, name, call)

    with Journal.open(tmp_path / "run") as journal:
        journal._connection.set_trace_callback(
            lambda statement: trace.append(statement) if statement == "COMMIT" else None
        )
        for name in ("open", "write", "fsync", "replace", "unlink"):
            traced(name)
        journal_faults.write_over(journal)
        monkeypatch.undo()
        assert journal._connection.execute("PRAGMA synchronous").fetchone()[0] >= 2
    assert trace == [
        "write 00000003.blob.part",
        "fsync 00000003.blob.part",
        "replace 00000003.blob.part",
        "fsync blobs",
        "COMMIT",
        "unlink 00000001.blob",
    ]
