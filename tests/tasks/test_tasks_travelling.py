"""What becomes of values that are in another process, of those that may be taken back, and of those that do not come."""

from __future__ import annotations

import functools
import gc
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import windrow as wr
from windrow.engines.processes.worker import ProcessWorker
from windrow.errors import DependencyError, EngineError, TaskLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

parallel = pytest.mark.parametrize("engine", ["threads", "processes"])


@pytest.fixture(scope="module")
def processes() -> Iterator[wr.Session]:
    session = wr.Session(engine="processes", workers=2)
    yield session
    session.close()


def until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


class Bomb:
    """Ends the process that pickles it."""

    def __reduce__(self) -> Any:
        os._exit(3)


class Odd:
    """Can be pickled, and not be made again."""

    def __reduce__(self) -> Any:
        return _raise, ("odd",)


def _raise(word: str) -> None:
    raise LookupError(word)


def count(diary: Path) -> int:
    """Say how often it was called."""
    with diary.open("a") as file:
        file.write("x")
    return len(diary.read_text())


def fails_once(diary: Path) -> Any:
    """Make a task that cannot be restarted and fails once, when it has released its first output."""

    @wr.task(outputs=2, on_failure="retry", retries=1, restartable=False)
    def two() -> Any:
        attempt = count(diary)
        yield attempt
        if attempt == 1:
            raise OSError("not yet")
        yield 0

    return two


# -- values in other processes


def test_a_value_that_ends_whoever_pickles_it_is_given_up(processes: wr.Session) -> None:
    others = [processes.submit(lambda size: [object] * size, size) for size in range(1, 9)]
    bomb = processes.submit(Bomb)
    more = [processes.submit(lambda size: [object] * size, size) for size in range(9, 17)]
    with pytest.raises(TaskLostError, match=r"cannot be sent to others.*exited with code 3.*2 times"):
        bomb.result(60)
    assert [len(one) for one in processes.gather(others + more)] == list(range(1, 17))


def test_a_value_that_others_can_use_now_does_not_wait_for_a_long_task(processes: wr.Session, tmp_path: Path) -> None:
    def wait(name: str) -> None:
        (tmp_path / f"{name} runs").touch()
        until((tmp_path / name).exists)

    try:
        first = processes.submit(wait, "first")
        until((tmp_path / "first runs").exists)
        large = processes.submit(np.arange, 100_000)  # at the other worker, ...
        second = processes.submit(wait, "second")  # ... which is busy from then on
        total = processes.submit(np.sum, large)
        until((tmp_path / "second runs").exists)
        (tmp_path / "first").touch()
        assert total.result(120) == 4_999_950_000
        assert not second.done()
    finally:
        (tmp_path / "first").touch()
        (tmp_path / "second").touch()
    processes.gather([first, second])


def test_a_large_value_comes_although_its_worker_is_at_a_long_task(processes: wr.Session, tmp_path: Path) -> None:
    def wait(name: str) -> None:
        (tmp_path / f"{name} runs").touch()
        until((tmp_path / "go").exists)

    large = [processes.submit(np.full, 100_000, number) for number in range(4)]
    until(lambda: all(one.done() for one in large))
    long = [processes.submit(wait, name) for name in "ab"]
    try:
        until((tmp_path / "a runs").exists)
        until((tmp_path / "b runs").exists)
        assert [one.result(120)[-1] for one in large] == [0, 1, 2, 3]
        assert not any(one.done() for one in long)
    finally:
        (tmp_path / "go").touch()
    processes.gather(long)


def test_a_function_that_cannot_be_unpickled_in_a_worker_says_so_whenever_it_is_called(processes: wr.Session) -> None:
    odd = Odd()

    def function() -> Any:
        return odd

    for _ in range(4):
        assert isinstance(processes.submit(function).exception(60), LookupError)


def test_arguments_that_cannot_be_unpickled_say_where(processes: wr.Session) -> None:
    error = processes.submit(len, [Odd()]).exception(60)
    assert isinstance(error, LookupError)
    assert any("unpickled in a worker's process" in note for note in error.__notes__)


def test_an_array_with_objects_in_it_is_no_small_value(processes: wr.Session) -> None:
    def make() -> Any:
        array = np.zeros(1, dtype=[("a", object)])
        array[0] = ((one for one in "ab"),)  # a generator cannot be pickled
        return array

    with pytest.raises(EngineError, match="cannot be pickled"):
        processes.submit(make).result(60)
    assert processes.submit(len, "ab").result(60) == 2


def kept_functions() -> int:
    """How many functions of calls this worker has."""
    return max(len(one._common) for one in gc.get_objects() if type(one) is ProcessWorker)


def test_functions_made_for_one_call_each_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.tasks.pack.MOST", 7)
    with wr.Session(engine="processes", workers=2) as session:
        twice = eval("lambda number: 2 * number")
        made = []
        for number in range(60):
            once = eval(f"lambda number: number + {number}")
            made += [session.submit(once, number), session.submit(twice, number)]
        assert session.gather(made) == [2 * number for number in range(60) for _ in "ab"]
        assert len(session._driver._packer._functions) <= 7  # type: ignore[union-attr]
        kept = [session.submit(kept_functions).result(60) for _ in range(4)]
        assert kept[-1] < 12


# -- what is there before its task has ended


@parallel
def test_the_only_output_of_a_task_can_be_declared_ready(engine: str, tmp_path: Path) -> None:
    @wr.task
    def early(size: int) -> None:
        wr.ready(np.arange(size))
        until((tmp_path / "go").exists)

    with wr.Session(engine=engine, workers=2) as session:
        try:
            futures = [early(3), early(100_000)]
            assert [int(one.result(120)[-1]) for one in futures] == [2, 99_999]
            assert session.open
        finally:
            (tmp_path / "go").touch()
        session.barrier(60)
        assert [len(one.result(120)) for one in futures] == [3, 100_000]


def test_a_cancelled_task_in_a_process_leaves_no_file(tmp_path: Path) -> None:
    @wr.task
    def write(path: wr.OutFile) -> None:
        (tmp_path / "runs").touch()
        until((tmp_path / "go").exists)
        Path(path).write_text("unwanted")

    @wr.task
    def nothing() -> int:
        return 1

    with wr.Session(engine="processes", workers=1) as session:
        with session.group("g") as group:
            future = write(str(tmp_path / "made"))
        until((tmp_path / "runs").exists)
        group.cancel()
        until(future.cancelled)  # so its worker was told
        (tmp_path / "go").touch()
        assert nothing().result(60) == 1
    assert not (tmp_path / "made").exists()


class Speechless(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise LookupError("no words")


@parallel
def test_arguments_may_contain_themselves_and_exceptions_be_speechless(engine: str) -> None:
    def fail() -> None:
        raise Speechless

    with wr.Session(engine=engine, workers=1) as session:
        ring: dict[str, Any] = {"some": [1, 2]}
        ring["ring"] = ring
        shared = [session.submit(len, "abc")]
        assert session.submit(lambda one: len(one["ring"]["ring"]), ring).result(60) == 2
        assert session.submit(lambda one, two: one + two, shared, shared).result(60) == [3, 3]
        assert session.gather(ring) is ring
        assert isinstance(session.submit(fail).exception(60), Speechless)
        assert session.submit(len, "ab").result(60) == 2


# -- outputs of tasks that cannot be restarted


@parallel
@pytest.mark.parametrize("restartable", [True, False])
def test_what_was_made_from_outputs_of_a_task_that_fails(engine: str, restartable: bool, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    @wr.task(outputs=2, restartable=restartable)
    def two() -> Any:
        yield 1
        if restartable:
            until(seen.exists)
        raise OSError("no second")

    @wr.task
    def plus(value: int) -> int:
        return value + 1

    @wr.task
    def see(value: int) -> int:
        seen.touch()
        return value + 1

    with wr.Session(engine=engine, workers=2):
        first, second = two()
        middle = plus(first)
        last = see(middle)
        assert isinstance(second.exception(60), OSError)
        if restartable:
            assert [one.result(60) for one in (first, middle, last)] == [1, 2, 3]
            return
        assert isinstance(first.exception(60), OSError)
        with pytest.raises(DependencyError, match=r"see' .*needs .*plus' .*needs .*two'.*no second"):
            last.result(60)
        assert isinstance(middle.exception(60), DependencyError)
        assert not seen.exists()


@parallel
def test_a_value_that_nobody_holds_is_not_given_out_either(engine: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    @wr.task(outputs=2, restartable=False)
    def two() -> Any:
        yield 1
        raise OSError("no second")

    @wr.task
    def see(value: int) -> int:
        seen.touch()
        return value

    with wr.Session(engine=engine, workers=2):
        first, second = two()
        last = see(first)
        del first
        assert isinstance(second.exception(60), OSError)
        assert isinstance(last.exception(60), DependencyError)
        assert not seen.exists()


@parallel
def test_readers_see_the_attempt_that_ended_and_no_other(engine: str, tmp_path: Path) -> None:
    two, seen = fails_once(tmp_path / "diary"), tmp_path / "seen"

    @wr.task(outputs="stream")
    def items(value: int) -> Any:
        with seen.open("a") as file:
            file.write(str(value))
        yield value
        yield value * 10

    @wr.task(outputs=2)
    def even(value: int) -> Any:
        yield value * 10
        if value % 2:
            raise ValueError(f"{value} is odd")
        yield value

    with wr.Session(engine=engine, workers=2):
        first, _ = two()
        early, late = even(first)
        assert [one.result(60) for one in items(first)] == [2, 20]
        assert [early.result(60), late.result(60)] == [20, 2]
        assert seen.read_text() == "2"


@parallel
def test_a_stream_that_is_shorter_the_second_time(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"

    @wr.task(outputs="stream", on_failure="retry", retries=1, restartable=False)
    def items() -> Any:
        attempt = count(diary)
        yield attempt
        if attempt == 1:
            yield 1000
            raise OSError("not yet")

    with wr.Session(engine=engine, workers=2):
        assert [one.result(60) for one in items()] == [2]


def test_an_item_that_cannot_be_sent_fails(processes: wr.Session) -> None:
    @wr.task(outputs="stream")
    def items() -> Any:
        yield 1
        yield (one for one in "ab")  # a generator cannot be pickled

    with processes.group("g"):
        got = list(processes.call(items.declared, (), {}))
    assert got[0].result(60) == 1
    with pytest.raises(EngineError, match="cannot be pickled"):
        got[1].result(60)


def test_objects_with_slots_of_classes_that_are_sent_come_back(processes: wr.Session) -> None:
    """As those of a script or notebook: they have to be the same there, without a dictionary."""

    @dataclass(slots=True)
    class Point:
        x: int
        path: list[Any] = field(default_factory=list)

    class Named(Point):
        __slots__ = ("__hidden", "name")

        def __init__(self, x: int) -> None:
            super().__init__(x)
            self.name, self.__hidden = "it", 7

        def hidden(self) -> int:
            return self.__hidden

    class Pair(NamedTuple):
        first: int
        second: Point

    def move(point: Point) -> Point:
        assert not hasattr(point, "__dict__")
        point.x += 1
        point.path.append(type(point)(0))
        return point

    def pair(point: Point) -> Pair:
        return Pair(1, point)

    submit = processes.submit
    assert submit(move, Point(1)).result() == Point(2, [Point(0)])
    named = submit(move, submit(move, Named(1))).result()
    assert type(named) is Named
    assert (named.x, named.name, named.hidden(), len(named.path)) == (3, "it", 7, 2)
    assert submit(pair, submit(move, Point(1))).result() == Pair(1, Point(2, [Point(0)]))


def test_classes_with_cached_properties_are_sent(processes: wr.Session) -> None:
    class Circle:
        def __init__(self, radius: int) -> None:
            self.radius = radius

        @functools.cached_property
        def square(self) -> list[int]:
            """Tell the area."""
            return [self.radius**2]

    def grown(circle: Circle) -> Any:
        assert circle.square is circle.square
        assert type(circle).square.__doc__ == "Tell the area."
        return Circle(circle.square[0])

    given = Circle(3)
    assert given.square == [9]
    given.square.append(1)
    made = processes.submit(grown, processes.submit(grown, given)).result()
    assert (type(made), made.square) == (Circle, [81**2])


# -- exceptions as they are


class Several(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")
        self.first, self.second = first, second


class Named(Exception):
    def __init__(self, *, tile: int) -> None:
        super().__init__("a tile")
        self.tile = tile


class Twice(ValueError):
    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class OfPath(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "gone", path)
        self.path = path


@pytest.mark.parametrize(
    "make",
    [
        lambda: Several(1, 2), lambda: Named(tile=3), lambda: Twice(5), lambda: OfPath("a/b"), lambda: KeyError("k"),
        lambda: SystemExit(4), lambda: StopIteration(7), lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
        lambda: SyntaxError("bad", ("f.py", 1, 2, "x =")), lambda: ExceptionGroup("g", [Twice(1)]),
        lambda: ImportError("no", name="a", path="b"), lambda: FileNotFoundError(2, "no", "f"),
    ],
)  # fmt: skip
def test_exceptions_arrive_as_they_are(processes: wr.Session, make: Callable[[], BaseException]) -> None:
    def fail() -> None:
        raise make()

    came, error = processes.submit(fail).exception(60), make()
    assert came is not None
    assert type(came) is type(error)
    assert (str(came), repr(came.args)) == (str(error), repr(error.args))
    state = {key: value for key, value in vars(came).items() if key != "__notes__"}
    assert state == vars(error)
    for name in ("code", "value", "filename", "reason", "lineno", "errno", "name", "path"):
        assert getattr(came, name, None) == getattr(error, name, None)
