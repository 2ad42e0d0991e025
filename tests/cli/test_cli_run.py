"""``windrow run`` on small files: what is found, run, printed and written, and the exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import windrow
from windrow.cli.main import main
from windrow.store.rundir import RunDirectory

ROWS = 100

NUMBERS = """
import windrow as wr

analysis = wr.Pipeline("numbers")

@analysis.cut
def even(x):
    return x % 2 == 0

@analysis.cut
def large(x, *, least=50):
    return x >= least

analysis.region("all", "even")
analysis.region("top", "even", "large")

@analysis.output
def total(x):
    return int(x.sum())
"""

#: Cut into units of ten rows, of which the fourth cannot be done.
FRAGILE = """
import windrow as wr

analysis = wr.Pipeline("fragile")
data = wr.data.open("part0.parquet", grid=10)

@analysis.cut
def small(x):
    if (x == 37).any():
        raise ValueError("cannot do 37")
    return x < 50

@analysis.output
def total(x):
    return int(x.sum())
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with analyses and two files."""
    monkeypatch.chdir(tmp_path)
    Path("numbers_analysis.py").write_text(NUMBERS)
    Path("fragile.py").write_text(FRAGILE)
    for number in range(2):
        start = number * ROWS
        table = pa.table({"x": np.arange(start, start + ROWS)})
        pq.write_table(table, f"part{number}.parquet")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", *arguments])


def summary(*arguments: str) -> Any:
    result = run(*arguments, "--json=-")
    assert result.exit_code in (0, 2), result.output
    return json.loads(result.stdout)


def passed(found: Any, region: str = "top") -> int:
    return int(found["cutflow"][region]["all"]["passed"])


# -- a run that is complete -----------------------------------------------------------------------


def test_prints_the_cutflow_of_every_region_the_ledger_and_the_speed() -> None:
    result = run("numbers_analysis.py", "part0.parquet", "part1.parquet")
    assert result.exit_code == 0, result.output
    assert "all (data): exact, written order" in result.stdout
    assert "top (data): exact, written order" in result.stdout
    assert "200 of 200 rows done" in result.stdout
    assert " rows/s, " in result.stdout
    assert result.stderr == ""


def test_quiet_prints_nothing() -> None:
    result = run("numbers_analysis.py", "part0.parquet", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


def test_explain_says_what_was_decided() -> None:
    result = run("numbers_analysis.py", "part0.parquet", "--explain")
    assert result.exit_code == 0
    assert "- engine: inline, because the data is too small" in result.stdout
    assert "rows in" in result.stdout


@pytest.mark.parametrize("progress", ["--progress", "--no-progress"])
def test_progress_goes_to_stderr_on_request(progress: str) -> None:
    result = run("numbers_analysis.py", "part0.parquet", progress)
    assert ("numbers: 100 of 100 rows (100 %)" in result.stderr) == (progress == "--progress")
    assert "rows (100 %)" not in result.stdout


# -- data -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "rows"), [(["part0.parquet"], 100), (["part0.parquet", "part1.parquet"], 200), (["part*.parquet"], 200)]
)
def test_files_and_globs(data: list[str], rows: int) -> None:
    assert summary("numbers_analysis.py", *data)["rows"]["done"] == rows


def test_a_fileset() -> None:
    fileset = {"a": {"files": ["part0.parquet"]}, "b": {"files": ["part1.parquet"]}}
    Path("fileset.json").write_text(json.dumps(fileset))
    found = summary("numbers_analysis.py", "fileset.json")
    assert found["cutflow"]["top"]["datasets"]["a"]["passed"] == 25
    assert found["cutflow"]["top"]["datasets"]["b"]["passed"] == 50


def test_a_tree_of_a_root_file() -> None:
    import uproot

    with uproot.recreate("two.root") as file:
        file["first"] = {"x": np.arange(10)}
        file["second"] = {"x": np.arange(100)}
    assert summary("numbers_analysis.py", "two.root:second")["rows"]["done"] == 100


@pytest.mark.parametrize("name", ["data", "fileset"])
def test_data_of_the_analysis_file(name: str) -> None:
    Path("own.py").write_text(NUMBERS + f"{name} = ['part0.parquet']\n")
    assert summary("own.py")["rows"]["done"] == 100
    assert summary("own.py", "part*.parquet")["rows"]["done"] == 200


def test_an_imported_module_is_no_data() -> None:
    Path("own.py").write_text(NUMBERS + "from windrow import data\nfileset = 'part0.parquet'\n")
    assert summary("own.py")["rows"]["done"] == 100


# -- which pipeline -------------------------------------------------------------------------------


def test_the_only_pipeline_whatever_its_names() -> None:
    Path("one.py").write_text(NUMBERS.replace("analysis", "mine") + "\nalso = mine\n")
    assert summary("one.py", "part0.parquet")["pipeline"] == "numbers"


def test_the_one_named_analysis_wins() -> None:
    Path("two.py").write_text(NUMBERS + "\nother = wr.Pipeline('other')\n")
    assert summary("two.py", "part0.parquet")["pipeline"] == "numbers"


def test_one_is_picked_by_name() -> None:
    text = NUMBERS.replace("analysis", "mine") + "\nother = wr.Pipeline('other')\n"
    Path("two.py").write_text(text)
    assert summary("two.py:mine", "part0.parquet")["pipeline"] == "numbers"


def test_the_module_has_its_own_name_and_finds_its_neighbours(place: Path) -> None:
    Path("analyses").mkdir()
    Path("analyses/neighbour_of_mine.py").write_text("LEAST = 90\n")
    text = NUMBERS.replace("least=50", "least=LEAST").replace(
        "import windrow", "from neighbour_of_mine import LEAST\nassert __name__ == 'mine'\nimport windrow"
    )
    Path("analyses/mine.py").write_text(text)
    before = list(sys.path)
    try:
        assert passed(summary("analyses/mine.py", "part0.parquet")) == 5
    finally:
        sys.modules.pop("neighbour_of_mine", None)
    assert "mine" not in sys.modules
    assert sys.path == before


def test_a_file_named_like_a_standard_module_replaces_nothing() -> None:
    Path("random.py").write_text(NUMBERS)
    import random

    assert passed(summary("random.py", "part0.parquet")) == 25
    assert sys.modules["random"] is random


# -- options --------------------------------------------------------------------------------------


def test_options_reach_the_run() -> None:
    found = summary("numbers_analysis.py", "part*.parquet", "--max-rows", "30", "--chunk=10",
                    "--engine=threads", "--workers=2", "--seed=5", "--order=written")  # fmt: skip
    assert found["rows"]["total"] == 30
    assert (found["engine"], found["workers"], found["seed"]) == ("threads", 2, 5)


def test_an_order_of_steps() -> None:
    found = summary("numbers_analysis.py", "part0.parquet", "--order", "large, even")
    lines = found["cutflow"]["top"]["all"]["executed"]
    assert [line["cut"] for line in lines] == ["initial", "large", "even"]
    assert passed(found) == 25


def test_a_cutflow_for_some_datasets() -> None:
    fileset = {"sig": {"files": ["part0.parquet"]}, "bkg": {"files": ["part1.parquet"]}}
    Path("fileset.json").write_text(json.dumps(fileset))
    found = summary("numbers_analysis.py", "fileset.json", "--order=large,even", "--cutflow=sig*=exact")
    tables = found["cutflow"]["top"]["datasets"]
    assert tables["sig"]["written"] is not None
    assert [line["cut"] for line in tables["bkg"]["executed"]][:3] == ["initial", "large", "even"]


def test_a_run_directory_gets_the_log_and_the_summary() -> None:
    assert run("numbers_analysis.py", "part0.parquet", "--rundir", "runs/one").exit_code == 0
    assert json.loads(Path("runs/one/summary.json").read_text())["rows"]["done"] == 100
    lines = Path("runs/one/events.jsonl").read_text().splitlines()
    assert any(json.loads(line).get("how") == "done" for line in lines)


# -- incomplete -----------------------------------------------------------------------------------


def test_rows_left_out_are_listed_and_the_exit_code_is_2() -> None:
    result = run("fragile.py", "--on-error=skip")
    assert result.exit_code == 2
    assert "99 of 100 rows done, 1 failed" in result.stdout
    assert "windrow: incomplete: 99 of 100 rows done, 1 failed" in result.stderr
    assert "rows 37-38 failed" in result.stderr
    assert "cannot do 37" in result.stderr


def test_quiet_still_says_what_is_missing() -> None:
    result = run("fragile.py", "--on-error=skip", "--quiet")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "rows 37-38 failed" in result.stderr


# -- JSON -----------------------------------------------------------------------------------------


def test_json_has_everything_a_program_needs() -> None:
    found = summary("numbers_analysis.py", "part0.parquet", "--workers=1")
    assert found["windrow"] == windrow.__version__
    assert found["pipeline"] == "numbers"
    assert found["complete"] is True
    assert found["exit_code"] == 0
    assert (found["engine"], found["workers"]) == ("inline", 1)
    assert found["rows"] == {"total": 100, "done": 100, "failed": 0, "missing": 0, "problems": []}
    assert found["rows_per_second"] > 0
    assert found["outputs"] == ["total"]
    lines = found["cutflow"]["top"]["all"]["written"]
    assert [(line["cut"], line["passed"]) for line in lines] == [
        ("initial", 100), ("even", 50), ("large", 25),
    ]  # fmt: skip


def test_json_of_an_incomplete_run() -> None:
    found = summary("fragile.py", "--on-error=skip")
    assert (found["complete"], found["exit_code"]) == (False, 2)
    (problem,) = found["rows"]["problems"]
    assert (problem["start"], problem["stop"], problem["state"]) == (37, 38, "failed")


def test_json_without_a_file_is_standard_output() -> None:
    result = run("numbers_analysis.py", "part0.parquet", "--json")
    assert json.loads(result.stdout)["complete"] is True


def test_what_the_analysis_prints_does_not_disturb_json() -> None:
    Path("loud.py").write_text("print('loading')\n" + NUMBERS.replace(
        "    return x % 2", "    print('working')\n    return x % 2"))  # fmt: skip
    result = run("loud.py", "part0.parquet", "--json", "-")
    assert json.loads(result.stdout)["complete"] is True
    assert "loading" in result.stderr
    assert "working" in result.stderr


def test_json_to_a_file_beside_the_text() -> None:
    result = run("numbers_analysis.py", "part0.parquet", "--json", "out.json")
    assert "100 of 100 rows done" in result.stdout
    assert json.loads(Path("out.json").read_text())["rows"]["done"] == 100
    again = run("numbers_analysis.py", "part*.parquet", "--json", "out.json")
    assert again.exit_code == 0
    assert json.loads(Path("out.json").read_text())["rows"]["done"] == 200
    assert not list(Path().glob("*.part"))


def test_json_has_no_nan() -> None:
    text = NUMBERS + "\n@analysis.weight\ndef odd(x):\n    return x * float('nan')\n"
    Path("weighted.py").write_text(text)
    result = run("weighted.py", "part0.parquet", "--json=-")
    assert result.exit_code == 0
    assert "NaN" not in result.stdout
    json.loads(result.stdout)


def test_a_result_that_could_not_be_kept_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunDirectory, "write_result", full)
    with pytest.warns(UserWarning, match="No space left"):
        done = run("numbers_analysis.py", "part0.parquet", "--rundir", "runs/full")
    assert done.exit_code == 1
    assert "could not be written" in done.output
