"""``cutflow.complete()``: the written order's exact table afterwards, for what ran in another order.

Chunks that ran in a moved order kept what their cuts said. They are gone through once more in the written order: a cut is
asked only about rows of which its answer is not known and that it could be the first to reject, columns are made for just
these, weights for the rows that the written program weighs. Where nothing was kept, everything is asked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.calls import Meter
from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.outputs import Leaf, merge_leaves
from windrow.blocks.results import Verdict
from windrow.blocks.selection import Selection, everything, keep
from windrow.blocks.tree import Nodes, collapse
from windrow.errors import CorruptFileError, UsageError
from windrow.pipeline.bind import bind
from windrow.pipeline.collecting import unite
from windrow.pipeline.fingerprints import fingerprint
from windrow.pipeline.products import Product
from windrow.pipeline.projecting import project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from windrow.blocks.asked import Asked
    from windrow.blocks.chunk import Partial
    from windrow.blocks.program import BoundStep, Program
    from windrow.blocks.selection import RowSet
    from windrow.data.base import Input, Reader, Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.cutflow import Cutflow, Table

__all__ = ["Both", "Changed", "Unfinished"]

#: Rows that are gone through at once where no chunk says how many.
CHUNK_ROWS = 500_000

#: What is known of what a cut says of a row.
_UNKNOWN, _PASSED, _FAILED, _UNDEFINED = 0, 1, 2, 3


class _Known:
    """What is known of the rows of a chunk before anything is asked."""

    def __init__(self, program: Program, asked: Asked | None, start: int, length: int) -> None:
        self.states: dict[str, NDArray[np.int8]] = {}
        self.nan: dict[str, NDArray[np.bool_]] = {}
        cuts = [name for name, step in program.steps.items() if step.kind == "cut"]
        for name in cuts:
            state = self.states[name] = np.zeros(length, dtype=np.int8)
            nan = self.nan[name] = np.zeros(length, dtype=bool)
            answer = None if asked is None else asked.answers.get(name)
            if answer is None:
                continue
            where = answer.rows.rows() - start
            passed = np.unpackbits(answer.passed, count=len(where)).astype(bool)
            state[where] = np.where(passed, _PASSED, _FAILED)
            state[_positions(answer.undefined, start)] = _UNDEFINED
            nan[_positions(answer.nan, start)] = True
        #: step -> rows it has to be asked about; None: all that are left
        self.wanted = self._wanted(program, cuts, length)

    def _wanted(self, program: Program, cuts: Sequence[str], length: int) -> dict[str, NDArray[np.bool_] | None]:
        wanted: dict[str, NDArray[np.bool_] | None] = {name: np.zeros(length, dtype=bool) for name in program.steps}
        for lane in program.lanes:
            # Rows of which it is not known yet that a cut above rejects them.
            left = np.ones(length, dtype=bool)
            for name in cuts:
                if name in lane.cuts:
                    state = self.states[name]
                    wanted[name] |= left & (state == _UNKNOWN)
                    side = _FAILED if lane.cuts[name] else _PASSED
                    left &= (state == _UNKNOWN) | (state == side)
        for name in reversed(program.written):
            step = program.steps[name]
            if step.kind == "weight":
                wanted[name] = None
            for argument in step.arguments:
                if argument.kind == "made":
                    mine, maker = wanted[name], wanted[argument.source]
                    both = None if mine is None or maker is None else mine | maker
                    wanted[argument.source] = both
        return wanted


def _positions(rows: RowSet | None, start: int) -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64) if rows is None else rows.rows() - start


class _CompletingRun(ChunkRun):
    """A chunk in the written order, asked only what is not known."""

    def know(self, known: _Known) -> None:
        """Tell it what is known."""
        self._known = known
        self._asked_now = self.rows

    def _step(self, step: BoundStep) -> None:
        alive = self._alive(step.lanes)
        wanted = self._known.wanted[step.name]
        rows = alive if wanted is None else keep(alive, wanted[alive.positions()], alive)
        meter = self.meters.setdefault(step.name, Meter())
        if step.kind == "weight":
            super()._step(step)
            return
        value = self._evaluate(step, rows, meter) if rows.count else None
        if step.kind == "cut":
            self._asked_now = rows
            self._cut(step, alive, self._verdict(step.name, alive, rows, value))
        else:
            self.store.put(step.name, rows, np.empty(0) if value is None else value)

    def _verdict(self, cut: str, alive: Selection, rows: Selection, value: Verdict | None) -> Verdict | None:
        """Put together what a cut said before and now."""
        if not alive.count:
            return None
        states = self._known.states[cut]
        if value is not None:
            now = np.where(value.passed, _PASSED, _FAILED).astype(np.int8)
            if value.undefined is not None:
                now[value.undefined] = _UNDEFINED
            states[rows.positions()] = now
        mine = states[alive.positions()]
        undefined = mine == _UNDEFINED
        return Verdict(mine == _PASSED, undefined if undefined.any() else None)

    def _nan_rows(self, step: BoundStep, rows: Selection) -> NDArray[np.bool_] | None:
        known = self._known.nan[step.name]
        if self._asked_now.count:
            now = super()._nan_rows(step, self._asked_now)
            if now is not None:
                known[self._asked_now.positions()] = now
        mine = known[rows.positions()]
        return mine if mine.any() else None


@dataclass(frozen=True)
class Unfinished:
    """The cutflows of one run, and what it takes to complete them."""

    tables: Mapping[tuple[str, str], Table]
    source: Source
    seed: int
    fingerprints: Mapping[str, str]  #: of the steps
    done: Mapping[int, tuple[tuple[int, int], ...]]  #: rows of each input that are in the result
    borders: Mapping[int, tuple[int, ...]]  #: of the units of each input
    units: Mapping[int, int]  #: leaves of each input's tree
    identities: Mapping[int, str]
    asked: Mapping[int, tuple[Asked, ...]]  #: what cuts said, by input
    definition: Definition | None = None  #: only in the process of the run

    def __getstate__(self) -> dict[str, Any]:
        """Leave the functions of the analysis behind: most of them cannot be kept."""
        return {**self.__dict__, "definition": None}

    def complete(self, analysis: Any = None) -> Cutflow:
        """Return the cutflows with every table of the written order exact."""
        from windrow.pipeline.cutflow import Cutflow

        tables = dict(self.tables)
        for dataset in dict.fromkeys(name for _, name in tables):
            mine = {region: table for (region, name), table in tables.items() if name == dataset}
            if any(not table.is_exact for table in mine.values()):
                done = self._dataset(dataset, mine, self._definition(analysis))
                tables.update({(region, dataset): table for region, table in done.items()})
        return Cutflow(tables)

    def _definition(self, analysis: Any) -> Definition:
        if analysis is None:
            if self.definition is None:
                raise UsageError(
                    "complete() asks cuts that were not asked, and a result that was loaded has no functions: give it the "
                    "analysis, result.cutflow.complete(analysis)"
                )
            return self.definition
        definition: Definition = analysis.definition(self.seed)
        changed = [
            name
            for name, step in definition.steps.items()
            if step.kind != "output" and self.fingerprints.get(name) != fingerprint(step)
        ]
        gone = [n for n in next(iter(self.tables.values())).written_order if n not in definition.steps]
        if changed or gone:
            raise UsageError(
                f"complete() needs the analysis as it ran: {', '.join(map(repr, [*changed, *gone]))} changed since"
            )
        return definition

    def _dataset(self, dataset: str, tables: Mapping[str, Table], definition: Definition) -> dict[str, Table]:
        orders = {plan.order for table in tables.values() for plan in table.moved}
        inputs = [item for item in self.source.inputs if item.dataset == dataset]
        chunks = {item.index: self._chunks(item.index, orders) for item in inputs}
        rows = sum(len(asked.rows.rows()) for mine in chunks.values() for _, asked in mine)
        everything_kept = all(_rows(table, orders) == rows for table in tables.values())
        if not everything_kept:
            orders = {plan.order for table in tables.values() for plan in table.parts}
        whole: Nodes[Leaf] = Nodes()
        for number, item in enumerate(inputs):
            mine = chunks[item.index] if everything_kept else None
            partials = list(self._run(item, definition, tuple(tables), mine))
            if partials:
                leaf = collapse(unite(partials).nodes, self.units[item.index], merge_leaves)
                if leaf is not None:
                    whole.values[0, number] = leaf
        total = collapse(whole, len(inputs), merge_leaves) or Leaf({}, {})
        found = {}
        for region, table in tables.items():
            parts = {plan: lines for plan, lines in table.parts.items() if plan.order not in orders}
            for plan, lines in total.tables.items():
                parts[plan] = parts[plan] + lines if plan in parts else lines
            found[region] = replace(table, parts=parts, members=tuple(replace(m, parts=parts) for m in table.members))
        return found

    def _chunks(self, index: int, orders: set[tuple[str, ...]]) -> list[tuple[int, Asked]]:
        # The same chunk may have come home twice, for different products.
        found = {a.borders[0]: a for a in self.asked.get(index, ()) if a.order in orders}
        return sorted(found.items())

    def _run(
        self, item: Input, definition: Definition, regions: tuple[str, ...], chunks: Sequence[tuple[int, Asked]] | None
    ) -> Iterator[Partial]:
        """Go through the rows of an input: the chunks given, or all that are in the result."""
        if chunks == [] or not self.done.get(item.index):
            return
        products = frozenset(Product("cutflow", "", region) for region in regions)
        frozen = replace(definition, keep_rows=False)
        with _opened(self.source, item, self.identities.get(item.index)) as reader:
            metadata = self.source.datasets[item.dataset]
            program = bind(frozen, item.dataset, metadata, reader.info, item.label, products)
            clusters = reader.info.clusters
            for first, borders, rows, asked in self._portions(item.index, chunks):
                start, stop = borders[0], borders[-1]
                inside = clusters[bisect_right(clusters, start) : bisect_left(clusters, stop)]
                finer = tuple(sorted({*borders, *inside}))
                chunk = Chunk(item.index, item.label, first, borders, finer)
                run = _CompletingRun(program, reader, chunk, definition.written, {}, rows=rows)
                run.know(_Known(program, asked, start, stop - start))
                try:
                    yield project(run.run(), products)
                finally:
                    run.release()

    def _portions(
        self, index: int, chunks: Sequence[tuple[int, Asked]] | None
    ) -> Iterator[tuple[int, tuple[int, ...], Selection, Asked | None]]:
        """Cut the rows of an input into portions: first unit, unit borders, which of the rows, and what is known."""
        if chunks is not None:
            for start, asked in chunks:
                length = asked.borders[-1] - start
                rows = _selection(asked.rows.rows() - start, length)
                yield asked.first_unit, asked.borders, rows, asked
            return
        borders = self.borders[index]
        first = 0
        while first < len(borders) - 1:
            last = max(first + 1, bisect_right(borders, borders[first] + CHUNK_ROWS) - 1)
            start, stop = borders[first], borders[last]
            mask = np.zeros(stop - start, dtype=bool)
            for begin, end in self.done[index]:
                mask[max(begin - start, 0) : max(end - start, 0)] = True
            if mask.any():
                rows = _selection(np.flatnonzero(mask), stop - start)
                yield first, borders[first : last + 1], rows, None
            first = last


class _opened:  # noqa: N801 - reads as a verb
    """A file of the run, refused if it is another one by now."""

    def __init__(self, source: Source, item: Input, identity: str | None) -> None:
        self._open: Callable[[], Reader] = lambda: source.open(item.index)
        self._label, self._identity = item.label, identity

    def __enter__(self) -> Reader:
        self._reader = self._open()
        if self._identity is not None and self._reader.info.identity != self._identity:
            self._reader.close()
            raise CorruptFileError(
                f"{self._label} was replaced since the run: its cutflow cannot be completed; run again",
                file=self._label,
            )
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _selection(positions: NDArray[np.int64], length: int) -> Selection:
    return everything(length) if len(positions) == length else Selection(length, positions)


def _rows(table: Table, orders: set[tuple[str, ...]]) -> int:
    """How many rows of a table ran in some orders."""
    return sum(
        int(lines.counts[plan.first[plan.regions.index(table.region)], 1])
        for plan, lines in table.parts.items()
        if plan.order in orders
    )


@dataclass(frozen=True)
class Changed:
    """Cutflows that were grouped or scaled: completed before, then changed again."""

    before: Cutflow
    change: Callable[[Cutflow], Cutflow]

    def complete(self, analysis: Any = None) -> Cutflow:
        """Return the cutflows with every table of the written order exact."""
        return self.change(self.before.complete(analysis))


@dataclass(frozen=True)
class Both:
    """Cutflows that were added up."""

    left: Cutflow
    right: Cutflow

    def complete(self, analysis: Any = None) -> Cutflow:
        """Return the cutflows with every table of the written order exact."""
        return self.left.complete(analysis) + self.right.complete(analysis)
