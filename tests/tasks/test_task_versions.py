"""What becomes of the versions of things that tasks change."""

from __future__ import annotations

import gc
import weakref
from typing import Annotated, Any

import numpy as np
import pytest

import windrow as wr

engines = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])


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


@engines
def test_what_the_program_has_lost_is_let_go_with_its_versions(engine: str) -> None:
    """A program with a loop that makes and changes arrays would grow with every round."""

    @wr.task(inout="values")
    def add(values: Any, more: float) -> None:
        values += more

    with wr.Session(engine=engine, workers=2) as session:
        lost = []
        for number in range(6):
            values = np.zeros(100_000)
            lost.append(weakref.ref(values))
            add(values, number)
            add(values, 1)
            assert session.gather(values)[0] == number + 1
        gc.collect()
        assert [one() is None for one in lost] == [True] * 5 + [False]
        assert len(session.versions._latest) == 1
        assert session.gather(values)[0] == 6


def test_what_cannot_be_looked_at_weakly_is_not_taken_for_another() -> None:
    @wr.task(inout="things")
    def push(things: list[int], value: int) -> None:
        things.append(value)

    with wr.Session(engine="inline") as session:
        for number in range(50):
            things: list[int] = []  # would have the identity of the one before
            push(things, number)
            assert session.gather(things) == [number]


@engines
def test_all_of_several_arguments_are_changed(engine: str) -> None:
    @wr.task
    def push(value: int, *lists: Annotated[Any, wr.InOut], **more: Annotated[Any, wr.InOut]) -> int:
        for one in (*lists, *more.values()):
            one.append(value)
        return len(lists) + len(more)

    with wr.Session(engine=engine, workers=2) as session:
        first, second, third = [1], [2], [3]
        assert push(4, first, second, third=third).result() == 3
        assert push(5, second, also=first).result() == 2
        assert push(6).result() == 0
        assert session.gather([first, second, third]) == [[1, 4, 5], [2, 4, 5], [3, 4]]


@engines
def test_what_nobody_can_change_has_no_versions(engine: str) -> None:
    """Else all that is given the one ``None`` there is would need the task."""

    @wr.task(inout="thing")
    def fail(thing: Any) -> None:
        raise ValueError(repr(thing))

    @wr.task
    def give(*things: Any) -> Any:
        return things

    same: tuple[Any, ...] = (None, True, 1, "text", b"", (), frozenset(), len, int)
    with wr.Session(engine=engine, workers=2) as session:
        failed = [fail(one) for one in same]
        assert give(*same).result() == same
        assert session.gather(list(same)) == list(same)
        assert all(isinstance(one.exception(), ValueError) for one in failed)
