"""Orders that are completed or repaired are legal, and change no more than they must."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import InternalError, UnknownNameError, UsageError
from windrow.order.constraints import complete, repair

Needs = dict[str, tuple[str, ...]]
Guards = list[tuple[str, str]]


@st.composite
def analyses(draw: st.DrawFn) -> tuple[tuple[str, ...], Needs]:
    """Steps in written order, each needing some of those above it."""
    count = draw(st.integers(1, 8))
    names = draw(st.permutations([f"s{number}" for number in range(count)]))
    needs = {
        name: tuple(draw(st.permutations(draw(st.lists(st.sampled_from(above), unique=True)))))
        if (above := names[:number])
        else ()
        for number, name in enumerate(names)
    }
    return tuple(names), needs


def legal_order(draw: Any, needs: Needs, guards: Guards) -> tuple[str, ...]:
    before = {name: set(needs[name]) for name in needs}
    for step, cut in guards:
        before[step].add(cut)
    order: list[str] = []
    while len(order) < len(needs):
        ready = sorted(n for n in needs if n not in order and before[n] <= set(order))
        order.append(draw(st.sampled_from(ready)))
    return tuple(order)


def guards_for(draw: Any, written: tuple[str, ...]) -> Guards:
    pairs = [(step, cut) for n, step in enumerate(written) for cut in written[:n]]
    chosen: Guards = []
    if pairs:
        chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6))
    return chosen


def is_legal(order: tuple[str, ...], needs: Needs, guards: Guards = []) -> bool:  # noqa: B006
    place = {name: number for number, name in enumerate(order)}
    pairs = [(name, need) for name in needs for need in needs[name]] + guards
    return all(place[need] < place[name] for name, need in pairs)


@given(analyses(), st.data())
def test_completing_part_of_a_legal_order_keeps_it_and_is_legal(
    analysis: tuple[tuple[str, ...], Needs], data: st.DataObject
) -> None:
    written, needs = analysis
    order = legal_order(data.draw, needs, [])
    chosen = data.draw(st.sets(st.sampled_from(written)))
    wanted = [name for name in order if name in chosen]
    completed = complete(wanted, written, needs)
    assert sorted(completed) == sorted(written)
    assert is_legal(completed, needs)
    assert [name for name in completed if name in chosen] == wanted


@given(analyses(), st.data())
def test_completing_anything_is_legal_or_refused(analysis: tuple[tuple[str, ...], Needs], data: st.DataObject) -> None:
    written, needs = analysis
    wanted = data.draw(st.lists(st.sampled_from(written), unique=True))
    try:
        completed = complete(wanted, written, needs)
    except UsageError:
        # Then no legal order has these steps in this sequence.
        chain = [(after, before) for before, after in itertools.pairwise(wanted)]
        with pytest.raises(InternalError, match="no order keeps"):
            repair(written, needs, chain)
    else:
        assert is_legal(completed, needs)
        assert [name for name in completed if name in wanted] == wanted


@given(analyses())
def test_the_written_order_is_legal_and_complete_as_it_stands(analysis: tuple[tuple[str, ...], Needs]) -> None:
    written, needs = analysis
    assert complete(written, written, needs) == written
    assert complete((), written, needs) == written
    assert repair(written, needs, guards_all(written)) == written


def guards_all(written: tuple[str, ...]) -> Guards:
    return [(step, cut) for number, step in enumerate(written) for cut in written[:number]]


@given(analyses(), st.data())
def test_repairing_gives_a_legal_permutation(analysis: tuple[tuple[str, ...], Needs], data: st.DataObject) -> None:
    written, needs = analysis
    guards = guards_for(data.draw, written)
    repaired = repair(legal_order(data.draw, needs, []), needs, guards)
    assert sorted(repaired) == sorted(written)
    assert is_legal(repaired, needs, guards)


@given(analyses(), st.data())
def test_repairing_a_legal_order_changes_nothing(analysis: tuple[tuple[str, ...], Needs], data: st.DataObject) -> None:
    written, needs = analysis
    guards = guards_for(data.draw, written)
    order = legal_order(data.draw, needs, guards)
    assert repair(order, needs, guards) == order


def test_repairing_makes_the_step_wait_and_nothing_else_move() -> None:
    needs: Needs = dict.fromkeys("abcd", ())
    assert repair("dacb", needs, [("d", "c")]) == ("a", "c", "d", "b")


def test_guards_of_steps_that_are_not_in_the_order_are_passed_over() -> None:
    needs: Needs = {"a": ("gone",), "b": ()}
    assert repair(("a", "b"), needs, [("a", "gone"), ("gone", "b")]) == ("a", "b")


def test_a_wanted_order_against_a_need_names_both_steps() -> None:
    needs: Needs = {"a": (), "b": ("a",), "c": ("b",)}
    with pytest.raises(UsageError, match="puts 'b' before 'a', which it needs"):
        complete(["b", "a"], ("a", "b", "c"), needs)
    with pytest.raises(UsageError, match="cannot be run as it stands"):
        complete(["c", "a"], ("a", "b", "c"), needs)


def test_unknown_and_repeated_names_are_refused() -> None:
    needs: Needs = {"trigger": (), "mass": ()}
    with pytest.raises(UnknownNameError, match=r"'triger'.*did you mean 'trigger'"):
        complete(["triger"], ("trigger", "mass"), needs)
    with pytest.raises(UsageError, match="names the step 'mass' twice"):
        complete(["mass", "mass"], ("trigger", "mass"), needs)
