"""What the shell of a command leaves behind is ended, and nothing is taken for complete that is not."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from tasks.command_crowd import alive
from windrow.errors import CommandError, TaskError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

WAYS = ("plain", "inline", "threads", "processes")
LINES = 3000


@pytest.fixture
def number() -> str:
    """A time to sleep that nobody else sleeps: known in the table of processes."""
    return f"1{secrets.randbelow(10**9):09d}.{secrets.randbelow(10**9):09d}"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"line {i}\n" for i in range(LINES)))
    return path


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def done(way: str, task: Any, *arguments: Any) -> Any:
    if way == "plain":
        return task(*arguments)
    with wr.Session(engine=way, workers=1):
        return task(*arguments).result()


@pytest.mark.parametrize(
    "template", ["tee >(gzip > {a}) < {table} > /dev/null", "exec > >(sleep 0.2; cat > {a}); cat {table}"]
)
def test_a_process_substitution_that_writes_is_refused(template: str, table: Path, tmp_path: Path) -> None:
    @wr.command
    def copied(table: wr.InFile, a: wr.OutFile) -> str:
        return template

    with pytest.raises(UsageError, match=r"has >\(\.\.\.\), a program that no shell waits for"):
        copied(table, tmp_path / "a.txt")


@pytest.mark.parametrize(
    "template",
    [
        "paste <(cat {table}) <(cut -d' ' -f1 {table}) > {a}",
        "awk 'NR>(0)' {table} > {a}",
        "mkfifo {tmp}/p; (sleep 0.2; cat < {tmp}/p > {a}) & cat {table} > {tmp}/p; wait",
    ],
)
def test_programs_beside_each_other_write_all_of_their_output(template: str, table: Path, tmp_path: Path) -> None:
    @wr.command
    def copied(table: wr.InFile, a: wr.OutFile) -> str:
        return template

    assert lines(copied(table, tmp_path / "a.txt")) == LINES


@pytest.mark.parametrize("left", ["sleep {n} &", "sleep {n} | cat &", "(echo x; sleep {n}) | (cat; sleep {n}) &"])
def test_who_holds_nothing_of_the_command_is_ended(left: str, number: str, tmp_path: Path) -> None:
    @wr.command
    def written(n: str, a: wr.OutFile) -> str:
        return f"{left} echo well > {{a}}"

    assert written(number, tmp_path / "a.txt").read_text() == "well\n"
    assert alive(number) == []


def test_a_command_that_failed_waits_for_nobody(number: str, tmp_path: Path) -> None:
    @wr.command
    def broken(n: str, a: wr.OutFile) -> str:
        return "sleep {n} > {a} & exit 3"

    with pytest.raises(CommandError, match="exit status 3"):
        broken(number, tmp_path / "a.txt")
    assert alive(number) == []


@pytest.mark.parametrize("way", WAYS)
def test_who_is_still_writing_an_output_fails_the_command(way: str, number: str, tmp_path: Path) -> None:
    @wr.command
    def late(n: str, a: wr.OutFile) -> str:
        return "echo half > {a}; sleep {n} >> {a} &"

    with pytest.raises((CommandError, TaskError), match=r"sleep \(process \d+\) was writing a.txt: .* write `wait`"):
        done(way, late, number, tmp_path / "a.txt")
    assert alive(number) == []
    assert not (tmp_path / "a.txt").exists()
