"""What tasks make: nothing of others is lost or altered by it, and what is told of it is true."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest

import windrow as wr
from tasks.file_bodies import fill, listed, parts_of, split, with_sidecar, write
from windrow.errors import TaskFileError
from windrow.tasks.files.annotations import FileKind

pytestmark = pytest.mark.usefixtures("place")


def session(engine: str = "inline", **options: Any) -> wr.Session:
    return wr.Session(engine=engine, workers=2, **{"reuse": False, **options})


def no_attributes(*_: Any, **__: Any) -> Any:
    raise OSError(95, "Operation not supported")


@pytest.fixture(params=["attributes", "hidden directory"])
def marks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "attributes":
        monkeypatch.setattr(os, "setxattr", no_attributes, raising=False)
        monkeypatch.setattr(os, "getxattr", no_attributes, raising=False)
    return str(request.param)


def files(place: Path) -> dict[str, str]:
    """All files below a directory, without what marks it."""
    names = [one.relative_to(place) for one in sorted(place.rglob("*")) if one.is_file()]
    ours = [one for one in names if not any(part.startswith(".windrow-") for part in one.parts)]
    return {str(one): (place / one).read_text() for one in ours}


# -- directories that are replaced as a whole


def test_the_working_directory_is_not_replaced_where_workers_have_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session("processes"):
        assert sorted(listed(str(place)).result(120)) == []
        (place / "inner").mkdir()
        monkeypatch.chdir(place / "inner")
        with pytest.raises(TaskFileError, match="working directory"):
            fill(".", ["x"]).result(120)
        assert Path.cwd() == place / "inner"


@pytest.mark.parametrize("path", [".", "..", "../..", "inner/.."])
def test_the_working_directory_is_not_replaced(path: str, place: Path) -> None:
    (place / "precious.txt").write_text("mine")
    (place / "inner").mkdir()
    for name in "abc":  # circles, of which nobody sees the end who walks along them
        (place / "inner" / name).symlink_to("..")
    with session(), pytest.raises(TaskFileError, match=r"working directory .*wr\.OutFiles"):
        fill(path, ["x"]).result(120)
    assert (place / "precious.txt").read_text() == "mine"
    assert Path.cwd() == place


@pytest.mark.parametrize("name", ["mine.txt", "in/mine.txt"])
@pytest.mark.usefixtures("marks")
def test_a_directory_with_files_of_others_is_not_replaced(name: str, place: Path) -> None:
    mine = place / "tree" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for other in "abc":
        (place / "tree" / other).symlink_to("..")
    with session(), pytest.raises(TaskFileError, match=rf"no task has put there: .*{name}; move"):
        fill("tree", ["x"]).result(120)
    for other in "abc":
        (place / "tree" / other).unlink()
    assert files(place / "tree") == {name: "mine"}
    mine.unlink()
    for names in (["a", "in/b"], ["c"]):
        with session():
            fill("tree", names)
            assert sorted(listed("tree").result(120)) == names
        assert sorted(files(place / "tree")) == names
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with session(), pytest.raises(TaskFileError, match="no task has put there"):
        fill("tree", ["x"]).result(120)
    assert files(place / "tree")[name] == "mine"


def test_a_file_that_comes_while_the_task_runs_is_not_lost(place: Path) -> None:
    @wr.task
    def meanwhile(tree: wr.OutDir) -> None:
        Path(tree, "x").write_text("x")
        (place / "tree").mkdir()
        (place / "tree" / "mine").write_text("mine")

    with session(), pytest.raises(TaskFileError, match="no task has put there: mine"):
        meanwhile("tree").result(120)
    assert files(place / "tree") == {"mine": "mine"}


@pytest.mark.usefixtures("marks")
def test_a_directory_of_tasks_is_replaced_in_any_session(place: Path, tmp_path: Path) -> None:
    def program(count: int, **options: Any) -> None:
        with session(**options):
            fill("tree", [f"{count}", "in/x"])
            write("tree/one", f"{count}")
            split("tree", count)
            split("tree/in", count)

    program(1)
    (place / "tree" / "1").unlink()
    (place / "tree" / "in" / "x").write_text("changed")
    program(2, reuse=True, store=tmp_path / "other")
    with session():
        write("tree/two", "2")
        fill("tree", ["last"])
    assert files(place / "tree") == {"last": "last of 1"}


def test_copies_of_what_tasks_made_are_nobodys(place: Path) -> None:
    with session():
        write("one", "1")
    (place / "tree").mkdir()
    shutil.copy2("one", "tree/copy")
    with session(), pytest.raises(TaskFileError, match="no task has put there: copy"):
        fill("tree", ["x"]).result(120)


def test_copies_of_directories_that_tasks_made_are_nobodys(place: Path) -> None:
    with session():
        fill("tree", ["x"])
    subprocess.run(["cp", "-a", "tree", "copy"], check=True)
    (place / "copy" / "x").write_text("mine")
    with session(), pytest.raises(TaskFileError, match="no task has put there: x"):
        fill("copy", ["x"]).result(120)
    assert files(place / "copy") == {"x": "mine"}


def test_an_empty_directory_is_replaced(place: Path) -> None:
    (place / "tree" / "in").mkdir(parents=True)
    with session():
        fill("tree", ["x"])
    assert files(place / "tree") == {"x": "x of 1"}


# -- what is told of files


@wr.task(outputs=2)
def yields(a: wr.OutFile, b: wr.OutFile) -> Any:
    Path(a).write_text("A")
    yield a
    Path(b).write_text("B")
    yield b


@wr.task(outputs=2)
def releases(a: wr.OutFile, b: wr.OutFile) -> Any:
    Path(a).write_text("A")
    Path(b).write_text("B")
    wr.ready([b], 1)
    return a


@wr.task(outputs="stream")
def streams(a: wr.OutFile, b: wr.OutFile) -> Any:
    yield 1
    for path in (a, b):
        Path(path).write_text(Path(path).name.upper())
        yield path


@wr.task
def told(thing: Any) -> Any:
    paths = thing if isinstance(thing, list) else [thing]
    return [(str(one), Path(one).read_text()) for one in paths]


@wr.task
def read_as_file(path: wr.InFile) -> Any:
    return [(str(path), Path(path).read_text())]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "reuse"), [("inline", True), ("threads", False), ("processes", True)])
def test_released_paths_are_final_and_the_files_are_there(engine: str, reuse: bool, place: Path) -> None:
    both = [(str(place / "a"), "A")], [(str(place / "b"), "B")]
    for _ in range(2):
        with session(engine, reuse=reuse) as opened:
            one, two = yields("a", "b")
            found = opened.gather([told(one), told(two), read_as_file(one), read_as_file(two)])
            assert found == [*both, *both]
            assert Path(one.result(120)) == place / "a"
            assert opened.gather([told(one) for one in releases("a", "b")]) == list(both)
            first, *paths = (one.result(120) for one in streams("a", "b"))
            assert (first, paths) == (1, [str(place / "a"), str(place / "b")])


# -- links


@wr.task
def link_hard(path: wr.InFile, out: wr.OutFile) -> None:
    os.link(path, out)


@wr.task
def link_hard_in(path: wr.InFile, tree: wr.OutDir) -> None:
    os.link(path, Path(tree, "x"))


def test_inputs_that_outputs_are_links_to_stay_as_they_are(place: Path) -> None:
    (place / "in").write_text("x")
    (place / "in").chmod(0o640)
    before = (place / "in").stat()
    for _ in range(3):
        with session():
            link_hard("in", "hard")
            link_hard_in("in", "tree")
        # What the links take the place of next has other rights.
        (place / "hard").unlink()
        (place / "hard").write_text("x")
        os.utime(place / "hard", ns=(before.st_atime_ns, before.st_mtime_ns))
        (place / "hard").chmod(0o600)
    after = (place / "in").stat()
    assert (after.st_mtime_ns, after.st_mode) == (before.st_mtime_ns, before.st_mode)
    assert not os.listxattr(place / "in")


@wr.task
def link_in_tree(to: str, tree: wr.OutDir) -> None:
    Path(tree, "in").mkdir()
    Path(tree, "in", "one").write_text("x")
    Path(tree, "in", "two").symlink_to(to.replace("TREE", str(tree)))


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_links_in_a_directory_lead_to_the_same_or_are_refused(engine: str, place: Path) -> None:
    (place / "x").write_text("x")
    for to in ("one", "../in/one", str(place / "x")):
        with session(engine):
            link_in_tree(to, "tree").result(120)
        assert (place / "tree" / "in" / "two").readlink() == Path(to)
        assert (place / "tree" / "in" / "two").read_text() == "x"
    for to in ("../../x", "../../../../x", "TREE/in/one", "TREE/../other"):
        with session(engine), pytest.raises(TaskFileError, match=r"has made tree/in/two, a link to .*: write a copy"):
            link_in_tree(to, "tree").result(120)


@pytest.mark.parametrize("to", ["nowhere", "x", "/dev/null"])
def test_an_output_that_is_a_link_is_refused(to: str, place: Path) -> None:
    (place / "x").write_text("x")

    @wr.task
    def link(out: wr.OutFile) -> None:
        Path(out).symlink_to(to if to != "x" else place / "x")

    with session(), pytest.raises(TaskFileError, match=r"has made out, a link to .*: write a copy"):
        link("out").result(120)
    assert files(place) == {"x": "x"}


def test_a_link_to_an_input_is_not_written_through(place: Path) -> None:
    @wr.task
    def upper(path: wr.InFile, out: wr.OutFile) -> None:
        Path(out).write_text(Path(path).read_text().upper())

    (place / "data").write_text("x")
    (place / "out").symlink_to("data")
    with session(), pytest.raises(TaskFileError, match=r"which is a link to .*data, which it reads; remove the link"):
        upper("data", "out").result(120)
    assert (place / "data").read_text() == "x"


# -- places from which nothing can be moved


def on_two_file_systems(monkeypatch: pytest.MonkeyPatch, mount: Path) -> None:
    """Let a directory be one in which another file system is mounted."""

    def inside(path: Any) -> bool:
        return mount in Path(path).parents

    def checked(move: Any) -> Any:
        def moving(source: Any, target: Any, **options: Any) -> Any:
            if inside(source) != inside(target):
                raise OSError(18, "Invalid cross-device link")
            return move(source, target, **options)

        return moving

    monkeypatch.setattr(os, "rename", checked(os.rename))
    monkeypatch.setattr(os, "replace", checked(os.replace))
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == mount)


def test_files_come_into_a_directory_on_a_file_system_of_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "mount").mkdir()
    (place / "mount" / "mine").write_text("mine")
    on_two_file_systems(monkeypatch, place / "mount")
    for count in (1, 2):
        with session() as opened:
            split("mount", count)
            assert opened.gather([parts_of("mount")]) == [["0", "1"][:count]]
            split("mount", count, "again")
        assert (place / "mount" / "part-0.txt").read_text() == "again0"
        (place / "mount" / "log").unlink()
    assert sorted(files(place)) == ["mount/mine", "mount/part-0.txt", "mount/part-1.txt"]
    assert not list(place.rglob(".windrow-*"))
    with session(), pytest.raises(TaskFileError, match="file system is mounted"):
        fill("mount", ["x"]).result(120)


# -- what was declared, and what was made


def test_a_directory_is_no_file(place: Path) -> None:
    @wr.task
    def makes_directory(out: wr.OutFile) -> None:
        Path(out).mkdir()
        Path(out, "x").write_text("x")

    for _ in range(2):
        with session(), pytest.raises(TaskFileError, match=r"made as a directory.*wr\.OutDir"):
            makes_directory("out").result(120)
    assert not list(place.iterdir())


def test_what_was_made_beside_outputs_is_missed(place: Path) -> None:
    def runs() -> int:
        with session(reuse=True) as opened:
            with_sidecar("out", "x")
            split("parts", 2)
            opened.barrier(30)
            return 2 - opened.reusing.stats().found_in_store

    assert runs() == 2
    assert runs() == 0
    for name in ("out.bai", "parts/log"):
        before = (place / name).read_text()
        (place / name).unlink()
        assert runs() == 1
        assert (place / name).read_text() == before
    (place / "out.bai").write_text("of another")
    assert runs() == 0


def test_an_empty_file_among_several_is_a_failure(place: Path) -> None:
    def writes_all(directory: Any) -> None:
        Path(directory, "part-1").write_text("x")
        Path(directory, "part-2").touch()

    several = FileKind("OutFiles", writes=True, directory=True, pattern="part-*")
    for kind, fails in ((several, True), (replace(several, may_be_empty=True), False)):
        writes_all.__annotations__["directory"] = Annotated[Any, kind]
        with session():
            future = wr.task(writes_all)("parts")
            if fails:
                with pytest.raises(TaskFileError, match=r"has empty files .*parts/part-2'\]"):
                    future.result(120)
                assert not list(place.iterdir())
    assert files(place) == {"parts/part-1": "x", "parts/part-2": ""}
