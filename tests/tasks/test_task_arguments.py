"""Calls with wrong arguments fail where they are made, exactly when those of the plain function do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import windrow as wr
from windrow.tasks.declare import AcceptedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


THREE = wr.resident(lambda: 3)


def none_of_them() -> None: ...
def two(a: Any, b: Any) -> None: ...
def with_default(a: Any, b: Any = 1) -> None: ...
def in_order(a: Any, b: Any = 1, /) -> None: ...
def order_and_names(a: Any, /, b: Any, *, c: Any, d: Any = 1) -> None: ...
def by_name(*, a: Any, b: Any = 1) -> None: ...
def many(a: Any, *others: Any, c: Any = 1) -> None: ...
def more_names(a: Any, /, **others: Any) -> None: ...
def all_of_them(a: Any, b: Any = 1, *others: Any, c: Any, **more: Any) -> None: ...


FUNCTIONS: list[Callable[..., Any]] = [
    none_of_them, two, with_default, in_order, order_and_names, by_name, many, more_names, all_of_them,
]  # fmt: skip


def accepted(function: Callable[..., Any], count: int, keywords: Mapping[str, int]) -> bool:
    try:
        function(*range(count), **keywords)
    except TypeError:
        return False
    return True


@given(st.sampled_from(FUNCTIONS), st.integers(0, 4), st.dictionaries(st.sampled_from("abcdz"), st.just(1), max_size=4))
@example(more_names, 1, {"a": 1})  # both have that name
def test_exactly_the_calls_of_the_plain_function_are_accepted(
    function: Callable[..., Any], count: int, keywords: dict[str, int]
) -> None:
    calls = AcceptedCalls(function)
    for _ in range(2):  # what was found right before is not asked about again
        if accepted(function, count, keywords):
            calls.check("f", tuple(range(count)), keywords)
        else:
            assert (count, *keywords) not in calls.right
            with pytest.raises(TypeError):
                calls.check("f", tuple(range(count)), keywords)


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_a_wrong_call_raises_where_it_is_made(engine: str) -> None:
    add = wr.task(two, name="add")
    with wr.Session(engine=engine, workers=1) as session:
        with pytest.raises(TypeError, match=r"add\(\) missing a required argument: 'b'.*\(a: "):
            add(1)
        with pytest.raises(TypeError, match=r"too many positional arguments"):
            add(1, 2, 3)
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'c'"):
            add(1, b=2, c=3)
        assert session.gather([add(1, b=add(1, 2))]) == [None]


def test_what_is_made_for_the_call_need_not_be_given() -> None:
    @wr.task
    def scaled(x: int, factor: Any = THREE) -> int:
        return int(x * factor)

    with wr.Session(engine="threads", workers=1) as session:
        assert session.gather([scaled(2), scaled(2, factor=5), scaled(x=1)]) == [6, 10, 3]


def test_builtins_that_do_not_tell_are_called() -> None:
    largest = wr.task(max)
    with wr.Session(engine="threads", workers=1):
        assert largest(1, 2).result() == 2
        with pytest.raises(TypeError):
            largest().result()


def test_commands_with_wrong_arguments_raise_too() -> None:
    @wr.command
    def shown(text: str) -> str:
        return "printf %s {text}"

    with wr.Session(engine="threads", workers=1):
        with pytest.raises(TypeError, match="missing a required argument: 'text'"):
            shown()
        assert shown("a").result() is not None


def test_methods_are_checked_with_their_object() -> None:
    class Scale:
        @wr.task
        def by(self, factor: int) -> int:
            return 2 * factor

    with wr.Session(engine="threads", workers=1):
        assert Scale().by(3).result() == 6
        with pytest.raises(TypeError, match="missing a required argument: 'factor'"):
            Scale().by()
