"""Random graphs of reused tasks, run again with changes: the values are right, and exactly what is affected runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples

#: Functions of a program; some take a constant from outside, one has two outputs, one is not reused.
SOURCE = """
def note(name):
    with open(LOG, "a") as log:
        log.write(name + "\\n")

def helper(x):
    return x * {c1} + 1

def f0(*values):
    note("f0")
    return (sum(map(int, values)) + {c0}) % 1009

def f1(*values):
    note("f1")
    return helper(sum(map(int, values))) % 1009

def f2(*values):
    note("f2")
    return (sum(map(int, values)) * C2) % 1009

def f3(*values):
    note("f3")
    yield (sum(map(int, values)) + C3["a"]) % 1009
    yield (len(values) + C3["a"]) % 1009

def f4(*values):
    note("f4")
    return (sum(map(int, values)) + 4) % 1009
"""
REUSED = 4  #: the functions before this one
FUNCTIONS = 5


class Call(NamedTuple):
    """A call in a program; an argument is a number, or an output of an earlier call."""

    function: int
    arguments: tuple[int | tuple[int, int], ...]


class Described(NamedTuple):
    """A program."""

    constants: tuple[int, ...]
    calls: tuple[Call, ...]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Described, Described]:
    """Make a program, and the same with a change or two, or none."""
    calls: list[Call] = []
    outputs: list[tuple[int, int]] = []
    for number in range(draw(st.integers(1, 10))):
        function = draw(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 3, 4]))
        values: Any = st.integers(0, 3)
        if outputs:
            values |= st.sampled_from(outputs)
        calls.append(Call(function, tuple(draw(st.lists(values, max_size=3)))))
        outputs += [(number, 0)] + ([(number, 1)] if function == 3 else [])
    constants = [draw(st.integers(0, 5)) for _ in range(FUNCTIONS)]
    first = Described(tuple(constants), tuple(calls))
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            constants[draw(st.integers(0, FUNCTIONS - 1))] = draw(st.integers(0, 5))
        else:
            at = draw(st.integers(0, len(calls) - 1))
            arguments = list(calls[at].arguments)
            places = [n for n, one in enumerate(arguments) if isinstance(one, int)]
            if places:
                arguments[draw(st.sampled_from(places))] = draw(st.integers(0, 3))
            calls[at] = Call(calls[at].function, tuple(arguments))
    return first, Described(tuple(constants), tuple(calls))


def sequential(program: Described) -> list[tuple[int, ...]]:
    """Give what each call makes, by plain arithmetic."""
    c = program.constants
    made: list[tuple[int, ...]] = []
    for function, arguments in program.calls:
        values = [one if isinstance(one, int) else made[one[0]][one[1]] for one in arguments]
        total = sum(values)
        made.append(
            {
                0: ((total + c[0]) % 1009,),
                1: ((total * c[1] + 1) % 1009,),
                2: ((total * c[2]) % 1009,),
                3: ((total + c[3]) % 1009, (len(values) + c[3]) % 1009),
                4: ((total + 4) % 1009,),
            }[function]
        )
    return made


def has_to_run(program: Described, known: set[Any]) -> list[str]:
    """Say which bodies run, given what is known; adds to that. A call is what it is made of, all the way down."""
    bodies: list[str] = []
    meaning: list[Any] = []
    for function, arguments in program.calls:
        parts: list[Any] = []
        for one in arguments:
            parts.append(one if isinstance(one, int) else (meaning[one[0]], one[1]))
        unknown = any(isinstance(one, tuple) and one[0] is None for one in parts)
        what = (function, program.constants[function], tuple(parts))
        if function >= REUSED or unknown:
            meaning.append(None)
            bodies.append(f"f{function}")
            continue
        meaning.append(what)
        if what not in known:
            known.add(what)
            bodies.append(f"f{function}")
    return sorted(bodies)


def run(place: Path, program: Described, engine: str) -> tuple[list[tuple[int, ...]], list[str]]:
    """Run a program as a graph; give what each call made, and the bodies that ran."""
    log = place / "log"
    log.write_text("")
    c = program.constants
    names: dict[str, Any] = {"LOG": str(log), "C2": c[2], "C3": {"a": c[3]}, "__name__": "program"}
    exec(SOURCE.format(c0=c[0], c1=c[1]), names)
    tasks = [wr.task(names[f"f{n}"], reuse=n < REUSED, outputs=2 if n == 3 else 1) for n in range(FUNCTIONS)]
    with wr.Session(engine=engine, workers=2, store=place / "store") as session:
        made: list[Any] = []
        for function, arguments in program.calls:
            given = [one if isinstance(one, int) else made[one[0]][one[1]] for one in arguments]
            result = tasks[function](*given)
            made.append(result if function == 3 else (result,))
        values = [tuple(one) for one in session.gather(made)]
    return values, sorted(log.read_text().split())


@pytest.mark.parametrize("engine", ["inline", "threads"])
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(both=programs())
def test_exactly_what_is_affected_runs_again(
    tmp_path_factory: pytest.TempPathFactory, engine: str, both: tuple[Described, Described]
) -> None:
    place = Path(tmp_path_factory.mktemp("random"))
    known: set[Any] = set()
    for program in (*both, both[0]):
        values, bodies = run(place, program, engine)
        assert values == sequential(program)
        assert bodies == has_to_run(program, known)


def test_in_processes_as_well(tmp_path: Path) -> None:
    calls = (Call(0, (1,)), Call(3, ((0, 0), 2)), Call(1, ((1, 1),)), Call(4, (2,)), Call(2, ((1, 0), (3, 0))))
    known: set[Any] = set()
    for constants in ((1, 2, 3, 4, 5), (1, 2, 3, 5, 5)):
        program = Described(constants, calls)
        values, bodies = run(tmp_path, program, "processes")
        assert values == sequential(program)
        assert bodies == has_to_run(program, known)
