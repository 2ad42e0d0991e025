"""Where files are: links, strange names, places that nobody closes, and what fails there."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from tasks.file_bodies import align, fill, holdings, index, listed, read, write
from windrow.errors import TaskFileError
from windrow.tasks.files import writing
from windrow.tasks.files.claims import Claim, Claims, literal, meet

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.usefixtures("place")


def session(engine: str = "threads", **options: Any) -> wr.Session:
    return wr.Session(engine=engine, workers=2, reuse=False, **options)


# -- names


def test_a_file_is_the_same_by_any_way_to_its_directory(place: Path) -> None:
    (place / "real" / "in").mkdir(parents=True)
    (place / "link").symlink_to("real/in")
    (place / "real" / "in" / "x").write_text("old")
    go_on = threading.Event()

    @wr.task
    def when_told(out: wr.OutFile) -> Any:
        assert go_on.wait(120)
        Path(out).write_text("new")
        return out

    with session() as opened:
        told = when_told("link/x")
        found = [read("real/in/x"), read("link/../in/x"), listed("real/in"), listed("link")]
        assert opened.files.latest("real/in/x") is not None
        go_on.set()
        assert opened.gather(found) == ["new", "new", {"x": "new"}, {"x": "new"}]
        assert Path(told.result(120)).samefile("real/in/x")
        index("link/ref", "i")
        assert align("real/in/ref").result(120) == "iamb|ibwt"
        fill("link", ["y"])
        assert listed("real/in").result(120) == {"y": "y of 1"}
    assert (place / "link").is_symlink()
    assert holdings(place / "real" / "in") == {"y": "y of 1"}


def test_links_to_one_file_cannot_both_be_written(place: Path) -> None:
    (place / "real").write_text("x")
    for name in ("a", "b"):
        (place / name).symlink_to("real")

    @wr.task
    def two(one: wr.OutFile, other: wr.OutFile) -> None:
        for path in (one, other):
            Path(path).write_text(str(path))

    with session(), pytest.raises(TaskFileError, match="is another name of it"):
        two("a", "b").result(120)
    assert (place / "real").read_text() == "x"


@pytest.mark.parametrize(
    "name",
    ["new\nline", "ünïcode ✓", b"caf\xe9".decode("utf-8", "surrogateescape"), "*?[x] 'q'", "長" * 80],
)  # fmt: skip
def test_files_may_have_any_name(name: str, place: Path) -> None:
    with session() as opened:
        write(name, "text")
        fill(f"in {name}"[:80], ["x"])
        assert opened.gather([read(name), listed(f"in {name}"[:80])]) == ["text", {"x": "x of 1"}]
    assert (place / name).read_text() == "text"


# -- claims

parts = st.sampled_from(["a", "b", "ab", "c-"])
paths = st.lists(parts, min_size=1, max_size=3).map(lambda one: "/" + "/".join(one))
claims = st.one_of(
    st.builds(Claim, st.sampled_from(["file", "tree"]), paths | st.just("/")),
    st.builds(lambda path, end: Claim("glob", path + end), paths, st.sampled_from(["*", "/*", "/*/a", "?b"])),
)  # fmt: skip


def test_a_directory_that_is_written_does_not_hide_files_beside_it() -> None:
    claims = Claims()
    written: Any = object()
    claims.write(Claim("glob", "/d/out*"), 1, written)
    claims.write(Claim("tree", "/d/out"), 2, written)
    assert [one.writer for one in claims.makers(Claim("file", "/d/out2.txt"))] == [1]


def test_claims_that_meet_are_found() -> None:
    paths = ["/", "/a", "/a/b", "/a/b/c", "/a/bc", "/d", "/d/e/f"]
    known = [Claim(shape, path) for path in paths for shape in ("file", "tree")]
    known += [Claim("glob", one) for one in ("/a/b*", "/a/*/c", "/*", "/d/e/f*", "/a/b/*.x")]
    for claim in known:
        claims = Claims()
        for one in known:
            claims.read(one, 1)
        found = [one.claim for one in claims.meeting(claim)]
        assert len(found) == len(set(found))
        assert {one for one in known if meet(claim, one)} == set(found)


@given(st.lists(claims, max_size=12), st.lists(st.tuples(st.booleans(), claims), max_size=12))
def test_claims_are_found_whatever_came_before(asked: list[Claim], steps: list[tuple[bool, Claim]]) -> None:
    table, known, written = Claims(), dict[Claim, None](), object()
    for number, (writes, claim) in enumerate(steps, 1):
        if writes and claim.shape == "tree":  # what is said of anything inside counts no more
            inside = claim.path.rstrip("/") + "/"
            gone = [one for one in known if literal(one.path).startswith(inside) or one == Claim("file", claim.path)]
            for one in gone:
                del known[one]
        known[claim] = None
        table.write(claim, number, written) if writes else table.read(claim, number)  # type: ignore[arg-type]
        for one in (*asked, claim):
            found = [entry.claim for entry in table.meeting(one)]
            assert len(found) == len(set(found))
            assert set(found) == {other for other in known if meet(one, other)}


# -- many


def calls_of(function: Callable[[], Any]) -> int:
    """Count the calls of functions, which no other work on the machine changes."""
    count = 0

    def counting(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    threading.setprofile(counting)
    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return count


@pytest.mark.parametrize("own", [True, False])
def test_the_cost_of_many_patterns_is_in_proportion(own: bool) -> None:
    """Samples that read one index, or have one each, all in one directory."""

    def calls(number: int) -> None:
        claims = Claims()
        written: Any = object()
        for one in range(number):
            index = Claim("glob", f"/d/{one}.*" if own else "/d/genome.*")
            for claim in (index, Claim("file", f"/d/{one}.bam")):
                claims.makers(claim)
            claims.read(index, one + 1)
            claims.write(Claim("file", f"/d/{one}.bam"), one + 1, written)

    few = calls_of(lambda: calls(40))
    assert calls_of(lambda: calls(400)) < 14 * few


def test_the_cost_of_many_outputs_is_in_proportion(place: Path) -> None:
    @wr.task
    def many(reads: wr.InFile, outs: wr.OutFile) -> None:
        for one in outs:
            Path(one).write_text("x")

    def calls(number: int) -> int:
        paths = [f"{number}/{one % 10}/{one}" for one in range(number)]
        for one in paths:
            Path(one).parent.mkdir(parents=True, exist_ok=True)
            Path(one).write_text("before")
        with session("inline"):
            return calls_of(lambda: many(paths, paths).result(60))

    few = calls(40)
    assert calls(200) < 7 * few


# -- ends


@pytest.mark.parametrize("way", ["shutdown", "forgotten"])
def test_executors_leave_nothing_private(way: str, place: Path) -> None:
    executor = wr.Executor(1, engine="threads")
    future = executor.submit(write, "x", "x")
    if way == "shutdown":
        executor.shutdown(wait=False)
    future.result(120)
    del executor, future
    until = time.monotonic() + 120
    while len(list(place.iterdir())) > 1 and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert holdings(place) == {"x": "x"}


PROGRAM = """
    import os, sys, threading
    from pathlib import Path
    import windrow as wr

    @wr.task
    def write(out: wr.OutFile, text):
        Path(out).write_text(text)

    began, go_on = threading.Event(), threading.Event()

    @wr.task
    def waits(out: wr.OutFile):
        began.set()
        go_on.wait(60)
        Path(out).write_text("x")

    session = wr.Session(engine="threads", workers=1, reuse=False)
    future = session.submit(waits, "x")
    began.wait(60)
    if os.fork() == 0:
        sys.exit()  # what the fork forgets is not its own
    os.wait()
    print(len(list(Path(".").glob(".windrow-*"))))
    go_on.set()
    future.result(60)
    executor = wr.Executor(1, engine="threads")
    executor.submit(write, "y", "y")
"""


def test_a_program_that_closes_nothing_leaves_nothing_private(place: Path) -> None:
    code = textwrap.dedent(PROGRAM)
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    assert holdings(place) == {"x": "x", "y": "y"}


def test_tmp_goes_with_the_session(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(place))

    @wr.command
    def first_time(flag: Any) -> str:
        return "test -e {flag} && exit; mkdir {tmp}/in; touch {flag}; kill -9 $PPID; sleep 60"

    with wr.Session(engine="processes", workers=1):
        assert first_time(place / "flag").result(60) == ""
        assert len(list(place.rglob("in"))) == 1  # who should have removed it was killed
    assert holdings(place) == {"flag": ""}


# -- directories that are replaced


def test_a_directory_is_replaced_where_the_system_cannot_exchange(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_exchange", lambda *_: False)
    with session("inline"):
        for one in range(5):
            fill("tree", [f"{one}", "both"])
    assert sorted(holdings(place)) == ["tree", "tree/4", "tree/both"]


def test_a_directory_is_never_missing_while_it_is_replaced(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree" / "x").write_text("before")
    (place / "new").mkdir()
    if not writing._exchange("new", "tree"):
        pytest.skip("this system cannot exchange directories in one step")
    over, missing = threading.Event(), []

    def look() -> None:
        while not over.is_set():
            if not Path("tree").is_dir():
                missing.append(1)

    thread = threading.Thread(target=look)
    thread.start()
    with session("inline") as opened:
        for _ in range(40):
            fill("tree", ["x"])
        opened.barrier(60)
    over.set()
    thread.join()
    assert missing == []


def test_rights_of_a_directory_stay(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree").chmod(0o2770)
    with session("inline"):
        fill("tree", ["x"])
    assert (place / "tree").stat().st_mode & 0o7777 == 0o2770


def test_where_nothing_can_be_written_is_named(place: Path) -> None:
    Path("file").write_text("x")
    message = r"'write' writes .*/file/x \(parameter 'out', OutFile\), but nothing can be written in .*/file \(Not a directory\)"
    with session(), pytest.raises(TaskFileError, match=message):
        write("file/x", "text").result(120)


class Pair(NamedTuple):
    one: str
    other: str


def test_tuples_with_names_stay_what_they_are(place: Path) -> None:
    @wr.task
    def of_pair(pair: wr.InFile) -> Any:
        return type(pair).__name__, Path(pair.one).read_text(), Path(pair.other).read_text()

    with session():
        write("x", "X")
        assert of_pair(Pair("x", write("y", "Y"))).result(120) == ("Pair", "X", "Y")


# -- what may be empty


def test_what_may_be_empty_may(place: Path) -> None:
    from typing import Annotated

    from windrow.tasks.files.annotations import FileKind

    file = Annotated[Any, FileKind("Out", writes=True, may_be_empty=True)]
    directory = Annotated[Any, FileKind("Out", writes=True, directory=True, may_be_empty=True)]

    def empties(out: Any, tree: Any, *, forgets: bool = False) -> None:
        if not forgets:
            Path(out).touch()

    empties.__annotations__ |= {"out": file, "tree": directory}
    task = wr.task(empties)
    with session() as opened:
        task("x", "tree")
        assert opened.gather([read("x"), listed("tree")]) == ["", {}]
        with pytest.raises(TaskFileError, match="was not written"):
            task("y", "tree2", forgets=True).result(120)
    assert holdings(place) == {"x": "", "tree": "<directory>"}


def test_a_file_that_the_program_takes_over_is_its_own(place: Path) -> None:
    with session() as opened:
        write("x", "task's").result(120)
        assert opened.files.latest("x") is not None
        opened.files.forget("x")
        assert opened.files.latest("x") is None
        Path("x").unlink()
        with pytest.raises(FileNotFoundError):
            read("x")


# -- killed while files are moved

KILLED = """
    import os, signal, sys
    from pathlib import Path
    import windrow as wr
    from windrow.tasks.files import writing

    @wr.task
    def several(outs: wr.OutFile, tree: wr.OutDir, text: str):
        for one in (*outs, Path(tree, "in")):
            Path(one).write_text(text)

    text, left = sys.argv[1], int(sys.argv[2])

    def dies(function):
        def moves(*arguments):
            global left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments)
        return moves

    class Os:
        def __getattr__(self, name):
            return dies(os.replace) if name == "replace" else getattr(os, name)

    writing.os = Os()
    writing._replace_directory = dies(writing._replace_directory)
    with wr.Session(engine="inline"):
        several(["a", "b", "other/c"], "tree", text)
"""


def test_a_program_killed_between_two_moves_makes_all_again(place: Path) -> None:
    def go(text: str, moves: int) -> int:
        code = textwrap.dedent(KILLED)
        return subprocess.run([sys.executable, "-c", code, text, str(moves)], timeout=60).returncode

    def left() -> dict[str, str]:
        return {name: text for name, text in holdings(place).items() if not name.startswith(".windrow")}

    names = ("a", "b", "other/c", "tree/in")
    assert go("old", -1) == 0
    assert go("new", 2) == -9
    found = left()
    assert sum(found[one] == "new" for one in names) == 2
    assert all(found[one] in ("old", "new") for one in names)
    assert go("new", -1) == 0
    assert left() == {**dict.fromkeys(names, "new"), "other": "<directory>", "tree": "<directory>"}
    assert [one.name for one in place.rglob(".windrow-*")] == []


def test_a_log_that_cannot_be_written_is_named() -> None:
    task = wr.command(log="/dev/full")(lambda: "echo x >&2")
    with pytest.raises(wr.errors.CommandError, match=r"its log cannot be written: No space left.*/dev/full"):
        task()
