"""``windrow partition``: sequences printed, as JSON and drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windrow.cli.main import main as windrow


def run(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(windrow, ["partition", *arguments])
    return found.exit_code, found.stdout, found.stderr


def test_a_sequence_is_printed() -> None:
    code, out, _ = run("--rows", "1000", "--workers", "4", "--scheme", "STATIC")
    assert (code, out) == (0, "STATIC: 4 chunks: 250 250 250 250\n")


def test_json_has_the_chunks() -> None:
    code, out, _ = run("--rows", "8", "--workers", "4", "--scheme", "GSS", "--json")
    assert (code, json.loads(out)) == (0, {"chunks": [2, 2, 1, 1, 1, 1]})
    code, out, _ = run(
        "--rows", "10", "--workers", "1", "--scheme", "MFSC", "--flavour", "literature", "--grain", "5", "--json"
    )
    assert sum(json.loads(out)["chunks"]) == 10


def test_all_schemes_in_a_table() -> None:
    code, out, _ = run("--rows", "1000", "--workers", "4", "--scheme", "all")
    assert code == 0
    assert "SS: 1000 chunks: 1 1 1 1 1 1 1 1 1 1 1 1 ... 1\n" in out
    assert "AWF-B" in out


def test_a_drawing(tmp_path: Path) -> None:
    code, _, _ = run("--rows", "1000", "--workers", "4", "--scheme", "TSS", "--plot", str(tmp_path / "tss.svg"))
    assert code == 0
    assert "13 chunks" in (tmp_path / "tss.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rows", "10", "--workers", "2", "--scheme", "GSSS"), "did you mean 'GSS'"),
        (("--rows", "-1", "--workers", "2"), "rows= is a whole number"),
        (("--rows", "10", "--workers", "0"), "workers= is a whole number"),
        (("--rows", "10", "--workers", "2", "--grain", "0"), "grain= is a whole number"),
        (("--rows", "10", "--workers", "2", "--flavour", "mine"), "flavour= is one of"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], says: str) -> None:
    code, _, error = run(*arguments)
    assert code == 1
    assert says in error


def test_a_grain_above_the_rows_is_told() -> None:
    code, out, error = run("--rows", "5", "--workers", "2", "--grain", "9", "--json")
    assert (code, json.loads(out)) == (0, {"chunks": [5]})
    assert "a grain of 9 is more than the 5 rows" in error
