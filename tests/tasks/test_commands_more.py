"""Command lines, more of them: what stands for what, and when they are run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_tmp_is_one_directory_wherever_it_stands() -> None:
    @wr.command
    def through() -> str:
        return "echo well > {tmp}/x; cat {tmp}/x"

    assert through() == "well\n"


# -- descriptors


@pytest.mark.parametrize(
    ("engine", "number"), [*[(None, one) for one in (*range(3, 13), 63, 200, 255, 800)], ("threads", 9)]
)
def test_descriptors_of_the_command_line_are_its_own(engine: str | None, number: int, tmp_path: Path) -> None:
    @wr.command
    def written(out: wr.OutFile, *, number: int) -> str:
        return "exec {number}> {out}; echo data >&{number}"

    if engine is None:
        written(tmp_path / "out", number=number)
    else:
        with wr.Session(engine=engine, workers=1):
            written(tmp_path / "out", number=number)
    assert (tmp_path / "out").read_text() == "data\n"


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


# -- when they are run again

OUTSIDE = "split -n l/{cores} {table} {out}/p-"


def split_by_its_own_text() -> wr.Task:
    @wr.command
    def split(table: wr.InFile, out: wr.OutDir) -> str:
        return "split -n l/{cores} {table} {out}/p-"

    return split


def split_by_an_f_string() -> wr.Task:
    @wr.command
    def split(table: wr.InFile, out: wr.OutDir) -> str:
        return f"split -n {'l'}/{{cores}} {{table}} {{out}}/p-"

    return split


def split_by_a_text_outside() -> wr.Task:
    @wr.command
    def split(table: wr.InFile, out: wr.OutDir) -> str:
        return OUTSIDE

    return split


def split_by_a_list_of_a_helper() -> wr.Task:
    def line() -> list[str]:
        return ["split", "-n", "l/{cores}", "{table}", "{out}/p-"]

    @wr.command
    def split(table: wr.InFile, out: wr.OutDir) -> list[str]:
        return line()

    return split


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [split_by_its_own_text, split_by_an_f_string, split_by_a_text_outside, split_by_a_list_of_a_helper]
)
def test_it_is_run_again_if_an_amount_in_its_line_is_another_one(make: Callable[[], wr.Task], tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{i}\n" for i in range(100)))
    split = make()
    for cores, found in ((1, 0), (1, 1), (2, 0), (2, 1)):
        with wr.Session(engine="threads", workers=2) as session:
            split.options(cores=cores)(tmp_path / "in", tmp_path / "out").result()
            assert session.reusing.stats().found_in_store == found
        assert len(list((tmp_path / "out").iterdir())) == cores


@pytest.mark.parametrize("named", [False, True])
def test_an_amount_that_its_line_does_not_name_makes_no_difference(named: bool, tmp_path: Path) -> None:
    @wr.command
    def quiet(out: wr.OutFile) -> str:
        return "echo x > {out}"

    @wr.command
    def given(out: wr.OutFile, *, cores: int = 7) -> str:
        return "echo {cores} > {out}"

    for cores, found in ((1, 0), (2, 1)):
        with wr.Session(engine="threads", workers=2) as session:
            (given if named else quiet).options(cores=cores)(tmp_path / "out").result()
            assert session.reusing.stats().found_in_store == found
