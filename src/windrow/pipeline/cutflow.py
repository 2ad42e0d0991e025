"""Cutflow tables: how many rows each cut of a region left, raw and weighted, by dataset and in all.

``executed`` is the order that ran: always there and exact. ``written`` is the order in the user's file: exact where the cuts
ran in it, otherwise estimated from rows that were shown to all cuts. Every line says which it is. Tables of the same region
add up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windrow.blocks.counts import LineCounts
from windrow.errors import UsageError
from windrow.pipeline.completing import Both, Changed
from windrow.pipeline.cutflow_formats import CutflowFormats, TableFormats
from windrow.pipeline.cutflow_lines import INITIAL, SELECTED, Line, line_of, total_of
from windrow.pipeline.written_order import Member, Writing, add_members, add_parts

if TYPE_CHECKING:
    from windrow.blocks.counts import Layout
    from windrow.pipeline.estimating import Estimate

__all__ = ["Cutflow", "Line", "Table"]


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
    used: frozenset[str] = frozenset()  #: cuts of any region; the initial line stands before the first
    scaled: bool = False  #: whether the weighted sums were scaled after the run
    members: tuple[Member, ...] = ()  #: what each dataset has; none: one, of which nothing was sampled
    #: sums of weights and squared weights of the initial line (NaN: not known) and of the end, added up apart from orders
    finals: tuple[float, ...] = ()
    #: the written order, once somebody asked: estimating takes its time, and all that is shown begins with it
    _written: list[tuple[Line, ...] | None] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def passed(self) -> int:
        """How many rows the region has in the end; exact, whatever ran in which order."""
        return self.selected.passed

    @property
    def selected(self) -> Line:
        """What passed all cuts, weighted as the last written line is; exact, whatever ran in which order."""
        totals = [0, 0, 0, 0, 0.0, 0.0]
        for plan, lines in self._sorted():
            end = plan.end(self.region)
            numbers = [*lines.counts[end].tolist(), *lines.sums[end].tolist()]
            totals = [a + b for a, b in zip(totals, numbers, strict=True)]
        return self._final(total_of(SELECTED, totals), end=True)

    @property
    def executed(self) -> tuple[Line, ...]:
        """The order that ran: exact. A line is weighted by the weights that ran before it.

        Where several orders did, each line adds up what reached and passed that cut, and a last line has what passed
        all of them.
        """
        if not self.parts:
            return self._empty(self.planned)
        # Keyed apart: a user may well call a cut "initial" or "selected".
        totals: dict[str | None, list[float]] = {}
        for plan, lines in self._sorted():
            number = plan.regions.index(self.region)
            names = (None, *plan.lines[number])
            for line, name in enumerate(names, start=plan.first[number]):
                numbers = [*lines.counts[line].tolist(), *lines.sums[line].tolist()]
                known = totals.setdefault(name, [0, 0, 0, 0, 0.0, 0.0])
                totals[name] = [a + b for a, b in zip(known, numbers, strict=True)]
        first, *cuts = self._lines(totals)
        if self.orders > 1:
            cuts.append(self.selected)
        elif self._writing.ends_as_written(self.parts):
            cuts[-1] = self._final(cuts[-1], end=True)
        return (self._final(first, end=False), *cuts)

    @property
    def written(self) -> tuple[Line, ...] | None:
        """The written order: exact where the cuts ran in it, else estimated; every line says which it is.

        None where rows would have to be seen by all cuts for it, and none were; ``why`` says so.
        """
        if not self._written:
            self._written.append(self._find_written())
        return self._written[0]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that are shown first: the written order if there is one, else the one that ran."""
        written = self.written
        return self.executed if written is None else written

    @property
    def why(self) -> str:
        """Why there is no written-order table; empty if there is one."""
        moved = self.moved
        if not moved or self.written is not None:
            return ""
        shown = {*self.cuts, *self.weights}
        ran = " ".join(name for name in moved[0].order if name in shown)
        return (
            f"the cuts did not run in the written order: {ran}; no rows were shown to all cuts, to estimate from; "
            'cutflow.complete() finds out, and cutflow="exact" runs it'
        )

    def __add__(self, other: Table) -> Table:
        if other.region != self.region or other.cuts != self.cuts:
            raise UsageError(
                f"cutflows add up for the same region: {self.region!r} of {list(self.cuts)} and {other.region!r} of "
                f"{list(other.cuts)} are not"
            )
        same = self.dataset == other.dataset
        # A table without rows has none of these sums; one of an unknown sum makes all unknown.
        filled = [table.finals for table in (self, other) if table.parts]
        finals = tuple(map(sum, zip(*filled, strict=False)))
        return Table(
            self.region, self.dataset if same else None, self.cuts, self.written_order,
            self.weights, add_parts(self.parts, other.parts),
            self.not_applying & other.not_applying, self.planned, self.used,
            self.scaled or other.scaled, add_members((*self._members(), *other._members())), finals,
        )  # fmt: skip

    def scale(self, factor: float) -> Table:
        """Return the table with weights scaled; what was counted stays as counted."""
        by = [factor, factor**2]
        return replace(
            self,
            parts={p: LineCounts(lines.counts, lines.sums * by) for p, lines in self.parts.items()},
            members=tuple(replace(m, factor=m.factor * factor) for m in self._members()),
            finals=tuple(a * b for a, b in zip(self.finals, by * 2, strict=False)),
            scaled=True,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain data, each line saying what it is."""
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
        """What ``lines`` are: exact or estimated, and in which order."""
        written = self.written
        if written is not None:
            return f"{'exact' if self.is_exact else 'estimated'}, written order"
        if self.orders > 1:
            return f"exact, executed, {self.orders} orders: rows that reached and passed each cut"
        return "exact, executed order"

    @property
    def moved(self) -> list[Layout]:
        """What ran in orders that show in the table and are not the written one."""
        writing = self._writing
        mine = writing.shown(self.written_order)
        return [plan for plan in self.parts if writing.shown(plan.order) != mine]

    @property
    def is_exact(self) -> bool:
        """Whether the written order's table is there, and exact in every line."""
        written = self.written
        return written is not None and all(line.kind == "exact" for line in written)

    @property
    def orders(self) -> int:
        """In how many orders the cuts ran."""
        return len({self._writing.shown(plan.order) for plan in self.parts})

    @property
    def weighted(self) -> bool:
        """Whether the weighted sums say more than the counts."""
        return bool(self.weights) or self.scaled

    # -- inside ------------------------------------------------------------------------------

    @property
    def _writing(self) -> Writing:
        cuts = {name: self.cuts[name] for name in self.written_order if name in self.cuts}
        used = self.used or frozenset(self.cuts)
        return Writing(self.region, cuts, self.written_order, self.weights, used)

    def _find_written(self) -> tuple[Line, ...] | None:
        if not self.parts:
            return self._empty(self.written_order)
        if not self.moved:
            return self.executed
        found = self._writing.estimates(self._members())
        return None if found is None else tuple(self._estimated(found))

    def _members(self) -> tuple[Member, ...]:
        return self.members or (Member(self.dataset, self.parts, self.not_applying),)

    def _sorted(self) -> list[tuple[Layout, LineCounts]]:
        """The parts, the largest first."""

        def size(part: tuple[Layout, LineCounts]) -> int:
            plan, lines = part
            return int(lines.counts[plan.first[plan.regions.index(self.region)], 1])

        return sorted(self.parts.items(), key=size, reverse=True)

    def _final(self, line: Line, *, end: bool) -> Line:
        """Give a first or last line the sums that are the same bits in all orders, where they are known."""
        sums = self.finals[2:] if end else self.finals[:2]
        known = bool(sums) and not math.isnan(sums[0])
        return replace(line, sumw=sums[0], sumw2=sums[1]) if known else line

    def _lines(self, totals: Mapping[str | None, list[float]]) -> tuple[Line, ...]:
        return tuple(
            total_of(INITIAL, numbers)
            if name is None
            else line_of(name, numbers, name not in self.not_applying, self.cuts[name])
            for name, numbers in totals.items()
        )

    def _empty(self, order: tuple[str, ...]) -> tuple[Line, ...]:
        names = [name for name in order if name in self.cuts]
        return self._lines({name: [0, 0, 0, 0, 0.0, 0.0] for name in (None, *names)})

    def _estimated(self, found: list[Estimate]) -> Iterator[Line]:
        entered = round(found[0].passed)
        names = (None, *self._writing.cuts)
        for name, line in zip(names, found, strict=True):
            passed = round(line.passed)
            undefined, nan = (0, 0) if name is None else self._writing.odd_rows(name, self.parts)
            plain = Line(
                INITIAL if name is None else name, entered, passed, line.sumw, line.sumw2,
                undefined, nan, name is None or name not in self.not_applying,
                name is not None and self.cuts[name],
            )  # fmt: skip
            entered = passed
            if line.exact:
                last = name == names[-1]
                yield self._final(plain, end=last) if last or name is None else plain
                continue
            low, high = math.floor(line.low), math.ceil(line.high)
            yield replace(
                plain, kind="estimated", passed_error=line.error, interval=(low, high),
                sumw_sampling=line.sumw_error, sampled=line.sampled,
            )  # fmt: skip


class Cutflow(CutflowFormats, Mapping[str, Table]):
    """Tables by region: ``cutflow["SR"]`` for all datasets together, ``cutflow["SR", "ttbar"]`` for one."""

    def __init__(self, tables: Mapping[tuple[str, str], Table], way: Any = None) -> None:
        self._tables = dict(tables)
        self._way = way  #: to complete them, if there is one
        self.regions = tuple(dict.fromkeys(region for region, _ in self._tables))
        self.datasets = tuple(dict.fromkeys(dataset for _, dataset in self._tables))

    def __getitem__(self, key: Any) -> Table:
        if isinstance(key, tuple):
            if key not in self._tables:
                raise KeyError(
                    f"no table {key!r}; regions: {', '.join(self.regions)}; datasets: {', '.join(self.datasets)}"
                )
            return self._tables[key]
        tables = [self._tables[key, dataset] for dataset in self.datasets if (key, dataset) in self._tables]
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
        return Cutflow(tables, Both(self, other))

    def complete(self, analysis: Any = None) -> Cutflow:
        """Return the cutflows with every table of the written order exact, at the price of what was not asked yet.

        Cuts are asked about the rows of which nobody knows whether they are the first to reject them; what was kept of
        the run is not asked again. A result that was loaded needs the analysis, which must be as it was.
        """
        if all(table.is_exact for table in self._tables.values()):
            return self
        if self._way is None:
            raise UsageError("these cutflows do not know where their rows are: complete those of the run")
        completed: Cutflow = self._way.complete(analysis)
        return completed

    def changed(self, change: Callable[[Cutflow], Cutflow]) -> Cutflow:
        """Return what a function makes of them, such that it can still be completed; it must be picklable."""
        return Cutflow(change(self)._tables, Changed(self, change))

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
