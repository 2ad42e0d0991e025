"""Futures make what waiting takes when somebody looks, and sessions leave the collector as they found it."""

from __future__ import annotations

import concurrent.futures
import gc
import threading

import pytest

import windrow as wr
from windrow.run import garbage as collecting
from windrow.run.garbage import DEFAULTS, MOST_ENDED, OF_A_CALL, OF_AN_END, YOUNG, CallsSeen, collecting_less


def one_more(number: int) -> int:
    return number + 1


def test_a_future_nobody_waits_for_has_no_condition() -> None:
    with wr.Session(engine="threads", workers=1) as session:
        futures = [session.submit(one_more, number) for number in range(20)]
        session.barrier()
        assert [one.result() for one in futures] == list(range(1, 21))
        assert all(one._own_condition is None for one in futures)
        assert concurrent.futures.wait(futures).not_done == set()
        assert {one.result() for one in concurrent.futures.as_completed(futures)} == set(range(1, 21))
        assert all(one.done() and not one.cancelled() for one in futures)


def test_whoever_looks_early_is_told() -> None:
    go = threading.Event()
    told: list[int] = []
    with wr.Session(engine="threads", workers=1) as session:
        first = session.submit(go.wait)
        waited, called, cancelled = (session.submit(one_more, number) for number in range(3))
        called.add_done_callback(lambda one: told.append(one.result()))
        assert cancelled.cancel()
        with pytest.raises(concurrent.futures.TimeoutError):
            waited.result(0.01)
        threading.Timer(0.05, go.set).start()
        assert concurrent.futures.wait([first, waited, called], 30).not_done == set()
        assert waited.result() == 1
        session.barrier()
    assert told == [2]
    assert cancelled.cancelled()


def test_many_threads_wait_for_the_same() -> None:
    with wr.Session(engine="threads", workers=2) as session:
        for _ in range(50):
            future = session.submit(one_more, 1)
            found: list[int] = []

            def ask(one: concurrent.futures.Future[int] = future, to: list[int] = found) -> None:
                to.append(one.result(120))

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert found == [2] * 4


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_the_second_call_is_as_the_first(engine: str) -> None:
    """Of a task that is known the way is shorter."""

    @wr.task
    def joined(*things: object, **named: object) -> list[object]:
        return [*things, *sorted(named.items())]

    with wr.Session(engine=engine, workers=1) as session:
        calls = [joined(1, a=2), joined(1, a=2), joined(joined(1), b=[joined(2)]), joined(1, a=2)]
        assert session.gather(calls) == [[1, ("a", 2)], [1, ("a", 2)], [[1], ("b", [[2]])], [1, ("a", 2)]]


def test_the_collector_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_found", [])  # others may have left a session open
    before = gc.get_threshold()
    try:
        gc.set_threshold(*DEFAULTS[0])
        with collecting_less():
            assert gc.get_threshold() == (YOUNG, 10, 10)
            with collecting_less():
                assert gc.get_threshold() == (YOUNG, 10, 10)
            assert gc.get_threshold() == (YOUNG, 10, 10)
            looks = [3]
            monkeypatch.setattr(gc, "get_stats", lambda: [{"collections": looks[-1]}])
            seen = CallsSeen()
            for waiting, ended, more in (
                (1000, 10, 1000 * OF_A_CALL),
                (0, 510, 500 * OF_AN_END),
                (7, 10**6, 7 * OF_A_CALL + MOST_ENDED * OF_AN_END),
            ):
                seen.leave_calls(waiting, ended)
                assert gc.get_threshold() == (YOUNG + more, 10, 10)
            looks.append(4)  # it has looked: what had ended before does not count any more
            seen.leave_calls(0, 10**6)
            assert gc.get_threshold() == (YOUNG, 10, 10)
        assert gc.get_threshold() == DEFAULTS[0]
        gc.set_threshold(500, 5, 5)
        with collecting_less():
            CallsSeen().leave_calls(1000, 0)
            assert gc.get_threshold() == (500, 5, 5)
        assert gc.get_threshold() == (500, 5, 5)
        gc.set_threshold(*DEFAULTS[0])
        with collecting_less():
            gc.set_threshold(333, 3, 3)  # somebody else decides
        assert gc.get_threshold() == (333, 3, 3)
    finally:
        gc.set_threshold(*before)
