"""Command lines, more of them: what stands for what, and when they are run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import windrow as wr
from windrow.errors import CommandError
from windrow.tasks import shell

if TYPE_CHECKING:
    from pathlib import Path


def test_tmp_is_one_directory_wherever_it_stands() -> None:
    @wr.command
    def through() -> str:
        return "echo well > {tmp}/x; cat {tmp}/x"

    assert through() == "well\n"


# -- descriptors


@pytest.mark.parametrize("number", [*range(3, 16), 200, 255, *shell.HIGH])
@pytest.mark.parametrize("engine", [None, "threads"])
def test_descriptors_of_the_command_line_are_its_own(
    engine: str | None, number: int, tmp_path: Path
) -> None:
    @wr.command
    def written(out: wr.OutFile, *, number: int) -> str:
        return "exec {number}> {out}; echo data >&{number}"

    if engine is None:
        written(tmp_path / "out", number=number)
    else:
        with wr.Session(engine=engine, workers=1):
            written(tmp_path / "out", number=number)
    assert (tmp_path / "out").read_text() == "data\n"


@pytest.mark.parametrize("high", [(10**9, 100), (10**9,)])
def test_where_descriptors_are_few_it_is_still_told_who_of_a_pipe_failed(
    monkeypatch: pytest.MonkeyPatch, high: tuple[int, ...]
) -> None:
    monkeypatch.setattr(shell, "HIGH", high)

    @wr.command
    def broken() -> str:
        return "true | (exit 3) | true"

    with pytest.raises(
        CommandError, match=r"of the 3 programs of the last pipe it was number 2 \(3\)"
    ):
        broken()


# -- values


@pytest.mark.parametrize("engine", [None, "threads"])
def test_the_value_has_the_files_of_directories_inside(engine: str | None, tmp_path: Path) -> None:
    @wr.command
    def split(d: wr.OutFiles("**/*.fa")) -> str:  # type: ignore[valid-type]
        return "mkdir -p {d}/x/y.fa; for f in {d}/a.fa {d}/x/b.fa {d}/x/y.fa/c.fa; do echo 1 > $f; done"

    if engine is None:
        made = split(tmp_path / "o")
    else:
        with wr.Session(engine=engine, workers=1):
            made = split(tmp_path / "o").result()
    names = [str(one.relative_to(tmp_path / "o")) for one in made]
    assert names == ["a.fa", "x/b.fa", "x/y.fa/c.fa"]
