"""What becomes of the versions of things that tasks change."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import windrow as wr


class Counted:
    """Something of which each version is known."""

    def __init__(self) -> None:
        self.count = 0


def test_versions_before_are_let_go() -> None:
    versions: list[Any] = []

    @wr.task(inout="thing")
    def step(thing: Counted) -> None:
        thing.count += 1
        versions.append(weakref.ref(thing))

    thing = Counted()
    with wr.Session(engine="inline") as session:
        for _ in range(50):
            step(thing)
        session.barrier()
        assert session.gather(thing).count == 50
        gc.collect()
        assert sum(one() is not None for one in versions) <= 2
