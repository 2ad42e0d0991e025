"""Futures that are given where a path is expected: who waits for whom, and which file is meant."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import windrow as wr
from tasks.file_bodies import fill, join_list, listed, read, read_all, tell_path, write
from windrow.errors import TaskFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

everywhere = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])


pytestmark = pytest.mark.usefixtures("place")


def session(engine: str = "threads", **options: Any) -> wr.Session:
    return wr.Session(engine=engine, workers=3, **options)


@wr.command
def by_command(out: wr.OutFile) -> str:
    return "printf first > {out}"


@wr.task
def two(left: wr.OutFile, right: wr.OutFile) -> None:
    Path(left).write_text("left")
    Path(right).write_text("right")


@wr.task
def two_and_tell(left: wr.OutFile, right: wr.OutFile) -> Any:
    Path(left).write_text("left")
    Path(right).write_text("right")
    return [left, right]


@wr.task
def one_and_tell(out: wr.OutFile) -> Any:
    Path(out).write_text("first")
    return Path(out)


@wr.task
def one_in_silence(out: wr.OutFile) -> None:
    Path(out).write_text("first")


# -- who waits for whom


@pytest.mark.parametrize("make", [by_command, one_and_tell, one_in_silence])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("in_a_list", [False, True])
def test_a_later_writer_comes_after_the_reader(make: Callable[[str], Any], kept: bool, in_a_list: bool) -> None:
    gate = threading.Event()

    @wr.task(reuse=False)
    def read_late(paths: wr.InFile) -> str:
        gate.wait(120)
        return Path(paths[0] if in_a_list else paths).read_text()

    if kept:
        with session():
            make("x")
    with session():
        made = make("x")
        late = read_late([made] if in_a_list else made)
        after = write("x", "second")
        with pytest.raises(TimeoutError):
            after.result(0.3)
        gate.set()
        assert late.result(120) == "first"
        assert after.result(120) is None
    assert Path("x").read_text() == "second"


@pytest.mark.parametrize("make", [by_command, one_and_tell])
def test_a_reader_comes_after_who_has_overwritten_it_since(make: Callable[[str], Any]) -> None:
    """As in the program that runs line by line."""
    gate = threading.Event()

    @wr.task
    def write_late(out: wr.OutFile) -> None:
        gate.wait(120)
        Path(out).write_text("second")

    with session():
        made = make("x")
        made.result(120)
        write_late("x")
        text = read(made)
        with pytest.raises(TimeoutError):
            text.result(0.3)
        gate.set()
        assert text.result(120) == "second"


def test_several_files_of_one_future() -> None:
    gate = threading.Event()

    @wr.task
    def read_late(paths: wr.InFile) -> list[str]:
        gate.wait(120)
        return [Path(one).read_text() for one in paths]

    with session():
        both = read_late(two_and_tell("l", "r"))
        after = [write("l", "L"), write("r", "R")]
        for one in after:
            with pytest.raises(TimeoutError):
                one.result(0.2)
        gate.set()
        assert both.result(120) == ["left", "right"]


# -- which file is meant


@everywhere
def test_a_task_that_returns_none_stands_for_its_only_file(engine: str) -> None:
    with session(engine):
        made = one_in_silence("x")
        assert read(made).result(120) == "first"
        assert read_all([made, "x", one_in_silence("y")]).result(120) == ["first"] * 3
        assert join_list([write("z", "!"), made], "joined").result(120) == "!first"
        assert listed(fill("directory", ["a"])).result(120) == {"a": "a of 1"}
        assert made.result() is None


def test_also_if_an_earlier_run_wrote_it() -> None:
    for _ in range(2):
        with session() as opened:
            assert read(one_in_silence("x")).result(120) == "first"
    assert opened.reuse_stats.found_in_store == 1


@everywhere
def test_of_several_files_none_stands_for_nothing(engine: str) -> None:
    message = r"task 'read': parameter 'path'.* of task 'two', which returns None and writes 2 files.*return the path in 'two'"
    with session(engine), pytest.raises(TaskFileError, match=message):
        read(two("l", "r")).result(120)


def test_and_without_files_neither() -> None:
    @wr.task
    def nothing() -> None: ...

    with session(), pytest.raises(TaskFileError, match="nothing', which returns None and writes no file"):  # fmt: skip
        read(nothing()).result(120)


def test_a_task_that_may_fail() -> None:
    """None where it failed, as for any value; its file where it did not."""
    Path("bad").write_text("of an earlier run")

    @wr.task(on_failure="ignore")
    def perhaps(out: wr.OutFile, good: bool) -> None:
        if not good:
            raise ValueError
        Path(out).write_text("good")

    @wr.task
    def see(path: wr.InFile) -> str:
        return "nothing" if path is None else Path(path).read_text()

    with session():
        assert see(perhaps("good", True)).result(120) == "good"
        assert see(perhaps("bad", False)).result(120) == "nothing"


@pytest.mark.parametrize("given", [None, 5])
def test_what_is_no_path_is_refused_at_the_call(given: Any) -> None:
    message = rf"task 'read': parameter 'path' is annotated with wr.InFile.*got {given}"
    with session(), pytest.raises(UsageError, match=message):
        read(given)
    with session(), pytest.raises(UsageError, match=r"parameter 'out' is annotated with wr.OutFile"):
        tell_path(given)


def test_files_that_need_not_be_given() -> None:
    Hidden: TypeAlias = int  # only the writer of the annotation knows the name

    @wr.task
    def by_annotation(path: wr.InFile | None) -> Any:
        return path

    @wr.task
    def by_default(path: wr.InFile = None) -> Any:
        return path

    @wr.task
    def of_unknown_names(path: wr.InFile | Hidden | None) -> Any:
        return path

    @wr.task
    def nothing() -> None: ...

    with session():
        for one in (by_annotation, by_default, of_unknown_names):
            assert one(None).result(120) is None
        assert by_default().result(120) is None
        assert by_annotation(nothing()).result(120) is None
