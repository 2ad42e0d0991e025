"""Pools, places and grants: three tasks of 2.1 GB fit a node of 8 GB, nobody waits for ever, and many kinds cost little."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_world import World
from windrow.core.events import CancelRequested, Closed, Finished, PoolChanged, Released, Submitted, WorkerJoined
from windrow.core.policies import Answer, LaunchPolicy, Options, TooMuch, Tries
from windrow.core.records import ONE_CORE, Life, Measurement, Needs, Task, Worker
from windrow.core.scheduler import Scheduler

A = Life(0, 0)


def node(workers: int, **offers: float) -> World:
    made = World(Scheduler(options=Options(open=True)), workers, offers=Needs(), pools=("node",))
    made.tell(PoolChanged("node", Needs.of(offers), ("gpu",)))
    made.begin()
    return made


def needing(number: int, **amounts: float) -> Task:
    return Task(number, "t", makes=(f"{number}.0",), needs=Needs.of(amounts))


def running(made: World) -> list[int]:
    return sorted(one.task.id for queue in made.queues.values() for one in queue)


def test_three_tasks_of_2_1_gb_fit_a_node_of_8_gb_and_a_task_of_many_cores_takes_one_place() -> None:
    made = node(8, cores=8, memory=8e9)
    made.tell(Submitted((), tuple(needing(number, cores=1, memory=2.1e9) for number in range(1, 6))))
    assert running(made) == [1, 2, 3]
    made.tell(Submitted((), (needing(9, cores=5),)))
    assert running(made) == [1, 2, 3, 9]
    made.tell(Submitted((), (needing(10, cores=1),)))
    assert running(made) == [1, 2, 3, 9]  # all cores are taken
    made.tell(*made.finish(made.launched[0].life))
    assert running(made) == [2, 3, 4, 9]


def test_a_worker_runs_one_task_at_a_time_whatever_it_needs() -> None:
    made = node(1, cores=8, licence=8)
    made.tell(Submitted((), (needing(1, licence=1), needing(2, licence=1), Task(3, "t", needs=Needs()))))
    assert running(made) == [1]


def test_a_resource_comes_from_the_first_pool_that_has_it_whole() -> None:
    made = World(Scheduler(options=Options(open=True)), 0)
    made.tell(PoolChanged("left", Needs.of({"gpu": 1})), PoolChanged("right", Needs.of({"gpu": 2})))
    for number, pools in enumerate([("left", "right"), ("left",), ("left", "right")]):
        life = Life(number, 0)
        made.worker(life)
        made.tell(WorkerJoined(Worker(life, ONE_CORE, pools)))
    made.tell(Submitted((), (needing(1, gpu=2, cores=1), needing(2, gpu=1), needing(3, gpu=1))))
    grants = {one.task.id: {(part.pool, part.name) for part in one.grant} for one in made.launched}
    assert grants[1] == {("worker 0.0", "cores"), ("right", "gpu")}
    assert grants[2] == {("left", "gpu")}
    assert 3 not in grants


def test_devices_are_granted_by_number_and_given_back() -> None:
    made = node(3, cores=4, gpu=2)
    made.tell(Submitted((), tuple(needing(number, gpu=1) for number in (1, 2, 3))))
    units = [part.units for one in made.launched for part in one.grant]
    assert units == [(0,), (1,)]
    made.tell(*made.finish(made.launched[1].life))
    assert made.launched[-1].grant[0].units == (1,)


def keeping(number: int, **amounts: float) -> Task:
    """A task whose room on the disk lasts as long as its output."""
    needs = Needs(Needs.of(amounts).amounts, lasting=(("disk", f"{number}.0"),))
    return Task(number, "t", makes=(f"{number}.0",), needs=needs)


def disk(made: World) -> float:
    return made.scheduler.resources.pools["node"].taken.get("disk", 0)


def test_a_grant_may_outlive_its_attempt_and_goes_with_the_output() -> None:
    made = node(3, cores=4, disk=10)
    made.tell(Submitted((), (keeping(1, cores=1, disk=6), keeping(2, cores=1, disk=6))))
    assert running(made) == [1]
    made.tell(*made.finish(made.launched[0].life))
    assert (running(made), disk(made)) == ([], 6)
    made.tell(Submitted((), (needing(3, cores=4),)))  # of the rest nothing is kept
    assert running(made) == [3]
    made.tell(*made.finish(made.launched[1].life), Released(("1.0",)))
    assert (running(made), disk(made)) == ([2], 6)


def test_what_failed_or_was_lost_keeps_nothing() -> None:
    made = node(1, cores=4, disk=10)
    made.tell(Submitted((), (keeping(1, cores=1, disk=6),)))
    made.tell(*made.start(A), *made.fail(A))
    assert disk(made) == 0
    made.tell(Submitted((), (keeping(2, cores=1, disk=6),)))
    made.tell(*made.finish(A))
    assert disk(made) == 6
    made.tell(*made.lose(A))
    assert disk(made) == 0


def test_what_waits_for_room_that_outputs_keep_is_told_so_once_nobody_can_free_it() -> None:
    made = node(1, cores=4, disk=10)
    made.tell(Submitted((), (keeping(1, cores=1, disk=6), keeping(2, cores=1, disk=6))))
    made.tell(*made.finish(A))
    assert not made.ends.get(2)
    made.tell(Closed())
    (end,) = made.ends[2]
    assert end.failure is not None
    assert "disk=6" in end.failure.message


class Learning(LaunchPolicy):
    """A policy that gives rows twice as much memory after each try, and remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.peaks: list[int] = []

    def grant(self, task: Task, tries: Tries) -> tuple[Needs, Needs]:
        memory = Needs.of({"memory": 2.0**tries.exhaustions})
        return Needs.of({"cores": 1, "memory": 2.0**tries.exhaustions}), memory

    def seen(self, task: Task, measured: Measurement) -> bool:
        self.peaks.append(measured.peak_memory)
        return False

    def exhausted(self, found: TooMuch) -> Answer:
        return Answer("larger", found.task.needs) if found.tries.exhaustions < 3 else Answer("fail")


def test_a_policy_says_what_each_launch_is_given_and_answers_exhaustion_and_sees_memory() -> None:
    policy = Learning()
    made = World(Scheduler(policy=policy, options=Options(open=True)), 1, offers=Needs(), pools=("node",))
    made.tell(PoolChanged("node", Needs.of({"cores": 1, "memory": 8})))
    made.begin()
    made.tell(Submitted((), (needing(1, cores=1), needing(2, cores=1))))
    for _ in range(2):
        made.tell(*made.start(A), *made.exhaust(A))
    made.tell(
        *[
            event._replace(measurement=Measurement(peak_memory=77)) if isinstance(event, Finished) else event
            for event in made.finish(A)
        ]
    )
    limits = [dict(one.limits.amounts)["memory"] for one in made.launched if one.task.id == 1]
    amounts = [{part.name: part.amount for part in one.grant}["memory"] for one in made.launched if one.task.id == 1]
    assert limits == amounts == [1, 2, 4]
    assert policy.peaks == [77]
    for _ in range(3):
        made.tell(*made.start(A), *made.exhaust(A))
    assert [end.state for end in made.ends[2]] == ["failed"]


@given(
    st.booleans(),
    st.sampled_from([ONE_CORE, Needs.of({"memory": 4})]),
    st.integers(1, 3),
    *[st.booleans()] * 3,
    st.sampled_from([None, ("memory", 4.0), ("seconds", 1.0)]),
)
def test_the_task_is_blamed_last(
    twin: bool, asked: Needs, tries: int, fresh: bool, moved: bool, divisible: bool, limit: tuple[str, float] | None
) -> None:
    task = Task(1, "t", twin=twin, needs=asked)
    found = TooMuch(task, Tries(exhaustions=tries, fresh=fresh), moved, divisible, limit)
    act, needs, _ = LaunchPolicy().exhausted(found)
    assert (act == "written") == found.moved
    if found.task.twin and act == "fail":
        assert not found.divisible
        assert found.tries.fresh or found.limit is None
    if not found.task.twin and not found.moved:
        assert act in ("larger", "fail")
        assert (needs is not None) == (act == "larger")
        assert needs is None or dict(needs.amounts)["memory"] == 8


def test_fractions_add_up() -> None:
    made = node(10, cores=1)
    made.tell(Submitted((), tuple(needing(number, cores=0.1) for number in range(1, 12))))
    assert len(running(made)) == 10
    while any(made.queues.values()):
        made.tell(*made.finish(next(life for life, queue in made.queues.items() if queue), wall=1.0))
    assert len(made.ends) == 11


def test_a_pool_that_shrinks_below_what_is_taken_gives_nothing_more() -> None:
    made = node(4, cores=4)
    made.tell(Submitted((), tuple(needing(number, cores=1) for number in range(1, 9))))
    made.tell(PoolChanged("node", Needs.of({"cores": 2})))
    first = [one.life for one in made.launched]
    made.tell(*made.finish(first[0], wall=1.0), *made.finish(first[1], wall=1.0))
    assert len(running(made)) == 2
    made.tell(*made.finish(first[2], wall=1.0))
    assert len(running(made)) == 2


def test_a_task_that_nobody_could_run_says_what_it_needs_and_what_there_is() -> None:
    made = node(2, cores=4, memory=8e9)
    made.tell(Submitted((), (needing(1, cores=5, memory=1e9),)))
    failure = made.ends[1][0].failure
    assert failure is not None
    assert "needs cores=5, memory=1 GB" in failure.message
    assert "cores=4, memory=8 GB" in failure.message


def test_a_large_task_is_not_overtaken_for_ever() -> None:
    made = node(4, cores=4)
    made.tell(Submitted((), (needing(1, cores=1), needing(2, cores=4))))
    number = 10
    overtaken = 0
    while 2 not in running(made):
        made.tell(Submitted((), tuple(needing(number + more, cores=1) for more in range(3))))
        number += 3
        life = min(made.queues, key=lambda one: made.queues[one][0].attempt if made.queues[one] else 1 << 30)
        made.tell(*made.finish(life, wall=1.0))
        overtaken += 1
        assert overtaken < 400
    assert overtaken > 90


def waiting_world() -> World:
    """One task runs, another needs all; a third could overtake it."""
    made = node(2, cores=2)
    made.tell(Submitted((), (needing(1, cores=1), needing(2, cores=2))))
    made.now = 61.0
    made.tell(Submitted((), (needing(3, cores=1),)))
    return made


def test_a_task_that_waits_a_minute_has_its_place_kept() -> None:
    made = waiting_world()
    assert running(made) == [1, 3]  # it began before it was looked at
    made.tell(*made.finish(made.launched[1].life, wall=1.0))
    made.tell(Submitted((), (needing(4, cores=1),)))
    assert running(made) == [1]
    made.tell(*made.finish(made.launched[0].life, wall=1.0))
    assert running(made) == [2]


def test_what_is_kept_for_a_task_goes_when_it_is_cancelled() -> None:
    made = waiting_world()
    made.tell(*made.finish(made.launched[1].life, wall=1.0))
    made.tell(CancelRequested("no", task=2), Submitted((), (needing(4, cores=1),)))
    assert not made.scheduler.resources.reserved
    assert running(made) == [1, 4]


def calls_for(tasks: int, kinds: int) -> int:
    """Count the calls of functions, Python's own included, that a number of tasks takes."""
    made = node(4, cores=4, memory=1e12)
    made._validate = False
    calls = 0

    def see(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        made.tell(
            Submitted((), tuple(needing(n, cores=1, memory=1e6 * (1 + n % kinds)) for n in range(1, tasks + 1)))
        )  # fmt: skip
        for _ in range(tasks):
            if not any(made.queues.values()):
                break
            life = next(life for life, queue in made.queues.items() if queue)
            made.tell(*made.finish(life, wall=1.0))
    finally:
        sys.setprofile(before)
    assert len(made.ends) == tasks
    return calls


@pytest.mark.parametrize("kinds", [1, 1 << 30])
def test_the_cost_of_a_task_does_not_grow_with_their_number_or_their_kinds(kinds: int) -> None:
    few, many = 300, 2400
    # Quadratic costs would be eight times as high.
    assert calls_for(many, kinds) / many < 1.5 * calls_for(few, kinds) / few


def test_kinds_of_which_no_task_waits_are_forgotten() -> None:
    made = node(1, cores=4, memory=1e12)
    for number in range(1, 200):
        made.tell(Submitted((), (needing(number, cores=1, memory=float(number)),)))
        made.tell(*made.finish(A))
        made.tell(Released((f"{number}.0",)))
    classes: dict[Any, Any] = made.scheduler.dispatch._classes
    assert len(classes) < 100
