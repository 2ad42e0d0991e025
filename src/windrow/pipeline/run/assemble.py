"""Putting a result together: partials collapsed in their fixed tree, empty lanes filled in, rows accounted for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.cutflow_counts import ALL_ROWS, ANY_ORDER, all_weights
from windrow.blocks.outputs import Leaf, merge_leaves
from windrow.blocks.tree import collapse
from windrow.errors import WindrowError
from windrow.pipeline.cutflow.complete import Completion, units_done
from windrow.pipeline.cutflow.nminus1 import Count, NMinusOne, NMinusOneTables
from windrow.pipeline.cutflow.table import Cutflow, Table
from windrow.pipeline.cutflow.written import Member
from windrow.pipeline.definition.definition import classes, products_of, with_all_they_read
from windrow.pipeline.results.ledger import Entry, Ledger, left_out_notes
from windrow.pipeline.results.region_rows import KeptFile, KeptRows
from windrow.pipeline.results.result import Result, StepSummary
from windrow.pipeline.resume.step_digest import fingerprint, parameters_said
from windrow.pipeline.run.partials import project, unite
from windrow.pipeline.run.reduction import DatasetSums
from windrow.shape.costs import fit

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial
    from windrow.blocks.selection import RowSet
    from windrow.core.rows import RowFeeder
    from windrow.data.base import Input
    from windrow.pipeline.definition.definition import Product
    from windrow.pipeline.run.batch import BatchSupply
    from windrow.pipeline.run.facts import RunFacts
    from windrow.pipeline.run.stream import StreamSupply
    from windrow.pipeline.run.workload import PipelineWorkload
    from windrow.run.loop import RunOutcome


class ResultAssembly:
    """Makes the result of a run that ended, or of what it has done so far."""

    def __init__(
        self, supply: BatchSupply | StreamSupply, workload: PipelineWorkload, facts: RunFacts, rows: RowFeeder
    ) -> None:
        self.definition, self.source, self.plan = supply.definition, supply.source, supply.plan
        self.options, self.leaves = supply.options, supply.leaves
        self.sums = supply.sums or DatasetSums(supply.source, supply.leaves)
        self.workload = workload
        self.facts = facts
        self.book = rows.ledger

    def assemble(self, outcome: RunOutcome, issued: Sequence[tuple[str, tuple[str, ...], str]], **said: Any) -> Result:
        """Put everything together; ``issued`` are the orders that were in force, ``said`` goes to the result as it is."""
        plan, inputs, definition = self.plan, self.source.inputs, self.definition
        steps = definition.steps.items()
        self.last_rows = {item.index: plan.last_row(item.index, self.book) for item in inputs}
        self.accounts = {item.index: plan.account(item.index, self.book) for item in inputs}
        rows_kept = {item.index: self._add_up(item, outcome) for item in inputs}
        absent: dict[str, str] = {}
        leaves = {}
        for dataset in self.source.datasets:
            leaves[dataset] = leaf = self.sums.total(dataset)
            self._fill_empty_lanes(dataset, leaf, absent)
        tables = self._tables(leaves, {dataset: order for dataset, order, _ in issued})
        kept, notes = self._kept(rows_kept)
        return Result(
            **said,
            name=definition.name,
            seed=definition.seed,
            identity=definition.identity,
            regions={region: dict(cuts) for region, cuts in definition.regions.items()},
            output_names=tuple(name for name, step in steps if step.kind == "output"),
            merges={name: step.merge for name, step in steps if step.merge is not None},
            fingerprints={name: fingerprint(step) for name, step in steps},
            parameters={name: parameters_said(step) for name, step in steps},
            source=self.source,
            datasets={name: dict(metadata) for name, metadata in self.source.datasets.items()},
            outputs={
                dataset: {key: value.value for key, value in leaf.outputs.items()} for dataset, leaf in leaves.items()
            },
            cutflow=Cutflow(tables, self._completion(tables)),
            nminus1=self._nminus1(leaves),
            ledger=self._ledger(),
            steps=self._steps(outcome),
            order=tuple(issued),
            notes=(*outcome.notes, *left_out_notes(self.book), *self._default_notes(), *notes),
            reads=[
                (inputs[index].label, column, start, stop)
                for (index, column), ranges in self.facts.reads.items()
                for start, stop in ranges
            ],
            bytes_read=outcome.bytes_read,
            interrupted=outcome.cancelled,
            reasons_absent=absent,
            kept=kept,
            initial={
                name: Count.at_end(leaf.counts)
                for name, leaf in leaves.items()
                if (ANY_ORDER, all_weights(ALL_ROWS)) in leaf.counts
            },
        )

    def _united(self, parts: Sequence[tuple[frozenset[Product] | None, Partial]]) -> list[Partial]:
        if all(products is None for products, _ in parts):
            return [unite([partial for _, partial in parts])] if parts else []
        everything = products_of(self.definition)
        return [
            unite([project(parts[number][1], products) for number in where])
            for products, where in classes([products for products, _ in parts], everything)
        ]

    def _add_up(self, item: Input, outcome: RunOutcome) -> list[tuple[str, RowSet]]:
        """Add what an input has to the sums, before the next one is looked at; give the rows of regions."""
        united = self._united(self.plan.partials(item.index, outcome.partials, self.definition))
        # The tree has as many leaves as units are asked for, whatever became of them.
        units = bisect_left(self.facts.borders.get(item.index, ()), self.last_rows[item.index])
        leaves = [leaf for leaf in (collapse(one.nodes, units, merge_leaves) for one in united) if leaf is not None]
        kept = [rows for one in united for rows in one.kept]
        if leaves:
            held = self.leaves.hold(_side_by_side(leaves), 1)
            del united, leaves  # large, while it is added to others
            self.sums.add(item.index, held)
            self.leaves.trim()
        return kept

    def _fill_empty_lanes(self, dataset: str, leaf: Leaf, absent: dict[str, str]) -> None:
        """Evaluate outputs of lanes that no row reached once, on typed arrays of no length, so that every key exists."""
        missing = self._missing_outputs(dataset, leaf)
        if not missing:
            return
        inputs = [item for item in self.source.inputs if item.dataset == dataset]
        # Best one that was opened before: with no rows asked for, none was.
        item = min(inputs, key=lambda item: item.index not in self.workload.facts.borders)
        try:
            reader = self.source.open(item.index)
        except (WindrowError, OSError) as error:
            absent.update(dict.fromkeys(missing, f"{item.label} could not be opened again ({error})"))
            return
        try:
            program = self.workload.program(item, reader.info)
            chunk = Chunk(item.index, item.label, 0, (0, 0), (0, 0))
            run = ChunkRun(program, reader, chunk, self.definition.written, {}, forced=True)
            partial = run.run()
        finally:
            reader.close()
        for values in partial.nodes.values.values():
            for key, value in values.outputs.items():
                leaf.outputs.setdefault(key, value)
        for name in self._missing_outputs(dataset, leaf):
            # What an output reads may be missing because an earlier step failed: that is the reason then.
            steps = [step for step in (*self.definition.written, name) if step in run.failed_empty]
            why = next((run.failed_empty[step] for step in steps if step in self._needed_by(name)), None)
            if why is not None:
                absent.setdefault(name, f"no row of dataset {dataset!r} reached it, and {why}")

    def _missing_outputs(self, dataset: str, leaf: Leaf) -> list[str]:
        present = {key[:2] for key in leaf.outputs}
        metadata = self.source.datasets[dataset]
        missing = []
        for product in products_of(self.definition):
            if product.kind == "output" and (product.name, product.region) not in present:
                when = self.definition.steps[product.name].when
                if when is None or when.holds(metadata, dataset):
                    missing.append(product.name)
        return list(dict.fromkeys(missing))

    def _needed_by(self, output: str) -> set[str]:
        steps = self.definition.steps
        weights = [name for name, step in steps.items() if step.kind == "weight"] if steps[output].takes_weight else []
        return with_all_they_read(steps, [output, *weights])

    def _tables(self, leaves: dict[str, Leaf], planned: dict[str, tuple[str, ...]]) -> dict[tuple[str, str], Table]:
        weights = frozenset(n for n, s in self.definition.steps.items() if s.kind == "weight")
        used = frozenset(cut for cuts in self.definition.regions.values() for cut in cuts)
        tables = {}
        for region, cuts in self.definition.regions.items():
            for dataset, metadata in self.source.datasets.items():
                absent = frozenset(
                    name
                    for name, step in self.definition.steps.items()
                    if step.when is not None and not step.when.holds(metadata, dataset)
                )
                leaf = leaves[dataset]
                counts = {order: lines for (order, lane), lines in leaf.counts.items() if lane == region}
                tables[region, dataset] = Table(
                    region, dataset, cuts, self.definition.written, weights,
                    (Member(dataset, counts, absent, leaf.windows),), planned[dataset], used,
                )  # fmt: skip
        return tables

    def _completion(self, tables: Mapping[tuple[str, str], Table]) -> Completion | None:
        if not any(table.moved for table in tables.values()):
            return None
        inputs = {}
        for item in self.source.inputs:
            account, borders = self.accounts[item.index], self.facts.borders.get(item.index)
            rows = tuple((start, stop) for start, stop, state, _ in account if state == "done" and stop is not None)
            if rows and borders is not None:
                inputs[item.index] = units_done(item, borders, rows, self.last_rows[item.index])
        progress = self.options.progress
        shown = progress if isinstance(progress, bool) else None  # a callable may not be picklable
        return Completion(
            tables=tables,
            source=self.source,
            options=replace(
                self.options, order="written", cutflow={"*": "exact"}, nminus1=False, max_rows=None, on_error="stop",
                rundir=None, resume=False, client=None, save=False, progress=shown,
                engine=self.options.engine if self.options.client is None else "auto",
            ),
            fingerprints={name: fingerprint(step) for name, step in self.definition.steps.items()},
            inputs=inputs,
            identities=dict(self.facts.identities),
            definition=self.definition,
        )  # fmt: skip

    def _nminus1(self, leaves: dict[str, Leaf]) -> NMinusOneTables:
        regions = self.definition.regions
        tables = {
            (region, dataset): NMinusOne.of(region, dataset, regions[region], leaf.counts, leaf.given_up)
            for region in self.definition.nminus1
            for dataset, leaf in leaves.items()
        }
        return NMinusOneTables(tables)

    def _ledger(self) -> Ledger:
        """Say of every row what became of it; rows still held when a run ended are missing from the result."""
        entries = (
            Entry(item.label, item.dataset, start, stop, "missing" if state == "held" else state, reason)
            for item in self.source.inputs
            for start, stop, state, reason in self.accounts[item.index]
        )
        return Ledger(tuple(entries))

    def _steps(self, outcome: RunOutcome) -> dict[str, StepSummary]:
        totals: dict[str, Any] = {}
        for evidence in outcome.evidence.values():
            for name, cost in evidence.steps:
                totals[name] = cost if name not in totals else totals[name].merge(cost)
        summaries = {}
        for name, step in self.definition.steps.items():
            if name in totals:
                cost = totals[name]
                fixed, per_row = fit(cost)
                summaries[name] = StepSummary(
                    name, step.kind, cost.calls, cost.rows_in, cost.rows_out, cost.wall,
                    fixed, per_row, cost.bytes_read, self.facts.twins.get(name, ""),
                )  # fmt: skip
        return summaries

    def _kept(self, rows_kept: Mapping[int, Sequence[tuple[str, RowSet]]]) -> tuple[KeptRows | None, list[str]]:
        if not self.definition.keep_rows:
            return None, []
        if not self.facts.keeping:
            return None, ["which rows each region has was not kept: there are too many"]
        parts: dict[tuple[str, int], list[RowSet]] = {}
        files: list[KeptFile] = []
        for item in self.source.inputs:
            if item.index not in self.facts.identities or not self.plan.is_asked(item.index):
                continue
            identity = self.facts.identities[item.index]
            for region, rows in rows_kept[item.index]:
                parts.setdefault((region, len(files)), []).append(rows)
            files.append(KeptFile(item.index, item.label, item.dataset, identity))
        ordered = {key: tuple(sorted(sets, key=lambda s: s.start)) for key, sets in parts.items()}
        return KeptRows(tuple(files), tuple(self.definition.regions), ordered), []

    def _default_notes(self) -> list[str]:
        files: dict[str, int] = {}
        rows: dict[str, int] = {}
        for index, column in self.facts.defaults:
            asked = sum(stop - start for start, stop, _, _ in self.accounts[index] if stop is not None)
            files[column] = files.get(column, 0) + 1
            rows[column] = rows.get(column, 0) + asked
        total = len(self.source.inputs)
        return [
            f"optional column {column!r}: default used for {rows[column]:,} rows, in {files[column]} of {total} files"
            for column in sorted(files)
        ]


def _side_by_side(leaves: Sequence[Leaf]) -> Leaf:
    if len(leaves) == 1:
        return leaves[0]
    all_of = Leaf({}, {})
    for leaf in leaves:
        all_of.outputs.update(leaf.outputs)
        all_of.counts.update(leaf.counts)
        all_of.given_up.update(leaf.given_up)
    seen = {(w.input, w.start, w.stop, w.cuts): w for leaf in leaves for w in leaf.windows}
    all_of.windows = tuple(seen.values())
    return all_of
