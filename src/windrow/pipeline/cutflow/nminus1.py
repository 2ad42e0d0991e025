"""N-1 tables: for each cut of a region, the rows that pass all other cuts, weighted by all weights.

A cut that later steps rely on cannot be left out: its line then says which step fails without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.cutflow_counts import ALL_ROWS, ANY_ORDER, all_weights
from windrow.pipeline.binding.lanes import without_region
from windrow.pipeline.cutflow.regions import RegionTables, add_by_key
from windrow.pipeline.results.grid import Grid

if TYPE_CHECKING:
    from windrow.blocks.cutflow_counts import Counts


@dataclass(frozen=True, slots=True)
class Count:
    """Some rows and what they weigh."""

    rows: int
    sumw: float
    sumw2: float

    @property
    def error(self) -> float:
        """The statistical uncertainty of ``sumw``."""
        return math.sqrt(self.sumw2)

    @classmethod
    def at_end(cls, counts: Counts, lane: str = ALL_ROWS) -> Count:
        """Return what a lane has in the end, with all weights; all rows have those that are known before any cut."""
        lines = counts.get((ANY_ORDER, all_weights(lane)))
        if lines is None:
            return cls(0, 0.0, 0.0)
        return cls(int(lines[0, 1]), float(lines[0, 4]), float(lines[0, 5]))

    def __add__(self, other: Count) -> Count:
        return Count(self.rows + other.rows, self.sumw + other.sumw, self.sumw2 + other.sumw2)

    def scaled(self, factor: float) -> Count:
        return Count(self.rows, self.sumw * factor, self.sumw2 * factor * factor)


@dataclass(frozen=True, slots=True)
class NMinusOne:
    """The N-1 counts of one region, for one dataset or several together."""

    region: str
    dataset: str | None  #: None: several together
    lines: Mapping[str, Count]  #: "initial", one for each cut left out, and "N" for all cuts
    failures: Mapping[str, str]  #: cut that cannot be left out -> why

    @classmethod
    def of(
        cls, region: str, dataset: str, cuts: Iterable[str], counts: Counts, given_up: Mapping[str, str]
    ) -> NMinusOne:
        """Gather what the lanes of a region and of all its cuts but one counted; ``given_up`` says which could not."""
        lanes = {cut: without_region(region, cut) for cut in cuts}
        left_out = {f"N - {cut}": Count.at_end(counts, lane) for cut, lane in lanes.items()}
        lines = {"initial": Count.at_end(counts), **left_out, "N": Count.at_end(counts, region)}
        return cls(region, dataset, lines, {cut: given_up[lane] for cut, lane in lanes.items() if lane in given_up})

    @property
    def labels(self) -> list[str]:
        """Line by line: "initial", one for each cut left out, and all cuts."""
        return list(self.lines)

    @property
    def counts(self) -> list[Count | None]:
        """Counts by line; None where a cut cannot be left out."""
        failed = {f"N - {cut}" for cut in self.failures}
        return [None if label in failed else count for label, count in self.lines.items()]

    @property
    def nev(self) -> list[int | None]:
        """Rows by line; None where a cut cannot be left out."""
        return [None if count is None else count.rows for count in self.counts]

    @property
    def wgtev(self) -> list[float | None]:
        """Sums of weights by line; None where a cut cannot be left out."""
        return [None if count is None else count.sumw for count in self.counts]

    def __add__(self, other: NMinusOne) -> NMinusOne:
        lines = add_by_key((self.lines, other.lines))
        dataset = self.dataset if self.dataset == other.dataset else None
        return NMinusOne(self.region, dataset, lines, {**other.failures, **self.failures})

    def scaled(self, factor: float) -> NMinusOne:
        return replace(self, lines={label: count.scaled(factor) for label, count in self.lines.items()})

    def as_dict(self) -> dict[str, Any]:
        return {
            "region": self.region,
            "dataset": self.dataset,
            "labels": self.labels,
            "nev": self.nev,
            "wgtev": self.wgtev,
            "failures": dict(self.failures),
        }

    def grid(self, sign: str = "+-") -> Grid:
        rows = []
        for label, count in zip(self.labels, self.counts, strict=True):
            if count is None:
                rows.append([label, "n/a", "", "", self.failures[label.removeprefix("N - ")]])
            else:
                rows.append([label, f"{count.rows:,}", f"{count.sumw:.6g}", f"{count.error:.4g}", ""])
        title = f"{self.region} ({self.dataset or 'all datasets'}): N-1, exact, weighted by all weights"
        return Grid(title, ["", "rows", "weighted", sign, ""], rows, numbers=range(1, 4))

    def __str__(self) -> str:
        return self.grid().text()


class NMinusOneTables(RegionTables[NMinusOne]):
    """Tables by region: ``nminus1["SR"]`` for all datasets together, ``nminus1["SR", "ttbar"]`` for one."""

    called = "N-1 table"
    no_region = "none: run with nminus1=True"

    def __add__(self, other: NMinusOneTables) -> NMinusOneTables:
        return NMinusOneTables(add_by_key((self.tables, other.tables)))
