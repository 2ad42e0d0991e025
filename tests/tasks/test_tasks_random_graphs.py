"""Random graphs of tasks give what the plain sequential program gives, on every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import DependencyError


@wr.task
def combine(values: list[Any], *, scale: int = 1) -> int:
    return int(scale * sum(values) % 1009)


@wr.task(outputs=3)
def split(value: int) -> Any:
    for number in range(3):
        yield value + number


@wr.task(outputs=2)
def both(value: int) -> tuple[int, int]:
    wr.ready(value + 7, 1)
    return value + 5  # type: ignore[return-value]


@wr.task
def count(number: int) -> Any:
    for one in range(number % 4):
        yield one * number


@wr.task
def push(things: wr.InOut, value: int) -> int:
    things.append(value)  # type: ignore[attr-defined]
    return len(things)  # type: ignore[arg-type]


@wr.task
def fail(value: int) -> int:
    raise ValueError(f"no {value}")


class Bad:
    """Stands for a value that cannot be."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bad)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Program:
    """What to call, each with the numbers of earlier values."""

    calls: list[tuple[str, list[int]]] = field(default_factory=list)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    kinds = st.sampled_from(
        ["combine", "combine", "split", "both", "count", "push", "push", "fail"]
    )
    made = 2  # values there are at the beginning
    calls = []
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(kinds)
        reads = draw(st.lists(st.integers(0, made - 1), min_size=1, max_size=3))
        calls.append((kind, reads))
        made += {"split": 3, "both": 2}.get(kind, 1)
    return Program(calls)


def plainly(program: Program) -> tuple[list[Any], list[Any]]:
    """The sequential program; whoever reads what cannot be cannot be either."""
    values: list[Any] = [3, 4]
    things: list[Any] = [[], [1]]
    for kind, reads in program.calls:
        got = [values[r] for r in reads]
        several = {"split": 3, "both": 2}.get(kind, 1)
        thing = len(reads) % 2
        first = got[0]
        bad = kind == "fail" or (
            any(isinstance(one, Bad) for one in got)
            if kind == "combine"
            else isinstance(first, Bad)
        )
        if kind == "push" and isinstance(things[thing], Bad):
            bad = True
        if bad:
            values += [Bad()] * several
            if kind == "push":
                things[thing] = Bad()
        elif kind == "combine":
            values.append(combine(got, scale=len(reads)))
        elif kind == "split":
            values += split(first)
        elif kind == "both":
            values += both(first)
        elif kind == "count":
            values.append(combine(list(count(first))))
        else:
            values.append(push(things[thing], first))
    return values, things


def in_session(program: Program, engine: str) -> tuple[list[Any], list[Any]]:
    with wr.Session(engine=engine, workers=2) as session:
        values: list[Any] = [3, 4]
        things: list[Any] = [[], [1]]
        for kind, reads in program.calls:
            got = [values[r] for r in reads]
            first = got[0]
            if kind == "combine":
                values.append(combine(got, scale=len(reads)))
            elif kind == "split":
                values += split(first)
            elif kind == "both":
                values += both(first)
            elif kind == "count":
                values.append(stream_of(first))
            elif kind == "push":
                values.append(push(things[len(reads) % 2], first))
            else:
                values.append(fail(first))
        return [value_of(one) for one in values], [value_of(session.latest(one)) for one in things]


def stream_of(first: Any) -> Any:
    """A stream of unknown length is waited for where it is used."""
    try:
        return combine(list(count(first)))
    except (ValueError, TypeError, DependencyError):  # of what cannot be, or read it
        return Bad()


def value_of(thing: Any) -> Any:
    if not isinstance(thing, wr.Future):
        return thing
    error = thing.exception(30)
    if error is None:
        return thing.result(30)
    assert isinstance(error, (ValueError, DependencyError)) or "Bad" in str(error)
    return Bad()


@pytest.mark.parametrize("engine", ["inline", "threads"])
@settings(max_examples=40, deadline=None)
@given(program=programs())
def test_graphs_give_what_the_program_gives(engine: str, program: Program) -> None:
    assert in_session(program, engine) == plainly(program)


@settings(max_examples=8, deadline=None)
@given(program=programs())
def test_graphs_give_the_same_in_processes(program: Program) -> None:
    assert in_session(program, "processes") == plainly(program)
