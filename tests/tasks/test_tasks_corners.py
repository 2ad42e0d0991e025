"""Corners of sessions that users came to: callbacks, cancels, aliases, containers, and failures in odd places."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import threading
import time
from collections import OrderedDict, defaultdict, deque
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import DependencyError, TaskError, UsageError
from windrow.tasks.future import Future

engines = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
parallel = pytest.mark.parametrize("engine", ["threads", "processes"])


def until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@wr.task
def plus(value: int, more: int = 1) -> int:
    return value + more


@wr.task
def wait_for(gate: Path) -> int:
    until(gate.exists)
    return 1


@wr.task(outputs="stream")
def stream_after(gate: Path) -> Any:
    until(gate.exists)
    yield 1


@wr.task
def large() -> Any:
    return np.ones(1_000_000)


# -- callbacks


@parallel
def test_callbacks_of_what_is_cancelled_may_wait_for_others(engine: str, tmp_path: Path) -> None:
    """They are called where nothing is held that others need to go on."""
    found: list[Any] = []
    with wr.Session(engine=engine, workers=1):
        first, second, third = wait_for(tmp_path / "gate"), plus(1), plus(2)
        second.add_done_callback(lambda _: found.append(third.result(60)))
        threading.Timer(0.05, (tmp_path / "gate").touch).start()
        assert second.cancel()
        assert found == [3]
        assert first.result(60) == 1


@parallel
@pytest.mark.parametrize("how", ["result", "exception", "gather", "barrier", "stream", "group", "brought"])
def test_whoever_would_wait_for_himself_is_told(engine: str, how: str, tmp_path: Path) -> None:
    if how == "brought" and engine == "threads":
        pytest.skip("all values are here")
    found: list[Any] = []
    gates = tmp_path / "first", tmp_path / "second"
    with wr.Session(engine=engine, workers=3) as session:
        first, stream, elsewhere = wait_for(gates[0]), stream_after(gates[1]), large()
        with session.group() as group:
            second = wait_for(gates[1])
        until(elsewhere.done)

        def ask(_: Any) -> None:
            ways = {
                "result": second.result,
                "exception": second.exception,
                "gather": lambda: session.gather([second]),
                "barrier": session.barrier,
                "stream": lambda: next(stream),
                "group": group.barrier,
                "brought": elsewhere.result,
            }
            try:
                found.append(ways[how]())
            except UsageError as error:
                found.append(error)

        first.add_done_callback(ask)
        gates[0].touch()
        until(lambda: found)
        gates[1].touch()
        assert session.gather([first, second, stream]) == [1, 1, [1]]
        assert elsewhere.result().sum() == 1_000_000
    assert "would wait for itself" in str(found[0])


@engines
def test_tasks_called_in_callbacks_just_run_whenever_that_is(engine: str) -> None:
    found: list[Any] = []
    with wr.Session(engine=engine, workers=1) as session:
        done = plus(1)
        assert done.result(60) == 2
        done.add_done_callback(lambda one: found.append(plus(one.result())))
        plus(2).add_done_callback(lambda one: found.append(plus(one.result())))
        session.barrier(60)
        until(lambda: len(found) == 2)
        assert isinstance(plus(5), wr.Future)  # what is called here goes to the session again
    assert found == [3, 4]


# -- cancelling


def touch(path: str) -> None:
    Path(path).touch()


def test_in_processes_a_task_is_cancelled_or_runs_and_never_both(tmp_path: Path) -> None:
    with wr.Session(engine="processes", workers=2) as session:
        for turn in range(25):
            places = [tmp_path / f"{turn}-{number}" for number in range(20)]
            futures = [session.submit(touch, str(place)) for place in places]
            cancelled = [one.cancel() for one in reversed(futures)][::-1]
            session.barrier(60)
            assert [place.exists() for place in places] == [not one for one in cancelled]


@engines
def test_all_outputs_of_a_task_are_cancelled_at_once(engine: str, tmp_path: Path) -> None:
    @wr.task(outputs=2)
    def two(first: int) -> tuple[int, int]:
        return first, 2

    with wr.Session(engine=engine, workers=1):
        blocks = wait_for(tmp_path / "gate")
        first, second = two(blocks)
        assert first.cancel()
        assert second.cancelled()
        assert second.cancel()
        (tmp_path / "gate").touch()


@pytest.mark.slow
@parallel
def test_many_cancels_and_withdrawals_do_not_break_a_session(engine: str) -> None:
    """Inputs are taken back, and tasks forgotten, just when workers begin with what reads them."""

    @wr.task(outputs=2, restartable=False, on_failure="retry", retries=2)
    def again(box: list[int], place: str) -> Any:
        yield 0
        with Path(place).open("a") as file:
            file.write("x")
        if len(Path(place).read_text()) < 3:
            raise ValueError("again")
        yield 1

    @wr.task
    def read(value: int) -> int:
        return value

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        import tempfile

        with tempfile.TemporaryDirectory() as place, wr.Session(engine=engine, workers=4) as session:
            for turn in range(40):
                futures = []
                for number in range(5):
                    first, _ = again([], f"{place}/{turn}-{number}")
                    futures += [read(first) for _ in range(4)]
                assert session.gather(futures) == [0] * 20
    finally:
        sys.setswitchinterval(before)


# -- failures in odd places


@parallel
def test_tasks_of_a_gather_that_is_interrupted_are_not_begun(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook the session is still open then."""
    home, waits, gate, begun = os.getpid(), tmp_path / "waits", tmp_path / "gate", tmp_path / "begun"
    result = Future.result

    def wait(future: Any) -> Any:
        waits.touch()
        return result(future)

    def interrupt() -> None:
        until(waits.exists)
        os.kill(home, signal.SIGINT)
        until(gate.exists)

    with wr.Session(engine=engine, workers=1) as session:
        first = session.submit(interrupt)
        rest = [session.submit(begun.touch) for _ in range(5)]
        monkeypatch.setattr(Future, "result", wait)
        with pytest.raises(KeyboardInterrupt):
            session.gather([rest, first])
        gate.touch()
        assert session.submit(abs, -3).result() == 3
        assert [one.cancelled() for one in rest] == [True] * 5
    assert not begun.exists()


def test_functions_of_numpy_do_not_take_futures_for_values() -> None:
    with wr.Session(engine="threads", workers=1) as session:
        made: list[Any] = [session.submit(np.ones, 3) for _ in range(2)]
        with pytest.raises(UsageError, match=r"numpy\.stack was given a future, which is not its value"):
            np.stack(made)
        kept = np.array(made)
        assert kept.dtype == object
        assert np.stack(session.gather(list(kept))).shape == (2, 3)


def test_the_line_of_a_cell_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source of a notebook's cell is known at home alone."""
    cell = "def divides(x):\n    return 1 / x\n"
    monkeypatch.setitem(linecache.cache, "<cell 7>", (len(cell), None, cell.splitlines(keepends=True), "<cell 7>"))
    names: dict[str, Any] = {}
    exec(compile(cell, "<cell 7>", "exec"), names)
    with wr.Session(engine="processes", workers=1) as session, pytest.raises(ZeroDivisionError) as info:
        session.submit(names["divides"], 0).result()
    said = "".join(info.value.__notes__)
    assert 'File "<cell 7>", line 2, in divides\n    return 1 / x\n' in said


@engines
def test_an_interrupt_that_a_body_raises_is_its_failure(engine: str) -> None:
    @wr.task
    def odd(number: int) -> int:
        if number == 1:
            raise KeyboardInterrupt("mine")
        return number

    with wr.Session(engine=engine, workers=1):
        futures = [odd(number) for number in range(3)]
        assert [futures[0].result(60), futures[2].result(60)] == [0, 2]
        assert "mine" in str(futures[1].exception(60))


@parallel
def test_what_a_stream_had_released_before_it_failed_stays(engine: str) -> None:
    @wr.task(outputs=2, restartable=False)
    def source() -> Any:
        yield 0
        yield 1

    @wr.task(outputs="stream")
    def parts(_: int) -> Any:
        yield "a"
        yield "b"
        raise KeyError("after two")

    with wr.Session(engine=engine, workers=3) as session:
        first, _ = source()
        stream = parts(first)
        items = [next(stream), next(stream)]
        joined = session.submit("".join, items)
        assert [one.result(60) for one in items] == ["a", "b"]
        assert joined.result(60) == "ab"
        with pytest.raises(KeyError):
            next(stream)


def test_failures_that_nobody_looks_at_are_mentioned(capfd: pytest.CaptureFixture[str]) -> None:
    session = wr.Session(engine="threads", workers=1)
    session.submit(int, "three")
    session.close()
    assert "nobody has looked at ValueError: invalid literal" in capfd.readouterr().err
    session = wr.Session(engine="threads", workers=1)
    assert isinstance(session.submit(int, "three").exception(60), ValueError)
    session.close()
    with wr.Executor(1, engine="threads") as executor:
        executor.submit(int, "three")
    assert capfd.readouterr().err == ""


def test_retries_are_tries() -> None:
    tries: list[int] = []

    @wr.task(retries=2)
    def third() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    with wr.Session(engine="threads", workers=1):
        assert third().result(60) == 3
        tries.clear()
        assert third.options(priority=1)().result(60) == 3
    assert plus.options(priority=1).declared.on_failure is None


def test_why_a_task_was_cancelled() -> None:
    session = wr.Session(engine="threads", workers=1)
    begun, go = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go.wait(60)

    session.submit(wait)
    waits = session.submit(abs, -1)
    assert begun.wait(60)
    threading.Timer(0.05, go.set).start()
    session.close(cancel=True)
    with pytest.raises(Exception, match="its session was closed"):
        waits.result(60)


# -- what is one thing, and what things are in


@wr.task(inout=("x", "y"))
def change_both(x: list[Any], y: list[Any]) -> None:
    x.append(1)
    y.append(2)


@wr.task(inout="x")
def change_and_see(x: list[Any], y: Any) -> Any:
    x.append(7)
    return list(y[0]) if isinstance(y, tuple) else list(y)


def aliased(gather: Any) -> list[Any]:
    one: list[Any] = []
    change_both(one, one)
    other: list[Any] = []
    seen = change_and_see(other, other)
    third: list[Any] = []
    deep = change_and_see(third, (third, 0))
    inner: list[Any] = [0]
    outer = [inner]
    change_both(outer, inner)
    return [gather(each) for each in (one, other, seen, third, deep, outer, inner)]


@engines
def test_what_is_one_thing_to_the_caller_is_one_thing_to_the_body(engine: str) -> None:
    plainly = aliased(lambda each: each)
    assert plainly[:3] == [[1, 2], [7], [7]]
    with wr.Session(engine=engine, workers=2) as session:
        assert aliased(session.gather) == plainly


class Words(list[Any]):
    """A list of a user's own."""

    name = "words"


@wr.task
def total(values: Any) -> int:
    return sum(values.values() if isinstance(values, dict) else values)


@engines
def test_futures_are_found_in_containers_of_all_kinds(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        ordered = OrderedDict(a=plus(1), b=plus(2))
        default = defaultdict(int, a=plus(1))
        listed, queue = Words([plus(1), 5]), deque([plus(1), 5], maxlen=3)
        assert session.gather(ordered) == OrderedDict(a=2, b=3)
        assert type(session.gather(ordered)) is OrderedDict
        assert session.gather(default)["new"] == 0
        assert session.gather(listed) == [2, 5]
        assert type(session.gather(listed)) is Words
        assert session.gather(queue) == deque([2, 5], maxlen=3)
        sums = [total(one).result(60) for one in (ordered, default, listed, queue)]
        assert sums == [5, 2, 7, 7]
        assert isinstance(ordered["a"], wr.Future)  # as it was


def test_dependents_of_what_raised_an_interrupt_are_told() -> None:
    @wr.task
    def odd() -> int:
        raise SystemExit(3)

    with wr.Session(engine="inline"):
        with pytest.raises(DependencyError):
            plus(odd()).result(60)
        with pytest.raises((TaskError, SystemExit)):
            odd().result(60)


# -- outputs of tasks that fail or are called off


@wr.task(outputs=2)
def first_alone(how: str = "first_alone failed") -> Any:
    yield 1
    raise ValueError(how)


@wr.task
def refuse(*values: int) -> int:
    raise KeyError("its own fault")


@engines
def test_who_fails_with_what_a_failed_task_had_released_is_to_blame_himself(engine: str) -> None:
    session = wr.Session(engine=engine, workers=2)
    first, second = session.submit(first_alone)
    assert isinstance(second.exception(60), ValueError)
    assert isinstance(session.submit(refuse, first).exception(60), KeyError)
    # Of two that failed, that one is named whose output was missing.
    _, missing = session.submit(first_alone, "another")
    error = session.submit(plus, first, missing).exception(60)
    assert isinstance(error, DependencyError)
    assert "another" in str(error)
    session.close()
    with pytest.raises(KeyError, match="its own fault"), wr.Session(engine=engine, workers=2):  # noqa: PT012
        first, second = first_alone()
        second.exception(60)
        refuse(first)


@engines
def test_a_value_that_was_released_is_that_of_the_first_attempt(engine: str, tmp_path: Path) -> None:
    """Whoever asks sees what other tasks are given, also where the next attempt makes another one."""

    @wr.task(outputs=2, retries=2)
    def tried(diary: Path) -> Any:
        with diary.open("a") as file:
            file.write("x")
        count = len(diary.read_text())
        yield count
        if count < 3:
            raise OSError("not yet")
        yield count

    with wr.Session(engine=engine, workers=2) as session:
        for number in range(5):
            first, second = tried(tmp_path / str(number))
            assert session.gather([plus(first, 0), second, first]) == [1, 3, 1]


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_items_of_a_stream_that_is_called_off_meanwhile_end(engine: str) -> None:
    """The wish arrives together with what was made after it: nobody is given an item that the run does not know of."""
    with wr.Session(engine=engine, workers=2) as session:
        group = session.group("off")

        @wr.task(outputs="stream")
        def items() -> Any:
            yield 0
            group.cancel()
            yield 1

        with group:
            stream = items()
        read = []
        with pytest.raises(CancelledError):  # noqa: PT012 - when it ends
            for item in stream:
                read += [item, plus(item, 0)]
        assert [one.result(120) for one in read] == [0, 0, 1, 1][: len(read)]


@wr.task(outputs="stream")
def countdown(count: int) -> Any:
    while count:
        count -= 1
        yield count


@wr.task(inout="book")
def note(book: list[int], value: int) -> None:
    book += [value] * 100_000  # too much to be sent home with the news


@wr.task
def where() -> int:
    return os.getpid()


def test_a_stream_is_made_again_for_what_was_lost_with_a_worker() -> None:
    """Its end is known, and that is not all that it made."""
    with wr.Session(engine="processes", workers=1) as session:
        book: list[int] = []
        stream = countdown(3)
        for item in stream:
            note(book, item)
        del item  # nobody has the items any more, nor what was made with them but the worker
        session.barrier(60)
        os.kill(where().result(60), signal.SIGKILL)
        assert session.latest(book).result(120)[::100_000] == [2, 1, 0]
        assert next(stream, None) is None
