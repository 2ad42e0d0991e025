"""Random programs that write, overwrite, change and read files: the files and values are those of the plain program."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from tasks.file_bodies import append, fill, holdings, join, listed, parts_of, read, split, write
from windrow.errors import MissingFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("a", "b", "sub/c", "tree/x", "tree/y", "parts/part-0.txt")


class Op(NamedTuple):
    kind: str
    name: str
    others: tuple[str, ...] = ()
    number: int = 1


names = st.sampled_from(NAMES)
none = st.just(())
steps = st.one_of(
    st.builds(Op, st.sampled_from(["write", "append", "read", "read", "fail"]), names, none, st.just(1)),
    st.builds(Op, st.just("join"), names, st.lists(names, min_size=1, max_size=3).map(tuple), st.just(1)),
    st.builds(Op, st.sampled_from(["fill", "list"]), st.just("tree"), none, st.just(1)),
    st.builds(Op, st.sampled_from(["split", "parts"]), st.just("parts"), none, st.integers(1, 3)),
)  # fmt: skip


@wr.task
def torn(out: wr.OutFile) -> None:
    """Fails, and may: in the plain program that leaves half a file, which is what private directories are for."""
    Path(out).write_text("half")
    raise ValueError("torn")


def play(program: list[Op], place: Path, *, plainly: bool) -> list[Any]:
    """Call the tasks of a program; what is refused at a call is refused in both."""
    found: list[Any] = []
    for step, op in enumerate(program):
        path = place / op.name
        try:
            if op.kind == "write":
                path.parent.mkdir(exist_ok=True) if plainly else None
                write(str(path), f"<{step}>")
            elif op.kind == "append":
                if plainly and not path.exists():
                    raise MissingFileError("as the table says")
                append(path, f"+{step}")
            elif op.kind == "read":
                found.append(read(path))
            elif op.kind == "join":
                parts = [place / other for other in op.others]
                if plainly and not all(part.exists() for part in parts):
                    raise MissingFileError("as the table says")
                path.parent.mkdir(exist_ok=True) if plainly else None
                text = [part.read_text() for part in parts] if plainly else []
                join(path, *parts)
                if plainly:
                    path.write_text("".join(text))  # also where it reads what it overwrites
            elif op.kind == "fill":
                if plainly:
                    empty(path)
                fill(path, [f"{step % 3}", "x", "y"])
            elif op.kind == "list":
                if plainly and not path.exists():
                    raise MissingFileError("as the table says")
                found.append(listed(path))
            elif op.kind == "split":
                split(path, op.number, f"{step}-")
            elif op.kind == "parts":
                if plainly and not list(path.glob("part-*.txt")):
                    raise MissingFileError("as the table says")
                found.append(parts_of(path))
            elif op.kind == "fail" and plainly:
                if not path.exists():
                    program[step] = Op("nothing", op.name)  # what reads it would be refused, or fail later
            elif op.kind == "fail":
                torn.options(on_failure="ignore")(path)
        except FileNotFoundError:
            found.append("missing")
    return found


def empty(place: Path) -> None:
    import shutil

    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()


def without_directories(found: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in found.items() if text != "<directory>"}


def check(session: wr.Session, program: list[Op], *, closing: bool) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        program = [*program]
        expected = play(program, Path(one), plainly=True)
        with session if closing else contextlib.nullcontext():
            made = played_in(session, program, Path(other), closing=closing)
            assert session.gather(made) == expected
            session.barrier(60)
        left = without_directories(holdings(Path(other)))
        if not closing:
            left = {name: text for name, text in left.items() if ".windrow-" not in name}
        assert left == without_directories(holdings(Path(one)))


def played_in(session: wr.Session, program: list[Op], place: Path, *, closing: bool) -> list[Any]:
    from windrow.tasks.declare import current

    if closing:
        return play(program, place, plainly=False)
    token = current.set(session)
    try:
        return play(program, place, plainly=False)
    finally:
        current.reset(token)


#: Overwriting what others read, in a row; and a call that reads what it overwrites.
CHAIN = [
    Op("write", "a"), Op("read", "a"), Op("join", "a", ("a", "a")), Op("read", "a"), Op("append", "a"), Op("write", "b"),
    Op("join", "b", ("a", "b")), Op("write", "a"), Op("read", "a"), Op("read", "b"), Op("write", "tree/x"), Op("list", "tree"),
    Op("fill", "tree"), Op("read", "tree/x"), Op("write", "tree/x"), Op("list", "tree"), Op("split", "parts", (), 3),
    Op("parts", "parts"), Op("append", "parts/part-0.txt"), Op("parts", "parts"), Op("split", "parts", (), 1), Op("parts", "parts"),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["inline", "threads"])
@settings(max_examples=examples(30))
@given(program=st.lists(steps, min_size=1, max_size=14))
@example(program=CHAIN)
def test_programs_leave_the_files_of_the_plain_program(engine: str, program: list[Op]) -> None:
    check(wr.Session(engine=engine, workers=3, reuse=False), program, closing=True)


@pytest.fixture(scope="module")
def processes() -> Iterator[wr.Session]:
    session = wr.Session(engine="processes", workers=2, reuse=False)
    yield session
    session.close()


@settings(max_examples=examples(20))
@given(program=st.lists(steps, min_size=1, max_size=14))
@example(program=CHAIN)
def test_programs_in_processes(processes: wr.Session, program: list[Op]) -> None:
    check(processes, program, closing=False)


def test_the_comparison_is_not_blind() -> None:
    """Without annotations the same program goes wrong, or is refused."""
    with tempfile.TemporaryDirectory() as place:
        plain = play(CHAIN, Path(place), plainly=True)
        assert plain[0] == "<0>"
        assert plain[1] == "<0><0>"
        assert "missing" not in plain
        assert holdings(Path(place))["tree/x"] == "<14>"
