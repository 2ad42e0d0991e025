"""Cutting tasks from an input: every row once, along units."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.inputs import UNIT, Cutter, Family, Inputs
from windrow.core.ledger import Ledger
from windrow.core.records import InputSpec, Life, Rows
from windrow.core.transitions import InputState
from windrow.errors import InternalError

units = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def borders_of(sizes: list[int]) -> tuple[int, ...]:
    borders = [0]
    for size in sizes:
        borders.append(borders[-1] + size)
    return tuple(borders)


@given(units, st.lists(st.integers(0, 40), min_size=1), st.data())
def test_cuts_cover_the_rows_once_and_follow_units(sizes: list[int], wants: list[int], data: st.DataObject) -> None:
    borders = borders_of(sizes)
    start = data.draw(st.integers(0, borders[-1] - 1))
    stop = data.draw(st.integers(start + 1, borders[-1]))
    cutter = Cutter(7, borders)
    cutter.add(start, stop)
    cuts, step = [], 0
    while cutter.rows:
        want = wants[step % len(wants)]
        unit = cutter.next_unit()
        rows = cutter.cut(want)
        cuts.append(rows)
        step += 1
        assert rows.stop in borders or rows.stop == stop
        first = min(border for border in borders if border > rows.start)
        assert unit == min(first, stop) - rows.start
        assert cutter.units(rows) == sum(rows.start < b < rows.stop for b in borders) + 1
        assert rows.stop - rows.start <= max(want, unit)
        # Snapped down, not further: the next border would have been too far.
        beyond = [b for b in borders if b > rows.stop]
        assert rows.stop == stop or min([*beyond, stop]) - rows.start > want or not beyond
    assert cuts[0].start == start
    assert cuts[-1].stop == stop
    assert all(a.stop == b.start for a, b in pairwise(cuts))


def test_rows_given_back_come_first_and_single_ones_unit_by_unit() -> None:
    cutter = Cutter(0, (0, 10, 20, 30, 40))
    cutter.add(0, 40)
    assert cutter.cut(20) == Rows(0, 0, 20)
    cutter.add(0, 20, most=UNIT)
    assert cutter.waiting() == [Rows(0, 0, 20), Rows(0, 20, 40)]
    assert [cutter.cut(1000) for _ in range(3)] == [Rows(0, 0, 10), Rows(0, 10, 20), Rows(0, 20, 40)]
    assert cutter.rows == 0


def test_rows_without_units_are_cut_anywhere() -> None:
    cutter = Cutter(0, range(10**12 + 1))
    cutter.add(0, 10**12)
    assert cutter.next_unit() == 1
    assert cutter.cut(1000) == Rows(0, 0, 1000)
    assert cutter.units(Rows(0, 0, 1000)) == 1000
    cutter.add(0, 1000, most=200)
    assert [cutter.cut(1000) for _ in range(4)] == [
        Rows(0, 0, 200), Rows(0, 200, 600), Rows(0, 600, 1000), Rows(0, 1000, 2000)
    ]  # the bound doubles: it was a guess  # fmt: skip


def test_borders_may_be_a_range() -> None:
    ledger = Ledger()
    inputs = Inputs(ledger, None)
    inputs.add([InputSpec(id=0, category="a"), InputSpec(id=1, category="a", rows=0, borders=range(1))])
    inputs.known(inputs.inputs[0], 10**12, range(10**12 + 1))
    assert wanted(ledger) == {0: [(0, 10**12)], 1: []}
    inputs.add([InputSpec(id=2, category="a")])
    for rows, borders in ((9, range(9)), (9, range(1, 10)), (9, range(9, -1, -1)), (-1, range(0))):
        with pytest.raises(InternalError, match="must grow from 0"):
            inputs.known(inputs.inputs[2], rows, borders)


# -- which rows are wanted


def released(limit: int | None, *given: tuple[str, int, tuple[tuple[int, int], ...] | None]) -> Ledger:
    ledger = Ledger()
    Inputs(ledger, limit).add(
        InputSpec(id=n, category=c, rows=rows, borders=borders_of([rows] if rows else []), ranges=r)
        for n, (c, rows, r) in enumerate(given)
    )
    return ledger


def wanted(ledger: Ledger) -> dict[int, list[tuple[int, int]]]:
    return {number: list(book.everything) for number, book in ledger.books.items()}


def test_a_row_limit_is_the_first_rows_of_every_category() -> None:
    ledger = released(15, ("a", 10, None), ("b", 4, None), ("a", 10, None), ("a", 10, None))
    assert wanted(ledger) == {0: [(0, 10)], 1: [(0, 4)], 2: [(0, 5)], 3: []}
    assert not ledger.unopened


def test_ranges_are_clipped_and_joined() -> None:
    ledger = released(None, ("a", 10, ((5, 99), (0, 2), (1, 3), (4, 4))))
    assert wanted(ledger) == {0: [(0, 3), (5, 10)]}


def test_limited_rows_wait_for_earlier_inputs() -> None:
    ledger = Ledger()
    inputs = Inputs(ledger, 12)
    inputs.add([InputSpec(id=n, category="a") for n in range(4)])
    late = inputs.inputs[1]
    inputs.known(late, 10, (0, 10))
    assert (late.state, inputs.uncut) == (InputState.KNOWN, 0)
    inputs.known(inputs.inputs[0], 10, (0, 10))
    assert wanted(ledger) == {0: [(0, 10)], 1: [(0, 2)], 2: [], 3: []}
    assert inputs.unopened == 0
    assert inputs.next_waiting(9) is None


@pytest.mark.parametrize("borders", [(), (0, 9), (1, 10), (0, 5, 5, 10), (0, 7, 6, 10)])
def test_borders_must_grow_over_all_rows(borders: tuple[int, ...]) -> None:
    inputs = Inputs(Ledger(), None)
    inputs.add([InputSpec(id=0, category="a", label="f.root")])
    with pytest.raises(InternalError, match=r"f\.root.*must grow from 0 to 10"):
        inputs.known(inputs.inputs[0], 10, borders)


def test_an_input_cannot_come_twice() -> None:
    inputs = Inputs(Ledger(), None)
    with pytest.raises(InternalError, match="twice"):
        inputs.add([InputSpec(id=0, category="a"), InputSpec(id=0, category="a")])


def test_a_slow_worker_at_the_head_does_not_make_others_look_at_all_that_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One worker is long with the first family: for each input of others few are looked at, however many there were."""
    looks = 0
    is_for = Family.is_for

    def counted(family: Family, life: Life | None) -> bool:
        nonlocal looks
        looks += 1
        return is_for(family, life)

    monkeypatch.setattr(Family, "is_for", counted)
    count, size = 1_000, 8
    inputs = Inputs(Ledger(), None, None, size)
    inputs.add(InputSpec(id=number, category="d") for number in range(count))
    slow, quick = Life(0, 0), Life(1, 0)
    first = inputs.next_waiting(3, slow)
    assert first is not None
    inputs.begin_opening(first)
    first.family.life = slow
    inputs.known(first, 10, (0, 10))
    inputs.cut(first, 10)
    done = 1
    while (one := inputs.next_waiting(3, quick)) is not None and one.family.life is not slow:
        inputs.begin_opening(one)
        one.family.life = quick
        inputs.known(one, 10, (0, 10))
        fresh = inputs.fresh(quick)
        assert fresh is one
        inputs.cut(one, 10)
        done += 1
    assert done == count - size + 1
    assert looks < 4 * size * count
