"""HEFT as a benchmark has it: the published example, and schedules that could run whatever the tasks are."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loading import load
from searching import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

HEFT: Any = load("benchmarks/paper_heft.py")

#: Figure 2 of Topcuoglu et al.: what ten tasks take on three processors, and what sending between them takes.
SECONDS = {
    1: (14, 16, 9), 2: (13, 19, 18), 3: (11, 13, 19), 4: (13, 8, 17), 5: (12, 13, 10),
    6: (13, 16, 9), 7: (7, 15, 11), 8: (5, 11, 14), 9: (18, 12, 20), 10: (21, 7, 16),
}  # fmt: skip
NEEDS = {
    1: {}, 2: {1: 18}, 3: {1: 12}, 4: {1: 9}, 5: {1: 11}, 6: {1: 14}, 7: {3: 23}, 8: {2: 19, 4: 27, 6: 15},
    9: {2: 16, 4: 23, 5: 13}, 10: {7: 17, 8: 11, 9: 13},
}  # fmt: skip


def test_the_published_example() -> None:
    # Three times everything, so that means are whole: 3 and 4 have the same rank.
    seconds = {task: tuple(3 * one for one in each) for task, each in SECONDS.items()}
    placed = HEFT.heft(seconds, {task: {need: 3 * one for need, one in each.items()} for task, each in NEEDS.items()})
    assert list(placed) == [1, 3, 4, 2, 5, 6, 9, 7, 8, 10]
    assert max(one.end for one in placed.values()) == 3 * 80
    assert [placed[task].processor + 1 for task in sorted(placed)] == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]
    rank = HEFT.upward_ranks({task: sum(each) / 3 for task, each in SECONDS.items()}, NEEDS)
    assert [round(rank[task], 3) for task in (1, 2, 3, 10)] == [108.0, 77.0, 80.0, 14.667]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, tuple[float, ...]], dict[int, dict[int, float]]]:
    processors = draw(st.integers(1, 4))
    seconds, needs = {}, {}
    for task in range(draw(st.integers(1, 12))):
        seconds[task] = tuple(float(draw(st.integers(0, 9))) for _ in range(processors))
        above = draw(st.sets(st.integers(0, task - 1), max_size=3)) if task else set()
        needs[task] = {need: float(draw(st.integers(0, 5))) for need in sorted(above)}
    return seconds, needs


def check_no_overlap(placed: Mapping[Any, Any]) -> None:
    by_processor: dict[int, list[Any]] = {}
    for one in placed.values():
        if one.end > one.begin:
            by_processor.setdefault(one.processor, []).append(one)
    for tasks in by_processor.values():
        for first, second in pairwise(sorted(tasks, key=lambda one: one.begin)):
            assert first.end <= second.begin + 1e-9


@given(graphs())
@settings(max_examples=examples(100))
def test_a_schedule_can_run_and_no_schedule_could_be_shorter_than_its_bounds(drawn: Any) -> None:
    seconds, needs = drawn
    placed = HEFT.heft(seconds, needs)
    assert set(placed) == set(seconds)
    for task, one in placed.items():
        assert one.end == one.begin + seconds[task][one.processor]
        for need, sending_s in needs[task].items():
            before = placed[need]
            assert one.begin >= before.end + (sending_s if before.processor != one.processor else 0)
    check_no_overlap(placed)
    makespan = max(one.end for one in placed.values())
    least = {task: min(each) for task, each in seconds.items()}
    path = HEFT.upward_ranks(least, {task: dict.fromkeys(needed, 0.0) for task, needed in needs.items()})
    assert makespan >= max(path.values())
    assert makespan >= sum(least.values()) / len(seconds[0]) - 1e-9
    # One processor is never idle while a task is ready: no sending, so all in a row.
    alone = HEFT.heft({task: each[:1] for task, each in seconds.items()}, needs)
    assert max(one.end for one in alone.values()) == sum(each[0] for each in seconds.values())


@given(st.data())
@settings(max_examples=examples(60))
def test_events_that_are_dropped_take_no_time_and_tasks_wait_for_what_they_need(data: st.DataObject) -> None:
    count, events = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    needs = [sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=2))) if n else [] for n in range(count)]
    seconds = [float(data.draw(st.integers(1, 9))) for _ in range(count)]
    passes = np.random.default_rng(data.draw(st.integers(0, 99))).random((events, count)) < 0.7
    floor = HEFT.Floor(
        seconds, needs, passes, group=data.draw(st.integers(1, 3)), processors=data.draw(st.integers(1, 3))
    )
    plan = floor.plan()
    for how in (plan, None):
        done = floor.run(how)
        ran = dict(done.ran)
        check_no_overlap(ran)
        assert done.now == max(one.end for one in ran.values())
        for (group, number), one in ran.items():
            if how is not None:
                assert one.processor == plan[group, number].processor
            assert one.end <= one.begin + floor.whole_s((group, number)) + 1e-9
            for need in needs[number]:
                assert ran[group, need].end <= one.begin
        for group, own in enumerate(floor.events):
            # Every event goes on until a proposition drops it; what all events pass, all propositions see.
            lasting = own.all(axis=1)
            for number in range(count):
                if lasting.any():
                    rows = (ran[group, number].end - ran[group, number].begin) / seconds[number]
                    assert lasting.sum() <= rows + 1e-9
    every = HEFT.Floor(seconds, needs, np.ones_like(passes), group=1, processors=floor.processors)
    whole = every.plan()
    assert every.run(whole).now == pytest.approx(max(one.end for one in whole.values()))
