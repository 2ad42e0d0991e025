"""What the shell of a command leaves at work on its outputs is waited for: nothing is taken for complete that is not."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from tasks.command_crowd import alive
from windrow.errors import CommandError, CommandMemoryError, TaskError
from windrow.tasks.commands.processes import CommandProcesses

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


@pytest.mark.parametrize("way", WAYS)
def test_a_process_substitution_writes_all_of_its_output(way: str, table: Path, tmp_path: Path) -> None:
    @wr.command
    def both(table: wr.InFile, a: wr.OutFile, b: wr.OutFile) -> str:
        return "tee >(while read -r x; do echo $x; done > {a}) < {table} > {b}"

    made = done(way, both, table, tmp_path / "a.txt", tmp_path / "b.txt")
    assert [lines(one) for one in made] == [LINES, LINES]


@pytest.mark.parametrize(
    "template",
    [
        "tee >(sleep 0.2; sort > {a}) < {table} > /dev/null",  # opened late
        "tee >(cat > {tmp}/x; sleep 0.2; cp {tmp}/x {a}) < {table} > /dev/null",
        "tee >(sort | sed p | (sleep 0.1; uniq) > {a}) >(sleep 0.3) < {table} > /dev/null",
        "mkfifo {tmp}/p; (sleep 0.2; cat < {tmp}/p > {a}) & cat {table} > {tmp}/p",
        "(sleep 0.2; cat {table}) > {a} &",
        "exec > >(sleep 0.2; cat > {a}); cat {table}",
    ],
)
def test_whoever_is_at_work_on_an_output_is_waited_for(template: str, table: Path, tmp_path: Path) -> None:
    @wr.command
    def copied(table: wr.InFile, a: wr.OutFile) -> str:
        return template

    assert lines(copied(table, tmp_path / "a.txt")) == LINES


def test_what_a_process_substitution_prints_is_part_of_the_value(table: Path) -> None:
    @wr.command
    def counted(table: wr.InFile) -> str:
        return "tee >(sleep 0.2; wc -l) < {table} > /dev/null"

    assert counted(table).split() == [str(LINES)]


@pytest.mark.parametrize("left", ["sleep {n} &", "sleep {n} | cat &", "(echo x; sleep {n}) | (cat; sleep {n}) &"])
def test_who_holds_nothing_of_the_command_is_ended(left: str, number: str, tmp_path: Path) -> None:
    @wr.command
    def written(n: str, a: wr.OutFile) -> str:
        return f"{left} tee >(sleep 0.1; cat > {{a}}) <<< well > /dev/null"

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
def test_the_deadline_ends_who_is_still_writing_and_the_error_says_who(way: str, number: str, tmp_path: Path) -> None:
    @wr.command(deadline=0.5)
    def endless(n: str, a: wr.OutFile) -> str:
        return "echo half > {a}; sleep {n} >> {a} &"

    with pytest.raises((CommandError, TaskError), match="deadline") as caught:
        done(way, endless, number, tmp_path / "a.txt")
    if way == "plain":
        assert "its shell had ended before, but sleep (process " in str(caught.value)
        assert ") was writing a.txt" in str(caught.value)
    assert alive(number) == []
    assert not (tmp_path / "a.txt").exists()


def test_the_memory_of_what_is_left_counts(tmp_path: Path) -> None:
    @wr.command(memory="100 MB")
    def large(a: wr.OutFile) -> str:
        return "tee >(head -c 300000000 /dev/zero | tail -c 250000000 | (wc -c; sleep 60) > {a}) <<< x > /dev/null"

    begin = time.monotonic()
    with pytest.raises(CommandMemoryError, match="100 MB"):
        large(tmp_path / "a.txt")
    assert time.monotonic() - begin < 30


def test_one_that_opens_an_output_while_it_is_ended_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, number: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(CommandProcesses, "at_work", lambda *_: set())  # as if it had not yet

    @wr.command
    def late(n: str, a: wr.OutFile) -> str:
        return "echo half > {a}; sleep {n} >> {a} &"

    with pytest.raises(CommandError, match=r"sleep \(process \d+\) was writing a.txt: .* write `wait`"):
        late(number, tmp_path / "a.txt")
    assert alive(number) == []
