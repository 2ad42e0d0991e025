"""Writing a run down as it goes: seldom enough to cost nothing, the oldest first, and never the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.errors import InternalError, JournalError
from windrow.store.journal.journal import Journal, Keeper, KnownInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from windrow.store.journal.journal import Blob


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def packed(partial: Any) -> list[bytes]:
    return [str(partial).encode()]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    tmp_path.chmod(0o700)
    with Journal.create(tmp_path) as journal:
        inputs = [KnownInput(k, "tt", k, "1", 100, (100,), None, None) for k in "abc"]
        journal.know(inputs)
        yield journal
        journal.validate()


@pytest.fixture
def clock() -> Clock:
    return Clock()


A, B = ("a", ("p",)), ("b", ("p",))


def held(journal: Journal) -> dict[str, tuple[Any, bytes]]:
    return {blob.input: (blob.rows, journal.read(blob)) for blob in journal.blobs()}


def test_the_newest_state_is_written_once_it_is_worth_it(journal: Journal, clock: Clock) -> None:
    keeper = Keeper(journal, packed, clock)
    keeper.changed(A, [(0, 10)], 1)
    clock.now += 0.9  # the first guess is 10 ms, one percent of a second
    keeper.maybe_write(clock.now)
    assert journal.blobs() == []
    keeper.changed(A, [(0, 20)], 2)
    clock.now += 0.2
    keeper.maybe_write(clock.now)
    assert held(journal) == {"a": (((0, 20),), b"2")}
    keeper.maybe_write(clock.now + 100)
    assert len(journal.blobs()) == 1


def test_a_newer_state_supersedes_the_one_before(journal: Journal, clock: Clock) -> None:
    keeper = Keeper(journal, packed, clock)
    for number in range(1, 4):
        keeper.changed(A, [(0, 10 * number)], number)
        clock.now += 1000
        keeper.maybe_write(clock.now)
        assert held(journal) == {"a": (((0, 10 * number),), b"%d" % number)}
    keeper.changed(("a", ("q",)), [(0, 5)], "q")
    keeper.flush()
    assert [blob.products for blob in journal.blobs()] == [("p",), ("q",)]


def test_the_oldest_change_is_written_first(journal: Journal, clock: Clock) -> None:
    order: list[str] = []

    def pack(partial: Any) -> list[bytes]:
        order.append(partial)
        clock.now += 0.02  # twice what was predicted
        return [b""]

    keeper = Keeper(journal, pack, clock)
    for number, (key, partial) in enumerate([(A, "a"), (B, "b"), (A, "a again")]):
        clock.now += 0.1
        keeper.changed(key, [(0, number + 1)], partial)
    clock.now += 1.5
    keeper.maybe_write(clock.now)
    assert order == ["a again"]
    clock.now += 1000
    keeper.maybe_write(clock.now)
    assert order == ["a again", "b"]


def test_what_turns_out_large_waits(journal: Journal, clock: Clock) -> None:
    calls = []

    def pack(_: Any) -> list[bytes]:
        calls.append(clock.now)
        return [bytes(20_000_000)]  # 110 ms by the first guess, and 10 ms as long as nobody knows

    keeper = Keeper(journal, pack, clock)
    keeper.changed(A, [(0, 10)], None)
    for _ in range(1200):
        clock.now += 0.01
        keeper.maybe_write(clock.now)
    assert [round(call - 1000) for call in calls] == [1, 11]
    assert len(journal.blobs()) == 1


def test_what_grows_all_the_time_is_written_all_the_same(journal: Journal, clock: Clock) -> None:
    size = [1000]

    def pack(_: Any) -> list[bytes]:
        clock.now += 0.001
        return [bytes(size[0])]

    keeper = Keeper(journal, pack, clock)
    for number in range(1, 100):
        size[0] = int(size[0] * 1.05)
        keeper.changed(A, [(0, number)], None)
        clock.now += 1
        keeper.maybe_write(clock.now)
    assert journal.blobs()[0].rows[0][1] > 90


def test_all_is_written_at_the_end(journal: Journal, clock: Clock) -> None:
    keeper = Keeper(journal, packed, clock)
    keeper.changed(A, [(0, 10)], 1)
    keeper.changed(B, [(5, 10)], 2)
    keeper.flush()
    assert held(journal) == {"a": (((0, 10),), b"1"), "b": (((5, 10),), b"2")}
    assert keeper.notes == ()


def test_a_resumed_run_goes_on_from_blobs_of_others(journal: Journal, clock: Clock) -> None:
    """Those of the same key by themselves, others when they are named; none whose rows are not in the new one."""
    same = journal.write("a", ["p"], [(0, 10)], [b"same"])
    apart = journal.write("a", ["p"], [(80, 90)], [b"apart"])
    wider = journal.write("a", ["q", "r"], [(0, 10)], [b"wider"])
    keeper = Keeper(journal, packed, clock, {wider.id})
    keeper.changed(A, [(0, 20)], "new")
    keeper.changed(("a", ("q",)), [(0, 10)], "q alone")
    keeper.changed(("a", ("q",)), [(0, 20)], "q alone, more")
    keeper.flush()
    assert same not in journal.blobs()
    assert wider not in journal.blobs()
    assert apart in journal.blobs()
    assert sorted(journal.read(blob) for blob in journal.blobs()) == [
        b"apart", b"new", b"q alone, more",
    ]  # fmt: skip


def test_an_interrupt_in_a_write_costs_nothing(journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    keeper = Keeper(journal, packed, clock)
    keeper.changed(A, [(0, 10)], 1)
    keeper.changed(B, [(0, 10)], 2)
    write = Journal.write

    def written_and_interrupted(*given: Any) -> None:
        write(*given)
        raise KeyboardInterrupt

    for wrong in (interrupted, written_and_interrupted):
        monkeypatch.setattr(Journal, "write", wrong)
        with pytest.raises(KeyboardInterrupt):
            keeper.flush()
    monkeypatch.undo()
    keeper.flush()
    assert held(journal) == {"a": (((0, 10),), b"1"), "b": (((0, 10),), b"2")}


class Broken:
    """A journal on a disk that is full."""

    def __init__(self) -> None:
        self.tries = 0

    def blobs_of(self, _: str) -> list[Blob]:
        return []

    def write(self, *_: object) -> None:
        self.tries += 1
        raise JournalError("no space left")


def test_an_error_is_noted_once_and_not_tried_again(clock: Clock) -> None:
    broken: Any = Broken()
    keeper = Keeper(broken, packed, clock)
    keeper.changed(A, [(0, 10)], 1)
    keeper.changed(B, [(0, 10)], 1)
    clock.now += 100
    keeper.maybe_write(clock.now)
    keeper.changed(A, [(0, 20)], 1)
    keeper.maybe_write(clock.now + 1e6)
    keeper.flush()
    assert broken.tries == 1
    assert len(keeper.notes) == 1
    assert "no space left" in keeper.notes[0]


def test_a_partial_that_cannot_be_packed_is_noted(journal: Journal, clock: Clock) -> None:
    def pack(_: Any) -> list[bytes]:
        raise TypeError("cannot pickle a lock")

    keeper = Keeper(journal, pack, clock)
    keeper.changed(A, [(0, 10)], 1)
    keeper.flush()
    assert "TypeError: cannot pickle a lock" in keeper.notes[0]


def test_rows_held_twice_are_a_bug_that_is_not_hidden(journal: Journal, clock: Clock) -> None:
    journal.write("a", ["p"], [(0, 10)], [b""])
    keeper = Keeper(journal, packed, clock)
    keeper.changed(A, [(5, 20)], 1)
    with pytest.raises(InternalError, match="held twice"):
        keeper.flush()


class Slow:
    """A journal whose writes take the time of a disk of some speed."""

    def __init__(self, clock: Clock, s_per_byte: float) -> None:
        self.clock, self.s_per_byte = clock, s_per_byte
        self.last: dict[str, Sequence[tuple[int, int]]] = {}
        self.slowest = 0.0

    def blobs_of(self, _: str) -> list[Blob]:
        return []

    def write(self, key: str, _: Any, rows: Any, content: Any, __: Any) -> None:
        took = 0.002 + self.s_per_byte * sum(map(len, content))
        self.clock.now += took
        self.slowest = max(self.slowest, took)
        self.last[key] = rows


@settings(max_examples=examples(20))
@given(
    sizes=st.lists(st.integers(0, 3_000_000), min_size=1, max_size=3),
    speed=st.floats(1e7, 1e9),
    steps=st.lists(st.tuples(st.integers(0, 2), st.floats(0.001, 3)), min_size=20, max_size=150),
)
def test_writing_takes_one_percent_at_most(sizes: list[int], speed: float, steps: list[tuple[int, float]]) -> None:
    """And one write more, as the first ones are guesses. At the end all of it is there."""
    clock = Clock()
    slow: Any = Slow(clock, 1 / speed)
    contents = [bytes(size) for size in sizes]
    keeper = Keeper(slow, lambda number: [contents[number]], clock)
    newest: dict[str, Any] = {}
    for count, (which, work) in enumerate(steps):
        number = which % len(sizes)
        clock.now += work
        rows = [(0, count + 1)]
        keeper.changed((str(number), ("p",)), rows, number)
        newest[str(number)] = rows
        keeper.maybe_write(clock.now)
        assert keeper.spent_s <= 0.01 * (clock.now - 1000) + slow.slowest
    keeper.flush()
    assert {key: list(rows) for key, rows in slow.last.items()} == newest
