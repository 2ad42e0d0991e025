"""Graphs of 2,000 tasks in real processes while everything goes wrong: the values are those of a quiet run, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from fire.leftovers import Killer, Scene, nothing_left, send, server_of, wait_until, workers_of
from fire.task_graphs import BAD, LAYERS, PACE, WIDTH, called, plainly
from searching import few_by_day
from windrow.errors import DependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).resolve().parents[1]

right = cache(plainly)


@pytest.fixture(autouse=True)
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Look at what is left after each test; end a test that does not end."""
    with wr.Session(engine="inline") as session:  # imports, and files that stay open
        session.submit(len, ()).result(120)
    with nothing_left(tmp_path, monkeypatch) as before:
        yield before


def ended(futures: list[list[Any]]) -> list[list[Any]]:
    """Wait for all: values, or the errors."""
    return [[one.exception() or one.result() for one in layer] for layer in futures]


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and bool(np.array_equal(found, expected))
    return type(found) is type(expected) and bool(found == expected)


def check_whole(found: list[list[Any]]) -> None:
    """Every task has the value of the sequential program."""
    wrong = [
        (layer, place)
        for layer in range(LAYERS)
        for place in range(WIDTH)
        if not same(found[layer][place], right()[layer][place])
    ]
    assert wrong == []


def check_without_bad(found: list[list[Any]], reason: str) -> None:
    """Tasks with trouble failed for this reason, those that need them say whom they need, all others are right."""
    expected = right(left_out=True)
    for layer in range(LAYERS):
        for place in range(WIDTH):
            value = found[layer][place]
            if expected[layer][place] is not None:
                assert same(value, expected[layer][place]), (layer, place, value)
            elif (layer, place) in BAD and not isinstance(value, DependencyError):
                assert reason in str(value)
            else:
                assert isinstance(value, DependencyError), (layer, place, value)
                assert "'step'" in str(value)
                assert "which failed" in str(value)
    assert not isinstance(found[3][17], DependencyError)  # nothing before it is bad


# -- workers that are ended from outside -------------------------------------------------------------


class Acting(Killer):
    """Does something else to the workers of this process again and again, until the graph is done."""

    def __init__(self, act: Callable[[int, list[int]], int], every_s: float) -> None:
        super().__init__(seed=0, every_s=every_s)
        self._act = act

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            server = server_of(os.getpid())
            workers = workers_of(os.getpid())
            if server is not None and len(workers) > 1:
                self.hits += self._act(server, workers)


def kill_all(server: int, workers: list[int]) -> int:
    return sum(send(one, server, signal.SIGKILL) for one in workers)


def stop_and_go_on(server: int, workers: list[int]) -> int:
    hit = send(workers[0], server, signal.SIGSTOP)
    time.sleep(0.3)
    send(workers[0], server, signal.SIGCONT)
    return hit


def under(actor: Any) -> int:
    with wr.Session(engine="processes", workers=3) as session:
        with actor:
            found = ended(called(session, pace=PACE))
        check_whole(found)
    hits: int = actor.hits
    return hits


@pytest.mark.slow
def test_workers_are_killed_while_tasks_run() -> None:
    assert under(Killer(seed=1, every_s=0.3)) >= 3


def test_all_workers_are_killed_at_once() -> None:
    assert under(Acting(kill_all, every_s=0.8)) >= 2


@pytest.mark.slow
def test_a_worker_is_stopped_and_goes_on() -> None:
    assert under(Acting(stop_and_go_on, every_s=0.5)) >= 1


@pytest.mark.fire
@pytest.mark.parametrize("seed", range(20))
def test_workers_are_killed_while_tasks_run_in_many_ways(seed: int) -> None:
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP)
    assert under(Killer(seed, signals, every_s=0.25)) >= 3


@pytest.mark.fire
@pytest.mark.parametrize("seed", range(5))
def test_workers_and_their_server_are_hit_while_tasks_run(seed: int) -> None:
    assert under(Killer(seed, every_s=0.3, servers=0.2)) >= 3


@pytest.mark.fire
@pytest.mark.parametrize("every_s", [0.3, 0.5, 1.0])
def test_all_workers_are_killed_at_once_again_and_again(every_s: float) -> None:
    assert under(Acting(kill_all, every_s)) >= 2


# -- tasks that end their worker, or would -----------------------------------------------------------

TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "exits": ({}, "exited with code 3"),
    "hogs": ({"memory": "300MB"}, "memory"),
    "raises": ({}, "is bad"),
}


@pytest.mark.parametrize("trouble", few_by_day(["exits", "hogs", "raises"], 2))
def test_what_ends_its_worker_is_named_and_the_rest_is_right(trouble: str) -> None:
    options, reason = TROUBLES[trouble]
    with wr.Session(engine="processes", workers=2) as session:
        check_without_bad(ended(called(session, trouble, **options)), reason)


@pytest.mark.slow
def test_tasks_may_end_their_worker_once(tmp_path: Path) -> None:
    where = tmp_path / "once"
    where.mkdir()
    with wr.Session(engine="processes", workers=2) as session:
        check_whole(ended(called(session, "exits once", where=str(where))))
    assert len(list(where.iterdir())) == len(BAD)


@pytest.mark.fire
@pytest.mark.parametrize("seed", range(5))
def test_tasks_end_their_worker_while_others_are_killed(seed: int) -> None:
    with wr.Session(engine="processes", workers=3) as session:
        with Killer(seed, every_s=0.4):
            found = ended(called(session, "raises", pace=PACE))
        check_without_bad(found, "is bad")


# -- the driver --------------------------------------------------------------------------------------

DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
import windrow as wr
from fire.task_graphs import called
try:
    with wr.Session(engine="processes", workers=2) as session:
        layers = called(session, pace=0.005)
        layers[2][0].result()
        print("begun", flush=True)
        layers[-1][-1].result()
        print("not interrupted", flush=True)
except KeyboardInterrupt:
    them = [one for layer in layers for one in layer]
    assert all(one.done() for one in them)
    print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_driver_is_ended_in_the_middle(number: int, scene: Scene) -> None:
    """After Ctrl-C every task has ended, one way or another; after SIGKILL nobody can say, but nothing runs on."""
    command = [sys.executable, "-c", DRIVER, str(TESTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            said, complaint = process.communicate(timeout=60)
        finally:
            process.kill()
    if number == signal.SIGINT:
        assert (said, complaint, process.returncode) == ("interrupted\n", "", 0)
    else:
        assert (said, process.returncode) == ("", -signal.SIGKILL)
    wait_until(lambda: not scene.marked(), "all processes of an ended driver are gone")


def test_the_comparison_is_not_blind() -> None:
    expected = right()
    with pytest.raises(AssertionError):
        check_whole([[*expected[0][:-1], 1], *expected[1:]])
    with pytest.raises(AssertionError):
        check_without_bad(expected, "is bad")
    assert sum(value is None for layer in right(left_out=True) for value in layer) > len(BAD)
