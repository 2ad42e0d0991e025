"""What becomes of the versions of things that tasks change."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pytest

import windrow as wr

if TYPE_CHECKING:
    from pathlib import Path

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


# -- parts of what tasks change


@wr.task(inout="things")
def push(things: Any, value: Any) -> None:
    things.append(value)


@wr.task(inout="values")
def scale(values: Any, factor: float) -> None:
    for one in values if isinstance(values, list) else [values]:
        one *= factor


@wr.task
def total(values: Any) -> float:
    return float(np.sum(values))


PART = r"inside of something which task '.*' changes: .* Give the whole"
VIEW = r"a view of an array which a task changes: .* Give the whole array"


@engines
def test_parts_of_what_a_task_changes_are_refused(engine: str) -> None:
    """They would be what they were before: another answer than the sequential program's."""
    with wr.Session(engine=engine, workers=1) as session:
        nested: Any = [[], ([],), {"a": []}]
        push(nested, 5)
        for part in (nested[0], nested[1], nested[1][0], nested[2], nested[2]["a"], [nested[0]]):
            uses: list[Any] = [partial(push, value=4), total, session.gather]
            for use in uses:
                with pytest.raises(wr.errors.UsageError, match=PART):
                    use(part)
        assert session.gather(nested) == [[], ([],), {"a": []}, 5]
        arrays = [np.ones(3), np.ones(3)]
        scale(arrays, 2.0)
        with pytest.raises(wr.errors.UsageError, match=PART):
            total(arrays[0])
        array = np.ones((3, 4))
        scale(array, 2.0)
        with pytest.raises(wr.errors.UsageError, match=VIEW):
            total(array[0])
        with pytest.raises(wr.errors.UsageError, match=VIEW):
            session.gather({"first": array[0]})
        assert total(array).result(60) == 24


@engines
def test_parts_are_changed_before_the_whole(engine: str) -> None:
    with wr.Session(engine=engine, workers=1) as session:
        nested: Any = [[], []]
        push(nested[0], 4)
        push(nested, 5)
        push(nested, 6)
        assert session.gather(nested) == [[4], [], 5, 6]
        arrays = [np.ones(3), np.ones(3)]
        for number, one in enumerate(arrays):
            scale(one, number + 2.0)
        assert total(arrays).result(60) == 15
        gone = [1.0, "text", None, (1, 2), frozenset()]
        push(gone, 1)  # what cannot be changed is used elsewhere, too
        assert total([1.0, (1, 2)[0]]).result(60) == 2


@engines
def test_views_that_others_would_see_changed_are_refused(engine: str) -> None:
    with wr.Session(engine=engine, workers=1) as session:
        array = np.ones((3, 4))
        with pytest.raises(wr.errors.UsageError, match=r"'scale' changes a view .* held elsewhere"):
            scale(array[0], 2.0)
        alone = np.arange(6.0).reshape(2, 3)  # a view as well, but of what nobody else has
        scale(alone, 2.0)
        part = array[0].copy()
        scale(part, 2.0)
        assert session.gather([total(alone), total(part), total(array)]) == [30, 8, 12]
        made = session.gather(double(alone))  # from another process
        scale(made, 2.0)
        assert total(made).result(60) == 120


@wr.task
def double(values: Any) -> Any:
    return 2 * values


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_what_the_next_change_reads_is_not_made_again(engine: str, tmp_path: Path) -> None:
    @wr.task(inout="things")
    def change(things: list[int], diary: Path) -> None:
        with diary.open("a") as file:
            file.write("x")
        things.append(len(things))

    diary, things = tmp_path / "diary", [0] * 5_000
    with wr.Session(engine=engine, workers=2) as session:
        for _ in range(5):
            change(things, diary)
            session.barrier(60)  # all before is done, and held by nobody but the next call
        assert len(session.gather(things)) == 5_005
    assert diary.read_text() == "x" * 5
