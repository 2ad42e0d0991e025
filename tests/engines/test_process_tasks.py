"""What a worker's process has of graphs: copies that came with launches, whatever becomes of those."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from windrow.engines.processes.messages import COMMON, INPUT
from windrow.engines.processes.transport import Arrival
from windrow.engines.processes.worker_tasks import TaskLaunches


class Odd:
    """Can be pickled, and not be made again."""

    def __reduce__(self) -> Any:
        return int, ("odd",)


def arrival(kind: int, tag: int, thing: Any) -> Arrival:
    pickled = pickle.dumps(thing)
    return Arrival(kind, tag, 0.0, len(pickled), len(pickled), (), memoryview(pickled))


def test_a_copy_that_came_with_a_launch_is_there_for_others_if_that_is_cancelled() -> None:
    launches = TaskLaunches(0, 0)
    assert launches.arrived(arrival(INPUT, 1, "good"))
    assert launches.arrived(arrival(INPUT, 2, Odd()))
    reads = [(7, "7.0", 1, None), (8, "8.0", 2, None), (9, "9.0", "small")]
    launches.cancelled(launches.read([5, 50, ("50.0",), (), reads, b"", False, ()]))
    assert not launches.waits(5)
    assert launches._values([(7, "7.0"), (9, "9.0", "small")]) == ("good", "small")
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            launches._values([(8, "8.0")])


def test_what_calls_have_in_common_is_unpacked_once_and_forgotten_when_told() -> None:
    launches = TaskLaunches(0, 0)
    launches.keep_common(arrival(COMMON, 3, ["thing"]))
    assert launches.common(3) is launches.common(3)
    launches.keep_common(arrival(COMMON, 4, Odd()))
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            launches.common(4)
    launches.forget_common(())
    with pytest.raises(KeyError):
        launches.common(3)
