"""Identical calls, and those that cannot be compared, within one session."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import datetime as dt
import enum
import gc
import os
import threading
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import awkward as ak
import numpy as np
import pyarrow as pa
import pytest

import windrow as wr
from windrow.errors import CorruptFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

SCALE = 2


@pytest.fixture(autouse=True)
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note which bodies run."""
    (tmp_path / "log").mkdir()
    monkeypatch.setenv("RUNS", str(tmp_path / "log" / "runs"))


def ran(name: str) -> None:
    with Path(os.environ["RUNS"]).open("a") as log:
        log.write(name + "\n")


def runs() -> list[str]:
    log = Path(os.environ["RUNS"])
    return log.read_text().split() if log.exists() else []


# What reads the environment is opaque to fingerprints; with a version the name stands for the code.
reused = wr.task(reuse=True, version="1")


@reused
def double(x: Any, by: Any = 2) -> Any:
    ran("double")
    return x * by


@reused
def kind(x: Any, **more: Any) -> str:
    ran("kind")
    return type(x).__name__ + "".join(more)


@wr.task(reuse=True, version="1", outputs=2)
def both(x: int) -> tuple[int, int]:
    ran("both")
    return x, x + 1


@wr.task(reuse=True, version="1", outputs=3)
def three(x: int) -> Any:
    ran("three")
    yield x
    yield x + 1
    yield x + 2


@reused
def add(*numbers: Any) -> Any:
    ran("add")
    return sum(numbers)


@wr.task
def plain(x: int) -> int:
    ran("plain")
    return x


@reused
def failing(x: int) -> int:
    ran("failing")
    if runs().count("failing") == 1:
        raise ValueError(x)
    return x


@wr.task(reuse=True, version="1", inout="things")
def push(things: list[int], x: int) -> None:
    things.append(x)


@wr.task(reuse=True, version="1")
def stream(count: int) -> Any:
    yield from range(count)


@dataclasses.dataclass
class Cut:
    name: str
    low: float
    table: Any = None


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


class Pair(NamedTuple):
    a: int
    b: int


def session(tmp_path: Path, **options: Any) -> wr.Session:
    return wr.Session(**{"engine": "inline", "store": tmp_path / "store", **options})


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_identical_calls_are_one_task(tmp_path: Path, engine: str) -> None:
    with session(tmp_path, engine=engine) as opened:
        one = double(21)
        assert double(21) is one
        assert double(x=21) is one
        assert double(22) is not one
        pair = both(1)
        assert both(1) == pair
        assert opened.gather([one, *pair, *three(5), *three(5)]) == [42, 1, 2, 5, 6, 7, 5, 6, 7]
        stats = opened.reuse_stats
    assert sorted(runs()) == ["both", "double", "double", "three"]
    assert (stats.found_in_session, stats.missed) == (4, 4)


def test_equal_values_are_equal_however_they_are_given(tmp_path: Path) -> None:
    same: list[tuple[Any, Any]] = [
        ([1, {"a": 2.5}], [1, {"a": 2.5}]),
        ({3, 1, 2}, {2, 3, 1}),
        (frozenset({"x", "yy"}), frozenset({"yy", "x"})),
        (Cut("pt", 30.0), Cut("pt", 30.0)),
        (Colour.RED, Colour.RED),
        (dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        (Path("a/b"), Path("a") / "b"),
        (np.float32(2.5), np.float32(2.5)),
    ]
    with session(tmp_path):
        for one, other in same:
            assert kind(one) is kind(other), one


def test_different_values_are_different(tmp_path: Path) -> None:
    values: list[Any] = [
        1, 1.0, True, "1", b"1", None, 0.0, -0.0, [1], (1,), {1}, frozenset({1}), [[1]], [1, [2]], [1, 2], [[1], 2],
        {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": "1"}, ["ab", "c"], ["a", "bc"], Cut("pt", 30.0), Cut("pt", 30.5), Colour.RED,
        Colour.BLUE, "a/b", Path("a/b"), np.float32(1), np.float64(1), [], (), {}, set(), "", b"", 2**70, -(2**70),
        PurePosixPath("a/b"), np.int64(1), np.int32(1), np.True_, Name("a/b"), float("nan"), np.float64("nan"), Level.ONE,
        Pair(1, 2), (1, 2), OrderedDict(a=1, b=2), Counter(a=1, b=2), complex(0, 1), complex(-0.0, 1), range(1), slice(1), {1: 2},
        {1.0: 2}, {True: 2}, [True], [1.0], {"a": [1]}, {"a": (1,)}, dt.date(2026, 1, 2), dt.datetime(2026, 1, 2),
        dt.timedelta(1), frozenset({1.0}), {frozenset({1})}, {(1,)}, Decimal(1), Decimal("1.0"), Fraction(1),
    ]  # fmt: skip
    with session(tmp_path):
        futures = [kind(one) for one in values]
        assert len(set(futures)) == len(values)
        assert kind(1, a=1, b=2) is not kind(1, b=2, a=1)  # a body sees that order


def test_futures_are_known_by_what_makes_them(tmp_path: Path) -> None:
    with session(tmp_path) as opened:
        first, second = both(1)
        assert add(first, second) is add(*both(1))
        assert add(first, second) is not add(second, first)
        assert add(double(3)) is add(double(3))
        assert add(double(3)) is not add(double(4))
        opened.barrier()
    assert runs().count("double") == 2


def test_a_chain_from_a_task_that_is_not_reused_is_not(tmp_path: Path) -> None:
    with session(tmp_path) as opened:
        assert double(plain(1)) is not double(plain(1))
        stats = opened.reuse_stats
    assert stats.not_reusable == 2
    assert "'plain'" in stats.reasons["double"]
    assert "reuse=True" in stats.reasons["double"]


def test_the_session_can_ask_for_all(tmp_path: Path) -> None:
    with session(tmp_path, reuse=True):
        # Its body reads what cannot be looked into, so it says no more than that.
        assert plain(1) is not plain(1)
        assert square(3) is square(3)
        assert square(3) is not never(3)
        assert never(3) is not never(3)
    with session(tmp_path):
        assert square(3) is not square(3)


@wr.task
def square(x: int) -> int:
    return x * x


@wr.task(reuse=False)
def never(x: int) -> int:
    return x * x


def test_code_that_cannot_be_looked_into_needs_a_version(tmp_path: Path) -> None:
    with session(tmp_path, reuse=True) as opened:
        plain(1)
        assert "version=" in opened.reuse_stats.reasons["plain"]


def test_a_failed_call_is_made_again(tmp_path: Path) -> None:
    with session(tmp_path):
        with pytest.raises(ValueError, match="3"):
            failing(3).result()
        assert failing(3).result() == 3
        assert failing(3).result() == 3
    assert runs() == ["failing", "failing"]


def test_a_cancelled_call_is_made_again(tmp_path: Path) -> None:
    gate = threading.Event()

    @wr.task
    def hold() -> None:
        gate.wait(120)

    with session(tmp_path, engine="threads", workers=1) as opened:
        held = hold()
        one = double(5)
        assert one.cancel()
        other = double(5)
        assert other is not one
        gate.set()
        assert other.result() == 10
        held.result()
        opened.barrier()


def test_what_has_no_single_result_is_not_reused(tmp_path: Path) -> None:
    with session(tmp_path) as opened:
        things: list[int] = []
        push(things, 1)
        push(things, 1)
        assert opened.gather(things) == [1, 1]
        assert [one.result() for one in stream(3)] == [0, 1, 2] == [one.result() for one in stream(3)]
        stats = opened.reuse_stats
    assert stats.reasons["push"] == "not reusable: it changes what it is given"
    assert stats.reasons["stream"] == "not reusable: its outputs are a stream"


def test_a_changed_thing_is_another_argument(tmp_path: Path) -> None:
    """A list that a task changes is no plain list any more, although it looks the same here."""

    @wr.task(inout="things")
    def grow(things: list[int]) -> None:
        things.append(1)

    things = [1, 2]
    with session(tmp_path) as opened:
        before = add(*things)
        one = total(things)
        grow(things)
        other = total(things)
        assert (before.result(), one.result(), other.result()) == (3, 3, 4)
        assert "not reused" in opened.reuse_stats.reasons["total"]


@wr.task(reuse=True)
def total(values: list[int]) -> int:
    return sum(values)


def test_what_may_be_ignored_is_not_reused(tmp_path: Path) -> None:
    with session(tmp_path, on_failure="ignore") as opened:
        assert total([1]) is not total([1])
        assert "ignore" in opened.reuse_stats.reasons["total"]
    with session(tmp_path) as opened, opened.group(on_failure="ignore"):
        assert total([1]) is not total([1])


# -- arrays are never hashed unless that is asked for


ARRAYS: list[Any] = [
    np.arange(3),
    ak.Array([[1], [2, 3]]),
    pa.table({"x": [1, 2]}),
    pa.array([1, 2]),
    bytearray(b"abc"),
    memoryview(b"abc"),
    b"x" * 100_000,
    "x" * 100_000,
]


def hidden(array: Any) -> list[Any]:
    """Put an array where arguments can have one."""

    def closure(x: Any = 1) -> Any:
        return array, x

    return [array, [1, (2, {"a": array})], Cut("pt", 1.0, [array]), closure]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda one: type(one).__name__)
def test_calls_with_arrays_are_not_compared(tmp_path: Path, array: Any) -> None:
    @wr.task(reuse=True)
    def look(_: Any) -> int:
        return 1

    with session(tmp_path) as opened:
        for argument in hidden(array):
            one, other = look(argument), look(argument)
            assert one is not other
        stats = opened.reuse_stats
    assert stats.not_reusable == 2 * len(hidden(array))
    assert stats.found_in_session == stats.missed == 0
    assert "reuse='content'" in next(iter(stats.reasons.values()))


def test_content_is_compared_where_that_is_asked_for(tmp_path: Path) -> None:
    content: Any = "content"

    @wr.task(reuse=content)
    def mean(values: Any) -> float:
        return float(np.mean(values))

    with session(tmp_path):
        assert mean(np.arange(4)) is mean(np.arange(4))
        assert mean(np.arange(4)) is not mean(np.arange(5))
        assert mean(np.arange(4)).result() == 1.5
    with session(tmp_path, reuse="content"):
        assert square(np.arange(4)) is square(np.arange(4))


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reuse="):
        session(tmp_path, reuse="all")
    with pytest.raises(UsageError, match="files="):
        session(tmp_path, files="time")


# -- what was kept


def test_a_dropped_result_is_found_again(tmp_path: Path) -> None:
    with session(tmp_path) as opened:
        assert double(4).result() == 8
        gc.collect()
        assert double(4).result() == 8
        stats = opened.reuse_stats
    assert runs() == ["double"]
    assert (stats.found_in_store, stats.missed) == (1, 1)
    assert stats.bytes_written > 0
    assert stats.bytes_read > 0


def test_kept_results_behave_as_futures(tmp_path: Path) -> None:
    with session(tmp_path) as opened:
        opened.gather([double(1), *both(2)])
    with session(tmp_path, engine="threads") as opened:
        one, (left, right) = double(1), both(2)
        seen: list[Any] = []
        assert one.done()
        assert not one.cancel()
        assert not one.running()
        assert one.exception() is None
        one.add_done_callback(lambda future: seen.append(future.result()))
        assert seen == [2]
        done, waiting = concurrent.futures.wait([one, left, right])
        assert (done, waiting) == ({one, left, right}, set())
        assert set(concurrent.futures.as_completed([one, left])) == {one, left}
        assert opened.gather({"a": [one, left], "b": right}) == {"a": [2, 2], "b": 3}
        opened.barrier()
        assert add(one, left, plain(5)).result() == 9
        assert asyncio.run(_awaited(one)) == 2
        assert double(1) is one
        del one, left, right
        gc.collect()
        assert plain(1).result() == 1
    assert sorted(runs()) == ["add", "both", "double", "plain", "plain"]


async def _awaited(future: Any) -> Any:
    return await asyncio.wrap_future(future)


def test_a_large_result_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    @wr.task(reuse=True)
    def numbers(count: int) -> Any:
        return np.arange(count)

    with session(tmp_path) as opened:
        numbers(10**6).result()
        assert opened.reuse_stats.bytes_written > 8 * 10**6
    with session(tmp_path) as opened:
        found = numbers(10**6)
        assert found.done()
        assert opened.reuse_stats.bytes_read == 0
        values = found.result()
        assert opened.reuse_stats.bytes_read > 8 * 10**6
        assert np.array_equal(values, np.arange(10**6))
        values[0] = 5  # it belongs to whoever has it


def test_what_cannot_be_pickled_is_not_kept(tmp_path: Path) -> None:
    @wr.task(reuse=True)
    def make(x: int) -> Any:
        return lambda y: x + y

    with session(tmp_path) as opened:
        assert make(1).result()(0) == 1
        gc.collect()
        assert make(1).result()(0) == 1
        stats = opened.reuse_stats
    assert stats.found_in_store == 0
    assert stats.missed == 2
    assert "not kept" in next(iter(stats.reasons.values()))


def test_a_store_that_cannot_be_made_is_said_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with session(tmp_path) as opened:
        one = double(1)
        assert double(1) is one
        assert one.result() == 2
        assert "no results are kept" in opened.reuse_stats.notes[0]


def test_without_a_store_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("WINDROW_STORE")
    with session(tmp_path, store=False):
        one = double(1)
        assert double(1) is one
        assert one.result() == 2
    with session(tmp_path, store=None):
        assert plain(1).result() == 1
    assert list(place.iterdir()) == []
    with session(tmp_path, store=None):
        assert double(1).result() == 2
    assert [one.name for one in place.iterdir()] == [".windrow"]
    monkeypatch.setenv("WINDROW_STORE", str(tmp_path / "elsewhere"))
    with session(tmp_path, store=None):
        assert double(1).result() == 2
    assert runs().count("double") == 3
    assert (tmp_path / "elsewhere" / "results").is_dir()


@pytest.mark.parametrize("where", ["short", "long"])
def test_a_damaged_result(tmp_path: Path, where: str) -> None:
    """A short one is made again at once; a long one in the next run, and until then nobody gets a wrong value."""
    count = 10 if where == "short" else 10**5

    @wr.task(reuse=True, version="1")
    def numbers(count: int) -> Any:
        ran("numbers")
        return np.arange(count)

    @wr.task
    def mean(values: Any) -> float:
        return float(values.mean())

    async def awaited(count: int) -> float:
        return float((await asyncio.wait_for(asyncio.wrap_future(numbers(count)), 30)).mean())

    with session(tmp_path):
        numbers(count).result()
    consumers: list[Callable[[], float]] = [
        lambda: float(numbers(count).result().mean()),
        lambda: float(mean(numbers(count)).result()),
        lambda: asyncio.run(awaited(count)),
    ]
    for consumer in consumers:
        (kept,) = (tmp_path / "store").rglob("*.result")
        content = bytearray(kept.read_bytes())
        content[-5] ^= 1
        kept.write_bytes(content)
        Path(os.environ["RUNS"]).unlink(missing_ok=True)
        with session(tmp_path):
            if where == "long":
                with pytest.raises(CorruptFileError, match="run the program again"):
                    consumer()
        assert runs() == []
        with session(tmp_path):
            assert consumer() == (count - 1) / 2
        assert runs() == ["numbers"]


def test_globals_that_change_within_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @wr.task(reuse=True)
    def scaled(x: int) -> int:
        return x * SCALE

    with session(tmp_path):
        one = scaled(1)
        assert one.result() == 2
        monkeypatch.setitem(globals(), "SCALE", 3)
        assert scaled(1) is not one
        assert scaled(1).result() == 3
        monkeypatch.undo()
        assert scaled(1) is one


def test_order_of_keywords(tmp_path: Path) -> None:
    @wr.task(reuse=True)
    def named(a: int, *, b: int = 0, c: int = 0) -> int:
        return a + b + c

    with session(tmp_path):
        one = named(1, b=2, c=3)
        assert named(1, c=3, b=2) is one
        assert named(c=3, a=1, b=2) is one
        assert named(1, b=3, c=2) is not one


def test_what_a_generator_released_is_kept_as_it_was_then(tmp_path: Path) -> None:
    @wr.task(reuse=True, outputs=3)
    def growing() -> Any:
        numbers = np.zeros(1000, dtype=np.int64)
        for number in range(3):
            numbers += number
            yield numbers

    with session(tmp_path, engine="processes", workers=1) as opened:
        first = [int(one[0]) for one in opened.gather(list(growing()))]
    with session(tmp_path) as opened:
        again = [int(one[0]) for one in opened.gather(list(growing()))]
        assert opened.reuse_stats.found_in_store == 1
    assert first == again == [0, 1, 3]


def test_globals_that_change_after_a_result_was_found(tmp_path: Path) -> None:
    """A function that has not been sent to a process yet goes there as it is then, and is known as that."""
    names: dict[str, Any] = {"SCALE": 2, "__name__": "program"}
    exec("def scaled(x):\n    return x * SCALE\n", names)
    scaled: Any = wr.task(names["scaled"], reuse=True)
    with session(tmp_path):
        assert scaled(1).result() == 2
    with session(tmp_path, engine="processes", workers=1):
        assert scaled(1).result() == 2
        names["SCALE"] = 3
        assert scaled(2).result() == 6
    with session(tmp_path) as opened:
        assert scaled(2).result() == 6
        names["SCALE"] = 2
        assert scaled(2).result() == 4
        assert opened.reuse_stats.found_in_store == 1


def test_content_of_mutable_globals_counts(tmp_path: Path) -> None:
    table = {"a": 1}

    @wr.task(reuse=True)
    def looked_up(name: str) -> int:
        return table[name]

    with session(tmp_path):
        assert looked_up("a").result() == 1
        table["a"] = 2
        assert looked_up("a").result() == 2


# -- room


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_session_takes_no_more_than_its_budget(tmp_path: Path, engine: str) -> None:
    """Not even while it goes on: what open sessions may need stays, so more is not kept."""

    @wr.task(reuse=True)
    def numbers(count: int) -> Any:
        return np.arange(count)

    def there() -> int:
        return sum(one.stat().st_size for one in (tmp_path / "store").rglob("*.result"))

    options = {"engine": engine, "workers": 1, "store_budget": "300 kB"}
    with session(tmp_path, **options) as opened:
        opened.gather([numbers(10_000 + n) for n in range(10)])
        assert 200_000 < there() <= 300_000
        assert opened.reuse_stats.bytes_written == there()
        assert "store_budget=" in opened.reuse_stats.reasons[numbers.declared.name]
    # Two seconds pass as nothing: clocks of file systems are coarse.
    age(tmp_path, 10)
    with session(tmp_path, **options) as opened:
        opened.gather([numbers(10_009), numbers(5)])
    assert 200_000 < there() <= 300_000
    with session(tmp_path) as opened:
        opened.gather([numbers(10_009), numbers(5)])
        assert opened.reuse_stats.found_in_store == 2


def age(tmp_path: Path, seconds: float) -> None:
    for one in (tmp_path / "store").rglob("*.result"):
        past = one.stat().st_mtime - seconds
        os.utime(one, times=(past, past))


def test_room_is_made_while_a_session_goes_on(tmp_path: Path) -> None:
    """What earlier sessions left goes when much is written, and what this one has used does not."""

    @wr.task(reuse=True)
    def text(number: int) -> str:
        return f"{number}" * 1000

    with session(tmp_path) as opened:
        opened.gather([text(n) for n in range(1, 31)])
    age(tmp_path, 100)
    with session(tmp_path, store_budget="100 kB") as opened:
        used = text(1)
        opened.gather([text(n) for n in range(1000, 1300)])
        opened.gather([text(n) for n in range(1300, 1800)])
        assert used.result() == "1" * 1000
        names = [one.read_bytes() for one in (tmp_path / "store").rglob("*.result")]
        assert not any(b"2" * 1000 in one for one in names)
        assert any(b"1" * 1000 in one for one in names)
        assert sum(map(len, names)) <= 100_000


def test_a_smaller_budget_frees_what_is_above_it(tmp_path: Path) -> None:
    """Also where nothing is written; what the session has used is the last to go."""

    @wr.task(reuse=True)
    def text(number: int) -> str:
        return f"{number}" * 50_000

    def there() -> int:
        return sum(one.stat().st_size for one in (tmp_path / "store").rglob("*.result"))

    with session(tmp_path) as opened:
        opened.gather([text(n) for n in range(5)])
    age(tmp_path, 100)
    assert there() > 250_000
    with session(tmp_path, store_budget="120 kB") as opened:
        assert text(0).result() == "0" * 50_000
    assert 100_000 < there() <= 120_000
    with session(tmp_path) as opened:
        text(0).result()
        assert opened.reuse_stats.found_in_store == 1


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_kept_results_that_tasks_change(tmp_path: Path, engine: str) -> None:
    """A task that changes a kept value has one of its own; what is kept stays as it was."""

    @wr.task(reuse=True)
    def numbers(count: int) -> list[int]:
        return list(range(count))

    for _ in range(2):
        with session(tmp_path, engine=engine, workers=1) as opened:
            found = numbers(3)
            push(found, 7)
            push(found, 8)
            assert opened.gather(found) == [0, 1, 2, 7, 8]
    with session(tmp_path) as opened:
        assert numbers(3).result() == [0, 1, 2]
        assert opened.reuse_stats.found_in_store == 1
