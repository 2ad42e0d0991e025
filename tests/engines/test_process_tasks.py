"""What a worker's process keeps for launches: copies that came with them, whatever becomes of those."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from windrow.core.records import Life
from windrow.engines.processes.messages import COMMON, INPUT, LaunchMessage
from windrow.engines.processes.transport import Arrival
from windrow.engines.processes.worker_tasks import WorkerTasks


class Odd:
    """Can be pickled, and not be made again."""

    def __reduce__(self) -> Any:
        return int, ("odd",)


def arrival(kind: int, tag: int, thing: Any) -> Arrival:
    pickled = pickle.dumps(thing)
    return Arrival(kind, tag, 0.0, len(pickled), len(pickled), (), memoryview(pickled), [])


def test_a_copy_that_came_with_a_launch_is_there_for_others_if_that_is_cancelled() -> None:
    tasks = WorkerTasks(Life(0, 0))
    assert tasks.arrived(arrival(INPUT, 1, "good"))
    assert tasks.arrived(arrival(INPUT, 2, Odd()))
    inputs = (("7.0", 7), ("8.0", 8), ("9.0", 9))
    fields = (5, 50, "", 1, None, ("50.0",), 0, (), inputs, {2: "small"}, {0: 1, 1: 2}, b"", False, False, ())
    message = tasks.read(tuple(LaunchMessage(*fields)))
    assert tasks.waits(5)
    tasks.call_off(message)
    assert not tasks.waits(5)
    assert (tasks.get(("7.0", 7)), tasks.get(("9.0", 9))) == ("good", "small")
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            tasks.get(("8.0", 8))
    tasks.forget([("7.0", 7), ("never", 1)])
    with pytest.raises(KeyError):
        tasks.get(("7.0", 7))


def test_what_calls_have_in_common_is_unpacked_once_and_forgotten_when_told() -> None:
    tasks = WorkerTasks(Life(0, 0))
    tasks.keep_common(arrival(COMMON, 3, ["thing"]))
    assert tasks.common(3) is tasks.common(3)
    tasks.keep_common(arrival(COMMON, 4, Odd()))
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            tasks.common(4)
    tasks.forget_common()
    with pytest.raises(KeyError):
        tasks.common(3)
