"""Cutflow tables: how many rows each cut of a region left, raw and weighted, by dataset and in all.

``executed`` is the order that ran: always there and exact. ``written`` is the order in the user's file: there where the
cuts ran in it, otherwise None, and ``why`` says so. Tables of the same region add up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.pipeline.cutflow_formats import CutflowFormats, TableFormats

if TYPE_CHECKING:
    from windrow.blocks.counts import Layout, LineCounts

__all__ = ["Cutflow", "Line", "Table"]

INITIAL = "initial"
SELECTED = "selected"  #: the line of what passed all cuts, where they ran in several orders


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cutflow: a cut, the rows that reached it and those that passed."""

    name: str
    entered: int
    passed: int
    sumw: float
    sumw2: float
    undefined: int  #: rows for which the cut was None: on neither side
    nan: int  #: rows with NaN among the cut's inputs
    applies: bool = True  #: False where ``when=`` keeps the cut out: every row passes
    inverted: bool = False

    @property
    def error(self) -> float:
        """The statistical uncertainty of ``sumw``."""
        return math.sqrt(self.sumw2)

    @property
    def label(self) -> str:
        """The cut's name, with "!" if it is inverted."""
        return f"!{self.name}" if self.inverted else self.name

    def as_dict(self) -> dict[str, Any]:
        """Return the line as plain data."""
        return {
            "cut": self.label,
            "entered": self.entered,
            "passed": self.passed,
            "sumw": self.sumw,
            "sumw_error": self.error,
            "undefined": self.undefined,
            "nan": self.nan,
            "applies": self.applies,
        }


@dataclass(frozen=True, slots=True)
class Table(TableFormats):
    """The cutflow of one region, for one dataset or several together."""

    region: str
    dataset: str | None  #: None: several together
    cuts: Mapping[str, bool]  #: of the region, as written: cut -> inverted
    written_order: tuple[str, ...]
    weights: frozenset[str]
    parts: Mapping[Layout, LineCounts]  #: by the order that ran
    not_applying: frozenset[str] = frozenset()
    planned: tuple[str, ...] = ()  #: the order that would have run, for a dataset without rows
    used: frozenset[str] = (
        frozenset()
    )  #: cuts of any region; the initial line stands before the first
    scaled: bool = False  #: whether the weighted sums were scaled after the run

    @property
    def passed(self) -> int:
        """How many rows the region has in the end; exact, whatever ran in which order."""
        return sum(int(lines.counts[self._last(plan), 1]) for plan, lines in self.parts.items())

    @property
    def executed(self) -> tuple[Line, ...]:
        """The order that ran.

        Where several orders did, each line adds up what reached and passed that cut, and a last line has what passed
        all of them.
        """
        if not self.parts:
            return self._empty(self.planned)
        orders = sorted(
            self.parts, key=lambda plan: -int(self.parts[plan].counts[self._first(plan), 1])
        )
        # Keyed apart: a user may well call a cut "initial" or "selected".
        totals: dict[str | None, list[float]] = {}
        for plan in orders:
            first = self._first(plan)
            names = (None, *plan.lines[plan.regions.index(self.region)])
            lines = self.parts[plan]
            for number, name in enumerate(names, start=first):
                numbers = [*lines.counts[number].tolist(), *lines.sums[number].tolist()]
                known = totals.setdefault(name, [0, 0, 0, 0, 0.0, 0.0])
                totals[name] = [a + b for a, b in zip(known, numbers, strict=True)]
        if self.orders > 1:
            last = [self.parts[plan].sums[self._last(plan)].tolist() for plan in orders]
            sums = [sum(column) for column in zip(*last, strict=True)]
            selected = _total(SELECTED, [totals[None][0], self.passed, 0, 0, *sums])
            return (*self._lines(totals), selected)
        return self._lines(totals)

    @property
    def written(self) -> tuple[Line, ...] | None:
        """The written order; None where the cuts or weights ran in another one."""
        if not self.parts:
            return self._empty(self.written_order)
        return self.executed if not self.why else None

    @property
    def why(self) -> str:
        """Why there is no written-order table; empty if there is one."""
        mine = self._shown(self.written_order)
        moved = [order for order in self._orders() if order != mine]
        if not moved:
            return ""
        ran = " ".join(name for name in moved[0] if name != INITIAL)
        return f'the cuts did not run in the written order: {ran}; cutflow="exact" runs it'

    def __add__(self, other: Table) -> Table:
        if other.region != self.region or other.cuts != self.cuts:
            raise UsageError(
                f"cutflows add up for the same region: {self.region!r} of {list(self.cuts)} and {other.region!r} of "
                f"{list(other.cuts)} are not"
            )
        parts = dict(self.parts)
        for plan, lines in other.parts.items():
            parts[plan] = parts[plan] + lines if plan in parts else lines
        same = self.dataset == other.dataset
        return Table(
            self.region, self.dataset if same else None, self.cuts, self.written_order,
            self.weights, parts, self.not_applying & other.not_applying, self.planned, self.used,
            self.scaled or other.scaled,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain data, each list of lines saying what it is."""
        written = self.written
        return {
            "region": self.region,
            "dataset": self.dataset,
            "passed": self.passed,
            "executed": [line.as_dict() for line in self.executed],
            "written": None if written is None else [line.as_dict() for line in written],
            "why_no_written": self.why,
        }

    def to_json(self) -> str:
        """Return the table as JSON."""
        return json.dumps(self.as_dict())

    @property
    def kind(self) -> str:
        """Which order the lines are in."""
        if self.orders > 1:
            return f"executed, {self.orders} orders: rows that reached and passed each cut"
        return "executed order" if self.why else "written order"

    @property
    def title(self) -> str:
        """The region and the dataset."""
        return f"{self.region} ({self.dataset or 'all datasets'})"

    @property
    def orders(self) -> int:
        """In how many orders the cuts ran."""
        return len(self._orders())

    @property
    def weighted(self) -> bool:
        """Whether the weighted sums say more than the counts."""
        return bool(self.weights) or self.scaled

    def __str__(self) -> str:
        lines = _text(self.executed, self.weighted)
        return "\n".join([f"{self.title}: exact, {self.kind}", *lines])

    # -- inside ------------------------------------------------------------------------------

    def _first(self, plan: Layout) -> int:
        return plan.first[plan.regions.index(self.region)]

    def _last(self, plan: Layout) -> int:
        return self._first(plan) + len(plan.lines[plan.regions.index(self.region)])

    def _orders(self) -> tuple[tuple[str, ...], ...]:
        return tuple(dict.fromkeys(self._shown(plan.order) for plan in self.parts))

    def _shown(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """What of an order this table depends on.

        The region's cuts, where the weights stand among them, and which weights come before the first cut of any
        region, because they weight the initial line.
        """
        first = next(
            (n for n, name in enumerate(order) if name in (self.used or self.cuts)), len(order)
        )
        initial = tuple(name for name in order[:first] if name in self.weights)
        rest = (name for name in order[first:] if name in self.cuts or name in self.weights)
        return (*initial, INITIAL, *rest)

    def _lines(self, totals: Mapping[str | None, list[float]]) -> tuple[Line, ...]:
        return tuple(
            _total(INITIAL, numbers)
            if name is None
            else _line(name, numbers, name not in self.not_applying, self.cuts[name])
            for name, numbers in totals.items()
        )

    def _empty(self, order: tuple[str, ...]) -> tuple[Line, ...]:
        names = [name for name in order if name in self.cuts]
        return self._lines({name: [0, 0, 0, 0, 0.0, 0.0] for name in (None, *names)})


class Cutflow(CutflowFormats, Mapping[str, Table]):
    """Tables by region: ``cutflow["SR"]`` for all datasets together, ``cutflow["SR", "ttbar"]`` for one."""

    def __init__(self, tables: Mapping[tuple[str, str], Table]) -> None:
        self._tables = dict(tables)
        self.regions = tuple(dict.fromkeys(region for region, _ in self._tables))
        self.datasets = tuple(dict.fromkeys(dataset for _, dataset in self._tables))

    def __getitem__(self, key: Any) -> Table:
        if isinstance(key, tuple):
            if key not in self._tables:
                raise KeyError(
                    f"no table {key!r}; regions: {', '.join(self.regions)}; "
                    f"datasets: {', '.join(self.datasets)}"
                )
            return self._tables[key]
        tables = [
            self._tables[key, dataset]
            for dataset in self.datasets
            if (key, dataset) in self._tables
        ]
        if not tables:
            raise KeyError(f"no region {key!r}; there are {', '.join(self.regions)}")
        total = tables[0]
        for table in tables[1:]:
            total = total + table
        return total

    def __iter__(self) -> Iterator[str]:
        return iter(self.regions)

    def __len__(self) -> int:
        return len(self.regions)

    def __add__(self, other: Cutflow) -> Cutflow:
        tables = dict(self._tables)
        for key, table in other._tables.items():
            tables[key] = tables[key] + table if key in tables else table
        return Cutflow(tables)

    def as_dict(self) -> dict[str, Any]:
        """Return all tables as plain data: by region, in all and by dataset."""
        return {
            region: {
                "all": self[region].as_dict(),
                "datasets": {d: t.as_dict() for (r, d), t in self._tables.items() if r == region},
            }
            for region in self.regions
        }

    def to_json(self) -> str:
        """Return all tables as JSON."""
        return json.dumps(self.as_dict())

    def __str__(self) -> str:
        return "\n\n".join(str(self[region]) for region in self.regions)


def _line(name: str, numbers: list[float], applies: bool, inverted: bool) -> Line:
    entered, passed, undefined, nan = (int(number) for number in numbers[:4])
    sumw, sumw2 = map(float, numbers[4:])
    return Line(name, entered, passed, sumw, sumw2, undefined, nan, applies, inverted)


def _total(name: str, numbers: list[float]) -> Line:
    return _line(name, numbers, applies=True, inverted=False)


def _text(lines: tuple[Line, ...], weighted: bool) -> Iterator[str]:
    width = max(len(line.label) for line in lines)
    head = f"  {'cut':<{width}}  {'passed':>12}  {'of cut':>8}  {'of all':>8}"
    yield head + (f"  {'weighted':>14}  {'+-':>10}" if weighted else "")
    initial = lines[0].passed
    for line in lines:
        text = f"  {line.label:<{width}}  {line.passed:>12,}"
        text += f"  {_percent(line.passed, line.entered):>8}  {_percent(line.passed, initial):>8}"
        if weighted:
            text += f"  {line.sumw:>14.6g}  {line.error:>10.4g}"
        if not line.applies:
            text += "  n/a here"
        if line.undefined:
            text += f"  {line.undefined:,} undefined"
        if line.nan:
            text += f"  {line.nan:,} with NaN"
        yield text


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "-"
