"""Files of tasks: who waits for whom, what the body is given, and what is there afterwards, on every engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from tasks.file_bodies import (
    align,
    append,
    bad,
    empties,
    fill,
    fills_nothing,
    forgets,
    holdings,
    index,
    join,
    join_list,
    kinds_of_paths,
    listed,
    makes_no_parts,
    parts_of,
    read,
    read_all,
    slowly,
    split,
    tell_path,
    with_sidecar,
    write,
)
from windrow.errors import DependencyError, MissingFileError, TaskFileError, UsageError
from windrow.tasks.files import stamps, table, writing
from windrow.tasks.files.claims import Claim
from windrow.tasks.files.stamps import Stamp, content_digest, matches, stamp

if TYPE_CHECKING:
    from collections.abc import Callable

#: Starting processes takes a second: they are for what may differ there.
everywhere = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
engines = pytest.mark.parametrize("engine", ["inline", "threads"])


pytestmark = pytest.mark.usefixtures("place")


def session(engine: str, **options: Any) -> wr.Session:
    return wr.Session(engine=engine, workers=2, reuse=False, **options)


def both(program: Callable[[], Any], place: Path, engine: str) -> tuple[Any, Any]:
    """Run a program plainly and in a session; give what each returned and left."""
    Path("sub").mkdir()  # sessions make the directories that files are written to
    expected = (program(), holdings(place))
    for one in place.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    with session(engine) as opened:
        got = opened.gather(program())
    return expected, (got, holdings(place))


@everywhere
def test_a_program_with_files_gives_what_it_gives_without_a_session(engine: str, place: Path) -> None:
    def program() -> list[Any]:
        found = []
        slowly("a.txt", "first")
        write(Path("sub/b.txt"), "B")
        found.append(read("a.txt"))
        join("c.txt", "a.txt", Path("sub/b.txt"))
        append("a.txt", " more")
        found.append(read("a.txt"))
        join_list(["a.txt", "c.txt"], out="d.txt")
        slowly("a.txt", "second")
        append(path="a.txt", text="!")
        found += [read("a.txt"), read("c.txt"), read("d.txt")]
        return found

    expected, got = both(program, place, engine)
    assert got == expected
    assert got[0] == ["first", "first more", "second!", "firstB", "first morefirstB"]


@everywhere
def test_directories_and_patterns(engine: str, place: Path) -> None:
    with session(engine) as opened:
        fill("tree", ["x", "in/y"])
        first = listed("tree")
        inside = read("tree/in/y")
        fill(Path("tree"), ["z"])
        second = listed("tree")
        split("parts", 3, text="p")
        several = parts_of("parts")
        one = read("parts/part-2.txt")
        index("ref.fa", "i")
        aligned = align("ref.fa")
        index("ref.fa", "j")
        again = align(Path("ref.fa"))
        got = opened.gather([first, inside, second, several, one, aligned, again])
    assert got == [
        {"in/y": "in/y of 2", "x": "x of 2"},
        "in/y of 2",
        {"z": "z of 1"},
        ["p0", "p1", "p2"],
        "p2",
        "iamb|ibwt",
        "jamb|jbwt",
    ]
    assert sorted(holdings(place)) == [
        "parts", "parts/log", "parts/part-0.txt", "parts/part-1.txt", "parts/part-2.txt",
        "ref.fa.amb", "ref.fa.bwt", "tree", "tree/z",
    ]  # fmt: skip


def test_files_that_match_now_are_read(place: Path) -> None:
    for name in ("old.fa", "old.fa.x", "old.fa.y", "other.fa.x"):
        (place / name).write_text(name)
    with session("threads"):
        found = align("old.fa")
        assert found.result(120) == "old.fa.x|old.fa.y"
        with pytest.raises(MissingFileError, match=r"'align' reads .*nothing\.fa\.\*"):
            align("nothing.fa")


@engines
def test_what_is_made_beside_the_output_comes_along(engine: str, place: Path) -> None:
    (place / "x.bam.bai").write_text("stale")
    with session(engine):
        with_sidecar("x.bam", "reads")
    assert holdings(place) == {"x.bam": "reads", "x.bam.bai": "index of reads"}


@everywhere
def test_a_body_that_fails_leaves_nothing(engine: str, place: Path) -> None:
    (place / "kept.txt").write_text("before")
    with session(engine):
        new, old = bad("new/deep/x.txt"), bad("kept.txt")
        later = read("kept.txt")
        assert isinstance(new.exception(120), ValueError)
        assert isinstance(old.exception(120), ValueError)
        assert isinstance(later.exception(120), DependencyError)
        assert holdings(place) == {"kept.txt": "before"}
    assert holdings(place) == {"kept.txt": "before"}


@engines
@pytest.mark.parametrize(
    ("task", "message"),
    [
        (forgets, r"'forgets' has ended, and .*x \(parameter 'out', OutFile\) was not written; it made \['other.txt'\]"),
        (empties, r"'empties' has ended, and .*x \(parameter 'out', OutFile\) is an empty file"),
        (makes_no_parts, r"OutFiles\) has no file that matches 'part-\*.txt'"),
        (fills_nothing, r"OutDir\) is an empty directory"),
    ],
)  # fmt: skip
def test_an_output_that_was_not_written_is_a_failure(engine: str, task: Any, message: str, place: Path) -> None:
    with session(engine), pytest.raises(TaskFileError, match=message):
        task("x").result(120)
    assert holdings(place) == {}


@engines
def test_a_file_that_is_there_is_replaced_at_the_end_only(engine: str, place: Path) -> None:
    Path("x").write_text("before")
    Path("x").chmod(0o640)

    @wr.task
    def looks(out: wr.OutFile, there: str) -> str:
        Path(out).write_text("after")
        return Path(there).read_text()

    with session(engine):
        assert looks("x", str(place / "x")).result(120) == "before"
    assert holdings(place) == {"x": "after"}
    assert Path("x").stat().st_mode & 0o777 == 0o640


@everywhere
def test_bodies_get_paths_in_the_form_that_was_given(engine: str, place: Path) -> None:
    Path("a").write_text("a")
    with session(engine) as opened:
        found = kinds_of_paths("a", [Path("a"), "a"], Path("out"))
        more = kinds_of_paths(Path("a"), ("a",), "out2")
        assert opened.gather([found, more]) == [
            ["str", "list", type(Path()).__name__, type(Path()).__name__],
            [type(Path()).__name__, "tuple", "str", "str"],
        ]
        told = [tell_path("t1"), tell_path(Path("t2"))]
        assert opened.gather(told) == [str(place / "t1"), place / "t2"]
        assert read(told[0]).result(120) == "x"
        assert read_all([told[1], "a"]).result(120) == ["x", "a"]


@everywhere
def test_paths_mean_what_they_meant_at_the_call(engine: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = place / "other"
    other.mkdir()

    @wr.task
    def relative(value: str) -> str:
        return value

    with session(engine) as opened:
        slowly("x", "here")
        Path("there").write_text("!")
        named = read(relative("there"))
        monkeypatch.chdir(other)
        slowly("x", "elsewhere")
        got = opened.gather([read("x"), read("../x"), named])
    assert got == ["elsewhere", "here", "!"]


@everywhere
def test_a_path_that_a_task_says_may_be_of_several_files(engine: str) -> None:
    @wr.task
    def names(count: int) -> list[str]:
        for number in range(count):
            Path(where, str(number)).write_text(str(number))
        return [os.path.join(where, str(number)) for number in range(count)]  # noqa: PTH118

    where = str(Path.cwd())
    with session(engine):
        assert read_all(names(3)).result(120) == ["0", "1", "2"]
        missing = read(absent())
        with pytest.raises(MissingFileError, match=r"'read' reads .*absent"):
            missing.result(120)


def test_what_is_missing_is_told_by_what_was_to_be_there() -> None:
    Path("table.txt").write_text("x")
    with session("inline"):
        with pytest.raises(UsageError, match=r"directory .*table\.txt .*where a file is; .*wr\.InFile"):
            listed("table.txt")
        with pytest.raises(MissingFileError, match=r"no such directory, .*with wr\.OutDir$"):
            listed("none")
        with pytest.raises(MissingFileError, match=r"none\.\* .*no such file, .*with wr\.OutFiles$"):
            align("none")


@wr.task
def absent() -> str:
    return "absent"


@engines
@pytest.mark.parametrize("task", [write, append])
def test_a_path_to_write_is_known_at_the_call(engine: str, task: Any, place: Path) -> None:
    message = r"is given a future as the path of what it writes \(parameter '\w+', \w+\), .*result\(\)"
    with session(engine), pytest.raises(UsageError, match=message):
        task(absent(), "said")
    assert holdings(place) == {}


def test_defaults_are_paths_too(place: Path) -> None:
    @wr.task
    def defaults(path: wr.InFile = "in.txt", *, out: wr.OutFile = Path("out.txt"), log: wr.OutFile = None) -> None:  # fmt: skip
        assert Path(out).parent != place
        assert log is None
        Path(out).write_text(Path(path).read_text().upper())

    with session("threads"):
        with pytest.raises(MissingFileError):
            defaults()
        write("in.txt", "text")
        defaults()
    assert holdings(place) == {"in.txt": "text", "out.txt": "TEXT"}


def test_what_cannot_be_meant_is_refused_at_the_call(place: Path) -> None:
    (place / "directory").mkdir()
    (place / "reads.fq").write_text("x")

    @wr.task
    def two(one: wr.OutFile, other: wr.OutFile) -> None: ...

    @wr.task
    def in_tree(tree: wr.OutDir, other: wr.OutFile) -> None: ...

    with session("inline"):
        with pytest.raises(UsageError, match="give each output a path of its own"):
            two("x", other="./x")
        with pytest.raises(UsageError, match="give each output a path of its own"):
            in_tree("x", "x/y")
        with pytest.raises(UsageError, match=r"is annotated with wr\.OutFile, so it is given a path"):
            write(3, "text")
        with pytest.raises(UsageError, match=r"where a directory is; name a file in it"):
            write("directory", "text")
        with pytest.raises(UsageError, match="where a file is"):
            fill("reads.fq", ["x"])
        with pytest.raises(
            MissingFileError,
            match=r"'read' reads .*raeds.fq \(parameter 'path', InFile\).*annotate .*wr.OutFile; did you mean 'reads.fq'",
        ):
            read("raeds.fq")
        with pytest.raises(MissingFileError):
            append("nothing", "x")
        with pytest.raises(MissingFileError):
            listed("nowhere")
    assert sorted(holdings(place)) == ["directory", "reads.fq"]


def test_a_call_that_was_refused_does_not_count_as_a_writer(place: Path) -> None:
    with session("inline"):
        with pytest.raises(MissingFileError):
            join("x", "nothing")
        with pytest.raises(MissingFileError):
            read("x")


@engines
def test_a_file_that_changes_behind_the_session_is_noticed(engine: str, place: Path) -> None:
    Path("x").write_text("before")

    @wr.task
    def change(path: str) -> None:
        while not Path(f"{path}.go").exists():
            time.sleep(0.005)
        Path(path).write_text("something else")

    @wr.task
    def read_after(_: Any, path: wr.InFile) -> str:
        return Path(path).read_text()

    with session(engine):
        found = read_after(change(str(place / "x")), "x")
        Path("x.go").touch()
        with pytest.raises(TaskFileError, match=r"which has changed: it had 6 bytes and has 14"):
            found.result(120)


@engines
def test_the_program_itself_may_change_a_file_between_calls(engine: str) -> None:
    with session(engine) as opened:
        write("x", "task's")
        Path(opened.files.wait("x")).write_text("program's own")
        assert read("x").result(120) == "program's own"
        append("x", "!")
        assert read("x").result(120) == "program's own!"


@engines
def test_waiting_for_a_file(engine: str, place: Path) -> None:
    Path("there").write_text("x")
    with session(engine) as opened:
        slowly("x", "slow")
        fill("tree", ["a"])
        assert opened.files.latest("there") is None
        assert opened.files.wait("there") == str(place / "there")
        future = opened.files.latest(Path("x"))
        assert future is not None
        assert Path(opened.files.wait("x")).read_text() == "slow"
        assert future.done()
        assert Path(opened.files.wait("tree/a")).read_text() == "a of 1"
        assert matches(future.result(120))
        bad("y")
        with pytest.raises(ValueError, match="spilled"):
            opened.files.wait("y")


@engines
def test_what_may_fail_leaves_what_was_there(engine: str) -> None:
    Path("x").write_text("before")
    with session(engine):
        bad.options(on_failure="ignore")("x")
        assert read("x").result(120) == "before"
        bad.options(on_failure="ignore")("y")
        with pytest.raises(MissingFileError, match=r"reads .*y .*task that writes it has failed, and"):
            read("y").result(120)


def test_a_task_is_tried_again_from_nothing(place: Path) -> None:
    tries: list[bool] = []

    @wr.task(on_failure="retry", retries=2)
    def third_time(path: wr.InOutFile, out: wr.OutFile) -> None:
        tries.append(Path(out).exists())
        with Path(path).open("a") as stream:
            stream.write("+")
        Path(out).write_text("x")
        if len(tries) < 3:
            raise OSError("not yet")

    Path("x").write_text("1")
    with session("threads"):
        third_time("x", "y")
    assert tries == [False] * 3
    assert holdings(place) == {"x": "1+", "y": "x"}


def test_an_attempt_called_off_while_it_publishes_does_not_overwrite_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, followed = threading.Event(), threading.Event()
    move_all = writing._Attempt._move_all

    def slowly(attempt: Any, *about: Any) -> None:
        if attempt._going.name.endswith("unwanted"):
            moving.set()
            followed.wait(0.5)  # as long as this takes, the next one may not be in place
        move_all(attempt, *about)
        if not attempt._going.name.endswith("unwanted"):
            followed.set()

    monkeypatch.setattr(writing._Attempt, "_move_all", slowly)

    @wr.task
    def unwanted(out: wr.OutFile) -> None:
        Path(out).write_text("nobody wants this")

    with session("threads") as opened:
        group = opened.group()
        with group:
            unwanted("x")
        assert moving.wait(120)
        group.cancel()
        write("x", "wanted")
        opened.barrier(30)
    assert holdings(place) == {"x": "wanted"}


def test_a_cancelled_thread_leaves_no_trace(place: Path) -> None:
    began, may_go_on = threading.Event(), threading.Event()

    @wr.task
    def waits(out: wr.OutFile) -> None:
        Path(out).write_text("nobody wants this")
        began.set()
        may_go_on.wait(120)

    with session("threads") as opened:
        group = opened.group()
        with group:
            waits("x")
        assert began.wait(120)
        group.cancel()
        write("x", "wanted")
        may_go_on.set()
        opened.barrier(30)
    assert holdings(place) == {"x": "wanted"}


def test_a_file_is_complete_when_its_task_has_ended(place: Path) -> None:
    began, may_go_on = threading.Event(), threading.Event()

    @wr.task(outputs=2)
    def by_and_by(out: wr.OutFile) -> Any:
        Path(out).write_text("part")
        yield 1
        began.set()
        may_go_on.wait(120)
        Path(out).write_text("all")
        yield 2

    with session("threads"):
        first, second = by_and_by("x")
        after = read("x")
        began.wait(120)
        assert not Path("x").exists()
        assert not first.done()
        assert not after.done()
        may_go_on.set()
        assert (first.result(120), second.result(120)) == (1, 2)
        assert after.result(120) == "all"


def test_annotations_are_understood_in_many_forms() -> None:
    import windrow as other_name

    @wr.task
    def many(
        one: other_name.InFile,
        two: wr.InFile | None,
        three: list[wr.InFile],
        four: other_name.InFiles("{one}.*"),  # type: ignore[valid-type]
        five: Unknown,  # type: ignore[name-defined]  # noqa: F821
        six: int,
        seven: wr.OutDir,
    ) -> None: ...

    found = {name: kind.name for name, kind in many.declared.files.items()}
    assert found == {
        "one": "InFile", "two": "InFile", "three": "InFile", "four": "InFiles", "seven": "OutDir",
    }  # fmt: skip
    assert many.declared.files["four"].pattern == "{one}.*"


def test_links_stay_links(place: Path) -> None:
    (place / "real").mkdir()
    (place / "real" / "x").write_text("before")
    (place / "link").symlink_to("real/x")
    with session("threads"):
        write("link", "after")
        assert read("link").result(120) == "after"
    assert (place / "link").is_symlink()
    assert (place / "real" / "x").read_text() == "after"


def test_devices_are_written_as_they_are() -> None:
    with session("threads") as opened:
        opened.gather(write(os.devnull, "x"))


def test_what_dead_processes_left_is_removed(place: Path) -> None:
    code = "from windrow.tasks.files.scratch import new_token, make_private; print(make_private('.', new_token(), 1))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=place, capture_output=True)
    (place / ".windrow-lock").write_text("")
    (place / ".windrow-00000000-1-1-00000000").mkdir()  # of another machine
    assert len(list(place.iterdir())) == 3
    began, gate = threading.Event(), threading.Event()

    @wr.task
    def waits(out: wr.OutFile) -> None:
        began.set()
        assert gate.wait(120)
        Path(out).write_text("x")

    with session("threads"):
        waits("x")
        assert began.wait(120)
        with session("threads") as other:
            write("y", "y")
            other.files.wait("y")
            hidden = [one.name for one in place.iterdir() if one.is_dir()]
            gate.set()
            assert len(hidden) == 2  # the other session lives
    assert sorted(holdings(place)) == [".windrow-00000000-1-1-00000000", ".windrow-lock", "x", "y"]


def test_stamps_and_digests(place: Path) -> None:
    import hashlib

    path = place / "x"
    path.write_bytes(b"content")
    known = stamp(path)
    assert known == Stamp(str(path), 7, path.stat().st_mtime_ns)
    assert matches(known)
    assert matches((tuple(known), tuple(known)))
    assert content_digest(path) == hashlib.sha256(b"content").hexdigest()
    path.write_bytes(b"another")
    os.utime(path, ns=(0, known.mtime_ns + 1))
    assert not matches(known)
    assert content_digest(path) == hashlib.sha256(b"another").hexdigest()
    path.unlink()
    assert not matches(known)
    (place / "d").mkdir()
    (place / "d" / "y").write_bytes(b"12345")
    assert stamp(place / "d").size == 5
    before = content_digest(place / "d")
    (place / "d" / "z").write_bytes(b"1")
    assert content_digest(place / "d") != before


def test_files_that_go_while_they_are_looked_at(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that overwrites a directory moves its files while another one that reads it is called."""
    (place / "tree").mkdir()
    for name in ("a", "b"):
        (place / "tree" / name).write_text(name)
    look = stamps.stamp

    def too_late(path: str) -> Any:
        if path.endswith("a"):
            Path(path).unlink()
        return look(path)

    monkeypatch.setattr(table, "stamp", too_late)
    found = table._there([Claim("tree", str(place / "tree"))])
    assert [Path(one.path).name for one in found or ()] == ["b"]
