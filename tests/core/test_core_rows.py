"""Rows as tasks: who gets which, what is merged and brought, and what becomes of rows whose task ended badly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core_world import CRASH, ERROR, KILL, READ, World, missing_rows
from windrow.core.commands import Cancel, Discard, Fetch, Launch, Recall, StartWorker
from windrow.core.events import CancelRequested, Closed, DrainRequested, Event, Finished, Submitted, Tick, WorkerJoined
from windrow.core.inputs import SLOWER, Family, Input
from windrow.core.policies import LaunchPolicy, Options, Policies, ShapeRequest
from windrow.core.records import (
    DRIVER,
    NO_COST,
    Evidence,
    Failure,
    FailureKind,
    InputSpec,
    Life,
    Made,
    Measurement,
    MergePartials,
    Needs,
    OpenInput,
    Plan,
    PlanJob,
    Rows,
    RowsReport,
    RunRows,
    StepCost,
    Task,
)
from windrow.core.retry import EXPLAINED, MOST_LOSSES
from windrow.core.rows import MOST_INPUTS, RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.core.workers import QUICK_LIVES, SLOW_LIVES
from windrow.errors import InternalError
from windrow.shape.fixed import Fixed
from windrow.shape.safety import Bounded

A, B = Life(0, 0), Life(1, 0)


def borders(rows: int, unit: int = 10) -> tuple[int, ...]:
    return tuple(sorted({*range(0, rows, unit), rows}))


def known(*rows: int, unit: int = 10) -> list[InputSpec]:
    return [
        InputSpec(id=n, category="d", label=f"file {n}", rows=size, borders=borders(size, unit))
        for n, size in enumerate(rows)
    ]


def world(
    specs: list[InputSpec],
    workers: int = 1,
    *,
    chunk: int = 10,
    rows: dict[str, Any] | None = None,
    limits: Needs | None = None,
    plans: dict[str, Plan] | None = None,
    policies: Policies | None = None,
    begin: bool = True,
    shares: bool = False,
    **options: Any,
) -> World:
    feeder = RowFeeder(specs, policies or Policies(Fixed(chunk)), RowOptions(**(rows or {})), plans)
    policy = LaunchPolicy(limits or Needs())
    scheduler = Scheduler(feeder, policy, Options(**options))
    inputs = {spec.id: borders(30) for spec in specs}
    made = World(scheduler, workers, inputs=inputs, shares=shares)
    if begin:
        made.begin()
    return made


def feeder_of(made: World) -> RowFeeder:
    feeder = made.scheduler.feeder
    assert isinstance(feeder, RowFeeder)
    return feeder


def rows_at(made: World, life: Life) -> list[tuple[int, ...]]:
    return [
        tuple(part)
        for one in made.queues[life]
        if isinstance(one.task.payload, RunRows)
        for part in one.task.payload.rows
    ]


def go_on(made: World, life: Life, times: int = 1, **more: Any) -> None:
    """Let a worker do what it has."""
    for _ in range(times):
        made.tell(*made.start(life), *made.finish(life, **more))


def finish_all(made: World) -> None:
    made.run()


# -- who gets what


def test_the_first_task_checks_steps_and_each_worker_is_told_once_which_are_row_pure() -> None:
    made = world(known(60, 60), workers=2)

    def told(life: Life) -> Any:
        return made.queues[life][0].task.payload.checked

    assert told(A) == frozenset()
    assert told(B) is None  # A checks
    go_on(made, B, wall=1.0)
    assert told(B) is None  # A still does
    go_on(made, A, wall=1.0, checked=frozenset({"a"}))
    assert told(A) == {"a"}
    go_on(made, B, wall=1.0)
    assert told(B) == {"a"}
    go_on(made, B, wall=1.0, checked=frozenset({"b"}))
    assert told(B) == {"a", "b"}
    go_on(made, B, wall=1.0)
    assert told(B) == frozenset()  # it knows


def test_what_tasks_were_said_to_take_is_kept_with_what_they_took() -> None:
    made = world(known(60))
    account = feeder_of(made).accounts["d"]
    said, took = [], []
    for wall in (1.0, 2.0, 4.0, 1.0):
        said.append(made.queues[A][0].task.payload.predicted_s)
        took.append(wall)
        go_on(made, A, wall=wall)
    assert said[0] == 0.0
    assert said[1] == 1.0
    assert (account.predicted, account.used_s) == (3, 7.0)
    assert account.predicted_s == pytest.approx(sum(said))
    assert account.off_s == pytest.approx(sum(abs(a - b) for a, b in zip(said[1:], took[1:], strict=True)))


def test_the_first_worker_gets_the_first_rows_under_the_plan() -> None:
    plan = Plan(id=3, category="d", order=("a", "b"))
    made = world(known(30), plans={"d": plan})
    (launch,) = made.queues[A]
    assert launch.task.payload.rows == (Rows(0, 0, 10),)
    assert (launch.plan, launch.queued, launch.task.twin) == (plan, False, True)
    assert [(part.name, part.amount) for part in launch.grant] == [("cores", 1)]


def test_idle_workers_are_served_before_queues_grow() -> None:
    made = world(known(200), 2)
    go_on(made, A, wall=0.001)
    assert made.queues[B]
    assert len(made.queues[A]) > 4
    assert [one.queued for one in made.queues[A]][:2] == [False, True]
    made.tell(*made.start(B), *made.finish(B, wall=0.001))
    assert len(made.queues[B]) > 4


def test_long_tasks_are_not_queued() -> None:
    made = world(known(200), 2)
    go_on(made, A, wall=1.0)
    assert len(made.queues[A]) == 1


def test_workers_keep_to_their_input_and_share_at_the_end() -> None:
    made = world(known(30, 30), 2)
    assert (rows_at(made, A), rows_at(made, B)) == ([(0, 0, 10)], [(1, 0, 10)])
    go_on(made, A, 4, wall=1.0)  # and a merge
    assert rows_at(made, A) == [(1, 10, 20)]


def test_inputs_are_opened_when_work_reaches_them_and_by_who_runs_them() -> None:
    specs = [InputSpec(id=n, category="d") for n in range(9)]
    made = world(specs, 2)
    opening = [one.task.payload for one in made.launched]
    assert opening == [OpenInput(0), OpenInput(1)]
    go_on(made, A)
    assert rows_at(made, A) == [(0, 0, 10)]
    finish_all(made)
    assert made.end is not None
    assert made.end.status == "complete"
    assert [one.task.payload.input for one in made.launched if isinstance(one.task.payload, OpenInput)] == list(
        range(9)
    )


def test_a_limit_that_is_reached_leaves_the_rest_closed_but_for_the_first() -> None:
    specs = [InputSpec(id=n, category="d") for n in range(5)]
    made = world(specs, rows={"row_limit": 35})
    finish_all(made)
    assert sum(isinstance(one.task.payload, OpenInput) for one in made.launched) <= 3
    assert feeder_of(made).ledger.done_rows == 35
    made = world(specs, rows={"row_limits": {"d": 0}})
    finish_all(made)
    assert [one.task.payload for one in made.launched] == [OpenInput(0)]


def test_more_inputs_can_be_submitted_until_the_run_is_closed() -> None:
    made = world(known(10), open=True)
    go_on(made, A)
    while made.fetches:
        made.tell(*made.bring())
    assert made.end is None
    more = InputSpec(id=7, category="new", rows=5, borders=(0, 5))
    made.tell(Submitted((more,)))
    assert rows_at(made, A) == [(7, 0, 5)]
    made.tell(Closed())
    finish_all(made)
    assert made.rows_taken() == [Rows(0, 0, 10), Rows(7, 0, 5)]
    assert feeder_of(made).forget(0)
    assert not feeder_of(made).forget(99)


def test_no_inputs_or_no_rows_is_a_complete_run() -> None:
    for specs in ([], known(0)):
        made = world(specs)
        assert made.end is not None
        assert made.end.status == "complete"


def test_the_payload_says_which_input_it_was_when_it_was_discovered() -> None:
    made = world([InputSpec(id=0, category="d", rows=10, borders=(0, 10), identity="v1")])
    assert made.launched[0].task.payload == RunRows((Rows(0, 0, 10),), ("v1",))


# -- partials


def test_a_full_bundle_is_merged_while_rows_are_left_and_the_rest_at_the_end() -> None:
    made = world(known(200))
    go_on(made, A, 8, wall=1.0)
    merges = [one for one in made.launched if isinstance(one.task.payload, MergePartials)]
    assert len(merges) == 1
    assert (merges[0].task.consumes, merges[0].task.pin, len(merges[0].inputs)) == (True, A, 8)
    assert merges[0].mine == tuple(range(8))
    assert not made.fetches
    finish_all(made)
    assert made.rows_taken() == [Rows(0, n, n + 10) for n in range(0, 200, 10)]
    assert len(made.taken) == 1
    assert made.stores[DRIVER] == {}
    assert made.stores[A] == {}


def test_neighbouring_inputs_are_added_up_by_the_worker_that_has_them() -> None:
    made = world(known(*[20] * 8), workers=2, rows={"family": 4})
    assert [made.queues[life][0].task.payload.rows[0].input for life in (A, B)] == [0, 4]
    while made.queues[A] or made.queues[B]:
        for life in (A, B):
            if made.queues[life]:
                go_on(made, life)
    finish_all(made)
    assert len(made.taken) <= 3  # the last may be run by both
    merges = [one.task.payload for one in made.launched if isinstance(one.task.payload, MergePartials)]
    assert {part for merge in merges for part in merge.whole} >= {(n, n, 20) for n in (0, 1, 2, 4, 5, 6)}


def test_a_family_whose_last_inputs_are_empty_or_given_up_is_brought() -> None:
    made = world([InputSpec(id=n, category="d") for n in range(4)], rows={"family": 4, "on_error": "skip"})
    made.inputs = {0: borders(20), 1: (0,), 2: borders(30), 3: (0,)}
    while made.end is None:
        launch = made.queues[A][0]
        bad = launch.task.payload == OpenInput(2)
        made.tell(*made.start(A), *(made.fail(A, ERROR) if bad else made.finish(A)))
        while made.fetches:
            made.tell(*made.bring())
    assert made.end.status == "incomplete"
    assert made.rows_taken() == [Rows(0, 0, 10), Rows(0, 10, 20)]


def test_families_of_others_are_taken_when_nothing_else_is_left() -> None:
    made = world(known(*[40] * 4), workers=2, rows={"family": 4})
    assert {made.queues[life][0].task.payload.rows[0] for life in (A, B)} == {Rows(0, 0, 10), Rows(0, 10, 20)}
    finish_all(made)
    assert made.rows_taken() == [Rows(n, start, start + 10) for n in range(4) for start in range(0, 40, 10)]


def test_with_a_row_limit_there_are_no_families() -> None:
    made = world(known(*[20] * 4), workers=2, rows={"family": 4, "row_limit": 50})
    finish_all(made)
    assert not any(one.task.payload.whole for one in made.launched if isinstance(one.task.payload, MergePartials))
    assert len(made.taken) >= 3


def test_large_partials_are_merged_when_there_are_two() -> None:
    made = world(known(200))
    made.size = 100_000_000
    go_on(made, A, 3, wall=1.0)
    merges = [len(one.inputs) for one in made.launched if isinstance(one.task.payload, MergePartials)]
    assert merges[:1] == [2]
    finish_all(made)
    assert made.rows_taken() == [Rows(0, n, n + 10) for n in range(0, 200, 10)]


def test_rows_of_a_merge_go_back_when_it_fails_or_its_worker_is_lost() -> None:
    for loses in (True, False):
        made = world(known(200), restart=True)
        go_on(made, A, 8, wall=1.0)
        while not isinstance(made.queues[A][0].task.payload, MergePartials):
            go_on(made, A, wall=1.0)
        gone = Failure(FailureKind.LOST, "X", "gone")
        made.tell(*made.start(A), *(made.lose(A) if loses else made.fail(A, gone)))
        assert feeder_of(made).ledger.held_rows <= 20
        finish_all(made)
        assert made.rows_taken() == [Rows(0, n, n + 10) for n in range(0, 200, 10)]


def test_a_merge_that_raises_gives_its_rows_up_or_stops() -> None:
    for on_error, status in (("skip", "incomplete"), ("stop", "failed")):
        made = world(known(90), rows={"on_error": on_error})
        go_on(made, A, 8, wall=1.0)
        while not isinstance(made.queues[A][0].task.payload, MergePartials):
            go_on(made, A, wall=1.0)
        made.tell(*made.start(A), *made.fail(A, ERROR))
        finish_all(made)
        assert made.end is not None
        assert made.end.status == status


def test_what_is_due_is_brought_while_work_goes_on() -> None:
    class Always:
        def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:
            assert cost_s is None or cost_s > 0
            return held_s > 1.5

    made = world(known(100), policies=Policies(Fixed(10), safety=Always()))
    go_on(made, A, 2, wall=1.0)
    assert isinstance(made.queues[A][-1].task.payload, MergePartials)
    finish_all(made)
    assert len(made.taken) > 1
    assert sorted(made.rows_taken()) == [Rows(0, n, n + 10) for n in range(0, 100, 10)]


def test_a_partial_that_cannot_be_sent_is_not_made_again() -> None:
    for on_error, status in (("stop", "failed"), ("skip", "incomplete")):
        made = world(known(10), rows={"on_error": on_error})
        go_on(made, A)
        made.tell(*made.bring(ERROR))
        finish_all(made)
        assert made.end is not None
        assert made.end.status == status
        assert len(made.launched) == 1


def test_a_fetch_that_ends_its_worker_again_and_again_is_given_up() -> None:
    made = world(known(10), rows={"on_error": "skip"}, restart=True)
    for _ in range(20):
        if made.end is not None:
            break
        if made.fetches:
            made.tell(*made.lose(made.fetches[0].source, CRASH))
        elif made.starting:
            made.tell(*made.begin_life())
        else:
            go_on(made, next(iter(made.lives.values())))
    assert made.end is not None
    assert (made.end.status, feeder_of(made).ledger.failed_rows) == ("incomplete", 10)


# -- reports that do not count


def test_a_second_report_changes_nothing_and_discards_nothing_that_is_held() -> None:
    made = world(known(30))
    report = made.finish(A, wall=1.0)
    made.tell(*report)
    commands = made.tell(*report)
    assert not any(isinstance(one, Discard) for one in commands)


def test_a_report_of_a_former_life_is_answered_with_discard() -> None:
    made = world(known(30), restart=True)
    (launch,) = made.queues[A]
    made.tell(*made.lose(A))
    output = launch.task.makes[0]
    late = Finished(launch.attempt, A, (*[_made(output)],), Measurement(), RowsReport())
    (discard,) = [one for one in made.tell(late) if isinstance(one, Discard)]
    assert (discard.handle, discard.holders) == ((output, launch.attempt), (A,))


def _made(output: str) -> Any:
    return Made(output)


def test_a_new_life_means_the_former_is_lost() -> None:
    made = world(known(30))
    made.lives.pop(0)
    made.queues.pop(A)
    made.stores.pop(A)
    made.tell(WorkerJoined(made.worker(Life(0, 1))))
    assert rows_at(made, Life(0, 1)) == [(0, 0, 10)]


def test_what_is_left_out_must_have_been_asked_for() -> None:
    made = world(known(30))
    with pytest.raises(InternalError, match="not asked for"):
        made.tell(*made.finish(A, skipped=((Rows(3, 0, 5), ERROR),)))


def test_rows_left_out_fail_and_the_others_are_held() -> None:
    made = world(known(30), rows={"on_error": "skip"})
    made.tell(*made.finish(A, skipped=((Rows(0, 3, 5), ERROR),)))
    ledger = feeder_of(made).ledger
    assert (ledger.failed_rows, ledger.held_rows) == (2, 8)
    finish_all(made)
    assert made.end is not None
    assert made.end.status == "incomplete"


def test_a_task_of_which_all_rows_are_left_out_leaves_no_partial() -> None:
    made = world(known(10), rows={"on_error": "skip"})
    launch = made.queues[A].pop()
    report = RowsReport(None, ((Rows(0, 0, 10), ERROR),))
    made.tell(Finished(launch.attempt, A, (), Measurement(wall=1.0), report))
    assert made.end is not None
    assert (made.end.status, feeder_of(made).ledger.failed_rows) == ("incomplete", 10)


# -- failures


def test_a_user_error_stops_the_run_by_default_and_an_internal_one_always() -> None:
    for failure, on_error in ((ERROR, "stop"), (Failure(FailureKind.INTERNAL, "Bug", "us"), "skip")):
        made = world(known(30), rows={"on_error": on_error})
        made.tell(*made.start(A), *made.fail(A, failure))
        assert made.end is not None
        assert (made.end.status, made.end.failure) == ("failed", failure)


def test_skipping_finds_the_unit_at_fault() -> None:
    made = world(known(40), chunk=40, rows={"on_error": "skip"})
    for _ in range(50):
        if made.end is not None:
            break
        life = A
        first = made.first(life)
        if first is None:
            made.tell(*made.bring())
        elif any(part.start <= 25 < part.stop for part in getattr(first.task.payload, "rows", ())):
            made.tell(*made.start(life), *made.fail(life, ERROR))
        else:
            go_on(made, life, wall=1.0)
    assert [rows for rows, _ in feeder_of(made).ledger.failures[0]] == [Rows(0, 20, 30)]


def test_a_read_is_tried_again_after_a_pause_and_then_given_up_with_its_input() -> None:
    made = world(known(30), rows={"on_error": "skip"}, retries=1)
    made.tell(*made.start(A), *made.fail(A, READ))
    assert made.wake == pytest.approx(0.1)
    assert rows_at(made, A) == [(0, 10, 20)]
    go_on(made, A, 2, wall=1.0)
    made.now = 0.1
    made.tell(Tick())
    assert rows_at(made, A) == [(0, 0, 10)]
    made.tell(*made.start(A), *made.fail(A, READ))
    finish_all(made)
    assert feeder_of(made).ledger.failed_rows == 10
    ran = [one.task.payload.rows for one in made.launched if isinstance(one.task.payload, RunRows)]
    assert ran.count((Rows(0, 0, 10),)) == 2


def test_an_input_that_cannot_be_opened_is_listed_or_stops_the_run() -> None:
    bad = Failure(FailureKind.BAD_FILE, "CorruptFileError", "damaged")
    for on_error, status in (("skip", "incomplete"), ("stop", "failed")):
        made = world([InputSpec(id=0, category="d")], rows={"on_error": on_error})
        made.tell(*made.start(A), *made.fail(A, bad))
        assert made.end is not None
        assert made.end.status == status
        assert (feeder_of(made).ledger.failed_inputs == {0: bad}) == (on_error == "skip")


def test_a_crash_counts_against_what_ran_and_the_queue_is_free() -> None:
    made = world(known(400), restart=True)
    go_on(made, A, wall=0.001)
    made.tell(*made.start(A))
    ran = made.queues[A][0].task
    made.tell(*made.lose(A, CRASH))
    assert made.scheduler.graph.nodes[ran.id].tries.crashes == 1
    assert [one for one in made.scheduler.graph.open.values() if one.id != ran.id] == []
    made.tell(*made.begin_life())
    assert made.launched[-1].task.id == ran.id or made.queues[Life(0, 1)][0].task.id == ran.id


def test_rows_that_crash_are_cut_smaller_until_the_unit_at_fault_is_found() -> None:
    made = world(known(40), chunk=40, rows={"on_error": "skip"}, restart=True)
    for _ in range(100):
        if made.end is not None:
            break
        if made.starting:
            made.tell(*made.begin_life())
            continue
        life = next(iter(made.lives.values()))
        first = made.first(life)
        if first is None:
            made.tell(*made.bring())
        elif any(part.start <= 25 < part.stop for part in getattr(first.task.payload, "rows", ())):
            made.tell(*made.start(life), *made.lose(life, CRASH))
        else:
            go_on(made, life, wall=1.0)
    assert [rows for rows, _ in feeder_of(made).ledger.failures[0]] == [Rows(0, 20, 30)]
    assert made.bad["CRASHED"] == 4  # twice the whole, twice the unit


def test_a_kill_is_free_but_not_for_ever() -> None:
    made = world(known(10), restart=True)
    for _ in range(MOST_LOSSES - 1):
        life = next(iter(made.lives.values()))
        made.tell(*made.start(life), *made.lose(life, KILL))
        made.now += 10
        made.tell(Tick())
        made.tell(*made.begin_life())
    assert made.end is None
    life = next(iter(made.lives.values()))
    made.tell(*made.start(life), *made.lose(life, KILL))
    assert made.end is not None
    assert made.end.failure == KILL


def test_an_engine_that_kills_tells_of_the_limit_first_and_nobody_else_is_blamed() -> None:
    made = world(known(400), restart=True, limits=Needs.of({"memory": 1e6}))
    go_on(made, A, wall=0.001)
    assert made.queues[A][0].limits == Needs.of({"memory": 1e6})
    made.tell(*made.start(A))
    number = made.queues[A][0].task.id
    lost = Failure(FailureKind.LOST, EXPLAINED, "it was ended")
    made.tell(*made.exhaust(A), *made.lose(A, lost))
    tries = {node.id: node.tries for node in made.scheduler.graph.open.values()}
    assert list(tries) == [number]
    assert (tries[number].losses, tries[number].exhaustions) == (0, 1)


def test_exhaustion_cuts_smaller_then_takes_a_fresh_worker_and_only_then_blames() -> None:
    made = world(known(40), chunk=40, rows={"on_error": "skip"}, restart=True)
    fresh_tries = []
    for _ in range(200):
        if made.end is not None:
            break
        if made.starting:
            made.tell(*made.begin_life())
            continue
        life = next(iter(made.lives.values()))
        first = made.first(life)
        if first is None:
            if life in made.stopping:
                made.tell(*made.lose(life, None))
            else:
                made.tell(*made.bring())
        elif any(part.start <= 25 < part.stop for part in getattr(first.task.payload, "rows", ())):
            if first.task.size == 10:
                fresh_tries.append(sum(one.life == life for one in made.launched) == 1)
            made.tell(*made.start(life), *made.exhaust(life))
        else:
            go_on(made, life, wall=1.0)
    assert [rows for rows, _ in feeder_of(made).ledger.failures[0]] == [Rows(0, 20, 30)]
    assert fresh_tries == [False, True]


def test_a_worker_that_grew_costs_no_rows() -> None:
    """Every task of a worker uses more than the one before: rows are right on a fresh one (a leak, not their fault)."""
    made = world(known(60), rows={"on_error": "skip"}, restart=True, policies=Policies(Fixed(10), safety=Bounded()))
    used: dict[Life, int] = {}
    for _ in range(500):
        if made.end is not None:
            break
        if made.starting:
            made.tell(*made.begin_life())
            continue
        life = next(iter(made.lives.values()))
        first = made.first(life)
        if first is None:
            made.tell(*(made.lose(life, None) if life in made.stopping else made.bring()))
            continue
        used[life] = used.get(life, 0) + isinstance(first.task.payload, RunRows)
        if used[life] > 3 and isinstance(first.task.payload, RunRows):
            gone = Failure(FailureKind.LOST, EXPLAINED, "it was ended at its limit")
            made.tell(*made.start(life), *made.exhaust(life), *made.lose(life, gone))
        else:
            go_on(made, life, wall=1.0)
        while made.fetches:
            made.tell(*made.bring())
    assert made.end is not None
    assert made.end.status == "complete"


# -- the order


MOVED = Plan(id=1, category="d", order=("b", "a"), written=("a", "b"))


def test_a_moved_order_is_blamed_before_the_shape() -> None:
    made = world(known(40), chunk=40, plans={"d": MOVED})
    made.tell(*made.start(A), *made.exhaust(A))
    (launch,) = made.queues[A]
    assert launch.plan.order == ("a", "b")
    assert launch.task.payload.rows == (Rows(0, 0, 40),)
    assert feeder_of(made).accounts["d"].blamed == 1


def test_the_second_kill_of_a_task_in_a_moved_order_is_held_against_the_order() -> None:
    made = world(known(10), plans={"d": MOVED}, restart=True)
    made.tell(*made.start(A), *made.lose(A, KILL))
    assert feeder_of(made).accounts["d"].blamed == 0
    made.tell(*made.begin_life())
    made.tell(*made.start(Life(0, 1)), *made.lose(Life(0, 1), KILL))
    assert feeder_of(made).accounts["d"].blamed == 1


def test_a_crash_in_a_moved_order_is_tried_again_in_the_written_one() -> None:
    made = world(known(10), plans={"d": MOVED}, restart=True)
    made.tell(*made.start(A), *made.lose(A, CRASH))
    made.tell(*made.begin_life())
    assert made.queues[Life(0, 1)][0].plan.order == ("a", "b")


def test_new_guards_ask_for_a_plan_that_later_launches_use() -> None:
    made = world(known(30))
    made.tell(*made.finish(A, wall=1.0, evidence=Evidence(guards=(("s", "c"),))))
    assert feeder_of(made).accounts["d"].plan.guards == (("s", "c"),)
    made.tell(*made.finish(A, wall=1.0))
    assert made.queues[A][0].plan.id == 1


class AtEveryTask:
    """An order decision that thinks after every task, and writes down what had not ended then."""

    def __init__(self, *, barrier: bool) -> None:
        self.barrier = barrier
        self.unended: list[int] = []

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        return True

    def replan(self, job: PlanJob) -> Plan:
        self.unended.append(sum(bundle is not None for bundle in self.feeder.given.values()))
        return replace(job.plan, id=job.plan.id + 1, order=(f"plan {job.plan.id + 1}",), guards=job.guards)

    feeder: RowFeeder


class Telling(World):
    """Workers whose tasks of rows bring evidence."""

    def finish(self, life: Life, **more: Any) -> list[Event]:
        if isinstance(self.queues[life][0].task.payload, RunRows):
            more["evidence"] = Evidence()
        return super().finish(life, **more)


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_at_a_barrier_all_tasks_end_before_the_plan_is_made_and_later_ones_have_it(barrier: bool, seed: int) -> None:
    order = AtEveryTask(barrier=barrier)
    order.feeder = RowFeeder(known(70, 40, 30), Policies(Fixed(10), order), RowOptions(crashes=99))
    scheduler = Scheduler(order.feeder, options=Options(restart=True))
    made = Telling(scheduler, 3, seed=seed, inputs={})
    made.begin()
    made.run(faults=0.1 if seed % 2 else 0.0)
    assert made.end is not None
    assert made.end.status == "complete"
    assert sum(part.stop - part.start for part in made.rows_taken()) == 140
    assert order.unended
    assert (max(order.unended) == 0) == barrier
    if barrier and not seed % 2:
        # Rows that are launched between two plans are launched with the first of them, by all workers.
        ids = [one.plan.id for one in made.launched if isinstance(one.task.payload, RunRows)]
        assert ids == sorted(ids)


def test_evidence_counts_only_for_accepted_attempts() -> None:
    made = world(known(30), restart=True)
    (launch,) = made.queues[A]
    made.tell(*made.lose(A))
    report = RowsReport(Evidence(steps=(("no", NO_COST),)))
    late: Event = Finished(launch.attempt, A, (_made(launch.task.makes[0]),), Measurement(wall=1.0), report)
    made.tell(late)
    assert feeder_of(made).accounts["d"].evidence.steps == ()


# -- near the end


def test_a_task_in_a_queue_is_given_to_an_idle_worker() -> None:
    made = world(known(200), 1)
    go_on(made, A, wall=0.04)
    assert len(made.queues[A]) == 2
    while feeder_of(made).inputs.uncut:
        go_on(made, A, wall=0.04)
    for _ in range(3):
        made.tell(*made.start(A))
    feeder_of(made).accounts["d"].row_s = 30.0 / made.queues[A][0].task.size
    made.now += 1.0
    commands = made.tell(WorkerJoined(made.worker(B)))
    assert [one for one in commands if isinstance(one, Recall)]
    made.tell(*made.give_back())
    assert rows_at(made, B)
    finish_all(made)
    assert made.rows_taken()[-1] == Rows(0, 190, 200)


def straggler(**options: Any) -> World:
    made = world(known(40), 2, speculate=True, restart=True, **options)
    made.tell(*made.start(A), *made.start(B))
    go_on(made, B, 4, wall=0.5)  # and a merge
    made.now += 10.0
    made.tell(Tick())
    return made


def test_the_copy_of_a_straggler_may_be_first_and_the_run_ends_without_the_one_that_hangs() -> None:
    made = straggler()
    twin = made.queues[B][-1]
    assert twin.task == made.queues[A][0].task
    while made.queues[B]:
        go_on(made, B, wall=0.5)
    while made.fetches:
        made.tell(*made.bring())
    assert made.end is not None
    assert made.end.status == "complete"
    assert made.queues[A][0].attempt in made.cancelled
    assert made.copies == 1


def test_the_straggler_may_be_first_after_all() -> None:
    made = straggler()
    go_on(made, A, wall=20.0)
    finish_all(made)
    assert made.rows_taken() == [Rows(0, n, n + 10) for n in range(0, 40, 10)]


def test_when_one_is_lost_or_fails_the_other_goes_on_and_the_second_failure_decides() -> None:
    made = straggler()
    made.tell(*made.lose(A, KILL))
    finish_all(made)
    assert made.end is not None
    assert made.end.status == "complete"
    made = straggler()
    made.tell(*made.fail(A, ERROR))
    assert made.end is None
    while made.first(B) is not None and not isinstance(made.first(B).task.payload, RunRows):  # type: ignore[union-attr]
        go_on(made, B)
    made.tell(*made.start(B), *made.fail(B, ERROR))
    finish_all(made)
    assert made.end is not None
    assert made.end.status == "failed"


def test_a_thread_cannot_be_ended_so_its_task_is_not_run_twice() -> None:
    """Also where processes may come later, and copies are allowed."""
    assert straggler().copies == 1
    made = straggler(shares=True)
    assert made.copies == 0
    finish_all(made)
    assert made.rows_taken() == [Rows(0, n, n + 10) for n in range(0, 40, 10)]


def test_nothing_runs_twice_unless_it_may() -> None:
    made = world(known(40), 2)
    made.tell(*made.start(A))
    go_on(made, B, 3, wall=0.5)
    made.now += 1000
    made.tell(Tick())
    assert len([one for one in made.launched if isinstance(one.task.payload, RunRows)]) == 4


# -- workers


def test_a_drained_worker_hands_over_and_ends_and_another_life_begins() -> None:
    made = world(known(100), restart=True)
    go_on(made, A, 2, wall=1.0)
    made.tell(DrainRequested(A, "to see", replace=True))
    assert [type(one.task.payload) for one in made.queues[A]] == [RunRows, MergePartials]
    assert not made.stopping
    while made.queues[A] or made.fetches:
        if made.queues[A]:
            go_on(made, A, wall=1.0)
        else:
            made.tell(*made.bring())
    assert made.stopping == {A}
    commands = made.tell(*made.lose(A, None))
    assert [one for one in commands if isinstance(one, StartWorker)]
    finish_all(made)
    assert made.scheduler.workers.losses == 0


@pytest.mark.parametrize("held", [False, True])
def test_a_worker_whose_memory_grows_is_replaced_if_not_by_what_it_holds(held: bool) -> None:
    made = world(known(400), restart=True)
    for number in range(14):
        while isinstance(made.queues[A][0].task.payload, MergePartials):
            go_on(made, A)
        launch = made.queues[A].pop(0)
        name = launch.task.makes[0]
        made.stores[A][(name, launch.attempt)] = list(launch.task.payload.rows)  # type: ignore[index]
        used = Measurement(wall=1.0, baseline=100_000_000 * (number + 1))
        output = Made(name, 1_000_000_000) if held else _made(name)
        made.tell(Finished(launch.attempt, A, (output,), used, RowsReport()))
        if made.scheduler.workers.draining:
            break
    assert held or "grew from 100 to" in made.scheduler.notes[0]
    assert bool(made.scheduler.workers.draining) is not held


def test_a_useless_worker_pauses_and_is_given_up_and_the_run_fails() -> None:
    made = world([], begin=False, restart=True, open=True)
    made.begin()
    lives = 0
    for _ in range(200):
        if made.end is not None:
            break
        if made.lives:
            lives += 1
            made.tell(*made.lose(next(iter(made.lives.values()))))
        elif made.starting:
            made.tell(*made.begin_life())
        else:
            assert made.wake is not None
            made.now = made.wake
            made.tell(Tick())
    assert lives == QUICK_LIVES + SLOW_LIVES
    assert made.end is not None
    assert made.end.failure is not None
    assert "no worker is left" in made.end.failure.message


def test_a_run_waits_for_its_first_worker() -> None:
    made = world(known(10), begin=False)
    made.tell(Tick())
    assert made.end is None
    made.begin()
    finish_all(made)
    assert made.end is not None


def test_a_cancelled_run_brings_what_is_held_and_says_what_is_missing() -> None:
    made = world(known(100))
    go_on(made, A, 3, wall=1.0)
    made.tell(CancelRequested("stopped"))
    finish_all(made)
    assert made.end is not None
    assert made.end.status == "cancelled"
    done = made.rows_taken()
    ledger = feeder_of(made).ledger
    assert sum(stop - start for _, start, stop in done) == ledger.done_rows >= 30
    assert sum(part.stop - part.start for part in missing_rows(ledger)) == 100 - ledger.done_rows


def test_a_merge_that_has_begun_goes_on_when_the_run_is_cancelled() -> None:
    made = world(known(200))
    go_on(made, A, 8, wall=1.0)
    while not isinstance(made.queues[A][0].task.payload, MergePartials):
        go_on(made, A, wall=1.0)
    merge = made.queues[A][0].attempt
    made.tell(*made.start(A))
    stopped = made.tell(CancelRequested("stopped"))
    assert merge not in [one.attempt for one in stopped if isinstance(one, Cancel)]
    finish_all(made)
    assert feeder_of(made).ledger.done_rows >= 80


def test_the_standing_counts_rows() -> None:
    made = world(known(100, 50))
    go_on(made, A, 2, wall=1.0)
    now = feeder_of(made).standing()
    assert (now.known, now.held, now.running, now.waiting, now.workers) == (150, 20, 10, 120, 1)
    assert now.inputs == 2


def test_commands_for_engines_are_of_these_kinds() -> None:
    made = world(known(30))
    seen = (
        {type(one) for one in made.tell()} | {type(one) for one in made.launched} | {type(one) for one in made.fetches}
    )
    assert seen <= {Launch, Fetch}


# -- tasks of several inputs


def across(made: World) -> list[tuple[Rows, ...]]:
    """Give the rows of the tasks that go across the border of an input."""
    return [
        one.task.payload.rows
        for one in made.launched
        if isinstance(one.task.payload, RunRows) and len(one.task.payload.rows) > 1
    ]


def small_inputs(*, chunk: int = 65, **rows: Any) -> World:
    made = world(known(*[20] * 8), chunk=chunk, rows={"family": 8, **rows})
    go_on(made, A, wall=1.0)  # what rows take is known then
    return made


def test_a_task_goes_on_with_whole_neighbours_as_far_as_there_is_room() -> None:
    made = small_inputs()
    (launch,) = made.queues[A]
    assert launch.task.payload.rows == (Rows(1, 0, 20), Rows(2, 0, 20), Rows(3, 0, 20))
    assert launch.task.size == 60
    assert launch.task.payload.identities == ("", "", "")
    finish_all(made)
    assert [len(rows) for rows in across(made)] == [3, 3]
    assert made.rows_taken() == [Rows(n, 0, 20) for n in range(8)]


def test_a_task_stays_in_its_input_where_there_are_no_families_or_its_neighbours_are_not_open() -> None:
    made = small_inputs(family=1)
    finish_all(made)
    assert not across(made)
    made = world([InputSpec(id=n, category="d") for n in range(4)], chunk=100, rows={"family": 4})
    go_on(made, A, 2, wall=1.0)
    assert not across(made)
    finish_all(made)
    assert feeder_of(made).ledger.done_rows == 4 * 30


def test_a_task_has_a_bounded_number_of_inputs() -> None:
    made = world(known(*[20] * 40), chunk=10_000, rows={"family": 40})
    finish_all(made)
    assert [len(rows) for rows in across(made)] == [MOST_INPUTS] * 4 + [7]
    assert made.rows_taken() == [Rows(n, 0, 20) for n in range(40)]


class OneBad(World):
    """Workers which go wrong at one input, in one way, so many times."""

    input, how, times = -1, "", 1000

    def _go_through(self, life: Life, failure: Failure | None) -> list[Event]:
        payload = self.queues[life][0].task.payload
        if (
            failure
            or not self.times
            or not isinstance(payload, RunRows)
            or all(r.input != self.input for r in payload.rows)
        ):
            return super()._go_through(life, failure)
        self.times -= 1
        begun = self.start(life)
        if self.how == "exhausts":
            return begun + self.exhaust(life)
        if self.how == "fails":
            return begun + self.fail(life, ERROR)
        return begun + self.lose(life, CRASH if self.how == "crashes" else KILL)


def one_bad(how: str, times: int = 1000) -> OneBad:
    feeder = RowFeeder(known(*[20] * 8), Policies(Fixed(65)), RowOptions(family=8, on_error="skip"))
    made = OneBad(Scheduler(feeder, options=Options(restart=True)), 1)
    made.begin()
    go_on(made, A, wall=1.0)
    (several,) = across(made)
    made.input, made.how, made.times = several[1].input, how, times
    made.run()
    return made


@pytest.mark.parametrize("how", ["fails", "exhausts", "crashes", "is lost"])
def test_where_one_of_several_inputs_goes_wrong_it_alone_is_left_out(how: str) -> None:
    made = one_bad(how)
    assert made.end is not None
    assert made.end.status == "incomplete"
    assert made.rows_taken() == [Rows(n, 0, 20) for n in range(8) if n != made.input]
    states = [(one.state, one.start, one.stop) for one in feeder_of(made).ledger.account(made.input)]
    assert {state for state, _, _ in states} == {"failed"}
    assert sum(stop - start for _, start, stop in states if stop is not None) == 20


@pytest.mark.parametrize("how", ["fails", "exhausts", "is lost"])
def test_a_task_of_several_inputs_that_goes_wrong_once_loses_nothing(how: str) -> None:
    made = one_bad(how, times=1)
    assert made.end is not None
    assert made.end.status == "complete"
    assert sum(rows.stop - rows.start for rows in made.rows_taken()) == 160


@pytest.mark.parametrize("seed", range(12))
def test_tasks_of_several_inputs_come_through_whatever_happens(seed: int) -> None:
    specs = known(*[20, 0, 10, 70, 20, 20, 50, 10] * 2)
    feeder = RowFeeder(specs, Policies(Fixed(65)), RowOptions(family=8, crashes=99))
    made = World(Scheduler(feeder, options=Options(restart=True)), 3, seed=seed)
    made.begin()
    made.run(faults=0.1 if seed % 2 else 0.0)
    assert made.end is not None
    assert made.end.status == "complete"
    assert across(made)
    taken = made.rows_taken()
    assert [sum(rows.stop - rows.start for rows in taken if rows.input == one.id) for one in specs] == [
        one.rows for one in specs
    ]


class Asked(Fixed):
    """A fixed size which remembers how slow rows were said to be."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.slower: list[float] = []
        self.slow: list[float] = []

    def rows(self, request: ShapeRequest) -> int:
        self.slower.append(request.slower)
        self.slow.append(request.slow)
        return super().rows(request)


def test_inputs_that_nothing_is_known_of_may_be_as_slow_as_the_slowest() -> None:
    shape = Asked(10)
    made = world(known(40, 40, 40), policies=Policies(shape))
    go_on(made, A, 4, wall=1.0)
    go_on(made, A, 4, wall=4.0)
    assert shape.slower[:5] == [1.0] * 5
    assert all(one > SLOWER for one in shape.slower[5:8])
    finish_all(made)
    assert shape.slower[8] == feeder_of(made).accounts["d"].slowest > SLOWER  # the first task of the third input


def test_rows_left_of_slow_inputs_count_by_the_time_that_they_take() -> None:
    shape = Asked(10)
    made = world(known(100, 100), workers=2, policies=Policies(shape))
    go_on(made, A, 5, wall=1.0)
    assert shape.slow == [0.0] * 7
    go_on(made, B, wall=15.0)  # its first, which is not in the mean
    assert shape.slower[7:] == [pytest.approx(15.0)]
    assert shape.slow[7:] == [pytest.approx((15 - 1) * 90)]
    go_on(made, A, wall=1.0)
    assert shape.slow[8] == 0.0  # no matter for an input that is not slow


def test_a_short_rest_lets_no_long_tasks_be_queued_at_all_workers() -> None:
    made = world(known(60, 500, 500), workers=3, policies=Policies(Fixed(50)))
    go_on(made, A, wall=0.2)
    (rest, *_), *others = made.queues.values()
    assert rest.task.size == 10  # 40 ms, of which two may wait
    assert all(queue[0].task.size == 50 for queue in others)
    assert sum(len(queue) - 1 for queue in made.queues.values()) == 1  # the first of them took 200 ms


def test_rows_that_run_for_long_say_how_slow_an_input_is() -> None:
    (spec,) = known(100)
    one = Input(spec, Family(0), 0)
    costs = StepCost(calls=10, rows_in=1000, wall=10.0)
    assert one.slower(costs, 5.0) == 1.0
    one.running[1] = 50, 0.0
    assert one.slower(costs, 0.4) == 1.0
    assert one.slower(costs, 5.0) == pytest.approx(10.0)
    one.took = 50, 0.5
    assert one.slower(costs, 5.0) == pytest.approx(5.5)


def test_what_opens_an_input_or_merges_its_partials_is_named_by_the_input() -> None:
    specs = [InputSpec(id=3, category="d", label="file 3"), InputSpec(id=4, category="d")]
    feeder = feeder_of(world(specs))
    places = [feeder.describe(Task(9, "d", 0, made)) for made in (OpenInput(3), OpenInput(4), MergePartials(3))]
    assert places == ["file 3", "input 4", "results of file 3"]
