"""The launch policy that learns: conservative first, then by prediction; what uses too much gets more, is divided, or told why."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_world import World
from windrow.core.dispatch import MOST_OVERTAKES
from windrow.core.events import Event, Finished, PoolChanged, Submitted
from windrow.core.policies import NO_TRIES, LaunchPolicy, Options, Policies, TooMuch, Tries
from windrow.core.records import (
    IO,
    EvaluateUnit,
    InputSpec,
    Life,
    Measurement,
    MergePartials,
    Needs,
    Rows,
    RunRows,
    Task,
)
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.errors import UnknownNameError
from windrow.shape.allocation import STRATEGIES, Allocation, Key, NodeSize
from windrow.shape.allocation.policy import with_memory
from windrow.shape.fixed import Fixed

GB = 1e9
NODE = [NodeSize(8 * GB, 4)]


def rows_task(number: int, rows: int, **more: Any) -> Task:
    return Task(number, "d", rows, RunRows(()), twin=True, **more)


def used(memory: float, *, idle: float = 0.0, wall: float = 1.0) -> Measurement:
    return Measurement(wall=wall, cpu=wall, peak_memory=int(memory), baseline=int(idle))


def memory_of(needs: Needs) -> float:
    return dict(needs.amounts).get("memory", 0.0)


def granted(policy: Allocation, task: Task, tries: Tries = NO_TRIES) -> float:
    needs, limits = policy.grant(task, tries)
    assert memory_of(needs) == memory_of(limits)
    return memory_of(needs)


def teach(policy: Allocation, sizes: list[int], memory: Callable[[int], float], **more: float) -> list[bool]:
    said = []
    for number, rows in enumerate(sizes):
        task = rows_task(number, rows)
        policy.grant(task, NO_TRIES)
        said.append(policy.seen(task, used(memory(rows), **more)))
    return said


def line(rows: int) -> float:
    return 0.5 * GB + 20_000 * rows


SIZES = [10_000 + 4_000 * number for number in range(20)]


def ask(policy: Allocation, task: Task, limit: float | None, *, times: int = 1, **more: Any) -> tuple[str, float, str]:
    """Tell of a task that used more than a limit; return what is done, the memory it gets, and why."""
    facts = {"moved": False, "divisible": False, "fresh": False} | more
    tries = Tries(exhaustions=times, fresh=facts["fresh"])
    allowed = None if limit is None else ("memory", limit)
    act, needs, why, _ = policy.exhausted(TooMuch(task, tries, facts["moved"], facts["divisible"], allowed))
    return act, 0.0 if needs is None else memory_of(needs), why


# -- grants


def test_the_first_tasks_have_an_equal_share_or_the_cap() -> None:
    assert granted(Allocation(nodes=NODE), rows_task(1, 10)) == 2 * GB
    assert granted(Allocation(nodes=NODE, cap=1 * GB), rows_task(1, 10)) == 1 * GB
    assert granted(Allocation(nodes=NODE, cap=3 * GB), rows_task(1, 10)) == 3 * GB
    assert granted(Allocation(nodes=NODE, cap=30 * GB), rows_task(1, 10)) == 8 * GB
    mixed = [NodeSize(1 * GB, 1)] * 40 + [NodeSize(2 * GB, 1)]
    assert granted(Allocation(nodes=mixed), rows_task(1, 10)) == 1 * GB


def test_from_the_threshold_on_a_task_is_largerwhat_its_size_uses() -> None:
    policy = Allocation(nodes=NODE, threshold=7)
    for number, rows in enumerate([50_000, 150_000, 70_000, 170_000, 100_000, 110_000]):
        teach(policy, [rows], line)
        assert granted(policy, rows_task(100, 200_000)) == 2 * GB, number
    teach(policy, [90_000], line)
    assert granted(policy, rows_task(100, 200_000)) == pytest.approx(4.5 * GB, rel=0.07)
    assert granted(policy, rows_task(100, 200_000)) >= 4.5 * GB
    assert granted(policy, rows_task(100, 1_000_000)) == 8 * GB  # the largest node


def test_nobody_is_given_less_than_the_share_before_somebody_needs_more_than_that() -> None:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES[:10], line)
    assert granted(policy, rows_task(1, 1_000)) == 2 * GB
    assert granted(policy, rows_task(2, 80_000)) == pytest.approx(2.1 * GB, rel=0.07)
    assert granted(policy, rows_task(3, 1_000)) == pytest.approx(0.52 * GB, rel=0.07)


def test_a_prediction_within_the_share_is_not_rounded_beyond_it() -> None:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES, line)
    granted(policy, rows_task(0, 90_000))
    assert granted(policy, rows_task(1, 74_900)) == 2 * GB


def test_nobody_is_given_less_than_an_idle_worker_has_or_more_than_the_cap() -> None:
    policy = Allocation(nodes=NODE, cap=3 * GB)
    teach(policy, SIZES, lambda rows: 0.7 * GB, idle=0.6 * GB)
    granted(policy, Task(9, "other", needs=Needs.of({"memory": 2.5 * GB})))  # there is no room to waste
    assert granted(policy, rows_task(1, 1)) >= 0.6 * GB
    policy = Allocation(nodes=NODE, cap=3 * GB)
    teach(policy, SIZES, line)
    assert granted(policy, rows_task(1, 10**6)) == 3 * GB


def test_calls_may_use_what_they_ask_for_and_those_for_input_and_output_are_left_alone() -> None:
    policy = Allocation(nodes=NODE)
    asks = Task(1, "f", needs=Needs.of({"cores": 1, "memory": 5 * GB}))
    assert granted(policy, asks) == 5 * GB
    io = Task(1, "f", needs=Needs.of({IO: 1}))
    assert policy.grant(io, NO_TRIES) == LaunchPolicy().grant(io, NO_TRIES)


def test_merges_ask_for_what_such_merges_used_and_are_not_ended_while_the_node_has_some() -> None:
    policy = Allocation(Needs.of({"seconds": 9.0}), NODE, cap=1 * GB)
    for asked in (2 * GB, 4 * GB):
        needs, limits = policy.grant(Task(1, "d", 0, MergePartials(0)), NO_TRIES)
        assert memory_of(needs) == pytest.approx(asked, rel=0.07)
        assert memory_of(limits) == 8 * GB  # what they add up is there already, and would go with the worker
        for number in range(6):
            policy.seen(Task(number, "d", 0, MergePartials(0)), used(4 * GB))
    assert dict(policy.grant(rows_task(1, 5), NO_TRIES)[1].amounts) == {"seconds": 9, "memory": 1 * GB}


def test_the_first_evaluations_ask_for_what_their_rows_would_take_and_later_ones_for_what_such_took() -> None:
    policy = Allocation(nodes=NODE)
    unit = Task(1, "d", 0, EvaluateUnit((Rows(0, 0, 100_000), Rows(0, 100_000, 200_000))))
    assert granted(policy, unit) == 2 * GB
    teach(policy, SIZES, line)
    assert granted(policy, unit) == pytest.approx(4.5 * GB, rel=0.07)
    for _ in range(6):
        policy.seen(unit, used(6 * GB))
    assert granted(policy, unit) == pytest.approx(6 * GB, rel=0.07)
    half = unit._replace(payload=EvaluateUnit((Rows(0, 0, 100_000),)))
    assert granted(policy, half) == pytest.approx(3 * GB, rel=0.07)


def test_moved_and_written_orders_are_told_apart_and_the_moved_one_is_given_no_less_at_first() -> None:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES, line)
    policy.is_moved = {"d": True}.__contains__
    assert granted(policy, rows_task(1, 200_000)) >= 4.5 * GB
    assert granted(policy, rows_task(1, 20_000)) == 2 * GB
    teach(policy, SIZES, lambda rows: 2 * line(rows))
    assert granted(policy, rows_task(1, 100_000)) == pytest.approx(5 * GB, rel=0.07)
    policy.is_moved = set[str]().__contains__
    assert granted(policy, rows_task(1, 100_000)) == pytest.approx(2.5 * GB, rel=0.07)
    assert ask(policy, rows_task(1, 100_000), 2 * GB, moved=True, divisible=True)[0] == "written"


def test_needs_of_one_amount_are_the_same_so_that_such_tasks_may_queue() -> None:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES, line)
    one, two = (policy.grant(rows_task(number, 90_000 + number), NO_TRIES) for number in (1, 2))
    assert one[0] is two[0]
    assert one[1] is two[1]


@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 3), st.booleans())
def test_where_no_memory_is_shared_it_is_the_plain_policy(
    twin: bool, moved: bool, divisible: bool, fresh: bool, times: int, none: bool
) -> None:
    limits = Needs.of({"memory": 1 * GB, "seconds": 3.0})
    plain, policy = LaunchPolicy(limits), Allocation(limits)
    task = Task(1, "t", 5, twin=twin, needs=Needs.of({"cores": 1, "memory": 2 * GB}))
    found = TooMuch(task, Tries(exhaustions=times, fresh=fresh), moved, divisible, None if none else ("memory", 1 * GB))
    for one in (plain, policy):
        for _ in range(9):
            assert not one.seen(task, used(1 * GB))
    assert policy.grant(task, NO_TRIES) == plain.grant(task, NO_TRIES)
    assert policy.exhausted(found) == plain.exhausted(found)
    assert policy.predict(task) == plain.predict(task)
    assert Allocation(limits, NODE).exhausted(found._replace(limit=("seconds", 3.0))) == plain.exhausted(
        found._replace(limit=("seconds", 3.0))
    )


def test_waiting_tasks_are_asked_about_anew_only_when_that_changes_much() -> None:
    policy = Allocation(nodes=NODE)
    rng = random.Random(1)
    news = teach(policy, [rng.randint(60_000, 100_000) for _ in range(500)], lambda r: line(r) * rng.uniform(0.9, 1.1))
    assert 1 <= sum(news) <= 3
    assert not any(teach(Allocation(nodes=NODE), [1_000] * 300, line))  # all fits into the share
    assert any(teach(policy, [80_000] * 5, lambda rows: 2 * line(rows)))


def test_a_jump_is_followed_after_a_handful_of_tasks() -> None:
    policy = Allocation(nodes=NODE)
    rng = random.Random(2)
    teach(policy, [rng.randint(60_000, 100_000) for _ in range(1_000)], line)
    teach(policy, [rng.randint(60_000, 100_000) for _ in range(6)], lambda rows: 2 * line(rows))
    assert granted(policy, rows_task(1, 80_000)) >= 4.2 * GB


@pytest.mark.parametrize("name", sorted({*STRATEGIES} - {"by-size"}))
def test_published_strategies_grant_whatever_the_size(name: str) -> None:
    policy = Allocation(nodes=NODE, strategy=name)
    teach(policy, [100] * 12, lambda _: 1.1 * GB)
    amounts = {granted(policy, rows_task(number, 50 * number)) for number in range(1, 20)}
    assert amounts == {
        {"fixed": 2 * GB, "max-seen-2021": 1.25 * GB}.get(name, 1.1 * GB if "buckets" in name else 1.25 * GB)
    }


def test_unknown_names_are_told_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"'max-sean' .*; did you mean 'max-seen'.*strategies: by-size, fixed"):
        Allocation(strategy="max-sean")
    with pytest.raises(UnknownNameError, match="did you mean 'windrow'"):
        Allocation(ladder="windro")


# -- what used too much


@pytest.fixture
def taught() -> Allocation:
    """A policy that knows tasks of ``line``, one in ten of which use twice as much."""
    policy = Allocation(nodes=NODE)
    teach(policy, [5_000 * number for number in range(2, 102)], lambda r: line(r) * (2 if r % 50_000 == 0 else 1))
    return policy


def test_more_memory_where_tasks_like_it_fit_into_that_and_fewer_rows_where_they_do_not(taught: Allocation) -> None:
    act, amount, _ = ask(taught, rows_task(1, 100_000), 2.6 * GB, divisible=True)
    assert act == "larger"
    assert amount == pytest.approx(5 * GB, rel=0.1)  # what those that use twice as much do, not twice the limit
    assert ask(taught, rows_task(1, 250_000), 6 * GB, divisible=True)[0] == "split"
    assert ask(taught, rows_task(1, 250_000), 6 * GB)[:2] == ("larger", 8 * GB)  # it cannot be divided
    assert ask(taught, rows_task(1, 250_000), 8 * GB, divisible=True)[0] == "split"


def test_beyond_all_that_was_seen_a_task_has_what_fitting_one_less_leaves(taught: Allocation) -> None:
    for limit, amount in ((1.4, 8 / 3), (2.0, 4.0), (2.5, 4.0), (3.0, 8.0)):
        act, larger, _ = ask(taught, rows_task(1, 1_000), limit * GB, divisible=True)
        assert (act, round(larger / amount / GB, 1)) == ("larger", 1.0)
    assert ask(taught, rows_task(1, 1_000), 1.4 * GB, times=4)[:2] == ("larger", 8 * GB)


def test_then_a_fresh_worker_once_then_it_is_told_why(taught: Allocation) -> None:
    assert ask(taught, rows_task(1, 1), 8 * GB)[0] == "fresh"
    act, _, why = ask(taught, rows_task(1, 1), 8 * GB, fresh=True)
    assert act == "fail"
    assert "that is all that the largest node can have" in why
    assert "tasks of 'd' use 500 MB however few rows they have, and 20 kB a row" in why
    assert ask(taught, rows_task(1, 1), None, times=3)[0] in ("larger", "fail")  # threads, all of which are as fresh
    assert ask(taught, rows_task(1, 1), 8 * GB, times=9)[0] == "fail"  # no fresh worker ever comes


def test_where_the_fixed_part_is_what_does_not_fit_rows_are_not_divided() -> None:
    policy = Allocation(nodes=NODE, cap=0.45 * GB)
    policy._alike = _known_of(lambda rows: 0.5 * GB + 10 * rows)
    assert ask(policy, rows_task(1, 64_000), 0.45 * GB, divisible=True)[0] == "fresh"
    act, _, why = ask(policy, rows_task(1, 64_000), 0.45 * GB, divisible=True, fresh=True)
    assert act == "fail"
    assert "that is all that it may have (task_memory=); tasks of 'd' use 500 MB however few rows they have" in why


def _known_of(memory: Callable[[int], float]) -> Any:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES, memory)
    return policy._alike


def test_of_tasks_of_which_nothing_is_known_rows_are_divided_and_calls_have_twice_what_they_asked_once() -> None:
    policy = Allocation(nodes=NODE)
    assert ask(policy, rows_task(1, 100), 2 * GB, divisible=True)[0] == "split"
    assert ask(policy, rows_task(1, 100), 2 * GB)[:2] == ("larger", 8 * GB)
    asks = Task(1, "f", needs=Needs.of({"cores": 1, "memory": 3 * GB}))
    assert ask(policy, asks, 3 * GB)[:2] == ("larger", 6 * GB)
    assert ask(policy, asks, 6 * GB, times=2)[0] == "fail"
    assert ask(policy, Task(1, "f"), 2 * GB)[:2] == ("larger", 4 * GB)


def test_the_ladder_of_work_queue() -> None:
    nodes = [NodeSize(8 * GB, 4)] * 3 + [NodeSize(16 * GB, 8)]
    policy = Allocation(nodes=nodes, ladder="workqueue", strategy="max-seen")
    teach(policy, [100] * 5, lambda _: 2.1 * GB)
    task = rows_task(1, 100)
    assert granted(policy, task) == 2.25 * GB
    assert ask(policy, task, 2.25 * GB, divisible=True)[:2] == ("larger", 8 * GB)
    assert ask(policy, task, 8 * GB, times=2, divisible=True)[:2] == ("larger", 16 * GB)
    assert ask(policy, task, 16 * GB, times=3, divisible=True)[0] == "split"
    assert ask(policy, task, 16 * GB, times=3)[0] == "fail"
    buckets = Allocation(nodes=nodes, ladder="workqueue", strategy="greedy-buckets-fixed")
    teach(buckets, list(range(1, 31)), lambda rows: GB if rows % 3 else 3 * GB)
    assert granted(buckets, task) == GB
    assert ask(buckets, task, GB)[:2] == ("larger", 3 * GB)
    assert ask(buckets, task, 3 * GB, times=2)[:2] == ("larger", 4 * GB)
    capped = Allocation(nodes=nodes, ladder="workqueue", cap=2 * GB)
    assert ask(capped, task, 2 * GB, divisible=True)[0] == "split"


@given(
    st.integers(1, 2_000_000),
    st.floats(0, 12 * GB),
    st.floats(0, 200_000),
    st.floats(1, 10),
    st.one_of(st.none(), st.floats(0.1 * GB, 10 * GB)),
    st.sampled_from(["windrow", "workqueue"]),
    st.booleans(),
)
def test_every_task_ends_after_a_bounded_number_of_tries(
    rows: int, fixed: float, per_row: float, times: float, cap: float | None, ladder: str, learned: bool
) -> None:
    policy = Allocation(nodes=NODE, cap=cap, ladder=ladder)
    if learned:
        policy._alike = _known_of(line)
    depth = 0
    while rows:
        task, tries = rows_task(1, rows), NO_TRIES
        for _ in range(8):
            limit = granted(policy, task, tries)
            if (fixed + per_row * rows) * times <= limit:
                return
            tries = tries._replace(exhaustions=tries.exhaustions + 1)
            act, needs, why, _ = policy.exhausted(TooMuch(task, tries, False, rows > 1, ("memory", limit)))
            if act == "fail":
                assert why
                return
            if act == "split":
                break
            if act == "larger":
                assert needs is not None
                assert limit < memory_of(needs) <= min(8 * GB, cap or 8 * GB)
                task = task._replace(needs=needs)
            else:
                assert act == "fresh"
                tries = tries._replace(fresh=True)
        else:
            pytest.fail("it never ends")
        rows, depth = rows // 2, depth + 1
        assert depth < 22


# -- with the scheduler


def drive(made: World, memory: Callable[[Task], float], *, idle: float = 0.0) -> Counter[str]:
    """Let tasks end in the order of their launch, or be ended where they use more than they may."""
    did: Counter[str] = Counter()
    while any(made.queues.values()) and did["ended"] + did["finished"] < 3_000:
        life = min((one for one in made.queues if made.queues[one]), key=lambda one: made.queues[one][0].attempt)
        launch = made.queues[life][0]
        most, need = memory_of(launch.limits), memory(launch.task)
        did["running"] = max(did["running"], sum(map(bool, made.queues.values())))
        made.now += 1.0
        made.tell(*made.start(life))
        if most and need > most:
            did["ended"] += 1
            made.tell(*made.exhaust(life, limit=most))
        else:
            did["finished"] += 1
            made.tell(*map(lambda one: _measured(one, need, idle), made.finish(life, wall=1.0)))  # noqa: C417
        while made.fetches or made.starting or made.stopping:
            if made.fetches:
                made.tell(*made.bring())
            elif made.starting:
                made.tell(*made.begin_life())
            else:
                made.tell(*made.lose(min(made.stopping), None))
    return did


def _measured(event: Event, memory: float, idle: float) -> Event:
    return event._replace(measurement=used(memory, idle=idle)) if isinstance(event, Finished) else event


def of_calls(policy: Allocation, count: int) -> World:
    scheduler = Scheduler(policy=policy, options=Options(open=True))
    made = World(scheduler, 4, offers=Needs(), pools=("node",), validate=count < 100)
    made.tell(PoolChanged("node", Needs.of({"cores": 4, "memory": 8 * GB})))
    made.begin()
    made.tell(Submitted((), tuple(Task(number, "f", makes=(f"{number}.0",)) for number in range(1, count + 1))))
    return made


def test_three_tasks_of_2_1_gb_run_on_a_node_of_8_gb_and_four_of_2_gb() -> None:
    for memory, expected in ((2.1 * GB, 3), (1.99 * GB, 4)):
        policy = Allocation(nodes=NODE)
        made = of_calls(policy, 60)
        drive(made, lambda _, memory=memory: memory)  # type: ignore[misc]
        assert all(end.state == "done" for ends in made.ends.values() for end in ends), made.ends
        made.tell(Submitted((), tuple(Task(number, "f", makes=(f"{number}.0",)) for number in range(101, 140))))
        assert sum(map(bool, made.queues.values())) == expected


def test_a_call_that_asked_for_nothing_has_no_limit_and_is_kept_room_for_once_it_is_known() -> None:
    policy = Allocation(nodes=NODE)
    made = of_calls(policy, 30)
    did = drive(made, lambda _: 5 * GB)
    assert (did["ended"], did["finished"]) == (0, 30)
    made.tell(Submitted((), tuple(Task(number, "f", makes=(f"{number}.0",)) for number in range(101, 104))))
    (launch,) = [one for queue in made.queues.values() for one in queue]
    assert {part.name: part.amount for part in launch.grant}["memory"] == pytest.approx(5 * GB, rel=0.07)
    assert memory_of(launch.limits) == 0


def of_rows(
    policy: Allocation,
    rows: int,
    *,
    chunk: int,
    memory: float = 8 * GB,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> World:
    borders = tuple(range(0, rows + 1, 1_000))
    specs = [InputSpec(id=0, category="d", label="file", rows=rows, borders=borders)]
    feeder = RowFeeder(specs, Policies(Fixed(chunk)), RowOptions(**more, **(options or {})))
    made = World(
        Scheduler(feeder, policy, Options(restart=True)), 4, inputs={0: borders}, offers=Needs(), pools=("node",)
    )
    made.tell(PoolChanged("node", Needs.of({"cores": 4, "memory": memory})))
    made.begin()
    return made


def test_evaluations_of_units_run_one_at_a_time_where_the_node_holds_no_two() -> None:
    made = of_rows(Allocation(nodes=NODE), 40_000, chunk=500, options={"parts": True, "chunk": 500})
    together: list[int] = []

    def memory(task: Task) -> float:
        heads = [queue[0].task for queue in made.queues.values() if queue]
        together.append(sum(isinstance(one.payload, EvaluateUnit) for one in heads))
        return 5 * GB if isinstance(task.payload, EvaluateUnit) else 0.3 * GB

    did = drive(made, memory)
    assert made.end is not None
    assert made.end.status == "complete"
    assert did["ended"] <= 8  # the first of them
    assert max(together) == 2  # which ended them, and from then on there is one
    assert max(together[-100:]) == 1


def test_a_merge_whose_worker_has_too_little_for_it_now_is_not_overtaken_for_ever() -> None:
    class Large(Allocation):
        def grant(self, task: Task, tries: Tries) -> tuple[Needs, Needs]:
            needs, limits = super().grant(task, tries)
            return (with_memory(needs, 8 * GB) if isinstance(task.payload, MergePartials) else needs), limits

    made = of_rows(Large(nodes=NODE), 300_000, chunk=1_000)
    drive(made, lambda _: 1 * GB)
    assert made.end is not None
    assert made.end.status == "complete"
    merges = [number for number, one in enumerate(made.launched) if isinstance(one.task.payload, MergePartials)]
    assert len(merges) > 4  # not only those of the end
    assert merges[0] < 8 * 4 + MOST_OVERTAKES + 10


def test_results_that_no_node_can_add_up_are_brought_as_they_are() -> None:
    policy = Allocation(nodes=NODE)
    for number in range(2):
        policy.seen(Task(number, "d", 0, MergePartials(0)), used(9 * GB))
    made = of_rows(policy, 40_000, chunk=1_000)
    drive(made, lambda _: 1 * GB)
    assert made.end is not None
    assert made.end.status == "complete"
    assert not any(isinstance(one.task.payload, MergePartials) for one in made.launched)


def test_a_merge_that_used_too_much_has_its_rows_run_again_and_they_are_not_merged() -> None:
    made = of_rows(Allocation(nodes=NODE), 60_000, chunk=1_000)
    did = drive(made, lambda task: 9 * GB if isinstance(task.payload, MergePartials) else 1 * GB)
    assert made.end is not None
    assert made.end.status == "complete"
    assert 0 < did["ended"] <= 4  # those that were under way, one at each worker


@pytest.mark.parametrize("ladder", ["windrow", "workqueue"])
def test_rows_that_need_too_much_are_divided_until_they_fit(ladder: str) -> None:
    made = of_rows(Allocation(nodes=NODE, cap=1.5 * GB, ladder=ladder), 256_000, chunk=128_000)
    did = drive(made, lambda task: 0.2 * GB + 20_000 * task.size, idle=0.2 * GB)
    assert made.end is not None
    assert made.end.status == "complete"
    assert did["ended"] <= 10


@pytest.mark.parametrize("strategy", ["by-size", "fixed"])
@pytest.mark.parametrize("fixed", [2.1 * GB, 3 * GB, 6 * GB])
def test_tasks_whose_fixed_part_is_more_than_their_share_are_granted_more_and_keep_their_rows(
    fixed: float, strategy: str
) -> None:
    made = of_rows(Allocation(nodes=NODE, strategy=strategy), 4_000, chunk=2_000, parts=True)
    did = drive(made, lambda task: fixed + 10 * task.size, idle=0.2 * GB)
    assert made.end is not None
    assert made.end.status == "complete"
    assert did["finished"] < 200  # not single rows
    assert did["ended"] <= 40


@pytest.mark.parametrize(("bad", "named"), [(3 * GB, None), (9 * GB, Rows(0, 2_345, 2_346))])
def test_one_row_that_needs_more_than_the_rest_is_found_and_named_if_nothing_can_hold_it(
    bad: float, named: Rows | None
) -> None:
    policy = Allocation(nodes=NODE, remembered=_remembered(lambda _: 0.3 * GB))
    made = of_rows(policy, 4_000, chunk=1_000, parts=True)
    tried: list[Rows] = []

    def memory(task: Task) -> float:
        tried.append(task.payload.rows[0] if isinstance(task.payload, RunRows) else Rows(0, 0, 0))
        return bad if tried[-1].start <= 2_345 < tried[-1].stop else 0.3 * GB

    did = drive(made, memory)
    assert made.end is not None
    assert made.end.status == ("complete" if named is None else "failed")
    assert named is None or tried[-1] == named
    assert did["ended"] <= 30


def test_a_cap_below_the_fixed_cost_ends_the_run_with_a_message_and_without_dividing() -> None:
    policy = Allocation(nodes=NODE, cap=0.4 * GB, remembered=_remembered(lambda rows: 0.5 * GB + 10 * rows))
    made = of_rows(policy, 640_000, chunk=128_000)
    did = drive(made, lambda task: 0.5 * GB + 10 * task.size)
    assert did["ended"] <= 20
    assert made.end is not None
    assert made.end.status == "failed"
    assert made.end.failure is not None
    assert made.end.failure.final
    words = made.end.failure.message
    assert "used 800 MB of memory or more; the limit is 400 MB; that is all that it may have (task_memory=)" in words
    assert "use 500 MB however few rows they have" in words


def test_rows_that_nothing_can_hold_are_left_out_whole_where_errors_are_skipped() -> None:
    policy = Allocation(nodes=NODE, cap=0.4 * GB, remembered=_remembered(lambda rows: 0.5 * GB + 10 * rows))
    made = of_rows(policy, 128_000, chunk=32_000, on_error="skip")
    did = drive(made, lambda task: 0.5 * GB + 10 * task.size)
    assert made.end is not None
    assert made.end.status == "incomplete"
    assert did["ended"] <= 4 * 3  # none was divided


def _remembered(memory: Callable[[int], float]) -> list[dict[str, Any]]:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES, memory)
    return policy.remember()


def test_of_noisy_tasks_few_are_ended() -> None:
    rng = random.Random(5)
    needs = {number: 1.2 * GB * rng.lognormvariate(0, 0.35) for number in range(1, 1_001)}
    made = of_calls(Allocation(nodes=NODE), 1_000)
    did = drive(made, lambda task: needs[task.id])
    assert did["finished"] == 1_000
    assert did["ended"] <= 40


# -- for people, and for the next run


def test_what_was_learned_survives_as_plain_data() -> None:
    plain = json.loads(json.dumps(_remembered(line)))
    for strategy, amount in (("by-size", 2.5 * GB), ("max-seen", 2.5 * GB)):
        policy = Allocation(nodes=NODE, remembered=plain, strategy=strategy)
        assert granted(policy, rows_task(1, 100_000)) == pytest.approx(amount, rel=0.07)
        assert policy.fit(Key("d")) is not None


def test_facts_for_reports() -> None:
    policy = Allocation(nodes=NODE)
    teach(policy, SIZES, lambda _: 0.5 * GB, wall=2.0)
    ask(policy, rows_task(1, 100_000), 2 * GB, divisible=True)
    (facts,) = json.loads(json.dumps(policy.describe()))
    assert (facts["category"], facts["kind"], facts["moved"], facts["strategy"]) == ("d", "rows", False, "by-size")
    assert facts["tasks"] == 20
    assert facts["granted_byte_s"] == 20 * 2 * GB * 2
    assert facts["wasted_byte_s"] == 20 * 1.5 * GB * 2
    assert facts["predictions"] == 15
    assert facts["predicted"] == pytest.approx(facts["used"], rel=0.01)
    assert facts["suggested"] == facts["most"] == facts["fixed"] == 0.5 * GB
    assert facts["larger"] == 1


def test_nodes_may_come_and_go() -> None:
    policy = Allocation(nodes=NODE)
    policy.resize([*NODE, NodeSize(64 * GB, 4)])
    assert ask(policy, rows_task(1, 1), 2 * GB)[:2] == ("larger", 64 * GB)
    policy.resize([])
    assert policy.grant(rows_task(1, 1), NO_TRIES) == LaunchPolicy().grant(rows_task(1, 1), NO_TRIES)


def test_a_worker_of_another_life_is_no_matter() -> None:
    policy = Allocation(nodes=NODE)
    assert not policy.seen(rows_task(1, 1, pin=Life(0, 1)), used(1 * GB))  # never granted by this policy
