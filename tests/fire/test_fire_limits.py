"""A limit holds from the moment an attempt begins, whatever the other workers are doing."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from windrow.engines.supervisor.server import FAST_S, SLOW_S, WatchedWorker
from windrow.engines.supervisor.status_page import WATCHFUL_S, StatusPage

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = 1 << 50


@pytest.fixture
def bell() -> Iterator[int]:
    made = os.eventfd(0, os.EFD_NONBLOCK)
    yield made
    os.close(made)


@pytest.fixture
def page(bell: int) -> Iterator[StatusPage]:
    """This very process as a worker, which rings the supervisor up."""
    created = StatusPage.create()
    made = StatusPage(created.fd, bell)
    made.close_fd()
    yield made
    made.close()


@pytest.fixture
def watched(page: StatusPage) -> Iterator[WatchedWorker]:
    """A process that sleeps as the supervisor watches it: this one may have children that other tests have left."""
    with subprocess.Popen(["sleep", "600"]) as process:
        worker = WatchedWorker(0, 0, process.pid, page)
        yield worker
        worker.close()
        process.kill()


def rang(bell: int) -> bool:
    try:
        return os.eventfd_read(bell) > 0
    except BlockingIOError:
        return False


def test_the_supervisor_is_rung_up_when_limits_begin_and_looks_often_from_then_on(
    page: StatusPage, watched: WatchedWorker, bell: int
) -> None:
    page.begin(1)
    assert not rang(bell)
    watched.look(100.0)
    assert watched.due == 100.0 + SLOW_S
    page.end()

    page.begin(2, memory_limit=LARGE)
    assert rang(bell)
    watched.look(100.01)
    assert watched.due == 100.01 + FAST_S
    watched.look(200.0)
    assert watched.due == 200.0 + FAST_S
    page.end()


def test_between_two_attempts_with_limits_it_goes_on_looking(
    page: StatusPage, watched: WatchedWorker, bell: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker does not ring again within a time in which the supervisor looks often by itself."""
    page.begin(1, seconds_limit=1000.0)
    assert rang(bell)
    watched.look(100.0)
    page.end()
    ended = time.monotonic()
    watched.look(100.01)
    monkeypatch.setattr(time, "monotonic", lambda: ended)
    page.begin(2, seconds_limit=1000.0)
    assert not rang(bell)
    page.end()
    watched.look(100.02)
    watched.look(100.02 + 0.9 * WATCHFUL_S)
    assert watched.due == 100.02 + 0.9 * WATCHFUL_S + FAST_S
    watched.look(100.02 + WATCHFUL_S)
    assert watched.due == 100.02 + WATCHFUL_S + SLOW_S
    monkeypatch.setattr(time, "monotonic", lambda: ended + 0.9 * WATCHFUL_S)
    page.begin(3, seconds_limit=1000.0)
    assert rang(bell)
    page.end()


def test_limits_that_began_and_ended_unseen_are_noticed(page: StatusPage, watched: WatchedWorker) -> None:
    watched.look(100.0)
    page.begin(1, memory_limit=LARGE)
    page.end()
    watched.look(100.1)
    assert watched.due == 100.1 + FAST_S
