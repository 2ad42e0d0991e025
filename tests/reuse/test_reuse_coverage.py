"""What is left to do, against a bookkeeping row by row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windrow.reuse.coverage import Covered, divide, first_rows

PRODUCTS = frozenset("abc")


@st.composite
def cases(draw: Any) -> tuple[list[tuple[int, int]], list[int], list[Covered]]:
    borders = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=8)) | {0})
    picks = draw(st.lists(st.booleans(), min_size=len(borders) - 1, max_size=len(borders) - 1))
    units = [(a, b) for a, b, pick in zip(borders, borders[1:], picks, strict=False) if pick]
    if units and draw(st.booleans()):  # a limit inside the last unit
        start, stop = units[-1]
        units[-1] = (start, draw(st.integers(start + 1, stop)))
    covered = []
    for number in range(draw(st.integers(0, 4))):
        pairs = list(pairwise(borders))
        rows = draw(st.lists(st.sampled_from(pairs), max_size=3))
        if draw(st.booleans()) and units:
            rows = draw(st.lists(st.sampled_from(units), unique=True, max_size=3))
        disjoint: list[tuple[int, int]] = []
        for start, stop in sorted(rows):
            if start < stop and (not disjoint or disjoint[-1][1] <= start):
                disjoint.append((start, stop))
        products = draw(st.sets(st.sampled_from("abcx")))
        covered.append(Covered(number, frozenset(products), tuple(disjoint)))
    return units, borders, covered


@given(cases())
def test_every_wanted_row_has_every_product_once(case: tuple[list[tuple[int, int]], list[int], list[Covered]]) -> None:
    units, _, covered = case
    reuse = divide(units, PRODUCTS, covered)
    count: dict[tuple[int, str], int] = {}
    by_id = {one.id: one for one in covered}
    for number, products in reuse.used.items():
        assert products
        assert products <= by_id[number].products & PRODUCTS
        for start, stop in by_id[number].rows:
            for row in range(start, stop):
                for name in products:
                    count[row, name] = count.get((row, name), 0) + 1
    for products, ranges in reuse.portions:
        assert products
        for start, stop in ranges:
            for row in range(start, stop):
                for name in products:
                    count[row, name] = count.get((row, name), 0) + 1
    expected = {(row, name): 1 for a, b in units for row in range(a, b) for name in PRODUCTS}
    assert count == expected


@given(cases())
def test_units_are_never_torn(case: tuple[list[tuple[int, int]], list[int], list[Covered]]) -> None:
    units, borders, covered = case
    ends = {*borders, *(end for part in units for end in part)}
    for _, ranges in divide(units, PRODUCTS, covered).portions:
        assert {end for part in ranges for end in part} <= ends
    assert len({frozenset(p) for p, _ in divide(units, PRODUCTS, covered).portions}) == len(
        divide(units, PRODUCTS, covered).portions
    )


def test_whole_cover_leaves_nothing() -> None:
    kept = Covered(7, PRODUCTS | {"old"}, ((0, 30),))
    reuse = divide([(0, 30)], PRODUCTS, [kept])
    assert reuse.used == {7: PRODUCTS}
    assert reuse.portions == ()


def test_one_changed_product_is_all_that_is_left() -> None:
    kept = Covered(1, frozenset({"a", "b", "c-old"}), ((0, 20),))
    reuse = divide([(0, 30)], PRODUCTS, [kept])
    assert [(set(p), r) for p, r in reuse.portions] == [(set("abc"), ((20, 30),)), ({"c"}, ((0, 20),))]


def test_what_holds_rows_that_are_not_wanted_is_not_used() -> None:
    assert divide([(0, 15)], PRODUCTS, [Covered(1, PRODUCTS, ((0, 30),))]).used == {}
    assert divide([(0, 15)], PRODUCTS, [Covered(1, PRODUCTS, ((0, 10),))]).used == {1: PRODUCTS}


def test_the_first_rows_of_each_category() -> None:
    inputs = [("a", ((0, 10),)), ("b", ((0, 4),)), ("a", ((0, 10),)), ("a", None), ("a", ((0, 3),))]
    assert first_rows(inputs, 15) == ([((0, 10),), ((0, 4),), ((0, 5),), None, None], {"a": 0, "b": 11})
    assert first_rows(inputs, None) == ([((0, 10),), ((0, 4),), ((0, 10),), None, ((0, 3),)], {})
