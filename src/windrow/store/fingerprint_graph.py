"""The digest of a thing that consists of things: of a graph that may share parts and go in circles.

Two graphs have the same digest exactly if walking through them looks the same: whether two equal parts are one object or
two does not matter, nor in which order parts were found. Parts outside circles are digested from the bottom up. The
others are told apart round by round by what they lead to, until a round tells nothing new (partition refinement:
E. F. Moore, "Gedanken-experiments on sequential machines", 1956).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b


class Order(IntEnum):
    """Whether the children of a node are a sequence."""

    AS_IT_IS = 0
    NONE = 1  #: a set
    NONE_OF_PAIRS = 2  #: a mapping whose order does not count: key, value, key, value


@dataclass(slots=True)
class Node:
    """One thing: what it is by itself, and the things it consists of."""

    label: bytes = b""
    children: list[bytes | int] = field(default_factory=list)  #: the bytes of a plain value, or the number of a node
    order: Order = Order.AS_IT_IS


def digest(*pieces: bytes) -> bytes:
    """Return a digest of a sequence of byte strings; where one ends is part of it."""
    lengths = b"%r" % [len(piece) for piece in pieces]
    return blake2b(b"".join((lengths, *pieces)), digest_size=16).digest()


def digests(nodes: list[Node]) -> list[bytes]:
    """Return the digest of each node with all that it leads to."""
    found: list[bytes | None] = [None] * len(nodes)
    waiting = [0] * len(nodes)
    parents: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes):
        inside = {child for child in node.children if isinstance(child, int)}
        waiting[number] = len(inside)
        for child in inside:
            parents[child].append(number)
    ready = [number for number, count in enumerate(waiting) if not count]
    while ready:
        number = ready.pop()
        found[number] = _one(nodes[number], found)
        for parent in parents[number]:
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    circular = [number for number, count in enumerate(waiting) if count]
    if circular:
        _refine(nodes, circular, found)
    return [one if one is not None else b"" for one in found]


def _refine(nodes: list[Node], circular: list[int], found: list[bytes | None]) -> None:
    for number in circular:
        found[number] = digest(b"circular", nodes[number].label)
    kinds = len({found[number] for number in circular})
    while True:
        after = {number: _one(nodes[number], found) for number in circular}
        more = len(set(after.values()))
        if more == kinds:
            break
        kinds = more
        for number in circular:
            found[number] = after[number]
    # What each kind leads to, in terms of kinds: all of the graph, and not only as deep as it was looked into.
    described = digest(*sorted({digest(found[number] or b"", after[number]) for number in circular}))
    for number in circular:
        found[number] = digest(b"in circles", after[number], described)


def _one(node: Node, found: list[bytes | None]) -> bytes:
    pieces = [b"=" + child if isinstance(child, bytes) else b">" + (found[child] or b"") for child in node.children]
    if node.order is Order.NONE:
        pieces.sort()
    elif node.order is Order.NONE_OF_PAIRS:
        pieces = [piece for pair in sorted(zip(pieces[::2], pieces[1::2], strict=True)) for piece in pair]
    return digest(node.label, b"%d" % node.order, *pieces)
