"""Which calls have to do with each other: by patterns that no file can match both, and of very many."""

from __future__ import annotations

import glob
import time
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from tasks.file_diary import note, ran, session
from windrow.tasks.files.claims import Claim, Claims, literal, meet

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
    known.read(first, 1)
    assert [entry.claim for entry in known.meeting(second)] == [first] * expected


@pytest.mark.parametrize("name", ["*star*", "[br]", "a?b", "[", "]", "[]", "[!a]"])
def test_characters_of_names_have_no_meaning(name: str) -> None:
    pattern = Claim("glob", f"/d/{glob.escape(name)}.*")
    assert literal(pattern.path) == f"/d/{name}."
    assert meet(pattern, Claim("file", f"/d/{name}.fa"))
    assert not meet(pattern, Claim("glob", "/d/other.*"))
    assert not meet(pattern, Claim("file", "/d/other.fa"))


# -- many


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
@pytest.mark.parametrize("number", [1, 150])
def test_all_of_many_writers_are_waited_for(count: Any, number: int) -> None:
    Path("d").mkdir()
    with wr.Session(engine="threads", workers=2, reuse=False):
        for one in range(number):
            write_one.options(priority=-1)(f"d/{one}.txt")
        assert count("d").result(60) == number
