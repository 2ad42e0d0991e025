"""Files that are written again, or not, while others write the same ones."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import windrow as wr


@pytest.fixture(autouse=True)
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory of its own, and note which bodies run."""
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("WINDROW_STORE", str(tmp_path / "store"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def ran(name: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as log:
        log.write(name + "\n")


def runs() -> list[str]:
    """Give the bodies that ran since this was asked last."""
    log = Path(os.environ["RUNS"])
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names


# What reads the environment is opaque to fingerprints; with a version the name stands for the code.
@wr.task(version="1")
def write(text: str, path: wr.OutFile) -> int:
    ran("write")
    return Path(path).write_text(text)


@wr.task(version="1")
def copy(source: wr.InFile, path: wr.OutFile) -> None:
    ran("copy")
    Path(path).write_text(Path(source).read_text())


@wr.task(version="1")
def append(text: str, path: wr.InOutFile) -> None:
    ran("append")
    Path(path).write_text(Path(path).read_text() + text)


@wr.task(version="1", reuse=True)
def join(*paths: wr.InFile) -> str:
    ran("join")
    return "".join(Path(one).read_text() for one in paths)


@wr.task(version="1", reuse=False)
def always(text: str, path: wr.OutFile) -> None:
    ran("always")
    Path(path).write_text(text)


def session(**options: Any) -> wr.Session:
    return wr.Session(**{"engine": "threads", "workers": 2, **options})


def test_writing_is_reused_without_being_asked_for() -> None:
    for expected in (["write"], []):
        with session():
            assert write("a", "x").result() == 1
        assert runs() == expected
        assert Path("x").read_text() == "a"


def test_what_files_are_like_is_noted_also_where_there_is_no_room() -> None:
    with session(store_budget=1):
        assert [write("a", "x").result() for _ in range(2)] == [1, 1]
    assert runs() == ["write"]


def test_and_not_where_that_is_switched_off() -> None:
    for _ in range(2):
        with session():
            always("a", "x")
        assert runs() == ["always"]
    for _ in range(2):
        with session(reuse=False):
            write("a", "x")
        assert runs() == ["write"]


def test_the_same_call_while_the_first_one_runs() -> None:
    with session():
        first, second = write("a", "x"), write("a", "x")
        assert second is first or first.done()  # then it is what was kept
        assert write("a", "x") is not write("a", "y")
    assert runs() == ["write", "write"]


def test_the_last_writer_wins_also_if_it_was_there_before() -> None:
    with session():
        for text in ("a", "b", "a"):
            write(text, "x")
    assert Path("x").read_text() == "a"
    assert runs() == ["write"] * 3


def test_a_kept_file_that_another_task_is_about_to_overwrite() -> None:
    """It is as it should be when it is looked at, and will not be."""
    with session():
        write("a", "x")
    gate = threading.Event()

    @wr.task
    def hold() -> None:
        gate.wait(120)

    with session(workers=1):
        hold()
        write("b", "x")
        write("a", "x")
        gate.set()
    assert Path("x").read_text() == "a"


def test_a_file_that_was_removed_within_the_session() -> None:
    with session():
        write("a", "x").result()
        Path("x").unlink()
        write("a", "x").result()
        assert Path("x").read_text() == "a"
        write("a", "x").result()
    assert runs() == ["write", "write"]


def test_files_that_are_changed_are_made_from_the_beginning() -> None:
    for _ in range(2):
        with session():
            write("a", "x")
            append("b", "x")
            copy("x", "y")
        assert Path("x").read_text() == Path("y").read_text() == "ab"
        assert runs() == ["write", "append", "copy"]


def test_a_reader_of_a_kept_file_that_was_changed_meanwhile() -> None:
    """A call that comes after the change reads what is there, and is not taken for the one before."""
    with session():
        write("a", "x")
        copy("x", "y")
    with session():
        write("a", "x")
        Path("x").write_text("changed")
        copy("x", "y").result()
        assert Path("y").read_text() == "changed"
    assert runs() == ["write", "copy", "copy"]
    with session():
        write("a", "x")
        copy("x", "y").result()
        assert Path("y").read_text() == "a"


def test_paths_that_are_known_too_late() -> None:
    with session() as opened:
        write("a", "x").result()

        @wr.task(reuse=True)
        def name() -> str:
            return str(Path("x").absolute())

        copy(name(), "y").result()
        assert "value of a future" in opened.reuse_stats.reasons["copy"]
        assert join(name(), "x").result() == "aa"
        assert "value of a future" in opened.reuse_stats.reasons["join"]
    with session() as opened:
        assert [join("x", "x").result(), join(Path("x")).result()] == ["aa", "a"]
        assert opened.reuse_stats.missed == 2
        assert join("x", "x").result() == "aa"
        assert opened.reuse_stats.found_in_store == 1
        Path("x").write_text("changed")
        assert join(Path("x")).result() == "changed"


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_values_beside_files(engine: str) -> None:
    for _ in range(2):
        with session(engine=engine) as opened:
            assert opened.gather([write("abc", Path("x")), write("de", "y")]) == [3, 2]
    assert runs() == ["write", "write"]
