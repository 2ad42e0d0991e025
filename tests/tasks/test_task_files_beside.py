"""A file that is made anew while tasks read the former one: bodies run side by side, and the new one is put into place later."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from tasks.file_bodies import holdings, listed, read, write
from windrow.errors import TaskFileError

pytestmark = pytest.mark.usefixtures("place")


def until_there(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.002)


@wr.task(reuse=False)
def read_when(path: wr.InFile, sign: str) -> str:
    until_there(Path(sign))
    return Path(path).read_text()


@wr.task
def write_and_sign(out: wr.OutFile, sign: str) -> str:
    Path(out).write_text("new")
    Path(out).with_name("beside").write_text("more")
    Path(sign).touch()
    return str(out)


@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("reuse", [None, False])
def test_a_writer_runs_beside_those_who_read_the_former_file(engine: str, reuse: bool | None, place: Path) -> None:
    sign = str(place.parent / "sign")
    Path("x").write_text("old")
    with wr.Session(engine=engine, workers=2, reuse=reuse):
        before = read_when("x", sign)  # ends if the writer runs meanwhile
        path = write_and_sign("x", sign)
        after = read("x")
        assert before.result(120) == "old"
        assert path.result(120) == str(place / "x")
        assert Path("x").read_text() == "new"
        assert after.result(120) == "new"
    assert holdings(place) == {"x": "new", "beside": "more"}
    if reuse is None:
        with wr.Session(engine="threads") as session:
            write_and_sign("x", sign)
            session.barrier()
            assert session.reuse_stats.found_in_store == 1


class Waiting:
    """A reader that waits, and a writer of what it reads whose body has ended."""

    def __init__(self, session: wr.Session) -> None:
        self.may_go_on, ended = threading.Event(), threading.Event()
        Path("x").write_text("old")

        @wr.task(reuse=False)
        def reads(path: wr.InFile) -> str:
            self.may_go_on.wait(120)
            return Path(path).read_text()

        @wr.task(reuse=False)
        def writes(out: wr.OutFile) -> None:
            Path(out).write_text("new")
            ended.set()

        self.read: Any = reads("x")
        self.group = session.group()
        with self.group:
            self.written: Any = writes("x")
        assert ended.wait(120)


def threads() -> wr.Session:
    return wr.Session(engine="threads", workers=2)


def test_a_new_file_is_in_place_when_the_readers_of_the_former_one_have_ended() -> None:
    with threads() as session:
        waiting = Waiting(session)
        with pytest.raises(TimeoutError):
            waiting.written.result(0.1)
        assert Path("x").read_text() == "old"
        waiting.may_go_on.set()
        waiting.written.result(120)
        assert waiting.read.result(120) == "old"
        assert Path("x").read_text() == "new"


def test_what_is_cancelled_before_it_is_in_place_leaves_nothing(place: Path) -> None:
    with threads() as session:
        waiting = Waiting(session)
        waiting.group.cancel()
        waiting.may_go_on.set()
        assert waiting.read.result(120) == "old"
        write("x", "other").result(120)
    assert holdings(place) == {"x": "other"}


def test_what_cannot_be_put_into_place_fails() -> None:
    with threads() as session:
        waiting = Waiting(session)
        Path("x").unlink()
        Path("x").mkdir()
        Path("x", "somebody's").touch()
        waiting.may_go_on.set()
        with pytest.raises(TaskFileError, match="cannot be put into place"):
            waiting.written.result(120)
        assert waiting.read.exception(120) is not None


def test_a_writer_comes_after_those_who_read_the_directory_around_its_file() -> None:
    """They would find there what is private to it."""
    Path("d").mkdir()
    Path("d/x").write_text("old")
    for _ in range(3):
        with threads():
            found = [listed("d") for _ in range(4)]
            write("d/x", "new")
            assert all(set(one.result(120)) == {"x"} for one in found)
