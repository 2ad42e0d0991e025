"""A node of a cluster by itself, told what to do as by the driver: what becomes of launches that wait, and of who asks it for outputs."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from concurrent.futures import CancelledError
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fire.leftovers import wait_until
from node_work import LARGE, Work
from windrow.core.commands import Fetch, Launch, Recall
from windrow.core.events import Cancelled, CopyLost, Failed, Finished, Held, WorkerJoined, WorkerLost
from windrow.core.records import DRIVER, FailureKind, Handle, Life, Plan, Task

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'windrow[dask]'")

from windrow.engines.dask import node as nodes
from windrow.engines.dask.words import ALONG, Content, LaunchOrder, NotComing, Setup, TooLarge, Value
from windrow.engines.processes.startup import pack_workload
from windrow.engines.processes.transport import pack
from windrow.engines.supervisor import kept

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

FIRST, SECOND = Life(0, 0), Life(1, 0)
PLAN = Plan(id=0, category="data")
PRELOAD = ["windrow.engines.processes.worker", "node_work"]
ELSEWHERE = Handle("other", 77), Handle("another", 78)  #: outputs of other nodes
assert 8 * LARGE > ALONG


class Bench:
    """A node with two processes, and what it has said."""

    def __init__(self) -> None:
        place = str(Path.cwd()), sys.path
        setup = Setup(0, 2, PRELOAD, nodes.versions(), place)
        self.node = nodes.Node("run-0", setup, Content.of(pack_workload(Work()).arrive()))
        self.said: list[Any] = []
        self.values: dict[Handle, Any] = {}
        self._batches, self._numbers = count(), count(1)
        self._plan: Any = (0, PLAN)
        self.order()
        self.until(WorkerJoined)
        self.until(WorkerJoined)

    def order(self, *orders: Any) -> None:
        number = next(self._batches)
        self.node.hear(number, pickle.dumps(orders))
        report = self.node.report(number)
        assert report.broken == ""
        self.said += pickle.loads(report.said) if report.said else ()

    def until(self, kind: type) -> Any:
        """Wait for something to be said; what comes before it is passed over, but for values."""
        while True:
            while self.said:
                found = self.said.pop(0)
                if isinstance(found, Value):
                    self.values[found.handle] = found.value
                if isinstance(found, kind):
                    return found
            self.order()

    def launch(self, what: str, life: Life = FIRST, *inputs: Handle, bring: bool = True, **more: Any) -> int:
        attempt = next(self._numbers)
        task = Task(attempt, "calls", 1, what, makes=("out",))
        places = tuple(range(len(inputs))) if bring else ()
        launch = Launch(task, attempt, life, None, inputs=inputs, bring=places)  # type: ignore[arg-type] # as it travels
        asked = {"call": None, "common": {}, "along": {}, "awaited": ()} | more
        self.order(LaunchOrder(launch, self._plan, "", **asked))
        self._plan = 0
        return attempt

    def made(self) -> Handle:
        finished = self.until(Finished)
        return Handle("out", finished.attempt)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it report at once, also that nothing has happened."""
    monkeypatch.setattr(nodes, "PATIENCE_S", 0.02)


@pytest.fixture(scope="module", autouse=True)
def one_server() -> Iterator[None]:
    """Keep what makes processes from one test to the next, which takes most of a beginning."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "KEEPING", True)
        yield
    kept.stop_kept()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.node.end()


def content(value: Any) -> Content:
    return Content.of(pack(value).arrive())


def test_a_launch_waits_for_all_that_it_reads(bench: Bench) -> None:
    one, other = ELSEWHERE
    bench.launch("size", FIRST, one, other, awaited=((one, None), (other, None)))
    bench.order(Value(other, content(np.arange(7))))
    bench.order(Value(one, content(np.arange(LARGE))))
    assert bench.values[bench.made()] == LARGE + 7


def test_who_waits_for_what_does_not_come_is_told_and_has_got_nothing(bench: Bench) -> None:
    """Nor what had come for it: its process has not heard of the launch."""
    one, other = ELSEWHERE
    attempt = bench.launch("size", FIRST, one, other, awaited=((one, None), (other, None)))
    bench.order(Value(one, content(np.arange(7))), NotComing(other))
    assert [bench.until(CopyLost) for _ in range(2)] == [CopyLost(one, FIRST), CopyLost(other, FIRST)]
    failed = bench.until(Failed)
    assert (failed.attempt, failed.failure.kind) == (attempt, FailureKind.LOST)
    bench.launch("size", FIRST, one, along={one: content(np.arange(7))})
    assert bench.values[bench.made()] == 7


def test_a_launch_that_waits_is_given_back(bench: Bench) -> None:
    one, _ = ELSEWHERE
    attempt = bench.launch("size", FIRST, one, awaited=((one, None),))
    bench.order(Recall(attempt, FIRST))
    assert bench.until(CopyLost) == CopyLost(one, FIRST)
    assert bench.until(Cancelled) == Cancelled(attempt, FIRST)


def test_launches_behind_one_that_waits_keep_their_turn(bench: Bench) -> None:
    one, _ = ELSEWHERE
    first = bench.launch("size", FIRST, one, awaited=((one, None),))
    second = bench.launch("size", FIRST)
    bench.order(Value(one, content(np.arange(7))))
    assert [bench.until(Finished).attempt for _ in range(2)] == [first, second]


def test_what_one_process_made_another_reads(bench: Bench) -> None:
    bench.launch("make")
    made = bench.made()
    bench.launch("size", SECOND, made, awaited=((made, FIRST),))
    assert bench.values[bench.made()] == LARGE


def test_who_asks_for_what_is_on_its_way_gets_it_when_it_comes(bench: Bench) -> None:
    """The driver takes a process for a holder from the launch on that brings it something."""
    one, _ = ELSEWHERE
    bench.launch("size", FIRST, one, awaited=((one, None),))
    asked = bench.node.ask_for(one, FIRST)
    bench.order(Fetch(one, FIRST, DRIVER, False))
    bench.order(Value(one, content(np.arange(LARGE))))
    assert bench.until(TooLarge).handle == one
    assert asked.result(60).open().size == LARGE
    bench.until(Finished)


def test_who_asks_for_what_does_not_come_is_told(bench: Bench) -> None:
    one, _ = ELSEWHERE
    bench.launch("size", FIRST, one, awaited=((one, None),))
    asked = bench.node.ask_for(one, FIRST)
    bench.order(NotComing(one))
    bench.until(Failed)
    with pytest.raises(LookupError):
        asked.result(60)
    with pytest.raises(LookupError):  # nor is it asked of a process that has not got it
        bench.node.ask_for(one, FIRST).result(60)


def test_who_asks_a_process_that_has_died_is_told(bench: Bench) -> None:
    bench.launch("make")
    made = bench.made()
    bench.launch("die")
    assert bench.until(WorkerLost).life == FIRST
    with pytest.raises(LookupError):
        bench.node.ask_for(made, FIRST).result(60)
    attempt = bench.launch("size", SECOND, made, awaited=((made, FIRST),))
    assert bench.until(CopyLost) == CopyLost(made, SECOND)
    assert bench.until(Failed).attempt == attempt


def test_who_waits_for_a_process_that_dies_is_told(bench: Bench) -> None:
    bench.launch("pid")
    pid = bench.values[bench.made()]
    bench.launch("make")
    made = bench.made()
    os.kill(pid, signal.SIGSTOP)  # it does not answer, and is ended for that
    asked = bench.node.ask_for(made, FIRST)
    attempt = bench.launch("size", SECOND, made, awaited=((made, FIRST),))
    assert bench.until(WorkerLost).life == FIRST
    assert bench.until(CopyLost) == CopyLost(made, SECOND)
    assert bench.until(Failed).attempt == attempt
    with pytest.raises(LookupError):
        asked.result(60)


def test_batches_are_obeyed_in_order(bench: Bench) -> None:
    one, _ = ELSEWHERE
    attempt = bench.launch("size", FIRST, one, awaited=((one, None),))
    number = next(bench._batches)
    bench.node.hear(number + 1, pickle.dumps([Value(one, content(np.arange(7)))]))
    bench.node.hear(number, pickle.dumps([Recall(attempt, FIRST)]))
    next(bench._batches)
    assert bench.until(Cancelled).attempt == attempt


def test_an_end_leaves_nobody_waiting(bench: Bench) -> None:
    one, _ = ELSEWHERE
    bench.launch("size", FIRST, one, awaited=((one, None),))
    asked = bench.node.ask_for(one, FIRST)
    bench.node.end()
    with pytest.raises(CancelledError):
        asked.result(60)


def test_a_node_that_hears_nothing_ends_by_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nodes._nodes, "run-0", bench.node)
    monkeypatch.setattr(nodes, "SILENCE_S", 0.2)
    bench.node.take_in(ELSEWHERE[0], content(1).arrive())  # wakes it
    wait_until(lambda: "run-0" not in nodes._nodes, "it has ended")
    assert nodes.exchange("run-0", 7, b"").broken == nodes.FORGOTTEN


def test_a_node_that_is_begun_again_ends_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "secede", lambda: None)
    monkeypatch.setattr(nodes, "get_worker", lambda: None)
    setup = Setup(0, 1, PRELOAD, nodes.versions(), (str(Path.cwd()), sys.path))
    workload = Content.of(pack_workload(Work()).arrive())
    try:
        for run in ("mine-0", "other-0", "mine-1"):
            assert nodes.exchange(run, 0, pickle.dumps([]), setup, workload).broken == ""
        assert set(nodes._nodes) == {"mine-1", "other-0"}
        assert nodes.exchange("mine-0", 1, pickle.dumps([])).broken == nodes.FORGOTTEN
    finally:
        for run in ("mine-0", "other-0", "mine-1"):
            nodes.end(run)
    assert nodes._nodes == {}
    assert not any(thread.name.startswith("windrow-node") for thread in threading.enumerate())


def test_a_node_whose_processes_cannot_begin_says_why() -> None:
    setup = Setup(0, 1, PRELOAD, nodes.versions(), (str(Path.cwd()), sys.path))
    node = nodes.Node("broken-0", setup, content(CannotBeMade()))
    node.hear(0, pickle.dumps([]))
    wait_until(lambda: bool(node.report(0).broken), "it has told")
    broken = node.report(0).broken
    node.end()
    assert "no worker process could begin" in broken
    assert "not here" in broken


class CannotBeMade:
    def __reduce__(self) -> Any:
        return _raise, ()


def _raise() -> None:
    raise ValueError("not here")


def test_an_output_that_nobody_has_is_no_use() -> None:
    with pytest.raises(LookupError, match="nobody has 'other'"):
        nodes.take_in("run-0", ELSEWHERE[0], None)


def test_the_driver_is_told_of_an_output_that_it_asked_for(bench: Bench) -> None:
    bench.launch("pid")
    made = bench.made()
    bench.order(Fetch(made, FIRST, DRIVER, False))
    assert bench.until(Held).handle == made
    assert isinstance(bench.values[made], int)
