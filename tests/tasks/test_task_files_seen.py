"""Changes of files are seen: whatever reads them is done again, and what has not changed is not."""

from __future__ import annotations

import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from searching import few_by_day
from tasks.file_diary import note, ran, session

pytestmark = pytest.mark.usefixtures("place")


# -- files that are made again


@wr.command
def make(out: wr.OutFile) -> str:
    return "echo make >> ../log; date +%N > {out}"  # other bytes each time


@wr.command
def index(data: wr.InFile, out: wr.OutFile) -> str:
    return "echo index >> ../log; cat {data} > {out}"


@wr.task(version="1")
def made(out: wr.OutFile) -> Any:
    note("make")
    Path(out).write_text(f"{time.time_ns()}\n")
    return out


@wr.task(version="1")
def indexed(data: wr.InFile, out: wr.OutFile) -> Any:
    note("index")
    Path(out).write_text(Path(data).read_text())
    return out


@wr.task(version="1", reuse=True)
def text(data: wr.InFile) -> str:
    note("text")
    return Path(data).read_text()


@wr.task(version="1", reuse=True)
def doubled(value: str) -> str:
    note("doubled")
    return 2 * value


def pipeline(kind: str, by: str, *, waits: bool = False, **options: Any) -> str:
    first, second = (make, index) if kind == "command" else (made, indexed)
    with session(**options):
        data = first("data")
        if waits:
            data.result(120)
        copy = second(data if by == "future" else "data", "data.idx")
        value = text(copy if by == "future" else "data.idx")
        result: str = doubled(value).result(120)
    return result


#: By day every two of the choices once: kind of task, how its file is given, whether it is waited for, what counts.
CHOICES = [
    ("command", "path", False, "stamp"), ("command", "future", True, "content"), ("task", "path", True, "content"),
    ("task", "future", False, "stamp"), ("task", "future", True, "stamp"), ("command", "path", False, "content"),
]  # fmt: skip
ALL = product(["command", "task"], ["path", "future"], [False, True], ["stamp", "content"])


@pytest.mark.parametrize(
    "choice", few_by_day([*CHOICES, *(one for one in ALL if one not in CHOICES)], len(CHOICES)), ids=str
)
def test_what_is_made_again_is_read_again(choice: tuple[str, str, bool, str]) -> None:
    kind, by, waits, files = choice
    options: dict[str, Any] = {"waits": waits, "files": files}
    everything = ["doubled", "index", "make", "text"]
    for _ in range(2):
        assert pipeline(kind, by, **options) == 2 * Path("data").read_text()
        assert ran() == everything
        pipeline(kind, by, **options)
        assert ran() == []
        Path("data").unlink()
    pipeline(kind, by, **options)
    assert ran() == everything
    Path("data.idx").unlink()
    assert pipeline(kind, by, **options) == 2 * Path("data").read_text()
    assert ran()[-2:] == ["index", "text"]
    pipeline(kind, by, **options)
    assert ran() == []


@pytest.mark.parametrize("by", ["path", "future"])
@pytest.mark.parametrize("kind", ["command", "task"])
def test_what_another_program_has_made_again_is_read_again(kind: str, by: str) -> None:
    pipeline(kind, by)
    Path("data.idx").unlink()
    pipeline(kind, by)  # which reads what the first run made
    ran()
    Path("data").unlink()
    with session():
        (make if kind == "command" else made)("data")
    assert ran() == ["make"]
    assert pipeline(kind, by) == 2 * Path("data").read_text()
    assert ran() == ["doubled", "index", "text"]
    pipeline(kind, by)
    assert ran() == []


def test_what_was_made_again_is_read_once_in_a_session() -> None:
    pipeline("task", "path")
    Path("data").unlink()
    ran()
    with session():
        made("data")
        for _ in range(3):
            indexed("data", "data.idx").result(120)
            doubled(text("data.idx")).result(120)
    assert ran() == ["doubled", "index", "make", "text"]


@wr.command
def split(out: wr.OutFiles("part-*")) -> str:  # type: ignore[valid-type]
    return "echo split >> ../log; date +%N > {out}/part-1; date +%N > {out}/part-2"


@wr.task(version="1", reuse=True)
def joined(parts: wr.InFiles("part-*")) -> str:  # type: ignore[valid-type]
    note("joined")
    return "".join(one.read_text() for one in sorted(Path(parts).glob("part-*")))


@wr.task(version="1", reuse=True)
def listed(directory: wr.InDir) -> str:
    note("listed")
    return "".join(one.read_text() for one in sorted(Path(directory).glob("part-*")))


def test_several_files_that_are_made_again() -> None:
    def run() -> None:
        with session():
            split("d")
            both = [joined("d"), listed("d")]
            assert [one.result(120) for one in both] == [joined("d").result(120)] * 2
        whole = "".join(one.read_text() for one in sorted(Path("d").glob("part-*")))
        assert both[0].result() == both[1].result() == whole

    run()
    assert ran() == ["joined", "listed", "split"]
    run()
    assert ran() == []
    Path("d/part-2").unlink()
    run()
    assert ran() == ["joined", "listed", "split"]
    run()
    assert ran() == []


# -- files in directories of directories


@wr.task(version="1")
def grow(out: wr.OutFiles("**/*.fa"), number: int) -> None:  # type: ignore[valid-type]
    note("grow")
    time.sleep(0.1)
    for one in ("a.fa", "x/b.fa", "x/y/c.fa"):
        Path(out, one).parent.mkdir(exist_ok=True)
        Path(out, one).write_text(f"{number}\n")


@wr.task(version="1", reuse=True)
def deep(where: wr.InFiles("**/*.fa")) -> str:  # type: ignore[valid-type]
    note("deep")
    return "".join(one.read_text() for one in sorted(Path(where).rglob("*.fa")))


def test_files_in_directories_of_directories() -> None:
    def run() -> Any:
        with session():
            grow("d", 1)
            return deep("d").result(120)

    assert run() == "1\n1\n1\n"
    assert ran() == ["deep", "grow"]
    run()
    assert ran() == []
    for name in ("x/y/c.fa", "x/y/d.fa"):
        Path("d", name).write_text("2\n")
        with session():
            assert deep("d").result(120).count("2") == (1 if name == "x/y/c.fa" else 2)
        assert ran() == ["deep"]


@pytest.mark.parametrize("name", ["a.fa", "x/b.fa", "x/y/c.fa"])
def test_two_stars_may_stand_for_no_directory(name: str) -> None:
    with session():
        grow("d", 3)
        assert text(f"d/{name}").result(120) == "3\n"


# -- directories with links


@wr.task(version="1", reuse=True)
def names(directory: wr.InDir) -> list[str]:
    note("names")
    return below(directory)


def below(directory: Any) -> list[str]:
    """List all that a body finds."""
    return sorted(
        os.path.relpath(Path(place, name), directory)
        for place, directories, files in os.walk(directory, followlinks=True)
        for name in (*directories, *files)
        if not name.startswith(".windrow")
    )


@wr.task(version="1", reuse=True)
def behind(directory: wr.InDir) -> str:
    note("behind")
    return Path(directory, "sub", "a.txt").read_text()


@wr.task(version="1", reuse=False)
def put(out: wr.OutFile) -> None:
    Path(out).write_text("new\n")


@pytest.fixture
def linked() -> Path:
    """A directory with another one behind a link, and an empty one."""
    for one in ("real", "d", "d/empty", "d/own"):
        Path(one).mkdir()
    Path("real/a.txt").write_text("a\n")
    Path("d/own/b.txt").write_text("b\n")
    Path("d/sub").symlink_to(Path("real").absolute())
    Path("d/nowhere").symlink_to("no such file")
    return Path("d")


@pytest.mark.parametrize("files", ["stamp", "content"])
def test_changes_behind_links_are_seen(linked: Path, files: str) -> None:
    for expected in (["behind"], []):
        with session(files=files):
            assert behind(linked).result(120) == "a\n"
        assert ran() == expected
    Path("real/a.txt").write_text("changed\n")
    with session(files=files):
        assert behind(linked).result(120) == "changed\n"


@pytest.mark.parametrize("again", [False, True])
def test_a_directory_that_is_written_to_is_shown_whole(linked: Path, again: bool) -> None:
    with session():
        put("d/new.txt")
        first = names(linked)
        if again:
            put("d/new.txt")  # the body may be shown the version before
        shown = first.result(120)
    assert shown == below(linked)
    assert {"empty", "sub/a.txt", "nowhere", "new.txt"} <= set(below(linked))


def test_links_that_go_in_circles(linked: Path) -> None:
    Path("d/own/up").symlink_to(linked.absolute())
    Path("real/back").symlink_to(linked.absolute())

    @wr.task(version="1", reuse=True)
    def both(directory: wr.InDir) -> list[str]:
        note("both")
        found = [Path(directory, one) for one in ("sub/a.txt", "own/up/own/b.txt", "new.txt")]
        return [one.read_text() for one in found if one.exists()]

    for expected in (["both"], []):
        with session():
            assert both(linked).result(120) == ["a\n", "b\n"]
        assert ran() == expected
    with session():
        put("d/new.txt")
        assert both(linked).result(120) == ["a\n", "b\n", "new\n"]


# -- large directories, and the store in them


@pytest.mark.parametrize("writes", [False, True])
def test_a_large_directory_is_not_reused(writes: bool) -> None:
    Path("d").mkdir()
    for number in range(1001):
        Path(f"d/{number:04}").write_text("1")

    @wr.task(version="1")
    def one(out: wr.OutFile) -> None:
        Path(out).write_text("1")

    @wr.task(version="1", reuse=True)
    def total(directory: wr.InDir) -> int:
        return sum(int(one.read_text()) for one in Path(directory).glob("[0-9]*"))

    def run() -> Any:
        with session() as opened:
            if writes:
                one("d/2000")
            result = total("d").result(120)
            assert "so many files" in opened.reuse_stats.reasons[total.declared.name]
        return result

    assert run() == 1001 + writes
    Path("d/0005").write_text("1000")
    assert run() == 2000 + writes


@pytest.mark.parametrize("store", [None, "kept", "../home/deep/kept"])
def test_the_store_is_no_part_of_a_directory(store: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDROW_STORE")
    Path("results").mkdir()  # a name that others use too
    Path("results/a.txt").write_text("a")

    @wr.task(version="1", reuse=True)
    def count(directory: wr.InDir) -> int:
        note("count")
        time.sleep(0.2)
        return len(list(Path(directory).rglob("*.txt")))

    @wr.task(version="1", reuse=True)
    def other(number: int) -> int:
        return number

    for number, expected in enumerate((["count"], [], ["count"])):
        if number == 2:
            Path("results/b.txt").write_text("b")
        with session(store=store):
            counted = count(".")
            other(number).result(120)
            assert counted.result(120) == (2 if number == 2 else 1)
        assert ran() == expected


# -- contents


@pytest.mark.parametrize("pause", [0, 0.15])
def test_content_that_changes_behind_size_and_time(pause: float) -> None:
    def content(said: str) -> None:
        Path("x").write_text(said)
        os.utime("x", times=(1, 1))
        time.sleep(pause)

    for said in ("one", "two", "two", "one"):
        content(said)
        with session(files="content"):
            assert text("x").result(120) == said
    assert ran() == ["text", "text"]
