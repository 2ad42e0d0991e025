"""``wr.Executor`` behaves as the executors of the standard library do; where it does not, that is shown here."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import InitializerError, TaskError, TaskLostError, UsageError

engines = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
parallel = pytest.mark.parametrize("engine", ["threads", "processes"])
Shared = Callable[[str], wr.Executor]


@pytest.fixture(scope="module")
def shared() -> Iterator[Callable[[str], wr.Executor]]:
    """Give an executor of two workers that tests share: starting processes takes long."""
    made: dict[str, wr.Executor] = {}

    def of(engine: str) -> wr.Executor:
        if engine not in made:
            made[engine] = wr.Executor(2, engine=engine)
        return made[engine]

    yield of
    for one in made.values():
        one.shutdown()


def until(true: Callable[[], object]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def capture(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def divide(a: int, b: int) -> float:
    return a / b  # a comment that is seen


def wait_for(path: Path) -> None:
    path.with_suffix(".begun").touch()
    until(path.exists)


def numbers() -> Iterator[int]:
    yield 1


class Thing:
    """Something that weak references can be made of."""

    def method(self) -> int:
        return 3


# -- calls


@engines
def test_calls(engine: str, shared: Shared) -> None:
    executor = shared(engine)
    assert isinstance(executor, concurrent.futures.Executor)
    assert executor.submit(pow, 2, 8).result(120) == 256
    assert executor.submit(capture, 1, self=2, fn=3).result(120) == ((1,), {"self": 2, "fn": 3})
    assert executor.submit(lambda x: x + 1, 2).result(120) == 3
    assert executor.submit(functools.partial(divide, 6), 3).result(120) == 2
    assert executor.submit(Thing().method).result(120) == 3
    assert executor.submit(np.arange, 50_000).result(120).sum() == 50_000 * 49_999 // 2
    with pytest.raises(TypeError):
        executor.submit(fn=capture)  # type: ignore[call-arg]


@engines
def test_maps(engine: str, shared: Shared) -> None:
    executor = shared(engine)
    expected = list(map(pow, range(20), range(19)))
    for size in (1, 3, 19, 50):
        assert list(executor.map(pow, range(20), range(19), chunksize=size)) == expected
    assert list(executor.map(lambda x: -x, range(5), chunksize=2)) == [0, -1, -2, -3, -4]
    results = executor.map(divide, [1, 1, 1], [1, 0, 2])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    if engine == "processes":
        with pytest.raises(ValueError, match="chunksize"):
            executor.map(pow, [1], [1], chunksize=0)


def test_map_sends_a_closure_once() -> None:
    table = list(range(50_000))
    with wr.Executor(2) as executor:
        packer = executor._session._driver._packer
        assert packer is not None
        for chunksize in (1, 3):
            before = next(packer._numbers)
            assert list(executor.map(lambda one: table[one], range(20), chunksize=chunksize)) == list(range(20))
            assert next(packer._numbers) == before + 2


def test_map_takes_all_arguments_at_once_and_gives_results_as_they_are_asked_for() -> None:
    taken: list[int] = []

    def arguments() -> Iterator[int]:
        for number in range(5):
            taken.append(number)
            yield number

    with wr.Executor(1, engine="threads") as executor:
        results = executor.map(str, arguments())
        assert taken == [0, 1, 2, 3, 4]
        assert next(iter(results)) == "0"


@parallel
def test_map_has_a_time_limit_and_cancels_the_rest(engine: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    ran = tmp_path / "ran"

    with wr.Executor(1, engine=engine) as executor:
        first = executor.submit(wait_for, go)
        until(go.with_suffix(".begun").exists)
        results = executor.map(Path.touch, [ran, ran], timeout=0.05)
        with pytest.raises(TimeoutError):
            next(results)
        go.touch()
        first.result(120)
    assert not ran.exists()


@engines
def test_a_generator_is_a_value_like_any_other(engine: str, shared: Shared) -> None:
    executor = shared(engine)
    made = executor.submit(numbers)
    if engine == "processes":
        with pytest.raises(Exception, match="generator"):
            made.result(120)
    else:
        assert list(made.result(120)) == [1]


def test_futures_are_passed_on_as_they_are(shared: Shared) -> None:
    executor = shared("threads")
    first = executor.submit(pow, 2, 3)
    assert executor.submit(lambda one: one is first, first).result(120)
    assert executor.submit(lambda ones: ones[0] is first, [first]).result(120)


def test_tasks_are_called_as_tasks(shared: Shared) -> None:
    @wr.task
    def double(x: int) -> int:
        return 2 * x

    @wr.task(outputs=2)
    def two() -> Any:
        return 1, 2

    executor = shared("threads")
    assert executor.submit(double, executor.submit(double, 3)).result(120) == 12
    with pytest.raises(UsageError, match="makes several outputs"):
        executor.submit(two)


# -- failures


@engines
def test_the_traceback_of_the_worker_is_in_that_of_the_program(engine: str, shared: Shared) -> None:
    executor = shared(engine)
    error = executor.submit(divide, 1, 0).exception(120)
    assert type(error) is ZeroDivisionError
    assert "a / b  # a comment that is seen" in "".join(traceback.format_exception(error))


class OnlyHere:
    """Cannot be made again where it arrives."""

    def __reduce__(self) -> Any:
        return divide, (1, 0)


class Leaves:
    """Ends whoever pickles it."""

    def __reduce__(self) -> Any:
        sys.exit(5)


def test_what_cannot_travel_fails_alone(shared: Shared) -> None:
    executor = shared("processes")
    # The arguments, here or there; the result, there or here.
    with pytest.raises(TypeError, match="pickle") as told:
        executor.submit(id, threading.Lock()).result(120)
    assert "its arguments[0].args[0] (_thread.lock)" in told.value.__notes__[0]
    with pytest.raises(ZeroDivisionError):
        executor.submit(id, OnlyHere()).result(120)
    with pytest.raises(Exception, match=r"the result .* cannot be pickled"):
        executor.submit(threading.Lock).result(120)
    with pytest.raises(Exception, match=r"the result .* cannot be pickled"):
        executor.submit(Leaves).result(120)
    with pytest.raises(ZeroDivisionError) as spoilt:
        executor.submit(OnlyHere).result(120)
    assert "was unpickled" in spoilt.value.__notes__[-1]
    assert executor.submit(pow, 2, 3).result(120) == 8


def test_a_process_that_dies_is_replaced_and_its_call_tried_again(tmp_path: Path, shared: Shared) -> None:
    once = tmp_path / "once"

    def killed_once() -> str:
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    executor = shared("processes")
    assert executor.submit(killed_once).result(60) == "done"


def test_a_call_that_ends_its_process_each_time_fails_alone(shared: Shared) -> None:
    executor = shared("processes")
    bad = executor.submit(os._exit, 3)
    good = list(executor.map(pow, range(20), range(20)))
    error = bad.exception(60)
    assert isinstance(error, TaskLostError)
    assert isinstance(error, concurrent.futures.BrokenExecutor)
    assert isinstance(error, TaskError)
    assert "exited with code 3" in str(error)
    assert type(pickle.loads(pickle.dumps(error))) is TaskLostError
    assert good == list(map(pow, range(20), range(20)))
    assert executor.submit(pow, 2, 3).result(120) == 8


def test_what_leaves_the_interpreter_is_an_exception_of_the_call(shared: Shared) -> None:
    executor = shared("processes")
    assert isinstance(executor.submit(sys.exit, 4).exception(120), SystemExit)
    assert executor.submit(pow, 2, 3).result(120) == 8


def test_errors_that_are_broken_executors_are_made_when_they_are_asked_for() -> None:
    """Whoever loads the others need not load concurrent.futures."""
    program = """
import sys
import windrow.errors as errors
assert "concurrent.futures" not in sys.modules
assert not hasattr(errors, "NoSuchError")
from windrow.errors import TaskLostError, InitializerError
import concurrent.futures
for kind, parent in ((TaskLostError, errors.TaskError), (InitializerError, errors.EngineError)):
    assert kind.__mro__[1] is parent and issubclass(kind, concurrent.futures.BrokenExecutor)
    assert kind is getattr(errors, kind.__name__) and kind.__doc__ and kind.__module__ == "windrow.errors"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- initializers

greeting = "nothing"


def greet(word: str, diary: Path | None = None) -> None:
    globals()["greeting"] = word
    if diary is not None:
        with diary.open("a") as file:
            file.write("x")


def greeted() -> str:
    return greeting


def refuse() -> None:
    raise ValueError("not today")


@engines
def test_an_initializer_runs_once_per_worker(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    try:
        with wr.Executor(2, engine=engine, initializer=greet, initargs=("hello", diary)) as one:
            assert {one.submit(greeted).result(120) for _ in range(20)} == {"hello"}
    finally:
        greet("nothing")
    assert 1 <= len(diary.read_text()) <= 2


def test_what_an_initializer_sets_in_a_script_is_seen_by_the_functions_of_the_script(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import windrow as wr

scale, cache = 1, {}

def begin(number):
    global scale, model
    scale, model = number, {"answer": 42}
    cache["scale"] = number

def scaled(x):
    return x * scale, cache["scale"]

def ask():
    return helper()

def helper():
    return model["answer"]

def count():  # changes a global: made anew for every call
    cache["calls"] = cache.get("calls", 0) + 1
    return cache["scale"]

for make in (wr.Executor, lambda *given, **more: wr.Executor(*given, **more, engine="threads")):
    with make(2, initializer=begin, initargs=(3,)) as executor:
        assert executor.submit(lambda: model["answer"]).result() == 42  # the first that its worker is given
        assert list(executor.map(scaled, [1, 2])) == [(3, 3), (6, 3)]
        assert executor.submit(ask).result() == executor.submit(lambda: model["answer"]).result() == 42
        assert executor.submit(count).result() == 3
    assert scale == (1 if make is wr.Executor else 3)
with wr.Session(workers=1, initializer=lambda: begin(5)) as session:
    assert wr.task(scaled)(1).result() == (5, 5)
"""
    )
    subprocess.run([sys.executable, "-W", "ignore", str(program)], check=True, timeout=120)


@engines
def test_an_initializer_that_fails_breaks_the_executor(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    executor = wr.Executor(2, engine=engine, initializer=refuse)
    futures = [executor.submit(pow, 2, 3)]
    error = futures[0].exception(120)
    assert isinstance(error, concurrent.futures.BrokenExecutor)
    assert isinstance(error, InitializerError)
    assert "ValueError: not today" in str(error)
    assert isinstance(error.__cause__, ValueError)
    with pytest.raises(concurrent.futures.BrokenExecutor, match="not today"):
        executor.submit(pow, 2, 3)
    executor.shutdown()
    with pytest.raises(concurrent.futures.BrokenExecutor, match="not today"):
        executor.submit(pow, 2, 3)
    if engine != "processes":  # those have a log of their own
        assert "Exception in initializer:" in caplog.text


@parallel
def test_calls_that_wait_break_with_the_executor(engine: str) -> None:
    def slowly() -> None:
        time.sleep(0.2)
        refuse()

    executor = wr.Executor(1, engine=engine, initializer=slowly)
    futures = [executor.submit(pow, 2, 3) for _ in range(10)]
    assert {type(one.exception(120)) for one in futures} == {InitializerError}
    executor.shutdown()


def test_nonsense_is_refused() -> None:
    for number in (0, -1):
        with pytest.raises(ValueError, match="max_workers must be greater than 0"):
            wr.Executor(number)
    with pytest.raises(TypeError, match="callable"):
        wr.Executor(1, initializer=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="engine= is one of"):
        wr.Executor(1, engine="steam")


# -- states, waiting, callbacks


@parallel
def test_states_and_cancelling(engine: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with wr.Executor(1, engine=engine) as executor:
        first = executor.submit(wait_for, go)
        second = executor.submit(pow, 2, 3)
        until(first.running)
        assert not first.cancel()
        assert not second.done()
        assert second.cancel()
        assert second.cancelled()
        assert second.done()
        go.touch()
        assert first.result(120) is None
        assert not first.running()
        with pytest.raises(concurrent.futures.CancelledError):
            second.result(120)


@parallel
def test_waiting_for_many(engine: str, tmp_path: Path, shared: Shared) -> None:
    go = tmp_path / "go"
    executor = shared(engine)
    slow, fast = executor.submit(wait_for, go), executor.submit(divide, 1, 0)
    both = [slow, fast, fast]
    first = concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert first == ({fast}, {slow})
    assert concurrent.futures.wait(both, timeout=0.01) == ({fast}, {slow})
    with pytest.raises(TimeoutError):
        slow.result(0.01)
    completed = concurrent.futures.as_completed(both, timeout=30)
    assert next(completed) is fast
    go.touch()
    assert next(completed) is slow
    assert concurrent.futures.wait(both) == ({slow, fast}, set())


@engines
def test_callbacks_may_submit(engine: str, shared: Shared) -> None:
    found: list[Any] = []
    over = threading.Event()
    executor = shared(engine)

    def again(future: Any) -> None:
        found.append(future.result())
        if len(found) < 5:
            executor.submit(pow, 2, len(found)).add_done_callback(again)
        else:
            over.set()

    executor.submit(pow, 2, 0).add_done_callback(again)
    assert over.wait(120)
    assert found == [1, 2, 4, 8, 16]


@engines
def test_a_callback_that_raises_harms_nobody(engine: str, shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    executor = shared(engine)
    seen = threading.Event()

    def refuse(_: Any) -> None:
        raise ValueError("not this one")

    future = executor.submit(pow, 2, 3)
    future.add_done_callback(refuse)
    future.add_done_callback(lambda _: seen.set())
    assert future.result(120) == 8
    assert seen.wait(120)
    assert "not this one" in caplog.text
    assert executor.submit(pow, 2, 4).result(120) == 16


def negated(count: int) -> list[int]:
    with wr.Executor(1, engine="processes") as executor:
        return list(executor.map(abs, range(-count, 0)))


def test_a_call_may_have_an_executor_of_its_own(shared: Shared) -> None:
    assert shared("processes").submit(negated, 3).result(60) == [3, 2, 1]


def test_an_executor_does_not_travel(shared: Shared) -> None:
    executor = shared("processes")
    with pytest.raises(TypeError, match="cannot pickle"):
        executor.submit(lambda: executor).result(120)
    assert executor.submit(pow, 2, 3).result(120) == 8


@parallel
def test_many_threads_may_submit(engine: str, shared: Shared) -> None:
    sums: list[int] = []
    executor = shared(engine)

    def submit() -> None:
        sums.append(sum(executor.map(abs, range(-50, 0))))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [1275] * 4


# -- the end


@engines
def test_after_shutdown_nothing_is_taken(engine: str) -> None:
    executor = wr.Executor(1, engine=engine)
    futures = [executor.submit(time.sleep, 0.01) for _ in range(10)]
    executor.shutdown()
    assert all(one.done() for one in futures)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(pow, 2, 3)


@parallel
def test_shutdown_finishes_what_runs_and_cancels_what_waits(engine: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    executor = wr.Executor(1, engine=engine)
    first = executor.submit(wait_for, go)
    rest = [executor.submit(pow, 2, 3) for _ in range(20)]
    forgotten = tmp_path / "forgotten"
    executor.submit(Path.touch, forgotten)
    until(first.running)
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(one.cancelled() for one in rest)
    go.touch()
    executor.shutdown()
    assert first.result(0) is None
    assert not forgotten.exists()


@parallel
def test_shutdown_need_not_wait(engine: str) -> None:
    executor = wr.Executor(2, engine=engine)
    results = executor.map(abs, range(-5, 5))
    executor.shutdown(wait=False)
    assert list(results) == [abs(number) for number in range(-5, 5)]
    executor.shutdown()


@parallel
def test_an_executor_that_is_forgotten_finishes_and_ends(engine: str) -> None:
    before = set(threading.enumerate())
    results = wr.Executor(2, engine=engine).map(abs, range(-5, 5))
    gc.collect()
    assert list(results) == [abs(number) for number in range(-5, 5)]
    until(lambda: set(threading.enumerate()) <= before)


@engines
def test_nothing_is_kept_that_nobody_needs(engine: str, shared: Shared) -> None:
    class Argument(Thing):
        pass

    thing = Argument()
    gone = weakref.ref(thing)
    executor = shared(engine)
    kept = executor.submit(repr, thing)
    method = executor.submit(thing.method)
    del thing
    kept.result(120)
    method.result(120)
    until(lambda: gc.collect() is None or gone() is None)
    for made in executor.map(lambda _: Thing(), range(3)):
        seen = weakref.ref(made)
        del made
        until(lambda seen=seen: gc.collect() is None or seen() is None)  # type: ignore[misc]


PROGRAMS = {
    "what was submitted is finished at exit": (
        """
        executor.submit(later, "apple")
        """,
        "apple",
        "",
    ),
    "also what waits": (
        """
        for word in ("a", "b", "c"):
            executor.submit(later, word)
        """,
        "a b c",
        "",
    ),
    "also after shutdown": (
        """
        executor.submit(later, "apple")
        executor.shutdown(wait=False)
        """,
        "apple",
        "",
    ),
    "also when nobody knows the executor": (
        """
        executor.submit(later, "apple")
        del executor
        """,
        "apple",
        "",
    ),
    "nothing is taken after that": ("", "refused", "RuntimeError: cannot schedule new futures"),
}


@pytest.mark.parametrize("name", PROGRAMS)
@parallel
def test_programs_that_just_end(engine: str, name: str, tmp_path: Path) -> None:
    body, out, err = PROGRAMS[name]
    last = ""
    if err:
        last = """
        import atexit
        @atexit.register
        def last():
            try:
                executor.submit(later, "pear")
            except RuntimeError:
                print("refused")
                raise
        """
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(last)
        + textwrap.dedent(f"""
        import time
        import windrow as wr

        def later(word):
            time.sleep(0.1)
            print(word, flush=True)

        executor = wr.Executor(1, engine={engine!r})
        """)
        + textwrap.dedent(body)
    )
    ended = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == out.split()
    assert err in ended.stderr
    assert bool(ended.stderr) == bool(err)


# -- others' programs


@pytest.mark.slow
@engines
def test_asyncio_uses_it(engine: str, shared: Shared) -> None:
    async def program(executor: wr.Executor) -> list[Any]:
        loop = asyncio.get_running_loop()
        good = [loop.run_in_executor(executor, pow, 2, n) for n in range(5)]
        bad = loop.run_in_executor(executor, divide, 1, 0)
        return [*await asyncio.gather(*good), *await asyncio.gather(bad, return_exceptions=True)]

    executor = shared(engine)
    *good, bad = asyncio.run(program(executor))
    assert good == [1, 2, 4, 8, 16]
    assert isinstance(bad, ZeroDivisionError)


@engines
def test_dask_uses_it(engine: str, shared: Shared) -> None:
    array = pytest.importorskip("dask.array")
    delayed = pytest.importorskip("dask").delayed
    plain = np.arange(10_000.0).reshape(100, 100)
    cut = array.from_array(plain, chunks=(30, 40))
    executor = shared(engine)
    scaled = (cut @ cut.T).sum(axis=0).compute(scheduler=executor)
    np.testing.assert_allclose(scaled, (plain @ plain.T).sum(axis=0))
    total = delayed(sum)([delayed(pow)(n, 2) for n in range(10)])
    assert total.compute(scheduler=executor) == 285
    with pytest.raises(ZeroDivisionError):
        delayed(divide)(1, 0).compute(scheduler=executor)
