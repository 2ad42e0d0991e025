"""Results at the driver: held so that few large ones are in memory, and added up as they come.

Where nobody looks before the end, an input is collapsed as soon as all of its rows are there, and is added to its neighbour as
soon as that is there too. It is the same tree, with the same sums, as if all had waited for the end. In a run that is written
down or looked at while it goes on each input stays by itself, and all are added up one by one when that is asked for.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from math import inf
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from windrow.blocks.outputs import Leaf, merge_leaves
from windrow.blocks.tree import Node, Nodes, collapse, grow
from windrow.pipeline.run.partials import UnitedPartial, with_merges, with_own_memory, without_merges
from windrow.shape import reduce
from windrow.store.spill import Aside, SpillFile, pieces_of
from windrow.units import format_bytes

if TYPE_CHECKING:
    from windrow.core.ledger import Ledger
    from windrow.core.records import Handle
    from windrow.data.base import Source
    from windrow.pipeline.definition.steps import StepDefinition
    from windrow.pipeline.resume.journal_writer import JournalWriter
    from windrow.pipeline.run.workload import PipelineWorkload


class Held:
    """A leaf of a tree that is in memory, or was put aside."""

    __slots__ = ("bytes", "level", "what")

    def __init__(self, leaf: Leaf, level: float) -> None:
        self.what: Any = leaf  #: or an ``Aside``
        #: in the tree over inputs, from 1; of an input 0, or ``inf`` where inputs are added up at the end
        self.level = level
        self.bytes = leaf.nbytes  #: in memory; 0 also where it cannot be put aside


class HeldLeaves:
    """Leaves that the driver has; of large ones few are in memory, and the others on disk."""

    def __init__(self, steps: Mapping[str, StepDefinition], level: float = inf) -> None:
        self.bytes = 0  #: of leaves in memory
        self.times = self.aside = 0  #: how often leaves were put aside, and how many bytes in all
        # Not where it would be memory again, as /tmp is on many machines.
        self.directory = os.environ.get("TMPDIR") or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else gettempdir())  # noqa: S108
        self._steps, self._level = steps, level  #: of inputs
        self._file = SpillFile(self.directory)
        self._largest = 0
        #: by level, those in memory that can be put aside, in the order they came
        self._in_memory: dict[float, dict[Held, None]] = {}

    def hold(self, leaf: Leaf, level: float) -> Held:
        held = Held(leaf, level)
        if held.bytes:
            leaf.windows = tuple(map(with_own_memory, leaf.windows))
            self._in_memory.setdefault(level, {})[held] = None
            self.bytes += held.bytes
            self._largest = max(self._largest, held.bytes)
        return held

    def look(self, held: Held) -> Leaf:
        """Give a leaf that goes on being held; one that was put aside is read, and is not kept in memory."""
        what = held.what
        leaf: Leaf = with_merges(what.read(), self._steps) if isinstance(what, Aside) else what
        return leaf

    def take(self, held: Held) -> Leaf:
        """Give a leaf, which is not held any more."""
        leaf = self.look(held)
        self._count_out(held)
        held.what = None
        return leaf

    def merge(self, left: Held, right: Held) -> Held:
        return self.hold(merge_leaves(self.take(left), self.take(right)), left.level and left.level + 1)

    def grow(self, tree: Nodes[Held], nodes: Nodes[Leaf]) -> None:
        """Move the nodes of an input to its tree."""
        for node in list(nodes.values):
            grow(tree, node, self.hold(nodes.values.pop(node), self._level), self.merge)

    def trim(self) -> None:
        """Put aside what is too much for memory: what is high in the tree is needed last, and among equals what came first."""
        while self.bytes > reduce.most_in_memory(self._largest):
            held = next(iter(self._in_memory[max(self._in_memory)]))
            self._count_out(held)
            try:
                pieces = pieces_of(without_merges(held.what))
            except Exception:  # noqa: BLE001, S112 - whatever a user's object raises: it has to stay
                continue
            held.what = aside = self._file.put(pieces)
            self.times, self.aside = self.times + 1, self.aside + aside.bytes

    def said(self) -> list[str]:
        said = f"reduction: {format_bytes(self.aside)} of results ({self.times:,} of them) were put aside in {self.directory}"
        return [f"{said}, as at most {reduce.IN_MEMORY} large ones are kept in memory"] if self.times else []

    def _count_out(self, held: Held) -> None:
        if held.bytes:
            self.bytes -= held.bytes
            held.bytes = 0
            peers = self._in_memory[held.level]
            del peers[held]
            if not peers:
                del self._in_memory[held.level]


class DatasetSums:
    """What the inputs of each dataset add up to, as they become known."""

    def __init__(self, source: Source, leaves: HeldLeaves) -> None:
        self._leaves = leaves
        self._trees: dict[str, Nodes[Held]] = {dataset: Nodes() for dataset in source.datasets}
        self._counts: Counter[str] = Counter()
        self._places: dict[int, tuple[str, int]] = {}  #: by input: its dataset, and which of its inputs it is
        for item in source.inputs:
            self._places[item.index] = item.dataset, self._counts[item.dataset]
            self._counts[item.dataset] += 1

    def add(self, number: int, held: Held, node: Node | None = None) -> None:
        """Add what an input has; or a node of the tree over the inputs of its dataset."""
        dataset, place = self._places[number]
        grow(self._trees[dataset], node or (0, place), held, self._leaves.merge)

    def total(self, dataset: str) -> Leaf:
        """Give what all inputs of a dataset add up to, once."""
        held = collapse(self._trees.pop(dataset), self._counts[dataset], self._leaves.merge)
        return Leaf({}, {}) if held is None else self._leaves.take(held)


class PartialCollector:
    """The collector of a run that is written down or looked at: one united partial for each input of the scheduler.

    Where the run is written down there may be two: rows that are not written down stay apart, as sums cannot be taken
    apart.
    """

    def __init__(self, leaves: HeldLeaves, journal: JournalWriter | None = None) -> None:
        self._leaves, self._journal = leaves, journal
        self._united: dict[tuple[int, bool], UnitedPartial] = {}  #: by input, and whether it is written down

    def add(self, handle: Handle, partial: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        number = about[0].input
        journal = self._journal if self._journal is not None and self._journal.takes(about) else None
        united = self._united.setdefault((number, journal is not None), UnitedPartial(self._leaves))
        if journal is not None:
            journal.changing(number)
        united.add(about, partial)
        if journal is not None:
            journal.changed(number, united)
        self._leaves.trim()

    def partials(self) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        for (number, _), united in sorted(self._united.items(), key=lambda one: one[0]):
            found.setdefault(number, []).append(united)
        return found


class ReducingCollector:
    """The collector of a run that nobody looks into before its end."""

    def __init__(self, workload: PipelineWorkload, ledger: Ledger) -> None:
        self.leaves = HeldLeaves(workload.definition.steps, 0)
        self.sums = DatasetSums(workload.source, self.leaves)
        self._borders, self._ledger = workload.facts.borders, ledger
        #: by input; with its nodes until it is collapsed
        self._united: defaultdict[int, UnitedPartial] = defaultdict(lambda: UnitedPartial(self.leaves))

    def add(self, handle: Handle, partial: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        for number, start, stop in about:
            self._united[number].rows.add(start, stop)
        for node in list(partial.inputs.values):
            self.sums.add(partial.input, self.leaves.hold(partial.inputs.values.pop(node), node[0] + 1), node)
        for one in (partial, *partial.others):
            united, book = self._united[one.input], self._ledger.books[one.input]
            united.add((), one)
            if united.rows.total == book.done and book.done + book.failed.total == book.everything.total:
                self._collapse(one.input)
        self.leaves.trim()

    def partials(self) -> dict[int, list[Any]]:
        """Add up what there is of inputs that will not be complete; give what is no sum."""
        for number in sorted(self._united):
            self._collapse(number)
            self.leaves.trim()
        return {number: [united] for number, united in sorted(self._united.items())}

    def _collapse(self, number: int) -> None:
        nodes, self._united[number].nodes = self._united[number].nodes, Nodes()
        # The tree has as many leaves as units are asked for, whatever became of them.
        units = bisect_left(self._borders[number], self._ledger.last_row(number))
        held = collapse(nodes, units, self.leaves.merge)
        if held is not None:
            self.sums.add(number, self.leaves.hold(self.leaves.take(held), 1))
