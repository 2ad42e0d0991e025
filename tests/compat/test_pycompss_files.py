"""Files, directories and programs as parameters of PyCOMPSs tasks."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compss_programs import used
from windrow.compat.pycompss import (
    COLLECTION_FILE_IN,
    COLLECTION_FILE_INOUT,
    COLLECTION_FILE_OUT,
    DIRECTORY_IN,
    DIRECTORY_INOUT,
    DIRECTORY_OUT,
    FILE_COMMUTATIVE,
    FILE_IN,
    FILE_IN_STDIN,
    FILE_INOUT,
    FILE_OUT,
    FILE_OUT_STDOUT,
    FILE_STDERR,
    STDIN,
    STDOUT,
    Prefix,
    StdIOStream,
    TaskGroup,
    Type,
    binary,
    compss_barrier,
    compss_barrier_group,
    compss_cancel_group,
    compss_delete_file,
    compss_file_exists,
    compss_open,
    compss_wait_on,
    compss_wait_on_directory,
    compss_wait_on_file,
    constraint,
    task,
)
from windrow.errors import MissingFileError, TaskError, TaskFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import windrow as wr


@pytest.fixture(autouse=True)
def session(opened: wr.Session) -> Iterator[wr.Session]:
    with used(opened):
        yield opened


@task(path=FILE_OUT)
def write(path: str, text: str) -> None:
    Path(path).write_text(text)


@task(path=FILE_INOUT)
def add(path: str, text: str) -> None:
    with Path(path).open("a") as stream:
        stream.write(text)


@task(path=FILE_COMMUTATIVE)
def add_too(path: str, text: str) -> None:
    with Path(path).open("a") as stream:
        stream.write(text)


@task(path=FILE_IN, returns=str)
def read(path: str | None = None) -> str:
    return "" if path is None else Path(path).read_text()


def test_tasks_follow_the_files_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write(str(path), "1")
    first = read(str(path))
    add(str(path), "2")
    add_too(path=str(path), text="3")
    second = read(path=str(path))
    write(str(path), "4")
    assert compss_wait_on(first, second, read(), read(None)) == ["1", "123", "", ""]
    with compss_open(str(path)) as stream:
        assert stream.read() == "4"


def test_the_program_takes_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write(str(path), "1")
    before = read(str(path))
    with compss_open(str(path), "a") as stream:
        stream.write("2")
    add(str(path), "3")
    assert compss_wait_on(before, read(str(path))) == ["1", "123"]
    assert compss_file_exists(str(path), str(tmp_path / "b.txt")) == [True, False]
    assert compss_delete_file(str(path))
    assert not path.exists()
    assert not compss_delete_file(str(path))
    write(str(path), "5")
    assert compss_wait_on_file(str(path)) == str(path)
    assert path.read_text() == "5"


def test_several_files_and_lists_of_them(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    write(a, "1")
    write(b, "2")
    assert compss_wait_on_file(a, b) == [a, b]
    assert compss_wait_on_file([a, b]) == [a, b]
    assert compss_file_exists([a], str(tmp_path / "c")) == [[True], False]
    assert compss_delete_file([a, b]) == [True, True]
    assert compss_file_exists(a, [b]) == [False, [False]]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"'read'.*nowhere.txt"):
        read(str(tmp_path / "nowhere.txt"))

    @task(path=FILE_OUT, on_failure="CANCEL_SUCCESSORS")
    def forgets(path: str) -> None:
        pass

    forgets(str(tmp_path / "b.txt"))
    with pytest.raises(TaskError, match="forgets"):
        compss_wait_on_file(str(tmp_path / "b.txt"))


def test_a_default_is_a_file_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @task(path=FILE_OUT)
    def write_it(text: str, path: str = "default.txt") -> None:
        time.sleep(0.1)
        Path(path).write_text(text)

    @task(path=FILE_IN, returns=str)
    def read_it(path: str = "default.txt") -> str:
        return Path(path).read_text()

    write_it("1")
    first = read_it()
    write_it(text="2")
    assert compss_wait_on(first, read_it()) == ["1", "2"]


def test_collections_of_files(tmp_path: Path) -> None:
    @task(paths=COLLECTION_FILE_OUT)
    def write_all(paths: list[str]) -> None:
        for number, path in enumerate(paths):
            Path(path).write_text(str(number))

    @task(paths=COLLECTION_FILE_INOUT)
    def add_all(paths: list[str]) -> None:
        for path in paths:
            with Path(path).open("a") as stream:
                stream.write("+")

    @task(paths=COLLECTION_FILE_IN, returns=1)
    def read_all(paths: list[str]) -> list[str]:
        return [Path(path).read_text() for path in paths]

    @task(varargs_type=FILE_IN, returns=1)
    def join(*paths: str) -> str:
        return "".join(Path(path).read_text() for path in paths)

    paths = [str(tmp_path / name) for name in "abc"]
    write_all(paths)
    add_all(paths[:2])
    write(paths[2], "w")
    assert compss_wait_on(read_all(paths), join(*paths[1:])) == [["0+", "1+", "w"], "1+w"]


def test_directories_do_not_lose_files_of_others(tmp_path: Path) -> None:
    def make(place: str) -> None:
        Path(place, "a").write_text("1")

    for name in ("kept", "refused"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    task(place=DIRECTORY_INOUT)(make)(str(tmp_path / "kept"))
    task(place=DIRECTORY_OUT, on_failure="CANCEL_SUCCESSORS")(make)(str(tmp_path / "refused"))
    with pytest.raises(TaskFileError, match=r"no task has put there: mine; .*DIRECTORY_INOUT"):
        compss_wait_on_directory(str(tmp_path / "refused"))
    compss_barrier()
    assert sorted(one.name for one in (tmp_path / "kept").iterdir()) == ["a", "mine"]
    assert [one.name for one in (tmp_path / "refused").iterdir()] == ["mine"]


@pytest.mark.parametrize("kind", [DIRECTORY_OUT, DIRECTORY_INOUT])
def test_the_working_directory_is_not_replaced(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @task(place=kind, on_failure="CANCEL_SUCCESSORS")
    def make(place: str) -> None:
        Path(place, "a").write_text("1")

    make(".")
    with pytest.raises(TaskFileError, match=r"the working directory .* is in it; give it a"):
        compss_wait_on_directory(".")
    assert Path.cwd() == tmp_path


def test_directories(tmp_path: Path) -> None:
    @task(place=DIRECTORY_OUT)
    def make(place: str) -> None:
        Path(place).mkdir(exist_ok=True)
        Path(place, "a").write_text("1")

    @task(place=DIRECTORY_INOUT)
    def change(place: str) -> None:
        with Path(place, "a").open("a") as stream:
            stream.write("2")
        Path(place, "b").write_text("3")

    @task(place=DIRECTORY_IN, returns=1)
    def look(place: str) -> dict[str, str]:
        return {one.name: one.read_text() for one in Path(place).iterdir()}

    place = str(tmp_path / "place")
    make(place)
    before = look(place)
    change(place)
    assert compss_wait_on(before, look(place)) == [{"a": "1"}, {"a": "12", "b": "3"}]
    assert compss_wait_on_directory(place)
    assert sorted(one.name for one in Path(place).iterdir()) == ["a", "b"]


class TestBinaries:
    def test_streams_and_words(self, tmp_path: Path) -> None:
        @binary(binary="grep", working_dir=str(tmp_path))
        @task(inside=FILE_IN_STDIN, result=FILE_OUT_STDOUT)
        def grep(word: str, inside: str, result: str) -> None:
            pass

        @binary(binary="sort")
        @task(
            inside={Type: FILE_IN, StdIOStream: STDIN},
            result={Type: FILE_OUT, StdIOStream: STDOUT},
            key={Prefix: "--key="},
        )
        def sort(flag: str, key: int, inside: str, result: str) -> None:
            pass

        lines, found, ordered = (str(tmp_path / name) for name in ("lines", "found", "ordered"))
        write(lines, "one 3\ntwo 20\nthree 1\none two 9\n")
        grep("one two|t", lines, found)  # a single word
        grep("o", lines, found)
        sort("-n", 2, found, ordered)
        assert compss_wait_on(read(ordered)) == "one two 9\none 3\ntwo 20\n"

    def test_a_template(self, tmp_path: Path) -> None:
        @binary(binary="cp", args="{{source}} {{target}}", fail_by_exit_value=True)
        @task(source=FILE_IN, target=FILE_OUT)
        def copy(target: str, source: str) -> None:
            pass

        write(str(tmp_path / "a b"), "text")
        copy(str(tmp_path / "c d"), str(tmp_path / "a b"))
        assert compss_wait_on(read(str(tmp_path / "c d"))) == "text"

    def test_the_environment_and_what_is_hidden(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOOLS", "/bin")

        @binary(binary="${TOOLS}/echo")
        @task(hidden={Prefix: "#"}, out=FILE_OUT_STDOUT)
        def echo(word: str, hidden: str, out: str, *, last: str = "end") -> None:
            pass

        echo("seen", "not seen", str(tmp_path / "out"))
        assert compss_wait_on(read(str(tmp_path / "out"))) == "seen end\n"

    def test_exit_values(self, tmp_path: Path) -> None:
        @binary(binary="sh", args="-c 'echo oh >&2; exit {{code}}'")
        @task(returns=int, errors=FILE_STDERR)
        def ends_with(code: int, errors: Any) -> None:
            pass

        @binary(binary="sh", args="-c 'echo oh >&2; exit 3'", fail_by_exit_value=True)
        @task(on_failure="CANCEL_SUCCESSORS", returns=1)
        def fails() -> None:
            pass

        assert compss_wait_on(ends_with(3, str(tmp_path / "errors"))) == 3
        assert compss_wait_on(read(str(tmp_path / "errors"))) == "oh\n"
        with pytest.raises(TaskError, match=r"'.*fails'.*ended with 3: oh"):
            compss_wait_on(fails())

    def test_limits_hold_for_programs(self) -> None:
        # Twice as much is allowed the second time.
        words = "-S -c \"import time; x = b'x' * 400_000_000; time.sleep(5)\""

        @constraint(memory_size=0.05)
        @binary(binary=sys.executable, args=words)
        @task(on_failure="CANCEL_SUCCESSORS", returns=1)
        def large() -> None:
            pass

        with pytest.raises(TaskError, match="of memory"):
            compss_wait_on(large())

    def test_a_cancelled_program_is_ended(self, tmp_path: Path) -> None:
        @binary(binary="sh", args="-c 'echo $$ > {{pid}}; exec sleep 1000'")
        @task(returns=1)
        def sleep(pid: str) -> None:
            pass

        pid = tmp_path / "pid"
        with TaskGroup("asleep", implicit_barrier=False):
            sleep(str(pid))
        while not pid.exists() or not pid.read_text().strip():
            time.sleep(0.01)
        compss_cancel_group("asleep")
        compss_barrier_group("asleep")
        process = Path("/proc", pid.read_text().strip())
        until = time.monotonic() + 60
        while process.exists():
            assert time.monotonic() < until
            time.sleep(0.01)

    def test_a_template_with_an_unknown_parameter(self) -> None:
        with pytest.raises(UsageError, match="names 'y'"):
            binary(binary="ls", args="{{y}}")(task()(lambda x: None))


@task(path=FILE_IN, returns=str)
def read_when_there(path: str, sign: str) -> str:
    end = time.monotonic() + 60
    while not Path(sign).exists():
        assert time.monotonic() < end, "the writer has not begun"
        time.sleep(0.002)
    return Path(path).read_text()


@task(path=FILE_OUT)
def write_and_sign(path: str, sign: str) -> None:
    Path(path).write_text("new")
    Path(sign).touch()


def test_a_writer_runs_beside_a_reader_of_the_former_file(tmp_path: Path) -> None:
    path, sign = str(tmp_path / "x"), str(tmp_path / "sign")
    Path(path).write_text("old")
    found = read_when_there(path, sign)  # ends if the writer runs meanwhile
    write_and_sign(path, sign)
    assert compss_wait_on(found) == "old"
    compss_wait_on_file(path)
    assert Path(path).read_text() == "new"
