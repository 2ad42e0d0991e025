"""In processes everybody may change what they were given: bodies their arguments, the program what it asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.engines.processes.values import own_copy

#: From a list that travels with reports to arrays in memory that is handed over.
SIZES = [3, 900, 5_000, 100_000]


@wr.task
def make(count: int) -> Any:
    return [0] * count if count < 1000 else np.zeros(count)


@wr.task
def spoil(values: Any) -> int:
    """Change the argument, as functions that calibrate in place do."""
    values[0] += 1
    return int(values[0])


@wr.task
def change_and_return(values: Any) -> Any:
    values[0] += 1
    return values


@wr.task
def first_of(values: Any) -> int:
    return int(values[0])


@wr.task
def both(one: Any, other: Any) -> bool:
    one[0] = 5
    return one is other and bool(other[0] == 5)


@pytest.fixture(scope="module")
def session() -> Any:
    with wr.Session(engine="processes", workers=2) as found:
        yield found


@pytest.mark.parametrize("count", SIZES)
def test_bodies_may_change_what_others_read_too(session: wr.Session, count: int) -> None:
    made = make(count)
    assert session.gather([spoil(made) for _ in range(12)]) == [1] * 12
    assert session.gather([first_of(made) for _ in range(4)]) == [0] * 4


@pytest.mark.parametrize("count", SIZES)
def test_the_program_may_change_what_tasks_still_read(session: wr.Session, count: int) -> None:
    made = make(count)
    value = made.result()
    before = [first_of(made) for _ in range(6)]
    value[0] = 7
    assert session.gather([*before, *[first_of(made) for _ in range(6)]]) == [0] * 12
    assert made.result() is value


@pytest.mark.parametrize("count", SIZES)
def test_a_chain_changes_its_own(session: wr.Session, count: int) -> None:
    last = make(count)
    for _ in range(20):
        last = change_and_return(last)
    assert first_of(last).result() == 20
    kept = [make(count)]
    for _ in range(20):
        kept.append(change_and_return(kept[-1]))
    assert session.gather([first_of(one) for one in kept]) == list(range(21))


def test_a_task_that_is_tried_again_finds_what_was_made(session: wr.Session) -> None:
    @wr.task(on_failure="retry", retries=2)
    def fails_once(values: Any) -> int:
        values[0] += 1
        if not hasattr(wr, "_tried"):
            wr._tried = True  # in the worker
            raise OSError("the first time")
        return int(values[0])

    assert [fails_once(make(5_000)).result() for _ in range(4)] == [1] * 4


@pytest.mark.parametrize("count", SIZES)
def test_one_thing_given_twice_is_one_thing(session: wr.Session, count: int) -> None:
    made = make(count)
    assert both(made, made).result()
    assert both(make(count), made).result() is False
    assert first_of(made).result() == 0


def test_what_cannot_be_changed_or_copied_is_given_as_it_is() -> None:
    lock: Any = object.__new__(type("Lock", (), {"__deepcopy__": lambda *_: 1 / 0}))
    for one in (1, "text", None, b"bytes", len, lock):
        assert own_copy(one, {}) is one
    memo: dict[int, Any] = {}
    array = np.arange(3)
    assert own_copy(array, memo) is own_copy(array, memo) is not array
    objects = np.empty(1, dtype=object)
    objects[0] = [1]
    copied = own_copy(objects, {})
    copied[0].append(2)
    assert objects[0] == [1]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@wr.task
def make_many(megabytes: int) -> Any:
    values = np.arange(megabytes * 125_000.0)
    return {"values": values, "same": values}


@wr.task
def look_and_spoil(thing: Any) -> tuple[float, bool, bool]:
    """Read all, and change it; and say whether two names still mean one array, and whether its memory is a file's."""
    values = thing["values"]
    total = float(values.sum())
    values[:] = -1
    where, maps = values.ctypes.data, Path("/proc/self/maps").read_text().splitlines()
    spans = [(line.split()[0].split("-"), line) for line in maps]
    mapped = any(int(one, 16) <= where < int(other, 16) and "memfd" in line for (one, other), line in spans)
    return total, thing["same"] is values, mapped


def test_a_large_value_is_mapped_by_all_who_read_it_and_changed_by_none(session: wr.Session) -> None:
    made = make_many(4)
    wanted = float(np.arange(500_000.0).sum())
    assert session.gather([look_and_spoil(made) for _ in range(12)]) == [(wanted, True, True)] * 12
    value = made.result()
    value["values"][:] = 0  # the program's own
    assert session.gather([look_and_spoil(made) for _ in range(3)]) == [(wanted, True, True)] * 3


def test_memory_files_of_values_are_closed(session: wr.Session) -> None:
    look = session.submit(descriptors)
    before, here = {look.result(), session.submit(descriptors).result()}, descriptors()
    for _ in range(5):
        made = [make_many(2) for _ in range(6)]
        session.gather([look_and_spoil(one) for one in made for _ in range(2)])
        session.gather(made)
        del made
    # What was let go is told with the next call, to the worker with the next but one.
    after = [session.submit(descriptors).result() for _ in range(4)]
    assert descriptors() <= here + 2
    assert max(after[2:]) <= max(before) + 2


# -- copies

_LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=3), st.none(), st.just((1, "two")))
_THINGS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.sets(st.integers(), max_size=3),
        st.lists(st.integers(0, 9), max_size=3).map(np.array),
    ),
    max_leaves=12,
)


def shape_of(thing: Any, seen: dict[int, int]) -> Any:
    """Write down what a thing is, and which of its parts are one and the same."""
    if id(thing) in seen:
        return "as", seen[id(thing)]
    if isinstance(thing, (list, dict, set, np.ndarray)):
        seen[id(thing)] = len(seen)
    if isinstance(thing, (list, tuple)):
        return type(thing), [shape_of(one, seen) for one in thing]
    if isinstance(thing, dict):
        return dict, [(key, shape_of(one, seen)) for key, one in thing.items()]
    return type(thing), thing.tolist() if isinstance(thing, np.ndarray) else thing


def changeable(thing: Any) -> Any:
    """Find the parts of a thing that can be changed, by identity."""
    if isinstance(thing, (list, tuple, dict)):
        inner = thing.values() if isinstance(thing, dict) else thing
        found = {key: one for part in inner for key, one in changeable(part).items()}
        return found if isinstance(thing, tuple) else {id(thing): thing, **found}
    return {id(thing): thing} if isinstance(thing, (set, np.ndarray)) else {}


@given(_THINGS, _THINGS)
def test_a_copy_is_equal_and_has_nothing_in_common_that_can_be_changed(one: Any, other: Any) -> None:
    thing = [one, other, one, (other, [one])]
    memo: dict[int, Any] = {}
    made = [own_copy(thing, memo), own_copy(one, memo)]
    assert shape_of(made, {}) == shape_of([thing, one], {})
    assert not changeable(made).keys() & changeable(thing).keys()


def test_a_copy_of_a_thing_that_contains_itself() -> None:
    thing: list[Any] = [{"a": [1]}]
    thing.append((thing, thing[0]))
    made = own_copy(thing, {})
    assert made is not thing
    assert made[1][0] is made
    assert made[1][1] is made[0] is not thing[0]


def test_long_lists_are_not_copied_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    things = [
        [(number, str(number), 0.5) for number in range(1000)],
        list(range(1000)),
        {"a": list(range(1000)), "b": (1, (2,))},
    ]
    monkeypatch.setattr("copy.deepcopy", None)
    for thing in things:
        made = own_copy(thing, {})
        assert made == thing
        assert made is not thing
    assert own_copy((1, "a"), {}) == (1, "a")


@pytest.mark.parametrize(
    "make_value", [lambda n: [n], lambda n: (n, [n]), lambda n: {"n": [n]}, lambda n: np.full(3, n)]
)
def test_values_that_are_gone_are_not_taken_for_others(make_value: Any) -> None:
    memo: dict[int, Any] = {}
    copies = [own_copy(make_value(number), memo) for number in range(100)]  # each may get the id of the one before
    assert [repr(one) for one in copies] == [repr(make_value(number)) for number in range(100)]
