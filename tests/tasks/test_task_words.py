"""What users are told of options that mean nothing, of limits that were hit, and of failures that nobody looked at."""

from __future__ import annotations

import concurrent.futures
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import pytest

import windrow as wr
from windrow.errors import CommandError, DependencyError, TaskError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ENGINES = ("inline", "threads", "processes")


@pytest.fixture(scope="module", params=ENGINES)
def session(request: pytest.FixtureRequest) -> Iterator[wr.Session]:
    """One for all tests that look at every failure that they make."""
    session = wr.Session(engine=request.param, workers=1, store=False, progress=False)
    yield session
    session.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[wr.Session]:
    session = wr.Session(engine="processes", workers=1, store=False, progress=False)
    yield session
    session.close()


def run(program: Callable[[], Any], engine: str = "inline") -> Any:
    with wr.Session(engine=engine, workers=1, store=False, progress=False):
        return program()


def ask(session: wr.Session, task: Any, *arguments: Any) -> Any:
    return session.submit(task, *arguments).result(60)


@wr.task
def same(value: Any) -> Any:
    return value


@wr.task
def leave(code: Any) -> None:
    sys.exit(code)


@wr.task
def wrong(message: str) -> None:
    raise ValueError(message)


@wr.task
def slow(seconds: float) -> None:
    time.sleep(seconds)


@wr.task
def hog(megabytes: int) -> int:
    held = b"x" * (megabytes * 10**6)
    time.sleep(3)
    return len(held)


# -- options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cores": "2"}, r"task 'same': cores= is a number from 0 on; .*got '2'"),
        ({"cores": -1}, r"cores= is a number from 0 on; .*got -1"),
        ({"cores": True}, r"cores= .*got True"),
        ({"cores": float("nan")}, r"cores= .*got nan"),
        ({"memory": 200}, r"memory=200 is 200 B, in which nothing runs; .*memory='200 MB'"),
        ({"memory": "200"}, r"memory='200' is 200 B, .*memory='200 MB'"),
        ({"memory": 0}, r"memory=0 is 0 B"),
        ({"memory": "0 MB"}, r"memory='0 MB' is 0 B"),
        ({"memory": "2 G"}, r"task 'same': memory=: .*but got '2 G'"),
        ({"memory": -1e9}, r"task 'same': memory=: .*got -1000000000.0"),
        ({"gpus": "1"}, r"gpus= is a number from 0 on; got '1'"),
        ({"gpus": -1}, r"gpus= .*got -1"),
        ({"resources": {"licence": "1"}}, r"resources= of 'licence' is a number .*got '1'"),
        ({"resources": {"licence": -1}}, r"resources= of 'licence' .*got -1"),
        ({"resources": "licence"}, r"resources= are amounts by name, .*got 'licence'"),
        ({"retries": -1}, r"retries= .*from 0 on; got -1"),
        ({"retries": 1.5}, r"retries= .*got 1.5"),
        ({"retries": "2"}, r"retries= .*got '2'"),
        ({"priority": "high"}, r"priority= is a whole number, .*got 'high'"),
        ({"priority": 0.5}, r"priority= .*got 0.5"),
        ({"deadline": 0}, r"deadline= is the seconds .*above 0; got 0"),
        ({"deadline": -1}, r"deadline= .*got -1"),
        ({"deadline": "1 min"}, r"deadline= .*got '1 min'"),
        ({"on_failure": "halt"}, r"task 'same': on_failure= is one of 'stop', .*; got 'halt'"),
    ],
)
def test_options_of_tasks_are_refused_where_they_are_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        same.options(**options)
    with pytest.raises(UsageError):
        wr.command(lambda: "true", **options)


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({"cores": 0}, {}),
        ({"cores": 0.5, "gpus": 0}, {"cores": 0.5}),
        ({"memory": "500 kB"}, {"cores": 1, "memory": 500_000}),
        ({"memory": 2e9}, {"cores": 1, "memory": 2 * 10**9}),
        ({"resources": {"licence": 0, "robot": 2}}, {"cores": 1, "robot": 2}),
    ],
)
def test_options_that_mean_something_are_taken(options: dict[str, Any], needs: dict[str, float]) -> None:
    task = same.options(**options, priority=-1, retries=0, deadline=0.5)
    assert dict(task.declared.needs.amounts) == needs
    again = task.options(version="2")
    assert again.declared.needs == task.declared.needs
    assert (again.declared.priority, again.declared.retries, again.declared.deadline) == (-1, 0, 0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, r"workers= .*from 1 on.*got 0"),
        ({"workers": -2}, r"workers= .*got -2"),
        ({"workers": "2"}, r"workers= .*got '2'"),
        ({"workers": True}, r"workers= .*got True"),
        ({"worker": 2}, r"wr.Session has no option 'worker'; did you mean 'workers'\?; it has engine"),
        ({"nonsense": 2}, r"wr.Session has no option 'nonsense'; it has engine, workers"),
        ({"resources": {"licence": "1"}}, r"wr.Session: resources= of 'licence' .*got '1'"),
        ({"resources": {"gpu": "1"}}, r"wr.Session: resources= of 'gpu' .*got '1'"),
        ({"resources": ["gpu"]}, r"resources= are amounts by name"),
        ({"on_failure": "ignor"}, r"wr.Session: on_failure= .*got 'ignor'; did you mean 'ignore'"),
    ],
)
def test_options_of_sessions_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wr.Session(**{"engine": "inline", **options})


def test_options_of_sessions_have_names() -> None:
    session: Any = wr.Session
    with pytest.raises(UsageError, match=r"options of wr.Session are named, got 'threads'"):
        session("threads")


def test_the_rule_of_a_group_is_one(session: wr.Session) -> None:
    with pytest.raises(UsageError, match=r"samples: on_failure= is one of .*got 'continue'"):
        session.group("samples", on_failure="continue")  # type: ignore[arg-type]


def test_an_async_function_is_no_task() -> None:
    async def later() -> int:
        return 1

    with pytest.raises(UsageError, match=r"later' is an async function"):
        wr.task(later)


def test_what_a_body_changes_is_known_under_any_name_of_the_package() -> None:
    def body(a: Any, b: Any, c: Any, d: Any) -> None: ...

    body.__annotations__ = {
        "a": "windrow.InOut",
        "b": Annotated[dict[str, int], wr.InOut],
        "c": wr.InOut | None,
        "d": "wr.InOutFile",
    }
    assert wr.task(body).declared.inout == ("a", "b", "c")


def test_names_of_the_package_that_are_not_there_are_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Infile'; did you mean 'InFile'"):
        wr.Infile  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        wr.zzz  # noqa: B018


@pytest.mark.parametrize("said", ["echo {N}", ["echo", "{N}"], ["echo", "n={N}"]])
def test_a_placeholder_in_other_letters_is_an_error(said: Any) -> None:
    task = wr.command(lambda n: said)
    with pytest.raises(UsageError, match=r"its template has \{N\}; did you mean \{n\}\?"):
        task(3)


def test_an_open_file_is_no_argument_in_another_process(processes: wr.Session, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("words")
    with path.open() as file:
        with pytest.raises(UsageError, match=r"task 'same' cannot be given an open file \('.*x.txt'\)"):
            processes.submit(same, file)
        with pytest.raises(UsageError, match="give it the path"):
            processes.submit(same, value=file)


# -- limits


def test_what_cannot_be_sent_changes_nothing(processes: wr.Session) -> None:
    book = {"a": 1}
    note = wr.task(lambda book, word: book.update(word), inout="book")
    with pytest.raises(UsageError, match=r"cannot be sent to another process"):
        processes.submit(note, book, threading.Lock())
    assert processes.latest(book) is book
    processes.submit(note, book, {"b": 2})
    assert processes.gather(book) == {"a": 1, "b": 2}


def test_memory_that_was_exceeded_twice_is_told_in_megabytes(processes: wr.Session) -> None:
    task = hog.options(memory="150 MB")
    with pytest.raises(TaskError) as caught:
        ask(processes, task, 600)
    words = str(caught.value)
    assert words.startswith("task 'hog' (")
    assert " MB of memory or more; the limit is 300 MB; it asked for memory='150 MB'" in words
    assert "and was tried once more with 300 MB. Say with memory= what it really needs" in words
    assert "e+" not in words


def test_more_memory_than_there_is_is_told_in_words(session: wr.Session) -> None:
    with pytest.raises(UsageError, match=r"task 'same' needs memory=999 TB, but the session has memory=[\d.]+ [MGT]B;"):
        session.submit(same.options(memory="999 TB"), 1)


def test_a_session_is_told_its_memory_with_a_unit() -> None:
    with wr.Session(engine="inline", resources={"memory": "3 GB"}, store=False):
        with pytest.raises(UsageError, match=r"memory=4 GB, but the session has memory=3 GB"):
            same.options(memory="4 GB")(1)
        assert same.options(memory="2 GB")(1).result() == 1


def test_a_deadline_is_told_from_the_call() -> None:
    with wr.Session(engine="threads", workers=1, store=False) as session:
        late = slow.options(deadline=0.25)(1)
        after = same(late)
        with pytest.raises(TaskError) as caught:
            late.result(60)
        with pytest.raises(DependencyError) as blamed:
            session.gather(after)
    told = "task 'slow' (1) was not done by its deadline, 250 ms after its call (deadline=0.25)"
    assert str(caught.value) == told
    assert str(blamed.value).endswith(f", which failed: {told}")


# -- failures that nobody looked at


@pytest.mark.parametrize("engine", ENGINES)
def test_the_end_of_a_task_is_no_silent_end_of_the_program(engine: str) -> None:
    with pytest.raises(TaskError, match=r"task 'leave' \(1\) called sys.exit\(0\)") as caught:
        run(lambda: leave(0), engine)
    assert isinstance(caught.value.__cause__, SystemExit)


def test_who_asks_is_told_of_an_exit_as_such(session: wr.Session) -> None:
    with pytest.raises(SystemExit) as caught:
        ask(session, leave, 3)
    assert caught.value.code == 3


def test_of_many_failures_all_are_named() -> None:
    def program() -> None:
        assert isinstance(wrong("seen").exception(), ValueError)
        wrong("first")
        leave(1)
        same(wrong("third"))

    with pytest.raises(ValueError, match="first") as caught:
        run(program)
    assert caught.value.__notes__[-1] == "and 2 more tasks failed: 'leave' (3), 'wrong' (4)"


def test_of_very_many_failures_some_are_named() -> None:
    with pytest.raises(ValueError, match="0") as caught:
        run(lambda: [wrong(str(number)) for number in range(20)])
    note = caught.value.__notes__[-1]
    assert note.startswith("and 19 more tasks failed: 'wrong' (2), ")
    assert note.endswith("'wrong' (11), ...")


@pytest.mark.parametrize("task", [wrong, leave, slow.options(deadline=0.1)])
def test_a_failure_that_stops_the_session_is_not_named_beside_itself(task: Any) -> None:
    stops = task.options(on_failure="stop")
    with pytest.raises((ValueError, TaskError)) as caught:
        run(lambda: stops(0.5), "threads")
    assert not any("more task" in one for one in getattr(caught.value, "__notes__", ()))


def test_a_command_that_failed_tells_its_story_once(session: wr.Session) -> None:
    task = wr.command(lambda: "echo a story >&2; exit 3", name="tells")
    with pytest.raises(CommandError) as caught:
        ask(session, task)
    told = "\n".join([str(caught.value), *caught.value.__notes__])
    assert told.count("  a story") == 1
    assert "raised in task 'tells' (" in told


# -- Ctrl-C

INTERRUPTED = """
import sys, time
import windrow as wr

@wr.task
def endless():
    print("begun", flush=True)
    time.sleep(600)

with wr.Session(engine=sys.argv[1], workers=1, store=False, progress=False):
    future = endless()
    if sys.argv[2] == "result":
        future.result()
"""


@pytest.mark.parametrize("engine", ["threads", "inline"])
@pytest.mark.parametrize("where", ["result", "end"])
def test_a_second_interrupt_leaves_what_cannot_be_interrupted(engine: str, where: str, tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    program = subprocess.Popen(
        [sys.executable, str(script), engine, where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "begun\n"
        program.send_signal(signal.SIGINT)
        told = program.stderr.readline()  # or it would wait for ten minutes in silence
        assert told.startswith("windrow: waiting for a running task: threads cannot be interrupted")
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert "windrow: waiting" not in errors


def test_a_task_that_was_cancelled_says_because_of_what() -> None:
    @wr.task(name="broken")
    def broken() -> None:
        raise ValueError("that one")

    session = wr.Session(engine="inline", on_failure="stop")
    try:
        wrong, other = session.submit(broken), session.submit(int)
        with pytest.raises(concurrent.futures.CancelledError, match="'broken' failed") as caught:
            other.result()
        assert isinstance(caught.value.__cause__, ValueError)
        with pytest.raises(ValueError, match="that one"):
            wrong.result()
    finally:
        session.close()
