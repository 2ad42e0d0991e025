"""``session.graph()`` and ``session.explain()`` of real sessions."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from windrow.errors import DependencyError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

ENGINES = ["inline", "threads", "processes"]


@wr.task
def one(x: int = 0) -> int:
    return x + 1


@wr.task
def total(*parts: int) -> int:
    return sum(parts)


@wr.task
def broken(_: int) -> int:
    raise ValueError("no such sample")


@wr.task(outputs=2)
def halves(x: int) -> Any:
    yield x // 2
    yield x - x // 2


@pytest.mark.parametrize("engine", ENGINES)
def test_nodes_and_edges_are_the_calls(engine: str) -> None:
    with wr.Session(engine=engine, workers=2, name="small") as session:
        first, second = halves(one(6))
        end = total(first, second, one(1))
        assert end.result() == 9
        session.barrier()
        graph = session.graph()
    assert [(node.key, node.name, node.level, node.states) for node in graph.nodes] == [
        ("1", "one", 0, {"done": 1}),
        ("2", "halves", 1, {"done": 1}),
        ("3", "one", 0, {"done": 1}),
        ("4", "total", 2, {"done": 1}),
    ]
    assert {(edge.source, edge.target, edge.kind, edge.count) for edge in graph.edges} == {
        ("1", "2", "data", 1),
        ("2", "4", "data", 1),
        ("3", "4", "data", 1),
    }
    assert repr(graph).startswith("<graph of 'small': 4 tasks in 4 nodes")


def test_many_are_joined_and_states_are_those_of_now() -> None:
    began, go = threading.Event(), threading.Event()

    @wr.task(name="held")
    def held(x: int) -> int:
        began.set()
        go.wait(120)
        return x

    with wr.Session(engine="threads", workers=2) as session:
        futures = [held(number) for number in range(300)]
        last = total(*[one(future) for future in futures[:2]])
        assert began.wait(120)
        graph = session.graph()
        go.set()
        assert last.result() == 3
    labels = {node.label: node for node in graph.nodes}
    assert set(labels) == {"held x 300", "one x 2", "total"}
    states = labels["held x 300"].states
    assert states["running"] >= 1
    assert sum(states.values()) == 300
    with pytest.raises(UsageError, match="at least 1, got 0"):
        session.graph(most=0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_task_is_explained(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        first = one(1)
        second = one(first)
        assert second.result() == 3
        session.barrier()
        words = session.explain(second)
        assert session.explain(2) == words
        bad = broken(second)
        after = one(bad)
        with pytest.raises(DependencyError):
            after.result()
        session.barrier()
        of_bad, of_after = session.explain(bad), session.explain(after)
        whole = session.explain()
    assert words.startswith("task 2, one: done\n")
    assert "running" in words
    assert "ran on worker" in words
    assert "failed: ValueError: no such sample" in of_bad
    assert of_after.startswith("task 4, one: failed (")
    assert "the last from task 3, broken, which failed" in of_after
    assert "2 of 4 tasks are done, 2 failed" in whole
    assert "the critical path is" in whole
    assert repr(words) == str(words)


def test_one_worker_cannot_do_less_than_the_work_whatever_cores_there_are() -> None:
    with wr.Session(engine="inline", workers=4) as session:
        session.gather([one(number) for number in range(20)])
    said = session.explain()
    took = re.search(r"with 1 worker; (.+) of work", said)
    least = re.search(r"as many workers is faster than (.+); the critical", said)
    assert took is not None
    assert least is not None
    assert took[1] == least[1]


def test_what_cannot_be_explained_is_said() -> None:
    with wr.Session(engine="inline") as session:
        assert session.explain(77) == "no task 77 is known to this session yet"
        with pytest.raises(UsageError, match="takes a future of this session, the number of a task"):
            session.explain("one")
        assert "0 of 0 tasks are done" in session.explain()


def test_what_was_released_is_counted_once_however_often_it_was_tried(tmp_path: Path) -> None:
    diary = tmp_path / "tried"

    @wr.task(outputs=3, on_failure="retry")
    def three() -> Any:
        yield 1
        time.sleep(0.02)
        yield 2
        if not diary.exists():
            diary.touch()
            raise OSError("once")
        yield 3

    with wr.Session(engine="threads", workers=1) as session:
        futures = three()
        assert session.gather(futures) == (1, 2, 3)
    words = re.search(r"released (\d+) outputs .* the first (-?)", session.explain(futures[0]))
    assert words is not None
    assert words.groups() == ("3", "")


def test_a_resource_that_was_lacking_is_named_before_and_after() -> None:
    go = threading.Event()

    @wr.task(resources={"licence": 1})
    def licensed() -> bool:
        return go.wait(120)

    with wr.Session(engine="threads", workers=3, resources={"licence": 1}) as session:
        first, second = licensed(), licensed()
        assert one(1).result() == 2  # it was called last, so the scheduler has seen the others
        waiting = session.explain(second)
        go.set()
        assert first.result()
        assert second.result()
        session.barrier()
        ended = session.explain(second)
    assert "waiting for licence" in waiting
    assert "waiting for licence" in ended
    assert "running" in ended


def test_a_retry_and_a_release_are_explained() -> None:
    tries: list[int] = []
    released, go, over = threading.Event(), threading.Event(), threading.Event()

    @wr.task(on_failure="retry")
    def flaky() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise OSError("try again")
        return 1

    @wr.task(outputs=2, name="early")
    def early() -> Any:
        yield 1
        go.wait(120)
        yield 2

    @wr.task
    def user(_: int) -> None:
        released.set()
        over.wait(120)

    with wr.Session(engine="threads", workers=2) as session:
        again = flaky()
        assert again.result() == 1
        first, second = early()
        using = user(first)
        assert released.wait(120)
        time.sleep(0.1)  # when it began is known from how long it took and from when its end was heard
        go.set()
        second.result()
        over.set()
        session.barrier()
        words, of_user, of_early = map(session.explain, (again, using, second))
        whole = session.explain()
    assert "failed: OSError: try again" in words
    assert "before task 2, early, had ended: 2.0 was released early" in of_user
    assert "released 2 outputs as they were made" in of_early
    assert "1 tasks began before one they read from had ended" in whole
