"""Which calls have to do with each other: by patterns that no file can match both, and by paths that are not known yet."""

from __future__ import annotations

import glob
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from tasks.file_diary import note, ran, session
from windrow.tasks.file_claims import FEW, MANY, Claim, Claims, literal, meet
from windrow.tasks.file_table import MOST_LATE

pytestmark = pytest.mark.usefixtures("place")


# -- patterns


@wr.task(version="1")
def fasta(out: wr.OutFiles("part-*.fa")) -> None:  # type: ignore[valid-type]
    note("fasta")
    Path(out, "part-1.fa").write_text("1\n")


@wr.task(version="1")
def texts(where: wr.InFiles("*.txt"), out: wr.OutFile) -> None:  # type: ignore[valid-type]
    note("texts")
    Path(out).write_text("".join(one.read_text() for one in sorted(Path(where).glob("*.txt"))))


def test_patterns_with_other_endings_do_not_meet() -> None:
    Path("d").mkdir()
    Path("d/a.txt").write_text("a\n")
    for expected in (["fasta", "texts"], [], []):
        with session():
            fasta("d")
            texts("d", "out")
        assert ran() == expected
    Path("d/part-1.fa").unlink()
    with session():
        fasta("d")
        texts("d", "out")
    assert ran() == ["fasta"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("/d/part-*.fa", "/d/*.txt", False),
        ("/d/*.fa", "/d/*.fa.gz", False),
        ("/d/*.gz", "/d/*.fa.gz", True),
        ("/d/*", "/d/*.fa", True),
        ("/d/**/*.fa", "/d/x/y.*", True),
        ("/d/a.[ft]*", "/d/*.txt", True),
        ("/d/a.[ft]a", "/d/*.fa", True),
        ("/d/[*]x.*", "/d/y.*", False),
        ("/d/[*]x.*", "/d/*.fa", True),
        ("/d/[[]x.*", "/d/[[]x.fa*", True),
        ("/d/[*x].*", "/d/x.*", True),
        ("/d/[!a].*", "/d/b.*", True),
    ],
)
def test_patterns_that_meet(one: str, other: str, expected: bool) -> None:
    first, second = Claim("glob", one), Claim("glob", other)
    assert meet(first, second) is meet(second, first) is expected
    known = Claims()
    known.read(first, 1, ())
    assert [entry.claim for entry in known.meeting(second)] == [first] * expected


@pytest.mark.parametrize("name", ["*star*", "[br]", "a?b", "[", "]", "[]", "[!a]"])
def test_characters_of_names_have_no_meaning(name: str) -> None:
    pattern = Claim("glob", f"/d/{glob.escape(name)}.*")
    assert literal(pattern.path) == f"/d/{name}."
    assert meet(pattern, Claim("file", f"/d/{name}.fa"))
    assert not meet(pattern, Claim("glob", "/d/other.*"))
    assert not meet(pattern, Claim("file", "/d/other.fa"))


# -- paths that only futures know


@wr.task(version="1", reuse=True)
def text(data: wr.InFile) -> str:
    note("text")
    return Path(data).read_text()


@wr.task(reuse=False)
def late_name(path: str) -> str:
    time.sleep(0.2)
    return path


@wr.task(version="1")
def store(out: wr.OutFile, said: str) -> None:
    Path(out).write_text(said)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_what_is_written_where_only_a_future_knows_is_waited_for(engine: str, there: bool) -> None:
    if there:
        Path("out.txt").write_text("before")
        with session(engine=engine):
            assert text("out.txt").result(120) == "before"
    for said in ("one", "two"):
        with session(engine=engine):
            store(late_name("out.txt"), said)
            assert text("out.txt").result(120) == said


def test_the_last_of_them_is_read() -> None:
    with session(workers=4):
        store("out.txt", "one")
        store(late_name("out.txt"), "two")
        second = text("out.txt")
        store("out.txt", "three")
        third = text("out.txt")
        assert [second.result(120), third.result(120)] == ["two", "three"]
    assert Path("out.txt").read_text() == "three"


def test_what_an_earlier_run_wrote_may_be_overwritten_before() -> None:
    for _ in range(2):
        with session():
            store(late_name("out.txt"), "late")
            store("out.txt", "last")
        assert Path("out.txt").read_text() == "last"


def test_a_file_that_nobody_writes_in_the_end() -> None:
    with session():
        store(late_name("other.txt"), "x")
        missing = text("out.txt")
        with pytest.raises(wr.errors.MissingFileError, match=r"reads .*out\.txt"):
            missing.result(120)


def test_who_names_a_file_comes_after_all_that_write_where_only_futures_know(tmp_path: Path) -> None:
    """Also where those are many: each of them comes after one of long before, so that the latest stand for all."""
    (tmp_path / "made").mkdir()

    @wr.task
    def name(number: int) -> str:
        return str(tmp_path / "made" / f"{number}.txt")

    @wr.task
    def write(out: wr.OutFile, number: int) -> None:
        Path(out).write_text(f"{number}")

    @wr.task
    def total(directory: wr.InDir) -> int:
        return sum(int(one.read_text()) for one in Path(directory).glob("*.txt"))

    with wr.Session(engine="threads", workers=4, reuse=False) as session:
        for number in range(200):
            write(name(number), number)
        found = total(tmp_path / "made")
        after = [len(node.task.after) for node in session._driver._scheduler.graph.nodes.values()]  # fmt: skip
        assert found.result(60) == sum(range(200))
        assert max(after, default=0) <= 64


def test_one_of_very_many_that_has_failed_stands_for_no_other(tmp_path: Path) -> None:
    going, called = threading.Event(), threading.Event()

    @wr.task
    def name(number: int) -> Path:
        if number == MOST_LATE:  # its writer comes after the first one, and ends before that
            assert called.wait(60)
            raise ValueError("no name")
        return tmp_path / f"{number}.txt"

    @wr.task
    def write(out: wr.OutFile, number: int) -> None:
        assert going.wait(60)
        Path(out).write_text(f"{number}")

    @wr.task
    def read(path: wr.InFile) -> str:
        return Path(path).read_text()

    (tmp_path / "0.txt").write_text("old")
    with wr.Session(engine="threads", workers=4, reuse=False) as session:
        names = [name(number) for number in range(MOST_LATE + 3)]
        written = [write(one, number) for number, one in enumerate(names)]
        called.set()
        assert written[MOST_LATE].exception(60) is not None
        found = read.options(priority=1)(tmp_path / "0.txt")
        nodes = session._driver._scheduler.graph.nodes
        while found.call.id not in nodes:
            time.sleep(0.001)
        before = nodes[found.call.id].task.after
        going.set()
        assert written[0].call.id in before
        assert found.result(60) == "0"


@wr.task
def write_one(out: wr.OutFile) -> None:
    time.sleep(0.001)
    Path(out).write_text("one")


@wr.task
def count_all(directory: wr.InDir) -> int:
    return len(list(Path(directory).glob("*.txt")))


@wr.task
def count_matching(directory: wr.InFiles("*.txt")) -> int:  # type: ignore[valid-type]
    return len(list(Path(directory).glob("*.txt")))


@pytest.mark.parametrize("count", [count_all, count_matching])
@pytest.mark.parametrize("number", [FEW, FEW + 1, 3 * FEW])
def test_all_of_many_writers_are_waited_for(count: Any, number: int) -> None:
    Path("d").mkdir()
    with wr.Session(engine="threads", workers=2, reuse=False):
        for one in range(number):
            write_one.options(priority=-1)(f"d/{one}.txt")
        assert count("d").result(60) == number


@pytest.mark.parametrize("number", [MANY - 1, MANY, MANY + 1])
def test_a_writer_waits_for_the_last_of_very_many_readers(number: int) -> None:
    claims, claim = Claims(), Claim("file", "/d/a.txt")
    for task in range(1, number + 1):
        claims.read(claim, task, range(1, task))  # it is open when all is known of its files
    assert claims.meeting(claim)[0].readers == list(range(1, number + 1))
    claims.read(claim, number + 1, {number})
    assert set(claims.meeting(claim)[0].readers) >= {number, number + 1}


def test_one_that_is_just_being_called_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread calls something with files between two steps of the call."""
    go = threading.Event()

    @wr.task
    def name() -> Path:
        assert go.wait(60)
        return tmp_path / "a.txt"

    @wr.task
    def write(out: wr.OutFile) -> None:
        Path(out).write_text("new")

    @wr.task
    def read(path: wr.InFile) -> str:
        return Path(path).read_text()

    for one in ("a", "b"):
        (tmp_path / f"{one}.txt").write_text("old")
    with wr.Session(engine="threads", workers=2, reuse=False) as session:
        where, hand_over = name(), session._driver.submit

        def between(record: Any, task: Any) -> None:
            monkeypatch.undo()
            other = threading.Thread(target=session.call, args=(read.declared, (tmp_path / "b.txt",), {}))  # fmt: skip
            other.start()
            other.join()
            hand_over(record, task)

        monkeypatch.setattr(session._driver, "submit", between)
        write(where)
        found = read(tmp_path / "a.txt")
        go.set()
        assert found.result(60) == "new"
