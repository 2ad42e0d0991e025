"""What bad input to the command line gets: exit code 1, a sentence, and nobody's internals."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from windrow.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

GOOD = """
import windrow as wr

analysis = wr.Pipeline("good")

@analysis.cut
def small(x):
    return x < 50

@analysis.output
def total(x):
    return int(x.sum())
"""

RAISES = """
import windrow as wr
from tools_of_mine import inverse

analysis = wr.Pipeline("raises")

@analysis.cut
def small(x):
    return inverse(x) < 50

@analysis.output
def total(x):
    return int(x.sum())
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("good.py").write_text(GOOD)
    pq.write_table(pa.table({"x": np.arange(100)}), "data.parquet")
    yield
    sys.modules.pop("tools_of_mine", None)


def windrow(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def failed(*arguments: str) -> str:
    """Run and expect an error; return what it says."""
    result = windrow(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    return result.stderr


def sentence(text: str) -> str:
    """Return the last line, which must be the only one that is not a traceback."""
    last = text.splitlines()[-1]
    assert last.startswith("windrow: error: ")
    return last


def alone(text: str) -> str:
    """Return a message that came without a traceback."""
    assert "Traceback" not in text
    return sentence(text)


# -- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--bogus"], "No such option"),
        (["run"], "Missing argument"),
        (["bogus"], "No such command 'bogus'"),
        (["--bogus"], "No such option"),
        (["run", "good.py", "data.parquet", "--workers", "0"], "--workers"),
        (["run", "good.py", "data.parquet", "--workers", "many"], "--workers"),
        (["run", "good.py", "data.parquet", "--on-error", "ignore"], "'stop', 'skip'"),
        (["run", "good.py", "data.parquet", "--chunk", "big"], '--chunk is "auto" or a number'),
        (["run", "good.py", "data.parquet", "--chunk", "0"], "chunk="),
        (["run", "good.py", "data.parquet", "--engine", "thread"], "did you mean 'threads'?"),
        (["run", "good.py", "data.parquet", "--engine", "dask"], "needs the cluster too"),
        (["run", "good.py", "data.parquet", "--order", "smal"], "smal"),
        (["run", "good.py", "data.parquet", "--cutflow", "precise"], "cutflow="),
        (["run", "good.py", "data.parquet", "--cutflow", "dta=exact"], "did you mean 'data'?"),
        (["demo", "--rows", "0"], "--rows"),
    ],
)
def test_usage_errors_exit_with_1(arguments: list[str], words: str) -> None:
    assert words in alone(failed(*arguments))


def test_a_usage_error_says_where_help_is() -> None:
    text = failed("run", "--bogus")
    assert "Usage: windrow run" in text
    assert "Try 'windrow run --help'." in text


def test_no_command_shows_the_help_and_is_an_error() -> None:
    text = windrow()
    assert text.exit_code == 1
    assert "Commands:" in text.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["demo", "--help"]])
def test_help_is_no_error(arguments: list[str]) -> None:
    result = windrow(*arguments)
    assert result.exit_code == 0
    assert "Usage: windrow" in result.stdout


# -- the analysis file ----------------------------------------------------------------------------


def test_no_analysis_file() -> None:
    assert "nowhere.py does not exist" in alone(failed("run", "nowhere.py", "data.parquet"))


def test_a_directory_for_an_analysis_file() -> None:
    assert "is a directory" in alone(failed("run", ".", "data.parquet"))


def test_arguments_in_the_wrong_order() -> None:
    text = alone(failed("run", "data.parquet", "good.py"))
    assert "must be a Python file (.py), got data.parquet" in text


def test_no_pipeline() -> None:
    Path("none.py").write_text("import windrow as wr\nanalysis = wr.Pipeline\n")
    text = alone(failed("run", "none.py", "data.parquet"))
    assert "none.py has no pipeline" in text
    assert 'analysis = wr.Pipeline("name")' in text


def test_two_pipelines_are_listed() -> None:
    Path("two.py").write_text("import windrow as wr\na = wr.Pipeline('a')\nb = wr.Pipeline('b')\n")
    text = alone(failed("run", "two.py", "data.parquet"))
    assert "two.py has 2 pipelines; pick one: two.py:a or two.py:b" in text


def test_a_pick_that_is_not_there() -> None:
    text = alone(failed("run", "good.py:analysi", "data.parquet"))
    assert "good.py has no pipeline 'analysi'; did you mean 'analysis'?" in text


def test_an_error_while_loading_shows_the_users_lines_only() -> None:
    Path("tools_of_mine.py").write_text("def work():\n    return [][3]\n")
    Path("broken.py").write_text("from tools_of_mine import work\nwork()\n")
    text = failed("run", "broken.py", "data.parquet")
    assert "broken.py could not be loaded: IndexError: list index out of range" in sentence(text)
    assert 'broken.py", line 2, in <module>' in text
    assert 'tools_of_mine.py", line 2, in work' in text
    assert "windrow/cli" not in text
    assert "importlib" not in text


def test_a_syntax_error_shows_the_line() -> None:
    Path("broken.py").write_text("import windrow\nx = = 3\n")
    text = failed("run", "broken.py", "data.parquet")
    assert "line 2" in text
    assert "x = = 3" in text
    assert "broken.py could not be loaded: SyntaxError" in sentence(text)


def test_a_wrong_definition_shows_where_it_stands() -> None:
    Path("wrong.py").write_text(GOOD + "\n@analysis.cut\ndef any_of(*columns):\n    return True\n")
    text = failed("run", "wrong.py", "data.parquet")
    assert 'wrong.py", line ' in text
    assert "any_of" in sentence(text)


def test_a_script_that_ends_itself() -> None:
    Path("script.py").write_text(GOOD + "\nraise SystemExit(0)\n")
    text = failed("run", "script.py", "data.parquet")
    assert "it ended itself with exit code 0" in sentence(text)


# -- data -----------------------------------------------------------------------------------------


def test_no_data() -> None:
    text = alone(failed("run", "good.py"))
    assert "no data: name files after good.py, or define 'data' or 'fileset' in it" in text


@pytest.mark.parametrize("name", ["missing.parquet", "missing*.parquet", "missing.root:Events"])
def test_a_missing_file(name: str) -> None:
    assert "missing" in alone(failed("run", "good.py", name))


def test_a_file_that_is_not_of_its_format() -> None:
    Path("bad.root").write_bytes(b"not a file of this kind" * 100)
    assert "bad.root" in alone(failed("run", "good.py", "bad.root"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "fileset.json is not a JSON fileset"),
        ("[1, 2]", "not a fileset"),
        ("{}", "names no data"),
        (json.dumps({"a": {"files": ["data.parquet"], "fils": 3}}), "unknown keys fils"),
        (json.dumps({"a": {"files": ["nowhere.parquet"]}}), "nowhere.parquet"),
    ],
    ids=["no JSON", "a list", "empty", "unknown key", "missing file"],
)
def test_a_bad_fileset(content: str, words: str) -> None:
    Path("fileset.json").write_text(content)
    assert words in alone(failed("run", "good.py", "fileset.json"))


def test_a_fileset_stands_alone() -> None:
    Path("fileset.json").write_text(json.dumps({"a": {"files": ["data.parquet"]}}))
    text = alone(failed("run", "good.py", "fileset.json", "data.parquet"))
    assert "a fileset stands alone" in text


def test_an_unknown_column() -> None:
    Path("typo.py").write_text(GOOD.replace("def small(x):\n    return x", "def small(y):\n    return y"))
    assert "'y'" in alone(failed("run", "typo.py", "data.parquet"))


# -- steps ----------------------------------------------------------------------------------------


def test_a_step_that_raises_shows_the_users_lines_only() -> None:
    Path("tools_of_mine.py").write_text("def inverse(x):\n    raise ValueError('cannot invert')\n")
    Path("raises.py").write_text(RAISES)
    text = failed("run", "raises.py", "data.parquet")
    assert "cut 'small' raised ValueError: cannot invert" in sentence(text)
    assert "data.parquet" in sentence(text)
    assert 'raises.py", line 9, in small' in text
    assert 'tools_of_mine.py", line 2, in inverse' in text
    assert "src/windrow" not in text
    assert "windrow.errors" not in text


def test_debug_shows_everything() -> None:
    Path("tools_of_mine.py").write_text("def inverse(x):\n    raise ValueError('cannot invert')\n")
    Path("raises.py").write_text(RAISES)
    text = failed("run", "raises.py", "data.parquet", "--debug")
    assert "cannot invert" in sentence(text)
    assert 'tools_of_mine.py", line 2, in inverse' in text
    assert "blocks" in text


def test_a_step_that_returns_something_wrong_has_no_traceback() -> None:
    Path("wrong.py").write_text(GOOD.replace("return x < 50", "return True"))
    assert "'small'" in alone(failed("run", "wrong.py", "data.parquet"))


# -- JSON -----------------------------------------------------------------------------------------


def test_json_overwrites_nothing_but_summaries() -> None:
    before = Path("good.py").read_text()
    text = alone(failed("run", "--json", "good.py", "good.py", "data.parquet"))
    assert "no summary of an earlier run" in text
    assert Path("good.py").read_text() == before


def test_json_into_nowhere_fails_before_the_run() -> None:
    Path("loud.py").write_text("print('loaded')\n" + GOOD)
    text = alone(failed("run", "loud.py", "data.parquet", "--json", "no/where.json"))
    assert "there is no directory no" in text


def test_no_json_is_written_after_an_error() -> None:
    failed("run", "good.py", "missing.parquet", "--json", "out.json")
    assert not Path("out.json").exists()
