"""What futures, groups, failures and sessions mean, on every engine."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import DependencyError, TaskError, UsageError
from windrow.tasks.declare import current

engines = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
parallel = pytest.mark.parametrize("engine", ["threads", "processes"])
levels = pytest.mark.parametrize("level", ["task", "group", "session"])


Shared = Callable[[str], AbstractContextManager[wr.Session]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Give a session that tests share, as the one that calls go to: starting processes takes long."""
    made: dict[str, wr.Session] = {}

    @contextmanager
    def of(engine: str) -> Iterator[wr.Session]:
        if engine not in made:
            made[engine] = wr.Session(engine=engine, workers=2)
        token = current.set(made[engine])
        try:
            yield made[engine]
        finally:
            current.reset(token)

    yield of
    for one in made.values():
        one.close()


def until(true: Any) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@wr.task
def add(a: Any, b: Any = 1) -> Any:
    return a + b


@wr.task
def broken(word: str = "broken") -> Any:
    raise ValueError(word)  # the line at fault


@wr.task
def tries(diary: str, good: int) -> int:
    """Fail until it was tried often enough; return how often."""
    with Path(diary).open("a") as file:
        file.write("x")
    done = len(Path(diary).read_text())
    if done < good:
        raise OSError(f"try {done}")
    return done


def asked(level: str, rule: str, engine: str) -> tuple[wr.Session, Any, Any]:
    """Give a session, the context of calls and the options of tasks that ask for a rule at one level."""
    if level == "session":
        session = wr.Session(engine=engine, workers=1, on_failure=rule)  # type: ignore[arg-type]
    else:
        session = wr.Session(engine=engine, workers=1)
    # What is said nearer counts.
    others = {"task": "stop" if rule != "stop" else "ignore", "group": rule, "session": None}
    group = session.group("g", on_failure=others[level])  # type: ignore[arg-type]
    return session, group, {"on_failure": rule} if level == "task" else {}


# -- on_failure


@engines
@levels
def test_cancel_successors(engine: str, level: str) -> None:
    session, group, options = asked(level, "cancel_successors", engine)
    with session, group:
        bad = broken.options(**options)("spilled")
        after = add.options(**options)(bad)
        assert isinstance(after.exception(120), DependencyError)
        assert add(1).result(120) == 2


@engines
@levels
def test_ignore(engine: str, level: str) -> None:
    session, group, options = asked(level, "ignore", engine)
    with session, group:
        assert broken.options(**options)().result(120) is None
        assert session.gather([add(1), broken.options(**options)()]) == [2, None]


@engines
@levels
def test_stop(engine: str, level: str) -> None:
    session, group, options = asked(level, "stop", engine)

    def program() -> None:
        with session, group:
            broken.options(**options)("enough")
            session.barrier(30)
            with pytest.raises(TaskError, match="stopped"):
                add(1)

    with pytest.raises(ValueError, match="enough"):
        program()


@engines
@levels
def test_retry(engine: str, level: str, tmp_path: Path) -> None:
    session, group, options = asked(level, "retry", engine)
    with session, group:
        assert tries.options(**options)(str(tmp_path / "a"), 3).result(120) == 3
        late = tries.options(**options, retries=1)(str(tmp_path / "b"), 3)
        with pytest.raises(OSError, match="try 2"):
            late.result(120)
        after = add.options(**options)(late)
        assert isinstance(after.exception(120), DependencyError)


# -- the way to the root


@engines
def test_a_failure_tells_the_whole_way_and_the_line_at_fault(engine: str) -> None:
    with wr.Session(engine=engine, workers=1):
        first = broken("spilled")
        last = add([add(add(first))])
        with pytest.raises(DependencyError) as info:
            last.result(120)
        message = str(info.value)
        assert message == (
            "task 'add' (4) did not run: it needs 'add' (3), which needs 'add' (2), which needs 'broken' (1), "
            "which failed: ValueError: spilled"
        )
        assert isinstance(info.value.__cause__, ValueError)
        story = "".join(traceback.format_exception(info.value))
        assert "raise ValueError(word)  # the line at fault" in story
        assert "raised in task 'broken' (1)" in story


@parallel
def test_what_needs_a_cancelled_task_says_so(engine: str, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @wr.task
    def wait() -> None:
        until(go.exists)

    with wr.Session(engine=engine, workers=1):
        wait()
        first = add(1)
        second = add(first)
        assert first.cancel()
        go.touch()
        assert second.cancelled() or isinstance(_raised(second), (DependencyError, concurrent.futures.CancelledError))


def _raised(future: Any) -> BaseException | None:
    try:
        future.result(120)
    except (TaskError, concurrent.futures.CancelledError) as error:
        return error
    return None


# -- outputs


@engines
def test_released_outputs_are_final_and_the_rest_is_tried_again(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"

    @wr.task(outputs=3, on_failure="retry", retries=3)
    def three() -> Any:
        for number in range(3):
            with diary.open("a") as file:
                file.write("x")
            if number == 2 and len(diary.read_text()) < 6:
                raise OSError("not yet")
            yield number * 10

    with wr.Session(engine=engine, workers=2) as session:
        parts = three()
        sums = [add(part) for part in parts]
        assert session.gather([*parts, *sums]) == [0, 10, 20, 1, 11, 21]
    assert len(diary.read_text()) == 6


@engines
@pytest.mark.parametrize("outputs", [2, "stream"])
def test_released_outputs_are_final_although_a_second_attempt_makes_others(
    engine: str, outputs: Any, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"

    @wr.task(outputs=outputs, retries=1)
    def two() -> Any:
        with diary.open("a") as file:
            file.write("x")
        yield len(diary.read_text())
        if len(diary.read_text()) % 2:
            raise OSError("not yet")
        yield 10

    with wr.Session(engine=engine, workers=1) as session:
        for number in range(5):  # who sees the second attempt first is a matter of luck
            first, second = two()
            assert session.gather([first, second, add(first)]) == [2 * number + 1, 10, 2 * number + 2]


@parallel
def test_outputs_that_do_not_stay_are_seen_by_nobody(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    seen = tmp_path / "seen"

    @wr.task(outputs=2, on_failure="retry", retries=3, restartable=False)
    def two() -> Any:
        with diary.open("a") as file:
            file.write("x")
        attempt = len(diary.read_text())
        yield attempt
        if attempt == 1:
            raise OSError("not yet")
        yield attempt * 100

    @wr.task
    def read(value: int) -> int:
        with seen.open("a") as file:
            file.write(f"{value} ")
        return value

    with wr.Session(engine=engine, workers=2) as session:
        first, second = two()
        assert session.gather([read(first), first, second]) == [2, 2, 200]
        assert seen.read_text() == "2 "


@parallel
def test_a_released_output_is_used_while_its_task_goes_on(engine: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    @wr.task(outputs=2)
    def two() -> Any:
        wr.ready("early", 1)
        until(seen.exists)
        return "late"

    @wr.task
    def look(value: str) -> str:
        seen.touch()
        return value.upper()

    with wr.Session(engine=engine, workers=2) as session:
        late, early = two()
        assert session.gather([look(early), late]) == ["EARLY", "late"]


@parallel
def test_a_stream_is_used_while_its_task_goes_on(engine: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    @wr.task(outputs="stream")
    def endless() -> Any:
        yield 1
        until(seen.exists)
        yield 2

    @wr.task
    def look(value: int) -> int:
        seen.touch()
        return value * 10

    with wr.Session(engine=engine, workers=2):
        assert [look(one).result(120) for one in endless()] == [10, 20]


@engines
def test_a_stream_that_fails_gives_what_it_had(engine: str, shared: Shared) -> None:
    @wr.task
    def some() -> Any:
        yield 1
        yield 2
        raise ValueError("dry")

    with shared(engine):
        got: list[int] = []

        def drain() -> None:
            got.extend(one.result(120) for one in some())

        with pytest.raises(ValueError, match="dry"):
            drain()
        assert got == [1, 2]


def test_a_stream_is_an_iterator(shared: Shared) -> None:
    @wr.task(outputs="stream")
    def count(n: int) -> Any:
        yield from range(n)

    with shared("threads") as session:
        stream = count(5)
        assert next(stream).result(120) == 0
        for one in stream:
            assert one.result(120) == 1
            break
        with pytest.raises(UsageError, match=r"'add' is given <stream of task .*list\(stream\)"):
            add([stream])
        assert session.gather({"rest": stream}) == {"rest": [2, 3, 4]}
        assert list(stream) == []


def test_a_program_does_not_branch_on_what_is_not_known(shared: Shared) -> None:
    with shared("threads"):
        one = add(-1)  # which is 0
        with pytest.raises(TypeError, match=r"neither true nor false .*result\(\)"):
            assert not one
        assert not one.result(120)


def test_what_can_be_walked_once_is_gathered_too(shared: Shared) -> None:
    with shared("threads") as session:
        assert session.gather(add(n) for n in range(3)) == [1, 2, 3]
        assert session.gather(map(add, range(3))) == [1, 2, 3]
        assert session.gather({"a": add(1), "b": 5}.values()) == [2, 5]


# -- calls


@engines
def test_futures_deep_in_containers(engine: str, shared: Shared) -> None:
    @wr.task
    def flat(things: Any, **more: Any) -> Any:
        return things, more

    with shared(engine):
        a, b = add(1), add(2)
        given = [a, (b, {"k": [a, {"m": b}]}), "x"]
        assert flat(given, key={"deep": (a,)}).result(120) == (
            [2, (3, {"k": [2, {"m": 3}]}), "x"],
            {"key": {"deep": (2,)}},
        )
        assert flat({5, 6}).result(120) == ({5, 6}, {})


@wr.task
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@engines
def test_inside_a_worker_a_task_is_its_function(engine: str, shared: Shared) -> None:
    with shared(engine) as session:
        assert session.gather([fibonacci(n) for n in range(8)]) == [0, 1, 1, 2, 3, 5, 8, 13]


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @wr.task
    def times(self, x: int) -> int:
        return self.factor * x


@engines
def test_methods_are_tasks(engine: str, shared: Shared) -> None:
    assert Scale(3).times(4) == 12
    with shared(engine) as session:
        assert session.gather([Scale(3).times(add(1)), Scale.times(Scale(2), 5)]) == [6, 10]
        assert session.submit(Scale(3).times, 4).result(120) == 12


@engines
def test_lambdas_closures_and_things_made_here_travel(engine: str, shared: Shared) -> None:
    offset = 10

    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    def shifted(thing: Local) -> Local:
        return Local(thing.x + offset)

    with shared(engine) as session:
        assert session.submit(lambda x: x + offset, 1).result(120) == 11
        assert session.submit(shifted, Local(5)).result(120).x == 15
        assert isinstance(session.submit(shifted, Local(5)).result(120), Local)


SCRIPT = """
import windrow as wr


class Thing:
    def __init__(self, x):
        self.x = x


class Mine(Exception):
    pass


@wr.task
def twice(thing):
    return Thing(2 * thing.x)


def bad():
    raise Mine("mine")


with wr.Session(workers=1) as session:
    thing = twice(twice(Thing(3))).result()
    print(thing.x, isinstance(thing, Thing))
    print(isinstance(session.submit(bad).exception(), Mine))
    print(session.submit(lambda thing: thing.x, Thing(5)).result())
with wr.Executor(1) as executor:
    print([one.x for one in executor.map(twice.declared.function, [Thing(1), Thing(2)])])
"""


def test_what_a_script_defines_travels(tmp_path: Path) -> None:
    program = tmp_path / "script.py"
    program.write_text(SCRIPT)
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("12 True\nTrue\n5\n[2, 4]\n", "")


@engines
def test_large_arguments_arrive_as_they_are(engine: str, shared: Shared) -> None:
    large = np.arange(1_250_000.0)  # 10 MB
    with shared(engine) as session:
        made = session.submit(np.negative, large)
        again = session.gather([session.submit(np.add, made, large) for _ in range(3)])
        np.testing.assert_array_equal(made.result(120), -large)
    for one in again:
        assert not one.any()


def test_threads_are_given_the_very_thing() -> None:
    large = np.zeros(10)
    with wr.Session(engine="threads", workers=1) as session:
        assert session.submit(lambda given: given is large, large).result(120)


def test_what_cannot_be_pickled_is_named() -> None:
    with (
        wr.Session(engine="processes", workers=1),
        pytest.raises(UsageError, match=r"'add' cannot be sent .*\['b'\].*lock"),
    ):
        add(1, b={"a": [threading.Lock()]})


# -- order


def test_the_inline_engine_runs_in_the_order_of_calls_and_priorities() -> None:
    order: list[int] = []
    go = threading.Event()

    @wr.task
    def wait() -> None:
        go.wait(120)

    @wr.task
    def note(number: int, *_: Any) -> int:
        order.append(number)
        return number

    with wr.Session(engine="inline") as session:
        wait()
        note(1)
        note.options(priority=5)(2)
        note(3, note(4))
        note.options(priority=5)(5)
        go.set()
        session.barrier(30)
    assert order[:2] == [2, 5]
    assert sorted(order) == [1, 2, 3, 4, 5]
    assert order.index(4) < order.index(3)


@parallel
def test_a_deadline_ends_what_runs_too_long(engine: str, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @wr.task(deadline=0.2)
    def long() -> None:
        until(go.exists)

    with wr.Session(engine=engine, workers=1):
        error = long().exception(120)
        go.touch()
        assert isinstance(error, TaskError)
        assert "deadline" in str(error)
        assert add(1).result(120) == 2


# -- sessions


def test_sessions_inside_each_other() -> None:
    with wr.Session(engine="threads", workers=1) as outer:
        first = add(1)
        with wr.Session(engine="inline") as inner:
            second = add(2)
            with pytest.raises(UsageError, match="belongs to another session"):
                add(first)
            assert second.result(120) == 3
        third = add(first)
        assert third.result(120) == 3
        assert first in list(outer.futures.values())
        assert second not in list(outer.futures.values())
        assert inner is not outer


def test_a_task_may_open_a_session() -> None:
    @wr.task
    def many(n: int) -> int:
        with wr.Session(engine="threads", workers=1) as session:
            return sum(session.gather([add(number) for number in range(n)]))

    with wr.Session(engine="processes", workers=1):
        assert many(4).result(60) == 10


@parallel
def test_a_session_is_used_from_several_threads(engine: str) -> None:
    sums: list[int] = []
    with wr.Session(engine=engine, workers=2) as session:

        def use() -> None:
            futures = [session.submit(add, number) for number in range(30)]
            sums.append(sum(session.gather(futures)))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sums == [465] * 4


@engines
def test_closing_twice(engine: str) -> None:
    session = wr.Session(engine=engine, workers=1)
    future = session.submit(add, 1)
    session.close()
    session.close()
    assert future.result(0) == 2
    with pytest.raises(UsageError, match="closed"):
        session.submit(add, 1)


@parallel
def test_an_exception_in_the_block_cancels(engine: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    kept: list[Any] = []

    @wr.task
    def wait() -> None:
        until(go.exists)

    def program() -> None:
        with wr.Session(engine=engine, workers=1):
            wait()
            kept.extend(add(number) for number in range(10))
            threading.Timer(0.2, go.touch).start()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        program()
    assert all(one.cancelled() for one in kept)


@engines
def test_groups_wait_and_cancel_for_themselves(engine: str, tmp_path: Path) -> None:
    with wr.Session(engine=engine, workers=1) as session:
        with session.group("first") as first:
            one = add(1)
        with session.group() as second:
            two = broken()
        first.barrier(30)
        assert one.done()
        second.barrier(30)
        assert isinstance(two.exception(0), ValueError)
        first.cancel()
        assert one.result(0) == 2
        assert repr(first) == "<first>"


def test_a_group_has_those_inside_it() -> None:
    go = threading.Event()
    with wr.Session(engine="threads", workers=1) as session:
        holds = session.submit(go.wait, 30)
        with session.group("outer", on_failure="ignore") as outer:
            with session.group() as inner, session.group("own", on_failure="stop"), outer:
                tasks = [add(number) for number in range(3)]
            late = add(1)
        assert inner.on_failure == "ignore"  # as the one around it says
        with pytest.raises(TimeoutError, match="had not ended"):
            inner.barrier(0.01)  # it has the outer one in it again
        outer.cancel()
        go.set()
        outer.barrier(30)
        assert all(one.cancelled() for one in (*tasks, late))
        assert add(1).result(120) == 2
        assert holds.result(120)


def test_the_way_to_a_failure_is_told_shortly_where_it_is_long() -> None:
    with wr.Session(engine="inline") as session:
        chain = [broken()]
        for _ in range(300):
            chain.append(add(chain[-1]))
        error = chain[-1].exception(60)
        assert isinstance(error, DependencyError)
        assert isinstance(error.__cause__, ValueError)
        assert str(error).startswith("task 'add' (301) did not run: it needs 'add' (300), which needs")
        assert "'add' (291), which needs ..., which needs 'broken' (1), which failed" in str(error)
        assert "..." not in str(chain[11].exception())
        assert "'add' (2), which needs 'broken' (1), which" in str(chain[11].exception())
    assert session.explain()


INTERRUPTED = """
import time
import windrow as wr


@wr.task
def long():
    print("running", flush=True)
    time.sleep(60)


with wr.Session(engine={engine!r}, workers=1) as session:
    first, second = long(), long()
    try:
        {wait}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


def test_ctrl_c_ends_a_program_that_waits(tmp_path: Path) -> None:
    """In whatever way it waits; three programs, which all take their time to end, at once."""
    programs = []
    for number, wait in enumerate(("first.result()", "session.barrier()", "session.gather([first])")):
        program = tmp_path / f"program{number}.py"
        program.write_text(textwrap.dedent(INTERRUPTED.format(engine="processes", wait=wait)))
        programs.append(
            subprocess.Popen(
                [sys.executable, str(program)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        )
    for running in programs:
        assert running.stdout is not None
        assert running.stdout.readline() == "running\n"
        running.send_signal(signal.SIGINT)
    for running in programs:
        out, err = running.communicate(timeout=40)
        assert out == "interrupted\n"
        assert "KeyboardInterrupt" in err
        assert running.returncode != 0


@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("size", [3, 5_000, 100_000])
def test_what_was_released_stays_although_its_task_fails(engine: str, size: int) -> None:
    """Small or large: those that were made in a process are brought when somebody asks."""

    @wr.task(outputs=2)
    def half() -> Any:
        yield np.ones(size)
        raise ValueError("no more")

    with wr.Session(engine=engine, workers=1) as session:
        first, second = half()
        with pytest.raises(ValueError, match="no more"):
            second.result()
        session.barrier()
        assert first.result().sum() == size
