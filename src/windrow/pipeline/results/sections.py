"""The luminosity sections a skim stands for: those of all rows that were processed, selected or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.data.skim_record import original_sums
from windrow.errors import MissingColumnError
from windrow.pipeline.results.reading_rows import read_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.data.base import Source
    from windrow.pipeline.results.result import Result


COLUMNS = ("run", "luminosityBlock")

#: Rows read at once: two numbers each.
PIECE = 1_000_000


def read_sections(source: Source, index: int, start: int, stop: int) -> NDArray[np.int64]:
    """Return the distinct (run, section) of some rows of an input."""
    found = [np.empty((0, 2), dtype=np.int64)]
    for first in range(start, stop, PIECE):
        read = read_rows(source, index, COLUMNS, np.arange(first, min(first + PIECE, stop)))
        pairs = np.stack([np.asarray(read[name], np.int64) for name in COLUMNS], axis=1)
        found.append(np.unique(pairs, axis=0))
    return np.unique(np.concatenate(found), axis=0)


def sections(dataset: str, source: Source, result: Result) -> dict[str, Any] | None:
    """Return the sections of a dataset as certification files have them; None for simulation and other data."""
    metadata = source.datasets[dataset]
    skim = metadata.get("skim")
    if original_sums(metadata) is not None:
        # A skim's own rows do not tell which sections it stands for.
        known = skim.get("lumis") if isinstance(skim, dict) else None
        return None if known is None else dict(known)
    if metadata.get("is_mc"):
        return None
    from windrow.hep import lumi_ranges

    places = {item.label: item.index for item in source.inputs if item.dataset == dataset}
    seen = [np.empty((0, 2), dtype=np.int64)]
    for entry in result.ledger.entries:
        if entry.dataset == dataset and entry.state == "done" and entry.stop is not None:
            try:
                seen.append(read_sections(source, places[entry.file], entry.start, entry.stop))
            except MissingColumnError:
                return None
    every = np.concatenate(seen)
    return dict(lumi_ranges(every[:, 0], every[:, 1]))
