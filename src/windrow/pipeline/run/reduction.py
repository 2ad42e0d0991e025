"""Results added up at the driver as they come: units of an input, then inputs of a dataset, few large ones in memory.

An input is collapsed as soon as all of its rows are there, and is added to its neighbour as soon as that is there too. It is
the same tree, with the same sums, as if all had waited for the end. Not for a run that is written down or looked at while
it goes on: there each input stays by itself (``PartialCollector``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.chunk import Partial
from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.tree import Nodes, collapse, grow
from windrow.shape import reduce
from windrow.store.spill import Aside, directory_for_much, pieces_of
from windrow.units import format_bytes

if TYPE_CHECKING:
    from windrow.core.ledger import Ledger
    from windrow.core.records import Handle
    from windrow.data.base import Source
    from windrow.pipeline.definition.steps import StepDefinition


class Held:
    """A leaf of the tree that is in memory or was put aside."""

    __slots__ = ("aside", "bytes", "leaf")

    def __init__(self, leaf: Leaf) -> None:
        self.leaf: Leaf | None = leaf
        self.bytes = leaf.nbytes  #: 0 where it cannot be put aside
        self.aside: Aside | None = None


class Leaves:
    """What the driver holds: merging two of them uses both up."""

    def __init__(self, steps: Mapping[str, StepDefinition]) -> None:
        self.bytes = 0  #: in memory
        self.put_aside = self.put_aside_bytes = 0  #: how often, and how much in all
        self.directory = directory_for_much()
        self._steps = steps

    def hold(self, leaf: Leaf) -> Held:
        held = Held(leaf)
        self.bytes += held.bytes
        return held

    def merge(self, left: Held, right: Held) -> Held:
        return self.hold(merge_leaves(self.take(left), self.take(right)))

    def take(self, held: Held) -> Leaf:
        """Give a leaf that is not held any more."""
        leaf, held.leaf = held.leaf, None
        if leaf is not None:
            self.bytes -= held.bytes
            return leaf
        assert held.aside is not None
        read: Leaf = held.aside.read()
        held.aside = None
        for key, value in read.outputs.items():
            value.merge = self._steps[key[0]].merge
        return read

    def set_aside(self, held: Held) -> None:
        assert held.leaf is not None
        # How to merge is the analysis' own; it may be a lambda, which cannot be pickled.
        outputs = {key: Value(value.value, None) for key, value in held.leaf.outputs.items()}
        self.bytes -= held.bytes
        try:
            pieces = pieces_of(replace(held.leaf, outputs=outputs))
        except Exception:  # noqa: BLE001 - whatever a user's object raises: it has to stay
            held.bytes = 0
            return
        held.aside = Aside(pieces, self.directory)
        held.leaf = None
        self.put_aside += 1
        self.put_aside_bytes += held.aside.bytes


class InputSum:
    """What there is of one input that is not complete yet."""

    __slots__ = ("nodes", "parts", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self.nodes: Nodes[Held] = Nodes()
        self.parts: list[Partial] = []  #: without their nodes: rows of regions, rows for files


class ReducingCollector:
    """The collector of a run that nobody looks into before its end."""

    def __init__(
        self,
        source: Source,
        ledger: Ledger,
        borders: Callable[[], Mapping[int, tuple[int, ...]]],
        steps: Mapping[str, StepDefinition],
    ) -> None:
        self.leaves = Leaves(steps)
        self._ledger, self._borders = ledger, borders
        self._inputs: dict[int, InputSum] = {}
        self._trees: dict[str, Nodes[Held]] = {dataset: Nodes() for dataset in source.datasets}
        self._counts = dict.fromkeys(source.datasets, 0)
        self._places: dict[int, tuple[str, int]] = {}  #: by input: its dataset, and which of its inputs it is
        for item in source.inputs:
            self._places[item.index] = item.dataset, self._counts[item.dataset]
            self._counts[item.dataset] += 1

    def add(self, handle: Handle, partial: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        for number, start, stop in about:
            self._inputs.setdefault(number, InputSum()).rows += stop - start
        self._grow(self._trees[self._places[partial.input][0]], partial.inputs)
        for one in (partial, *partial.others):
            mine, book = self._inputs[one.input], self._ledger.books[one.input]
            mine.parts.append(one)
            self._grow(mine.nodes, one.nodes)
            if mine.rows == book.done and book.done + book.failed.total == book.everything.total:
                self._collapse(one.input)
        self._trim()

    def _grow(self, tree: Nodes[Held], nodes: Nodes[Leaf]) -> None:
        for node in list(nodes.values):
            grow(tree, node, self.leaves.hold(nodes.values.pop(node)), self.leaves.merge)

    def partials(self) -> dict[int, list[Any]]:
        """Add up what there is of all inputs, which are as complete as they will ever be; give what is no sum."""
        for number in sorted(self._inputs):
            self._collapse(number)
            self._trim()
        return {
            number: [
                Partial(
                    number,
                    fragments=tuple(one for part in mine.parts for one in part.fragments),
                    kept=tuple(one for part in mine.parts for one in part.kept),
                )
            ]
            for number, mine in sorted(self._inputs.items())
        }

    def leaf(self, dataset: str) -> Leaf | None:
        """Give what all inputs of a dataset add up to, once."""
        held = collapse(self._trees[dataset], self._counts[dataset], self.leaves.merge)
        self._trees[dataset] = Nodes()
        return None if held is None else self.leaves.take(held)

    def said(self) -> list[str]:
        leaves = self.leaves
        if not leaves.put_aside:
            return []
        amount, most = format_bytes(leaves.put_aside_bytes), reduce.IN_MEMORY
        said = f"reduction: results were put aside on disk {leaves.put_aside:,} times ({amount} in {leaves.directory}), as at "
        return [f"{said}most {most} large ones are kept in memory"]

    def _collapse(self, number: int) -> None:
        nodes, self._inputs[number].nodes = self._inputs[number].nodes, Nodes()
        if nodes.values:
            # The tree has as many leaves as units are asked for, whatever became of them.
            units = bisect_left(self._borders()[number], self._ledger.last_row(number))
            held = collapse(nodes, units, self.leaves.merge)
            if held is not None:
                dataset, place = self._places[number]
                grow(self._trees[dataset], (0, place), held, self.leaves.merge)

    def _trim(self) -> None:
        """Put aside what is too much for memory."""
        if self.leaves.bytes <= reduce.SMALL_BYTES:
            return
        found = [(0, held) for mine in self._inputs.values() for held in mine.nodes.values.values()]
        found += [(level + 1, held) for tree in self._trees.values() for (level, _), held in tree.values.items()]
        found = [(level, held) for level, held in found if held.leaf is not None]
        for chosen in reduce.put_aside([(level, held.bytes) for level, held in found]):
            self.leaves.set_aside(found[chosen][1])
