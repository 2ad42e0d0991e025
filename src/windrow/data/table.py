"""``table``: another tree of a file, whole and in memory, such as the ``Runs`` of a NanoAOD file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.data.source import FileSource
from windrow.data.source import open as open_source
from windrow.errors import MissingColumnError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.data.base import Input


def table(files: Any, tree: str | None = None, *, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the columns of a tree by name, the files one after the other.

    ``wr.data.table("dy/*.root", "Runs")["genEventSumw"].sum()`` is the sum of weights before any skim. One number per
    row is a NumPy array, everything else an awkward array.

    Parameters
    ----------
    files
        Whatever ``wr.data.open`` takes for the files of one dataset; trees named in it do not count, so that the files of
        an analysis can be given as they are.
    tree
        The tree; by default the only one, or the one called "Events".
    columns
        Which columns; by default all of them.
    """
    if isinstance(columns, str):
        raise SpecError(f"columns= is a list of names, got {columns!r}")
    source = open_source(files)
    if not isinstance(source, FileSource):
        raise SpecError(f"a table is read from files, got a {type(source).__name__}; give the files it is made of")
    if len(source.datasets) > 1:
        names = ", ".join(source.datasets)
        raise SpecError(f"a table is read from the files of one dataset, got those of {names}")
    if tree is not None:
        source = replace(source, inputs=tuple(_of(item, tree) for item in source.inputs))
    parts = [_read(source, index, columns) for index in range(len(source.inputs))]
    _refuse_unlike(source.inputs, parts)
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _of(item: Input, tree: str) -> Input:
    """Return the other tree of a file; what is known of the rows of the first says nothing about it."""
    if item.format != "root":
        raise SpecError(f"{item.label} is no ROOT file and has no trees, but {tree!r} is asked for")
    return replace(item, tree=tree, rows=None, steps=None)


def _read(source: FileSource, index: int, columns: Sequence[str] | None) -> dict[str, Any]:
    reader = source.open(index)
    try:
        names = list(reader.info.columns) if columns is None else list(columns)
        return reader.read(names, 0, reader.info.rows)
    finally:
        reader.close()


def _refuse_unlike(inputs: Sequence[Input], parts: Sequence[dict[str, Any]]) -> None:
    for item, part in zip(inputs, parts, strict=True):
        if unlike := sorted(parts[0].keys() ^ part.keys()):
            raise MissingColumnError(
                f"{unlike[0]!r} is in only one of {inputs[0].label} and {item.label}: name the columns you need with "
                "columns=[...]",
                column=unlike[0],
                file=item.label,
            )


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return ak.concatenate(parts)
