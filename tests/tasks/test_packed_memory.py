"""Memory that calls wait in is bounded, however many are made at a time and whatever their functions capture."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windrow as wr

MB = 1 << 20

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")


def shared_bytes() -> int:
    """Bytes of memory files that this process has open."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        try:
            if "memfd:windrow " in str(file.readlink()):
                found += file.stat().st_size
        except OSError:  # closed meanwhile
            continue
    return found


def summing(array: np.ndarray[Any, Any]) -> Any:
    """A fresh function for each call, with what it captures."""
    return lambda: float(array.sum())


@pytest.mark.parametrize("captured", [True, False])
def test_calls_that_take_much_memory_along_wait_for_others_to_end(
    captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.tasks.pack.MOST_WAITING", 64 * MB)
    monkeypatch.setattr("windrow.tasks.pack.MOST_BYTES", 32 * MB)
    most, futures = 0, []
    with wr.Session(engine="processes", workers=2) as session:
        for number in range(24):
            array = np.full(16 * MB // 8, float(number))
            call = session.submit(summing(array)) if captured else session.submit(np.sum, array)
            futures.append(call)
            most = max(most, shared_bytes())
        assert [future.result() for future in futures] == [number * 2.0 * MB for number in range(24)]
    # Those that wait, the one beyond, and functions that are remembered; 24 of them would be 384 MB.
    assert most <= (64 + 16 + 32 + 16) * MB + MB


def test_one_who_waits_for_room_does_not_hold_up_callbacks_that_need_the_same_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a callback, which runs in the session's thread, has to wait for is not waited for."""
    monkeypatch.setattr("windrow.tasks.pack.MOST_WAITING", 1 * MB)
    monkeypatch.setattr("windrow.tasks.driver.HELD_UP_S", 0.3)
    array = np.ones(2 * MB // 8)
    more: list[Any] = []
    done = threading.Event()
    with wr.Executor(max_workers=1) as executor:

        def again(_: Any) -> None:
            more.append(executor.submit(np.sum, array))
            done.set()

        first = executor.submit(np.sum, array)
        first.add_done_callback(again)
        others = [executor.submit(np.sum, array) for _ in range(3)]
        assert [one.result() for one in (first, *others)] == [2 * MB / 8] * 4
        assert done.wait(60)
        assert more[0].result() == 2 * MB / 8


def test_what_is_sent_is_let_go_when_calls_have_ended() -> None:
    with wr.Session(engine="processes", workers=1) as session:
        before = shared_bytes()
        array = np.ones(4 * MB // 8)
        assert session.submit(np.sum, array).result() == 4 * MB / 8
        assert shared_bytes() - before < MB
