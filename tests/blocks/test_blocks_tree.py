"""The fixed tree: however the leaves were grouped on the way, the same things are added in the same order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.blocks.tree import Nodes, collapse, grow, join


def pair(left: Any, right: Any) -> Any:
    """Merge without being associative or commutative: the result is the whole history."""
    return (left, right)


def partial(leaves: list[int]) -> Nodes[Any]:
    nodes: Nodes[Any] = Nodes()
    for leaf in leaves:
        grow(nodes, (0, leaf), str(leaf), pair)
    return nodes


def reference(count: int, holes: frozenset[int] = frozenset()) -> Any:
    """Say what the tree should give: maximal aligned subtrees, folded from the left."""

    def full(first: int, size: int) -> Any:
        if size == 1:
            return None if first in holes else str(first)
        left, right = full(first, size // 2), full(first + size // 2, size // 2)
        return right if left is None else left if right is None else (left, right)

    total, first = None, 0
    while first < count:
        size = 1 << ((count - first).bit_length() - 1)
        part = full(first, size)
        if part is not None:
            total = part if total is None else (total, part)
        first += size
    return total


def leaf_names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else leaf_names(value[0]) + leaf_names(value[1])


def test_seven_leaves_are_added_as_the_docstring_says() -> None:
    zero_to_three = (("0", "1"), ("2", "3"))
    assert collapse(partial(list(range(7))), 7, pair) == ((zero_to_three, ("4", "5")), "6")


@pytest.mark.parametrize("count", range(20))
def test_growing_in_order_gives_the_reference(count: int) -> None:
    assert collapse(partial(list(range(count))), count, pair) == reference(count)


@given(st.data(), st.integers(1, 40))
def test_any_split_in_any_order_gives_the_same(data: st.DataObject, count: int) -> None:
    holes = data.draw(st.frozensets(st.integers(0, count - 1), max_size=count))
    leaves = data.draw(st.permutations([leaf for leaf in range(count) if leaf not in holes]))
    owners = data.draw(st.lists(st.integers(0, 3), min_size=len(leaves), max_size=len(leaves)))
    parts = [
        partial([leaf for leaf, owner in zip(leaves, owners, strict=True) if owner == worker]) for worker in range(4)
    ]
    first_two = join(parts[:2], pair)
    united = join([parts[3], first_two, parts[2]], pair)
    result = collapse(united, count, pair)
    assert result == reference(count, holes)
    if result is not None:
        present = [str(leaf) for leaf in range(count) if leaf not in holes]
        assert leaf_names(result) == present


def test_joining_leaves_the_parts_as_they_were() -> None:
    left, right = partial([0, 2]), partial([1])
    before = dict(left.values), dict(right.values)
    united = join([left, right], pair)
    assert (left.values, right.values) == before
    assert united.values == {(1, 0): ("0", "1"), (0, 2): "2"}
    assert len(united) == 2


def test_only_complete_aligned_subtrees_are_merged_on_the_way() -> None:
    # 1 and 2 are neighbours but not siblings.
    assert partial([1, 2]).values == {(0, 1): "1", (0, 2): "2"}
    assert partial([3, 2, 1, 0]).values == {(2, 0): (("0", "1"), ("2", "3"))}


def test_nothing_collapses_to_none() -> None:
    assert collapse(Nodes[Any](), 0, pair) is None
    assert collapse(Nodes[Any](), 5, pair) is None
