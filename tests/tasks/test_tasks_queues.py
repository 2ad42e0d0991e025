"""Short tasks wait in the queues of workers: that must never keep two of them apart that wait for each other."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from windrow.core.records import Task
from windrow.errors import TaskLostError
from windrow.tasks.weak_table import FEW, WeakTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def step(barrier: threading.Barrier | None = None) -> int:
    """A short task, or one that meets another: both are of one kind."""
    return -1 if barrier is None else barrier.wait(120)


def test_tasks_that_wait_for_each_other_meet_although_they_were_queued() -> None:
    with wr.Executor(2, engine="threads") as executor:
        for shorts in range(12):
            barrier = threading.Barrier(2)
            futures = [executor.submit(step) for _ in range(40 + shorts)]
            both = [executor.submit(step, barrier) for _ in range(2)]
            assert sorted(one.result(60) for one in both) == [0, 1]
            assert {one.result(60) for one in futures} == {-1}


def begin(begun: threading.Event | None = None, go: threading.Event | None = None) -> int:
    """A short task, or one that says when it has begun, and waits."""
    if begun is None or go is None:
        return -1
    begun.set()
    assert go.wait(60)
    return 1


def test_a_queued_task_that_has_begun_cannot_be_cancelled() -> None:
    """Threads tell late of such that they have begun; cancel() must know it at once."""
    with wr.Session(engine="threads", workers=1) as session:
        for _ in range(20):
            begun, go = threading.Event(), threading.Event()
            before = [session.submit(begin) for _ in range(30)]
            runs = session.submit(begin, begun, go)
            waits = session.submit(begin)
            assert begun.wait(60)
            assert not runs.cancel()
            assert runs.running()
            assert waits.cancel()
            go.set()
            assert runs.result(60) == 1
            assert {one.result(60) for one in before} == {-1}
            with pytest.raises(concurrent.futures.CancelledError):
                waits.result(60)


@pytest.mark.parametrize("engine", ["threads", "inline"])
def test_a_task_is_cancelled_or_runs_and_never_both(engine: str) -> None:
    ran: set[int] = set()
    with wr.Session(engine=engine, workers=2) as session:
        for turn in range(30):
            numbers = range(turn * 100, turn * 100 + 100)
            futures = [session.submit(ran.add, number) for number in numbers]
            cancelled = {n for n, one in zip(reversed(numbers), reversed(futures), strict=True) if one.cancel()}
            session.barrier(60)
            assert ran & set(numbers) == set(numbers) - cancelled


def wait_for(gate: Path | None = None) -> int:
    """A short task, or one that takes long, which nobody can know."""
    if gate is None:
        return -1
    gate.with_suffix(".runs").touch()
    until(gate.exists)
    return 1


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_what_waits_behind_a_long_task_goes_to_a_worker_that_has_nothing_to_do(engine: str, tmp_path: Path) -> None:
    gates = [tmp_path / "first", tmp_path / "second"]
    with wr.Session(engine=engine, workers=2) as session:
        try:
            scheduler = session._driver._scheduler
            while (scheduler.policy.predict(Task(0, "wait_for")) or 1.0) > 0.004:
                assert session.submit(wait_for).result(60) == -1
            long = [session.submit(wait_for, gate) for gate in gates]
            for gate in gates:
                until(gate.with_suffix(".runs").exists)
            shorts = [session.submit(wait_for) for _ in range(7)]
            until(lambda: scheduler.queues.queued == len(shorts))  # some at each worker
            gates[0].touch()
            assert [one.result(120) for one in shorts] == [-1] * 7
            assert not long[1].done()
        finally:
            for gate in gates:
                gate.touch()
        assert session.gather(long) == [1, 1]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_what_was_done_before_a_long_task_is_known_while_that_runs(engine: str, tmp_path: Path) -> None:
    """Reports of short tasks are sent together; nobody waits with them for one that takes long after all."""
    with wr.Session(engine=engine, workers=1) as session:
        for turn in range(4):
            gate = tmp_path / f"gate{turn}"
            shorts = [session.submit(wait_for) for _ in range(60)]
            long = session.submit(wait_for, gate)
            try:
                until(gate.with_suffix(".runs").exists)
                assert [one.result(120) for one in shorts] == [-1] * 60
                assert not long.done()
            finally:
                gate.touch()
            assert long.result(60) == 1


def end_at(number: int, bad: int) -> int:
    """A short task, or one that ends its process."""
    if number == bad:
        os._exit(3)
    return number


def test_a_crash_is_the_fault_of_the_task_that_ran_and_of_no_other() -> None:
    with wr.Session(engine="processes", workers=1) as session:
        for bad in (50, 3, 77):
            futures = [session.submit(end_at, number, bad) for number in range(100)]
            for number, one in enumerate(futures):
                if number == bad:
                    with pytest.raises(TaskLostError, match="exited with code 3"):
                        one.result(60)
                else:
                    assert one.result(60) == number
        lost = [one for one in session.watched.watch.rare if one["event"] == "WorkerLost"]
        assert len(lost) == 2 * 3  # each of them is tried twice, and nobody else is suspected


def nested(executor: Any, depth: int) -> int:
    """A task that waits for one that it calls."""
    return 1 + executor.submit(nested, executor, depth - 1).result(120) if depth else 0


def test_a_task_may_wait_for_one_that_it_calls() -> None:
    with wr.Executor(4, engine="threads") as executor:
        assert {one.result(60) for one in [executor.submit(nested, executor, 0) for _ in range(50)]} == {0}
        for shorts in range(8):
            futures = [executor.submit(nested, executor, 0) for _ in range(30 + shorts)]
            deep = executor.submit(nested, executor, 3)
            assert deep.result(60) == 3
            assert {one.result(60) for one in futures} == {0}


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_many_short_tasks_give_what_they_should_in_any_engine(engine: str) -> None:
    with wr.Executor(2, engine=engine) as executor:
        futures = [executor.submit(divmod, number, 7) for number in range(600)]
        assert [one.result(60) for one in futures] == [divmod(number, 7) for number in range(600)]


def test_a_session_does_not_grow_with_what_is_done_and_dropped() -> None:
    with wr.Session(engine="threads", workers=2) as session:
        for _ in range(10):
            for one in [session.submit(abs, -number) for number in range(500)]:
                one.result(60)
        del one
        gc.collect()
        graph = session._driver._scheduler.graph
        until = time.monotonic() + 120
        while len(graph.nodes) > 10 and time.monotonic() < until:
            session.submit(abs, 1).result(60)
        assert len(graph.nodes) <= 10
        assert len(graph.outputs) <= 10
        assert len(session.open) == 0
        assert len(session.calls._refs) <= 2 * FEW + 1


# -- the table


class Thing:
    """Something that can be referred to."""


def test_a_weak_table_gives_what_lives_and_nothing_else() -> None:
    table: WeakTable[int, Thing] = WeakTable()
    first, second = Thing(), Thing()
    table[1] = first
    table[2] = second
    assert table[1] is first
    assert table.get(2) is second
    assert table.get(3) is None
    assert len(table.values()) == 2
    del first
    gc.collect()
    assert table.get(1) is None
    with pytest.raises(KeyError):
        table[1]
    with pytest.raises(KeyError):
        table[3]
    assert table.values() == [second]


def test_a_weak_table_is_swept() -> None:
    table: WeakTable[int, Thing] = WeakTable()
    kept = [Thing() for _ in range(10)]
    for number in range(20 * FEW):
        table[number] = kept[number] if number < 10 else Thing()
    assert len(table._refs) <= FEW + 1
    assert [table[number] for number in range(10)] == kept
