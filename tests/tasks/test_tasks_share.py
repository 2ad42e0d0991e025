"""Large things are sent once, and every task sees them as they were when it was called; ``session.share`` says so outright."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.engines.write_watch import WriteWatch
from windrow.errors import UsageError

#: Numbers in an array that travels apart, and in one that does not.
LARGE, SMALL = 200_000, 100


@pytest.fixture(scope="module")
def session() -> Any:
    with wr.Session(engine="processes", workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def executor() -> Any:
    with wr.Executor(2) as found:
        yield found


def total(values: Any) -> float:
    return float(values.sum())


def memory_files() -> int:
    """Count the memory files that this process has open or mapped."""
    names = []
    for one in list(Path("/proc/self/fd").iterdir()):
        try:
            names.append(str(one.readlink()))
        except OSError:  # that of the directory
            continue
    return sum("memfd:windrow" in one for one in (*names, *Path("/proc/self/maps").read_text().splitlines()))


# -- changes in place between calls

CHANGES = ("none", "first", "last", "sort", "fill", "replace", "view", "grow")


class Program:
    """What a user has: arrays, changed in place between calls that are given them in many ways."""

    def __init__(self) -> None:
        self.large = np.arange(LARGE, dtype=np.float64)
        self.small = np.arange(SMALL, dtype=np.float64)
        self.table = {
            "large": self.large,
            "view": self.large[LARGE // 4 :],
            "small": self.small,
            "turned": np.ones((500, 300)).T,
        }

    def change(self, how: str, number: int) -> None:
        if how == "first":
            self.large[0] += number
        elif how == "last":
            self.large[-1] -= 1
            self.small[-1] += 1
        elif how == "sort":
            self.large[:] = self.large[::-1]
        elif how == "fill":
            self.table["turned"][3] = number
        elif how == "replace":
            self.large = self.table["large"] = self.large + 1
        elif how == "view":
            self.table["view"][number] = -1
        elif how == "grow":
            self.table[f"more {number}"] = np.full(LARGE, float(number))

    def calls(self) -> list[tuple[Any, tuple[Any, ...]]]:
        large, table = self.large, self.table
        return [
            (total, (large,)),
            (total, (large[10:-10],)),
            (_total_of_all, (table,)),
            (lambda: float(large.sum() + table["view"].sum()), ()),
            (lambda factor: {name: factor * total(one) for name, one in table.items()}, (3,)),
        ]


def _total_of_all(table: Any) -> dict[str, float]:
    found = {name: total(one) for name, one in table.items()}
    for one in table.values():  # nobody else may see that
        one[:] = 7
    return found


@given(st.lists(st.sampled_from(CHANGES), max_size=6), st.sampled_from(("submit", "map", "executor")))
@settings(max_examples=20, deadline=None)
def test_every_call_sees_arrays_as_they_are_then(
    session: wr.Session, executor: wr.Executor, changes: list[str], how: str
) -> None:
    program, wanted, made = Program(), [], []
    for number, change in enumerate(["none", *changes]):
        program.change(change, number)
        for function, given_ in program.calls():
            wanted.append(function(*_copied(given_)))
            if how == "submit":
                made.append(session.submit(function, *given_).result)
            elif how == "executor":
                made.append(executor.submit(function, *given_).result)
            else:
                made.append(partial(next, executor.map(function, *[[one] for one in given_] or [[]]), None))
    for one, found in zip(wanted, made, strict=True):
        value = found()
        assert value == one or (how == "map" and value is None)


def _copied(given_: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([{k: v.copy() for k, v in one.items()} if isinstance(one, dict) else one for one in given_])


def test_arrays_that_overlap_and_sessions_beside_each_other_do_not_hide_writes(session: wr.Session) -> None:
    values = np.zeros(LARGE)
    views = [values, values[LARGE // 4 :], values[: -LARGE // 4]]
    with wr.Session(engine="processes", workers=1) as other:
        for number in range(4):
            values[LARGE // 2] = number
            made = [where.submit(total, one) for one in views for where in (session, other)]
            assert [one.result() for one in made] == [number] * 6


def test_the_same_without_being_told_of_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriteWatch, "protect", lambda *_: None)
    values, wanted, made = np.arange(LARGE, dtype=np.float64), [], []
    with wr.Session(engine="processes", workers=2) as session:
        for number in range(6):
            values[number % 3 * 1000] += number % 2
            wanted.append(total(values))
            made.append(session.submit(total, values))
        assert session.gather(made) == wanted


# -- share


@wr.task
def look(thing: Any) -> Any:
    """Say what is there, and whether it could be changed."""
    arrays = thing if isinstance(thing, dict) else {"": thing}
    for one in arrays.values():
        with pytest.raises(ValueError, match="read-only"):
            one[:1] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            one.flags.writeable = True
    return {name: (total(one), one.shape, one.dtype.str) for name, one in arrays.items()}


def _told(thing: Any) -> Any:
    arrays = thing if isinstance(thing, dict) else {"": thing}
    return {name: (total(one), one.shape, one.dtype.str) for name, one in arrays.items()}


@pytest.mark.parametrize("engine", ["processes", "threads", "inline"])
def test_what_is_shared_is_read_by_all_and_changed_by_none(engine: str) -> None:
    things = [
        np.arange(LARGE, dtype=np.float64),
        np.arange(SMALL, dtype=np.int32),
        np.arange(LARGE).reshape(400, 500).T,
        np.arange(LARGE)[::3],
        {"a": np.arange(LARGE), "b": np.ones(SMALL), "c": np.zeros((300, 200), order="F")},
    ]
    with wr.Session(engine=engine, workers=2) as session:
        for thing in things:
            shared = session.share(thing)
            assert type(shared) is type(thing)
            assert _told(shared) == _told(thing)
            assert session.gather([look(shared) for _ in range(3)]) == [_told(thing)] * 3
            assert session.submit(lambda found=shared: _told(found)).result() == _told(thing)


def test_parts_of_what_is_shared_are_not_sent(session: wr.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(LARGE, dtype=np.float64)
    shared = session.share(values)
    packer: Any = session._packer
    monkeypatch.setattr(packer.arrays, "find", None)  # nothing is looked at again
    calls, pack = [], type(packer).pack

    def packed(*given_: Any) -> Any:
        calls.append(pack(*given_))
        return calls[-1]

    monkeypatch.setattr(type(packer), "pack", packed)
    borders = [(0, LARGE), (5, 1000), (LARGE - 2000, LARGE), (0, 600)]
    made = [session.submit(total, shared[begin:end]) for begin, end in borders]
    assert session.gather(made) == [total(values[begin:end]) for begin, end in borders]
    assert all(one.parcel is None and len(one.small) < 1000 for one in calls)


@given(st.lists(st.tuples(st.integers(0, LARGE - 1), st.integers(0, LARGE)), min_size=1, max_size=8), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_part_of_what_is_shared_is_itself(
    session: wr.Session, borders: list[tuple[int, int]], closed: bool
) -> None:
    values = np.arange(LARGE, dtype=np.float64)
    shared = session.share(values)
    values[:] = 0  # what is shared is as it was
    made, wanted = [], []
    box: list[Any] = [None]

    def see() -> float:
        return total(box[0])

    for begin, size in borders:
        box[0] = part = shared[begin : begin + size : 1 + size % 2]
        wanted.append(total(part))
        made.append(session.submit(see) if closed else session.submit(total, part))
    assert session.gather(made) == wanted


def test_what_is_shared_is_gone_when_nobody_has_it(session: wr.Session) -> None:
    def both() -> int:
        session.gather([session.submit(abs, -1) for _ in range(8)])
        there: int = max(session.gather([session.submit(memory_files) for _ in range(8)]))
        gc.collect()
        return there + memory_files()

    packer: Any = session._packer
    gc.collect()
    before, known = both(), len(packer.arrays._shared)
    for _ in range(5):
        shared = [session.share(np.ones(LARGE)), session.share({"a": np.ones(SMALL), "b": np.ones(LARGE)})]
        part = shared[0][1000:2000]
        assert session.gather([look(one) for one in (*shared, part)])
        assert len(packer.arrays._shared) == known + 2
        del shared
        assert len(packer.arrays._shared) == known + 1  # of which a part is left
        assert session.gather(look(part))[""][0] == 1000
        del part
    assert len(packer.arrays._shared) == known
    assert both() <= before


def test_a_thing_without_arrays_is_not_shared(session: wr.Session) -> None:
    with pytest.raises(UsageError, match=r"this list there are none .* wr\.resident"):
        session.share([1, 2, 3])


def test_what_is_shared_outlives_the_session() -> None:
    with wr.Session(engine="processes", workers=1) as first:
        shared = first.share(np.arange(LARGE, dtype=np.float64))
        wanted = first.submit(total, shared).result()
    assert total(shared) == wanted
    with wr.Session(engine="processes", workers=1) as second:
        assert second.submit(total, shared).result() == wanted


def test_a_closure_is_sent_once_for_all_calls_of_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    from windrow.engines.processes import transport

    values, written = np.arange(LARGE, dtype=np.float64), []
    memory_file = transport._memory_file

    def noted(pieces: Any) -> int:
        written.append(sum(len(memoryview(one).cast("B")) for one in pieces if len(one)))
        return memory_file(pieces)

    monkeypatch.setattr(transport, "_memory_file", noted)
    with wr.Executor(2) as executor:
        wanted = [float(values[number]) for number in range(20)]
        assert list(executor.map(lambda number: float(values[number]), range(20))) == wanted
        assert [one.result() for one in [executor.submit(lambda n: float(values[n]), n) for n in range(20)]] == wanted
    assert sum(written) < 2 * values.nbytes
