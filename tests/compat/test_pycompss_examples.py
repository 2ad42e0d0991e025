"""The programs of examples/pycompss: written for PyCOMPSs but for their imports, and with the same answer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from compss_programs import EXAMPLES, OURS, THEIRS, run_program, write_stand_in
from searching import few_by_day

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
    named = {number for number, line in enumerate(text.splitlines(), 1) if "windrow" in line.lower()}
    assert named
    assert named <= imports


@pytest.mark.parametrize("program", few_by_day(EXAMPLES, by_day=2), ids=NAMES)
def test_the_answer_is_that_of_the_plain_program(program: Path, tmp_path: Path) -> None:
    write_stand_in(tmp_path)
    plain = tmp_path / program.name
    plain.write_text(program.read_text(encoding="utf-8").replace(OURS, THEIRS), encoding="utf-8")
    answers = []
    for path, engine in ((plain, ""), (program, "processes"), (program, "threads")):
        place = tmp_path / (engine or "plain")
        place.mkdir()
        # The one that writes files is told where.
        arguments = [str(place)] if program.stem == "pipeline" else []
        got = run_program(path, *arguments, WINDROW_ENGINE=engine, WINDROW_WORKERS="2")
        assert (got.returncode, got.stderr) == (0, "")
        files = {one.name: one.read_bytes() for one in sorted(place.iterdir())}
        answers.append((got.stdout, files))
    assert answers[0][0]
    assert len(answers[0][1]) == (13 if program.stem == "pipeline" else 0)
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
