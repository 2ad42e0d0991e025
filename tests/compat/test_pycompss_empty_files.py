"""Files that PyCOMPSs programs leave empty, or do not get to write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from compss_programs import used
from windrow.compat.pycompss import (
    DIRECTORY_INOUT,
    DIRECTORY_OUT,
    FILE_IN,
    FILE_INOUT,
    FILE_OUT,
    INOUT,
    compss_barrier,
    compss_wait_on,
    on_failure,
    task,
)
from windrow.errors import NotYetError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def session() -> Iterator[wr.Session]:
    with wr.Session(engine="threads", workers=2) as opened, used(opened):
        yield opened


@task(path=FILE_OUT)
def write(path: str, text: str) -> None:
    Path(path).write_text(text)


@task(path=FILE_INOUT)
def clear(path: str) -> None:
    Path(path).write_text("")


@task(path=FILE_IN, returns=1)
def read(path: str) -> str:
    return Path(path).read_text()


@task(path=DIRECTORY_OUT)
def fill_nothing(path: str) -> None: ...


@task(path=FILE_OUT, tree=DIRECTORY_OUT, words=INOUT, returns=1, on_failure="IGNORE")
def fails(path: str, tree: str, words: list[str], text: str) -> int:
    words.append(text)
    if text == "bad":
        raise ValueError(text)
    Path(path).write_text(text)
    return 1


def test_files_and_directories_may_be_empty(tmp_path: Path) -> None:
    write(str(tmp_path / "a"), "")
    write(str(tmp_path / "b"), "text")
    clear(str(tmp_path / "b"))
    fill_nothing(str(tmp_path / "tree"))
    assert compss_wait_on(read(str(tmp_path / "a")), read(str(tmp_path / "b"))) == ["", ""]
    compss_barrier()
    assert list((tmp_path / "tree").iterdir()) == []


@task(path=DIRECTORY_OUT)
def fill_with_old(path: str) -> None:
    Path(path, "old").touch()


def change_and_fail(path: str, tree: str, text: str) -> None:
    """Change a file and a directory halfway."""
    Path(path).write_text("half")
    Path(tree, "half").touch()
    if text == "bad":
        raise ValueError(text)


CHANGING = {"path": FILE_INOUT, "tree": DIRECTORY_INOUT}
WRITING = {"path": FILE_OUT, "tree": DIRECTORY_OUT}


@pytest.mark.parametrize(
    ("options", "text", "wanted"),
    [
        (CHANGING, "bad", ("old", ["old"])),
        (CHANGING, "good", ("half", ["half", "old"])),
        (WRITING, "bad", ("", [])),
        (WRITING, "good", ("half", ["half"])),
    ],
)
def test_an_ignored_failure_leaves_nothing_half_written(
    tmp_path: Path, options: dict[str, Any], text: str, wanted: tuple[str, list[str]]
) -> None:
    path, tree = tmp_path / "a", tmp_path / "d"
    path.write_text("old")
    fill_with_old(str(tree))
    task(on_failure="IGNORE", **options)(change_and_fail)(str(path), str(tree), text)
    compss_barrier()
    assert (path.read_text(), sorted(one.name for one in tree.iterdir())) == wanted


def test_a_failed_task_leaves_no_other_file_yet() -> None:
    with pytest.raises(
        NotYetError, match="path= of on_failure: only a task with IGNORE can leave something yet, and no files"
    ):
        on_failure(management="IGNORE", path="default")(task(**WRITING)(change_and_fail))


def test_an_ignored_failure_leaves_empty_files_and_objects_as_they_were(tmp_path: Path) -> None:
    words: list[str] = []
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    values = [fails(path, f"{path}.d", words, text) for path, text in zip(paths, ("good", "bad", "fine"), strict=True)]
    texts = [read(path) for path in paths]
    assert compss_wait_on(values) == [1, None, 1]
    assert compss_wait_on(texts) == ["good", "", "fine"]
    assert compss_wait_on(words) == ["good", "fine"]
