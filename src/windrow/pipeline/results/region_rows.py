"""Which rows each region has, kept with a result, and columns of such rows read again from the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.data.skim.record import original_sums
from windrow.errors import DataError, MissingColumnError, WindrowError, nearest
from windrow.hep.lumi import lumi_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.selection import RowSet
    from windrow.data.base import Source
    from windrow.pipeline.results.ledger import Ledger
    from windrow.pipeline.results.result import Result


#: Where the metadata of a group of datasets keeps that of its members.
MEMBERS = "members"
#: Rows read at once: a few numbers each.
PIECE = 1_000_000
#: Rows closer than this are read in one request: seeking costs more than reading a few thousand numbers.
GAP = 65_536


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One input whose rows are kept."""

    index: int  #: of the input in the result's source
    label: str
    dataset: str
    identity: str  #: file uuid, footer digest or dataset name


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of every region, by file."""

    files: tuple[KeptFile, ...]
    regions: tuple[str, ...]
    #: (region, position in ``files``) -> rows of its chunks, in ascending order
    sets: Mapping[tuple[str, int], tuple[RowSet, ...]]

    def rows(self, region: str, file: int) -> NDArray[np.int64]:
        """Return the rows of a region in the file at this position of ``files``, in ascending order."""
        parts = [part.rows() for part in self.sets.get((region, file), ())]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def done_rows(ledger: Ledger, dataset: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Give the rows of a dataset that were processed, piece by piece, each with its file."""
    for entry in ledger.entries:
        if entry.dataset == dataset and entry.state == "done":
            for start in range(entry.start, entry.stop or 0, PIECE):
                yield entry.file, np.arange(start, min(start + PIECE, entry.stop or 0))


def read_rows(
    source: Source | None, index: int, columns: Sequence[str], rows: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    if source is None:
        raise DataError("what was read is not kept with this result")
    reader = source.open(index)
    label = source.inputs[index].label
    try:
        for column in columns:
            info = reader.info.columns.get(column)
            if info is None:
                hint = nearest(column, reader.info.columns)
                raise MissingColumnError(f"{label} has no column {column!r}{hint}", file=label)
            if info.kind != "flat":
                raise DataError(f"{label}: column {column!r} has no single number for each row")
        if not len(rows):
            return {c: np.empty(0, dtype=reader.info.columns[c].dtype) for c in columns}
        if rows[-1] >= reader.info.rows:
            raise DataError(f"{label} has {reader.info.rows} rows, and row {rows[-1]} is asked for")
        parts: list[dict[str, Any]] = []
        for piece in np.split(rows, np.flatnonzero(np.diff(rows) > GAP) + 1):
            start = int(piece[0])
            values = reader.read(columns, start, int(piece[-1]) + 1)
            parts.append({c: np.asarray(values[c])[piece - start] for c in columns})
    except OSError as error:
        if isinstance(error, WindrowError):
            raise
        raise DataError(f"{label} cannot be read ({error})", file=label) from error
    finally:
        reader.close()
    return {column: np.concatenate([part[column] for part in parts]) for column in columns}


# -- which runs and luminosity sections were processed, in the form of certification files


COLUMNS = ("run", "luminosityBlock")


def lumis(result: Result) -> dict[str, list[list[int]]]:
    """Read which (run, luminosityBlock) the processed rows have: ``{"1": [[1, 33], [40, 41]]}``, ready for ``json.dump``.

    Of recorded data only: where datasets say ``is_mc`` in their metadata, simulated ones are left out; where none says
    anything, all count. A skim says itself which sections it was made from: its rows are only those that were selected.
    """
    if result.source is None:
        raise DataError("what was read is not kept with this result, so its luminosity sections cannot be read")
    about = dict(_members(result.datasets))
    found = [np.empty((0, 2), dtype=np.int64)]
    for dataset in dict.fromkeys([*about, *(entry.dataset for entry in result.ledger.entries)]):
        if about.get(dataset, {}).get("is_mc"):
            continue
        skim = about.get(dataset, {}).get("skim")
        if isinstance(skim, Mapping):
            found.append(_of_skim(dataset, skim, result.ledger))
            continue
        try:
            found.append(_of_rows(dataset, result.source, result.ledger))
        except WindrowError as error:
            raise DataError(f"the luminosity sections of dataset {dataset!r} cannot be read: {error}") from error
    every = np.concatenate(found)
    return lumi_ranges(every[:, 0], every[:, 1])


def skim_sections(dataset: str, source: Source, ledger: Ledger) -> dict[str, Any] | None:
    """Return the sections that a skim of a dataset stands for: those of all rows that were processed, selected or not.

    None for simulation and for data without sections.
    """
    metadata = source.datasets[dataset]
    if original_sums(metadata) is not None:
        # A skim's own rows do not tell which sections it stands for.
        skim = metadata.get("skim")
        known = skim.get("lumis") if isinstance(skim, dict) else None
        return None if known is None else dict(known)
    if metadata.get("is_mc"):
        return None
    try:
        every = _of_rows(dataset, source, ledger)
    except MissingColumnError:
        return None
    return dict(lumi_ranges(every[:, 0], every[:, 1]))


def _of_rows(dataset: str, source: Source, ledger: Ledger) -> NDArray[np.int64]:
    """Read the distinct (run, section) of the rows of a dataset that were processed."""
    places: dict[str, int] = {}
    for item in source.inputs:
        if item.dataset == dataset:
            places.setdefault(item.label, item.index)
    found = [np.empty((0, 2), dtype=np.int64)]
    for file, rows in done_rows(ledger, dataset):
        read = read_rows(source, places[file], COLUMNS, rows)
        pairs = np.stack([np.asarray(read[name], np.int64) for name in COLUMNS], axis=1)
        found.append(np.unique(pairs, axis=0))
    return np.concatenate(found)


def _of_skim(dataset: str, skim: Mapping[str, Any], ledger: Ledger) -> NDArray[np.int64]:
    """Return the sections that a skim says it was made from, if all of it was processed."""
    sections = skim.get("lumis")
    entries = [entry for entry in ledger.entries if entry.dataset == dataset]
    done = sum(entry.rows for entry in entries if entry.state == "done")
    whole = all(entry.state == "done" for entry in entries) and done == skim.get("selected")
    if sections is None or not whole:
        why = "does not say which sections it was made from"
        if not whole:
            why = f"has not been read whole: only {done:,} of {skim.get('selected')} rows were processed"
        raise DataError(
            f"the luminosity sections of dataset {dataset!r} cannot be told: it was read from a skim that {why}; the "
            "result of the run that wrote the skim has them"
        )
    pairs = [
        (int(run), section)
        for run, ranges in sections.items()
        for first, last in ranges
        for section in range(first, last + 1)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _members(metadata: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give the metadata of each dataset; members of groups speak for themselves."""
    for name, about in metadata.items():
        members = about.get(MEMBERS)
        if isinstance(members, dict):
            yield from _members(members)
        else:
            yield name, about
