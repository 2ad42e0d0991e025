"""Random programs of tasks that read, write and change files leave what the plain sequential program leaves."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER_S = 60
FILES = ("a", "b", "c")


def write(number: int, to: wr.OutFile) -> int:
    Path(to).write_text(f"{number};" * (number % 5 + 1))
    return number


def change(number: int, path: wr.InOutFile) -> int:
    with Path(path).open("a") as file:
        file.write(f"+{number}")
    return number + 1


def copy(source: wr.InFile, to: wr.OutFile) -> int:
    text = Path(source).read_text()
    Path(to).write_text(f"<{text}>")
    return len(text)


def read(source: wr.InFile, plus: int = 0) -> str:
    return f"{Path(source).read_text()}{plus}"


def read_two(sources: wr.InFile, number: int) -> str:
    return "|".join(Path(one).read_text() for one in sources) + str(number)


BODIES = {body.__name__: body for body in (write, change, copy, read, read_two)}
TASKS = {name: wr.task(body) for name, body in BODIES.items()}


class Op(NamedTuple):
    """One call."""

    kind: str
    first: str
    second: str
    number: int
    waits: bool  #: the program looks at the value before it goes on


@st.composite
def programs(draw: st.DrawFn) -> list[Op]:
    ops = []
    for number in range(draw(st.integers(1, 15))):
        kind = draw(st.sampled_from(list(BODIES)))
        first, second = draw(st.permutations(FILES))[:2]
        ops.append(Op(kind, first, second, number, draw(st.integers(0, 5)) == 0))
    return ops


def run(program: list[Op], place: Path, call: Any) -> list[Any]:
    """Run it in a directory; ``call`` calls a body, or makes a task of the call."""
    found = []
    for op in program:
        first, second = str(place / op.first), str(place / op.second)
        if op.kind == "write":
            value = call(op.kind, op.number, to=first)
        elif op.kind == "change":
            value = call(op.kind, op.number, first)
        elif op.kind == "copy":
            value = call(op.kind, first, second)
        elif op.kind == "read":
            value = call(op.kind, first, plus=op.number)
        else:
            value = call(op.kind, [first, second], op.number)
        if op.waits and isinstance(value, wr.Future):
            value.result(NEVER_S)
        found.append(value)
    return found


def check(session: wr.Session, program: list[Op], *, close: bool) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        for place in (Path(one), Path(other)):
            for name in FILES:
                (place / name).write_text(f"first {name} ")
        expected = run(program, Path(one), lambda kind, *a, **k: BODIES[kind](*a, **k))
        try:
            futures = run(program, Path(other), lambda kind, *a, **k: session.submit(TASKS[kind], *a, **k))  # fmt: skip
            assert [future.result(NEVER_S) for future in futures] == expected
            session.barrier(NEVER_S)
        finally:
            if close:
                session.close()
        for name in FILES:
            assert (Path(other) / name).read_text() == (Path(one) / name).read_text()
        # What a session needs for itself is hidden, and gone with it.
        left = {path.name for path in Path(other).iterdir() if close or path.name[0] != "."}
        assert left == set(FILES)


@pytest.fixture(scope="module")
def processes() -> Iterator[wr.Session]:
    """One session for many programs; it is nobody's current one."""
    made = wr.Session(engine="processes", workers=3)
    yield made
    made.close()


@pytest.mark.parametrize("engine", ["inline", "threads"])
@settings(max_examples=examples(10))
@given(program=programs())
def test_files_are_those_of_the_program(engine: str, program: list[Op]) -> None:
    check(wr.Session(engine=engine, workers=3), program, close=True)


@settings(max_examples=examples(10))
@given(program=programs())
def test_files_are_the_same_in_processes(processes: wr.Session, program: list[Op]) -> None:
    check(processes, program, close=False)
