"""Reuse of what reads files that futures stand for, and what a session says of what it reused."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import windrow as wr


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory of its own."""
    monkeypatch.setenv("WINDROW_STORE", str(tmp_path / "store"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def ran(name: str) -> None:
    with Path("../runs").open("a") as log:
        log.write(name + "\n")


def runs() -> list[str]:
    """Give the bodies that ran since this was asked last, sorted."""
    log = Path("../runs")
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return sorted(names)


@wr.task
def write(text: str, out: wr.OutFile) -> Any:
    ran("write")
    Path(out).write_text(text)
    return out


@wr.task
def copy(source: wr.InFile, out: wr.OutFile) -> Any:
    ran("copy")
    Path(out).write_text(Path(source).read_text() + "!")
    return out


@wr.task
def quietly(source: wr.InFile, out: wr.OutFile) -> None:
    ran("quietly")
    Path(out).write_text(Path(source).read_text() + "?")


@wr.task
def join(sources: wr.InFile, out: wr.OutFile) -> Any:
    ran("join")
    Path(out).write_text("".join(Path(one).read_text() for one in sources))
    return out


@wr.task
def elsewhere(out: wr.OutFile) -> str:
    """What it returns is not what it writes."""
    ran("elsewhere")
    Path(out).write_text("x")
    return "undeclared"


@wr.task(reuse=True)
def text(source: wr.InFile) -> str:
    ran("text")
    return Path(source).read_text()


def session(**options: Any) -> wr.Session:
    return wr.Session(**{"engine": "threads", "workers": 2, **options})


@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("files", ["stamp", "content"])
def test_a_chain_of_futures_is_done_once(engine: str, files: str) -> None:
    expected = ["copy"] * 4 + ["join"] + ["quietly"] * 4 + ["text"] + ["write"] * 4
    for _ in range(3):
        with session(engine=engine, files=files) as opened:
            each = [
                quietly(copy(write(f"{n}", f"w{n}"), f"c{n}"), f"q{n}") for n in range(4)
            ]  # fmt: skip
            assert text(join(each, "all")).result(60) == "0!?1!?2!?3!?"
        assert runs() == expected
        assert opened.reuse_stats.not_reusable == 0
        expected = []


def test_what_changes_is_done_again() -> None:
    def run(first: str = "a") -> str:
        with session():
            return str(text(copy(write(first, "w"), "c")).result(120))

    assert run() == "a!"
    assert runs() == ["copy", "text", "write"]
    # The argument of the first, and back.
    assert [run("b"), run("a")] == ["b!", "a!"]
    assert runs() == ["copy", "copy", "text", "text", "write", "write"]
    # A file that was edited by hand, or is gone.
    Path("w").write_text("edited")
    assert run() == "a!"
    assert runs() == ["copy", "text", "write"]
    Path("c").unlink()
    assert run() == "a!"
    assert runs() == ["copy", "text"]
    assert run() == "a!"
    assert runs() == []


def test_a_file_that_nobody_declared_is_noticed() -> None:
    Path("undeclared").write_text("one")
    for expected in (["elsewhere", "text"], []):
        with session():
            assert text(elsewhere("x")).result(120) == "one"
        assert runs() == expected
    Path("undeclared").write_text("other")
    with session():
        assert text(elsewhere("x")).result(120) == "other"
        assert runs() == ["text"]
        Path("undeclared").write_text("third")
        assert text(elsewhere("x")).result(120) == "third"


def test_the_content_of_files_if_that_is_asked_for() -> None:
    Path("undeclared").write_text("one")
    for expected in (["elsewhere", "text"], []):
        with session(files="content"):
            assert text(elsewhere("x")).result(120) == "one"
        assert runs() == expected
        Path("undeclared").write_text("one")  # later, and the same
    Path("undeclared").write_text("two")
    with session(files="content"):
        assert text(elsewhere("x")).result(120) == "two"


def test_a_path_that_was_overwritten_between_two_calls() -> None:
    for _ in range(2):
        with session():
            made = write("first", "x")
            before = text(made)
            write("second", "x")
            after = text(made)
            assert [before.result(120), after.result(120)] == ["first", "second"]
    with session():
        made = write("first", "x")
        assert text(made).result(120) == "first"
        assert text(made).result(120) == "first"
        Path("x").write_text("by hand")
        assert text(made).result(120) == "by hand"
    assert runs().count("text") == 6


def test_a_file_that_is_about_to_be_written_is_not_what_was_read() -> None:
    """It is as it was read when it is looked at, and will not be."""
    Path("undeclared").write_text("one")
    with session():
        assert text(elsewhere("x")).result(120) == "one"
    with session(workers=1):
        write("two", "undeclared")
        text(elsewhere("x"))
    # Whichever of both came first, nothing is left that says otherwise.
    with session():
        write("two", "undeclared").result(120)
        assert text(elsewhere("x")).result(120) == "two"


def test_addresses_are_not_kept() -> None:
    @wr.task(version="1")
    def address(out: wr.OutFile) -> str:
        Path(out).write_text("x")
        return "root://far/away"

    @wr.task(version="1", reuse=True)
    def name(source: wr.InFile) -> str:
        ran("name")
        return str(source)

    for _ in range(2):
        with session() as opened:
            assert name(address("x")).result(120) == "root://far/away"
        assert "root://far/away" in opened.reuse_stats.reasons[name.declared.name]
    assert runs() == ["name"] * 2


def test_makers_that_are_not_reused() -> None:
    once = wr.task(write.declared.function, reuse=False)
    with session() as opened:
        made = once("a", "x")
        made.result(120)
        copy(made, "y").result(120)
    assert "is not reused itself" in opened.reuse_stats.reasons["copy"]


# -- several files by a pattern


@wr.task
def index(place: wr.OutFiles("ref.*")) -> None:  # type: ignore[valid-type]
    ran("index")
    for ending in ("one", "two"):
        Path(place, f"ref.{ending}").write_text(ending)


@wr.task
def index_by_name(one: wr.OutFile, two: wr.OutFile) -> None:
    ran("index")
    Path(one).write_text("one")
    Path(two).write_text("two")


@wr.task(reuse=True)
def align(idx: wr.InFiles("{idx}/ref.*")) -> str:  # type: ignore[valid-type]
    ran("align")
    return "".join(sorted(one.read_text() for one in Path(idx).glob("ref.*")))


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_files_of_a_pattern_are_the_same_in_the_second_run(by_name: bool, waits: bool) -> None:
    """Also if they are there already, as their writer has ended when they are first read."""
    for expected in (["align", "index"], [], []):
        gate = threading.Event()
        with session(workers=1):
            if not waits:
                wr.task(lambda held: held.wait(120))(gate)
            made = index_by_name("idx/ref.one", "idx/ref.two") if by_name else index("idx")
            if waits:
                made.result(120)
            aligned = align("idx")
            gate.set()
            assert aligned.result(120) == "onetwo"
        assert runs() == expected
    Path("idx/ref.three").write_text("three")
    with session():
        if by_name:
            index_by_name("idx/ref.one", "idx/ref.two")
        else:
            index("idx")
        assert align("idx").result(120) == "onethreetwo"


def test_many_outputs_are_looked_at_once_each() -> None:
    """The work to find that all of them are there does not grow with their square."""

    @wr.task(version="1")
    def many(outs: wr.OutFile) -> None:
        for one in outs:
            Path(one).write_text("x")

    names = [f"out{number}" for number in range(200)]
    with session():
        many(names).result(120)
    counted = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call") and "reus" in frame.f_code.co_filename

    with session() as opened:
        sys.setprofile(count)
        try:
            many(names)
        finally:
            sys.setprofile(None)
    assert opened.reuse_stats.found_in_store == 1
    assert counted < 20 * len(names)


# -- what is said


def test_each_call_is_explained_by_itself() -> None:
    @wr.task(reuse=True, version="1")
    def name() -> str:
        return str(Path("w").absolute())

    for by_path in (True, False):
        with session() as opened:
            write("a", "w").result(120)
            by_future = copy(name(), "c1")
            of_path = copy("w", "c2")
            opened.barrier()
            assert "value of a future" in opened.explain(by_future)
            said = opened.explain(of_path)
            assert "value of a future" not in said
            assert ("the next one gets its result" in said) is by_path
            assert ("did not run" in said) is not by_path


def test_a_session_says_what_was_reused() -> None:
    for _ in range(2):
        with session() as opened:
            copy(write("a", "w"), "c")
            opened.barrier()
            said = opened.explain()
    assert "nothing had to run: all 2 calls got the result of an earlier one" in said
    assert "2 calls were answered by results of earlier runs" in said
    assert "not reusable" not in said


def test_a_session_says_what_was_not_reusable() -> None:
    @wr.task(reuse=True)
    def size(thing: Any) -> int:
        return len(thing)

    with session() as opened:
        for _ in range(3):
            size(bytearray(3))
        size(iter([]).__class__.__mro__)
        wr.task(size.declared.function, reuse=True, on_failure="ignore")("abc")
        opened.barrier()
        said = opened.explain()
    refused = opened.reuse_stats.not_reusable
    assert refused >= 4
    assert f"3 of {refused} calls were not reusable: argument 'thing' " in said
    assert said.count(f"(task {size.declared.name!r})") >= 2  # each reason by itself
