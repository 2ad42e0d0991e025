"""Functions take globals and closures as they are at the call, wherever they run."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

import windrow as wr
from windrow.tasks.captured import Outside

PROGRAM = """
import windrow as wr

K = 7
TABLE = {"a": 1}


def helper(x):
    return x * K


@wr.task
def cell(x):
    return helper(x)


@wr.task
def look(name):
    return TABLE.get(name)


def run():
    global K, helper
    made = [cell(2)]
    K = 8
    made += [cell(2), look("b")]
    TABLE["b"] = 5
    made += [look("b"), cell(3)]

    def helper(x):
        return -x

    globals()["helper"] = helper
    made.append(cell(2))
    return made
"""


def program() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "program_of_a_user"}
    exec(PROGRAM, names)
    return names


def test_changes_between_calls_count_as_in_the_plain_program() -> None:
    plain = program()["run"]()
    assert plain == [14, 16, None, 5, 24, -2]
    with wr.Session(engine="processes", workers=2) as session:
        assert session.gather(program()["run"]()) == plain


@pytest.mark.parametrize("change", ["global", "helper", "content", "closure"])
def test_a_change_is_seen(change: str) -> None:
    names = program()
    value = 1

    def over() -> int:
        return value

    function = {"closure": over, "content": names["look"].__wrapped__}.get(change, names["cell"].__wrapped__)
    outside = Outside(function)
    assert outside.is_the_same()
    if change == "global":
        names["K"] = 9
    elif change == "helper":
        names["helper"] = abs
    elif change == "content":
        names["TABLE"]["a"] = 2
    else:
        value = 2
    assert not outside.is_the_same()


def test_what_cannot_be_compared_may_have_changed() -> None:
    tables = [np.arange(3), np.arange(4)]

    def total() -> int:
        return sum(int(one.sum()) for one in tables)

    assert not Outside(total).is_the_same()


ROUNDABOUT = """
@contextmanager
def opened(x):
    yield x * SCALE

class Scaled:
    def method(self, x):
        return x * SCALE

    @staticmethod
    def static(x):
        return x * SCALE

def times(x, y):
    return x * y * SCALE

@wr.task
def other(x):
    return x * SCALE

thing, part, table = Scaled(), partial(times, 1), {"by name": lambda x: x * SCALE}

def by_context(x):
    with opened(x) as y:
        return y

def by_class(x):
    return Scaled().method(x)

def by_static(x):
    return Scaled.static(x)

def by_object(x):
    return thing.method(x)

def by_part(x):
    return part(x)

def by_task(x):
    return other(x)

def by_table(x):
    return table["by name"](x)
"""


def test_globals_are_found_through_whatever_leads_to_them() -> None:
    names: dict[str, Any] = {"__name__": "program", "SCALE": 2}
    names |= {"wr": wr, "contextmanager": contextmanager, "partial": partial}
    exec(ROUNDABOUT, names)
    functions = [names[one] for one in names if one.startswith("by_")]
    functions += [names["thing"].method, names["part"]]
    with wr.Session(engine="processes", workers=1) as session:
        assert session.gather([session.submit(one, 1) for one in functions]) == [2] * 9
        names["SCALE"] = 3
        assert session.gather([session.submit(one, 1) for one in functions]) == [3] * 9
        names["table"]["by name"] = lambda x: -x
        assert session.submit(names["by_table"], 1).result() == -1
