"""The order decision and the scheduler: asked at checkpoints, and blamed before the shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.records import Evidence, Failure, FailureKind, Handle, InputSpec, Measurement, Plan, PlanJob, Worker
from windrow.core.scheduler import Scheduler
from windrow.shape.fixed import Fixed

WRITTEN, MOVED = ("a", "b"), ("b", "a")


class Often:
    """Thinks after every so many seconds, and always comes to the same conclusion."""

    def __init__(self, every: float, order: tuple[str, ...] = MOVED) -> None:
        self.every, self.order, self.jobs = every, order, list[PlanJob]()
        self._next = every

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        if spent_s < self._next:
            return False
        self._next = spent_s + self.every
        return True

    def replan(self, job: PlanJob) -> Plan:
        self.jobs.append(job)
        order = job.plan.written if job.blamed else self.order
        return replace(job.plan, id=job.plan.id + 1, order=order, guards=job.guards)


def make(policy: Often, *, moved: bool = False, rows: int = 100, **options: Any) -> Any:
    spec = InputSpec(id=0, category="data", rows=rows, borders=tuple(range(0, rows + 1, 10)))
    order = MOVED if moved else WRITTEN
    plan = Plan(id=0, category="data", order=order, written=WRITTEN)
    scheduler = Scheduler([spec], Policies(Fixed(20), order=policy), Options(**options), {"data": plan})
    commands = send(scheduler, policy, happened.WorkerJoined(Worker(0, 0)))
    return scheduler, launched(commands)


def send(scheduler: Scheduler, policy: Often, *events: happened.Event) -> list[orders.Command]:
    """As the loop does: questions are answered at once."""
    everything: list[orders.Command] = []
    batch: list[happened.Event] = list(events)
    while batch:
        commands = scheduler.on(batch, 0.0)
        scheduler.validate()
        everything += commands
        batch = [happened.Planned(policy.replan(c.job)) for c in commands if isinstance(c, orders.Replan)]
    return everything


def finished(launch: orders.Launch, wall: float) -> happened.Finished:
    number, worker, life = launch.attempt, launch.worker, launch.incarnation
    handle = Handle(number, number, worker, life, launch.task.inputs)
    return happened.Finished(number, worker, life, handle, Measurement(wall=wall), Evidence())


def exhausted(launch: orders.Launch) -> happened.Exhausted:
    return happened.Exhausted(launch.attempt, launch.worker, launch.incarnation, "memory", used=9e9, limit=1e9)


def launched(commands: list[orders.Command]) -> orders.Launch:
    (launch,) = [command for command in commands if isinstance(command, orders.Launch)]
    return launch


def test_a_checkpoint_asks_with_all_that_is_known_and_later_launches_follow() -> None:
    policy = Often(1.5)
    scheduler, first = make(policy)
    second = launched(send(scheduler, policy, finished(first, 1.0)))
    assert not policy.jobs
    third = launched(send(scheduler, policy, finished(second, 1.0)))
    (job,) = policy.jobs
    assert job.spent_s == 2.0
    assert job.costs.rows_in == 40
    assert job.left_s == 60 * 0.05  # 60 rows, of which no worker has any yet
    # It was launched in the batch that asked, so before the answer.
    assert third.plan.order == WRITTEN
    assert launched(send(scheduler, policy, finished(third, 0.1))).plan.order == MOVED


def test_a_moved_order_is_blamed_before_the_shape() -> None:
    policy = Often(1e9)
    scheduler, first = make(policy, moved=True)
    again = launched(send(scheduler, policy, exhausted(first)))
    assert again.task.inputs == first.task.inputs  # not cut smaller
    assert again.plan.order == WRITTEN
    assert again.plan.id > first.plan.id
    # In the written order it is the shape's fault.
    smaller = launched(send(scheduler, policy, exhausted(again)))
    assert smaller.task.size < first.task.size
    assert smaller.plan.order == WRITTEN


def test_the_written_order_is_not_blamed() -> None:
    policy = Often(1e9)
    scheduler, first = make(policy)
    smaller = launched(send(scheduler, policy, exhausted(first)))
    assert smaller.task.size < first.task.size
    assert smaller.plan == first.plan


def test_a_plan_that_was_asked_for_before_the_blame_is_not_taken() -> None:
    policy = Often(0.5)
    spec = InputSpec(id=0, category="data", rows=100, borders=tuple(range(0, 101, 10)))
    plan = Plan(id=0, category="data", order=MOVED, written=WRITTEN)
    scheduler = Scheduler([spec], Policies(Fixed(20), order=policy), Options(), {"data": plan})
    commands = send(scheduler, policy, happened.WorkerJoined(Worker(0, 0)), happened.WorkerJoined(Worker(1, 0)))
    first, second = [command for command in commands if isinstance(command, orders.Launch)]
    # Both in one batch: the question goes out before the blame.
    commands = send(scheduler, policy, finished(first, 1.0), exhausted(second))
    assert len(policy.jobs) == 1
    assert scheduler.accounts["data"].plan.order == WRITTEN
    assert scheduler.accounts["data"].blamed == 1
    assert [plan.order for plan in scheduler.accounts["data"].plans] == [MOVED, WRITTEN]
    later = [command for command in commands if isinstance(command, orders.Launch)]
    assert {launch.plan.order for launch in later} == {WRITTEN}
    send(scheduler, policy, *(finished(launch, 1.0) for launch in later))
    assert policy.jobs[-1].blamed == 1


def test_a_crash_in_a_moved_order_is_tried_again_in_the_written_one() -> None:
    policy = Often(1e9)
    scheduler, first = make(policy, moved=True, restart=True)
    crash = Failure(FailureKind.CRASHED, "Signal", "killed by signal 11")
    send(scheduler, policy, happened.Started(first.attempt, 0, 0))
    send(scheduler, policy, happened.WorkerLost(0, 0, crash))
    again = launched(send(scheduler, policy, happened.WorkerJoined(Worker(0, 1))))
    assert again.task.inputs == first.task.inputs
    assert again.plan.order == WRITTEN


KILLED = Failure(FailureKind.LOST, "Killed", "ended by signal 9")


def kill(scheduler: Scheduler, policy: Often, launch: orders.Launch, life: int) -> orders.Launch:
    """Kill a worker from outside while it works, and let it come again."""
    send(scheduler, policy, happened.Started(launch.attempt, 0, life))
    send(scheduler, policy, happened.WorkerLost(0, life, KILLED))
    return launched(send(scheduler, policy, happened.WorkerJoined(Worker(0, life + 1))))


def test_the_second_kill_of_a_task_in_a_moved_order_is_held_against_the_order() -> None:
    """Without a limit of memory, that is how too much of it shows: the kernel kills."""
    policy = Often(1e9)
    scheduler, first = make(policy, moved=True, restart=True)
    second = kill(scheduler, policy, first, 0)
    assert second.task.inputs == first.task.inputs
    assert second.plan.order == MOVED, "once may be anybody"
    third = kill(scheduler, policy, second, 1)
    assert third.task.inputs == first.task.inputs
    assert third.plan.order == WRITTEN
    assert scheduler.accounts["data"].blamed == 1
    kill(scheduler, policy, third, 2)
    assert scheduler.accounts["data"].blamed == 1, "the written order is not blamed"


def test_kills_of_different_tasks_are_nobodys_fault() -> None:
    policy = Often(1e9)
    scheduler, launch = make(policy, moved=True, restart=True)
    for life in range(3):
        again = kill(scheduler, policy, launch, life)
        event = finished(again, 1.0)
        launch = launched(send(scheduler, policy, event))
    assert scheduler.accounts["data"].blamed == 0
    assert launch.plan.order == MOVED


def test_a_worker_that_went_away_unseen_is_nobodys_fault() -> None:
    policy = Often(1e9)
    scheduler, launch = make(policy, moved=True, restart=True)
    for life in range(4):
        send(scheduler, policy, happened.Started(launch.attempt, 0, life))
        send(scheduler, policy, happened.WorkerLost(0, life))
        launch = launched(send(scheduler, policy, happened.WorkerJoined(Worker(0, life + 1))))
    assert launch.plan.order == MOVED


def test_a_plan_asked_for_because_of_a_guard_is_told_what_is_left_too() -> None:
    policy = Often(1e9)
    specs = [
        InputSpec(id=n, category=name, rows=100, borders=tuple(range(0, 101, 10)))
        for n, name in enumerate(("data", "more"))
    ]
    plans = {name: Plan(id=0, category=name, order=WRITTEN, written=WRITTEN) for name in ("data", "more")}
    scheduler = Scheduler(specs, Policies(Fixed(20), order=policy), Options(), plans)
    joined = [happened.WorkerJoined(Worker(number, 0)) for number in range(2)]
    commands = send(scheduler, policy, *joined)
    one, other = [command for command in commands if isinstance(command, orders.Launch)]
    assert (one.task.category, other.task.category) == ("data", "more")
    send(scheduler, policy, finished(other, 3.0))
    guarded = replace(Evidence(), guards=(("b", "a"),))
    send(scheduler, policy, finished(one, 1.0)._replace(evidence=guarded))
    (job,) = policy.jobs
    assert job.guards == (("b", "a"),)
    assert job.spent_s == 1.0
    assert job.left_s == 80 * 0.05
    assert job.run_s == 1.0 + 80 * 0.05 + 3.0 + 80 * 0.15


def test_what_is_left_is_known_without_looking_at_every_input() -> None:
    """A checkpoint asks it of every category: that must not cost categories times inputs."""

    class Counted(dict[int, Any]):
        walks = 0

        def values(self) -> Any:
            self.walks += 1
            return super().values()

    policy = Often(0.5)
    scheduler, first = make(policy)
    scheduler.intake.feeds = feeds = Counted(scheduler.intake.feeds)
    scheduler.on([finished(first, 1.0)], 0.0)
    assert feeds.walks == 0
