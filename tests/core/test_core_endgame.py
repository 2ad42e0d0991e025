"""The rules for what idle workers take over from busy ones, one by one."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.records import Failure, FailureKind, Handle, InputSpec, Measurement, Rows, Worker
from windrow.core.scheduler import Scheduler
from windrow.errors import InternalError
from windrow.shape.fixed import Fixed

One = TypeVar("One")
USER = Failure(FailureKind.USER, "ValueError", "bad row")


class Sizes(Fixed):
    """Tasks of the sizes given, then all that is left; queues of a set length."""

    def __init__(self, *sizes: int, depth: int = 1) -> None:
        self.sizes = list(sizes)
        self.depth = depth

    def rows(self, request: Any) -> int:
        return self.sizes.pop(0) if self.sizes else 1000

    def window(self, task_s: float | None) -> int:
        return self.depth


def begin(shape: Sizes, rows: int, workers: int, **options: Any) -> tuple[Scheduler, list[orders.Launch]]:
    borders = tuple(range(0, rows + 1, 10))
    spec = InputSpec(id=0, category="data", rows=rows, borders=borders)
    scheduler = Scheduler([spec], Policies(shape), Options(**options))
    joined = [happened.WorkerJoined(Worker(number, 0)) for number in range(workers)]
    return scheduler, launches(send(scheduler, *joined))


def send(scheduler: Scheduler, *events: happened.Event, now: float = 0.0) -> list[orders.Command]:
    commands = scheduler.on(events, now)
    scheduler.validate()
    return commands


def only(kind: type[One], commands: list[orders.Command]) -> list[One]:
    return [command for command in commands if isinstance(command, kind)]


def launches(commands: list[orders.Command]) -> list[orders.Launch]:
    return only(orders.Launch, commands)


def of(launch: orders.Launch) -> tuple[int, int, int]:
    return launch.attempt, launch.worker, launch.incarnation


def started(launch: orders.Launch) -> happened.Started:
    return happened.Started(*of(launch))


def finished(launch: orders.Launch, wall: float, rows: tuple[Rows, ...] | None = None) -> happened.Finished:
    covered = launch.task.inputs if rows is None else rows
    handle = Handle(launch.attempt, *of(launch), covered)
    return happened.Finished(*of(launch), handle, Measurement(wall=wall))


# -- shrinking


def one_left(**options: Any) -> tuple[Scheduler, orders.Launch, list[orders.Command]]:
    """Let one worker be at 100 rows, for a second so far, and the other idle; 0.1 s a row."""
    scheduler, (small, large) = begin(Sizes(10, 100), 110, 2, **options)
    send(scheduler, started(small), started(large))
    commands = send(scheduler, finished(small, 1.0), now=1.0)
    return scheduler, large, commands


def test_a_running_task_is_asked_to_stop_half_way() -> None:
    scheduler, large, commands = one_left()
    # Ten of its rows are done by now, as far as anybody can tell; 45 of 90 make row 65.
    (shrink,) = only(orders.Shrink, commands)
    assert shrink == orders.Shrink(*of(large), 70)
    assert not only(orders.Shrink, send(scheduler, happened.Tick(), now=2.0))  # once at a time
    (launch,) = launches(send(scheduler, happened.Shrunk(*of(large), 80), now=2.0))
    assert launch.task.inputs == (Rows(0, 80, 110),)
    assert launch.worker != large.worker
    assert scheduler.standing().running == 100
    with pytest.raises(InternalError, match="does not cover"):
        scheduler.on([finished(large, 8.0)], 8.0)


def test_what_was_not_given_away_counts() -> None:
    scheduler, large, _ = one_left()
    (rest,) = launches(send(scheduler, happened.Shrunk(*of(large), 80), now=2.0))
    send(scheduler, finished(large, 7.0, (Rows(0, 10, 80),)), now=8.0)
    commands = send(scheduler, finished(rest, 3.0), now=9.0)
    assert scheduler.standing().running == 0
    assert [c for c in commands if isinstance(c, orders.Merge | orders.Fetch)]


def test_the_estimate_is_its_own_where_it_told() -> None:
    scheduler, (small, large) = begin(Sizes(10, 100), 110, 2)
    send(scheduler, started(small), started(large))
    send(scheduler, happened.Progress(*of(large), 60), now=1.0)
    commands = send(scheduler, finished(small, 1.0), now=1.0)
    # 40 rows are left, two thirds of a second by its own pace.
    assert only(orders.Shrink, commands) == [orders.Shrink(*of(large), 90)]


@pytest.mark.parametrize("stop", [110, 120, 5, 10])
def test_an_answer_that_moves_nothing(stop: int) -> None:
    scheduler, large, _ = one_left()
    if stop in (5, 10):
        with pytest.raises(InternalError, match="no unit border"):
            scheduler.on([happened.Shrunk(*of(large), stop)], 2.0)
        return
    assert not launches(send(scheduler, happened.Shrunk(*of(large), stop), now=2.0))
    assert scheduler.standing().running == 100
    assert not only(orders.Shrink, send(scheduler, happened.Tick(), now=9.0))  # it said no


def test_answers_that_are_late_double_or_stale_are_ignored() -> None:
    scheduler, large, _ = one_left()
    event = happened.Shrunk(*of(large), 80)
    (rest,) = launches(send(scheduler, event, now=2.0))
    assert send(scheduler, event, now=2.0) == []
    assert send(scheduler, happened.Shrunk(*of(rest), 100), now=2.0) == []  # was never asked
    stale = happened.Shrunk(large.attempt, large.worker, 7, 50)
    assert send(scheduler, stale, now=2.0) == []
    send(scheduler, finished(large, 7.0, (Rows(0, 10, 80),)), now=8.0)
    assert not launches(send(scheduler, event, now=8.0))


def test_a_single_unit_or_the_last_moments_are_left_alone() -> None:
    scheduler, (small, large) = begin(Sizes(10, 10), 20, 2)
    commands = send(scheduler, started(large), finished(small, 9.0), now=1.0)
    assert not only(orders.Shrink, commands)
    scheduler, (small, large) = begin(Sizes(10, 100), 110, 2)
    commands = send(scheduler, started(large), finished(small, 0.04), now=0.0)  # 0.4 s in all
    assert not only(orders.Shrink, commands)


def test_nobody_is_asked_while_there_is_something_to_cut() -> None:
    scheduler, (small, large) = begin(Sizes(10, 100, 10), 120, 2)
    send(scheduler, started(small), started(large))
    commands = send(scheduler, finished(small, 1.0), now=1.0)
    assert launches(commands)
    assert not only(orders.Shrink, commands)


# -- stealing


def queued() -> tuple[Scheduler, orders.Launch, orders.Launch]:
    """Let a worker run one task and have another in its queue, 4 s each, and a second one join."""
    scheduler, (first, second) = begin(Sizes(10, 40, 40, depth=2), 90, 1)
    (third,) = launches(send(scheduler, started(first), finished(first, 1.0), now=1.0))
    send(scheduler, started(second), now=1.0)
    return scheduler, second, third


def test_a_task_in_a_queue_is_given_to_an_idle_worker() -> None:
    scheduler, second, third = queued()
    commands = send(scheduler, happened.WorkerJoined(Worker(1, 0)), now=2.0)
    assert only(orders.Cancel, commands) == [orders.Cancel(*of(third))]
    assert not only(orders.Shrink, commands)
    (launch,) = launches(send(scheduler, happened.Cancelled(*of(third)), now=2.1))
    assert (launch.worker, launch.task.inputs) == (1, third.task.inputs)
    assert second.worker == 0


def test_a_task_that_would_start_soon_stays_where_it_is() -> None:
    scheduler, second, _third = queued()
    send(scheduler, happened.Progress(*of(second), 39), now=4.9)
    commands = send(scheduler, happened.WorkerJoined(Worker(1, 0)), now=4.9)
    assert not only(orders.Cancel, commands)


def test_a_task_that_began_before_it_was_called_back_counts() -> None:
    scheduler, second, third = queued()
    send(scheduler, happened.WorkerJoined(Worker(1, 0)), now=2.0)
    send(scheduler, finished(second, 4.0), started(third), now=5.0)
    commands = send(scheduler, finished(third, 4.0), now=9.0)
    assert scheduler.standing().held == 90
    assert only(orders.Merge, commands)


# -- running a straggler twice


def straggler() -> tuple[Scheduler, orders.Launch, orders.Launch]:
    """Let a task of one unit, which should take 1 s, hang; its copy is the second launch."""
    scheduler, (quick, slow) = begin(Sizes(10, 10), 20, 2, speculate=True, restart=True)
    send(scheduler, started(quick), started(slow))
    commands = send(scheduler, finished(quick, 1.0), now=1.0)
    assert not launches(commands)
    assert only(orders.WakeAt, commands)[-1].time == 3.0  # 3 * 1 s, 1 + 2 s
    assert not launches(send(scheduler, happened.Tick(), now=2.9))
    (copy,) = launches(send(scheduler, happened.Tick(), now=3.0))
    assert copy.task == slow.task
    assert copy.worker == quick.worker
    assert scheduler.standing().running == 10
    assert scheduler.spent.copies == 1
    return scheduler, slow, copy


def test_the_copy_of_a_straggler_may_be_first() -> None:
    scheduler, slow, copy = straggler()
    assert not launches(send(scheduler, started(copy), now=50.0))  # never a third
    commands = send(scheduler, finished(copy, 1.0), now=51.0)
    assert orders.Cancel(*of(slow)) in commands
    late = finished(slow, 50.0)
    assert orders.Discard(late.handle) in send(scheduler, late, now=52.0)
    assert scheduler.standing().held == 20
    assert scheduler.spent.retries == 0


def test_the_straggler_may_be_first_after_all() -> None:
    scheduler, slow, copy = straggler()
    commands = send(scheduler, finished(slow, 4.0), now=4.0)
    assert only(orders.Cancel, commands) == [orders.Cancel(*of(copy))]
    assert not launches(send(scheduler, happened.Cancelled(*of(copy)), now=4.0))
    assert scheduler.standing().running == 0


def test_a_run_ends_without_the_one_that_hangs() -> None:
    scheduler, slow, copy = straggler()
    send(scheduler, finished(copy, 1.0), now=5.0)
    fetched = [happened.Fetched(handle) for handle in scheduler.ledger.held.values()]
    commands = send(scheduler, *fetched, now=5.0)
    assert only(orders.Resolve, commands) == [orders.Resolve("complete", None, "")]
    assert slow.worker in scheduler.crew.workers


def test_when_one_is_lost_the_other_goes_on() -> None:
    scheduler, slow, copy = straggler()
    commands = send(scheduler, happened.WorkerLost(slow.worker, 0), now=4.0)
    assert not launches(commands)
    assert scheduler.standing().waiting == 0
    send(scheduler, finished(copy, 1.0), now=5.0)
    assert scheduler.standing().held == 20


@pytest.mark.parametrize("first", [0, 1])
def test_when_one_fails_the_other_decides(first: int) -> None:
    scheduler, *both = straggler()
    one, other = both[first], both[1 - first]
    commands = send(scheduler, happened.Failed(*of(one), USER), now=4.0)
    assert not only(orders.Resolve, commands)
    assert not only(orders.Cancel, commands)
    send(scheduler, finished(other, 1.0), now=5.0)
    assert scheduler.standing().held == 20
    assert not scheduler.stopping


def test_two_failures_decide_although_a_third_attempt_hangs() -> None:
    scheduler, slow, copy = straggler()
    commands = send(scheduler, started(copy), happened.Failed(*of(copy), USER), now=4.0)
    (again,) = launches(commands)  # it is still overdue
    commands = send(scheduler, happened.Failed(*of(again), USER), now=5.0)
    assert only(orders.Cancel, commands) == [orders.Cancel(*of(slow))]
    (resolve,) = only(orders.Resolve, commands)
    assert resolve.failure == USER


def test_a_shrink_that_is_answered_after_all_leaves_the_rows_to_the_copy() -> None:
    scheduler, large, commands = one_left(speculate=True)
    assert only(orders.Shrink, commands)
    (wake,) = only(orders.WakeAt, commands)
    (copy,) = launches(send(scheduler, happened.Tick(), now=wake.time))
    commands = send(scheduler, happened.Shrunk(*of(large), 80), now=wake.time)
    assert only(orders.Cancel, commands) == [orders.Cancel(*of(large))]
    send(scheduler, finished(large, 9.0, (Rows(0, 10, 80),)), now=wake.time)
    send(scheduler, finished(copy, 10.0), now=wake.time)
    assert scheduler.standing().held == 110


def test_nothing_runs_twice_unless_it_may() -> None:
    scheduler, (quick, slow) = begin(Sizes(10, 10), 20, 2)
    send(scheduler, started(quick), started(slow), finished(quick, 1.0), now=1.0)
    assert send(scheduler, happened.Tick(), now=1e6) == []
