"""Single rows at the desk: a pipeline without its outputs, files by name, small pieces of them, values in short.

Steps are bound and executed as in a run, so that what is seen at the desk is what a run sees. Nothing is learned for later
runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
from awkward.prettyprint import Formatter, valuestr

from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.errors import UnknownNameError, UsageError, nearest
from windrow.pipeline.definition.steps import Read, define

if TYPE_CHECKING:
    from windrow.blocks.program import Program
    from windrow.data.base import FileInfo, Input, Reader, Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.steps import StepDefinition
    from windrow.pipeline.pipeline import Pipeline


#: Rows at a time where the data has no clusters of its own: few rows are wanted, and soon.
PIECE_ROWS = 4096

#: Letters for one value: three or four numbers of a list, and several columns still fit a terminal.
ROOM = 40

_SIX_DIGITS = Formatter(precision=6)

#: The output that stands in where a pipeline has none yet; no function can have this name.
STAND_IN = "(nothing)"


def definition_at_desk(pipeline: Pipeline, seed: int = 0) -> Definition:
    """Freeze a pipeline that may have no output yet; what looking at it learns stays out of later runs."""
    probe = copy.copy(pipeline)
    if not any(step.kind == "output" for step in pipeline._steps.values()):
        probe._steps = {**pipeline._steps, STAND_IN: output_reading(())}
    definition = probe.definition(seed)
    # Showing a collection touches all of its fields, which no step does.
    return replace(definition, touched=dict(definition.touched), unchecked=set())


def output_reading(columns: Sequence[str]) -> StepDefinition:
    """Make an output for all regions that needs these columns and does nothing with them."""
    step = define("output", lambda: 0, name=STAND_IN)
    return replace(step, reads=tuple(Read(f"x{n}", name) for n, name in enumerate(columns)))


@contextmanager
def chunk_run(program: Program, reader: Reader, item: Input, start: int, stop: int) -> Iterator[ChunkRun]:
    """Give the columns and selections of rows [start, stop), with nothing executed yet; let go of them afterwards."""
    chunk = Chunk(item.index, item.label, 0, (start, stop), (start, stop))
    run = ChunkRun(program, reader, chunk, program.written, {})
    try:
        yield run
    finally:
        run.release()


def pieces(item: Input, info: FileInfo) -> Iterator[tuple[int, int]]:
    """Cut an input into its clusters, in order; arrays, which cost nothing to slice, into smaller pieces."""
    borders = info.clusters or info.borders
    for first, last in item.steps if item.steps is not None else ((0, info.rows),):
        inner = [first, *(b for b in borders if first < b < last), last]
        for start, stop in pairwise(inner):
            size = PIECE_ROWS if item.format == "arrays" else max(1, stop - start)
            for begin in range(start, stop, size):
                yield begin, min(begin + size, stop)


def find_input(source: Source, name: Any) -> Input:
    """Return the one input that a person means: by label, whole path, or the end of its path."""
    text, whole = str(name), _resolved(str(name))
    labels = [item.label for item in source.inputs]
    found = [item for item in source.inputs if item.label == text]
    found = found or [item for item in source.inputs if _resolved(item.label) == whole]
    found = found or [item for item in source.inputs if item.label.endswith(f"/{text}")]
    if len(found) == 1:
        return found[0]
    if not found:
        names = [Path(label).name for label in labels] + labels
        shown = ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
        raise UnknownNameError(f"no file of the data is called {text!r}{nearest(text, names)} (files: {shown})")
    places = "; ".join(f"{item.label} (dataset {item.dataset!r})" for item in found[:10])
    advice = "give more of the path"
    if len({item.label for item in found}) == 1:
        advice = "give the data of one of these datasets alone"
    raise UsageError(f"{text!r} may be any of {len(found)} files: {places}; {advice}")


def _resolved(label: str) -> str:
    return label if "://" in label else str(Path(label).resolve())


def row_number(row: Any, info: FileInfo, label: str) -> int:
    if isinstance(row, bool) or not hasattr(row, "__index__"):
        raise UsageError(f"a row of {label} is given by its number, got {row!r}")
    number = int(row.__index__())
    if not 0 <= number < info.rows:
        raise UsageError(
            f"{label} has no row {number}: it has {info.rows} rows, numbered from 0"
            + (f" to {info.rows - 1}" if info.rows else "")
        )
    return number


def short(value: Any, room: int = ROOM) -> str:
    """Write a value in about ``room`` letters; what is left out of a list or record shows as dots."""
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, str | bytes):
        return _cut(repr(value), room)
    try:
        if isinstance(value, dict):
            value = ak.Record(value)
        elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
            value = ak.Array(value)
    except (TypeError, ValueError):
        pass  # objects that awkward does not know
    if isinstance(value, ak.Record):
        array, at = value.layout.array, value.layout.at
        value = ak.materialize(ak.Array(array[at : at + 1]))[0]
    elif isinstance(value, ak.Array):
        value = ak.materialize(value)
    if isinstance(value, ak.Array | ak.Record):
        return str(valuestr(value, 1, room, formatter=_SIX_DIGITS))
    return _cut(" ".join(str(value).split()), room)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"
