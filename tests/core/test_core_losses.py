"""The rules for what goes wrong and what comes near the end, one by one."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.failures import MOST_LOSSES, Answer, answer
from windrow.core.options import Options
from windrow.core.policies import AtTheEnd, Policies, SafetyPolicy
from windrow.core.records import Failure, FailureKind, Handle, InputSpec, Measurement, Needs, Rows, Worker
from windrow.core.scheduler import Scheduler
from windrow.errors import InternalError
from windrow.shape.fixed import Fixed

One = TypeVar("One")
USER = Failure(FailureKind.USER, "ValueError", "bad row")
SEGFAULT = Failure(FailureKind.CRASHED, "Crashed", "ended by signal 11")
KILLED = Failure(FailureKind.LOST, "Killed", "ended by signal 9")


def known(number: int = 0, rows: int = 100, category: str = "data") -> InputSpec:
    borders = tuple(range(0, rows + 1, 10))
    return InputSpec(id=number, category=category, rows=rows, borders=borders)


def make(
    *inputs: InputSpec, rows: int = 10, workers: int = 1, safety: SafetyPolicy | None = None, **options: Any
) -> tuple[Scheduler, list[orders.Command]]:
    policies = Policies(Fixed(rows), safety=safety or AtTheEnd())
    scheduler = Scheduler(inputs or [known()], policies, Options(**options))
    joined = [happened.WorkerJoined(Worker(number, 0)) for number in range(workers)]
    return scheduler, send(scheduler, *joined)


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


def finished(
    launch: orders.Launch,
    wall: float = 1.0,
    rows: tuple[Rows, ...] | None = None,
    skipped: tuple[Rows, ...] = (),
    baseline: int = 0,
) -> happened.Finished:
    covered = launch.task.inputs if rows is None else rows
    handle = Handle(launch.attempt, *of(launch), covered)
    measured = Measurement(wall=wall, baseline=baseline)
    left_out = tuple((part, USER) for part in skipped)
    return happened.Finished(*of(launch), handle, measured, None, left_out)


def failed(launch: orders.Launch, failure: Failure = USER) -> happened.Failed:
    return happened.Failed(*of(launch), failure)


def rejoin(worker: int, life: int) -> happened.WorkerJoined:
    return happened.WorkerJoined(Worker(worker, life))


# -- rows left out by the worker


def test_rows_left_out_fail_and_the_others_are_held() -> None:
    scheduler, commands = make(known(0, 10), on_error="skip")
    (launch,) = launches(commands)
    good = (Rows(0, 0, 3), Rows(0, 5, 10))
    (fetch,) = send(scheduler, finished(launch, 1.0, good, (Rows(0, 3, 5),)))
    assert scheduler.ledger.failures[0] == [(Rows(0, 3, 5), USER)]
    assert scheduler.standing().held == 8
    assert isinstance(fetch, orders.Fetch)
    _, resolve = send(scheduler, happened.Fetched(fetch.handle))
    assert resolve == orders.Resolve("incomplete", None, "")


def test_rows_left_out_stay_failed_when_the_others_are_lost() -> None:
    scheduler, commands = make(known(0, 10), on_error="skip", restart=True)
    (launch,) = launches(commands)
    good = (Rows(0, 0, 3), Rows(0, 5, 10))
    send(scheduler, finished(launch, 1.0, good, (Rows(0, 3, 5),)))
    send(scheduler, happened.WorkerLost(0, 0))
    (launch,) = launches(send(scheduler, rejoin(0, 1)))
    assert launch.task.inputs == (Rows(0, 0, 3),)
    assert scheduler.standing().failed == 2
    assert scheduler.standing().waiting == 5


@pytest.mark.parametrize(
    ("covered", "left_out"),
    [
        ([Rows(0, 0, 3)], [Rows(0, 4, 10)]),  # a gap
        ([Rows(0, 0, 6)], [Rows(0, 5, 10)]),  # an overlap
        ([Rows(0, 0, 10)], [Rows(0, 2, 4)]),
        ([Rows(0, 0, 9)], [Rows(0, 9, 11)]),
        ([], [Rows(0, 0, 10)]),  # a worker reports Failed then
        ([Rows(0, 0, 10)], [Rows(0, 10, 10)]),
    ],
)
def test_what_is_left_out_and_what_is_held_are_the_task(covered: list[Rows], left_out: list[Rows]) -> None:
    scheduler, commands = make(known(0, 30), on_error="skip")
    (launch,) = launches(commands)
    event = finished(launch, 1.0, tuple(covered), tuple(left_out))
    with pytest.raises(InternalError, match="does not cover"):
        scheduler.on([event], 0.0)


# -- crashes


def test_a_crash_counts_against_what_ran_and_the_queue_is_free() -> None:
    scheduler, commands = make(known(0, 30), restart=True)
    (launch,) = launches(commands)
    first, second = launches(send(scheduler, finished(launch, 0.001)))
    send(scheduler, started(first))
    assert only(orders.StartWorker, send(scheduler, happened.WorkerLost(0, 0, SEGFAULT)))
    assert [(task.inputs, tries.crashes) for task, tries in scheduler.placement.ready] == [(first.task.inputs, 1)]
    again, *_others = launches(send(scheduler, rejoin(0, 1)))
    assert again.task == first.task
    assert scheduler.spent.crashes == 1
    assert second.task.inputs == (Rows(0, 20, 30),)


def crash(scheduler: Scheduler, launch: orders.Launch) -> list[orders.Command]:
    """Let an attempt end its worker, and the next life begin."""
    _, worker, life = of(launch)
    send(scheduler, started(launch))
    commands = send(scheduler, happened.WorkerLost(worker, life, SEGFAULT))
    return commands + send(scheduler, rejoin(worker, life + 1))


@pytest.mark.parametrize(("on_error", "status"), [("stop", "failed"), ("skip", "incomplete")])
def test_rows_that_crash_are_cut_smaller_until_the_unit_at_fault_is_found(on_error: str, status: str) -> None:
    scheduler, commands = make(known(0, 30), rows=30, restart=True, on_error=on_error)
    sizes = []
    while batch := launches(commands):
        (launch,) = batch
        rows = launch.task.inputs[0]
        sizes.append((rows.start, launch.task.size))
        bad = rows.start <= 10 < rows.stop
        commands = crash(scheduler, launch) if bad else send(scheduler, finished(launch))
    expected = [(0, 30), (0, 30), (0, 10), (10, 10), (10, 10)]
    assert sizes[:5] == expected
    # What the crash took with it is made again.
    assert sizes[5:] == ([(0, 10), (20, 10)] if status == "incomplete" else [])
    for fetch in only(orders.Fetch, commands):
        commands = send(scheduler, happened.Fetched(fetch.handle))
    for merge in only(orders.Merge, commands):
        ids = tuple(handle.id for handle in merge.handles)
        event = happened.Merged(merge.into, ids, merge.worker, merge.incarnation)
        commands = send(scheduler, event)
        commands = send(scheduler, happened.Fetched(merge.into))
    assert scheduler.status == status
    if status == "failed":
        assert scheduler.failure == SEGFAULT
    else:
        assert scheduler.ledger.failures[0] == [(Rows(0, 10, 20), SEGFAULT)]


def test_a_crash_before_anything_started_counts_against_the_oldest() -> None:
    scheduler, commands = make(known(0, 10), restart=True)
    (launch,) = launches(commands)
    send(scheduler, happened.WorkerLost(0, 0, SEGFAULT))
    (again,) = launches(send(scheduler, rejoin(0, 1)))
    assert again.task == launch.task
    (resolve,) = only(orders.Resolve, send(scheduler, happened.WorkerLost(0, 1, SEGFAULT)))
    assert resolve.failure == SEGFAULT


def test_a_kill_is_free_but_not_for_ever() -> None:
    scheduler, commands = make(known(0, 10), restart=True)
    for life in range(MOST_LOSSES):
        (launch,) = launches(commands)
        commands = send(scheduler, started(launch))
        # The worker does other things well, so it is always started again at once.
        scheduler.crew.workers[0].proven = True
        commands = send(scheduler, happened.WorkerLost(0, life, KILLED))
        if life + 1 < MOST_LOSSES:
            assert orders.StartWorker(0, life + 1) in commands
            commands = send(scheduler, rejoin(0, life + 1))
    (resolve,) = only(orders.Resolve, commands)
    assert resolve.failure == KILLED
    assert scheduler.spent.losses == MOST_LOSSES


def kill_whoever_runs(scheduler: Scheduler, commands: list[orders.Command], bad: set[int]) -> None:
    """Play workers that do everything well, except that certain rows end them by a kill."""
    now = wake = 0.0
    while not scheduler.finished:
        events: list[happened.Event] = []
        ended: set[tuple[int, int]] = set()
        for command in commands:
            if isinstance(command, orders.Launch):
                life = of(command)[1:]
                (rows,) = command.task.inputs
                if life in ended:
                    continue
                if bad.isdisjoint(range(rows.start, rows.stop)):
                    events.append(finished(command))
                else:
                    events += [started(command), happened.WorkerLost(*life, KILLED)]
                    ended.add(life)
            elif isinstance(command, orders.StartWorker):
                events.append(rejoin(command.worker, command.incarnation))
            elif isinstance(command, orders.Merge):
                ids = tuple(handle.id for handle in command.handles)
                merged = happened.Merged(command.into, ids, command.worker, command.incarnation)
                events.append(merged)
            elif isinstance(command, orders.Fetch):
                events.append(happened.Fetched(command.handle))
            elif isinstance(command, orders.WakeAt):
                wake = command.time
        if not events:
            assert wake > now, "nothing would ever happen again"
            now = wake
            events.append(happened.Tick())
        commands = send(scheduler, *events, now=now)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("rows", [10, 50])
@pytest.mark.parametrize("bad", [{0}, {55}, {0, 10, 20, 30}, set(range(100))])
def test_rows_that_are_always_killed_are_left_out_and_no_worker_is_given_up(
    workers: int, rows: int, bad: set[int]
) -> None:
    scheduler, commands = make(known(0, 200), rows=rows, workers=workers, restart=True, on_error="skip")
    kill_whoever_runs(scheduler, commands, bad)
    assert scheduler.status == "incomplete"
    left_out = scheduler.ledger.failures[0]
    assert {row for part, _ in left_out for row in range(part.start, part.stop)} == {
        row for unit in {row // 10 for row in bad} for row in range(10 * unit, 10 * unit + 10)
    }
    story = (
        "ended by signal 9; that happened 10 times with these rows, from outside, perhaps by the "
        "kernel for want of memory: memory= limits what a worker may use"
    )
    assert {why.message for _, why in left_out} == {story}
    paused = {restart.worker for _, _, restart in scheduler.delays.pauses}
    assert {*scheduler.crew.workers, *scheduler.staff.starting, *paused} == set(range(workers))


def test_rows_that_are_always_killed_stop_the_run_by_their_own_fault() -> None:
    scheduler, commands = make(known(0, 200), rows=50, workers=2, restart=True)
    kill_whoever_runs(scheduler, commands, {55})
    assert scheduler.status == "failed"
    assert scheduler.failure == KILLED


def test_an_input_that_ends_whoever_opens_it_is_given_up() -> None:
    scheduler, commands = make(InputSpec(id=0, category="data"), on_error="skip", restart=True)
    for life in range(2):
        assert only(orders.Inspect, commands) == [orders.Inspect(0, 0, life)]
        commands = send(scheduler, happened.WorkerLost(0, life, SEGFAULT))
        if life == 0:
            commands = send(scheduler, rejoin(0, 1))
    assert scheduler.status == "incomplete"
    assert scheduler.ledger.failed_inputs == {0: SEGFAULT}


def test_many_inputs_that_end_whoever_opens_them_are_given_up() -> None:
    inputs = [InputSpec(id=number, category="data") for number in range(20)]
    scheduler, commands = make(*inputs, on_error="skip", restart=True)
    life = 0
    while not scheduler.finished:
        assert only(orders.Inspect, commands)
        commands = send(scheduler, happened.WorkerLost(0, life, SEGFAULT))
        life += 1
        if not scheduler.finished:
            assert only(orders.StartWorker, commands) == [orders.StartWorker(0, life)]
            commands = send(scheduler, rejoin(0, life))
    assert scheduler.status == "incomplete"
    assert scheduler.ledger.failed_inputs == dict.fromkeys(range(20), SEGFAULT)


@pytest.mark.parametrize("shipped", [False, True])
def test_a_merge_or_fetch_that_ends_its_worker_is_not_tried_for_ever(shipped: bool) -> None:
    scheduler, commands = make(known(0, 10 if shipped else 20), on_error="skip", restart=True)
    for life in range(2):
        while batch := launches(commands):
            commands = send(scheduler, *(finished(launch) for launch in batch))
        assert only(orders.Fetch if shipped else orders.Merge, commands)
        commands = send(scheduler, happened.WorkerLost(0, life, SEGFAULT))
        if life == 0:
            commands = send(scheduler, rejoin(0, 1))
    assert scheduler.status == "incomplete"
    assert scheduler.ledger.failed_rows == (10 if shipped else 20)


@pytest.mark.parametrize(
    ("kind", "on_error", "tries", "units", "expected"),
    [
        (FailureKind.CRASHED, "stop", 0, 1, Answer.AGAIN),
        (FailureKind.CRASHED, "stop", 1, 2, Answer.SMALLER),
        (FailureKind.CRASHED, "stop", 1, 1, Answer.STOP),
        (FailureKind.CRASHED, "skip", 1, 1, Answer.GIVE_UP),
        (FailureKind.LOST, "skip", 8, 1, Answer.AGAIN),
        (FailureKind.LOST, "skip", 9, 1, Answer.GIVE_UP),
        (FailureKind.LOST, "stop", 9, 1, Answer.STOP),
        (FailureKind.LOST, "stop", 3, 2, Answer.AGAIN),
        (FailureKind.LOST, "stop", 4, 2, Answer.SMALLER),
    ],
)
def test_what_is_done_about_the_end_of_a_worker(
    kind: FailureKind, on_error: Any, tries: int, units: int, expected: Answer
) -> None:
    assert answer(kind, Options(on_error=on_error), tries=tries, units=units) is expected


# -- limits


def test_limits_go_with_every_launch() -> None:
    limits = Needs.of({"memory": 2e9, "seconds": 60})
    _, commands = make(workers=2, limits=limits)
    assert [launch.limits for launch in launches(commands)] == [limits, limits]


@pytest.mark.parametrize(
    ("resource", "limit", "used", "words"),
    [
        ("memory", 5e8, 1.25e9, "used 1.25 GB of memory or more; the limit is 500 MB"),
        ("seconds", 60, 61.2, "took more than 61.2 s; the limit is 60 s"),
        ("licences", 2, 3, "used 3 of 'licences' or more; the limit is 2"),
    ],
)
def test_exhaustion_is_told_in_words(resource: str, limit: float, used: float, words: str) -> None:
    scheduler, commands = make(known(0, 10))
    (launch,) = launches(commands)
    (resolve,) = send(scheduler, happened.Exhausted(*of(launch), resource, limit, used))
    assert isinstance(resolve, orders.Resolve)
    assert resolve.failure is not None
    assert resolve.failure.kind is FailureKind.EXHAUSTED
    assert resolve.failure.message == words
    assert "rows 0 to 10" in resolve.failure.place


def test_an_engine_that_kills_tells_of_the_limit_first() -> None:
    scheduler, commands = make(known(0, 20), rows=20, restart=True)
    (launch,) = launches(commands)
    event = happened.Exhausted(*of(launch), "memory", 5e8, 6e8)
    commands = send(scheduler, started(launch), event, happened.WorkerLost(0, 0, KILLED))
    (smaller,) = launches(send(scheduler, rejoin(0, 1)))
    assert smaller.task.inputs == (Rows(0, 0, 10),)
    assert (scheduler.spent.exhaustions, scheduler.spent.losses) == (1, 1)


def test_row_limits_are_by_category() -> None:
    inputs = [known(0, 30, "a"), known(1, 30, "b"), known(2, 30, "c")]
    scheduler, _ = make(*inputs, row_limits={"a": 15, "b": 0}, row_limit=7)
    everything = {key[0]: book.everything.total for key, book in scheduler.ledger.books.items()}
    assert everything == {0: 15, 1: 0, 2: 30}


# -- workers that come again, and those that do not


def test_a_useless_worker_pauses_and_is_given_up() -> None:
    scheduler, _ = make(restart=True)
    pauses = []
    now, life = 0.0, 0
    while not scheduler.finished:
        commands = send(scheduler, happened.WorkerLost(0, life, KILLED), now=now)
        wakes = only(orders.WakeAt, commands)
        if wakes:
            pauses.append(round(wakes[0].time - now, 6))
            assert not only(orders.StartWorker, commands)
            now = wakes[0].time
            commands = send(scheduler, happened.Tick(), now=now)
        life += 1
        if not scheduler.finished:
            assert only(orders.StartWorker, commands) == [orders.StartWorker(0, life)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    assert life == 15
    assert scheduler.failure is not None
    assert scheduler.failure.kind is FailureKind.INTERNAL
    assert "worker 0: ended by signal 9" in scheduler.failure.message


def test_a_worker_that_ends_a_job_is_no_useless_one() -> None:
    scheduler, commands = make(known(0, 10_000), restart=True)
    for life in range(30):
        (launch,) = launches(commands)
        send(scheduler, finished(launch))
        assert orders.StartWorker(0, life + 1) in send(scheduler, happened.WorkerLost(0, life))
        commands = send(scheduler, rejoin(0, life + 1))


def test_the_run_fails_when_nobody_is_left() -> None:
    scheduler, _ = make(workers=2)
    assert not scheduler.finished
    send(scheduler, happened.WorkerLost(0, 0))
    (resolve,) = only(orders.Resolve, send(scheduler, happened.WorkerLost(1, 0, SEGFAULT)))
    assert resolve.failure is not None
    assert resolve.failure.message == ("no worker is left; the last to end was worker 1: ended by signal 11")


def test_a_run_waits_for_its_first_worker() -> None:
    scheduler, commands = make(workers=0)
    assert commands == []
    assert send(scheduler, happened.Tick(), now=1e6) == []
    assert send(scheduler, happened.WorkerLost(2, 0, KILLED)) == []  # one that could not begin
    assert launches(send(scheduler, rejoin(3, 0)))


def test_a_worker_that_cannot_begin_is_tried_again() -> None:
    scheduler, _ = make(workers=2, restart=True)
    send(scheduler, happened.WorkerLost(0, 0))
    lost = happened.WorkerLost(0, 1, KILLED)
    assert orders.StartWorker(0, 2) in send(scheduler, lost)
    assert send(scheduler, lost) == []  # told twice
    assert not launches(send(scheduler, rejoin(0, 1)))  # too late
    assert 0 in scheduler.staff.starting


# -- draining


def test_a_drained_worker_hands_over_and_ends() -> None:
    scheduler, commands = make(known(0, 100), workers=2, restart=True)
    first, second = launches(commands)
    (third,) = launches(send(scheduler, finished(first)))
    assert third.worker == first.worker
    drain = happened.DrainRequested(first.worker, 0, "its time is up", replace=True)
    assert send(scheduler, drain) == []
    merge, *others = send(scheduler, finished(third))
    assert isinstance(merge, orders.Merge)
    assert not launches(others)
    ids = tuple(handle.id for handle in merge.handles)
    (fetch,) = send(scheduler, happened.Merged(merge.into, ids, first.worker, 0))
    assert fetch == orders.Fetch(merge.into)
    commands = send(scheduler, happened.Fetched(merge.into))
    assert commands == [orders.Take(merge.into), orders.StopWorker(first.worker, 0)]
    assert send(scheduler, happened.Tick()) == []  # told once
    commands = send(scheduler, happened.WorkerLost(first.worker, 0, KILLED))
    assert commands == [orders.StartWorker(first.worker, 1)]
    assert scheduler.spent.losses == 0
    assert launches(send(scheduler, finished(second)))


def test_a_worker_drained_for_good_does_not_come_again() -> None:
    scheduler, _ = make(workers=2, restart=True)
    commands = send(scheduler, happened.DrainRequested(0, 0, "not ours any more"))
    (launch,) = [one for one in scheduler.crew.attempts.values() if one.worker.id == 0]
    assert commands == []
    commands = send(scheduler, happened.WorkerLost(0, 0, KILLED))  # a loss on the way
    assert not only(orders.StartWorker, commands)
    assert scheduler.spent.losses == 1
    assert launch.task.inputs[0] in scheduler.intake.feeds[0].cutter.waiting()


def test_draining_the_last_worker_ends_the_run() -> None:
    scheduler, commands = make()
    (launch,) = launches(commands)
    send(scheduler, happened.DrainRequested(0, 0, "the machine is wanted back"))
    (fetch,) = only(orders.Fetch, send(scheduler, finished(launch)))
    assert only(orders.StopWorker, send(scheduler, happened.Fetched(fetch.handle)))
    (resolve,) = only(orders.Resolve, send(scheduler, happened.WorkerLost(0, 0)))
    assert resolve.failure is not None
    assert "the machine is wanted back" in resolve.failure.message


@pytest.mark.parametrize(
    ("first", "last", "tasks", "replaced"),
    [
        (300, 650, 8, True),
        (300, 650, 7, False),  # it may be filling caches
        (300, 590, 20, False),  # not twice as much
        (100, 350, 20, False),  # not enough to matter
        (100, 360, 20, True),
    ],
)
def test_a_worker_whose_memory_grows_is_replaced(first: int, last: int, tasks: int, replaced: bool) -> None:
    scheduler, commands = make(known(0, 1000), restart=True)
    for number in range(tasks + 1):
        (launch,) = launches(commands)
        grown = last if number == tasks else first
        commands = send(scheduler, finished(launch, baseline=grown * 10**6))
    assert bool(scheduler.staff.draining) is replaced
    assert len(scheduler.notes) == replaced
    assert bool(launches(commands)) is not replaced


# -- safety


class Always:
    """Nothing is ever safe enough."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float | None, float | None]] = []

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:
        self.asked.append((held_s, cost_s, life_s))
        return held_s >= 2


def test_what_is_due_is_fetched_while_work_goes_on() -> None:
    safety = Always()
    scheduler, commands = make(known(0, 100), safety=safety, restart=True, workers=2)
    first, _ = launches(commands)
    (second,) = launches(send(scheduler, finished(first, 1.0)))
    merge, launch = send(scheduler, finished(second, 1.5))
    assert isinstance(merge, orders.Merge)
    assert isinstance(launch, orders.Launch)
    assert sorted(scheduler.ledger.held) == [first.attempt, second.attempt]
    assert safety.asked == [(1.0, None, None), (2.5, None, None)]
    # More is done before the merge is: it waits for its own turn.
    (launch,) = send(scheduler, finished(launch, 1.0))
    ids = tuple(handle.id for handle in merge.handles)
    (fetch,) = send(scheduler, happened.Merged(merge.into, ids, *of(first)[1:]))
    assert fetch == orders.Fetch(merge.into)
    commands = send(scheduler, happened.Fetched(merge.into, 0.25), now=8.0)
    assert orders.Take(merge.into) in commands
    assert scheduler.standing().done == 20
    assert safety.asked[-1] == (1.0, 0.25, None)
    # Two workers lived for 10 s each until one of them was lost.
    send(scheduler, happened.WorkerLost(1 - first.worker, 0), now=10.0)
    assert isinstance(launch, orders.Launch)
    send(scheduler, finished(launch, 1.0), now=10.0)
    assert list(safety.asked[-1]) == [2.0, 0.25, 20.0]


@pytest.mark.parametrize(("on_error", "status"), [("stop", "failed"), ("skip", "incomplete")])
def test_a_partial_that_cannot_be_shipped_is_not_made_again(on_error: str, status: str) -> None:
    scheduler, commands = make(known(0, 10), on_error=on_error)
    (launch,) = launches(commands)
    (fetch,) = only(orders.Fetch, send(scheduler, finished(launch)))
    event = happened.FetchFailed(fetch.handle, USER)
    (resolve,) = only(orders.Resolve, send(scheduler, event))
    assert resolve.status == status
    assert send(scheduler, event) == []
