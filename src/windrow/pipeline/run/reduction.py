"""Results added up at the driver as they come: units of an input, then inputs of a dataset, few large ones in memory.

An input is collapsed as soon as all of its rows are there, and is added to its neighbour as soon as that is there too. It is
the same tree, with the same sums, as if all had waited for the end. Not for a run that is written down or looked at while
it goes on: there each input stays by itself (``PartialCollector``).
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from windrow.blocks.outputs import Leaf, merge_leaves
from windrow.blocks.tree import Nodes, collapse, grow
from windrow.pipeline.run.partials import with_merges, without_merges
from windrow.shape import reduce
from windrow.store.spill import Aside, pieces_of
from windrow.units import format_bytes

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial
    from windrow.core.ledger import Ledger
    from windrow.core.records import Handle
    from windrow.pipeline.definition.steps import StepDefinition
    from windrow.pipeline.run.workload import PipelineWorkload


class Held:
    """A leaf of the tree that is in memory, or was put aside."""

    __slots__ = ("bytes", "what")

    def __init__(self, leaf: Leaf) -> None:
        self.what: Any = leaf  #: or an ``Aside``
        self.bytes = leaf.nbytes  #: in memory; 0 also where it cannot be put aside

    def take(self, steps: Mapping[str, StepDefinition]) -> Leaf:
        """Give the leaf, which is not held any more."""
        what, self.what = self.what, None
        leaf: Leaf = with_merges(what.read(), steps) if isinstance(what, Aside) else what
        return leaf

    def put_aside(self, directory: str) -> int:
        """Put the leaf aside; return how many bytes that are, 0 if it has to stay."""
        self.bytes = 0
        try:
            pieces = pieces_of(without_merges(self.what))
        except Exception:  # noqa: BLE001 - whatever a user's object raises
            return 0
        self.what = aside = Aside(pieces, directory)
        return aside.bytes


class ReducingCollector:
    """The collector of a run that nobody looks into before its end."""

    def __init__(self, workload: PipelineWorkload, ledger: Ledger) -> None:
        self.bytes = 0  #: of leaves in memory
        self.times = self.aside = 0  #: how often leaves were put aside, and how many bytes in all
        # Not where it would be memory again, as /tmp is on many machines.
        self.directory = os.environ.get("TMPDIR") or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else gettempdir())  # noqa: S108
        self._borders, self._steps, self._ledger = workload.facts.borders, workload.definition.steps, ledger
        #: by input: rows that came, nodes until it is collapsed, and what is no sum: rows of regions and for files
        self._rows: Counter[int] = Counter()
        self._nodes: defaultdict[int, Nodes[Held]] = defaultdict(Nodes)
        self._parts: defaultdict[int, list[Partial]] = defaultdict(list)
        self._trees: dict[str, Nodes[Held]] = {dataset: Nodes() for dataset in workload.source.datasets}
        self._counts: Counter[str] = Counter()
        self._places: dict[int, tuple[str, int]] = {}  #: by input: its dataset, and which of its inputs it is
        for item in workload.source.inputs:
            self._places[item.index] = item.dataset, self._counts[item.dataset]
            self._counts[item.dataset] += 1

    def add(self, handle: Handle, partial: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        for number, start, stop in about:
            self._rows[number] += stop - start
        self._grow(self._trees[self._places[partial.input][0]], partial.inputs)
        for one in (partial, *partial.others):
            self._parts[one.input].append(one)
            self._grow(self._nodes[one.input], one.nodes)
            book = self._ledger.books[one.input]
            if self._rows[one.input] == book.done and book.done + book.failed.total == book.everything.total:
                self._collapse(one.input)
        self._trim()

    def partials(self) -> dict[int, list[Any]]:
        """Add up what there is of inputs that will not be complete; give what is no sum."""
        for number in sorted(self._nodes):
            self._collapse(number)
            self._trim()
        return dict(sorted(self._parts.items()))

    def leaf(self, dataset: str) -> Leaf | None:
        """Give what all inputs of a dataset add up to, once."""
        held = collapse(self._trees.pop(dataset), self._counts[dataset], self._merge)
        return None if held is None else self._take(held)

    def said(self) -> list[str]:
        said = f"reduction: {format_bytes(self.aside)} of results ({self.times:,} of them) were put aside in {self.directory}"
        return [f"{said}, as at most {reduce.IN_MEMORY} large ones are kept in memory"] if self.times else []

    def _hold(self, leaf: Leaf) -> Held:
        held = Held(leaf)
        self.bytes += held.bytes
        return held

    def _take(self, held: Held) -> Leaf:
        self.bytes -= held.bytes
        return held.take(self._steps)

    def _merge(self, left: Held, right: Held) -> Held:
        return self._hold(merge_leaves(self._take(left), self._take(right)))

    def _grow(self, tree: Nodes[Held], nodes: Nodes[Leaf]) -> None:
        for node in list(nodes.values):
            grow(tree, node, self._hold(nodes.values.pop(node)), self._merge)

    def _collapse(self, number: int) -> None:
        # The tree has as many leaves as units are asked for, whatever became of them.
        units = bisect_left(self._borders[number], self._ledger.last_row(number))
        held = collapse(self._nodes.pop(number), units, self._merge)
        if held is not None:
            dataset, place = self._places[number]
            grow(self._trees[dataset], (0, place), held, self._merge)

    def _trim(self) -> None:
        """Put aside what is too much for memory."""
        if self.bytes <= reduce.SMALL_BYTES:
            return
        found = [(0, held) for nodes in self._nodes.values() for held in nodes.values.values()]
        found += [(level + 1, held) for tree in self._trees.values() for (level, _), held in tree.values.items()]
        for chosen in reduce.put_aside([(level, held.bytes) for level, held in found]):
            held = found[chosen][1]
            self.bytes -= held.bytes
            size = held.put_aside(self.directory)
            self.times, self.aside = self.times + (size > 0), self.aside + size
