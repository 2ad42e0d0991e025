"""The first rows of the files an analysis is written for, and axes whose ranges come from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windrow.data.base import Source


#: Rows of each file that are looked at: enough for quantiles, and read in a moment.
SAMPLE_ROWS = 50_000
#: Fewer values say nothing about a range.
FEWEST_VALUES = 5
#: The part of the values an axis should hold, without the tails.
QUANTILES = (0.01, 0.99)


def read_sample(source: Source, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the columns of the first rows of each file that has rows."""
    for one in source.inputs:
        reader = source.open(one.index)
        try:
            if reader.info.rows:
                yield dict(reader.read(list(columns), 0, min(reader.info.borders[1], SAMPLE_ROWS)))
        finally:
            reader.close()


def read_values(source: Source, column: str) -> np.ndarray[Any, Any]:
    """Return the first values of a column of one number per row, without those that are not finite."""
    parts = [np.asarray(part[column]) for part in read_sample(source, [column])]
    values = np.concatenate(parts) if parts else np.empty(0)
    return values[np.isfinite(values)]


def choose_axis(values: Any) -> tuple[int, float, float]:
    """Return bins, low and high of an axis from quantile to quantile, on round numbers."""
    values = np.asarray(values)
    if len(values) < FEWEST_VALUES:
        return 50, 0.0, 150.0  # nothing to go by
    low, high = (float(edge) for edge in np.quantile(values, QUANTILES))
    if values.dtype.kind in "iub" and high - low <= 50:
        # One bin for each number.
        return round(high - low) + 1, round(low) - 0.5, round(high) + 0.5
    if high <= low:
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    if 0 <= low < 0.3 * high:
        low = 0.0  # a spectrum that nearly begins at zero is read best from zero
    step = 10 ** math.floor(math.log10((high - low) / 2))
    first, last = math.floor(low / step), math.ceil(high / step)
    # Some ten values in a bin where no peak is, and no more bins than one can see; round widths.
    wanted = 20 if len(values) < 300 else 40 if len(values) < 3000 else 60
    finer = max(n for n in (1, 2, 5, 10, 20, 50) if n == 1 or (last - first) * n <= wanted)
    return (last - first) * finer, step * first, step * last
