"""The scheduler's rules, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import pytest

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.failures import Answer, answer
from windrow.core.options import Options
from windrow.core.policies import KeepOrder, Policies
from windrow.core.records import (
    ONE_CORE,
    Evidence,
    Failure,
    FailureKind,
    Handle,
    InputSpec,
    Measurement,
    Needs,
    Plan,
    PlanJob,
    Rows,
    StepCost,
    Worker,
)
from windrow.core.scheduler import Scheduler
from windrow.errors import InternalError
from windrow.shape.fixed import Fixed

UNITS = tuple(range(0, 101, 10))
One = TypeVar("One")


def known(number: int = 0, rows: int = 100, category: str = "data", **more: Any) -> InputSpec:
    borders = tuple(range(0, rows + 1, 10))
    return InputSpec(id=number, category=category, rows=rows, borders=borders, **more)


def make(
    *inputs: InputSpec, rows: int = 10, workers: int = 1, **options: Any
) -> tuple[Scheduler, list[orders.Command]]:
    scheduler = Scheduler(inputs or [known()], Policies(Fixed(rows)), Options(**options))
    joined = [happened.WorkerJoined(Worker(number, 0)) for number in range(workers)]
    return scheduler, send(scheduler, *joined)


def send(scheduler: Scheduler, *events: happened.Event, now: float = 0.0) -> list[orders.Command]:
    commands = scheduler.on(events, now)
    scheduler.validate()
    return commands


def only(kind: type[One], commands: list[orders.Command]) -> list[One]:
    return [command for command in commands if isinstance(command, kind)]


def finished(launch: orders.Launch, wall: float = 0.0, **evidence: Any) -> happened.Finished:
    number, worker, life = launch.attempt, launch.worker, launch.incarnation
    handle = Handle(number, number, worker, life, launch.task.inputs)
    learned = Evidence(**evidence) if evidence else None
    return happened.Finished(number, worker, life, handle, Measurement(wall=wall), learned)


def failed(launch: orders.Launch, kind: FailureKind) -> happened.Failed:
    failure = Failure(kind, "Error", f"a {kind.value} failure")
    return happened.Failed(launch.attempt, launch.worker, launch.incarnation, failure)


def launches(commands: list[orders.Command]) -> list[orders.Launch]:
    return only(orders.Launch, commands)


# -- placement


def test_the_first_worker_gets_the_first_rows_under_the_plan() -> None:
    plan = Plan(id=5, category="data", order=("a", "b"))
    scheduler = Scheduler([known()], Policies(Fixed(30)), plans={"data": plan})
    (launch,) = send(scheduler, happened.WorkerJoined(Worker(4, 9)))
    assert isinstance(launch, orders.Launch)
    assert launch.task.inputs == (Rows(0, 0, 30),)
    assert (launch.worker, launch.incarnation, launch.plan) == (4, 9, plan)


def test_idle_workers_are_served_before_queues_grow() -> None:
    scheduler, commands = make(workers=2)
    first, second = launches(commands)
    assert {first.worker, second.worker} == {0, 1}
    # Tasks of 1 ms: several fit a worker's queue, and both get as many.
    commands = send(scheduler, finished(first, 0.001), finished(second, 0.001))
    by_worker = [launch.worker for launch in launches(commands)]
    assert by_worker[:2] in ([0, 1], [1, 0])
    assert by_worker.count(0) == by_worker.count(1) == 4


def test_long_tasks_are_not_queued() -> None:
    scheduler, commands = make(workers=2)
    first, second = launches(commands)
    assert len(launches(send(scheduler, finished(first, 1.0)))) == 1
    assert len(launches(send(scheduler, finished(second, 1.0)))) == 1


def test_workers_keep_to_their_input_and_share_at_the_end() -> None:
    scheduler, commands = make(known(0, 20), known(1, 40), workers=2)
    seen = []
    while batch := launches(commands):
        seen += [(launch.worker, launch.task.inputs[0].input) for launch in batch]
        commands = send(scheduler, *(finished(launch, 1.0) for launch in batch))
    assert seen == [(0, 0), (1, 1), (0, 0), (1, 1), (0, 1), (1, 1)]


def test_a_worker_that_offers_too_little_gets_nothing_until_it_offers_more() -> None:
    scheduler, _commands = make(workers=0, needs=Needs.of({"cores": 2}))
    assert send(scheduler, happened.WorkerJoined(Worker(0, 0, ONE_CORE))) == []
    (launch,) = send(scheduler, happened.OffersChanged(0, 0, Needs.of({"cores": 4, "gpus": 1})))
    assert isinstance(launch, orders.Launch)
    assert send(scheduler, happened.OffersChanged(0, 0, ONE_CORE)) == []
    assert launches(send(scheduler, finished(launch))) == []


# -- inputs


def answers(commands: list[orders.Command]) -> list[happened.Event]:
    """Do what commands say, at once and well."""
    events: list[happened.Event] = []
    for command in commands:
        if isinstance(command, orders.Launch):
            events.append(finished(command, 1e-6))
        elif isinstance(command, orders.Inspect):
            events.append(happened.Discovered(command.input, 100, UNITS, command.worker, 0))
        elif isinstance(command, orders.Merge):
            ids = tuple(handle.id for handle in command.handles)
            events.append(happened.Merged(command.into, ids, command.worker, 0))
        elif isinstance(command, orders.Fetch):
            events.append(happened.Fetched(command.handle))
    return events


def test_inputs_are_opened_when_work_reaches_them() -> None:
    specs = [InputSpec(id=number, category="data") for number in range(10)]
    scheduler, commands = make(*specs, workers=2)
    assert commands == [orders.Inspect(0, 0, 0), orders.Inspect(1, 1, 0)]
    opened: list[int] = []
    while not scheduler.finished:
        opened += [inspect.input for inspect in only(orders.Inspect, commands)]
        started = sum(feed.touched for feed in scheduler.intake.feeds.values())
        assert len(opened) - started <= 3  # workers + 1
        commands = send(scheduler, *answers(commands))
    assert scheduler.status == "complete"
    assert opened == list(range(10))


def test_the_worker_that_opened_an_input_runs_it() -> None:
    specs = [InputSpec(id=number, category="data") for number in range(2)]
    scheduler, _commands = make(*specs, workers=2)
    (launch,) = launches(send(scheduler, happened.Discovered(1, 100, UNITS, 1, 0)))
    assert (launch.worker, launch.task.inputs[0].input) == (1, 1)


def test_a_known_input_is_never_opened() -> None:
    _, commands = make(known(0), known(1), workers=2)
    assert not only(orders.Inspect, commands)


def test_a_limit_that_is_reached_leaves_the_rest_closed() -> None:
    specs = [InputSpec(id=number, category="data") for number in range(3)]
    scheduler, _ = make(*specs, row_limit=15)
    commands = send(scheduler, happened.Discovered(0, 100, UNITS, 0, 0))
    (launch,) = launches(commands)
    assert launch.task.inputs == (Rows(0, 0, 10),)
    (launch,) = launches(send(scheduler, finished(launch, 1.0)))
    assert launch.task.inputs == (Rows(0, 10, 15),)
    commands = send(scheduler, finished(launch, 1.0))
    assert not only(orders.Inspect, commands)
    assert scheduler.standing().known == 15
    assert not scheduler.ledger.unopened


def test_the_first_input_is_opened_even_for_no_rows() -> None:
    specs = [InputSpec(id=number, category="ab"[number // 2]) for number in range(4)]
    scheduler, commands = make(*specs, row_limit=0)
    opened = []
    while not scheduler.finished:
        opened += [inspect.input for inspect in only(orders.Inspect, commands)]
        commands = send(scheduler, *answers(commands))
    assert opened == [0, 2]
    assert scheduler.status == "complete"


def test_more_inputs_can_be_submitted() -> None:
    scheduler, commands = make(known(0, 10))
    (launch,) = launches(commands)
    commands = send(scheduler, happened.Submitted((known(1, 10),)), finished(launch, 1.0))
    assert [launch.task.inputs[0].input for launch in launches(commands)] == [1]


def test_a_bound_smaller_than_a_unit_is_noted_once() -> None:
    scheduler, commands = make(known(label="f.root"), rows=1000, chunk=7)
    (launch,) = launches(commands)
    assert launch.task.size == 10
    send(scheduler, finished(launch, 1.0))
    (note,) = scheduler.notes
    assert "chunk=7" in note
    assert "f.root" in note


# -- exactly once


def test_a_second_report_changes_nothing_and_kills_nothing() -> None:
    scheduler, commands = make()
    (launch,) = launches(commands)
    event = finished(launch, 1.0)
    send(scheduler, event)
    assert send(scheduler, event) == []
    assert scheduler.standing().held == 10


def test_a_report_of_a_former_life_is_answered_with_discard() -> None:
    scheduler, commands = make(restart=True)
    (launch,) = launches(commands)
    assert send(scheduler, happened.WorkerLost(0, 0)) == [orders.StartWorker(0, 1)]
    assert scheduler.standing().waiting == 100
    event = finished(launch)
    assert send(scheduler, event) == [orders.Discard(event.handle)]
    (again,) = launches(send(scheduler, happened.WorkerJoined(Worker(0, 1))))
    assert again.task.inputs == launch.task.inputs
    assert send(scheduler, event) == [orders.Discard(event.handle)]
    assert scheduler.standing().held == 0


def test_a_new_life_means_the_former_is_lost() -> None:
    scheduler, commands = make()
    (launch,) = launches(commands)
    (again,) = launches(send(scheduler, happened.WorkerJoined(Worker(0, 1))))
    assert again.task.inputs == launch.task.inputs
    assert send(scheduler, happened.WorkerJoined(Worker(0, 0))) == []
    assert send(scheduler, happened.WorkerLost(0, 0)) == []


def test_held_rows_return_with_their_worker() -> None:
    scheduler, commands = make(workers=2)
    first, second = launches(commands)
    send(scheduler, finished(first, 1.0), finished(second, 1.0))
    assert scheduler.standing().held == 20
    send(scheduler, happened.WorkerLost(first.worker, 0))
    assert scheduler.standing().held == 10


def test_rows_of_a_merge_are_owned_by_its_inputs_until_it_is_reported() -> None:
    scheduler, commands = make(known(0, 20))
    (launch,) = launches(commands)
    (launch,) = launches(send(scheduler, finished(launch, 1.0)))
    (merge,) = send(scheduler, finished(launch, 1.0))
    assert isinstance(merge, orders.Merge)
    assert merge.into.rows == (Rows(0, 0, 20),)
    assert sorted(scheduler.ledger.held) == sorted(handle.id for handle in merge.handles)
    ids = tuple(handle.id for handle in merge.handles)
    (fetch,) = send(scheduler, happened.Merged(merge.into, ids, 0, 0))
    assert fetch == orders.Fetch(merge.into)
    assert scheduler.standing().done == 0
    take, resolve = send(scheduler, happened.Fetched(merge.into))
    assert take == orders.Take(merge.into)
    assert resolve == orders.Resolve("complete", None, "")
    assert scheduler.standing().done == 20
    # Too late to count: nobody waits for it.
    assert send(scheduler, happened.Fetched(merge.into)) == [orders.Discard(merge.into)]


def test_a_full_bundle_is_merged_while_rows_are_left() -> None:
    scheduler, commands = make(known(0, 200))
    for _ in range(8):
        (launch,) = launches(commands)
        commands = send(scheduler, finished(launch, 1.0))
    (merge,) = only(orders.Merge, commands)
    assert [handle.rows[0].start for handle in merge.handles] == list(range(0, 80, 10))


def test_a_handle_must_cover_what_was_launched() -> None:
    scheduler, commands = make()
    (launch,) = launches(commands)
    event = finished(launch)
    handle = event.handle._replace(rows=(Rows(0, 0, 20),))
    with pytest.raises(InternalError, match="does not cover"):
        scheduler.on([event._replace(handle=handle)], 0.0)


def test_a_lost_output_is_made_again() -> None:
    scheduler, commands = make(known(0, 10))
    (launch,) = launches(commands)
    (fetch,) = only(orders.Fetch, send(scheduler, finished(launch)))
    (again,) = launches(send(scheduler, happened.OutputLost(fetch.handle)))
    assert again.task.inputs == launch.task.inputs
    assert send(scheduler, happened.Fetched(fetch.handle)) == [orders.Discard(fetch.handle)]


# -- failures


def test_a_user_error_stops_the_run() -> None:
    scheduler, commands = make(workers=2)
    first, second = launches(commands)
    commands = send(scheduler, failed(first, FailureKind.USER))
    assert commands == [orders.Cancel(second.attempt, 1, 0)]
    event = finished(second)
    discard, resolve = send(scheduler, event)
    assert discard == orders.Discard(event.handle)
    assert isinstance(resolve, orders.Resolve)
    assert resolve.status == "failed"
    assert resolve.failure is not None
    assert resolve.failure.message == "a user failure"


def test_skipping_finds_the_unit_at_fault() -> None:
    scheduler, commands = make(known(0, 30), rows=30, on_error="skip")
    (launch,) = launches(commands)
    commands = send(scheduler, failed(launch, FailureKind.USER))
    sizes = []
    while batch := launches(commands):
        (launch,) = batch
        sizes.append(launch.task.size)
        bad = launch.task.inputs[0].start == 10
        commands = send(scheduler, failed(launch, FailureKind.USER) if bad else finished(launch, 1.0))
    assert sizes == [10, 10, 10]
    (given_up,) = scheduler.ledger.failures[0]
    assert given_up.rows == Rows(0, 10, 20)


def test_a_read_is_tried_again_after_a_pause_and_then_given_up() -> None:
    scheduler, commands = make(known(0, 10), on_error="skip")
    (launch,) = launches(commands)
    event = failed(launch, FailureKind.TRANSIENT_IO)
    assert send(scheduler, event, now=5.0) == [orders.WakeAt(5.1)]
    assert send(scheduler, happened.Tick(), now=5.05) == []
    (launch,) = launches(send(scheduler, happened.Tick(), now=5.1))
    event = failed(launch, FailureKind.TRANSIENT_IO)
    assert send(scheduler, event, now=6.0) == [orders.WakeAt(6.4)]
    (launch,) = launches(send(scheduler, happened.Tick(), now=6.5))
    (resolve,) = send(scheduler, failed(launch, FailureKind.TRANSIENT_IO), now=7.0)
    assert isinstance(resolve, orders.Resolve)
    assert resolve.status == "incomplete"
    assert scheduler.ledger.failed_rows == 10


def test_an_input_out_of_reach_fails_what_remains_of_it() -> None:
    scheduler, commands = make(known(0), known(1, 10), on_error="skip", retries=0)
    (launch,) = launches(commands)
    (launch,) = launches(send(scheduler, finished(launch, 1.0)))
    commands = send(scheduler, failed(launch, FailureKind.TRANSIENT_IO))
    assert scheduler.ledger.failed_rows == 90
    assert [launch.task.inputs[0].input for launch in launches(commands)] == [1]
    assert len(only(orders.Fetch, commands)) == 1


def test_an_input_that_cannot_be_opened_is_listed() -> None:
    scheduler, _commands = make(InputSpec(id=0, category="data"), on_error="skip")
    failure = Failure(FailureKind.BAD_FILE, "OSError", "no such file")
    (resolve,) = send(scheduler, happened.InspectFailed(0, 0, 0, failure))
    assert resolve == orders.Resolve("incomplete", None, "")
    assert scheduler.ledger.failed_inputs == {0: failure}


def test_an_input_that_cannot_be_opened_stops_the_run_by_default() -> None:
    scheduler, _commands = make(InputSpec(id=0, category="data"))
    failure = Failure(FailureKind.BAD_FILE, "OSError", "no such file")
    (resolve,) = send(scheduler, happened.InspectFailed(0, 0, 0, failure))
    assert resolve == orders.Resolve("failed", failure, "no such file")


def test_exhaustion_cuts_smaller_before_anything_fails() -> None:
    scheduler, commands = make(known(0, 30), rows=30)
    (launch,) = launches(commands)
    (launch,) = launches(send(scheduler, failed(launch, FailureKind.EXHAUSTED)))
    assert launch.task.size == 10
    (resolve,) = only(orders.Resolve, send(scheduler, failed(launch, FailureKind.EXHAUSTED)))
    assert resolve.status == "failed"


def test_an_internal_error_is_never_skipped() -> None:
    scheduler, commands = make(rows=100, on_error="skip")
    (launch,) = launches(commands)
    (resolve,) = send(scheduler, failed(launch, FailureKind.INTERNAL))
    assert isinstance(resolve, orders.Resolve)
    assert resolve.status == "failed"


def test_a_merge_that_fails_gives_its_rows_up_or_stops() -> None:
    for on_error, status in (("skip", "incomplete"), ("stop", "failed")):
        scheduler, commands = make(known(0, 20), on_error=on_error)
        (launch,) = launches(commands)
        (launch,) = launches(send(scheduler, finished(launch, 1.0)))
        (merge,) = only(orders.Merge, send(scheduler, finished(launch, 1.0)))
        ids = tuple(handle.id for handle in merge.handles)
        failure = Failure(FailureKind.USER, "TypeError", "cannot add")
        event = happened.MergeFailed(merge.into, ids, 0, 0, failure)
        (resolve,) = only(orders.Resolve, send(scheduler, event))
        assert resolve.status == status


@pytest.mark.parametrize(
    ("kind", "on_error", "tries", "units", "expected"),
    [
        (FailureKind.LOST, "stop", 8, 1, Answer.AGAIN),
        (FailureKind.INTERNAL, "skip", 0, 5, Answer.STOP),
        (FailureKind.TRANSIENT_IO, "stop", 1, 1, Answer.LATER),
        (FailureKind.TRANSIENT_IO, "stop", 2, 1, Answer.STOP),
        (FailureKind.TRANSIENT_IO, "skip", 2, 5, Answer.GIVE_UP_INPUT),
        (FailureKind.EXHAUSTED, "stop", 0, 2, Answer.SMALLER),
        (FailureKind.EXHAUSTED, "stop", 0, 1, Answer.STOP),
        (FailureKind.EXHAUSTED, "skip", 0, 1, Answer.GIVE_UP),
        (FailureKind.USER, "stop", 0, 2, Answer.STOP),
        (FailureKind.USER, "skip", 0, 2, Answer.SMALLER),
        (FailureKind.USER, "skip", 0, 1, Answer.GIVE_UP),
        (FailureKind.BAD_FILE, "skip", 0, 2, Answer.SMALLER),
        (FailureKind.BAD_FILE, "skip", 0, 1, Answer.GIVE_UP),
        (FailureKind.BAD_FILE, "stop", 0, 2, Answer.STOP),
    ],
)
def test_what_is_done_about_a_failure(
    kind: FailureKind, on_error: Any, tries: int, units: int, expected: Answer
) -> None:
    assert answer(kind, Options(on_error=on_error), tries=tries, units=units) is expected


# -- the end


def test_a_cancelled_run_fetches_what_is_held_and_says_what_is_missing() -> None:
    scheduler, commands = make(workers=2)
    first, second = launches(commands)
    (third,) = launches(send(scheduler, finished(first, 1.0)))
    commands = send(scheduler, happened.CancelRequested("enough"))
    assert {c.attempt for c in only(orders.Cancel, commands)} == {second.attempt, third.attempt}
    commands += send(scheduler, finished(second))  # it ran to its end: it counts
    commands += send(scheduler, happened.Cancelled(third.attempt, third.worker, 0))
    fetches = only(orders.Fetch, commands)
    assert len(fetches) == 2
    commands = send(scheduler, *(happened.Fetched(fetch.handle) for fetch in fetches))
    (resolve,) = only(orders.Resolve, commands)
    assert resolve == orders.Resolve("cancelled", None, "enough")
    assert scheduler.ledger.missing() == (Rows(0, 20, 100),)


def test_no_inputs_or_no_rows_is_a_complete_run() -> None:
    scheduler = Scheduler([], Policies(Fixed(1)))
    assert send(scheduler) == [orders.Resolve("complete", None, "")]
    _, commands = make(known(0, 0))
    assert commands == [orders.Resolve("complete", None, "")]


# -- plans and evidence


def test_new_guards_ask_for_a_plan_that_later_launches_use() -> None:
    scheduler, commands = make(workers=2)
    first, second = launches(commands)
    guard = ("mass", "two_muons")
    commands = send(scheduler, finished(first, 1.0, guards=(guard,)))
    (ask,) = only(orders.Replan, commands)
    assert ask.job.guards == (guard,)
    # Another guard while the answer is out: asked for when it is there.
    other = ("mass", "trigger")
    commands = send(scheduler, finished(second, 1.0, guards=(guard, other)))
    assert not only(orders.Replan, commands)
    plan = KeepOrder().replan(ask.job)
    commands = send(scheduler, happened.Planned(plan))
    (again,) = only(orders.Replan, commands)
    assert again.job.guards == (guard, other)
    send(scheduler, happened.Planned(KeepOrder().replan(again.job)))
    live = next(iter(scheduler.crew.attempts.values()))
    (launch,) = launches(
        send(scheduler, finished(orders.Launch(live.task, live.id, live.worker.id, 0, live.plan), 1.0))
    )
    assert launch.plan.guards == (guard, other)
    assert launch.plan.id == 2


def test_a_plan_must_keep_guards_and_be_newer() -> None:
    scheduler, commands = make()
    (launch,) = launches(commands)
    commands = send(scheduler, finished(launch, 1.0, guards=(("a", "b"),)))
    (ask,) = only(orders.Replan, commands)
    for plan in (Plan(id=1, category="data"), replace(ask.job.plan, guards=(("a", "b"),))):
        with pytest.raises(InternalError, match="keep every guard"):
            scheduler.on([happened.Planned(plan)], 0.0)


def test_evidence_counts_only_for_accepted_attempts() -> None:
    scheduler, commands = make()
    (launch,) = launches(commands)
    cost = StepCost.of_call(10, 4, 0.5, 80)
    event = finished(launch, 1.0, steps=(("cut", cost),), notes=("seen",))
    (launch,) = launches(send(scheduler, event))
    send(scheduler, event)
    send(scheduler, finished(launch, 1.0, steps=(("cut", cost),)))
    evidence = scheduler.accounts["data"].evidence
    assert evidence.steps == (("cut", cost.merge(cost)),)
    assert evidence.notes == ("seen",)
    assert scheduler.accounts["data"].costs().calls == 2


def test_keep_order_answers_with_all_guards() -> None:
    plan = Plan(id=3, category="data", order=("a",), guards=(("a", "x"),))
    guards = (("a", "x"), ("a", "y"))
    job = PlanJob(category="data", plan=plan, guards=guards, evidence=Evidence())
    assert KeepOrder().replan(job) == replace(plan, id=4, guards=guards, reason="new guards")


# -- the standing


def test_the_standing_counts_rows() -> None:
    scheduler, commands = make(known(0, 30), InputSpec(id=1, category="data"))
    standing = scheduler.standing()
    assert (standing.known, standing.running, standing.waiting) == (30, 10, 20)
    assert (standing.inputs, standing.inputs_unopened, standing.expected) == (2, 1, 30)
    send(scheduler, happened.Progress(launches(commands)[0].attempt, 0, 0, 4))
    assert scheduler.standing() == standing
