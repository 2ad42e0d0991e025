"""What tasks make: nothing of others is lost or altered by it, and what is told of it is true."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from tasks.file_bodies import fill, listed, split, write
from windrow.errors import TaskFileError
from windrow.tasks import file_marks

pytestmark = pytest.mark.usefixtures("place")


def session(engine: str = "inline", **options: Any) -> wr.Session:
    return wr.Session(engine=engine, workers=2, **{"reuse": False, **options})


def no_attributes(*_: Any, **__: Any) -> Any:
    raise OSError(95, "Operation not supported")


@pytest.fixture(params=["attributes", "hidden directory"])
def marks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "attributes":
        monkeypatch.setattr(file_marks.os, "setxattr", no_attributes, raising=False)
        monkeypatch.setattr(file_marks.os, "getxattr", no_attributes, raising=False)
    return str(request.param)


def files(place: Path) -> dict[str, str]:
    """All files below a directory, without what marks it."""
    names = [one.relative_to(place) for one in sorted(place.rglob("*")) if one.is_file()]
    ours = [one for one in names if not any(part.startswith(".windrow-") for part in one.parts)]
    return {str(one): (place / one).read_text() for one in ours}


# -- directories that are replaced as a whole


@pytest.mark.parametrize("path", [".", "..", "../..", "inner/.."])
def test_the_working_directory_is_not_replaced(path: str, place: Path) -> None:
    (place / "precious.txt").write_text("mine")
    (place / "inner").mkdir()
    with session(), pytest.raises(TaskFileError, match=r"working directory .*wr\.OutFiles"):
        fill(path, ["x"]).result(30)
    assert (place / "precious.txt").read_text() == "mine"
    assert Path.cwd() == place


@pytest.mark.parametrize("name", ["mine.txt", "in/mine.txt"])
@pytest.mark.usefixtures("marks")
def test_a_directory_with_files_of_others_is_not_replaced(name: str, place: Path) -> None:
    mine = place / "tree" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with session(), pytest.raises(TaskFileError, match=rf"no task has put there: {name}; move"):
        fill("tree", ["x"]).result(30)
    assert files(place / "tree") == {name: "mine"}
    mine.unlink()
    for names in (["a", "in/b"], ["c"]):
        with session():
            fill("tree", names)
            assert sorted(listed("tree").result(30)) == names
        assert sorted(files(place / "tree")) == names
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with session(), pytest.raises(TaskFileError, match="no task has put there"):
        fill("tree", ["x"]).result(30)
    assert files(place / "tree")[name] == "mine"


def test_a_file_that_comes_while_the_task_runs_is_not_lost(place: Path) -> None:
    @wr.task
    def meanwhile(tree: wr.OutDir) -> None:
        Path(tree, "x").write_text("x")
        (place / "tree").mkdir()
        (place / "tree" / "mine").write_text("mine")

    with session(), pytest.raises(TaskFileError, match="no task has put there: mine"):
        meanwhile("tree").result(30)
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
        fill("tree", ["x"]).result(30)


def test_an_empty_directory_is_replaced(place: Path) -> None:
    (place / "tree" / "in").mkdir(parents=True)
    with session():
        fill("tree", ["x"])
    assert files(place / "tree") == {"x": "x of 1"}
