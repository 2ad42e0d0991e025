"""Random programs: drawn once, run as a session of tasks and by an interpreter that just calls functions.

A program makes variables, each from earlier ones, and changes things that live as long as it does. The interpreter knows
nothing of Windrow. What cannot be is ``BAD`` for it, and so is whatever reads that. Imported by worker processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BAD",
    "OUTPUTS",
    "TASKS",
    "Op",
    "Program",
    "Tally",
    "new_things",
    "number",
    "packed_in",
    "plainly",
    "programs",
]


class Bad:
    """Stands for a value that cannot be."""

    def __repr__(self) -> str:
        return "BAD"


BAD = Bad()


class Tally:
    """A thing of a user's own that tasks change."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def add(self, value: int) -> None:
        self.seen.append(value)


def number(value: Any) -> int:
    """Make a number of any value here; it depends on all of it, and on its order."""
    if isinstance(value, Bad):
        raise TypeError("what cannot be was read")
    if value is None:
        return 5
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        return int((value * (np.arange(value.size) % 7 + 1)).sum()) % 10_007
    if isinstance(value, dict):
        return number([*value, *value.values()])
    if isinstance(value, Tally):
        return number(value.seen) + 1
    if isinstance(value, str):
        return len(value)
    total = 3
    for one in sorted(value) if isinstance(value, set | frozenset) else value:
        total = (total * 31 + number(one)) % 10_007
    return total


# -- bodies ------------------------------------------------------------------------------------------


def combine(values: Any, *, scale: int = 1, more: Any = None) -> int:
    return scale * number(values) + number(more)


def array(value: Any, size: int) -> Any:
    return np.arange(size) + number(value) % 1000


def pair(value: Any) -> tuple[int, list[int]]:
    return number(value) + 7, [number(value)] * 3


def parts(value: Any, until: int) -> Any:
    """Yield three parts, or fail before."""
    for one in range(3):
        if one == until:
            raise ValueError(f"no part {one}")
        yield number(value) + one


def in_any_order(value: Any) -> int:
    wr.ready(number(value) + 20, 2)
    wr.ready(np.full(3000, number(value) % 100), 0)
    return number(value) + 10


def counted(value: Any, until: int) -> Any:
    for one in range(number(value) % 5):
        if one == until:
            raise ValueError(f"no item {one}")
        yield one * number(value)


def change(thing: Any, value: Any) -> int:
    """Change a thing in place, whatever it is."""
    found = number(value)
    if thing is None:  # nothing can be done for it
        return -1
    if isinstance(thing, list):
        thing.append(found)
    elif isinstance(thing, dict):
        thing[found % 5] = thing.get(found % 5, 0) + found
    elif isinstance(thing, np.ndarray):
        thing[found % thing.size] += found % 100
    else:
        thing.add(found)
    return number(thing)


def change_and_fail(thing: Any, value: Any) -> int:
    change(thing, value)
    raise ValueError("changed, and failed")


def fail(value: Any) -> int:
    raise ValueError(f"no {number(value)}")


def not_yet(value: Any, place: str, failures: int) -> int:
    """Fail the first few times, or every time; how often is written down, as each time may be in another process."""
    with Path(place).open("ab") as file:
        file.write(b"x")
        file.flush()
        # One that is tried in vain fails also where what it read was taken back, and it is tried anew.
        if file.tell() <= failures or failures > RETRIES:
            raise OSError(f"not yet: {file.tell()} of {failures}")
    return number(value) + failures


def parts_not_yet(value: Any, place: str, failures: int) -> Any:
    """Yield one part, and fail before the next the first few times."""
    yield number(value)
    yield not_yet(value, place, failures)


OUTPUTS: dict[str, int | str] = {"pair": 2, "parts": 3, "in_any_order": 3, "counted": "stream", "parts_not_yet": 2}
CHANGES = ("change", "change_and_fail")
BODIES: tuple[Callable[..., Any], ...] = (
    combine, array, pair, parts, in_any_order, counted, change, change_and_fail, fail, not_yet, parts_not_yet,
)  # fmt: skip
TASKS = {
    body.__name__: wr.task(
        body, outputs=OUTPUTS.get(body.__name__, 1), inout="thing" if body.__name__ in CHANGES else ()
    )
    for body in BODIES
}


# -- programs ----------------------------------------------------------------------------------------


@dataclass
class Op:
    """One call, or something else that a program does."""

    kind: str
    reads: list[int] = field(default_factory=list)  #: variables
    things: list[int] = field(default_factory=list)  #: what it reads of them, or changes the first
    way: int = 0  #: in which container they are
    until: int = 9
    failures: int = 0
    size: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    group: int = 0  #: 0: none


@dataclass
class Program:
    """What is done, in order."""

    ops: list[Op]


#: How often those are tried again that fail at first.
RETRIES = 2
#: What is there at the beginning.
FIRST: tuple[Any, ...] = (3, 4)
THINGS = 4


def new_things() -> list[Any]:
    return [[1], {2: 3}, np.zeros(6000, np.int64), Tally()]


def packed_in(way: int, values: list[Any]) -> Any:
    """Put values into containers of containers."""
    if way == 0:
        return values
    if way == 1:
        return tuple(values)
    if way == 2:
        return {f"k{place}": value for place, value in enumerate(values)}
    if way == 3:
        return [(values[0], {"deep": [values]})]
    return {"first": values[0], "all": tuple(values)}


KINDS = (
    "combine", "combine", "array", "pair", "parts", "in_any_order", "counted", "change", "change", "look", "fail",
    "not_yet", "parts_not_yet", "change_and_fail",
)  # fmt: skip


def _options(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    rule = draw(st.sampled_from([None, None, "ignore", "cancel_successors"]))
    if kind in ("not_yet", "parts_not_yet"):
        rule = "retry"
    options: dict[str, Any] = {"on_failure": rule}
    if draw(st.booleans()):
        options["priority"] = draw(st.integers(-2, 2))
    if draw(st.integers(0, 4)) == 0:
        options["resources"] = {"licence": draw(st.integers(1, 2))}
    if draw(st.integers(0, 4)) == 0:
        options["cores"] = draw(st.integers(0, 2))
    if draw(st.integers(0, 3)) == 0:
        options["restartable"] = False
    return options


@st.composite
def programs(draw: st.DrawFn, *, cancels: bool = False, most: int = 25) -> Program:
    """Draw a program; with ``cancels`` some of what it calls is called off again."""
    others = ["ask", "forget", "barrier", *(["cancel", "cancel_group"] if cancels else [])]
    known = list(range(len(FIRST)))
    made = len(known)
    ops = []
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from([*KINDS, *others]))
        op = Op(kind, reads=draw(st.lists(st.sampled_from(known), min_size=1, max_size=3)))
        ops.append(op)
        if kind == "forget":
            if op.reads[0] >= len(FIRST):
                known.remove(op.reads[0])
            continue
        op.group = draw(st.integers(0, 2))
        if kind in others:
            continue
        op.options = _options(draw, kind)
        op.things = draw(st.lists(st.integers(0, THINGS - 1), min_size=1, max_size=2))
        op.way = draw(st.integers(0, 4))
        op.size = draw(st.sampled_from([1, 50, 30_000]))
        op.until = draw(st.sampled_from([0, 1, 2, 9, 9, 9]))
        op.failures = draw(st.integers(0, 3))
        if kind in ("not_yet", "parts_not_yet"):
            op.options["retries"] = RETRIES
        count = OUTPUTS.get(kind, 1)
        new = 1 if count == "stream" else int(count)
        known += range(made, made + new)
        made += new
    return Program(ops)


# -- the sequential program --------------------------------------------------------------------------


def plainly(program: Program) -> tuple[list[Any], list[Any]]:
    """Just call the functions, one after the other: all variables, and what has become of the things."""
    values: list[Any] = list(FIRST)
    things = new_things()
    for op in program.ops:
        if op.kind in TASKS or op.kind == "look":
            values += _called(op, [values[one] for one in op.reads], things)
    return values, things


def _called(op: Op, got: list[Any], things: list[Any]) -> list[Any]:
    first = got[0]
    ignores = op.options["on_failure"] == "ignore"
    if op.kind in CHANGES:
        return [_changed(op, first, things)]
    seen = [things[one] for one in op.things] if op.kind == "look" else []
    needed = got + seen if op.kind in ("combine", "look") else [first]
    count = OUTPUTS.get(op.kind, 1)
    if any(isinstance(one, Bad) for one in needed):
        return [BAD] * (1 if count == "stream" else int(count))
    if op.kind == "combine":
        inside = packed_in(op.way, got)
        return [combine(inside, scale=len(got), more=got[-1:])]
    if op.kind == "look":
        return [combine(packed_in(op.way, seen), more={"m": got})]
    if op.kind in ("parts", "parts_not_yet"):
        return _yielded(op, first)
    if op.kind == "counted":
        return [_streamed(op, first)]
    if op.kind == "fail" or (op.kind == "not_yet" and op.failures > op.options["retries"]):
        return [None if ignores else BAD]
    if op.kind == "not_yet":
        return [number(first) + op.failures]
    if op.kind == "array":
        return [array(first, op.size)]
    if op.kind == "pair":
        return list(pair(first))
    assert op.kind == "in_any_order"
    return [np.full(3000, number(first) % 100), number(first) + 10, number(first) + 20]


def _yielded(op: Op, first: Any) -> list[Any]:
    """What was released before a failure stays, unless the task says that it takes it back."""
    if op.kind == "parts":
        whole = [number(first) + one for one in range(3)]
        good = min(op.until, 3)
    else:
        whole = [number(first), number(first) + op.failures]
        good = 1 if op.failures > op.options["retries"] else 2
    if good == len(whole):
        return whole
    if op.options["on_failure"] == "ignore":
        return whole[:good] + [None] * (len(whole) - good)
    if op.options.get("restartable") is False:
        return [BAD] * len(whole)
    return whole[:good] + [BAD] * (len(whole) - good)


def _streamed(op: Op, first: Any) -> Any:
    """A stream is read to its end; what is made of its items is one variable."""
    items = [one * number(first) for one in range(number(first) % 5)]
    if op.until < len(items):
        if op.options["on_failure"] != "ignore":
            return BAD
        items = items[: op.until]
    return combine(items)


def _changed(op: Op, value: Any, things: list[Any]) -> Any:
    """A thing whose change failed cannot be used; where that is ignored it stays as it was before."""
    place = op.things[0]
    ignores = op.options["on_failure"] == "ignore"
    if isinstance(things[place], Bad) or isinstance(value, Bad):
        things[place] = BAD
        return BAD
    if op.kind == "change":
        return change(things[place], value)
    if ignores:
        return None
    things[place] = BAD
    return BAD
