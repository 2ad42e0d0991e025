"""Files of saved rows, made at the end of a run from the fragments of accepted chunks.

A file appears under its name when it is complete, with what is needed to use it instead of the source: the dataset and
its metadata, how many rows there were before any cut and what they weighed.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.fragments import empty_columns
from windrow.data.base import IDENTITY_COLUMN
from windrow.data.paths import is_remote
from windrow.data.skim import record as skim_record
from windrow.errors import SaveError, UsageError
from windrow.pipeline.cutflow.nminus1 import Count
from windrow.pipeline.definition.saves import known_after_cuts, regions_named
from windrow.pipeline.results.region_rows import skim_sections
from windrow.store.disk import DirectoryLock, take_lock

if TYPE_CHECKING:
    from windrow.data.base import Source
    from windrow.data.skim.fragments import Fragment
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.saves import SaveDefinition
    from windrow.pipeline.results.result import Result
    from windrow.pipeline.run.workload import PipelineWorkload
    from windrow.run.loop import RunOutcome


#: Hidden directories for what is not complete yet, beside the files that will be made of it. They are locked while their
#: run lives, so that the next run can tell what a killed one left behind and remove it.
PREFIX = ".windrow-staging-"
#: Another run may take a new directory for one of a dead run, but hardly this often.
TRIES = 100


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
    """Give the definition places for fragments while the body runs; refuse files that cannot be meant or written."""
    if not definition.saves:
        yield definition
        return
    parents = dict.fromkeys(target.path.parent for target in _targets(definition, source))
    for dataset, metadata in source.datasets.items():
        skim_record.encoded({"dataset": dataset, "metadata": skim_record.users_own(metadata)})
    with ExitStack() as stack:
        places = {str(parent): str(stack.enter_context(staging(parent))) for parent in parents}
        yield replace(definition, staging=places)


def publish(
    definition: Definition,
    source: Source,
    workload: PipelineWorkload,
    outcome: RunOutcome,
    result: Result,
    workers: int,
) -> BaseException | None:
    """Write the files and say so in the result; nothing is written of a run that was stopped.

    Returns what went wrong, so that the result is kept before it is raised.
    """
    if not definition.saves:
        return None
    if result.interrupted:
        result.notes = (*result.notes, "nothing was saved, as the run was stopped before its end")
        return None
    fragments: dict[str, list[tuple[int, int, Fragment]]] = {}
    for partials in outcome.partials.values():
        for partial in partials:
            for part in partial.fragments:
                place = (part.input, part.start, part.fragment)
                fragments.setdefault(part.key, []).append(place)
    targets, notes = _worth_writing(_targets(definition, source), definition, result)
    run = secrets.token_hex(8)
    sections = cache(lambda dataset: skim_sections(dataset, source, result.ledger))  # read once for all its files

    def write(target: _Target) -> dict[str, Any] | BaseException:
        parts = sorted(fragments.get(target.key, ()), key=lambda part: part[:2])
        try:
            empty = None if parts else _empty(target, definition, source, workload)
            pieces = [part for _, _, part in parts]
            lumis = sections(target.dataset)
            record = {"run": run, "lumis": lumis, **_record(target, definition, source, result, pieces)}
            return _written(target, definition, pieces, record, empty)
        except Exception as error:  # noqa: BLE001 - told with the file it concerns, once all are done
            return error

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        try:
            ends = list(pool.map(write, targets))
        except KeyboardInterrupt as interrupt:
            pool.shutdown(cancel_futures=True)
            result.notes = (*result.notes, *notes, "saving was interrupted")
            return interrupt
    result.saved = tuple(end for end in ends if isinstance(end, dict))
    result.notes = (*result.notes, *notes)
    for target, end in zip(targets, ends, strict=True):
        if isinstance(end, BaseException):
            told = f"{target.path} (dataset {target.dataset!r}) could not be saved: {end}"
            result.notes = (*result.notes, told)
            failure = SaveError(
                f"{told}; everything else is done: the result is in the run directory, and in facts['result'] of this error",
                file=str(target.path), dataset=target.dataset, result=result,
            )  # fmt: skip
            failure.__cause__ = end
            return failure
    return None


def _worth_writing(targets: list[_Target], definition: Definition, result: Result) -> tuple[list[_Target], list[str]]:
    """Leave out datasets none of whose rows is done: an earlier file is worth more than an empty one."""
    done = {entry.dataset for entry in result.ledger.entries if entry.state == "done"}
    lost = {entry.dataset for entry in result.ledger.entries if entry.state != "done" and entry.rows}
    notes = [
        f"nothing was saved for dataset {dataset!r}: none of its rows is done"
        for dataset in result.datasets
        if dataset in lost - done
    ]
    names = list(definition.steps)
    first = next((n for n, name in enumerate(names) if definition.steps[name].kind == "cut"), None)
    below = [n for n in names[first:] if definition.steps[n].kind == "weight"] if first is not None else []
    limited = [d for d in result.datasets if skim_record.original_sums(result.datasets[d]) and d in lost]
    if limited:
        notes.append(f"rows of {', '.join(limited)} are missing, and the sums of what is saved still count them")
    if below:
        notes.append(f"the sumw of saved files has the weights written above the first cut, not {', '.join(below)}")
    return [target for target in targets if target.dataset not in lost - done], notes


def _written(
    target: _Target,
    definition: Definition,
    fragments: Sequence[Fragment],
    record: Mapping[str, Any],
    empty: Mapping[str, Any] | None,
) -> dict[str, Any]:
    from windrow.data.skim.write import write_skim

    path, save = target.path, target.save
    staged = Path(definition.staging[str(path.parent)])
    rows, size = write_skim(
        path, fragments, format=save.format, tree=save.tree, record=record, empty=empty, staging=staged
    )
    return {
        "path": str(path),
        "format": save.format,
        **{name: record[name] for name in ("dataset", "region", "cut")},
        "rows": rows,
        "of": record["rows"],
        "bytes": size,
    }


def _targets(definition: Definition, source: Source) -> list[_Target]:
    targets: dict[Path, _Target] = {}
    inputs = {
        Path(item.location).resolve()
        for item in getattr(source, "files_read", source.inputs)
        if item.format != "arrays" and not is_remote(str(item.location))
    }
    for save in definition.saves:
        if is_remote(save.path):
            raise UsageError(f"save: {save.path!r} is remote: save to a local directory and copy it there")
        cuts: Sequence[str] = ("",)
        if save.by_cut:
            cuts = tuple(known_after_cuts(definition, regions_named(save, definition.regions)[0]))
        for dataset in source.datasets:
            for cut in cuts:
                target = _Target(save.target(dataset, cut), save, dataset, cut)
                place = target.path.resolve()
                if place in targets:
                    other = targets[place]
                    hint = "put {dataset} into the path" if other.dataset != dataset else "rename one"
                    raise UsageError(
                        f"save: {target.key!r} would be written twice, for {_whose(other)} and {_whose(target)}: "
                        f"each needs a file of its own; {hint}"
                    )
                if place in inputs:
                    raise UsageError(
                        f"save: {target.key!r} is a file that is being read: choose another name, or run with save=False"
                    )
                if place.is_dir():
                    raise UsageError(f"save: {target.key!r} is a directory: choose another name")
                targets[place] = target
    return list(targets.values())


def _whose(target: _Target) -> str:
    return f"dataset {target.dataset!r} of save {target.save.path!r}"


def _record(
    target: _Target, definition: Definition, source: Source, result: Result, fragments: Sequence[Fragment]
) -> Mapping[str, Any]:
    """What a reader of the file must know about the rows that are not in it."""
    dataset = target.dataset
    metadata = source.datasets[dataset]
    initial = result.initial.get(dataset, Count(0, 0.0, 0.0))
    sums: Mapping[str, Any] = {"rows": initial.rows, "sumw": initial.sumw, "sumw2": initial.sumw2}
    lost = sum(entry.rows for entry in result.ledger.entries if entry.dataset == dataset and entry.state != "done")
    original = skim_record.original_sums(metadata)
    if original is not None:
        # Of a skim's skim, those of what the first one was made from, and what was missing when that was made.
        sums = original
        lost += int(metadata["skim"].get("failed") or 0)
    return {
        "pipeline": definition.name,
        "dataset": dataset,
        "metadata": skim_record.users_own(metadata),
        "region": target.save.region,
        "cut": target.cut or None,
        "target": target.save.path,
        **sums,
        "failed": lost,
        "selected": sum(part.rows for part in fragments),
        "made": [n for n in target.save.columns if n in definition.steps],
        "identity": list(definition.identity),
        "hidden": None if definition.identity else IDENTITY_COLUMN,
    }


def _empty(target: _Target, definition: Definition, source: Source, workload: PipelineWorkload) -> dict[str, Any]:
    inputs = [item for item in source.inputs if item.dataset == target.dataset]
    item = min(inputs, key=lambda item: item.index not in workload.facts.borders)
    with closing(source.open(item.index)) as reader:
        program = workload.program(item, reader.info)
        chunk = Chunk(item.index, item.label, 0, (0, 0), (0, 0))
        run = ChunkRun(program, reader, chunk, definition.written, {}, forced=True)
        run.run()
        save = next(save for save in program.saves if save.key == target.key)
        return empty_columns(run, save)


# -- staging -----------------------------------------------------------------------------------


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Make a directory in ``parent`` that is gone afterwards, whatever happens; clear away those of dead runs."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _clear(parent)
        place, lock = _made(parent)
    except OSError as error:
        raise UsageError(f"save: nothing can be written to {parent}: {error}") from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        lock.release()


def _made(parent: Path) -> tuple[Path, DirectoryLock]:
    for _ in range(TRIES):
        place = parent / f"{PREFIX}{secrets.token_hex(4)}"
        place.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = take_lock(place)
            if lock is not None:
                return place, lock
    raise OSError("its staging directories disappear")


def _clear(parent: Path) -> None:
    for place in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = take_lock(place)
            if lock is not None:
                # Where there are no locks nobody knows whether its run is dead.
                if lock.real:
                    shutil.rmtree(place, ignore_errors=True)
                lock.release()
