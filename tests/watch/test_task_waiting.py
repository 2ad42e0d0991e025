"""Waiting by cause: every moment of a task's time against rules that are written down once more, tick by tick."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.watch.findings import Span, critical_path
from windrow.watch.graph_run import GraphRun, graph_run
from windrow.watch.log import Attempt, CallRecord, Try, call_line
from windrow.watch.readlog import read_log
from windrow.watch.waiting import cause_words, shared_out, waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NOW = 60


def times(most: int = NOW) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@st.composite
def tasks(draw: st.DrawFn) -> CallRecord:
    """A task with up to three attempts, one after the other."""
    called = draw(times(20))
    clock, tries = called, []
    for number in range(draw(st.integers(0, 3))):
        launched = clock + draw(st.integers(0, 8))
        begin = launched + draw(st.integers(0, 4))
        clock = begin + draw(st.integers(0, 6))
        how = draw(st.sampled_from(["done", "failed", "lost", "cancelled"]))
        held = clock + draw(st.integers(0, 5)) if how == "failed" else 0
        tries.append(Try(number, 0, launched, begin, clock, clock, how, "", held))
        if how == "done":
            break
    needs = draw(st.dictionaries(st.sampled_from(["cores", "gpu", "memory"]), st.integers(1, 3)))
    end = clock if tries and tries[-1].how == "done" else clock + draw(st.integers(0, 8))
    reads = tuple(draw(st.sets(st.sampled_from(["1.0", "2.0"]))))
    after = tuple(draw(st.sets(st.sampled_from([3, 4]))))
    return CallRecord(9, "it", called, end, "done", tuple(tries), reads, after, needs=dict(needs))


def by_tick(
    task: CallRecord, there: Mapping[str, Sequence[int]], ended: Mapping[int, int], staffed: int
) -> Counter[str]:
    """Ask of every tick why the task did not get on."""

    def waiting(tick: int, until: int, held: int) -> str:
        if tick < held:
            return "failure"
        for output in task.reads:
            made = [time for time in there[output] if time <= until]
            if not made or tick < max(made):
                return "inputs"
        if any(tick < ended[number] for number in task.after):
            return "files"
        return "start" if tick < staffed else "worker"

    found: Counter[str] = Counter()
    for tick in range(task.called, task.end):
        held, cause = 0, ""
        for one in task.tries:
            if tick < one.launched:
                cause = waiting(tick, one.launched, held)
            elif tick < one.begin:
                firsts = [there[output][0] for output in task.reads if there[output]]
                ahead = [time for time in firsts if one.launched < time <= one.begin]
                cause = "inputs" if tick < max(ahead, default=0) else "worker"
            elif tick < one.end:
                cause = "running" if one.how == "done" else "vain"
            else:
                held = one.held
                if one.how != "done":
                    continue
                cause = "values"
            break
        found[cause or waiting(tick, task.end, held)] += 1
    return found


lacks = st.dictionaries(st.sampled_from(["values", "gpu", "memory"]), st.integers(1, 20))


@settings(max_examples=examples(200))
@given(
    task=tasks(),
    there=st.fixed_dictionaries({name: st.lists(times(), max_size=2).map(sorted) for name in ("1.0", "2.0")}),
    ended=st.fixed_dictionaries({3: times(), 4: times()}),
    staffed=times(20),
    lacked=lacks,
)
def test_every_tick_has_the_cause_it_should_have(
    task: CallRecord, there: Any, ended: Any, staffed: int, lacked: dict[str, int]
) -> None:
    found = shared_out(task, there.__getitem__, ended.__getitem__, staffed)
    expected = by_tick(task, there, ended, staffed)
    assert found == expected
    # What was lacking is named within the time that the task had no place to run, and nowhere else.
    named = shared_out(task._replace(lacked=lacked), there.__getitem__, ended.__getitem__, staffed)
    assert sum(named.values()) == task.end - task.called
    assert all(time > 0 for time in named.values())
    room = {"worker", "values", "memory", "resource gpu"}
    assert {cause: time for cause, time in named.items() if cause not in room} == {
        cause: time for cause, time in expected.items() if cause not in room
    }
    for name, time in lacked.items():
        cause = "resource gpu" if name == "gpu" else name
        assert named.get(cause, 0) == max(time, expected[cause]) or "worker" not in named


def test_causes_of_a_session_by_hand() -> None:
    """Two tasks share a licence; a third reads from the first early, a fourth comes after the second."""
    one_licence = {"cores": 1, "licence": 1}
    made = {
        1: CallRecord(1, "a", 0, 100, "done", (Try(1, 0, 0, 2, 100, 100),), released={"1.0": [40]}, needs=one_licence),
        2: CallRecord(2, "b", 0, 150, "done", (Try(2, 1, 100, 100, 150, 150),), needs=one_licence, lacked={"licence": 97}),
        3: CallRecord(3, "c", 10, 60, "done", (Try(3, 2, 50, 50, 60, 60),), reads=("1.0",), lacked={"values": 6}),
        4: CallRecord(4, "d", 20, 170, "done", (Try(4, 2, 160, 160, 170, 170),), after=(2,)),
    }  # fmt: skip
    assert waits(GraphRun(name="s", tasks=made, workers=3, span=170)) == {
        1: {"worker": 2, "running": 98},
        2: {"worker": 3, "resource licence": 97, "running": 50},
        3: {"inputs": 30, "worker": 4, "values": 6, "running": 10},
        4: {"files": 130, "worker": 10, "running": 10},
    }
    assert cause_words("resource licence") == "for licence"


def test_a_task_that_waits_is_said_to_lack_what_is_taken_now() -> None:
    running = (Try(1, 0, 0, 0, 50, 50, "running"),)
    made = {
        1: CallRecord(1, "a", 0, 50, "running", running, needs={"cores": 1, "licence": 2}),
        2: CallRecord(2, "b", 10, 50, "waiting", needs={"cores": 1, "licence": 2}),
        3: CallRecord(3, "c", 10, 50, "waiting", needs={"cores": 1, "licence": 1}),
    }
    log = replace(read_log(()), offers={"cores": 1, "licence": 3})
    found = waits(GraphRun(name="s", tasks=made, workers=1, span=50, log=log))
    assert (found[2], found[3]) == ({"resource licence": 40}, {"worker": 40})


def tried(task: int, worker: int, launched: int, heard: int, wall: int, how: str) -> Attempt:
    """An attempt that has the number of its task."""
    return Attempt(heard, task, "a", task, worker, launched, wall, how)


def run_of(lines: list[str], now: int) -> GraphRun:
    return graph_run(read_log(lines, now), {})


def test_a_worker_does_one_thing_at_a_time_although_it_reports_many_at_once() -> None:
    # Three tasks of 10, given at 0, 0 and 1, all heard of at 40: none can have ended after the next began.
    attempts = [
        tried(1, 0, 0, 40, 10, "done"),
        tried(2, 0, 0, 40, 10, "done"),
        tried(3, 0, 1, 40, 10, "done"),
        tried(4, 1, 0, 6, 0, "failed"),
        tried(5, 1, 2, 0, 0, "running"),
    ]
    lines = [call_line(one, CallRecord(one.task, "a", 0, one.heard, "done")) for one in attempts]
    found = {number: task.tries for number, task in run_of(lines, 50).tasks.items()}
    assert [(one.begin, one.end) for number in (1, 2, 3) for one in found[number]] == [(10, 20), (20, 30), (30, 40)]
    assert found[4] == (Try(4, 1, 0, 0, 6, 6, "failed"),)
    assert found[5] == (Try(5, 1, 2, 6, 50, 50, "running"),)


def test_what_has_ended_by_now_does_not_go_on() -> None:
    waiting = call_line(tried(1, 0, 5, 0, 0, "running"), CallRecord(1, "a", 0, 0, "waiting"))
    ended = call_line(tried(1, 0, 5, 30, 10, "done"), CallRecord(1, "a", 0, 30, "done"))
    (task,) = run_of([waiting, ended], 50).tasks.values()
    assert (task.state, task.tries) == ("done", (Try(1, 0, 5, 20, 30, 30),))


def test_a_task_that_never_ran_waits_until_its_end() -> None:
    lines = [
        call_line(tried(1, 0, 4, 30, 0, "failed"), CallRecord(1, "a", 0, 30, "failed", why="no"), "ValueError: no"),
        call_line(None, CallRecord(2, "b", 5, 30, "failed", reads=("1.0",))),
        call_line(None, CallRecord(3, "c", 10, 0, "waiting", reads=("2.0",))),
    ]
    run = run_of(lines, 50)
    assert waits(run) == {1: {"worker": 4, "vain": 26}, 2: {"inputs": 25}, 3: {"inputs": 40}}
    assert [run.tasks[number].state for number in (1, 2, 3)] == ["failed", "failed", "waiting"]
    assert run.tasks[1].tries[0].why == "ValueError: no"


def test_workers_that_came_and_went_are_not_looked_at_for_every_task() -> None:
    looks = []

    class Counted(tuple[dict[str, Any], ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[dict[str, Any]]:
            looks.append(1)
            return super().__iter__()

    tasks = {
        number: CallRecord(number, "a", 0, 9, "done", (Try(number, 0, 5, 5, 9, 9),), needs={"cores": 1})
        for number in range(1, 50)
    }
    rare = Counted([{"t": 3e-6, "event": "WorkerJoined", "worker": 0}])
    found = waits(GraphRun(name="x", tasks=tasks, workers=1, span=9, log=replace(read_log(()), rare=rare)))
    assert all(shared["start"] == 3 for shared in found.values())
    assert len(looks) <= 2


def test_what_was_launched_ahead_of_what_it_reads_waited_for_that() -> None:
    """Two in a row at one worker, launched together and heard of together."""
    lines = [
        call_line(tried(1, 0, 10, 100, 30, "done"), CallRecord(1, "a", 0, 100, "done")),
        call_line(tried(2, 0, 10, 100, 40, "done"), CallRecord(2, "b", 0, 100, "done", reads=("1.0",))),
    ]
    run = run_of(lines, 100)
    assert [(one.tries[0].begin, one.tries[0].end) for one in run.tasks.values()] == [(30, 60), (60, 100)]  # fmt: skip
    assert [(one.source, one.target, one.at) for one in run.links()] == [(1, 2, 60)]
    assert critical_path({1: Span(30, 60), 2: Span(60, 100)}, run.links()).length == 70
    assert waits(run)[2] == {"inputs": 60, "running": 40}
