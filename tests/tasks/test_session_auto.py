"""engine="auto": calls run on threads until they are seen to hold the interpreter's lock, and give the same wherever they run."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import windrow as wr
from windrow.core.commands import Launch
from windrow.core.policies import NO_TRIES
from windrow.core.records import ONE_CORE, Life, Measurement, Needs, Plan, Task
from windrow.engines import job_runner
from windrow.engines.base import Outcome
from windrow.errors import DependencyError, EngineError, GlobalsWarning, TaskLostError
from windrow.tasks import places
from windrow.tasks.places import PROCESS, THREAD, PlacePolicy, Seen

if TYPE_CHECKING:
    from windrow.engines.base import Job

HOME = os.getpid()
COUNTS: list[int] = []
GENERATOR = np.random.default_rng(1)


class Scale:
    factor = 2


@wr.task
def where(_: Any = None) -> int:
    return os.getpid()


@wr.task
def add(a: Any, b: Any) -> Any:
    return a + b


@wr.task(memory="1 GB")  # limits are for processes
def add_apart(a: Any, b: Any) -> Any:
    assert os.getppid()
    return a + b


@wr.task
def spoil(values: Any) -> Any:
    values[0] = 99
    return values


@wr.task
def lock() -> Any:
    return threading.Lock()


@wr.task(on_failure="retry", retries=3)
def third_time(diary: str) -> int:
    with Path(diary).open("a") as file:
        file.write("x")
    done = len(Path(diary).read_text())
    if done < 3:
        raise OSError(f"try {done}")
    return done


@wr.task
def broken(_: Any = None) -> Any:
    raise ValueError("broken")


# -- the decision


def seen(**more: Any) -> Seen:
    return Seen(**({"begin": 0.0, "before": 0.0, "calls": 10, "wall": 1.0, "cpu": 0.5, "waited": 0.5} | more))


def test_calls_that_wait_for_the_lock_are_told_from_those_that_wait_for_else() -> None:
    assert seen().holds_lock(now=0.5, cpu=0.5, workers=2)
    assert not seen(waited=0.1).holds_lock(0.5, 0.5, 2), "they let go of it"
    assert not seen(cpu=0.5).holds_lock(5.0, 0.5, 2), "nobody has the lock"
    assert not seen(cpu=0.005, waited=0.99).holds_lock(0.5, 0.5, 2), "others have it, and these sleep"
    assert not seen(calls=4).holds_lock(0.5, 0.5, 2), "too few"
    assert not seen(wall=0.05, cpu=0.02, waited=0.02).holds_lock(0.5, 0.5, 2), "too short"
    assert seen(cpu=1 / 64, waited=63 / 64).holds_lock(1 / 64, 1 / 64, 64), "each of many has it seldom"


def task(number: int, name: str = "f", needs: Needs = ONE_CORE) -> Task:
    return Task(id=number, category=name, size=1, makes=(f"{number}.0",), needs=needs)


def calls_of(count: int, apart: str = "") -> Any:
    return {number: SimpleNamespace(content=SimpleNamespace(apart=apart)) for number in range(1, count + 1)}


def granted(policy: PlacePolicy, one: Task) -> set[str]:
    needs, _ = policy.grant(one, NO_TRIES)
    return {name for name, _ in needs.amounts} & {THREAD, PROCESS}


def test_a_task_moves_once_and_others_stay() -> None:
    times, cpu = (iter(np.arange(0.1, 10, 0.1).tolist()) for _ in range(2))
    policy = PlacePolicy(calls_of(20), 2)
    policy.clocks = times.__next__, cpu.__next__
    waits, free = Measurement(wall=0.2, cpu=0.1, lock_wait=0.1), Measurement(wall=0.2, cpu=0.19, lock_wait=0.01)
    assert granted(policy, task(1)) == granted(policy, task(1, "g")) == {THREAD}
    answers = [policy.seen(task(number), waits) for number in range(1, 10)]
    assert answers.count(True) == 1
    assert not any(policy.seen(task(number, "g"), free) for number in range(1, 10))
    assert granted(policy, task(11)) == {PROCESS}
    assert granted(policy, task(11, "g")) == {THREAD}
    stays, moved = policy.in_words()
    assert stays == "on threads, as calls did not wait for the interpreter's lock: g"
    assert moved == "in processes: f, as its calls waited 50% of their time for the interpreter's lock"


def test_calls_that_were_not_measured_tell_nothing() -> None:
    policy = PlacePolicy(calls_of(20), 2)
    assert not any(policy.seen(task(number), Measurement(wall=1.0)) for number in range(1, 20))
    assert not policy.in_words()


def test_calls_that_may_not_share_the_program_get_a_process() -> None:
    policy = PlacePolicy(calls_of(5, "it changes x"), 2)
    assert granted(policy, task(1)) == {PROCESS}
    assert policy.in_words() == ["in processes: f, as it changes x"]
    policy = PlacePolicy(calls_of(5), 2)
    assert granted(policy, task(1, needs=Needs.of({"cores": 1, "memory": 1e9}))) == {PROCESS}
    assert granted(policy, task(1, needs=Needs.of({"cores": 2}))) == {PROCESS}


def test_the_lock_that_measuring_lets_go_of_is_waited_for_as_part_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def take(seconds: float) -> float:
        clock[0] += seconds
        return 0.0

    def body(_: Any) -> Outcome:
        take(1.0)
        return Outcome({})

    monkeypatch.setattr(job_runner, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(job_runner, "thread_time", lambda: 0.0)
    monkeypatch.setattr(job_runner.RunQueue, "delay_s", lambda _: take(4.0))
    workload: Any = SimpleNamespace(open_worker=lambda _: SimpleNamespace(run=body, used=None))
    runner, job = job_runner.JobRunner(workload, Life(0, 0)), cast("Job", None)
    launch = Launch(task(1), 1, Life(0, 0), Plan(id=0, category="f"))
    for samples, expected in ((False, 1.0), (True, 9.0)):
        runner.samples = samples
        used = cast("Outcome", runner.run(launch, job)).measurement
        assert (used.wall, used.lock_wait) == (expected, expected)
    runner.close()


# -- where calls run

Decide = Callable[[bool], None]


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Decide:
    """Say whether calls are seen to hold the lock, whatever they do."""

    def let(holds: bool) -> None:
        monkeypatch.setattr(places.Seen, "holds_lock", lambda *_: holds)

    let(False)
    return let


def auto(workers: int = 2, **more: Any) -> wr.Session:
    return wr.Session(engine="auto", workers=workers, **more)


def test_calls_stay_on_threads_that_do_not_hold_the_lock(decide: Decide) -> None:
    with auto() as session:
        assert set(session.gather([where(number) for number in range(40)])) == {HOME}
        assert "on threads, as calls did not wait for the interpreter's lock: where" in str(session.explain())


def test_calls_that_wait_already_move_with_their_task(decide: Decide) -> None:
    decide(True)
    with auto(workers=1) as session:
        found = session.gather([where(number) for number in range(20)])
        assert found[0] == HOME
        assert HOME not in found[1:]
        assert "in processes: where, as its calls waited" in str(session.explain())


def test_calls_that_wait_for_values_move_too(decide: Decide) -> None:
    decide(True)

    @wr.task
    def follow(before: list[int]) -> list[int]:
        return [*before, os.getpid()]

    with auto(workers=1):
        value: Any = []
        for _ in range(6):
            value = follow(value)
        found = value.result()
    assert found[0] == HOME
    assert HOME not in found[1:]


def uses_list(_: Any) -> int:
    COUNTS.append(1)
    return os.getpid()


def uses_class(_: Any) -> int:
    return os.getpid() * Scale.factor // Scale.factor


def uses_global_numbers(_: Any) -> int:
    random.random()
    return os.getpid()


def uses_generator(_: Any) -> int:
    GENERATOR.random()
    return os.getpid()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (uses_list, "it changes COUNTS"),
        (uses_class, "it sees Scale, of which there is one in a process"),
        (uses_global_numbers, "it draws from the global state of random"),
        (uses_generator, "it draws from a generator that is outside of it"),
    ],
)
@pytest.mark.filterwarnings("ignore::windrow.errors.GlobalsWarning")
def test_what_threads_would_share_and_change_runs_in_processes(function: Any, why: str, decide: Decide) -> None:
    with auto() as session:
        assert HOME not in session.gather([session.submit(function, one) for one in range(4)])
        assert f"in processes: {function.__name__}, as {why}" in str(session.explain())
    assert not COUNTS


def test_tasks_of_which_more_is_asked_run_in_processes(decide: Decide) -> None:
    @wr.task(outputs=2, name="two")
    def two() -> Any:
        return os.getpid(), os.getpid()

    @wr.task(memory="1 GB", name="limited")
    def limited() -> int:
        return os.getpid()

    @wr.task(inout="values")
    def changes(values: Any) -> int:
        values[0] = 5
        return os.getpid()

    values = [0]
    with auto() as session:
        assert HOME not in session.gather([*two(), limited(), changes(values)])
        assert session.latest(values).result() == [5]
        said = str(session.explain())
    assert "in processes: two, as more is asked of it than one value" in said
    assert "in processes: limited, as it has limits" in said


def test_an_initializer_prepares_processes_and_so_all_run_there(decide: Decide) -> None:
    with auto(initializer=os.getpid) as session:
        assert HOME not in session.gather([where(number) for number in range(4)])


# -- the same wherever they run


@pytest.mark.parametrize("count", [3, 5_000, 300_000])
@pytest.mark.parametrize("holds", [False, True])
def test_values_go_from_threads_to_processes_and_back(count: int, holds: bool, decide: Decide) -> None:
    decide(holds)
    with auto() as session:
        made = [add(np.full(count, float(number)), 1.0) for number in range(6)]
        there = [add_apart(one, 10.0) for one in made]
        back = [add(one, 100.0) for one in there]
        sums = [add(first, last) for first, last in zip(made, back, strict=True)]
        for number, found in enumerate(session.gather(sums)):
            assert np.array_equal(found, np.full(count, 2.0 * number + 112.0))


@pytest.mark.parametrize("count", [3, 5_000, 300_000])
@pytest.mark.parametrize("holds", [False, True])
def test_bodies_change_what_is_their_own(count: int, holds: bool, decide: Decide) -> None:
    decide(holds)
    mine = np.zeros(count)
    with auto() as session:
        assert [one[0] for one in session.gather([spoil(mine) for _ in range(6)])] == [99] * 6
        made = add(mine, 1.0)
        assert [one[0] for one in session.gather([spoil(made) for _ in range(6)])] == [99] * 6
        assert made.result()[0] == 1.0
        made.result()[0] = 7.0
        assert add(made, 0.0).result()[0] == 1.0
    assert mine[0] == 0.0


@pytest.mark.parametrize("count", [3, 5_000, 300_000])
@pytest.mark.parametrize("holds", [False, True])
def test_a_call_sees_what_there_was_when_it_was_made(count: int, holds: bool, decide: Decide) -> None:
    decide(holds)
    table, words, values = np.ones(count), ["a"], [1, 2]

    def look(_: int) -> Any:
        return float(table.sum()), len(words), os.getpid()

    with auto(workers=1) as session:
        found = [session.submit(look, number) for number in range(2)]
        spoiled = spoil(values)
        table[:] = 0.0
        words.append("b")
        values[1] = 5
        found += [session.submit(look, number) for number in range(2)]
        seen = session.gather(found)
        assert [one[:2] for one in seen] == [(float(count), 1)] * 2 + [(0.0, 2)] * 2
        assert [one[2] == HOME for one in seen] == ([True, False, False, False] if holds else [True] * 4)
        assert spoiled.result() == [99, 2]


@pytest.mark.parametrize("holds", [False, True])
def test_failures_are_those_of_plain_calls(holds: bool, decide: Decide, tmp_path: Path) -> None:
    decide(holds)
    with auto(workers=1) as session:
        session.gather([add(1, 1), where()])
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                broken().result()
            with pytest.raises(DependencyError, match="broken"):
                add(broken(), 1).result()
        assert third_time(str(tmp_path / "diary")).result() == 3
        ignored = broken.options(on_failure="ignore")
        assert session.gather([ignored(), ignored()]) == [None, None]


@pytest.mark.parametrize("holds", [False, True])
def test_what_cannot_be_pickled_is_refused_at_once(holds: bool, decide: Decide) -> None:
    decide(holds)
    with auto(workers=1):
        for _ in range(3):
            with pytest.raises(EngineError, match="cannot be pickled"):
                lock().result()


def test_files_are_written_and_read(place: Path, decide: Decide) -> None:
    @wr.task
    def write(path: wr.OutFile, value: int) -> None:
        Path(path).write_text(str(value))

    @wr.task
    def read(path: wr.InFile) -> int:
        return int(Path(path).read_text())

    with auto() as session:
        write("a.txt", add(1, 2))
        one = add(read("a.txt"), 1)
        write("a.txt", one)
        assert session.gather([one, add(read("a.txt"), 10)]) == [4, 14]
    assert (place / "a.txt").read_text() == "4"


def test_a_killed_process_loses_nothing(decide: Decide, tmp_path: Path) -> None:
    @wr.task(memory="1 GB")
    def dies_once(diary: str, values: Any) -> Any:
        if not Path(diary).exists():
            Path(diary).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return values.sum()

    @wr.task(memory="1 GB")
    def dies(_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    with auto() as session:
        made = add(np.ones(300_000), 1.0)
        found = dies_once(str(tmp_path / "diary"), made)
        assert session.gather([found, add(found, 1.0)]) == [600_000.0, 600_001.0]
        with pytest.raises(TaskLostError):
            dies(made).result()
        assert add(made, 1.0).result()[0] == 3.0


def test_a_group_is_cancelled_wherever_its_calls_are(decide: Decide, tmp_path: Path) -> None:
    @wr.task
    def wait_for(path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.001)

    with auto(workers=1) as session:
        with session.group() as group:
            begun = wait_for(str(tmp_path / "go"))
            later = [add(1, number) for number in range(5)] + [add_apart(1, 1)]
        while not begun.running():
            time.sleep(0.001)
        assert later[0].cancel()
        group.cancel()
        assert all(one.cancelled() for one in later)
        (tmp_path / "go").touch()  # a thread goes on until its body has ended
        assert add(1, 1).result() == 2


@pytest.mark.filterwarnings("error::windrow.errors.GlobalsWarning")
def test_who_changes_a_global_is_told_so(decide: Decide) -> None:
    with auto() as session, pytest.raises(GlobalsWarning, match="COUNTS"):
        session.submit(uses_list, 0)


# -- with real measurements: bodies that surely hold the lock, or surely let go of it


def test_a_loop_of_python_ends_in_processes() -> None:
    def loop(count: int) -> int:
        for _ in range(count):
            pass
        return os.getpid()

    with auto() as session:
        for _ in range(100):  # rounds until it was seen
            if HOME not in session.gather([session.submit(loop, 1_000_000) for _ in range(20)]):
                break
        else:
            pytest.fail("it stayed on threads")


def test_who_sleeps_stays_on_threads() -> None:
    def nap(_: int) -> int:
        time.sleep(0.01)
        return os.getpid()

    with auto() as session:
        assert set(session.gather([session.submit(nap, one) for one in range(60)])) == {HOME}
