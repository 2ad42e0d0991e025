"""The log, page and trace of a session, from records that are made by hand."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import DataError
from windrow.watch.graph_run import ByName, Findings, GraphRun, graph_run
from windrow.watch.log import Attempt, CallRecord, Try, attempt_line, call_line
from windrow.watch.readlog import read_log
from windrow.watch.report.session import session_page
from windrow.watch.trace import trace_text

S = 1_000_000


def early_run(log: dict[str, Any] | None = None, **changes: Any) -> GraphRun:
    """A generator of 3 s releases after each; two tasks begin before its end; one fails, one is tried again."""
    bad = "ValueError: in /some/secret/file.txt"

    def tried(task: int, name: str, attempt: int, worker: int, begin: int, end: int, how: str = "done") -> Attempt:
        return Attempt(end, task, name, attempt, worker, begin, end - begin, how)

    lines = [
        call_line(tried(1, "make", 1, 0, 0, 3 * S), CallRecord(1, "make", 0, 3 * S, "done", released={"1.0": [S], "1.1": [2 * S]})),
        call_line(tried(2, "use", 2, 1, S, 2 * S), CallRecord(2, "use", 0, 2 * S, "done", reads=("1.0",))),
        attempt_line(tried(3, "use", 3, 1, 2 * S, 3 * S, "lost"), "CrashError: gone"),
        call_line(tried(3, "use", 4, 1, 3 * S, 5 * S), CallRecord(3, "use", 0, 5 * S, "done", reads=("1.1",))),
        call_line(tried(4, "<b>bad</b>", 5, 0, 3 * S, 4 * S, "failed"), CallRecord(4, "<b>bad</b>", 0, 4 * S, "failed", why=bad), bad),
        call_line(None, CallRecord(5, "last", 0, 4 * S, "failed", reads=("4.0",), why="task 5 did not run because task 4 failed")),
        *(json.dumps({"t": time, "event": "memory", "rss": size}) for time, size in ((0, 10**6), (S, 2 * 10**6))),
        json.dumps({"t": 3 * S, "event": "WorkerLost", "worker": 1, "failure": "CrashError: gone"}),
    ]  # fmt: skip
    told = read_log(lines, now=5 * S)
    told = replace(told, offers={"cores": 2}, brought={"1.0"}, reused={"use": 7}, **(log or {}))
    facts = {"session": "a <session>", "state": "complete", "options": {"engine": "threads"}}
    return replace(graph_run(told, facts), workers=2, **changes)


def test_what_is_found() -> None:
    found = Findings(early_run())
    assert found.makespan == 5 * S
    # make until 2 s, then the second use from 3 to 5 s: 4 s. All work is 8 s on two workers: 4 s.
    assert found.path == ((1, 3), (2 * S, 2 * S))
    assert found.work == 8 * S
    assert found.least == 4 * S
    assert found.early == [2 * S]
    by_name = {one.name: one for one in found.names}
    assert (by_name["use"].count, by_name["use"].retries, by_name["use"].reused) == (2, 1, 7)
    assert (by_name["<b>bad</b>"].failed, by_name["last"].failed) == (1, 1)
    assert found.waited["inputs"] == S + 2 * S + 4 * S


def test_a_task_counts_with_the_cores_it_holds() -> None:
    tasks = {
        n: CallRecord(n, "wide", 0, n * S, "done", (Try(n, 0, 0, (n - 1) * S, n * S, n * S),), needs={"cores": 2})
        for n in (1, 2, 3)
    }
    run = GraphRun(name="wide", tasks=tasks, workers=2, span=3 * S, log=replace(read_log(()), offers={"cores": 2}))
    found = Findings(run)
    assert (found.work, found.busy, found.least) == (6 * S, 1.0, 3 * S)
    text = page(run)
    assert "100 %" in text
    assert "bound by work / cores" in text


def test_a_session_in_which_everything_was_reused_says_so() -> None:
    log = replace(read_log(()), reused={"align": 20, "merge": 3})
    run = GraphRun(name="again", tasks={}, workers=1, span=0, log=log)
    text = page(run)
    assert "Complete:</strong> nothing had to run: all 23 calls got the result of an earlier one." in text
    assert "No task was called" not in text
    assert "0 of 0" not in text
    assert ">align</th>" in text


def test_sums_of_tasks_that_are_not_kept_are_counted() -> None:
    found = Findings(
        early_run(
            dropped={"make": ByName("make", 10, 7, failed=1, cancelled=2, retries=3, time=25 * S // 10, longest=S // 2)}
        )
    )
    make = next(one for one in found.names if one.name == "make")
    assert (make.count, make.done, make.failed, make.cancelled, make.retries) == (11, 8, 1, 2, 3)
    assert make.time == int(5.5 * S)
    assert "of the latest 5 tasks; the 10 before" in page(early_run(dropped={"x": ByName("x", 10)}))


def test_the_mean_is_that_of_tasks_that_ran() -> None:
    tasks = dict(early_run().tasks)
    tasks |= {n: CallRecord(n, "make", 0, 5 * S, "waiting", (), ()) for n in range(10, 20)}
    dropped = {"make": ByName("make", 10, 2, failed=8, ran=2, time=5 * S, longest=S)}
    found = Findings(early_run(tasks=tasks, dropped=dropped))
    make = next(one for one in found.names if one.name == "make")
    assert (make.count, make.ran, make.mean) == (21, 3, (3 + 5) * S / 3)


def page(run: GraphRun) -> str:
    return session_page(run, Findings(run), {"python": "3", "windrow": "1"})


def test_the_page_has_all_sections_and_no_foreign_markup() -> None:
    text = page(early_run())
    for section in ("summary", "names", "graph", "timeline", "path", "waiting", "failures"):
        assert f'id="{section}"' in text
    assert "@@" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "<b>bad</b>" not in text
    assert "/some/secret" not in text
    assert "a &lt;session&gt;" in text
    assert "3 of 5 tasks are done, 2 failed" in text
    assert "1 task began before one they read from had ended, by 2 s in all" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    assert data["timeline"]["lanes"] == ["0", "1"]
    assert data["counted"] == "tasks"
    assert ">for inputs</th>" in text


def test_a_session_without_tasks_has_a_page() -> None:
    empty = GraphRun(name="empty", tasks={}, workers=1, span=0)
    assert "No task was called" in page(empty)


def test_the_trace_has_arrows_and_marks() -> None:
    run = early_run()
    content = json.loads(trace_text(run.log, run.name, graph=run, links=run.links()), parse_constant=pytest.fail)
    events = content["traceEvents"]
    assert Counter(event["ph"] for event in events) == {"M": 3, "X": 5, "s": 2, "f": 2, "i": 3, "C": 2}
    spans = [event for event in events if event["ph"] == "X"]
    assert {(event["name"], event["tid"], event["ts"], event["dur"]) for event in spans} == {
        ("make", 1, 0, 3 * S),
        ("use", 2, S, S),
        ("use", 2, 2 * S, S),
        ("use", 2, 3 * S, 2 * S),
        ("<b>bad</b>", 1, 3 * S, S),
    }
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert {(starts[one]["ts"], ends[one]["ts"], ends[one]["tid"]) for one in starts} == {(S, S, 2), (2 * S, 3 * S, 2)}
    marks = [event for event in events if event["ph"] == "i" and event["s"] == "t"]
    assert [(event["name"], event["ts"]) for event in marks] == [("released 1.0", S), ("released 1.1", 2 * S)]
    assert "secret" not in json.dumps(events)
    few = json.loads(trace_text(run.log, run.name, graph=run, most=2))["traceEvents"]
    assert sum(event["ph"] == "X" for event in few) == 2


# -- the log ---------------------------------------------------------------------------------------

words = st.text(st.characters(codec="utf-8"), max_size=12)
whole = st.integers(0, 10**12)


@st.composite
def calls(draw: st.DrawFn) -> tuple[CallRecord, list[tuple[Attempt, str]]]:
    number, name = draw(st.integers(1, 10**6)), draw(words)
    call = CallRecord(
        number,
        name,
        draw(whole),
        draw(st.integers(1, 10**12)),
        draw(st.sampled_from(["done", "failed", "cancelled"])),
        (),
        tuple(draw(st.lists(st.sampled_from(["1.0", "2.v1", "3.end", "4.f0"]), max_size=2))),
        tuple(draw(st.lists(st.integers(1, 99), max_size=2))),
        draw(st.dictionaries(st.sampled_from(["1.0", "1.1"]), st.lists(whole, min_size=1, max_size=2))),
        draw(st.sampled_from([{"cores": 1}, {"cores": 2, "memory": 10**9}, {"gpu": 0.5}])),
        draw(st.integers(0, 3)),
        draw(words),
        draw(st.sampled_from([{}, {"inputs": 5, "running": 7}])),
    )
    tries = [
        (Attempt(draw(whole), number, name, 10 * number + place, draw(st.integers(0, 9)), draw(whole), draw(whole),
                 draw(st.sampled_from(["done", "failed"]))), draw(words))
        for place in range(draw(st.integers(0, 2)))
    ]  # fmt: skip
    return call, tries


@given(st.lists(calls(), max_size=5, unique_by=lambda pair: pair[0].id))
def test_a_log_is_read_back_as_it_was_written(written: list[tuple[CallRecord, list[tuple[Attempt, str]]]]) -> None:
    lines = []
    for call, tries in written:
        lines += [attempt_line(*one) for one in tries[:-1]]
        lines.append(call_line(tries[-1][0], call, tries[-1][1]) if tries else call_line(None, call))
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in lines)
    log = read_log(lines, now=0)
    assert log.unreadable == 0
    assert dict(log.calls) == {call.id: call for call, _ in written}
    attempts = log.attempts
    found = zip(attempts.task.tolist(), attempts.attempt.tolist(), attempts.worker.tolist(), strict=True)
    assert list(found) == [(one.task, one.attempt, one.worker) for _, tries in written for one, _ in tries]
    assert log.words == {one.attempt: why for _, tries in written for one, why in tries if why}


def test_a_torn_log_is_read_as_far_as_it_goes() -> None:
    lines = [
        json.dumps({"t": 0, "event": "WorkerJoined", "worker": 0}),
        json.dumps({"t": 0, "event": "offers", "offers": {"cores": 2}}),
        call_line(Attempt(9, 1, "a", 1, 0, 1, 5, "done"), CallRecord(1, "a", 0, 9, "done")),
        json.dumps({"t": 12, "event": "memory", "rss": 5}),
        json.dumps({"t": 13, "event": "brought", "output": "1.0", "begin": 11, "bytes": 4}),
        json.dumps({"t": 14, "event": "reused", "names": {"a": 2}}),
        json.dumps({"t": 15, "event": "of a later version"}),
        call_line(None, CallRecord(2, "b", 0, 9, "done"))[:40],
        '{"t": "no number", "event": "memory"}',
        "[]",
    ]
    facts = {"session": "s", "state": "running", "options": {"engine": "threads"}}
    run = graph_run(read_log(lines, now=0), facts)
    assert list(run.tasks) == [1]
    assert (run.log.unreadable, run.workers, run.over, run.engine, run.span) == (3, 1, False, "threads", 15)  # fmt: skip
    assert run.log.offers == {"cores": 2}
    assert run.log.brought == {"1.0"}
    assert run.log.memory.tolist() == [[12e-6, 5]]
    assert run.log.reused == {"a": 2}
    assert "3 lines of the log could not be read" in page(run)


def test_a_log_of_an_earlier_form_is_refused() -> None:
    earlier = json.loads(call_line(None, CallRecord(1, "a", 0, 9, "done")))
    del earlier["spent"]
    with pytest.raises(DataError, match="made by an earlier version"):
        read_log([json.dumps(earlier)])


def test_an_attempt_after_the_end_has_a_line_of_its_own() -> None:
    first, again = (Attempt(t, 1, "a", n, 0, t - 8, 5, "done") for n, t in ((1, 9), (2, 30)))
    run = graph_run(read_log([call_line(first, CallRecord(1, "a", 0, 9, "done")), attempt_line(again)], now=0), {})
    assert [one.attempt for one in run.tasks[1].tries] == [1, 2]
    assert run.tasks[1].end == 9


def test_a_page_of_many_tasks_has_a_fixed_size() -> None:
    made = {
        number: CallRecord(number, f"name {number % 20}", number, number + 50, "done",
                    (Try(number, number % 4, number, number + 10, number + 50, number + 50),),
                    (f"{number - 4}.0",) if number > 4 else (), needs={"cores": 1})
        for number in range(1, 20_001)
    }  # fmt: skip
    run = GraphRun(name="many", tasks=made, workers=4, span=20_100)
    large, small = page(run), page(early_run())
    assert len(large) < len(small) + 400_000
