"""Partials that reached the driver: united per input as they come, so that they stay few, taken apart, and packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from io import BytesIO
from typing import TYPE_CHECKING, TypeVar

from windrow.blocks.chunk import Partial
from windrow.blocks.cutflow_counts import is_end
from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.selection import RowSet
from windrow.blocks.tree import Nodes, collapse, grow, join
from windrow.core.intervals import Intervals
from windrow.core.records import Window
from windrow.pipeline.definition.definition import Product
from windrow.store.spill import pieces_of, thing_of

if TYPE_CHECKING:
    from windrow.blocks.fragments import SavedPart
    from windrow.core.records import Rows
    from windrow.pipeline.definition.steps import StepDefinition
    from windrow.pipeline.run.reduction import Held, HeldLeaves

Record = TypeVar("Record", RowSet, Window)


def unite_inputs(partials: Sequence[Partial], whole: Mapping[int, tuple[int, int]]) -> Partial:
    """Make one partial of several of a family; ``whole``: places and units of the inputs that these are all of."""
    by_input: dict[int, list[Partial]] = {}
    for partial in partials:
        for one in (partial, *partial.others):
            by_input.setdefault(one.input, []).append(one)
    united = [unite(mine) for mine in by_input.values()]
    inputs = join([partial.inputs for partial in partials], merge_leaves)
    for one in united:
        place, units = whole.get(one.input, (0, 0))
        leaf = collapse(one.nodes, units, merge_leaves)
        if leaf is not None:
            one.nodes = Nodes()
            grow(inputs, (0, place), leaf, merge_leaves)
    return replace(united[0], others=tuple(united[1:]), inputs=inputs)


def unite(partials: Sequence[Partial]) -> Partial:
    """Make one partial of several of one input; only complete aligned subtrees are added up."""
    nodes = join([partial.nodes for partial in partials], merge_leaves)
    fragments = tuple(part for partial in partials for part in partial.fragments)
    kept = tuple(rows for partial in partials for rows in partial.kept)
    return Partial(partials[0].input, nodes, fragments, kept)


class UnitedPartial:
    """Partials of one input of the scheduler, as one, with the rows they are of; the leaves are held elsewhere."""

    __slots__ = ("_leaves", "fragments", "input", "kept", "nodes", "rows")

    def __init__(self, leaves: HeldLeaves) -> None:
        self.input = 0
        self.rows = Intervals()
        self.nodes: Nodes[Held] = Nodes()
        self.fragments: list[SavedPart] = []
        self.kept: list[tuple[str, RowSet]] = []
        self._leaves = leaves

    def add(self, rows: tuple[Rows, ...], partial: Partial) -> None:
        """Add a partial, whose nodes go over."""
        for _, start, stop in rows:
            self.rows.add(start, stop)
        self.input = partial.input
        self._leaves.grow(self.nodes, partial.nodes)
        self.fragments += partial.fragments
        self.kept += [(region, with_own_memory(kept)) for region, kept in partial.kept]

    def whole(self) -> Partial:
        """Give all of it; what was put aside is read, and is not kept in memory here."""
        nodes: Nodes[Leaf] = Nodes()
        nodes.values = {node: self._leaves.look(held) for node, held in self.nodes.values.items()}
        return Partial(self.input, nodes, tuple(self.fragments), tuple(self.kept))


def with_own_memory(record: Record) -> Record:
    """Copy the arrays of a small record that came along with large ones: as views they would keep the memory of all."""
    found = {one.name: getattr(record, one.name) for one in fields(record)}
    views = {name: value.copy() for name, value in found.items() if getattr(value, "base", None) is not None}
    return replace(record, **views) if views else record


def project(partial: Partial, products: frozenset[Product]) -> Partial:
    regions = {product.region for product in products if product.kind == "cutflow"}
    ends = Product("ends") in products
    nodes: Nodes[Leaf] = Nodes()
    for node, leaf in partial.nodes.values.items():
        nodes.values[node] = Leaf(
            {key: value for key, value in leaf.outputs.items() if Product("output", *key[:2]) in products},
            {key: lines for key, lines in leaf.counts.items() if key[1] in regions or (ends and is_end(key[1]))},
            leaf.given_up if ends else {},
            # Windows are looked at with the eyes of each region, so one region is enough to need them whole.
            leaf.windows if regions else (),
        )
    kept = tuple((region, rows) for region, rows in partial.kept if region in regions)
    fragments = partial.fragments if any(product.kind == "save" for product in products) else ()
    return replace(partial, nodes=nodes, kept=kept, fragments=fragments)


def without_merges(leaf: Leaf) -> Leaf:
    """The leaf without what says how to merge, which is the analysis' own and may be a lambda: that cannot be pickled."""
    return replace(leaf, outputs={key: Value(value.value, None) for key, value in leaf.outputs.items()})


def with_merges(leaf: Leaf, steps: Mapping[str, StepDefinition]) -> Leaf:
    for key, value in leaf.outputs.items():
        value.merge = steps[key[0]].merge if key[0] in steps else None
    return leaf


def pack(partial: Partial, products: frozenset[Product]) -> list[bytes | memoryview]:
    mine = project(partial, products)
    plain = {node: without_merges(leaf) for node, leaf in mine.nodes.values.items()}
    return pieces_of((plain, mine.kept))


def unpack(content: bytes, input: int, steps: Mapping[str, StepDefinition]) -> Partial:  # noqa: A002 - the word of the house
    """Make a partial of bytes again; outputs are merged as the analysis says now."""
    # The file was found to be ours alone.
    plain, kept = thing_of(BytesIO(content))
    nodes: Nodes[Leaf] = Nodes()
    nodes.values = {node: with_merges(leaf, steps) for node, leaf in plain.items()}
    return Partial(input, nodes, (), kept)
