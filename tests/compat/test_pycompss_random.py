"""Random programs of tasks that read, change and make lists give the lists of the plain program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from compss_programs import used
from searching import examples
from windrow.compat.pycompss import (
    COLLECTION_INOUT,
    COLLECTION_OUT,
    COMMUTATIVE,
    CONCURRENT,
    DICTIONARY_INOUT,
    IN,
    INOUT,
    OUT,
    Depth,
    Type,
    compss_wait_on,
    task,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def append(things: list[Any], number: int) -> None:
    things.append(number)


def extend(things: list[Any], others: list[Any]) -> None:
    things.extend(list(others)[-3:])


def exchange(some: list[Any], others: list[Any]) -> None:
    some[:], others[:] = list(others), list(some)


def overwrite(target: list[Any], source: list[Any]) -> None:
    target[:] = [sum(source), len(source)]


def make(source: list[Any], number: int) -> list[Any]:
    return [*list(source)[:4], number]


def use_up(source: list[Any]) -> list[Any]:
    taken = list(reversed(source))
    source.clear()  # its own, though it is not said that it is changed
    return taken


def divide(source: list[Any]) -> tuple[list[Any], list[Any]]:
    return list(source)[::2], list(source)[1::2]


def change_all(lists: list[list[Any]], number: int) -> None:
    for place, one in enumerate(lists):
        if place % 2:
            lists[place] = [number, *list(one)[:2]]  # another one instead of it
        else:
            one.append(number)


def change_table(table: list[list[list[Any]]]) -> None:
    for row in table:
        for place, one in enumerate(row):
            row[place] = [*one, place]


def fill(lists: list[list[Any]], source: list[Any]) -> None:
    for place in range(len(lists)):
        lists[place] = [place, len(source)]


def change_values(table: dict[str, list[Any]]) -> None:
    for name, one in sorted(table.items()):
        one.append(int(name))


BODIES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "append": (append, {"things": INOUT}),
    "append_commutative": (append, {"things": COMMUTATIVE}),
    "append_concurrent": (append, {"things": CONCURRENT}),
    "extend": (extend, {"things": INOUT, "others": IN}),
    "exchange": (exchange, {"some": INOUT, "others": INOUT}),
    "overwrite": (overwrite, {"target": OUT}),
    "make": (make, {"returns": list}),
    "use_up": (use_up, {"returns": 1}),
    "divide": (divide, {"returns": 2}),
    "change_all": (change_all, {"lists": COLLECTION_INOUT}),
    "change_table": (change_table, {"table": {Type: COLLECTION_INOUT, Depth: 2}}),
    "fill": (fill, {"lists": COLLECTION_OUT}),
    "change_values": (change_values, {"table": DICTIONARY_INOUT}),
}
TASKS = {name: task(**options)(body) for name, (body, options) in BODIES.items()}
PLAIN = {name: body for name, (body, _) in BODIES.items()}
PLAIN["use_up"] = lambda source: use_up(list(source))
LISTS = 4

which = st.integers(0, LISTS - 1)
several = st.lists(which, min_size=1, max_size=LISTS, unique=True)
step = st.one_of(
    st.tuples(st.sampled_from(["append", "append_commutative", "append_concurrent"]), which),
    st.tuples(st.sampled_from(["extend", "exchange", "overwrite"]), which, which),
    st.tuples(st.sampled_from(["make", "use_up"]), which, which),
    st.tuples(st.just("divide"), which, which, which),
    st.tuples(st.sampled_from(["change_all", "change_table", "change_values"]), several),
    st.tuples(st.just("fill"), several, which),
    st.tuples(st.just("wait"), which),
    st.tuples(st.just("by the program itself"), which),
)


def run(
    program: list[tuple[Any, ...]], call: dict[str, Any], wait: Callable[[Any], Any], changes: bool
) -> list[list[Any]]:
    """Run a program; the names of lists are their numbers."""
    known: list[Any] = [[number] for number in range(LISTS)]
    for number, (what, *names) in enumerate(program):
        first = names[0]
        if what.startswith("append"):
            call[what](known[first], number)
        elif what in ("extend", "exchange"):
            call[what](known[first], known[names[1]])
        elif what == "overwrite":
            if first != names[1]:  # it would read what it does not want to know
                call[what](known[first], known[names[1]])
        elif what == "make":
            known[first] = call[what](known[names[1]], number=number)
        elif what == "use_up":
            known[first] = call[what](known[names[1]])
        elif what == "divide":
            known[first], known[names[1]] = call[what](known[names[2]])
        elif what == "change_all":
            parts = [known[one] for one in first]
            call[what](parts, number)
            for one, part in zip(first, parts, strict=True):
                known[one] = part
        elif what == "change_table":
            middle = len(first) // 2
            table = [[known[one] for one in first[:middle]], [known[one] for one in first[middle:]]]
            call[what](table)
            for one, part in zip(first, [*table[0], *table[1]], strict=True):
                known[one] = part
        elif what == "fill":
            if names[1] in first:
                continue
            parts = [known[one] for one in first]
            call[what](parts, known[names[1]])
            for one, part in zip(first, parts, strict=True):
                known[one] = part
        elif what == "change_values":
            call[what]({str(one): known[one] for one in first})
        elif what == "wait":
            known[first] = wait(known[first])
        elif changes:
            known[first] = wait(known[first])
            known[first].append(-number)
    known = wait(known)
    assert all(type(one) is list for one in known)
    return known


@pytest.fixture(scope="module", params=["processes", "threads"])
def session(request: pytest.FixtureRequest) -> Iterator[wr.Session]:
    opened = wr.Session(engine=request.param, workers=2)
    yield opened
    opened.close()


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(program=st.lists(step, max_size=25))
def test_a_program_gives_what_it_gives_without_tasks(session: wr.Session, program: list[tuple[Any, ...]]) -> None:
    # Where tasks share its memory, a program leaves alone what it has given to them.
    changes = session._driver._isolated
    wanted = run(program, PLAIN, lambda thing: thing, changes)
    with used(session):
        assert run(program, TASKS, compss_wait_on, changes) == wanted
