"""A program that is killed while it keeps results leaves whole ones or none."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tasks.reuse_programs import Program
from windrow.store.results import ENDING, Results
from windrow.tasks.reuse.save import KeptValue

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

PROGRAM = """
@wr.task(reuse=True)
def numbers(seed):
    note(f"{seed}")
    return np.full(200_000, seed)

if __name__ == "__main__":
    with wr.Session(engine=sys.argv[1], workers=2) as session:
        found = [numbers(seed) for seed in range(int(sys.argv[2]))]
        print("begun", flush=True)
        sums = [int(one.result().sum()) for one in found]
    print(json.dumps(sums))
"""
#: Just the keeping, as fast as it can: most of the time of a program goes elsewhere.
KEEPING = """
from windrow.tasks.worker import RunningCall
from windrow.tasks.reuse.save import Keep

if __name__ == "__main__":
    print("begun", flush=True)
    for number in range(10**6):
        going = RunningCall(1, "f", len, [], {}, 1, None, bool)
        going.made["1.0"] = np.full(200_000, number % 60)
        with Keep(str(Path("store/results").absolute()), f"{number % 60:02}" * 20, "f").around(going):
            pass
"""
COUNT = 60


def kill(running: subprocess.Popen[str], after_s: float) -> None:
    """End a program, and the processes that it has started, when it has begun."""
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    time.sleep(after_s)
    os.killpg(running.pid, signal.SIGKILL)
    running.stdout.close()
    running.wait()


def check(results: Results) -> int:
    """See that all that is there is whole; return how much that is."""
    there = list(results.directory.rglob(f"*{ENDING}"))
    for path in there:
        value = KeptValue(str(results.directory), path.stem, "0").load()
        assert value.shape == (200_000,)
        assert np.all(value == value[0])
    return len(there)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_while_keeping(tmp_path: Path, kills: int) -> None:
    program = Program(tmp_path, KEEPING)
    rng = random.Random(5)
    results = Results(tmp_path / "store" / "results")
    for _ in range(kills):
        kill(program.start(), rng.uniform(0, 0.05))
        check(results)


def test_a_killed_program_goes_on_where_it_was(tmp_path: Path) -> None:
    program = Program(tmp_path, PROGRAM)
    results = Results(tmp_path / "store" / "results")
    for engine in ("processes", "threads"):
        kill(program.start(engine, f"{COUNT}"), 0.05)
        before = check(results)
    sums, ran = program.run("threads", f"{COUNT}")
    assert sums == [200_000 * seed for seed in range(COUNT)]
    assert len(ran) == COUNT - before
    assert program.run("threads", f"{COUNT}") == (sums, [])
