"""``run_processor``: a coffea processor over a fileset, without a chunk size."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coffea.nanoevents import NanoAODSchema

from windrow import data as windrow_data
from windrow.compat.coffea.events import Processing
from windrow.compat.coffea.run import run_ranges
from windrow.core.records import InputSpec
from windrow.errors import IncompleteError, SpecError, UsageError
from windrow.pipeline.definition.options import Options, check_count
from windrow.pipeline.run.engine_choice import TINY_BYTES, local_bytes

if TYPE_CHECKING:
    from coffea.processor import ProcessorABC

    from windrow.compat.coffea.run import Ended
    from windrow.data.base import Source

#: What the run says in ``events.metadata``; metadata of the fileset have other names.
RESERVED = frozenset({"filename", "treename", "entrystart", "entrystop", "fileuuid"})

#: Ranges that were left out of which a warning tells.
MOST_TOLD = 20


def run_processor(
    processor: ProcessorABC | Callable[[Any], Any],
    fileset: Any,
    schema: Any = NanoAODSchema,
    treename: str | None = "Events",
    *,
    engine: Any = "auto",
    workers: int | None = None,
    memory: str | float | None = None,
    timeout: str | float | None = None,
    max_rows: int | None = None,
    grid: int | None = None,
    rundir: str | os.PathLike[str] | None = None,
    on_error: str = "stop",
    progress: bool | Callable[[Any], Any] | None = None,
    savemetrics: bool = False,
    mode: str = "virtual",
) -> Any:
    """Run a coffea processor over a fileset; return its output, or ``(output, metrics)``.

    Parameters
    ----------
    processor
        A ``ProcessorABC``, or a function of events.
    fileset
        In any of coffea's forms: ``{dataset: files}``, ``{dataset: {"files": {file: tree}, "metadata": {...}}}``, a JSON file.
    schema, mode
        Of ``coffea.nanoevents``; "virtual" events read columns when they are used, "eager" ones all of them.
    treename
        The tree of files for which the fileset names none.
    engine, workers, memory, timeout, max_rows, progress
        As in ``Pipeline.run`` (a Dask client is an engine, too); a range of rows that takes more than a worker's share of memory is cut smaller.
    grid
        Rows of a range: floats then have the same bits in every run. By default ranges are cut as time and memory ask.
    rundir
        A directory for the event log.
    on_error
        "stop", or "skip": rows for which the processor raises are left out, down to single ones, and warned of; if
        that is over a tenth of all rows, or 64 and none was done, what it raised ends the run.
    savemetrics
        Give metrics too: coffea's bytesread, columns, entries, processtime and chunks; rows left out ("left_out"); "notes".
    """
    options = Options(
        engine=engine, workers=workers, memory=memory, timeout=timeout, max_rows=max_rows, on_error=on_error,
        progress=progress, rundir=rundir,
    )  # fmt: skip
    grid = None if grid is None else check_count("grid", grid)
    process = getattr(processor, "process", processor)
    if not callable(process) or isinstance(processor, type):
        raise UsageError(f"a processor is an instance of ProcessorABC or a function of events, got {processor!r:.80}")
    name = getattr(processor, "__name__", type(processor).__name__)
    source = open_fileset(fileset, treename)
    specs = [InputSpec(id=one.index, category=one.dataset, label=one.label, ranges=one.steps) for one in source.inputs]
    small = (local_bytes(source.inputs) or TINY_BYTES) < TINY_BYTES
    ended = run_ranges(Processing(name, process, grid, source, schema, mode), specs, options, small=small)
    output, metrics = settle(name, ended)
    if callable(postprocess := getattr(processor, "postprocess", None)):
        changed = postprocess(output)
        output = output if changed is None else changed
    return (output, metrics) if savemetrics else output


def settle(name: str, ended: Ended) -> tuple[Any, dict[str, Any]]:
    """Give output and metrics, and warn of what was left out."""
    gone = "".join(
        f"\n  {dataset}: {file}{'' if stop is None else f', rows {start} to {stop}'}: {why}"
        for dataset, file, start, stop, why in ended.left_out[:MOST_TOLD]
    )
    if (more := len(ended.left_out) - MOST_TOLD) > 0:
        gone += f'\n  and {more:,} more: all are in "left_out" of the metrics'
    if ended.output is None:
        raise IncompleteError(f"{name} has no output, as no rows were run{gone}")
    if gone:
        warnings.warn(f"{name} left rows out:{gone}", stacklevel=3)
    metrics = ended.output["metrics"]
    metrics |= {"columns": sorted(metrics["columns"]), "left_out": ended.left_out, "notes": ended.notes}
    return ended.output["out"], metrics


def open_fileset(fileset: Any, treename: str | None) -> Source:
    source = windrow_data.open(fileset, tree=treename)
    for item in source.inputs:
        if item.format != "root":
            raise SpecError(
                f"{item.label}: run_processor reads ROOT files, not {item.format}; for Parquet use coffea's "
                'Runner(format="parquet") with the executor of windrow.compat.coffea'
            )
    for dataset, metadata in source.datasets.items():
        if taken := sorted(RESERVED & metadata.keys()):
            raise SpecError(f"dataset {dataset!r}: its metadata has {taken[0]!r}, which the run sets itself: rename it")
    return source
