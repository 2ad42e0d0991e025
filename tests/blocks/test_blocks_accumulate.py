"""Outputs add up as coffea's accumulators do, and neither of the two changes."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hist import Hist
from hypothesis import given
from hypothesis import strategies as st

from windrow.blocks.outputs import merge_values, try_merging
from windrow.errors import MergeError

numbers = st.integers(-100, 100)
trees = st.recursive(
    numbers, lambda inner: st.fixed_dictionaries({}, optional={"a": inner, "b": inner, "c": inner}), max_leaves=8
)


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Counter[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return Counter({path: tree})
    found: Counter[tuple[str, ...]] = Counter()
    for key, value in tree.items():
        for place, number in leaves(value, (*path, key)).items():
            found[place] = number
    return found


def alike(one: Any, two: Any) -> bool:
    """Say whether two trees have mappings in the same places."""
    if isinstance(one, dict) != isinstance(two, dict):
        return False
    if not isinstance(one, dict):
        return True
    return all(alike(one[key], two[key]) for key in one.keys() & two.keys())


@given(trees, trees)
def test_mappings_merge_key_by_key_at_any_depth(left: Any, right: Any) -> None:
    before = copy.deepcopy((left, right))
    if not alike(left, right):
        with pytest.raises(MergeError):
            merge_values(left, right)
    else:
        merged = leaves(merge_values(left, right))
        expected = leaves(left)
        for place, number in leaves(right).items():
            expected[place] = expected.get(place, 0) + number
        assert dict(merged) == dict(expected)
    assert (left, right) == before


@given(st.dictionaries(st.text(max_size=2), numbers), st.dictionaries(st.text(max_size=2), numbers))
def test_counters_add_once(left: dict[str, int], right: dict[str, int]) -> None:
    merged = merge_values(Counter(left), Counter(right))
    assert type(merged) is Counter
    assert dict(merged) == merge_values(left, right)


def test_mappings_keep_their_type() -> None:
    one, two = defaultdict(int, a=1), defaultdict(int, a=2, b=3)
    merged = merge_values(one, two)
    assert type(merged) is defaultdict
    assert merged.default_factory is int
    assert merged == {"a": 3, "b": 3}
    assert (one, two) == ({"a": 1}, {"a": 2, "b": 3})
    ordered = merge_values(OrderedDict(a=1), OrderedDict(b=2))
    assert type(ordered) is OrderedDict
    assert list(ordered) == ["a", "b"]
    assert merge_values(MappingProxyType({"a": 1}), {"a": 1}) == {"a": 2}


class Named(dict[str, int]):
    """As coffea's own accumulators are: a dict of another class."""


class Slippery(dict[str, int]):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot be copied")


def test_classes_made_of_dict_keep_their_type_where_they_can() -> None:
    one = Named(a=1)
    merged = merge_values(one, Named(a=2))
    assert type(merged) is Named
    assert (merged, one) == ({"a": 3}, {"a": 1})
    assert merge_values(Slippery(a=1), Slippery(a=2)) == {"a": 3}


@pytest.mark.parametrize(
    ("left", "right", "merged"),
    [
        (1, 2.5, 3.5),
        ([1], [2], [1, 2]),
        ({1, 2}, {2, 3}, {1, 2, 3}),
        (frozenset({1}), {2}, {1, 2}),
        ({"a": {"s": {1}}}, {"a": {"s": {2}, "n": [1]}}, {"a": {"s": {1, 2}, "n": [1]}}),
        (True, True, 2),
    ],
)
def test_plain_values(left: Any, right: Any, merged: Any) -> None:
    before = copy.deepcopy((left, right))
    assert merge_values(left, right) == merged
    assert (left, right) == before


def test_arrays_add_element_by_element() -> None:
    left, right = np.array([1, 2]), np.array([10, 20])
    assert merge_values(left, right).tolist() == [11, 22]
    assert left.tolist() == [1, 2]
    with pytest.raises(MergeError, match=r"shapes \(2,\) and \(3,\).*np.concatenate"):
        merge_values(left, np.zeros(3))


def categories(names: list[str]) -> Hist:
    return Hist.new.StrCat([], growth=True).Reg(2, 0, 2).Weight().fill(names, [0.5] * len(names))


def contents(histogram: Hist) -> dict[str, float]:
    return {name: float(histogram[name, 0].value) for name in histogram.axes[0]}


@given(*[st.lists(st.sampled_from("abcd"), min_size=1, max_size=6)] * 2)
def test_growing_categories_merge_by_name_in_whatever_order_they_came(left: list[str], right: list[str]) -> None:
    one, two = categories(left), categories(right)
    assert contents(merge_values(one, two)) == dict(Counter(left + right))
    assert contents(one) == dict(Counter(left))
    assert contents(two) == dict(Counter(right))


def test_histograms_of_other_axes_are_refused() -> None:
    one, two = Hist.new.Reg(2, 0, 1).Double(), Hist.new.Reg(3, 0, 1).Double()
    with pytest.raises(MergeError, match="Hist and Hist do not add up"):
        merge_values(one, two)


@pytest.mark.parametrize("value", [None, "text", b"bytes", (1, 2)])
def test_what_nobody_means_is_refused(value: Any) -> None:
    with pytest.raises(MergeError, match=f"values of type {type(value).__name__} do not add up"):
        merge_values(value, value)
    with pytest.raises(MergeError):
        try_merging({"deep": {"down": value}})


@pytest.mark.parametrize(("left", "right"), [(1, [1]), ({"a": 1}, 1), ({1}, [1]), (1, None)])
def test_values_of_different_kinds_are_refused(left: Any, right: Any) -> None:
    with pytest.raises(MergeError, match="do not add up"):
        merge_values(left, right)


def test_merge_errors_from_inside_stay_as_they_are() -> None:
    class Stubborn:
        def __add__(self, other: object) -> Stubborn:
            raise MergeError("my own words")

    with pytest.raises(MergeError, match=r"^my own words$"):
        merge_values(Stubborn(), Stubborn())


def test_trying_takes_arrays_on_trust_and_leaves_the_value_alone() -> None:
    try_merging(np.arange(3))
    value = {"n": 1, "seen": [1]}
    try_merging(value)
    assert value == {"n": 1, "seen": [1]}
