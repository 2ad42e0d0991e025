"""The luminosity sections a skim stands for: those of all rows that were processed, selected or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.data.skim_record import original_sums

if TYPE_CHECKING:
    from windrow.data.base import Source
    from windrow.pipeline.result import Result

__all__ = ["sections"]

COLUMNS = ("run", "luminosityBlock")

#: Rows read at once: two numbers each.
PIECE = 1_000_000


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

    done = [e for e in result.ledger.entries if e.dataset == dataset and e.state == "done"]
    places = {item.label: item.index for item in source.inputs if item.dataset == dataset}
    seen: list[Any] = []
    for label, index in places.items():
        reader = source.open(index)
        try:
            if any(name not in reader.info.columns for name in COLUMNS):
                return None
            for entry in done:
                if entry.file == label and entry.stop is not None:
                    for start in range(entry.start, entry.stop, PIECE):
                        stop = min(start + PIECE, entry.stop)
                        read = reader.read(COLUMNS, start, stop)
                        pairs = np.stack([np.asarray(read[n], np.int64) for n in COLUMNS], axis=1)
                        seen.append(np.unique(pairs, axis=0))
        finally:
            reader.close()
    if not seen:
        return {}
    every = np.unique(np.concatenate(seen), axis=0)
    return dict(lumi_ranges(every[:, 0], every[:, 1]))
