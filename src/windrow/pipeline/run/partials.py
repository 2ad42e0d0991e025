"""Partials that reached the driver: united per input as they come, so that they stay few, taken apart, and packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.chunk import Partial
from windrow.blocks.cutflow_counts import is_end
from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.tree import Nodes, collapse, grow, join
from windrow.core.intervals import Intervals
from windrow.pipeline.definition.definition import Product
from windrow.store.spill import pieces_of, thing_of

if TYPE_CHECKING:
    from windrow.core.records import Handle, Rows
    from windrow.pipeline.definition.steps import StepDefinition
    from windrow.pipeline.resume.journal_writer import JournalWriter


#: Partials of one input that wait until they are united: most are small, and each uniting looks at all nodes.
WAITING = 8


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
    """Partials of one input of the scheduler, as one, with the rows they are of."""

    __slots__ = ("_waiting", "rows")

    def __init__(self) -> None:
        self.rows = Intervals()
        self._waiting: list[Partial] = []

    def add(self, rows: tuple[Rows, ...], partial: Partial) -> None:
        for _, start, stop in rows:
            self.rows.add(start, stop)
        self._waiting.append(partial)
        if len(self._waiting) >= WAITING:
            self.whole()

    def whole(self) -> Partial:
        if len(self._waiting) > 1:
            self._waiting = [unite(self._waiting)]
        return self._waiting[0]


class PartialCollector:
    """The collector of a run: one united partial for each input of the scheduler.

    Where the run is written down there may be two: rows that are not written down stay apart, as sums cannot be taken
    apart.
    """

    def __init__(self, journal: JournalWriter | None = None) -> None:
        self._journal = journal
        self._united: dict[tuple[int, bool], UnitedPartial] = {}  #: by input, and whether it is written down

    def add(self, handle: Handle, partial: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        number = about[0].input
        written = self._journal is not None and self._journal.takes(about)
        united = self._united.setdefault((number, written), UnitedPartial())
        united.add(about, partial)
        if self._journal is not None and written:
            self._journal.changed(number, united)

    def partials(self) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for (number, _), united in sorted(self._united.items(), key=lambda one: one[0]):
            found.setdefault(number, []).append(united.whole())
        return found


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
    # Bytes that can be written to, as arrays may be changed by a merge in place. The file was found to be ours alone.
    plain, kept = thing_of(bytearray(content))
    nodes: Nodes[Leaf] = Nodes()
    nodes.values = {node: with_merges(leaf, steps) for node, leaf in plain.items()}
    return Partial(input, nodes, (), kept)
