"""Rows that used too much memory: run in smaller blocks, cut smaller, down to one row; nothing is lost and nothing goes on for ever."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.test_core_rows import A, feeder_of, known
from core_world import CRASH, ERROR, World, missing_rows
from windrow.core.parts import MOST_UNMADE
from windrow.core.policies import Answer, LaunchPolicy, Options, Policies, TooMuch
from windrow.core.records import EvaluateUnit, RunRows
from windrow.core.rows import MOST_SINGLE, RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.shape.fixed import Fixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.core.records import Task

FAILURES = {"error": ERROR, "crash": CRASH}


class Shrinking(LaunchPolicy):
    """Halves what was too much; first the blocks, if it may."""

    def __init__(self, *, blocks: bool) -> None:
        super().__init__()
        self.most = self.block = 0
        self._blocks = blocks

    def rows_at_once(self, category: str) -> tuple[int, int]:
        return self.most, self.block

    def exhausted(self, found: TooMuch) -> Answer:
        if self._blocks and not found.task.payload.block:
            self.block = max(found.task.size // 2, 1)
            return Answer("blocks", rows=self.block)
        if not found.by_rows:
            return Answer("fail", why="one row is too much")
        self.most = max(found.task.size // 2, 1)
        return Answer("split", rows=self.most)


def begin(rows: tuple[int, ...], policy: LaunchPolicy, chunk: int = 1000, unit: int = 10, **options: Any) -> World:
    feeder = RowFeeder(known(*rows, unit=unit), Policies(Fixed(chunk)), RowOptions(**(options or {"parts": True})))
    made = World(Scheduler(feeder, policy, Options()), 1)
    made.begin()
    return made


def go_on(made: World, capacity: int, *, blocks_help: bool = False) -> Iterator[RunRows]:
    """Run all, where rows at once beyond the capacity are too much; give the rows that were run."""
    for _ in range(10_000):
        if made.end is not None:
            return
        if not made.queues[A]:
            made.tell(*made.step())
            continue
        task = made.queues[A][0].task
        at_once = min(task.size, task.payload.block or task.size) if isinstance(task.payload, RunRows) else 0
        if not blocks_help:
            at_once = task.size
        much = isinstance(task.payload, RunRows) and at_once > capacity
        made.tell(*made.start(A), *(made.exhaust(A) if much else made.finish(A)))
        if isinstance(task.payload, RunRows) and not much:
            yield task.payload
    raise AssertionError("the run does not end")


@given(st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(1, 40), st.booleans())
def test_every_row_is_run_once_in_tasks_that_fit(rows: list[int], capacity: int, blocks: bool) -> None:
    made = begin(tuple(rows), Shrinking(blocks=blocks))
    done = list(go_on(made, capacity))
    assert all(sum(part.stop - part.start for part in one.rows) <= capacity for one in done)
    assert sum(part.stop - part.start for one in done for part in one.rows) == sum(rows)
    assert missing_rows(feeder_of(made).ledger) == []
    assert made.end is not None
    assert made.end.status == "complete"


def test_smaller_blocks_leave_the_rows_as_they_are() -> None:
    made = begin((30,), Shrinking(blocks=True))
    (done,) = go_on(made, 15, blocks_help=True)
    assert (done.rows[0].start, done.rows[0].stop, done.block) == (0, 30, 15)
    assert not any(isinstance(one.task.payload, EvaluateUnit) for one in made.launched)


@pytest.mark.parametrize("blocks", [False, True])
def test_a_row_that_is_too_much_by_itself_ends_the_run_with_the_reason(blocks: bool) -> None:
    made = begin((20,), Shrinking(blocks=blocks))
    list(go_on(made, 0))
    assert made.end is not None
    assert made.end.status == "failed"
    assert made.end.failure is not None
    assert "one row is too much" in made.end.failure.message


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=2),
    st.sampled_from([2, 5, 10, 13]),
    st.sampled_from([0.05, 0.2, 0.85, 1.0]),
    st.integers(0, 2**16),
    st.integers(0, 40),
)
def test_rows_that_are_too_much_alone_are_left_out_and_their_unit_if_they_are_many(
    sizes: list[int], unit: int, share: float, seed: int, lost: int
) -> None:
    rng = random.Random(seed)
    wanted = [(number, row) for number, size in enumerate(sizes) for row in range(size)]
    heavy = {one for one in wanted if rng.random() < share}
    feeder = RowFeeder(known(*sizes, unit=unit), Policies(Fixed(7)), RowOptions(parts=True, on_error="skip"))
    made = World(Scheduler(feeder, Shrinking(blocks=False), Options(restart=True)), 2)
    made.begin()
    for step in range(10_000):
        if made.end is not None:
            break
        busy = [life for life, queue in made.queues.items() if queue]
        if step == lost and busy:  # what it did is done again, also where rows were left out of it
            made.tell(*made.lose(rng.choice(busy)))
            continue
        heavies = [life for life in busy if not heavy.isdisjoint(rows_of(made.queues[life][0].task))]
        made.tell(*(made.exhaust(heavies[0]) if heavies else made.step()))
    failed = {
        (rows.input, row)
        for listed in feeder.ledger.failures.values()
        for rows, _ in listed
        for row in range(*rows[1:])
    }
    units = {(number, row // unit): 0 for number, row in wanted}
    for number, row in heavy:
        units[number, row // unit] += 1
    many = {
        one for one, count in units.items() if count > MOST_UNMADE or count == min(unit, sizes[one[0]] - one[1] * unit)
    }
    assert failed == heavy | {(number, row) for number, row in wanted if (number, row // unit) in many}
    assert feeder.ledger.done_rows == len(wanted) - len(failed)
    assert made.end is not None
    assert made.end.status == ("incomplete" if heavy else "complete")


def rows_of(task: Task) -> set[tuple[int, int]]:
    """List the rows that a task runs the steps on."""
    ranges = task.payload.rows if isinstance(task.payload, RunRows) else ()
    return {(rows.input, row) for rows in ranges for row in range(rows.start, rows.stop)}


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=4),
    st.integers(0, 40),
    st.integers(1, 30),
    st.sampled_from([{"parts": True}, {"halves": True}, {"halves": True, "on_error": "skip"}, {}]),
    st.sampled_from(["memory", *FAILURES]),
)
def test_no_task_is_cut_into_itself(rows: list[int], capacity: int, unit: int, options: Any, how: str) -> None:
    made = begin(tuple(rows), Shrinking(blocks=False), unit=unit, **options)
    failed: dict[int, set[tuple[int, int]]] = {}  # by task, which may be tried again as it is
    for _ in range(10_000):
        if made.end is not None:
            return
        if not made.queues[A]:
            made.tell(*made.step())
            continue
        task = made.queues[A][0].task
        if not isinstance(task.payload, RunRows) or task.size <= capacity:
            made.tell(*made.start(A), *made.finish(A))
            continue
        mine = {(part.input, row) for part in task.payload.rows for row in range(part.start, part.stop)}
        assert not any(mine == other for number, other in failed.items() if number != task.id)
        failed[task.id] = mine
        made.tell(*made.start(A), *(made.exhaust(A) if how == "memory" else made.fail(A, FAILURES[how])))
    raise AssertionError("the run does not end")


def test_rows_that_all_fail_are_not_looked_at_one_by_one() -> None:
    made = begin((1000, 1000), Shrinking(blocks=False), unit=1, halves=True, on_error="skip")
    while made.end is None:
        made.tell(*made.start(A), *made.fail(A))
    assert made.end.status == "failed"
    assert made.end.failure == ERROR
    assert feeder_of(made).left_out == MOST_SINGLE == feeder_of(made).ledger.failed_rows


@pytest.mark.parametrize(("of", "status"), [(10, "incomplete"), (5, "failed")])
def test_rows_that_are_exceptions_are_left_out(of: int, status: str) -> None:
    """One row of so many fails."""
    made = begin((1000, 1000), Shrinking(blocks=False), unit=1, halves=True, on_error="skip")
    while made.end is None:
        if not made.queues[A]:
            made.tell(*made.step())
            continue
        payload = made.queues[A][0].task.payload
        rows = payload.rows if isinstance(payload, RunRows) else ()
        bad = any(row % of == 0 for part in rows for row in range(part.start, part.stop))
        made.tell(*made.start(A), *(made.fail(A) if bad else made.finish(A)))
    assert made.end.status == status
    assert feeder_of(made).left_out == (200 if status == "incomplete" else 201)
