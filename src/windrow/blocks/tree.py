"""Partials and the fixed tree in which they are merged, so that sums of floats never depend on chunking or workers.

The units of one input are the leaves 0..n-1 of a binary tree; node (level, k) covers the leaves [k * 2**level,
(k + 1) * 2**level). A worker that holds both children of a node may merge them; nothing else is ever merged before the end.
At the end an input of n units is the left fold of its maximal aligned subtrees (n = 7: ((0-3) + (4-5)) + 6), and inputs
of a dataset are combined in the same way by their index. A missing leaf (a skipped unit) is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

Node = tuple[int, int]  # (level, k)


class Nodes(Generic[T]):
    """A set of disjoint nodes of one tree with their values."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: dict[Node, T] = {}

    def __len__(self) -> int:
        return len(self.values)


def grow(nodes: Nodes[T], node: Node, value: T, merge: Callable[[T, T], T]) -> None:
    """Add one node and merge upwards as far as siblings are there."""
    values = nodes.values
    level, k = node
    while True:
        sibling = values.pop((level, k ^ 1), None)
        if sibling is None:
            values[level, k] = value
            return
        value = merge(value, sibling) if k % 2 == 0 else merge(sibling, value)
        level, k = level + 1, k >> 1


def join(parts: Iterable[Nodes[T]], merge: Callable[[T, T], T]) -> Nodes[T]:
    united: Nodes[T] = Nodes()
    for part in parts:
        for node, value in part.values.items():
            grow(united, node, value, merge)
    return united


def collapse(nodes: Nodes[T], leaves: int, merge: Callable[[T, T], T]) -> T | None:
    """Combine what there is of a tree with ``leaves`` leaves; None if there is nothing."""
    total: T | None = None
    first = 0
    for level in range(leaves.bit_length() - 1, -1, -1):
        if leaves >> level & 1:
            part = _subtree(nodes, level, first >> level, merge)
            if part is not None:
                total = part if total is None else merge(total, part)
            first += 1 << level
    return total


def _subtree(nodes: Nodes[T], level: int, k: int, merge: Callable[[T, T], T]) -> T | None:
    value = nodes.values.get((level, k))
    if value is not None or level == 0:
        return value
    left = _subtree(nodes, level - 1, 2 * k, merge)
    right = _subtree(nodes, level - 1, 2 * k + 1, merge)
    if left is None or right is None:
        return right if left is None else left
    return merge(left, right)
