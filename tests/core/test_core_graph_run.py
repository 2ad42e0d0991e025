"""Tasks of graphs in the scheduler, rule by rule: where they run, how they fail, when they end."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import pytest

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.dispatch import MOST_OVERTAKES
from windrow.core.options import Options
from windrow.core.patience import PATIENCE_S
from windrow.core.policies import Policies
from windrow.core.records import Failure, FailureKind, Handle, InputSpec, Measurement, Needs, Task, Worker
from windrow.core.scheduler import Scheduler
from windrow.errors import UsageError
from windrow.shape.fixed import Fixed

One = TypeVar("One")


def task(number: int, reads: str = "", makes: str = "", needs: Any = None, **more: Any) -> Task:
    amounts = Needs.of({"cores": 1} if needs is None else needs)
    return Task(number, "t", (), 1, amounts, reads=tuple(reads), outputs=tuple(makes), **more)


class Bench:
    """A scheduler, and what it said last."""

    def __init__(self, *tasks: Task, workers: Any = 1, rows: int = 0, **options: Any) -> None:
        inputs = []
        if rows:
            inputs = [InputSpec(id=0, category="r", rows=rows, borders=tuple(range(rows + 1)))]
        self.scheduler = Scheduler(inputs, Policies(Fixed(1)), Options(**options))
        self.now = 0.0
        self.said: list[orders.Command] = []
        offers = [{"cores": 1}] * workers if isinstance(workers, int) else workers
        joined = [happened.WorkerJoined(Worker(n, 0, Needs.of(o))) for n, o in enumerate(offers)]
        self.send(happened.Submitted((), tasks), *joined)

    def send(self, *events: happened.Event, after: float = 0.0) -> list[orders.Command]:
        self.now += after
        self.said = self.scheduler.on(events, self.now)
        self.scheduler.validate()
        return self.said

    def only(self, kind: type[One]) -> list[One]:
        return [command for command in self.said if isinstance(command, kind)]

    @property
    def launched(self) -> list[int]:
        return [one.task.id for one in self.only(orders.Launch) if not one.task.inputs]

    def launch(self, number: int) -> orders.Launch:
        (found,) = [one for one in self.only(orders.Launch) if one.task.id == number]
        return found

    @property
    def ends(self) -> list[tuple[int, str]]:
        return [(one.task, one.state) for one in self.only(orders.TaskEnded)]


def done(launch: orders.Launch, size: int = 0) -> happened.Finished:
    key = launch.attempt, launch.worker, launch.incarnation
    handle = Handle(launch.attempt, *key, launch.task.inputs, size)
    return happened.Finished(*key, handle, Measurement(wall=1.0))


def early(launch: orders.Launch, output: str) -> happened.OutputReady:
    key = launch.attempt, launch.worker, launch.incarnation
    return happened.OutputReady(*key, Handle(launch.attempt, *key, (), 0, output))


def failed(launch: orders.Launch, kind: FailureKind) -> happened.Failed:
    key = launch.attempt, launch.worker, launch.incarnation
    return happened.Failed(*key, Failure(kind, "Error", f"a {kind.value} failure"))


# -- where and in which order


def test_priority_first_then_the_order_of_submission() -> None:
    bench = Bench(task(1), task(2, priority=1), task(3), task(4, priority=1), workers=0)
    order = []
    bench.send(happened.WorkerJoined(Worker(0, 0)))
    while bench.launched:
        order += bench.launched
        bench.send(done(bench.only(orders.Launch)[0]))
    assert order == [2, 4, 1, 3]
    assert bench.only(orders.Resolve) == [orders.Resolve("complete", None, "")]


def test_a_task_goes_to_the_worker_that_keeps_most_of_what_it_reads() -> None:
    bench = Bench(task(1, "", "a"), task(2, "", "b"), task(3, "ab"), workers=2)
    first, second = bench.only(orders.Launch)
    bench.send(done(first, 10))
    bench.send(done(second, 99))
    (fetch,) = bench.only(orders.Fetch)
    assert fetch.handle.output == "a"  # the smaller one travels
    bench.send(happened.Fetched(fetch.handle))
    launch = bench.launch(3)
    assert launch.worker == second.worker
    assert [handle.output for handle in launch.inputs] == ["a", "b"]


def test_an_idle_worker_is_not_left_idle_for_the_sake_of_what_another_keeps() -> None:
    bench = Bench(task(1, "", "a"), task(2), task(3, "a"), workers=1)
    launch = bench.launch(1)
    bench.send(done(launch))
    assert bench.launched == [2]  # submitted before 3
    bench.send(happened.WorkerJoined(Worker(1, 0)))
    (fetch,) = bench.only(orders.Fetch)
    bench.send(happened.Fetched(fetch.handle))
    assert bench.launch(3).worker == 1


def test_an_early_output_starts_its_readers() -> None:
    bench = Bench(task(1, "", "ab"), task(2, "a"), workers=[{"cores": 2}])
    launch = bench.launch(1)
    bench.send(early(launch, "a"))
    assert bench.launched == [2]
    bench.send(early(launch, "a"))
    assert bench.said == []  # told twice


def test_resources_are_freed_at_the_end_and_pools_are_shared() -> None:
    needs = {"cores": 1, "memory": 6}
    bench = Bench(workers=0, open=True)
    bench.send(happened.PoolChanged("machine", Needs.of({"memory": 10})))
    bench.send(*[happened.WorkerJoined(Worker(n, 0, pools=("machine",))) for n in range(2)])
    bench.send(happened.Submitted((), (task(1, needs=needs), task(2, needs=needs))))
    assert bench.launched == [1]
    assert bench.launch(1).limits == Needs.of({"memory": 6})
    bench.send(done(bench.launch(1)))
    assert bench.launched == [2]


def test_a_large_task_is_not_overtaken_for_ever() -> None:
    large = task(1, needs={"cores": 2}, priority=1)
    small = [task(number) for number in range(2, 400)]
    bench = Bench(small[0], small[1], *small[2:], workers=[{"cores": 2}])
    running = bench.only(orders.Launch)
    bench.send(happened.Submitted((), (large,)))
    overtakes = 0
    while True:
        bench.send(done(running.pop(0)))
        if bench.launched == [1]:
            break
        running += bench.only(orders.Launch)
        overtakes += len(bench.launched)
        assert overtakes <= MOST_OVERTAKES + 2
    assert overtakes >= MOST_OVERTAKES - 2
    assert running == []


def test_rows_and_tasks_share_workers() -> None:
    bench = Bench(workers=2, rows=100)
    bench.send(*map(done, bench.only(orders.Launch)))
    rows = bench.only(orders.Launch)
    bench.send(happened.Submitted((), tuple(task(number) for number in range(1, 4))))
    order = []
    for _ in range(300):
        launches = bench.only(orders.Launch)
        order += [one.task.id for one in launches if not one.task.inputs]
        rows += launches
        fetched = [happened.Fetched(one.handle) for one in bench.only(orders.Fetch)]
        merged = [
            happened.Merged(one.into, tuple(h.id for h in one.handles), one.worker, 0)
            for one in bench.only(orders.Merge)
        ]
        if bench.scheduler.finished:
            break
        bench.send(*fetched, *merged, *([done(rows.pop(0))] if rows else []))
    assert order == [1, 2, 3]
    assert bench.scheduler.status == "complete"
    assert bench.scheduler.standing().graph_done == 3


def placement_lines(count: int) -> int:
    """Count the lines of Python that one more placement runs with so many ready tasks."""
    kinds = [{"cores": 1}, {"cores": 1, "memory": 1}, {"gpu": 1}, {"cores": 2}, {"disk": 1}]
    workers = [{"cores": 1, "memory": 9}] * 8
    tasks = [task(number, needs=kinds[number % 5]) for number in range(1, count)]
    bench = Bench(*tasks, workers=workers, open=True)
    running = bench.only(orders.Launch)
    counts = []
    for launch in running[:3]:
        lines = 0

        def tracer(frame: Any, event: str, arg: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return tracer

        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            commands = bench.scheduler.on([done(launch)], 0.0)
        finally:
            sys.settrace(before)
        assert any(isinstance(command, orders.Launch) for command in commands)
        counts.append(lines)
    return max(counts)


def test_a_placement_does_not_depend_on_how_many_tasks_are_ready() -> None:
    assert placement_lines(20_000) <= placement_lines(200) * 1.2


# -- outputs and the user


def test_an_output_is_brought_when_it_is_wanted_and_goes_when_it_is_released() -> None:
    bench = Bench(task(1, "", "a"), open=True)
    launch = bench.launch(1)
    bench.send(happened.Wanted("a"))
    bench.send(done(launch))
    (fetch,) = bench.only(orders.Fetch)
    bench.send(happened.Fetched(fetch.handle))
    assert bench.said == [orders.Take(fetch.handle)]
    bench.send(happened.Wanted("a"))
    assert bench.said == [orders.Take(fetch.handle)]
    bench.send(happened.Released("a"))
    assert bench.said == [orders.Discard(fetch.handle)]
    bench.send(happened.Closed())
    assert bench.said == [orders.Resolve("complete", None, "")]


def test_a_fetched_output_survives_its_worker_and_another_is_made_again() -> None:
    bench = Bench(task(1, "", "ab"), workers=2, open=True)
    bench.send(done(bench.launch(1)))
    bench.send(happened.Wanted("a"))
    (fetch,) = bench.only(orders.Fetch)
    bench.send(happened.Fetched(fetch.handle))
    bench.send(happened.WorkerLost(fetch.handle.worker, 0))
    launch = bench.launch(1)  # for b
    bench.send(done(launch))
    assert [one.handle.output for one in bench.only(orders.Discard)] == ["a"]
    assert bench.ends == []  # that it was made again is nobody's business


def test_a_drained_worker_hands_over_what_it_keeps() -> None:
    bench = Bench(task(1, "", "a"), workers=2, open=True)
    launch = bench.launch(1)
    bench.send(happened.DrainRequested(launch.worker, 0, "enough"))
    assert bench.only(orders.StopWorker) == []
    bench.send(done(launch))
    (fetch,) = bench.only(orders.Fetch)
    assert bench.only(orders.StopWorker) == []
    bench.send(happened.Fetched(fetch.handle))
    assert bench.only(orders.StopWorker) == [orders.StopWorker(launch.worker, 0)]
    bench.send(happened.WorkerLost(launch.worker, 0))
    assert bench.launched == []


# -- failure


def test_a_user_error_is_tried_again_within_the_budget_then_dependents_fail() -> None:
    bench = Bench(task(1, "", "a", budget=1), task(2, "a"), task(3), on_error="skip")
    bench.send(failed(bench.launch(1), FailureKind.USER))
    bench.send(failed(bench.launch(1), FailureKind.USER))
    assert bench.ends == [(1, "failed"), (2, "failed")]
    failure = bench.only(orders.TaskEnded)[1].failure
    assert failure is not None
    assert failure.message == "task 2 did not run because task 1 failed: a user failure"
    bench.send(done(bench.launch(3)))
    assert bench.said[-1] == orders.Resolve("incomplete", None, "")


def test_with_stop_the_first_failure_ends_the_run_and_every_task() -> None:
    bench = Bench(task(1), task(2), task(3, "x"), task(4, "", "x"), workers=2)
    second = bench.launch(2)
    bench.send(failed(bench.launch(1), FailureKind.USER))
    ends = [(1, "failed"), (2, "cancelled"), (3, "cancelled"), (4, "cancelled")]
    assert sorted(bench.ends) == ends
    assert bench.only(orders.Cancel) == [orders.Cancel(second.attempt, second.worker, 0)]
    bench.send(done(second))
    assert isinstance(bench.said[-1], orders.Resolve)
    assert bench.said[-1].status == "failed"


def test_reading_is_tried_again_after_a_pause() -> None:
    bench = Bench(task(1), retries=1, on_error="skip")
    bench.send(failed(bench.launch(1), FailureKind.TRANSIENT_IO))
    (wake,) = bench.only(orders.WakeAt)
    bench.send(happened.Tick(), after=wake.time / 2)
    assert bench.launched == []
    bench.send(happened.Tick(), after=wake.time / 2)
    bench.send(failed(bench.launch(1), FailureKind.TRANSIENT_IO))
    assert bench.ends == [(1, "failed")]


def test_losses_are_free_and_crashes_are_counted() -> None:
    bench = Bench(task(1), workers=4, crashes=2, on_error="skip")
    for kind in (FailureKind.LOST, FailureKind.CRASHED, FailureKind.CRASHED):
        launch = bench.launch(1)
        bench.send(happened.Started(launch.attempt, launch.worker, 0))
        failure = Failure(kind, "End", "killed")
        bench.send(happened.WorkerLost(launch.worker, 0, failure))
    assert bench.ends == [(1, "failed")]


def test_a_task_that_was_too_large_gets_twice_the_memory_once() -> None:
    needs = {"cores": 1, "memory": 3}
    bench = Bench(task(1, needs=needs), workers=[{"cores": 1, "memory": 10}], on_error="skip")
    for memory in (3, 6):
        launch = bench.launch(1)
        assert launch.limits == Needs.of({"memory": memory})
        key = launch.attempt, launch.worker, 0
        bench.send(happened.Exhausted(*key, "memory", memory, memory + 1))
    assert bench.ends == [(1, "failed")]
    bench = Bench(task(1, needs=needs), workers=[{"cores": 1, "memory": 5}], on_error="skip")
    launch = bench.launch(1)
    bench.send(happened.Exhausted(launch.attempt, 0, 0, "memory", 3, 4))
    assert bench.ends == [(1, "failed")]  # nobody offers 6


def test_a_bug_always_stops() -> None:
    bench = Bench(task(1), task(2), on_error="skip")
    bench.send(failed(bench.launch(1), FailureKind.INTERNAL))
    assert bench.scheduler.status == "failed"


def test_what_cannot_leave_its_worker_fails_its_maker() -> None:
    bench = Bench(task(1, "", "a"), on_error="skip", open=True)
    bench.send(done(bench.launch(1)), happened.Wanted("a"))
    (fetch,) = bench.only(orders.Fetch)
    problem = Failure(FailureKind.USER, "TypeError", "cannot be pickled")
    bench.send(happened.FetchFailed(fetch.handle, problem))
    assert bench.only(orders.TaskEnded) == [orders.TaskEnded(1, "failed", problem)]


# -- groups, deadlines, needs that nobody meets, the end


def test_a_group_is_cancelled_with_its_dependents() -> None:
    bench = Bench(task(1, "", "a", group=1), task(2, "a", group=2), task(3, group=2), workers=1, open=True)
    first = bench.launch(1)
    bench.send(happened.CancelRequested("not needed", frozenset({1})))
    assert bench.ends == [(1, "cancelled"), (2, "cancelled")]
    assert bench.only(orders.Cancel) == [orders.Cancel(first.attempt, 0, 0)]
    assert bench.launched == []  # its worker is held until it returns
    bench.send(happened.Cancelled(first.attempt, 0, 0))
    assert bench.launched == [3]
    assert bench.scheduler.status is None


def test_a_deadline_is_noticed_without_events() -> None:
    bench = Bench(task(1, deadline=5.0), task(2, deadline=7.0), on_error="skip")
    launch = bench.launch(1)
    assert bench.only(orders.WakeAt) == [orders.WakeAt(5.0)]
    bench.send(happened.Tick(), after=5.0)
    assert bench.ends == [(1, "failed")]
    assert bench.only(orders.Cancel) == [orders.Cancel(launch.attempt, 0, 0)]
    bench.send(happened.Tick(), after=2.0)
    assert bench.ends == [(2, "failed")]
    failure = bench.only(orders.TaskEnded)[0].failure
    assert failure is not None
    assert failure.message == "task 't' (2) was not done by its deadline"


def test_a_task_that_nobody_can_run_waits_for_a_worker_then_says_what_it_needs() -> None:
    bench = Bench(task(1, needs={"gpu": 2}), task(2), on_error="skip")
    bench.send(done(bench.launch(2)))
    (wake,) = bench.only(orders.WakeAt)
    bench.send(happened.WorkerJoined(Worker(1, 0, Needs.of({"gpu": 1}))), after=PATIENCE_S / 2)
    assert bench.ends == []
    bench.send(happened.Tick(), after=PATIENCE_S / 2)
    assert bench.ends == []  # the wait began anew when somebody came
    bench.send(happened.Tick(), after=PATIENCE_S)
    failure = bench.only(orders.TaskEnded)[0].failure
    assert failure is not None
    assert "task 't' (1) needs gpu=2, which no worker offers" in failure.message
    assert "the most that any of them has is gpu=1" in failure.message
    assert wake.time == PATIENCE_S


def test_a_worker_that_comes_in_time_runs_what_nobody_could() -> None:
    bench = Bench(task(1, needs={"gpu": 2}))
    bench.send(happened.WorkerJoined(Worker(1, 0, Needs.of({"gpu": 2}))), after=PATIENCE_S / 2)
    assert bench.launched == [1]


def test_the_run_ends_by_saying_what_nobody_makes() -> None:
    bench = Bench(task(1, "z"), task(2))
    bench.send(done(bench.launch(2)))
    end = bench.said[-1]
    assert isinstance(end, orders.Resolve)
    assert end.status == "failed"
    assert end.failure is not None
    assert "task 1 reads 'z', which no task makes" in end.failure.message


def test_an_open_run_waits_for_what_is_submitted_next() -> None:
    bench = Bench(task(1, "z"), open=True)
    assert bench.scheduler.status is None
    bench.send(happened.Submitted((), (task(2, "", "z"),)))
    bench.send(done(bench.launch(2)))
    bench.send(done(bench.launch(1)))
    assert bench.scheduler.status is None
    bench.send(happened.Closed())
    assert bench.scheduler.status == "complete"


def test_a_refused_submission_changes_nothing() -> None:
    bench = Bench(task(1, "", "a"), open=True)
    with pytest.raises(UsageError, match="in a circle"):
        bench.send(happened.Submitted((), (task(2, "c", "b"), task(3, "b", "c"))))
    bench.send(happened.Submitted((), (task(2, "a", "b"),)))
    assert bench.scheduler.standing().graph_tasks == 2


def test_cancelling_the_run_ends_all_tasks() -> None:
    bench = Bench(task(1, "", "a"), task(2), task(3, "a"), open=True, workers=1)
    first = bench.launch(1)
    bench.send(happened.CancelRequested("interrupted"))
    assert sorted(bench.ends) == [(1, "cancelled"), (2, "cancelled"), (3, "cancelled")]
    assert bench.scheduler.status is None  # its attempt has not returned
    bench.send(done(first))
    assert [type(one) for one in bench.said] == [orders.Discard, orders.Resolve]
    assert bench.scheduler.status == "cancelled"


# -- what cannot be sent, what may be taken back


def crash(worker: int, incarnation: int, kind: FailureKind) -> happened.WorkerLost:
    return happened.WorkerLost(worker, incarnation, Failure(kind, "WorkerLost", "it is gone"))


@pytest.mark.parametrize(("kind", "times"), [(FailureKind.CRASHED, 2), (FailureKind.LOST, 10)])
def test_an_output_that_ends_its_worker_whenever_it_is_sent_is_given_up(kind: FailureKind, times: int) -> None:
    bench = Bench(task(1, "", "ab"), workers=1, open=True, on_error="skip", restart=True)
    for life in range(times):
        bench.send(done(bench.launch(1)))
        if not life:
            assert bench.ends == [(1, "done")]
        bench.send(happened.Wanted("a"), happened.Wanted("b"))
        bench.send(crash(0, life, kind))
        if life < times - 1:
            assert bench.ends == []
            bench.send(happened.WorkerJoined(Worker(0, life + 1, Needs.of({"cores": 1}))))
    ((number, state, failure, _),) = bench.only(orders.TaskEnded)
    assert (number, state) == (1, "failed")
    assert failure is not None
    assert f"'a' cannot be sent to others: it is gone; that happened {times} times" in failure.message


def test_before_a_worker_begins_what_may_take_long_it_sends_what_others_could_use() -> None:
    bench = Bench(task(1), task(2, "", "ab"), task(3), task(4, "a"), task(5, "bx"), workers=2, open=True)
    long, large = bench.only(orders.Launch)
    bench.send(done(large, 10))
    launch = bench.launch(3)
    assert bench.said.index(launch) > bench.said.index(bench.only(orders.Fetch)[0])
    assert [one.handle.output for one in bench.only(orders.Fetch)] == ["a"]
    bench.send(happened.Fetched(bench.only(orders.Fetch)[0].handle))
    bench.send(done(long))
    assert bench.launched == [4]


def test_an_end_is_told_when_what_it_was_made_from_stays() -> None:
    bench = Bench(task(1, "", "ab", restartable=False, budget=1), task(2, "a", "c"), task(3, "c"), workers=2)
    first = bench.launch(1)
    bench.send(happened.Wanted("c"), early(first, "a"))
    bench.send(happened.Fetched(bench.only(orders.Fetch)[0].handle))
    bench.send(done(bench.launch(2)))
    assert bench.ends == []
    assert not bench.only(orders.Fetch)
    bench.send(done(bench.launch(3)))
    assert bench.ends == []
    bench.send(failed(first, FailureKind.USER))
    first = bench.launch(1)
    bench.send(early(first, "a"))
    bench.send(happened.Fetched(bench.only(orders.Fetch)[0].handle))
    bench.send(done(bench.launch(2)))
    bench.send(done(bench.launch(3)))
    bench.send(done(first))
    assert bench.ends == [(1, "done"), (2, "done"), (3, "done")]
    assert [one.handle.output for one in bench.only(orders.Fetch)] == ["c"]


def test_a_stream_that_was_shorter_the_second_time_ends_its_readers() -> None:
    bench = Bench(task(1, "", "e", budget=1), task(2, "x"), workers=2, open=True, on_error="skip")
    first = bench.launch(1)
    bench.send(happened.Wanted("x"), early(first, "x"), crash(0, 0, FailureKind.LOST))
    bench.send(done(bench.launch(1)))
    assert (2, "failed") in bench.ends
    (told,) = bench.only(orders.OutputFailed)
    assert told.output == "x"
    bench.send(happened.Wanted("x"))
    assert [one.output for one in bench.only(orders.OutputFailed)] == ["x"]
    assert not bench.launched


def test_what_comes_after_a_task_waits_until_that_is_not_done_again() -> None:
    bench = Bench(task(1, "", "ab", restartable=False), task(2, "a"), workers=3, open=True)
    first = bench.launch(1)
    bench.send(early(first, "a"))
    bench.send(happened.Fetched(bench.only(orders.Fetch)[0].handle))
    bench.send(happened.Submitted((), (task(3, after=(2,)),)), done(bench.launch(2)))
    bench.send(happened.Submitted((), (task(4, after=(2,)),)))
    assert bench.launched == []
    bench.send(done(first))
    assert bench.ends == [(1, "done"), (2, "done")]
    assert bench.launched == [3, 4]


def test_what_a_task_released_before_it_was_cancelled_is_taken_back_too() -> None:
    bench = Bench(
        task(1, "", "ab", restartable=False, group=1), task(2, "a", "cd", group=2), task(3, "c"), workers=2, open=True
    )
    first = bench.launch(1)
    bench.send(happened.Wanted("c"), early(first, "a"))
    bench.send(happened.Fetched(bench.only(orders.Fetch)[0].handle))
    bench.send(early(bench.launch(2), "c"))
    bench.send(happened.CancelRequested("enough", frozenset({2})))
    assert bench.ends == [(2, "cancelled")]
    assert not bench.only(orders.Take)
    bench.send(happened.CancelRequested("enough", frozenset({1})))
    assert bench.ends == [(1, "cancelled"), (3, "cancelled")]
