"""A worker is killed, and what tasks made is lost with it: files are as if nothing had happened."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windrow as wr
from tasks.file_bodies import append, fill, holdings, index, split, write
from windrow.errors import DependencyError, TaskFileError

#: So many numbers stay with the worker that made them.
LARGE = 100_000
#: Of the futures below: those of tasks that only read.
READERS = (0, 2, 5, 6, 7)


def noted(text: str, log: str) -> Any:
    """Say who runs, and how often; give something that is not sent home unless it is asked for."""
    with Path(log).open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    return np.full(LARGE, sum(text.encode()))


@wr.task
def read_large(path: wr.InFile, log: str) -> Any:
    return noted(Path(path).read_text(), log)


@wr.task
def write_large(out: wr.OutFile, text: str, log: str) -> Any:
    Path(out).write_text(text)
    return noted(text, log)


@wr.task
def append_large(path: wr.InOutFile, text: str, log: str) -> Any:
    with Path(path).open("a") as stream:
        stream.write(text)
    return noted(Path(path).read_text(), log)


@wr.task
def copy_over_large(path: wr.InFile, out: wr.OutFile, log: str) -> Any:
    text = Path(path).read_text() + "+"
    Path(out).write_text(text)
    return noted(text, log)


@wr.task
def list_large(directory: wr.InDir, log: str) -> Any:
    place = Path(directory)
    return noted("".join(f"{one.relative_to(place)}:{one.read_text()}" for one in sorted(place.rglob("*"))), log)  # fmt: skip


@wr.task
def match_large(ref: wr.InFiles("{ref}.*"), log: str) -> Any:  # type: ignore[valid-type]
    path = Path(ref)
    return noted("|".join(one.name + one.read_text() for one in sorted(path.parent.glob(f"{path.name}.*"))), log)  # fmt: skip


@wr.task
def parts_large(directory: wr.InFiles("part-*.txt"), log: str) -> Any:  # type: ignore[valid-type]
    return noted("|".join(one.read_text() for one in sorted(Path(directory).glob("part-*.txt"))), log)  # fmt: skip


@wr.task
def write_directory_large(directory: wr.OutDir, text: str, log: str) -> Any:
    Path(directory, "x").write_text(text)
    return noted(text, log)


def kill(workers: set[int]) -> None:
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


def runs(log: str) -> list[int]:
    return [int(line) for line in Path(log).read_text().split()]


@pytest.mark.usefixtures("new_program")
def test_who_wrote_files_or_read_what_was_overwritten_never_runs_again(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    before = place / "before"
    before.write_text("there before")
    logs = [str(tmp_path / f"log{number}") for number in range(9)]
    with wr.Session(engine="processes", workers=2, reuse=False) as session:
        futures, expected = [], []

        def expect(future: Any, text: str) -> None:
            futures.append(future)
            expected.append(sum(text.encode()))

        # What was there before, is read, and overwritten.
        expect(read_large(before, logs[0]), "there before")
        write(before, "there after!")
        # What a task wrote, another read, and several overwrote; each of them may run again.
        expect(write_large(place / "a", "one", logs[1]), "one")
        expect(read_large(place / "a", logs[2]), "one")
        expect(append_large(place / "a", "two", logs[3]), "onetwo")
        expect(copy_over_large(place / "a", place / "a", logs[4]), "onetwo+")
        write(place / "a", "end")
        # Several files at once.
        fill(place / "tree", ["u", "v"])
        expect(list_large(place / "tree", logs[5]), "u:u of 2v:v of 2")
        write(place / "tree" / "u", "changed")
        fill(place / "tree", ["w"])
        index(place / "ref", "i")
        expect(match_large(place / "ref", logs[6]), "ref.ambiamb|ref.bwtibwt")
        index(place / "ref", "k")
        split(place / "parts", 2, "p")
        expect(parts_large(place / "parts", logs[7]), "p0|p1")
        append(place / "parts" / "part-1.txt", "more")
        expect(write_directory_large(place / "d", "first", logs[8]), "first")
        fill(place / "d", ["y"])
        session.barrier(60)
        until = time.monotonic() + 60
        while not all(futures[one].is_here for one in READERS) and time.monotonic() < until:
            time.sleep(0.01)  # values are brought home by themselves
        kill({pid for log in logs for pid in runs(log)})
        found = [future.result(60) for future in futures]
        assert [(one.shape, int(one[0])) for one in found] == [((LARGE,), one) for one in expected]
        assert [len(runs(log)) for log in logs] == [1] * len(logs)
    assert holdings(place) == {
        "a": "end",
        "before": "there after!",
        "d": "<directory>",
        "d/y": "y of 1",
        "parts": "<directory>",
        "parts/log": "done",
        "parts/part-0.txt": "p0",
        "parts/part-1.txt": "p1more",
        "ref.amb": "kamb",
        "ref.bwt": "kbwt",
        "tree": "<directory>",
        "tree/w": "w of 1",
    }


@wr.task
def twice(values: Any) -> Any:
    return 2 * values


@pytest.mark.usefixtures("new_program")
def test_a_reader_that_runs_again_needs_its_input(tmp_path: Path) -> None:
    log, paths = str(tmp_path / "log"), [tmp_path / name for name in ("stays", "goes")]
    for path in paths:
        path.write_text("text")
    with wr.Session(engine="processes", workers=1, reuse=False) as session:
        stays, goes = [twice(read_large(path, log)) for path in paths]  # values in between go with their readers
        session.barrier(60)
        write(paths[1], "other")
        session.barrier(60)
        kill(set(runs(log)))
        assert int(stays.result(60)[0]) == 2 * sum(b"text")
        with pytest.raises(
            DependencyError, match=r"'read_large' reads .*goes .*its input was overwritten by task 'write'"
        ):
            goes.result(60)


@wr.task
def nothing() -> None: ...


@wr.task
def crash_once(flag: Path) -> None:
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("new_program")
def test_a_file_that_was_changed_is_not_changed_again_if_the_next_task_crashes(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with wr.Session(engine="processes", workers=1, reuse=False) as session:
        for number in range(2):
            for _ in range(3):
                nothing.options(priority=3)()  # after short tasks several are reported together
            append.options(priority=2)(tmp_path / "x", f"{number}")
            crash_once.options(priority=1)(tmp_path / f"flag {number}")
            session.barrier(60)
    assert (tmp_path / "x").read_text() == "01"


def test_what_is_read_while_it_changes_is_read_again(tmp_path: Path) -> None:
    """As if a task that runs again met the one that overwrites what it reads."""
    path, tries = tmp_path / "x", []

    @wr.task
    def torn(path: wr.InFile) -> str:
        tries.append(1)
        text = Path(path).read_text()
        if len(tries) == 1:
            known = Path(path).stat()
            Path(path).write_text("something else")
            Path(path).write_text(text)
            os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns + (not give_back)))
            if give_back:
                os.utime(path, ns=(0, known.st_mtime_ns))
        return text

    path.write_text("text")
    give_back = False
    with wr.Session(engine="threads", workers=1, reuse=False), pytest.raises(TaskFileError, match="which has changed"):
        torn(path).result(120)
    assert len(tries) == 1  # the second attempt saw at once that what it was promised is nowhere
    tries.clear()
    give_back = True
    with wr.Session(engine="threads", workers=1, reuse=False):
        assert torn(path).result(120) == "text"
