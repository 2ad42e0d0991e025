"""The command line as a process of its own: start-up, exit codes, pipes and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow

#: As from a terminal: a background job would inherit that Ctrl-C is ignored.
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from windrow.cli.main import main
main()
"""
WINDROW = [sys.executable, "-c", START]
#: Far more than any of these takes; only a hang ends here.
LIMIT_S = 120

#: The first call says that it runs and then waits until it is told to go on, or for so long that
#: the test has given up.
WAITING = """
import select, sys
import windrow as wr

analysis = wr.Pipeline("waiting")
data = wr.data.open("data.parquet", grid=10)
waited = []

@analysis.cut
def patient(x):
    if not waited:
        waited.append(True)
        print("started", flush=True)
        select.select([sys.stdin], [], [], 60)
    return x >= 0

@analysis.output
def total(x):
    return int(x.sum())
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    table = pa.table({"x": np.arange(1000)})
    pq.write_table(table, tmp_path / "data.parquet")
    (tmp_path / "waiting.py").write_text(WAITING)
    return tmp_path


def environment() -> dict[str, str]:
    """The tests' own windrow, wherever it was imported from."""
    source = str(Path(windrow.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "default"}


def finished(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WINDROW, *arguments], cwd=cwd, env=environment(), timeout=LIMIT_S, check=False,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["threads", "inline"])
def test_ctrl_c_keeps_what_is_done_and_lists_what_is_missing(place: Path, engine: str) -> None:
    command = [*WINDROW, "run", "waiting.py", "--chunk=10", "--json=out.json",
               "--workers=2", f"--engine={engine}"]  # fmt: skip
    with subprocess.Popen(
        command, cwd=place, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            process.send_signal(signal.SIGINT)  # pending before the step is told to go on
            stdout, stderr = process.communicate("go\n", timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 2, stderr
    assert "windrow: interrupted: " in stderr
    assert " missing" in stderr
    assert "Traceback" not in stderr
    assert " of 1,000 rows done" in stdout
    found = json.loads((place / "out.json").read_text())
    assert (found["interrupted"], found["complete"], found["exit_code"]) == (True, False, 2)
    rows = found["rows"]
    assert rows["missing"] > 0
    assert rows["failed"] == 0
    assert rows["done"] + rows["missing"] == 1000
    # What is said to be done is what the cutflow counted.
    assert found["cutflow"]["all"]["all"]["passed"] == rows["done"]


def test_ctrl_c_while_loading_leaves_no_result(place: Path) -> None:
    (place / "slow.py").write_text("print('started', flush=True)\nimport sys\nsys.stdin.readline()\n")
    with subprocess.Popen(
        [*WINDROW, "run", "slow.py", "data.parquet"], cwd=place, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert stderr.splitlines()[-1] == "windrow: interrupted, no result"
    assert "Traceback" not in stderr


def test_exit_codes(place: Path) -> None:
    done = finished("run", "waiting.py", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "1,000 of 1,000 rows done" in done.stdout
    assert done.stderr == ""  # no progress where nobody looks
    assert finished("run", "nowhere.py", cwd=place).returncode == 1
    assert finished("run", "--bogus", cwd=place).returncode == 1


def test_version(tmp_path: Path) -> None:
    found = finished("--version", cwd=tmp_path)
    assert (found.returncode, found.stdout) == (0, f"windrow {windrow.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["run", "--x"]])
def test_help_and_mistakes_answer_without_heavy_imports(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from windrow.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'numpy', 'awkward', 'uproot', 'numba', 'pyarrow', 'hist', 'rich'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), timeout=LIMIT_S, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.splitlines()[-1] == "heavy: []"
