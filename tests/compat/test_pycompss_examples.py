"""The programs of examples/pycompss: written for PyCOMPSs but for their imports, and with the same answer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from compss_programs import EXAMPLES, OURS, THEIRS, run_program, write_stand_in

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [path.stem for path in EXAMPLES]


def test_there_are_the_programs_that_users_know() -> None:
    assert {"wordcount", "matmul", "kmeans", "pipeline", "cholesky", "search"} <= set(NAMES)


@pytest.mark.parametrize("program", EXAMPLES, ids=NAMES)
def test_only_imports_name_windrow(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    imports = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    named = {
        number for number, line in enumerate(text.splitlines(), 1) if "windrow" in line.lower()
    }
    assert named
    assert named <= imports


@pytest.mark.parametrize("program", EXAMPLES, ids=NAMES)
def test_the_answer_is_that_of_the_plain_program(program: Path, tmp_path: Path) -> None:
    write_stand_in(tmp_path)
    plain = tmp_path / program.name
    plain.write_text(program.read_text(encoding="utf-8").replace(OURS, THEIRS), encoding="utf-8")
    wanted = run_program(plain)
    assert wanted.returncode == 0, wanted.stderr
    assert wanted.stdout
    for engine in ("processes", "threads"):
        got = run_program(program, WINDROW_ENGINE=engine, WINDROW_WORKERS="2")
        assert (got.returncode, got.stderr) == (0, "")
        assert got.stdout == wanted.stdout


def test_files_of_a_pipeline_are_those_of_the_plain_program(tmp_path: Path) -> None:
    program = next(path for path in EXAMPLES if path.stem == "pipeline")
    write_stand_in(tmp_path)
    plain = tmp_path / program.name
    plain.write_text(program.read_text(encoding="utf-8").replace(OURS, THEIRS), encoding="utf-8")
    found = []
    for number, path in enumerate((plain, program)):
        place = tmp_path / str(number)
        place.mkdir()
        assert run_program(path, str(place)).returncode == 0
        found.append({one.name: one.read_bytes() for one in sorted(place.iterdir())})
    assert len(found[0]) == 13
    assert found[0] == found[1]
