"""``cutflow.complete()``: the written order's exact table afterwards, for what ran in another order.

An ordinary run of the cuts and weights alone, in the written order, over the rows that are in the result: on the same
engine, retried and accounted for like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from windrow.core.intervals import Intervals
from windrow.errors import CorruptFileError, UsageError
from windrow.pipeline.resume.step_digest import fingerprint

if TYPE_CHECKING:
    from windrow.data.base import Input, Reader, Source
    from windrow.pipeline.cutflow.table import Cutflow, Table
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.options import Options

Ranges = tuple[tuple[int, int], ...]


def units_done(item: Input, borders: tuple[int, ...], done: Ranges, last_row: int) -> Input:
    """Restrict an input to the units with rows in the result, and leave out the other rows of these."""
    known = Intervals(done)
    ends = {row for step in item.steps or () for row in step}
    steps: list[tuple[int, int]] = []
    left_out: list[tuple[int, int]] = []
    for start, stop in pairwise(borders):
        stop = min(stop, last_row)
        gaps = known.gaps(start, stop) if start < stop else []
        if start >= stop or gaps == [(start, stop)]:
            continue
        left_out += gaps
        # Steps of the user's are units by themselves, and stay so.
        if steps and steps[-1][1] == start and start not in ends:
            steps[-1] = (steps[-1][0], stop)
        else:
            steps.append((start, stop))
    return replace(item, steps=tuple(steps), left_out=tuple(left_out))


@dataclass(frozen=True)
class DoneRows:
    """The rows of a source that are in a result, as a source of their own."""

    source: Source
    inputs: tuple[Input, ...]
    datasets: Mapping[str, Mapping[str, Any]]
    where: tuple[int, ...]  #: the number of each input in the source
    identities: Mapping[int, str]  #: by these numbers: what each identified itself as

    def open(self, index: int) -> Reader:
        """Open one input for one thread; refused if it is another file by now."""
        reader = self.source.open(self.where[index])
        item, identity = self.inputs[index], self.identities.get(self.where[index])
        said = None
        if identity is not None and reader.info.identity != identity:
            said = f"{item.label} was replaced since the run: its cutflow cannot be completed; run again"
        elif item.steps and item.steps[-1][1] > reader.info.rows:
            said = f"{item.label}: its rows are gone, as a stream is read once: its cutflow cannot be completed"
        if said is not None:
            reader.close()
            raise CorruptFileError(said, file=item.label)
        return reader


@dataclass(frozen=True)
class Completion:
    """The cutflows of one run, and what it takes to complete them."""

    tables: Mapping[tuple[str, str], Table]
    source: Source
    options: Options
    fingerprints: Mapping[str, str]  #: of the steps
    inputs: Mapping[int, Input]  #: by number, restricted to the rows in the result
    identities: Mapping[int, str]
    definition: Definition | None = None  #: only in the process of the run

    def __getstate__(self) -> dict[str, Any]:
        """Leave the functions of the analysis behind: most of them cannot be kept."""
        return {**self.__dict__, "definition": None}

    def __call__(self, analysis: Any = None) -> Cutflow:
        from windrow.pipeline.cutflow.table import Cutflow
        from windrow.pipeline.pipeline import Pipeline
        from windrow.pipeline.run.run import run_pipeline

        definition = self._cutflows_only(analysis)
        wanted = {dataset for (_, dataset), table in self.tables.items() if not table.is_exact}
        where = [number for number, item in self.inputs.items() if item.dataset in wanted]
        source = DoneRows(
            source=self.source,
            inputs=tuple(replace(self.inputs[number], index=index) for index, number in enumerate(where)),
            datasets={name: metadata for name, metadata in self.source.datasets.items() if name in wanted},
            where=tuple(where),
            identities=self.identities,
        )
        result = run_pipeline(Pipeline(definition.name), definition, source, self.options)
        return Cutflow({**self.tables, **result.cutflow.tables})

    def _cutflows_only(self, analysis: Any) -> Definition:
        definition = self.definition if analysis is None else analysis.definition(self.options.seed)
        if definition is None:
            raise UsageError(
                "complete() runs cuts in the written order, and a result that was loaded has no functions: give it the "
                "analysis, result.cutflow.complete(analysis)"
            )
        steps = {name: step for name, step in definition.steps.items() if step.kind != "output"}
        if analysis is not None:
            changed = [name for name, step in steps.items() if self.fingerprints.get(name) != fingerprint(step)]
            changed += [name for name in next(iter(self.tables.values())).written_order if name not in steps]
            if changed:
                raise UsageError(
                    f"complete() needs the analysis as it ran: {', '.join(map(repr, changed))} changed since"
                )
        return replace(definition, steps=steps, saves=(), nminus1=(), keep_rows=False)
