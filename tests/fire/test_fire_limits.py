"""A limit holds from the moment an attempt begins, whatever the other workers are doing."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from windrow.engines.page import Page
from windrow.engines.warden_watch import FAST_S, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def watched() -> Iterator[Watched]:
    """This very process, as the warden's server would watch it, idle for a while already."""
    worker = Watched(0, 0, os.getpid(), Page.create())
    now = time.monotonic()
    for _ in range(2):
        worker.look(now)
    assert worker.due > now + FAST_S
    assert not worker.limits_changed
    yield worker
    worker.close()


def test_a_server_that_is_awake_for_another_worker_sees_that_limits_begin(watched: Watched) -> None:
    """Nobody rings it up then, and it had meant to look at this one much later."""
    watched.page.begin(1, memory_limit=1 << 50)
    assert watched.limits_changed
    now = time.monotonic()
    watched.look(now)
    assert not watched.limits_changed
    assert watched.due == now + FAST_S
    watched.page.end()
    assert watched.limits_changed


def test_what_has_no_limits_can_wait(watched: Watched) -> None:
    watched.page.begin(1)
    assert not watched.limits_changed
