"""Partials that reached the driver: united per input as they come, so that they stay few, and written down if asked.

What is written down is a merged partial with its rows for each heap of an input of the scheduler; a later one takes the
place of the one before. There are several heaps where some rows are of no use to a later run, as sums cannot be taken apart.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.chunk import Partial
from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.tree import Nodes, join
from windrow.core.intervals import Intervals
from windrow.pipeline.projecting import project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.core.records import Handle, Rows
    from windrow.pipeline.products import Product
    from windrow.pipeline.steps import StepDefinition


#: Partials of one input that wait until they are united: most are small, and each uniting looks at all nodes.
WAITING = 8


def unite(partials: Sequence[Partial]) -> Partial:
    """Make one partial of several of one input; only complete aligned subtrees are added up."""
    nodes = join([partial.nodes for partial in partials], merge_leaves)
    fragments = tuple(part for partial in partials for part in partial.fragments)
    kept = tuple(rows for partial in partials for rows in partial.kept)
    return Partial(partials[0].input, nodes, fragments, kept)


class Heap:
    """What is there of one input of the scheduler."""

    __slots__ = ("_waiting", "rows")

    def __init__(self) -> None:
        self.rows = Intervals()
        self._waiting: list[Partial] = []

    def add(self, rows: tuple[Rows, ...], partial: Partial) -> None:
        """Put a partial to the others."""
        for _, start, stop in rows:
            self.rows.add(start, stop)
        self._waiting.append(partial)
        if len(self._waiting) >= WAITING:
            self.whole()

    def whole(self) -> Partial:
        """Unite everything."""
        if len(self._waiting) > 1:
            self._waiting = [unite(self._waiting)]
        return self._waiting[0]


class Heaps:
    """What is there of one input of the scheduler, on heaps that are kept apart."""

    __slots__ = ("_named",)

    def __init__(self) -> None:
        self._named: dict[str, Heap] = {}

    def add(self, name: str, rows: tuple[Rows, ...], partial: Partial) -> Heap:
        """Put a partial on one of the heaps, and return that."""
        heap = self._named.setdefault(name, Heap())
        heap.add(rows, partial)
        return heap

    def all(self) -> list[Partial]:
        """Give one partial for each heap."""
        return [heap.whole() for _, heap in sorted(self._named.items())]


class Collecting:
    """The collector of a pipeline's run; ``put`` chooses a heap for a partial and adds it there, else all go on one."""

    def __init__(self, put: Callable[[tuple[Rows, ...], Partial, Heaps], None] | None = None) -> None:
        self._heaps: dict[int, Heaps] = {}
        self._put = put

    def add(self, handle: Handle, partial: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        """Take a partial over; it is about rows."""
        heaps = self._heaps.setdefault(about[0].input, Heaps())
        if self._put is None:
            heaps.add("", about, partial)
        else:
            self._put(about, partial, heaps)

    def partials(self) -> dict[int, list[Any]]:
        """Give what there is of each input of the scheduler."""
        return {number: heaps.all() for number, heaps in sorted(self._heaps.items())}


def pack(partial: Partial, products: frozenset[Product]) -> list[bytes | memoryview]:
    """Make bytes of what belongs to some products; large arrays are not copied."""
    mine = project(partial, products)
    plain: dict[Any, Leaf] = {}
    for node, leaf in mine.nodes.values.items():
        # How to merge is the analysis' own; it may be a lambda, which cannot be pickled.
        outputs = {key: Value(value.value, None) for key, value in leaf.outputs.items()}
        plain[node] = replace(leaf, outputs=outputs)
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps((plain, mine.kept), protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = pickle.dumps((len(head), [len(part) for part in raw]))
    return [len(sizes).to_bytes(8, "little"), sizes, head, *raw]


def unpack(content: bytes, input: int, steps: Mapping[str, StepDefinition]) -> Partial:  # noqa: A002 - the word of the house
    """Make a partial of bytes again; outputs are merged as the analysis says now."""
    begin = 8 + int.from_bytes(content[:8], "little")
    head, sizes = pickle.loads(content[8:begin])  # noqa: S301 - the file was found to be ours alone
    view = memoryview(bytearray(content))  # arrays may be changed by a merge in place
    buffers, place = [], begin + head
    for size in sizes:
        buffers.append(view[place : place + size])
        place += size
    plain, kept = pickle.loads(view[begin : begin + head], buffers=buffers)  # noqa: S301 - ours alone
    nodes: Nodes[Leaf] = Nodes()
    for node, leaf in plain.items():
        for key, value in leaf.outputs.items():
            value.merge = steps[key[0]].merge if key[0] in steps else None
        nodes.values[node] = leaf
    return Partial(input, nodes, (), kept)
