"""Tasks that read each other: when they run, what is made again, what ends with what, and what the user is told."""

from __future__ import annotations

from typing import Any

import pytest

from core_world import CRASH, KILL, READ, World
from invariants import validate
from windrow.core.commands import Discard, Fetch, Launch, OutputFailed, Recall, StopWorker, Take
from windrow.core.events import (
    CancelRequested,
    Closed,
    DrainRequested,
    Event,
    Finished,
    PoolChanged,
    Released,
    Submitted,
    Tick,
    Wanted,
    WorkerJoined,
)
from windrow.core.policies import Options
from windrow.core.records import (
    DRIVER,
    ONE_CORE,
    ONE_IO,
    Failure,
    FailureKind,
    Handle,
    Life,
    Made,
    Measurement,
    Needs,
    Task,
)
from windrow.core.retry import EXPLAINED, MOST_LOSSES
from windrow.core.scheduler import Scheduler
from windrow.core.transitions import TaskState
from windrow.errors import UsageError

A, B = Life(0, 0), Life(1, 0)


def task(number: int, *reads: str, makes: int = 1, **more: Any) -> Task:
    names = tuple(f"{number}.{part}" for part in range(makes))
    return Task(number, more.pop("category", "t"), reads=reads, makes=names, **more)


def world(*tasks: Task, workers: int = 1, shares: bool = False, pools: Needs | None = None, **options: Any) -> World:
    wanted: dict[str, Any] = {"open": True, **options}
    made = World(
        Scheduler(options=Options(**wanted)),
        workers,
        shares=shares,
        offers=ONE_CORE if pools is None else Needs(),
        pools=() if pools is None else ("node",),
    )
    if pools is not None:
        made.tell(PoolChanged("node", pools))
    made.begin()
    if tasks:
        made.tell(Submitted((), tasks))
    return made


def at(made: World, life: Life) -> list[int]:
    return [one.task.id for one in made.queues[life]]


def state(made: World, number: int) -> str:
    node = made.scheduler.graph.nodes.get(number)
    return "forgotten" if node is None else node.state.name


def exists(made: World, name: str) -> bool:
    output = made.scheduler.graph.outputs.get(name)
    return output is not None and output.made


def go(made: World, life: Life = A, **more: Any) -> list[Any]:
    return made.tell(*made.start(life), *made.finish(life, **more))


# -- when tasks run


@pytest.mark.parametrize("shares", [True, False])
def test_of_a_tree_of_large_values_there_are_few_at_a_time(shares: bool) -> None:
    """What is queued runs before the tasks that read it and let it go: of large outputs few are queued."""
    leaves = [task(number, category="leaf") for number in range(1, 101)]
    tasks, level = list(leaves), [one.makes[0] for one in leaves]
    while len(level) > 1:
        adders = [
            task(len(tasks) + 1 + number, *level[2 * number : 2 * number + 2], category="add")
            for number in range(len(level) // 2)
        ]
        tasks += adders
        level = [*[one.makes[0] for one in adders], *level[2 * len(adders) :]]
    made = world(workers=2, shares=shares, ahead=True)
    made.size = 8_000_000
    first = [task(number, category=name) for number, name in ((1001, "leaf"), (1002, "add"))]  # so that both are known
    made.tell(Submitted((), tuple(first)))
    for life in (A, B):
        go(made, life, wall=0.001)
    made.tell(Released(("1001.0", "1002.0")), Submitted((), tuple(leaves)))
    made.tell(Submitted((), tuple(tasks[100:])), Released(tuple(one.makes[0] for one in tasks[:-1])))
    most = 0
    while made.scheduler.graph.open:
        for life in (A, B):
            if made.queues[life]:
                go(made, life, wall=0.001)
            if made.fetches:
                made.tell(*made.bring())
        most = max(most, sum(bool(one.holders) for one in made.scheduler.graph.outputs.values()))
    assert exists(made, level[0])
    assert most <= 25


def test_a_task_is_ready_when_all_it_reads_exists_and_readers_do_not_wait_for_other_outputs() -> None:
    made = world(task(1, makes=2), task(2, "1.0"), task(3, "1.0", "1.1"), workers=3)
    assert at(made, A) == [1]
    made.tell(*made.start(A), *made.release(A, "1.0"))
    assert (state(made, 2), state(made, 3)) == ("FETCHING", "WAITING")
    made.tell(*made.bring())
    assert state(made, 2) == "RUNNING"
    go(made)
    assert state(made, 3) == "RUNNING"
    assert [one.handle.output for one in made.made] == ["1.0"]


def test_priority_first_then_readers_then_the_order_of_submission() -> None:
    first = task(1)
    made = world(first)
    made.tell(Submitted((), (task(2), task(3, priority=1), task(4), task(5, "1.0"))))
    order = []
    while made.queues[A]:
        order.append(made.queues[A][0].task.id)
        made.tell(*made.start(A), *made.finish(A, wall=1.0))
    assert order == [1, 3, 5, 2, 4]


def test_a_task_comes_after_others_whatever_their_end() -> None:
    made = world(task(1), task(2, after=(1,)), workers=2)
    assert at(made, B) == []
    made.tell(*made.start(A), *made.fail(A))
    assert state(made, 2) == "RUNNING"
    made.tell(Submitted((), (task(3, after=(1,)),)))  # it has ended
    assert state(made, 3) == "RUNNING"


def test_what_is_read_and_nobody_makes_is_refused_and_nothing_changes() -> None:
    made = world(task(1))
    for wrong, words in (
        ((task(2, "1.O"),), r"task 2 reads '1\.O', which no task makes.*'1\.0'"),
        ((task(2, "3.0"), task(3)), "which no task makes"),
        ((task(1),), "submitted twice"),
        ((task(4), task(4)), "submitted twice"),
        ((Task(5, "t", makes=("1.0",)),), "task 1 makes that too"),
        ((Task(5, "t", makes=("",)),), "needs a name"),
        ((task(5, after=(9,)),), "was not submitted before"),
    ):
        with pytest.raises(UsageError, match=words):
            made.scheduler.on([Submitted((), wrong)], 0.0)
        validate(made.scheduler)
    assert list(made.scheduler.graph.nodes) == [1]


def test_a_task_goes_to_the_worker_that_keeps_most_of_what_it_reads() -> None:
    made = world(task(1), task(2), workers=2)
    made.tell(*made.start(A), *made.finish(A), *made.start(B), *made.finish(B))
    made.stores[A].clear()
    made.tell(Submitted((), (task(3, "2.0"),)))
    assert at(made, B) == [3]


def test_an_idle_worker_is_not_left_idle_for_the_sake_of_what_another_keeps() -> None:
    made = world(task(1), workers=2)
    go(made)
    made.tell(Submitted((), (task(2, "1.0"), task(3, "1.0"))))
    assert (at(made, A), state(made, 2)) == ([3], "FETCHING")
    made.tell(*made.bring())
    (launch,) = made.queues[B]
    assert (launch.task.id, launch.bring) == (2, (0,))


def test_what_was_brought_to_a_worker_stays_until_it_is_discarded_everywhere() -> None:
    made = world(task(1), workers=2)
    go(made)
    made.tell(Submitted((), tuple(task(number, "1.0") for number in range(2, 9))))
    made.tell(*made.bring())
    assert [one.bring for one in made.launched if one.life == B] == [(0,), (), ()]
    while made.queues[A] or made.queues[B]:
        for life in (A, B):
            if made.queues[life]:
                go(made, life)
    made.tell(Released(("1.0",)))
    handle = Handle("1.0", 1)
    assert not any(handle in store for store in made.stores.values())


def test_before_a_worker_begins_what_may_take_long_it_sends_what_others_could_use() -> None:
    made = world(task(1), task(2), workers=2)
    go(made)
    made.tell(Submitted((), (task(3, "1.0", after=(2,)), task(4), task(5))))
    assert not made.fetches
    go(made, B)
    assert made.fetches or at(made, A) == [3] or at(made, B) == [3]


# -- outputs


def test_an_output_is_brought_when_it_is_wanted_and_goes_when_it_is_released() -> None:
    made = world(task(1))
    go(made)
    assert [one for one in made.tell(Wanted("1.0")) if isinstance(one, Fetch)]
    (take,) = [one for one in made.tell(*made.bring()) if isinstance(one, Take)]
    assert (take.mine, take.about) == (False, None)
    assert [one for one in made.tell(Wanted("1.0")) if isinstance(one, Take)]
    (gone,) = [one for one in made.tell(Released(("1.0",))) if isinstance(one, Discard)]
    assert set(gone.holders) == {A, DRIVER}
    assert state(made, 1) == "forgotten"


def test_what_nobody_wants_is_dropped_as_soon_as_it_is_made() -> None:
    made = world(task(1), task(2, "1.0"))
    made.tell(Released(("1.0",)), Released(("2.0",)))
    go(made)
    assert exists(made, "1.0")
    commands = go(made)
    assert [one.handle.output for one in commands if isinstance(one, Discard)] == ["1.0", "2.0"]
    assert made.scheduler.graph.nodes == {}


def test_a_lost_output_is_made_again_with_all_that_is_gone_before_it_and_nothing_else() -> None:
    made = world(task(1), task(2, "1.0"), task(9), workers=1, restart=True)
    made.tell(Released(("1.0",)), Released(("9.0",)))
    while made.queues[A]:
        go(made)
    ends = {number: len(told) for number, told in made.ends.items()}
    made.tell(*made.lose(A))
    assert (state(made, 1), state(made, 2), state(made, 9)) == ("READY", "WAITING", "forgotten")
    made.tell(*made.begin_life())
    while made.queues[Life(0, 1)]:
        go(made, Life(0, 1))
    assert exists(made, "2.0")
    assert {number: len(told) for number, told in made.ends.items()} == ends  # nobody's business


def test_a_brought_output_survives_its_worker() -> None:
    made = world(task(1), restart=True)
    go(made, here=True)
    made.tell(*made.lose(A))
    assert (state(made, 1), exists(made, "1.0")) == ("DONE", True)


def test_an_output_that_cannot_leave_its_worker_fails_its_maker_and_its_readers() -> None:
    made = world(task(1), task(2, "1.0"), workers=1)
    go(made)
    made.tell(Wanted("1.0"))
    made.tell(*made.bring(Failure(FailureKind.USER, "PicklingError", "no")))
    assert [one.state for one in made.ends[1]] == ["done", "failed"]


def test_an_output_that_ends_its_worker_whenever_it_is_sent_is_given_up() -> None:
    made = world(task(1), restart=True)
    made.tell(Wanted("1.0"))
    for _ in range(30):
        if any(one.state == "failed" for one in made.ends.get(1, ())):
            break
        if made.fetches:
            made.tell(*made.lose(made.fetches[0].source, CRASH))
        elif made.starting:
            made.tell(*made.begin_life())
        else:
            go(made, next(iter(made.lives.values())))
    assert "while it was being pickled" in made.ends[1][-1].failure.message  # type: ignore[union-attr]


def test_a_stream_makes_what_it_had_not_announced_and_a_shorter_one_ends_its_readers() -> None:
    made = world(Task(1, "t", makes=("1.end",)), restart=True)
    made.tell(*made.start(A), *made.release(A, "1.0"))
    assert made.made[0].handle.output == "1.0"
    made.tell(Submitted((), (task(2, "1.0"),)), Wanted("1.0"))
    made.tell(*made.lose(A))
    made.tell(*made.begin_life())
    commands = go(made, Life(0, 1))
    assert made.ends[2][0].state == "failed"
    assert [one.output for one in commands if isinstance(one, OutputFailed)] == ["1.0"]


def test_a_restarted_task_leaves_what_it_released() -> None:
    made = world(task(1, makes=2, retries=1), task(2, "1.0"), workers=2)
    made.tell(*made.start(A), *made.release(A, "1.0", "first"))
    made.tell(*made.bring())
    made.tell(*made.fail(A))
    assert exists(made, "1.0")
    go(made)
    again = [one for one in made.commands if isinstance(one, Discard) and one.handle.attempt == 3]
    assert [one.handle.output for one in again] == ["1.0"]


# -- tasks that cannot be restarted


def test_outputs_of_a_task_that_cannot_be_restarted_are_given_out_when_it_has_ended_and_they_are_home() -> None:
    made = world(task(1, makes=2, restartable=False), task(2, "1.0"), workers=2, restart=True)
    made.tell(*made.start(A), *made.release(A, "1.0"))
    assert made.made == []
    go(made)
    assert (state(made, 1), state(made, 2)) == ("HOMING", "WAITING")
    assert 1 not in made.ends
    made.tell(*made.bring())
    assert state(made, 1) == "HOMING"
    made.tell(*made.bring())
    assert (state(made, 1), state(made, 2)) == ("DONE", "RUNNING")
    assert {one.output for one in made.ends[1][0].made} == {"1.0", "1.1"}


def test_such_a_task_begins_anew_when_its_worker_is_lost_on_the_way_and_nobody_has_seen_anything() -> None:
    made = world(task(1, makes=2, restartable=False), task(2, "1.0"), workers=1, restart=True)
    made.tell(*made.start(A), *made.release(A, "1.0"))
    go(made)
    made.tell(*made.bring())
    made.tell(*made.lose(A))
    assert not exists(made, "1.0")
    assert made.stores[DRIVER] == {}
    made.tell(*made.begin_life())
    go(made, Life(0, 1), here=True)
    assert state(made, 2) == "RUNNING"


def test_with_shared_memory_nothing_has_to_come_home() -> None:
    made = world(task(1, restartable=False), task(2, "1.0"), shares=True)
    go(made)
    assert (state(made, 1), state(made, 2)) == ("DONE", "RUNNING")


# -- failures


def test_a_user_error_is_tried_again_within_the_budget_then_dependents_fail_with_the_root() -> None:
    made = world(task(1, retries=1), task(2, "1.0"), task(3, "2.0"), task(4), workers=1)
    made.tell(*made.start(A), *made.fail(A))
    assert 1 not in made.ends
    while made.queues[A]:
        if made.queues[A][0].task.id == 1:
            made.tell(*made.start(A), *made.fail(A))
        else:
            go(made)
    failures = {number: told[0].failure for number, told in made.ends.items()}
    assert failures[4] is None
    assert failures[3] is not None
    assert "task 3 did not run because task 1 failed: no" in failures[3].message
    assert failures[3].since == 2


def test_a_final_error_is_not_tried_again() -> None:
    made = world(task(1, retries=5))
    made.tell(*made.start(A), *made.fail(A, Failure(FailureKind.USER, "X", "no", final=True)))
    assert made.ends[1][0].state == "failed"


def test_a_bug_always_stops() -> None:
    made = world(task(1))
    bug = Failure(FailureKind.INTERNAL, "Bug", "ours")
    made.tell(*made.start(A), *made.fail(A, bug))
    assert made.end is not None
    assert made.end.failure == bug


def test_reading_is_tried_again_after_a_pause() -> None:
    made = world(task(1), retries=1)
    made.tell(*made.start(A), *made.fail(A, READ))
    assert state(made, 1) == "DELAYED"
    assert made.wake == pytest.approx(0.1)
    made.now = 0.2
    made.tell(Tick())
    made.tell(*made.start(A), *made.fail(A, READ))
    assert made.ends[1][0].state == "failed"


def test_losses_are_free_for_long_and_crashes_are_counted() -> None:
    for failure, times in ((KILL, MOST_LOSSES), (CRASH, 2)):
        made = world(task(1), restart=True)
        for number in range(times):
            assert 1 not in made.ends
            life = Life(0, number)
            made.tell(*made.start(life), *made.lose(life, failure))
            made.now += 10
            made.tell(Tick())
            if made.starting:
                made.tell(*made.begin_life())
        assert made.ends[1][0].state == "failed"


def test_a_task_is_not_at_fault_for_ends_of_workers_in_whose_queue_it_waited_or_that_others_explain() -> None:
    made = world(task(1), restart=True)
    for number in range(3 * MOST_LOSSES):
        made.tell(*made.lose(Life(0, number), Failure(FailureKind.CRASHED, EXPLAINED, "another's")))
        made.now += 10
        made.tell(Tick())
        if not made.starting:
            break
        made.tell(*made.begin_life())
    assert 1 not in made.ends or made.end is not None


def test_a_task_that_was_too_large_gets_twice_the_memory_once() -> None:
    offers = Needs.of({"cores": 2, "memory": 8e9})
    made = world(task(1, needs=Needs.of({"cores": 1, "memory": 3e9})), pools=offers)
    (launch,) = made.queues[A]
    assert launch.limits == Needs.of({"memory": 3e9})
    made.tell(*made.start(A), *made.exhaust(A, limit=3e9))
    (launch,) = made.queues[A]
    assert dict(launch.task.needs.amounts)["memory"] == dict(launch.limits.amounts)["memory"] == 6e9
    made.tell(*made.start(A), *made.exhaust(A, limit=6e9))
    failure = made.ends[1][0].failure
    assert failure is not None
    assert "asked for memory='3 GB', and was tried once more with 6 GB" in failure.message
    made = world(task(1, needs=Needs.of({"cores": 1, "memory": 5e9})), pools=offers)
    made.tell(*made.start(A), *made.exhaust(A, limit=5e9))
    assert made.ends[1][0].state == "failed"  # nobody has 10 GB


def test_a_group_or_a_task_is_cancelled_with_its_dependents_and_holds_its_worker_until_it_returns() -> None:
    made = world(task(1, group=7), task(2, "1.0"), task(3, group=8))
    made.tell(*made.start(A))
    made.tell(CancelRequested("no", frozenset({7})))
    assert {number: told[0].state for number, told in made.ends.items()} == {1: "cancelled", 2: "cancelled"}
    assert at(made, A) == [1]
    made.tell(*made.finish(A))
    assert at(made, A) == [3]
    assert made.stores[A] == {}
    made.tell(CancelRequested("no", task=3))
    assert made.ends[3][0].state == "cancelled"


def test_a_deadline_is_noticed_without_events() -> None:
    made = world(task(1, deadline=5.0), task(2, deadline=1.0))
    assert made.wake == 1.0
    made.now = 6.0
    made.tell(Tick())
    assert made.ends[1][0].state == made.ends[2][0].state == "failed"
    assert made.ends[2][0].failure is not None
    assert "was not done by its deadline" in made.ends[2][0].failure.message


def test_cancelling_the_run_ends_all_tasks_and_brings_what_is_waited_for() -> None:
    made = world(task(1), task(2))
    go(made)
    made.tell(Wanted("1.0"))
    made.tell(CancelRequested("stop"))
    assert made.end is None
    made.tell(*made.start(A), *made.finish(A))
    made.tell(*made.bring())
    assert made.end is not None
    assert made.end.status == "cancelled"
    assert [take.handle.output for take, _ in made.taken] == ["1.0"]


def test_an_open_run_waits_for_what_is_submitted_next() -> None:
    made = world(task(1))
    go(made)
    assert made.end is None
    made.tell(Submitted((), (task(2),)), Closed())
    assert made.end is None
    go(made)
    assert made.end is not None
    assert made.end.status == "complete"
    assert [made.ends[number][0].state for number in (1, 2)] == ["done", "done"]


def test_chains_longer_than_the_stack() -> None:
    tasks = [task(1), *[task(number, f"{number - 1}.0") for number in range(2, 3000)]]
    made = World(Scheduler(options=Options(open=True)), 1, validate=False)
    made.begin()
    made.tell(Submitted((), tuple(tasks)))
    made.tell(*made.start(A), *made.fail(A))
    assert all(made.ends[one.id][0].state == "failed" for one in tasks)


# -- queues


def short(number: int = 20, workers: int = 1, **options: Any) -> World:
    made = world(task(1000), workers=workers, **options)
    go(made, wall=0.001)
    made.tell(Submitted((), tuple(task(one) for one in range(1, number + 1))))
    return made


def test_short_tasks_wait_in_the_queue_of_a_worker_and_hold_what_one_of_them_needs() -> None:
    made = short()
    assert len(made.queues[A]) == 20
    first, *later = made.queues[A]
    assert not first.queued
    assert all(one.queued and one.grant == first.grant for one in later)
    made.tell(*made.lose(A))
    assert all(node.tries.losses == 0 for node in made.scheduler.graph.open.values() if node.id != 1)


def test_long_tasks_and_tasks_of_other_needs_are_not_queued() -> None:
    made = world(task(1000))
    go(made, wall=1.0)
    made.tell(Submitted((), (task(1), task(2))))
    assert len(made.queues[A]) == 1
    made = short(1)
    made.tell(Submitted((), (task(2, needs=Needs.of({"cores": 0.5})), task(3))))
    assert len(made.queues[A]) == 1


def test_half_of_a_queue_is_called_back_for_an_idle_worker() -> None:
    made = short()
    made.now += 1.0
    commands = made.tell(WorkerJoined(made.worker(B)))
    recalled = [one.attempt for one in commands if isinstance(one, Recall)]
    assert len(recalled) == 10
    while made.recalled:
        made.tell(*made.give_back())
    assert len(made.queues[B]) >= 5


def test_a_short_task_is_launched_behind_what_it_reads_and_given_back_if_that_came_to_nothing() -> None:
    made = world(task(1000), ahead=True)
    go(made, wall=0.001)
    made.tell(Submitted((), (task(1), task(2, "1.0"), task(3, "2.0"))))
    assert [(one.task.id, one.ahead) for one in made.queues[A]] == [(1, False), (2, True), (3, True)]
    assert made.queues[A][1].inputs == (Handle("1.0", made.queues[A][0].attempt),)
    made.tell(*made.start(A), *made.fail(A))
    assert {number: told[0].state for number, told in made.ends.items() if number < 1000} == dict.fromkeys(
        (1, 2, 3), "failed"
    )


# -- workers


def test_a_drained_worker_hands_over_what_it_keeps() -> None:
    made = world(task(1), workers=2)
    go(made)
    commands = made.tell(DrainRequested(A, "why not"))
    assert [type(one) for one in commands] == [Fetch]
    commands = made.tell(*made.bring())
    assert [one.life for one in commands if isinstance(one, StopWorker)] == [A]
    made.tell(*made.lose(A, None))
    assert exists(made, "1.0")
    assert made.scheduler.workers.losses == 0


def test_a_drained_worker_gives_back_what_it_has_not_begun() -> None:
    made = short()
    first, *waiting = made.queues[A]
    made.tell(*made.start(A))
    made.tell(WorkerJoined(made.worker(B)))
    made.tell(DrainRequested(A, "it is to go"))
    while made.recalled:
        made.tell(*made.give_back())
    assert made.queues[A] == [first]
    assert len(made.queues[B]) == len(waiting) > 10


def test_workers_for_input_and_output_come_when_a_task_needs_one_and_take_nothing_else() -> None:
    made = world(task(1), io_workers=2)
    made.tell(Submitted((), (task(2, needs=ONE_IO), task(3, needs=ONE_IO), task(4))))
    order, second = made.starting
    assert order.io
    made.tell(*made.begin_life())
    made.tell(*made.begin_life())
    assert at(made, order.life) == [2]
    assert at(made, second.life) == [3]
    assert (made.queues[order.life][0].grant, at(made, A)) == ((), [1])
    made.tell(*made.finish(order.life))
    assert at(made, order.life) == []
    made.tell(*made.finish(A))
    assert at(made, A) == [4]


def test_reports_of_the_past_are_no_news() -> None:
    made = world(task(1), restart=True)
    (launch,) = made.queues[A]
    made.tell(*made.lose(A))
    late: Event = Finished(launch.attempt, A, (Made("1.0"),), Measurement())
    (gone,) = [one for one in made.tell(late) if isinstance(one, Discard)]
    assert gone.handle == Handle("1.0", launch.attempt)
    assert state(made, 1) == TaskState.READY.name


def test_where_waiting_went_is_told_with_the_end() -> None:
    made = world(task(1), task(2, "1.0"))
    made.now = 1.0
    made.tell(*made.start(A))
    made.now = 3.0
    made.tell(*made.finish(A))
    made.now = 4.0
    made.tell(*made.start(A))
    made.now = 4.5
    made.tell(*made.finish(A))
    assert dict(made.ends[1][0].spent) == {"queue": 1.0, "run": 2.0}
    assert dict(made.ends[2][0].spent) == {"inputs": 3.0, "queue": 1.0, "run": 0.5}
    assert isinstance(made.launched[0], Launch)


def test_what_ran_is_no_queue_where_beginning_and_end_are_told_together() -> None:
    made = world(task(1))
    made.now = 3.0
    made.tell(*made.start(A), *made.finish(A, wall=2.0))
    assert dict(made.ends[1][0].spent) == {"queue": 1.0, "run": 2.0}


def test_what_a_task_waits_for_is_not_what_one_like_it_waited_for_before() -> None:
    large = Needs.of({"memory": 3.0})
    made = world(task(1, needs=large), task(2, needs=large), workers=2, pools=Needs.of({"cores": 2, "memory": 4.0}))
    made.now = 1.0
    made.tell(*made.start(A), *made.finish(A))
    made.now = 2.0
    made.tell(*made.start(B), *made.finish(B))
    assert dict(made.ends[2][0].spent)["memory"] == 1.0
    made.tell(Submitted((), (task(3), task(4))))
    made.tell(Submitted((), (task(5, needs=large),)))
    made.now = 3.0
    made.tell(*made.start(B), *made.finish(B))
    made.now = 4.0
    made.tell(*made.start(B), *made.finish(B))
    assert dict(made.ends[5][0].spent)["worker"] == 1.0
