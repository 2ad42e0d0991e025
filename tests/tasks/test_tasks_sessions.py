"""Sessions, tasks and futures as their users meet them, on every engine."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import DependencyError, TaskError, TaskOutputError, UsageError
from windrow.tasks.devices import Devices

ENGINES = ("inline", "threads", "processes")
engines = pytest.mark.parametrize("engine", ENGINES)


@wr.task
def add(a: Any, b: Any = 1) -> Any:
    return a + b


@wr.task
def total(values: Any) -> Any:
    return sum(values.values()) if isinstance(values, dict) else sum(values)


@wr.task(outputs=2)
def halves(values: list[int]) -> tuple[list[int], list[int]]:
    middle = len(values) // 2
    return values[:middle], values[middle:]


@wr.task(outputs=3)
def three(first: int) -> Any:
    yield first
    yield first + 1
    yield first + 2


@wr.task
def numbers(count: int) -> Any:
    yield from range(count)


@wr.task
def broken(message: str) -> Any:
    raise ValueError(message)


@wr.task(inout="things")
def push(things: list[int], value: int) -> None:
    things.append(value)


@wr.task
def is_none(value: Any) -> bool:
    return value is None


@wr.task
def large(size: int) -> Any:
    return np.arange(size, dtype=np.float64)


@wr.task
def mean(values: Any) -> float:
    return float(values.mean())


def test_outside_a_session_a_task_is_its_function() -> None:
    assert add(1, b=2) == 3
    assert halves([1, 2, 3]) == ([1], [2, 3])
    assert three(5) == (5, 6, 7)
    assert list(numbers(3)) == [0, 1, 2]
    things: list[int] = []
    push(things, 3)
    assert things == [3]
    with pytest.raises(ValueError, match="no"):
        broken("no")


@engines
def test_futures_are_found_in_containers(engine: str) -> None:
    with wr.Session(engine=engine) as session:
        one, two = add(0), add(1)
        assert total([one, two, 3]).result(120) == 6
        assert total({"a": one, "b": two}).result(120) == 3
        assert total((one, add(one, two))).result(120) == 4
        assert session.gather({"x": [one, (two, 7)]}) == {"x": [1, (2, 7)]}


@engines
def test_several_outputs(engine: str) -> None:
    with wr.Session(engine=engine) as session:
        left, right = halves([1, 2, 3, 4])
        assert session.gather([total(left), total(right)]) == [3, 7]
        assert session.gather(list(three(1))) == [1, 2, 3]
        assert [one.result(120) for one in numbers(4)] == [0, 1, 2, 3]
        assert session.gather(numbers(0)) == []


@engines
def test_what_a_body_changes_is_renamed(engine: str) -> None:
    things: list[int] = []
    with wr.Session(engine=engine) as session:
        push(things, 1)
        before = total(things)
        push(things, 2)
        push(things=things, value=3)
        after = total(things)
        assert session.gather([before, after, things]) == [1, 6, [1, 2, 3]]
    assert things == []


@engines
def test_a_failure_names_the_way_to_it(engine: str) -> None:
    with wr.Session(engine=engine):
        bad = broken("spilled")
        later = add(add(bad))
        with pytest.raises(ValueError, match="spilled") as own:
            bad.result(120)
        assert any("raised in task 'broken'" in one for one in own.value.__notes__)
        assert "called as broken('spilled')" in own.value.__notes__
        with pytest.raises(DependencyError, match=r"'add' .* needs 'broken' .* ValueError: spilled") as info:
            later.result(120)
        assert isinstance(info.value.__cause__, ValueError)
        assert add(1).result(120) == 2


@engines
def test_a_failure_nobody_looked_at_is_raised_in_the_end(engine: str) -> None:
    with pytest.raises(ValueError, match="unseen"), wr.Session(engine=engine):
        broken("unseen")
    with wr.Session(engine=engine):
        assert isinstance(broken("seen").exception(120), ValueError)


@engines
def test_what_may_fail_gives_none(engine: str) -> None:
    may_fail = broken.options(on_failure="ignore")
    with wr.Session(engine=engine) as session:
        assert may_fail("x").result(120) is None
        assert session.gather(is_none(may_fail("y")))


@engines
def test_what_may_not_fail_stops_the_session(engine: str) -> None:
    refused: list[BaseException] = []

    def program() -> None:
        with wr.Session(engine=engine) as session:
            broken.options(on_failure="stop")("enough")
            session.barrier(10)
            try:
                add(1)
            except TaskError as error:
                refused.append(error)

    with pytest.raises(ValueError, match="enough"):
        program()
    assert "stopped" in str(refused[0])


def test_a_task_is_tried_again() -> None:
    tries: list[int] = []

    @wr.task(on_failure="retry", retries=2)
    def third_time() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    with wr.Session(engine="threads"):
        assert third_time().result(120) == 3


@engines
def test_wrong_outputs_are_told(engine: str) -> None:
    @wr.task(outputs=2)
    def one() -> Any:
        return 1

    @wr.task(outputs=2)
    def yields_one() -> Any:
        yield 1

    with wr.Session(engine=engine):
        with pytest.raises(TaskOutputError, match="returns a tuple of 2 outputs"):
            one()[0].result(120)
        with pytest.raises(TaskOutputError, match="yielded 1 outputs, but it declares outputs=2"):
            yields_one()[1].result(120)


@engines
def test_large_values_stay_where_they_are_until_they_are_wanted(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        big = large(300_000)
        means = [mean(big) for _ in range(6)]
        assert session.gather(means) == [149_999.5] * 6
        np.testing.assert_array_equal(big.result(120), np.arange(300_000.0))
        assert mean(big.result()).result(120) == 149_999.5


@engines
def test_futures_are_those_of_the_standard_library(engine: str) -> None:
    called: list[Any] = []
    with wr.Session(engine=engine):
        futures = [add(number) for number in range(5)]
        done, rest = concurrent.futures.wait(futures, timeout=10)
        assert len(done) == 5
        assert not rest
        assert sorted(f.result() for f in concurrent.futures.as_completed(futures)) == [1, 2, 3, 4, 5]
        futures[0].add_done_callback(lambda one: called.append(one.result()))
        big = large(100_000)
        big.add_done_callback(lambda one: called.append(len(one.result())))
        big.result(120)
    assert sorted(called) == [1, 100_000]


def test_resources_bound_what_runs_at_a_time() -> None:
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()

    @wr.task(resources={"licence": 1})
    def licensed() -> None:
        with lock:
            running.append(1)
            most.append(len(running))
        time.sleep(0.01)
        with lock:
            running.pop()

    with wr.Session(engine="threads", workers=4, resources={"licence": 2}) as session:
        session.gather([licensed() for _ in range(12)])
    assert max(most) == 2


def test_what_nobody_has_is_told() -> None:
    with wr.Session(engine="threads", workers=1), pytest.raises(UsageError, match="gpu"):
        add.options(resources={"gpu": 1})(1)


def test_higher_priorities_run_first() -> None:
    order: list[int] = []
    go = threading.Event()

    @wr.task
    def wait() -> None:
        go.wait(120)

    @wr.task
    def note(number: int) -> None:
        order.append(number)

    with wr.Session(engine="threads", workers=1) as session:
        wait()
        for number in (1, 3, 2):
            note.options(priority=number)(number)
        go.set()
        session.barrier(10)
    assert order == [3, 2, 1]


def test_groups_inside_one_are_cancelled_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many of them, the open tasks are not looked through for each."""
    asked: list[Any] = []
    going = threading.Event()
    with wr.Session(engine="threads", workers=1) as session:
        first = session.submit(going.wait, 60)
        with session.group() as outer:
            inner = [session.group() for _ in range(5)]
            futures = []
            for one in inner:
                with one:
                    futures.append(session.submit(abs, -1))
        tell = session._driver.tell
        with monkeypatch.context() as patch:
            patch.setattr(session._driver, "tell", asked.append)
            outer.cancel()
        assert [one.groups for one in asked] == [{outer.number, *(one.number for one in inner)}]
        tell(asked[0])
        going.set()
        assert first.result(60)
        session.barrier(60)
        assert all(one.cancelled() for one in futures)


def test_groups_are_cancelled_together() -> None:
    go = threading.Event()

    @wr.task
    def wait() -> int:
        go.wait(120)
        return 1

    with wr.Session(engine="threads", workers=1) as session:
        first = wait()
        with session.group("rest") as group:
            others = [add(first) for _ in range(5)]
        group.cancel()
        group.barrier(10)
        go.set()
        assert first.result(120) == 1
        assert all(one.cancelled() for one in others)


def test_a_task_that_waits_can_be_cancelled() -> None:
    go = threading.Event()

    @wr.task
    def wait() -> int:
        go.wait(120)
        return 1

    with wr.Session(engine="threads", workers=1):
        first = wait()
        second = add(first)
        assert second.cancel()
        go.set()
        assert first.result(120) == 1
        with pytest.raises(concurrent.futures.CancelledError):
            second.result(120)


def test_a_deadline_ends_a_task_that_waits() -> None:
    go = threading.Event()

    @wr.task
    def wait() -> int:
        go.wait(120)
        return 1

    with wr.Session(engine="threads", workers=1):
        wait()
        late = add.options(deadline=0.05)(1)
        error = late.exception(120)
        go.set()
    assert error is not None
    assert "deadline" in str(error)


def test_arguments_are_those_at_the_time_of_the_call() -> None:
    values = [1, 2]
    with wr.Session(engine="processes", workers=1):
        first = total(values)
        values.append(100)
        assert first.result(120) == 3


def test_what_cannot_be_pickled_is_told_where_it_is_called() -> None:
    with wr.Session(engine="processes", workers=1):
        with pytest.raises(UsageError, match="'add' cannot be sent to another process"):
            add(threading.Lock())

        @wr.task
        def lock() -> Any:
            return threading.Lock()

        with pytest.raises(Exception, match="cannot be pickled"):
            lock().result(120)
        hidden = type("Hidden", (), {})()
        hidden.future = add(1)
        with pytest.raises(UsageError, match="inside other objects it is not found"):
            add(hidden)


def test_a_task_that_ends_its_worker_fails_and_others_go_on() -> None:
    @wr.task
    def crash() -> None:
        os._exit(3)

    with wr.Session(engine="processes", workers=2) as session:
        bad = crash()
        good = [add(number) for number in range(20)]
        assert session.gather(good) == list(range(1, 21))
        assert "exited with code 3" in str(bad.exception(60))


class Large:
    """An argument of which somebody would like to see the end."""


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_arguments_are_let_go_when_their_task_is_done(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        argument = Large()
        seen = weakref.ref(argument)
        future = session.submit(lambda _: 1, argument)
        del argument
        assert future.result() == 1
        session.submit(int).result()  # the worker is at something else
        session.barrier()
        gc.collect()
        assert seen() is None
        assert session.submit(lambda value: value + 1, future).result() == 2


def test_a_closed_session_says_so() -> None:
    with wr.Session(engine="threads") as session:
        pass
    with pytest.raises(UsageError, match="closed"):
        session.submit(len, [1])


def test_an_exception_cancels_what_has_not_run() -> None:
    ran: list[int] = []

    @wr.task
    def slow(number: int) -> None:
        time.sleep(0.02)
        ran.append(number)

    def program() -> None:
        with wr.Session(engine="threads", workers=1):
            for number in range(200):
                slow(number)
            raise KeyError

    with pytest.raises(KeyError):
        program()
    assert len(ran) < 200


@engines
def test_the_executor_is_one(engine: str) -> None:
    with wr.Executor(2, engine=engine) as executor:
        assert list(executor.map(pow, [2, 3], [5, 2])) == [32, 9]
        assert executor.submit(np.arange, 50_000).result(120).sum() == 50_000 * 49_999 // 2
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 3)


def test_what_a_task_needs_is_found_out_once_for_all_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    fit = Devices.fit

    def counted(devices: Devices, declared: Any, offers: Any) -> float:
        looked.append(declared.name)
        return fit(devices, declared, offers)

    monkeypatch.setattr(Devices, "fit", counted)
    with wr.Session(engine="inline", store=False) as session:
        assert session.gather([session.submit(add, n) for n in range(5)]) == [1, 2, 3, 4, 5]
    assert len(looked) == 1
