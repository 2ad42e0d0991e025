"""Short tasks in the queue of the worker that makes what they read: the same answers, whatever becomes of those before."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from windrow.core.commands import Launch
from windrow.errors import DependencyError
from windrow.tasks.driver import Driver

if TYPE_CHECKING:
    from pathlib import Path

engines = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
LINKS = 60


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """All launches, as the run is told of them."""
    found: list[Launch] = []
    see = Driver._observe

    def observe(self: Driver, events: Any, commands: Any, now: float) -> None:
        found.extend(one for one in commands if isinstance(one, Launch))
        see(self, events, commands, now)

    monkeypatch.setattr(Driver, "_observe", observe)
    return found


@wr.task
def add(a: int, b: int = 1) -> int:
    return a + b


@wr.task(inout="things")
def push(things: list[int], value: int) -> None:
    things.append(value)


@wr.task
def add_if(a: int, place: Path, wrong: str) -> int:
    """Add one; the first time something else."""
    if not place.exists():
        place.touch()
        if wrong == "raise":
            raise ValueError("the first time")
        if wrong == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    return a + 1


def warm(session: wr.Session) -> None:
    """How long a task takes is known from others of its name."""
    assert session.gather([add(number) for number in range(8)]) == list(range(1, 9))


def chain(first: Any, links: int = LINKS) -> Any:
    for _ in range(links):
        first = add(first)
    return first


@engines
def test_a_chain_is_done_in_one_queue(engine: str, launches: list[Launch]) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        warm(session)
        last = chain(0)
        middle = add(last, 5)
        assert last.result() == LINKS
        assert chain(middle).result() == 2 * LINKS + 5
    assert sum(one.ahead for one in launches) > LINKS // 4
    assert len({one.task.id for one in launches}) == 8 + 2 * LINKS + 1
    assert len(launches) < 9 + 2.5 * LINKS, "many were given back"


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_what_is_changed_over_and_over_is_changed_in_one_queue(engine: str, launches: list[Launch]) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        things: list[int] = []
        for number in range(4):
            push(things, number)
        session.barrier()
        for number in range(4, LINKS):
            push(things, number)
        assert session.gather(things) == list(range(LINKS))
    assert sum(one.ahead for one in launches) > LINKS // 8


@engines
def test_several_are_read_and_some_are_there_already(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        warm(session)
        a, b = 0, 1
        first: Any = add(0, 0)
        second: Any = add(0, 1)
        early = add(3, 4)
        early.result()
        for number in range(30):
            first, second = second, add(first, second)
            a, b = b, a + b
            if number % 7 == 0:
                second = add(second, early)
                b += 7
        assert second.result() == b


@engines
def test_what_reads_from_one_that_failed_fails_with_it(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        warm(session)
        before = chain(0, 20)
        wrong = add(before, "x")
        after = chain(wrong, 20)
        beside = chain(before, 5)
        with pytest.raises(DependencyError, match="unsupported operand"):
            after.result()
        assert beside.result() == 25
        with pytest.raises(TypeError, match="unsupported operand"):
            wrong.result()


@pytest.mark.parametrize(("engine", "wrong"), [("threads", "raise"), ("processes", "raise"), ("processes", "kill")])
def test_one_that_is_tried_again_takes_the_others_along(engine: str, wrong: str, tmp_path: Path) -> None:
    again = add_if.options(on_failure="retry", retries=1)
    (tmp_path / "known").touch()
    with wr.Session(engine=engine, workers=2) as session:
        warm(session)
        session.gather([again(number, tmp_path / "known", "") for number in range(8)])
        last = chain(0, 10)
        for number in range(3):
            last = chain(again(last, tmp_path / str(number), wrong), 10)
        assert last.result() == 43


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_cancelled_group_takes_along_what_is_queued_behind_it(engine: str) -> None:
    with wr.Session(engine=engine, workers=2) as session:
        warm(session)
        group = session.group("some")
        with group:
            some = chain(0, 200)
        after = chain(some, 20)
        group.cancel()
        session.barrier()
        # It may have been done before anybody could cancel it; the rest must fit.
        assert after.cancelled() == some.cancelled()
        if not some.cancelled():
            assert after.result() == 220
        assert chain(0, 5).result() == 5
