"""Runs in the background: results while they go on, and how they are ended."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from hist import Hist

import windrow as wr
from windrow.blocks.pilot import FIRST_ROWS, MORE_ROWS, MOST_ROWS
from windrow.core.records import Failure, FailureKind
from windrow.errors import DataError, EngineError, SpecError, UsageError
from windrow.pipeline.run import run as running
from windrow.pipeline.run.background import outcome_so_far
from windrow.pipeline.run.engine_choice import EngineChoice
from windrow.run import loop

TRIED = FIRST_ROWS + MORE_ROWS + 2 * MOST_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def an_analysis() -> wr.Pipeline:
    analysis = wr.Pipeline("live")

    @analysis.cut
    def even(x: Any) -> Any:
        return x % 2 == 0

    @analysis.output(region=None)
    def everything(x: Any) -> int:
        return len(x)

    @analysis.output
    def xs(x: Any) -> Any:
        return Hist.new.Reg(10, 0, 1000).Double().fill(x)

    return analysis


class Producer:
    """Batches of numbered rows that come when the test says so."""

    waiting: ClassVar[list[Producer]] = []  #: for a word; nobody can break into an iterator

    def __init__(self, size: int = 10) -> None:
        self.waiting.append(self)
        self.size = size
        self.given = 0
        self.ended = threading.Event()
        self._allowed = threading.Semaphore(0)
        self._last = False

    def allow(self, batches: int) -> None:
        self._allowed.release(batches)

    def end(self) -> None:
        self._last = True
        self._allowed.release()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            while self._allowed.acquire() and not self._last:
                start = self.given * self.size
                self.given += 1
                yield {"x": np.arange(start, start + self.size)}
        finally:
            self.ended.set()


def until(live: Any, rows: int) -> None:
    while live.rows < rows and live.running:
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def producers_end(no_thread_stays: None) -> Iterator[None]:
    yield
    while Producer.waiting:
        Producer.waiting.pop().end()


def is_consistent(result: wr.Result) -> None:
    """Outputs, cutflow and ledger are of the same rows."""
    done = result.ledger.done
    assert result["everything"] == done
    (table,) = [result.cutflow[name] for name in result.cutflow]
    assert table.executed[0].passed == done
    assert table.executed[-1].passed == result["xs"].sum(flow=True) == done // 2


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_results_can_be_read_while_it_runs(engine: str) -> None:
    producer = Producer()
    live = an_analysis().start(wr.data.stream(producer), engine=engine, workers=2)
    empty = live.result()
    assert (live.running, live.rows, empty.ledger.total) == (True, 0, 0)
    producer.allow(3)
    until(live, 30)
    first = live.result()
    is_consistent(first)
    assert first.ledger.done == 30
    assert first.complete
    producer.allow(5)
    until(live, 80)
    second = live.result()
    is_consistent(second)
    assert (first["everything"], second["everything"]) == (30, 80)
    assert "running, 80 rows done" in repr(live)
    producer.end()
    assert live.wait()
    last = live.result()
    assert not live.running
    assert last is live.result() is live.stop()
    assert last["everything"] == live.rows == 80
    assert "ended, 80 rows done" in repr(live)


def test_a_result_is_nobody_elses() -> None:
    producer = Producer()
    with an_analysis().start(wr.data.stream(producer), workers=2) as live:
        producer.allow(4)
        until(live, 40)
        first = live.result()
        first["xs"].reset()
        producer.allow(1)
        until(live, 50)
        assert live.result()["xs"].sum() == 25
        assert first["xs"].sum() == 0


def test_a_merge_that_changes_what_it_is_given_is_no_danger() -> None:
    analysis = wr.Pipeline("in place")

    def extend(left: list[int], right: list[int]) -> list[int]:
        left.extend(right)
        return left

    @analysis.output(merge=extend)
    def rows(x: Any) -> list[int]:
        return [int(value) for value in x]

    producer = Producer(size=1)
    with analysis.start(wr.data.stream(producer), workers=2) as live:
        for number in range(1, 20):
            producer.allow(1)
            until(live, number)
            assert live.result()["rows"] == list(range(number))
        assert live.stop()["rows"] == list(range(19))


def test_every_result_is_consistent_whoever_asks() -> None:
    batches = ({"x": np.arange(10)} for _ in range(600))
    live = an_analysis().start(wr.data.stream(batches, batch=4), workers=2)
    seen: list[wr.Result] = []

    def ask() -> None:
        while live.running:
            seen.append(live.result())

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    live.wait()
    for thread in threads:
        thread.join()
    for result in [*seen, live.result()]:
        if result.ledger.done:
            is_consistent(result)
    assert live.result().ledger.done == 6000


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_stop_does_not_wait_for_the_producer(engine: str) -> None:
    producer = Producer()
    live = an_analysis().start(wr.data.stream(producer, batch=7), engine=engine, workers=2)
    producer.allow(2)
    until(live, 14)
    result = live.stop()  # nobody lets the producer go on
    assert not live.running
    assert not producer.ended.is_set()
    assert result["everything"] == 20  # the unit that was not full counts too
    assert result.complete
    assert not result.interrupted
    producer.allow(1)  # what it gives now is nobody's, and it is closed
    assert producer.ended.wait(120)
    assert live.result()["everything"] == 20


def test_leaving_the_context_stops_it() -> None:
    producer = Producer()
    with an_analysis().start(wr.data.stream(producer), workers=2) as live:
        producer.allow(1)
        until(live, 10)
        assert not live.wait(0.01)
    assert not live.running
    assert live.result()["everything"] == 10
    producer = Producer()
    with pytest.raises(ZeroDivisionError), an_analysis().start(wr.data.stream(producer), workers=2) as live:
        raise ZeroDivisionError
    assert not live.running


def test_a_failure_is_raised_where_it_is_waited_for_and_what_was_done_stays() -> None:
    def produce() -> Iterator[dict[str, Any]]:
        yield {"x": np.arange(10)}
        raise OSError("the cable is out")

    live = an_analysis().start(wr.data.stream(produce()), workers=2)
    while live.running:
        time.sleep(0.001)
    for wait in (live.wait, live.stop, lambda: live.__exit__(None, None, None)):
        with pytest.raises(DataError, match="the cable is out"):
            wait()
    assert live.result()["everything"] == 10
    assert any("the cable is out" in note for note in live.result().notes)
    assert "failed" in repr(live)


def test_what_is_wrong_from_the_beginning_is_said_at_once() -> None:
    with pytest.raises(TypeError, match="unexpected"):
        an_analysis().start({"x": np.arange(3)}, wrokers=2)
    with pytest.raises(UsageError, match="engine="):
        an_analysis().start({"x": np.arange(3)}, engine="thread")
    with pytest.raises(SpecError):
        an_analysis().start(3)
    live = an_analysis().start({"y": np.arange(3)})
    with pytest.raises(DataError, match="'x'"):
        live.wait()
    with pytest.raises(DataError, match="'x'"):
        live.result()


def test_a_run_cannot_ask_itself() -> None:
    asked: list[BaseException] = []
    lives: list[Any] = []
    started = threading.Event()

    def progress(shot: Any) -> None:
        started.wait(120)
        with pytest.raises(UsageError, match="cannot be asked") as info:
            lives[0].result()
        asked.append(info.value)

    lives.append(an_analysis().start({"x": np.arange(4)}, progress=progress))
    started.set()
    lives[0].wait()
    assert asked


def wait_at_half(
    analysis: wr.Pipeline, entered: threading.Event, leave: threading.Event, when: Callable[[], bool] = lambda: True
) -> None:
    """Let the second half of the rows wait until somebody says so."""

    @analysis.column
    def slow(x: Any) -> Any:
        if x[0] >= 500 and when():
            entered.set()
            leave.wait(120)
        return x

    @analysis.output
    def sums(slow: Any) -> int:
        return int(slow.sum())


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_other_data_can_be_watched_and_stopped_too(engine: str) -> None:
    analysis = an_analysis()
    entered, leave = threading.Event(), threading.Event()

    wait_at_half(analysis, entered, leave)
    data = wr.data.open({"x": np.arange(1000)}, grid=100)
    live = analysis.start(data, engine=engine, workers=1, chunk=100)
    assert entered.wait(120)
    if engine == "threads":
        so_far = live.result()
        assert so_far["everything"] == so_far.ledger.done
        assert so_far.ledger.total == 1000
        assert not so_far.complete
    live._inbox.stop()
    while engine == "threads" and not live._inbox._told:  # inline, the run itself stands still
        time.sleep(0.001)
    leave.set()
    result = live.stop()
    assert result["everything"] == result.ledger.done < 1000
    assert result.interrupted
    assert result.exit_code == 2
    assert analysis.run(data, engine=engine)["everything"] == 1000


def test_started_and_left_alone_it_is_the_same_as_run() -> None:
    data = {"x": np.arange(3000)}
    live = an_analysis().start(wr.data.open(data, grid=100), workers=2, seed=3)
    live.wait()
    result, expected = live.result(), an_analysis().run(wr.data.open(data, grid=100), seed=3)
    assert result["xs"] == expected["xs"]
    assert result.complete
    assert result.seed == 3
    is_consistent(result)


def test_a_run_that_is_repeated_in_threads_is_watched_and_stopped_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where results cannot leave a process, a second loop does it all again; it has the same inbox."""
    loops: list[Any] = []
    between: list[Any] = []
    entered, leave = threading.Event(), threading.Event()

    def one_loop(*args: Any, **options: Any) -> Any:
        loops.append(options["inbox"])
        outcome = loop.run(*args, **options)
        if len(loops) > 1:
            return outcome
        between.append(options["inbox"].ask())
        error = EngineError("it cannot be sent")
        failure = Failure(FailureKind.INTERNAL, "EngineError", "it cannot be sent", "", error)
        return replace(outcome, status="failed", failure=failure)

    monkeypatch.setattr(running, "run_loop", one_loop)
    monkeypatch.setattr(EngineChoice, "switched", property(lambda _: len(loops) == 1))
    analysis = an_analysis()

    wait_at_half(analysis, entered, leave, lambda: len(loops) > 1)
    data = wr.data.open({"x": np.arange(1000)}, grid=100)
    live = analysis.start(data, engine="threads", workers=1, chunk=100)
    try:
        assert entered.wait(120)
        for question in (between[0], live._inbox.ask()):
            so_far = question.result(120)
            assert so_far is not None
            assert so_far["everything"] == so_far.ledger.done < 1000
        live._inbox.stop()
        while not live._inbox._told:
            time.sleep(0.001)
    finally:
        leave.set()
    result = live.stop()
    assert len(loops) == 2
    assert result.interrupted
    assert any("threads after all" in line for line in result.decisions)


def test_the_cutflow_of_a_result_on_the_way_can_be_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the price of the written order."""

    def one_loop(scheduler: Any, *args: Any, collector: Any, **options: Any) -> Any:
        loop.run(scheduler, *args, collector=collector, **options)
        return outcome_so_far(scheduler, scheduler.feeder, collector)  # of what a result on the way is made

    monkeypatch.setattr(running, "run_loop", one_loop)
    asked = {"a": 0, "b": 0}
    analysis = wr.Pipeline("complete on the way")

    @analysis.cut
    def a(x: Any) -> Any:
        asked["a"] += len(x)
        return x % 2 == 0

    @analysis.cut
    def b(x: Any) -> Any:
        asked["b"] += len(x)
        return x % 3 == 0

    @analysis.output
    def rows(x: Any) -> int:
        return len(x)

    source = wr.data.open({"x": np.arange(600)}, grid=100)
    analysis.check(source)
    result = analysis.run(source, order=["b", "a"], engine="inline", chunk=100)
    asked.update(a=0, b=0)
    written = result.cutflow.complete()["all"].written
    assert written is not None
    assert [line.passed for line in written] == [600, 300, 100]
    assert 600 <= asked["a"] <= 600 + TRIED  # steps of which nothing is known are tried on a few rows
    assert 300 <= asked["b"] <= 300 + TRIED
