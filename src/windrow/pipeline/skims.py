"""Files of saved rows, made at the end of a run from the fragments of accepted chunks.

A file appears under its name when it is complete, with what is needed to use it instead of the source: the dataset and
its metadata, how many rows there were before any cut and what they weighed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.blocks.execute import Chunk, ChunkRun
from windrow.blocks.saves import empty_columns
from windrow.data.base import IDENTITY_COLUMN
from windrow.data.paths import is_remote
from windrow.errors import UsageError
from windrow.pipeline.saves import known_after_cuts, regions_named
from windrow.pipeline.staging import staging

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from windrow.data.base import Source
    from windrow.data.fragments import Fragment
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.result import Result
    from windrow.pipeline.saves import SaveDefinition
    from windrow.pipeline.workload import PipelineWorkload
    from windrow.run.loop import RunOutcome

__all__ = ["publish", "saving"]

RECORD_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Target:
    path: Path
    save: SaveDefinition
    dataset: str
    cut: str

    @property
    def key(self) -> str:
        return str(self.path)


@contextmanager
def saving(definition: Definition, source: Source) -> Iterator[Definition]:
    """Give the definition a place for fragments while the body runs; refuse files that cannot be meant."""
    if not definition.saves:
        yield definition
        return
    targets = _targets(definition, source)
    with staging(targets[0].path.parent) as place:
        yield replace(definition, staging=str(place))


def publish(
    definition: Definition,
    source: Source,
    workload: PipelineWorkload,
    outcome: RunOutcome,
    result: Result,
    workers: int,
) -> None:
    """Write the files and say so in the result; nothing is written of a run that was stopped."""
    if not definition.saves:
        return
    if result.interrupted:
        result.notes = (*result.notes, "nothing was saved, as the run was stopped before its end")
        return
    fragments: dict[str, list[tuple[int, int, Fragment]]] = {}
    for partials in outcome.partials.values():
        for partial in partials:
            for part in partial.fragments:
                place = (part.input, part.start, part.fragment)
                fragments.setdefault(part.key, []).append(place)

    def write(target: _Target) -> dict[str, Any]:
        from windrow.data.skim import write_skim

        parts = sorted(fragments.get(target.key, ()), key=lambda part: part[:2])
        empty = None if parts else _empty(target, definition, source, workload)
        rows = sum(part.rows for _, _, part in parts)
        record = _record(target, definition, result, rows)
        made = write_skim(
            target.path,
            [part for _, _, part in parts],
            format=target.save.format,
            tree=target.save.tree,
            record=record,
            empty=empty,
        )
        return {
            "path": str(target.path),
            "format": target.save.format,
            "dataset": target.dataset,
            "region": target.save.region,
            "cut": target.cut or None,
            "rows": made.rows,
            "of": record["rows"],
            "bytes": made.bytes,
        }

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        result.saved = tuple(pool.map(write, _targets(definition, source)))


def _targets(definition: Definition, source: Source) -> list[_Target]:
    targets: dict[str, _Target] = {}
    inputs = {
        Path(item.location).resolve(): item.label
        for item in source.inputs
        if item.format != "arrays" and not is_remote(str(item.location))
    }
    for save in definition.saves:
        cuts: Sequence[str] = ("",)
        if save.by_cut:
            cuts = tuple(known_after_cuts(definition, regions_named(save, definition.regions)[0]))
        for dataset in source.datasets:
            for cut in cuts:
                target = _Target(save.target(dataset, cut), save, dataset, cut)
                if target.key in targets:
                    other = targets[target.key]
                    raise UsageError(
                        f"save: {target.key!r} would be written for the datasets {other.dataset!r} and {dataset!r}: "
                        "each needs a file of its own; put {dataset} into the path"
                    )
                if target.path.resolve() in inputs:
                    raise UsageError(
                        f"save: {target.key!r} is a file that is being read: choose another name, or run with save=False"
                    )
                if is_remote(save.path):
                    raise UsageError(
                        f"save: {save.path!r} is remote: save to a local directory and copy it there"
                    )
                targets[target.key] = target
    return list(targets.values())


def _record(
    target: _Target, definition: Definition, result: Result, rows: int
) -> Mapping[str, Any]:
    """What a reader of the file must know about the rows that are not in it."""
    region = next(iter(definition.regions))
    table = result.cutflow[region, target.dataset]
    initial = table.executed[0]
    failed = sum(
        entry.rows
        for entry in result.ledger.entries
        if entry.dataset == target.dataset and entry.state != "done"
    )
    return {
        "version": RECORD_VERSION,
        "pipeline": definition.name,
        "dataset": target.dataset,
        "metadata": result.datasets[target.dataset],
        "region": target.save.region,
        "cut": target.cut or None,
        "rows": initial.passed,
        "failed": failed,
        "selected": rows,
        "sumw": initial.sumw,
        "sumw2": initial.sumw2,
        "made": [n for n in target.save.columns if n in definition.steps],
        "identity": list(definition.identity),
        "hidden": None if definition.identity else IDENTITY_COLUMN,
    }


def _empty(
    target: _Target, definition: Definition, source: Source, workload: PipelineWorkload
) -> dict[str, Any]:
    """Find the columns of a file that no row got into."""
    inputs = [item for item in source.inputs if item.dataset == target.dataset]
    item = min(inputs, key=lambda item: item.index not in workload.borders)
    reader = source.open(item.index)
    try:
        program = workload.program(item, reader.info)
        chunk = Chunk(item.index, item.label, 0, (0, 0), (0, 0))
        run = ChunkRun(program, reader, chunk, definition.written, {}, forced=True)
        run.run()
        save = next(save for save in program.saves if save.key == target.key)
        return empty_columns(run, save)
    finally:
        reader.close()
