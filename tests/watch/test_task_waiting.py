"""Waiting by cause: what the scheduler counted, and what can be seen of tasks that go on."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.watch.graph_run import GraphRun, Span, cause_words, critical_path, graph_run, waits
from windrow.watch.log import Attempt, CallRecord, Try, call_line
from windrow.watch.readlog import read_log

NOW = 60


counts = st.dictionaries(
    st.sampled_from(["inputs", "queue", "worker", "cores", "run", "values", "pause", "gpu"]), st.integers(1, 40)
)


@settings(max_examples=examples(200))
@given(spent=counts, called=st.integers(0, NOW), lasted=st.integers(0, NOW))
def test_what_the_scheduler_counted_adds_up_without_a_rest(spent: dict[str, int], called: int, lasted: int) -> None:
    only = Try(1, 0, called, called, called + lasted, called + lasted)
    task = CallRecord(1, "it", called, called + lasted, "done", (only,), spent=spent)
    (found,) = waits(GraphRun(name="s", tasks={1: task}, workers=1, span=2 * NOW)).values()
    assert sum(found.values()) == lasted
    assert all(time > 0 for time in found.values())
    assert found.keys() <= {"inputs", "worker", "running", "values", "pause", "gpu"}
    if sum(spent.values()) == lasted:
        assert found.get("running", 0) == spent.get("run", 0)


def test_causes_of_a_session_by_hand() -> None:
    """Two tasks share a licence; a third reads from the first early, a fourth from the second."""
    one_licence = {"cores": 1, "licence": 1}
    made = {
        1: CallRecord(1, "a", 0, 100, "done", (Try(1, 0, 0, 2, 100, 100),), released={"1.0": [40]}, needs=one_licence),
        2: CallRecord(2, "b", 0, 150, "done", (Try(2, 1, 100, 100, 150, 150),), needs=one_licence, spent={"worker": 3, "licence": 97, "run": 50}),
        3: CallRecord(3, "c", 10, 60, "done", (Try(3, 2, 50, 50, 60, 60),), reads=("1.0",), spent={"inputs": 30, "queue": 4, "values": 6, "run": 10}),
        4: CallRecord(4, "d", 20, 170, "done", (Try(4, 2, 160, 160, 170, 170),), reads=("2.0",)),
    }  # fmt: skip
    assert waits(GraphRun(name="s", tasks=made, workers=3, span=170)) == {
        1: {"worker": 2, "running": 98},
        2: {"worker": 3, "licence": 97, "running": 50},
        3: {"inputs": 30, "worker": 4, "values": 6, "running": 10},
        4: {"inputs": 130, "worker": 10, "running": 10},
    }
    assert cause_words("licence") == "for licence"


def test_a_task_that_waits_is_said_to_lack_what_is_taken_now() -> None:
    running = (Try(1, 0, 0, 0, 50, 50, "running"),)
    made = {
        1: CallRecord(1, "a", 0, 50, "running", running, needs={"cores": 1, "licence": 2}),
        2: CallRecord(2, "b", 10, 50, "waiting", needs={"cores": 1, "licence": 2}),
        3: CallRecord(3, "c", 10, 50, "waiting", needs={"cores": 1, "licence": 1}),
    }
    log = replace(read_log(()), offers={"cores": 1, "licence": 3})
    found = waits(GraphRun(name="s", tasks=made, workers=1, span=50, log=log))
    assert (found[2], found[3]) == ({"licence": 40}, {"worker": 40})


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
    assert waits(run) == {1: {"worker": 4, "running": 26}, 2: {"inputs": 25}, 3: {"inputs": 40}}
    assert [run.tasks[number].state for number in (1, 2, 3)] == ["failed", "failed", "waiting"]
    assert run.tasks[1].tries[0].why == "ValueError: no"


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
