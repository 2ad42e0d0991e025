"""Tasks that come after others, and tasks that wait in the queue of a worker under one grant."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.failures import EXPLAINED
from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.records import Failure, FailureKind, Handle, Measurement, Needs, Task, Worker
from windrow.core.scheduler import Scheduler
from windrow.errors import UsageError
from windrow.shape.fixed import Fixed


def task(number: int, reads: str = "", makes: str = "", **more: Any) -> Task:
    return Task(number, "t", (), 1, reads=tuple(reads), outputs=tuple(makes), **more)


class Bench:
    """A scheduler with some workers of one core, and what it said last."""

    def __init__(self, *tasks: Task, workers: int = 2, **options: Any) -> None:
        self.scheduler = Scheduler((), Policies(Fixed(1)), Options(open=True, **options))
        self.said: list[orders.Command] = []
        self.launches: dict[int, orders.Launch] = {}  #: the latest of each task
        self.now = 0.0
        self.send(
            happened.Submitted((), tasks), *[happened.WorkerJoined(Worker(number, 0)) for number in range(workers)]
        )

    def send(self, *events: happened.Event, after: float = 0.0) -> None:
        self.now += after
        self.said = self.scheduler.on(events, self.now)
        self.scheduler.validate()
        for one in self.said:
            if isinstance(one, orders.Launch):
                self.launches[one.task.id] = one

    @property
    def launched(self) -> list[int]:
        return [one.task.id for one in self.said if isinstance(one, orders.Launch)]

    def key(self, number: int) -> tuple[int, int, int]:
        launch = self.launches[number]
        return launch.attempt, launch.worker, launch.incarnation

    def finish(self, *numbers: int, wall: float = 1.0) -> None:
        events = []
        for number in numbers:
            key = self.key(number)
            handle = Handle(key[0], *key, (), 0)
            events.append(happened.Finished(*key, handle, Measurement(wall=wall)))
        self.send(*events)

    def fail(self, number: int, kind: FailureKind = FailureKind.USER) -> None:
        self.send(happened.Failed(*self.key(number), Failure(kind, "Error", "it broke")))

    def end(self, number: int) -> str:
        node = self.scheduler.tasks.graph.nodes[number]
        return node.state.name


# -- after


def test_a_task_waits_for_those_it_comes_after_and_for_nothing_they_make() -> None:
    bench = Bench(task(1, "", "a"), task(2), task(3, after=(1, 2)))
    assert bench.launched == [1, 2]
    bench.finish(1)
    assert bench.launched == []
    bench.finish(2)
    assert bench.launched == [3]
    assert bench.launches[3].inputs == ()


def test_what_ended_before_is_not_waited_for() -> None:
    bench = Bench(task(1))
    bench.finish(1)
    bench.send(happened.Submitted((), (task(2, after=(1,)),)))
    assert bench.launched == [2]


def test_a_bad_end_is_an_end() -> None:
    bench = Bench(task(1), task(2, after=(1,)), on_error="skip")
    bench.fail(1)
    assert bench.end(1) == "FAILED"
    assert bench.launched == [2]


def test_an_attempt_that_is_tried_again_is_no_end() -> None:
    bench = Bench(task(1, budget=1), task(2, after=(1,)), on_error="skip")
    bench.fail(1)
    assert bench.launched == [1]
    bench.fail(1, FailureKind.LOST)
    assert bench.launched == [1]
    bench.finish(1)
    assert bench.launched == [2]


def test_a_lost_worker_is_no_end() -> None:
    bench = Bench(task(1), task(2, after=(1,)), workers=2)
    worker = bench.launches[1].worker
    bench.send(happened.WorkerLost(worker, 0))
    assert bench.launched == [1]
    bench.finish(1)
    assert bench.launched == [2]


def test_a_cancelled_task_has_ended() -> None:
    bench = Bench(task(1, group=1), task(2, "", "b", after=(1,)), task(3, "b"))
    bench.send(happened.CancelRequested("enough", frozenset({1})))
    assert bench.end(1) == "CANCELLED"
    assert bench.launched == [2]
    assert bench.end(3) == "WAITING"


def test_a_task_that_cannot_run_lets_others_follow() -> None:
    bench = Bench(task(1, needs=Needs((("cores", 9),))), task(2, after=(1,)), on_error="skip")
    assert bench.launched == []
    bench.send(happened.Tick(), after=60.0)
    assert bench.end(1) == "FAILED"
    assert bench.launched == [2]


def test_an_orphan_lets_others_follow() -> None:
    bench = Bench(task(1, "z"), task(2, after=(1,)), on_error="skip")
    bench.send(happened.Closed())
    assert bench.end(1) == "FAILED"
    assert bench.launched == [2]


def test_one_that_follows_an_orphan_and_cannot_run_is_given_up_in_its_turn() -> None:
    large = Needs((("cores", 9),))
    bench = Bench(task(1, "z"), task(2, after=(1,), needs=large), on_error="skip")
    bench.send(happened.Closed())
    assert bench.end(2) == "READY"  # somebody may come who has it
    assert any(isinstance(one, orders.WakeAt) for one in bench.said)
    bench.send(happened.Tick(), after=60.0)
    assert bench.end(2) == "FAILED"
    assert bench.scheduler.status == "incomplete"


def test_what_has_followed_is_not_held_up_when_the_first_is_made_again() -> None:
    bench = Bench(task(1, "", "a"), task(2, after=(1,)), task(3, "a", after=(2,)), workers=3)
    bench.finish(1)
    assert bench.launched == [2]
    bench.send(happened.WorkerLost(bench.launches[1].worker, 0))  # with "a", for task 3
    assert bench.end(1) == bench.end(2) == "RUNNING"
    bench.finish(2)
    assert bench.end(3) == "WAITING"  # for what it reads
    bench.finish(1)
    assert bench.launched == [3]


def test_one_that_comes_after_a_task_being_made_again_waits_for_it() -> None:
    bench = Bench(task(1, "", "a"), task(2, "a"), workers=1)
    bench.finish(1)
    bench.send(happened.WorkerLost(0, 0), happened.WorkerJoined(Worker(0, 1)))
    assert bench.end(1) == "RUNNING"
    bench.send(happened.Submitted((), (task(3, after=(1,)),)))
    assert bench.end(3) == "WAITING"
    bench.finish(1)
    bench.finish(2)
    assert bench.end(3) == "RUNNING"


def test_unknown_tasks_and_circles_are_refused() -> None:
    bench = Bench(task(1, "b", "a"))
    with pytest.raises(UsageError, match="comes after task 9, which was not submitted"):
        bench.send(happened.Submitted((), (task(2, after=(9,)),)))
    with pytest.raises(UsageError, match="task 2 comes after task 1, task 1 reads 'b', and task 2"):
        bench.send(happened.Submitted((), (task(2, "", "b", after=(1,)),)))
    with pytest.raises(UsageError, match="circle"):
        bench.send(happened.Submitted((), (task(4), task(3, "c", "c"))))
    assert list(bench.scheduler.tasks.graph.nodes) == [1]


# -- queues


def test_short_tasks_wait_in_the_queue_of_a_worker_and_hold_what_one_of_them_needs() -> None:
    bench = Bench(*[task(number) for number in range(1, 8)], workers=2)
    assert [one.queued for one in bench.launches.values()] == [False, False]
    bench.finish(1, wall=1e-4)
    assert set(bench.launches) == set(range(1, 8))
    queued = [number for number, one in bench.launches.items() if one.queued]
    assert queued == [4, 5, 6, 7]  # the third has the place of the first
    cores = [one.taken["cores"] for one in bench.scheduler.crew.packing.benches.values()]
    assert cores == [1, 1]
    at = {number: bench.launches[number].worker for number in range(2, 8)}
    while at:
        number = min(at)
        del at[number]
        bench.finish(number, wall=1e-4)
    assert all(not one.taken.get("cores") for one in bench.scheduler.crew.packing.benches.values())


def test_long_tasks_are_not_queued() -> None:
    bench = Bench(*[task(number) for number in range(1, 8)], workers=2)
    bench.finish(1, wall=1.0)
    assert bench.launched == [3]


def test_tasks_that_need_something_else_are_not_queued_behind_others() -> None:
    other = Needs((("cores", 0.5),))
    bench = Bench(*[task(number) for number in range(1, 5)], task(5, needs=other), workers=2)
    bench.finish(1, wall=1e-4)
    assert not any(one.queued for one in bench.launches.values())


def test_a_queued_task_whose_worker_is_lost_runs_elsewhere() -> None:
    bench = Bench(*[task(number) for number in range(1, 8)], workers=2)
    bench.finish(1, wall=1e-4)
    lost = bench.launches[7].worker
    bench.send(happened.WorkerLost(lost, 0))
    assert all(one.worker != lost for one in bench.launches.values() if one.task.id > 2)
    nodes = bench.scheduler.tasks.graph.nodes
    assert {one.crashes for one in nodes.values()} == {0}


def test_a_short_task_is_not_queued_behind_one_that_is_known_to_be_long() -> None:
    long = [task(number)._replace(category="long") for number in (1, 2, 4, 5)]
    bench = Bench(*long[:2], task(3), workers=2)
    bench.finish(1, 2)
    bench.finish(3, wall=1e-4)  # both categories are known now
    bench.send(happened.Submitted((), (*long[2:], task(6))))
    assert bench.launched == [4, 5]
    bench.finish(5)
    assert bench.launched == [6]
    assert not bench.launches[6].queued


def test_a_task_is_not_at_fault_for_ends_of_workers_in_whose_queue_it_waited() -> None:
    numbers = range(1, 30)
    bench = Bench(*map(task, numbers), workers=1, restart=True, on_error="skip")
    bench.finish(1, wall=1e-4)
    dead: set[int] = set()
    crashed = Failure(FailureKind.CRASHED, "WorkerLost", "exited")
    for life in range(40):  # the first of the queue ends its worker, twice each
        bench.send(happened.Started(*bench.key(first := min(set(range(2, 30)) - dead))))
        bench.send(happened.WorkerLost(0, life, crashed))
        assert orders.StartWorker(0, life + 1) in bench.said
        if bench.end(first) == "FAILED":
            dead.add(first)
        bench.send(happened.WorkerJoined(Worker(0, life + 1)))
    nodes = bench.scheduler.tasks.graph.nodes
    assert dead == set(range(2, 22))
    assert {nodes[number].losses for number in range(22, 30)} == {0}
    assert all(bench.end(number) == "RUNNING" for number in range(22, 30))


def test_nobody_is_to_blame_for_a_worker_that_was_ended_because_of_another() -> None:
    bench = Bench(*[task(number) for number in range(1, 6)], workers=2)
    bench.finish(1, wall=1e-4)
    at = bench.launches[2].worker
    behind = next(number for number in (4, 5) if bench.launches[number].worker == at)
    explained = Failure(FailureKind.LOST, EXPLAINED, "ended for using too much")
    bench.send(happened.Exhausted(*bench.key(2), "seconds", 1.0, 2.0), happened.WorkerLost(at, 0, explained))
    assert bench.scheduler.tasks.graph.nodes[behind].losses == 0


# -- forgetting


def test_a_task_is_forgotten_when_nobody_can_need_it() -> None:
    bench = Bench(task(1, "", "a"), task(2, "a", "b"), task(3, "b"))
    graph = bench.scheduler.tasks.graph
    for number in (1, 2, 3):
        bench.finish(number)
    bench.send(happened.Released("a"))
    bench.send(happened.Tick())
    assert list(graph.nodes) == [1, 2]  # "b" may be asked for, and lost
    bench.send(happened.Released("b"))
    bench.send(happened.Tick())
    assert (dict(graph.nodes), dict(graph.outputs)) == ({}, {})
    bench.send(happened.Wanted("b"), happened.Released("a"))  # too late
    bench.send(happened.Submitted((), (task(4, after=(1, 3)),)))
    assert bench.launched == [4]
    assert dict(graph.outputs) == {}


def test_a_task_is_not_forgotten_while_an_attempt_of_it_runs() -> None:
    bench = Bench(task(1, "", "a"))
    bench.send(happened.Released("a"))
    bench.send(happened.CancelRequested("enough", task=1))
    bench.send(happened.Tick())
    assert list(bench.scheduler.tasks.graph.nodes) == [1]
    bench.send(happened.Cancelled(*bench.key(1)))
    bench.send(happened.Tick())
    assert dict(bench.scheduler.tasks.graph.nodes) == {}


def release(bench: Bench, number: int, output: str) -> None:
    key = bench.key(number)
    bench.send(happened.OutputReady(*key, Handle(key[0], *key, (), 0, output, here=True)))


def test_what_reads_from_a_task_that_cannot_be_restarted_is_kept_until_that_is_done() -> None:
    bench = Bench(task(1, "", "a", restartable=False), task(2, "a", "b"), task(3, "b"), workers=3)
    release(bench, 1, "a")
    for number in (2, 3):
        bench.finish(number)
    bench.send(happened.Released("b"), happened.Released("a"))
    bench.send(happened.Tick())
    assert list(bench.scheduler.tasks.graph.nodes) == [1, 2, 3]
    bench.finish(1)
    bench.send(happened.Tick())
    assert list(bench.scheduler.tasks.graph.nodes) == []


def test_what_a_task_has_read_stays_until_it_will_not_be_done_again() -> None:
    """Otherwise others that are done, and cannot be restarted, would be done again for it, and all that reads from them."""
    unsure = task(1, "", "a", restartable=False, budget=1)
    bench = Bench(task(2, "", "b", restartable=False), task(3, "b", "c"), workers=4)
    bench.finish(2)
    bench.finish(3)
    bench.send(happened.Submitted((), (unsure, task(4, "ab", "d"))))
    bench.send(happened.Released("b"))
    release(bench, 1, "a")
    assert bench.launched == [4]
    bench.finish(4)
    bench.fail(1)  # takes back what it had released
    assert bench.launched == [1]
    release(bench, 1, "a")
    assert bench.launched == [4]
    bench.finish(4)
    bench.finish(1)
    assert [bench.end(number) for number in (2, 3, 4)] == ["DONE"] * 3
    discarded = {one.handle.output for one in bench.said if isinstance(one, orders.Discard)}
    assert discarded == {"b"}  # now nobody can need it


def test_what_nobody_needs_is_not_done_again_for_the_sake_of_another_attempt() -> None:
    bench = Bench(task(1, "", "ab", restartable=False), task(2, "a", "c"), task(3, "a", "d"), workers=1)
    bench.finish(1)
    bench.finish(2)
    bench.finish(3)
    bench.send(happened.Released("c"))
    # What "d" was made from goes with it, and "d", which is needed.
    bench.send(happened.WorkerLost(0, 0), happened.WorkerJoined(Worker(0, 1)))
    assert bench.launched == [1]
    bench.finish(1)
    assert bench.launched == [3]
    bench.finish(3)
    assert bench.launched == []


def test_a_long_run_does_not_grow() -> None:
    bench = Bench()
    for number in range(1, 2000):
        bench.send(happened.Submitted((), (task(number, "", (f"o{number}",)),)))  # type: ignore[arg-type]
        bench.finish(number, wall=1e-4)
        bench.send(happened.Released(f"o{number}"))
    tasks = bench.scheduler.tasks
    assert len(tasks.graph.nodes) <= 1
    assert len(tasks.graph.outputs) <= 1
    assert len(tasks.places.held) == len(tasks.attempts) == 0
    assert len(tasks._ended) <= 2
