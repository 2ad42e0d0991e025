"""What a worker's process keeps for launches: copies that came with them, whatever becomes of those."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from windrow.engines.processes import messages
from windrow.engines.processes.transport import Link, pack
from windrow.engines.processes.worker import ProcessWorker

if TYPE_CHECKING:
    from collections.abc import Iterator


class Odd:
    """Can be pickled, and not be made again."""

    def __reduce__(self) -> Any:
        return int, ("odd",)


@pytest.fixture
def ends() -> Iterator[tuple[Link, ProcessWorker]]:
    """The driver's end of a link, and the worker at the other one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Link(ours), ProcessWorker(Link(theirs))


def test_a_copy_that_came_with_a_launch_is_there_for_others_if_that_is_cancelled(
    ends: tuple[Link, ProcessWorker],
) -> None:
    driver, worker = ends
    driver.send(pack("good", messages.INPUT, 1))
    driver.send(pack(Odd(), messages.INPUT, 2))
    inputs = (("7.0", 7), ("8.0", 8), ("9.0", 9))
    fields = (5, 50, "", 1, None, ("50.0",), 0, (), inputs, {2: "small"}, {0: 1, 1: 2}, b"", False, False, ())
    driver.send(pack(([], [tuple(messages.LaunchMessage(*fields))]), messages.COMMANDS))
    worker._read()
    assert worker._waiting == {5}
    worker._call_off(worker._inbox.popleft())
    assert not worker._waiting
    assert (worker.give_output(("7.0", 7)), worker.give_output(("9.0", 9))) == ("good", "small")
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            worker.give_output(("8.0", 8))
    driver.send(pack(([("7.0", 7), ("never", 1)], []), messages.COMMANDS))
    worker._read()
    with pytest.raises(KeyError):
        worker.give_output(("7.0", 7))


def test_what_calls_have_in_common_is_unpacked_once_and_forgotten_when_told(ends: tuple[Link, ProcessWorker]) -> None:
    driver, worker = ends
    driver.send(pack(["thing"], messages.COMMON, 3))
    driver.send(pack(Odd(), messages.COMMON, 4))
    driver.send(pack(([], [messages.ForgetCommon((3,))]), messages.COMMANDS))
    worker._read()
    worker.keep_common(worker._inbox.popleft())
    worker.keep_common(worker._inbox.popleft())
    assert worker.give_common(3) is worker.give_common(3)
    for _ in range(2):
        with pytest.raises(ValueError, match="odd"):
            worker.give_common(4)
    worker.keep_common(worker._inbox.popleft())
    with pytest.raises(KeyError):
        worker.give_common(3)
