"""N-1 tables: for each cut of a region, the rows that pass all the others, weighted by all weights.

A cut that later steps rely on cannot be left out: its line then says which step fails without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.errors import UnknownNameError, nearest

__all__ = ["Count", "NMinusOne", "NMinusOneTables", "UnknownTable"]


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

    def __add__(self, other: Count) -> Count:
        return Count(self.rows + other.rows, self.sumw + other.sumw, self.sumw2 + other.sumw2)

    def scaled(self, factor: float) -> Count:
        """Return it with weights scaled."""
        return Count(self.rows, self.sumw * factor, self.sumw2 * factor * factor)


@dataclass(frozen=True, slots=True)
class NMinusOne:
    """The N-1 counts of one region, for one dataset or several together."""

    region: str
    dataset: str | None  #: None: several together
    initial: Count
    others: Mapping[str, Count]  #: cut left out -> rows that pass the rest
    full: Count
    failures: Mapping[str, str]  #: cut that cannot be left out -> why

    @property
    def labels(self) -> list[str]:
        """Line by line: "initial", one for each cut left out, and all cuts."""
        return ["initial", *(f"N - {cut}" for cut in self.others), "N"]

    @property
    def counts(self) -> list[Count | None]:
        """Counts by line; None where a cut cannot be left out."""
        rest = [None if cut in self.failures else count for cut, count in self.others.items()]
        return [self.initial, *rest, self.full]

    @property
    def nev(self) -> list[int | None]:
        """Rows by line; None where a cut cannot be left out."""
        return [None if count is None else count.rows for count in self.counts]

    @property
    def wgtev(self) -> list[float | None]:
        """Sums of weights by line; None where a cut cannot be left out."""
        return [None if count is None else count.sumw for count in self.counts]

    def __add__(self, other: NMinusOne) -> NMinusOne:
        return NMinusOne(
            self.region,
            self.dataset if self.dataset == other.dataset else None,
            self.initial + other.initial,
            {cut: count + other.others[cut] for cut, count in self.others.items()},
            self.full + other.full,
            {**other.failures, **self.failures},
        )

    def scaled(self, factor: float) -> NMinusOne:
        """Return the table with weights scaled; rows are as they were."""
        return NMinusOne(
            self.region,
            self.dataset,
            self.initial.scaled(factor),
            {cut: count.scaled(factor) for cut, count in self.others.items()},
            self.full.scaled(factor),
            self.failures,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain data."""
        return {
            "region": self.region,
            "dataset": self.dataset,
            "labels": self.labels,
            "nev": self.nev,
            "wgtev": self.wgtev,
            "failures": dict(self.failures),
        }

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels)
        lines = [f"{self.region} ({self.dataset or 'all datasets'}): N-1, exact, weighted by all weights"]
        lines.append(f"  {'':<{width}}  {'rows':>12}  {'weighted':>14}  {'+-':>10}")
        for label, count in zip(self.labels, self.counts, strict=True):
            text = f"  {label:<{width}}  "
            if count is None:
                text += f"{'n/a':>12}  {self.failures[label.removeprefix('N - ')]}"
            else:
                text += f"{count.rows:>12,}  {count.sumw:>14.6g}  {count.error:>10.4g}"
            lines.append(text)
        return "\n".join(lines)


class NMinusOneTables(Mapping[str, NMinusOne]):
    """Tables by region: ``nminus1["SR"]`` for all datasets together, ``nminus1["SR", "ttbar"]`` for one."""

    def __init__(self, tables: Mapping[tuple[str, str], NMinusOne]) -> None:
        self.tables = dict(tables)

    def __getitem__(self, key: Any) -> NMinusOne:
        region, dataset = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
        mine = [table for (name, _), table in self.tables.items() if name == region]
        if not mine:
            asked = ", ".join(self) or "none: run with nminus1=True"
            raise UnknownTable(f"no N-1 table for region {region!r}{nearest(str(region), self)} (regions: {asked})")
        if dataset is not None:
            if (region, dataset) not in self.tables:
                known = [other for name, other in self.tables if name == region]
                raise UnknownTable(
                    f"no N-1 table of region {region!r} for dataset {dataset!r}{nearest(str(dataset), known)} "
                    f"(datasets: {', '.join(known)})"
                )
            return self.tables[region, dataset]
        total = mine[0]
        for table in mine[1:]:
            total = total + table
        return total

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(region for region, _ in self.tables))

    def __len__(self) -> int:
        return len(dict.fromkeys(region for region, _ in self.tables))

    def __add__(self, other: NMinusOneTables) -> NMinusOneTables:
        tables = dict(self.tables)
        for key, table in other.tables.items():
            tables[key] = tables[key] + table if key in tables else table
        return NMinusOneTables(tables)

    def as_dict(self) -> dict[str, Any]:
        """Return all tables as plain data: by region, in all and by dataset."""
        return {
            region: {
                "all": self[region].as_dict(),
                "datasets": {d: t.as_dict() for (r, d), t in self.tables.items() if r == region},
            }
            for region in self
        }

    def __str__(self) -> str:
        return "\n\n".join(str(self[region]) for region in self)


class UnknownTable(UnknownNameError, KeyError):
    """A region or dataset that no table is of."""
