"""The first rows of the files a skeleton is written for, and axes whose ranges come from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Axis:
    """A regular axis; ``guessed`` where the files had too few rows to tell."""

    bins: int
    low: float
    high: float
    guessed: bool = False

    @property
    def code(self) -> str:
        """The arguments of ``Hist.new.Reg``."""
        return f"{self.bins}, {self.low:g}, {self.high:g}"


class Sample:
    """Columns of the first unit of each file."""

    def __init__(self, source: Source, indices: Sequence[int]) -> None:
        self._source = source
        self._indices = indices

    def parts(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the columns of each file that has them all and has rows."""
        for _, part in self.parts_by_file(columns):
            if len(part) == len(columns):
                yield part

    def parts_by_file(self, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of each file with rows, and those of the columns that it has."""
        for index in self._indices:
            reader = self._source.open(index)
            try:
                info = reader.info
                there = [name for name in columns if name in info.columns]
                if info.rows and there:
                    yield index, dict(reader.read(there, 0, min(info.borders[1], SAMPLE_ROWS)))
            finally:
                reader.close()

    def values(self, column: str) -> np.ndarray[Any, Any]:
        """Return all numbers of a column, those of lists too."""
        import awkward as ak

        parts = [ak.to_numpy(ak.flatten(part[column], axis=None)) for part in self.parts([column])]
        return np.concatenate(parts) if parts else np.empty(0)


def axis_of(values: Any, *, otherwise: tuple[float, float] = (0.0, 1.0)) -> Axis:
    """Return an axis from quantile to quantile, on round numbers."""
    values = np.asarray(values)
    whole = values.dtype.kind in "iub"
    values = values[np.isfinite(values)].astype(np.float64)
    if len(values) < FEWEST_VALUES:
        return Axis(50, *otherwise, guessed=True)
    low, high = (float(edge) for edge in np.quantile(values, QUANTILES))
    if whole and high - low <= 50:
        # One bin for each number.
        return Axis(round(high - low) + 1, round(low) - 0.5, round(high) + 0.5)
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
    return Axis((last - first) * finer, step * first, step * last)
