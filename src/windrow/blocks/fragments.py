"""Rows that go to files: written down by the worker that has them, in pieces of bounded size.

A fragment is a file of its own, so a chunk that is done again, or whose rows are not accepted, leaves nothing in the
file a user gets: that one is written at the end, from the fragments of accepted chunks, in the order of the rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.calls import Meter
from windrow.blocks.columns import take
from windrow.blocks.selection import Selection, union
from windrow.data.base import IDENTITY_COLUMN
from windrow.data.skim.fragments import Fragment, write_fragment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundSave


#: Stored bytes read for one fragment, about: unpacked they are some three times as many, and every worker has one.
#: A thousand columns cost a tenth of a second per piece, so that thirds of it took a fifth longer (benchmarks/skim.py).
PIECE_BYTES = 96_000_000

_numbers = count()


@dataclass(frozen=True, slots=True)
class SavedPart:
    """A fragment and where its rows come from."""

    key: str  #: the file they go to
    input: int
    start: int  #: first row of the input it may have
    fragment: Fragment


def write_down(run: ChunkRun) -> tuple[SavedPart, ...]:
    """Write the rows of a chunk that are wanted in files; return the fragments."""
    parts: list[SavedPart] = []
    for save in run.program.saves:
        rows = union([run.selections[lane] for lane in save.lanes])
        meter = run.meters.setdefault(f"save {save.key}", Meter())
        meter.rows_out += rows.count
        before = run.store.reader.bytes_read
        for first, last in _pieces(run, save, rows):
            began = perf_counter()
            piece = _between(rows, first, last)
            columns = _columns(run, save, rows, piece, first, last)
            place = Path(save.staging) / f"{os.getpid()}-{threading.get_ident()}-{next(_numbers)}.part"
            fragment = write_fragment(place, columns, len(piece), origin=run.chunk.label)
            meter.call(len(piece), perf_counter() - began)
            parts.append(SavedPart(save.key, run.chunk.input, run.start + first, fragment))
        meter.bytes_read += run.store.reader.bytes_read - before
    return tuple(parts)


def empty_columns(run: ChunkRun, save: BoundSave) -> dict[str, Any]:
    """Return the columns of a file without rows, typed as the file and a run on no rows say."""
    nothing = Selection(run.store.length, np.empty(0, dtype=np.int64))
    return _columns(run, save, nothing, np.empty(0, dtype=np.int64), 0, 0)


def _pieces(run: ChunkRun, save: BoundSave, rows: Selection) -> Iterator[tuple[int, int]]:
    """Cut the clusters that have wanted rows into ranges that are not too much at once."""
    if not rows.count:
        return
    borders = run.store.borders
    info = run.store.reader.info
    stored = sum(run.program.columns[name].stored_bytes for name in save.columns)
    most = max(1, int(PIECE_BYTES * info.rows / max(stored, 1)))
    wanted = np.diff(rows.cut_at(borders)) > 0
    begin: int | None = None
    for number, (first, last) in enumerate(pairwise(borders.tolist())):
        if begin is not None and (not wanted[number] or last - begin > most):
            yield begin, first
            begin = None
        if wanted[number] and begin is None:
            begin = first
    if begin is not None:
        yield begin, int(borders[-1])


def _between(rows: Selection, first: int, last: int) -> NDArray[np.int64]:
    if rows.index is None:
        return np.arange(first, last)
    start, stop = np.searchsorted(rows.index, (first, last))
    return rows.index[start:stop]


def _columns(
    run: ChunkRun, save: BoundSave, rows: Selection, piece: NDArray[np.int64], first: int, last: int
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if save.columns:
        # Past the store: a thousand columns of a whole chunk would not fit, and nobody asks for them again.
        read = run.store.reader.read(save.columns, run.start + first, run.start + last)
        where = None if len(piece) == last - first else piece - first
        columns.update({name: take(read[name], where) for name in save.columns})
    if save.made or save.identity:
        chosen = Selection(rows.length, piece)
        for name in save.made:
            columns[name] = run.store.made(name, chosen)
            if run.varied.get(name):
                for side in ("up", "down"):
                    columns[f"{name}_{side}"] = run.store.made(f"{name} {side}", chosen)
        if save.identity:
            columns[IDENTITY_COLUMN] = run.caller.identities(chosen)
    return columns
