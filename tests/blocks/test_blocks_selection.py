"""Selections do what boolean masks do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from windrow.blocks.selection import Selection, everything, keep, keep_packed, row_set, union

Mask = NDArray[np.bool_]
lengths = st.integers(0, 12)


def masks(length: int) -> st.SearchStrategy[Mask]:
    return st.lists(st.booleans(), min_size=length, max_size=length).map(lambda bits: np.array(bits, dtype=bool))


def selected(mask: Mask, as_none: bool = True) -> Selection:
    """Make a selection of a mask; all rows are None where that is allowed."""
    if as_none and mask.all():
        return everything(len(mask))
    return Selection(len(mask), np.flatnonzero(mask))


def held_bytes(selection: Selection) -> int:
    return sum(one.nbytes for one in (selection._index, selection._bits) if one is not None)


def mask_of(selection: Selection) -> Mask:
    mask = np.zeros(selection.length, dtype=bool)
    mask[selection.positions()] = True
    return mask


@given(lengths.flatmap(masks), st.booleans())
def test_count_and_positions_are_those_of_the_mask(mask: Mask, as_none: bool) -> None:
    selection = selected(mask, as_none)
    assert selection.count == mask.sum()
    assert selection.positions().tolist() == np.flatnonzero(mask).tolist()


@given(st.data(), lengths)
def test_union_is_the_or_of_the_masks(data: st.DataObject, length: int) -> None:
    parts = data.draw(st.lists(masks(length), min_size=1, max_size=4))
    selections = [selected(part, data.draw(st.booleans())) for part in parts]
    united = union(selections)
    assert (mask_of(united) == np.logical_or.reduce(parts)).all()
    assert (np.diff(united.positions()) > 0).all()


def test_union_is_the_same_object_where_it_adds_nothing() -> None:
    small, large = Selection(5, np.array([1])), Selection(5, np.array([1, 3]))
    whole = everything(5)
    assert union([large, large]) is large
    assert union([small, large]) is large
    assert union([small, whole, large]) is whole
    assert union([small, Selection(5, np.array([4]))]) not in (small, large)


@given(st.data(), lengths)
def test_keep_is_the_and_of_the_masks(data: st.DataObject, length: int) -> None:
    outer = data.draw(masks(length))
    inner = outer & data.draw(masks(length))
    passed = data.draw(masks(length))
    on = selected(outer, data.draw(st.booleans()))
    selection = selected(inner, data.draw(st.booleans()))
    kept = keep(selection, passed[outer], on)
    assert (mask_of(kept) == (inner & passed)).all()
    if (inner & passed).sum() == inner.sum():
        assert kept is selection


@given(st.data(), lengths)
def test_within_finds_rows_among_those_of_a_superset(data: st.DataObject, length: int) -> None:
    outer = data.draw(masks(length))
    inner = outer & data.draw(masks(length))
    home = selected(outer, data.draw(st.booleans()))
    selection = selected(inner, data.draw(st.booleans()))
    where = selection.within(home)
    found = home.positions() if where is None else home.positions()[where]
    assert found.tolist() == np.flatnonzero(inner).tolist()


@given(st.data(), st.integers(1, 12))
def test_cut_at_counts_rows_before_each_border(data: st.DataObject, length: int) -> None:
    mask = data.draw(masks(length))
    inner = data.draw(st.sets(st.integers(1, length)))
    borders = np.array(sorted({0, length, *inner}), dtype=np.int64)
    ends = selected(mask, data.draw(st.booleans())).cut_at(borders)
    assert ends.tolist() == [int(mask[:border].sum()) for border in borders]


@given(st.data(), st.integers(1, 200), st.booleans())
def test_packed_selections_are_the_same(data: st.DataObject, length: int, as_none: bool) -> None:
    outer, inner = data.draw(masks(length)), data.draw(masks(length))
    whole, wide = everything(length), selected(outer, as_none)
    narrow, same = keep_packed(wide, inner), keep(wide, inner, whole)
    borders = np.array([0, length // 3, length])
    for _ in range(2):  # as it is, and after positions were asked for
        assert narrow.count == same.count
        assert narrow.cut_at(borders).tolist() == same.cut_at(borders).tolist()
        assert [narrow.has(row) for row in range(length)] == (outer & inner).tolist()
        assert row_set(narrow, 0).rows().tolist() == row_set(same, 0).rows().tolist()
        assert (
            mask_of(union([narrow, Selection(length, np.arange(1))]))
            == mask_of(union([same, Selection(length, np.arange(1))]))
        ).all()
        assert narrow.positions().tolist() == same.positions().tolist()
        within = narrow.within(wide)
        assert (within is None) == (narrow.count == wide.count)
        assert within is None or wide.positions()[within].tolist() == same.positions().tolist()
        narrow.pack()
    assert narrow is wide or held_bytes(narrow) == -(-length // 8)
    assert keep_packed(wide, np.ones(length, dtype=bool)) is wide


def test_positions_are_packed_where_bits_are_less() -> None:
    few, many = Selection(6400, np.arange(100)), Selection(6400, np.arange(101))
    for selection in (few, many, everything(6400)):
        selection.pack()
    assert held_bytes(few) == 800
    assert held_bytes(many) == 800
    assert many.positions().tolist() == list(range(101))
    assert held_bytes(many) == 800 + 808
    many.pack()
    assert held_bytes(many) == 800
    assert held_bytes(everything(6400)) == 0
