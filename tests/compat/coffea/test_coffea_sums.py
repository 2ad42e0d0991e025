"""Adding outputs up: the same whatever the ranges, the workers and the order in which things come home."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hist
import numpy as np
import pytest
from coffea import processor
from coffea.processor.accumulator import add
from hypothesis import given
from hypothesis import strategies as st

from windrow.compat.coffea.sums import Piece, add_all, check_output, commutes, join_pieces
from windrow.errors import MergeError

inputs = st.lists(st.integers(1, 12), min_size=1, max_size=4)


def ordered(number: int, start: int, stop: int, rows: int, value: Any) -> Piece:
    end = (number, stop) if stop < rows else (number + 1, 0)
    return Piece((number, start), end, value, "any" if commutes(value) else "rows")


def cell_of(number: int, cell: int, cells: int, value: Any) -> Piece:
    end = (number, cell + 1) if cell + 1 < cells else (number + 1, 0)
    return Piece((number, cell), end, value, "cells")


def come_home(pieces: list[Piece], data: st.DataObject) -> list[Piece]:
    """Merge pieces at workers, and at home as they come."""
    workers: list[list[Piece]] = [[] for _ in range(data.draw(st.integers(1, 3)))]
    for piece in data.draw(st.permutations(pieces)):
        data.draw(st.sampled_from(workers)).append(piece)
    home: list[Piece] = []
    for worker in workers:
        home = join_pieces([*home, *join_pieces(worker)])
    return home


@given(inputs, st.data())
def test_lists_end_in_the_order_of_the_rows_and_numbers_are_exact(sizes: list[int], data: st.DataObject) -> None:
    pieces = []
    for number, rows in enumerate(sizes):
        cuts = sorted(data.draw(st.sets(st.integers(1, rows - 1))) if rows > 1 else set())
        for start, stop in pairwise([0, *cuts, rows]):
            value = {"rows": [(number, row) for row in range(start, stop)], "count": stop - start}
            pieces.append(ordered(number, start, stop, rows, value))
    home = come_home(pieces, data)
    assert len(home) == 1  # all neighbours were there, over the borders of inputs too
    wanted = [(number, row) for number, rows in enumerate(sizes) for row in range(rows)]
    assert add_all(home) == {"rows": wanted, "count": len(wanted)}


@given(inputs, st.data())
def test_floats_on_a_grid_have_the_same_bits(sizes: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(sum(sizes))
    pieces = [
        cell_of(number, cell, cells, rng.normal(size=3) * 10.0 ** rng.integers(-8, 8))
        for number, cells in enumerate(sizes)
        for cell in range(cells)
    ]
    if data.draw(st.booleans()):
        del pieces[data.draw(st.integers(0, len(pieces) - 1)) :: 2]  # rows that were left out
    wanted = add_all(join_pieces(pieces))
    home = add_all(come_home(pieces, data))
    assert home is wanted is None or home.tobytes() == wanted.tobytes()


@given(st.integers(1, 200), st.integers(1, 9), st.data())
def test_few_pieces_of_a_grid_wait(inputs: int, cells: int, data: st.DataObject) -> None:
    home: list[Piece] = []
    for number in range(inputs):
        for cell in data.draw(st.permutations(range(cells))):
            home = join_pieces([*home, cell_of(number, cell, cells, 1)])
        assert len(home) == (number + 1).bit_count()
    assert add_all(home) == inputs * cells


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1), min_size=1, max_size=6), st.data())
def test_categories_that_grow_in_different_orders_add_up(names: list[list[str]], data: st.DataObject) -> None:
    def filled(names: list[str]) -> hist.Hist:
        h = hist.Hist(hist.axis.StrCategory([], growth=True, name="x"), hist.axis.Regular(3, 0, 3), storage="int64")
        for name in names:
            h.fill(name, [ord(name) % 3])
        return h

    pieces = [ordered(n, 0, 1, 1, {"h": filled(some)}) for n, some in enumerate(names)]
    total = add_all(come_home(pieces, data))["h"]
    assert total == filled([name for some in names for name in some])


def test_what_commutes_is_one_piece_at_once() -> None:
    flat = hist.Hist(hist.axis.Regular(3, 0, 3))
    far = [ordered(0, row, row + 1, 99, {"h": flat, "n": {"a": 1}, "s": {row}}) for row in (0, 7, 50)]
    (piece,) = join_pieces(far)
    assert piece.value["n"] == {"a": 3}
    grows = hist.Hist(hist.axis.IntCategory([], growth=True))
    for value in (grows, [1], processor.column_accumulator(np.zeros(2)), {"deep": {"h": grows}}):
        assert len(join_pieces([ordered(0, row, row + 1, 99, value) for row in (0, 7)])) == 2


def test_outputs_that_were_made_elsewhere_are_not_changed() -> None:
    values: list[Any] = [{"a": [n], "h": np.array([float(n)])} for n in range(3)]
    assert add_all(ordered(0, n, n + 1, 3, value) for n, value in enumerate(values))["a"] == [0, 1, 2]
    assert [value["a"] for value in values] == [[0], [1], [2]]
    assert [float(value["h"][0]) for value in values] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"a": {"b": 1}}, {"a": 1}, r"output\['a'\] is <class 'dict'> of one and <class 'int'> of the other \(ValueError: Cannot add"),
        ([1], {1}, r"output is <class 'list'> of one and <class 'set'> of the other"),
        ({"a": {"s": {1}, "x": np.zeros(2)}}, {"a": {"s": {2}, "x": np.zeros(3)}}, r"output\['a'\]\['x'\] is <class 'numpy.ndarray'> of one"),
    ],
)  # fmt: skip
def test_outputs_that_do_not_fit_together_are_named(one: Any, other: Any, words: str) -> None:
    with pytest.raises(MergeError, match=f"cannot be added up: {words}"):
        add_all([ordered(0, 0, 1, 3, one), ordered(0, 1, 2, 3, other)])
    with pytest.raises(MergeError, match=f"cannot be added up: {words}"):  # also where the sum so far is added to
        add_all([ordered(0, 0, 1, 3, one), ordered(0, 1, 2, 3, one), ordered(0, 2, 3, 3, other)])


def test_nothing_adds_up_to_nothing() -> None:
    assert add_all([]) is None


@given(
    st.recursive(
        st.one_of(st.integers(), st.sets(st.integers()), st.lists(st.integers()), st.text(), st.none(), st.frozensets(st.integers())),
        lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3),
    )
)  # fmt: skip
def test_what_is_refused_is_what_coffea_cannot_add(value: Any) -> None:
    def adds_up() -> bool:
        try:
            add(value, value)
        except ValueError:
            return False
        return True

    try:
        check_output(value, "[here]")
    except MergeError:
        assert not adds_up()
    else:
        assert adds_up()
