"""Cutflow tables: how many rows each cut of a region left, raw and weighted, by dataset and in all.

``executed`` is the order that ran: always there and exact. ``written`` is the order in the user's file: exact where the cuts
ran in it, otherwise estimated from rows that were shown to all cuts. Every line says which it is. Tables of the same region
add up.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from windrow.blocks.cutflow_counts import ANY_ORDER, COLUMNS, END, INITIAL, Order, cuts_in
from windrow.errors import UsageError
from windrow.pipeline.cutflow.regions import RegionTables, add_by_key
from windrow.pipeline.cutflow.written import Member, WrittenRegion
from windrow.pipeline.results.grid import Grid, box, folded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.pipeline.cutflow.estimate import Estimate


#: What the lines that stand for no cut are called: all rows, and what passed all cuts where they ran in several orders.
FIRST, SELECTED = "initial", "selected"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cutflow: a cut, the rows that reached it and those that passed."""

    name: str
    entered: int
    passed: int
    sumw: float
    sumw2: float
    undefined: int | None  #: rows for which the cut was None: on neither side; None: not counted
    nan: int | None  #: rows with NaN among the cut's inputs; None: not counted
    applies: bool = True  #: False where ``when=`` keeps the cut out: every row passes
    inverted: bool = False
    kind: Literal["exact", "estimated"] = "exact"
    passed_error: float = 0.0  #: standard error of ``passed``; 0: it is exact
    interval: tuple[int, int] | None = None  #: where ``passed`` is, with 95 % confidence; None: exact
    sumw_sampling: float = 0.0  #: standard error of ``sumw`` that comes from sampling
    sampled: int = 0  #: rows that were looked at for it

    @property
    def error(self) -> float:
        """The statistical uncertainty of ``sumw``; that of an estimate comes on top, as ``sumw_sampling``."""
        return math.sqrt(self.sumw2)

    @property
    def label(self) -> str:
        """The cut's name, with "!" if it is inverted."""
        return f"!{self.name}" if self.inverted else self.name

    def as_dict(self) -> dict[str, Any]:
        found = {name: value for name, value in asdict(self).items() if name not in ("name", "inverted", "sumw2")}
        interval = list(self.interval or (self.passed, self.passed))
        return {"cut": self.label, **found, "interval": interval, "sumw_error": self.error}


def _line(name: str, numbers: Sequence[float], *, applies: bool = True, inverted: bool = False) -> Line:
    entered, passed, undefined, nan = (int(number) for number in numbers[:4])
    sumw, sumw2 = (float(number) for number in numbers[4:])
    return Line(name, entered, passed, sumw, sumw2, undefined, nan, applies, inverted)


@dataclass(frozen=True)
class Table:
    """The cutflow of one region, for one dataset or several together."""

    region: str
    dataset: str | None  #: None: several together
    cuts: Mapping[str, bool]  #: of the region, as written: cut -> inverted
    written_order: Order
    weights: frozenset[str]
    members: tuple[Member, ...]  #: what each dataset has
    planned: Order = ()  #: the order that would have run, for a dataset without rows
    used: frozenset[str] = frozenset()  #: cuts of any region; the initial line stands before the first
    scaled: bool = False  #: whether the weighted sums were scaled after the run

    @property
    def passed(self) -> int:
        """How many rows the region has in the end; exact, whatever ran in which order."""
        return self.selected.passed

    @property
    def selected(self) -> Line:
        """What passed all cuts, weighted as the last written line is; exact, whatever ran in which order."""
        counts = self._counts.get(ANY_ORDER)
        return _line(SELECTED, [0] * len(COLUMNS) if counts is None else counts[END])

    @cached_property
    def executed(self) -> tuple[Line, ...]:
        """The order that ran: exact. A line is weighted by the weights that ran before it.

        Where several orders did, each line adds up what reached and passed that cut, and a last line has what passed
        all of them.
        """
        if not self._ran:
            return self._empty(self.planned)
        # Keyed apart: a user may well call a cut "initial" or "selected".
        totals = add_by_key(
            dict(zip((None, *cuts_in(order, self.cuts)), lines, strict=True)) for order, lines in self._ran.items()
        )
        first, *cuts = (self._named(name, numbers) for name, numbers in totals.items())
        if self.orders > 1:
            cuts.append(self.selected)
        elif all(self._writing.ends_as_written(order) for order in self._ran):
            cuts[-1] = self._in_any_order(cuts[-1], END)
        return (self._in_any_order(first, INITIAL), *cuts)

    @cached_property
    def written(self) -> tuple[Line, ...] | None:
        """The written order: exact where the cuts ran in it, else estimated; every line says which it is.

        None where rows would have to be seen by all cuts for it, and none were; ``why`` says so.
        """
        if not self._ran:
            return self._empty(self.written_order)
        if not self.moved:
            return self.executed
        found = self._writing.estimates(self.members)
        return None if found is None else tuple(self._estimated(found))

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that are shown first: the written order if there is one, else the one that ran."""
        return self.executed if self.written is None else self.written

    @property
    def why(self) -> str:
        """Why there is no written-order table; empty if there is one."""
        moved = self.moved
        if not moved or self.written is not None:
            return ""
        shown = {*self.cuts, *self.weights}
        ran = " ".join(name for name in moved[0] if name in shown)
        return (
            f"the cuts did not run in the written order: {ran}; no rows were shown to all cuts, to estimate from; "
            'cutflow.complete() finds out, and cutflow="exact" runs it'
        )

    @property
    def kind(self) -> str:
        """What ``lines`` are: exact or estimated, and in which order."""
        if self.written is not None:
            return f"{'exact' if self.is_exact else 'estimated'}, written order"
        if self.orders > 1:
            return f"exact, executed, {self.orders} orders: rows that reached and passed each cut"
        return "exact, executed order"

    @property
    def is_exact(self) -> bool:
        """Whether the written order's table is there, and exact in every line."""
        return self.written is not None and all(line.kind == "exact" for line in self.written)

    @property
    def ran(self) -> tuple[Order, ...]:
        """The orders of all steps that ran, the one with most rows first."""
        return tuple(self._ran)

    @property
    def moved(self) -> list[Order]:
        """The orders that ran, show in the table and are not the written one."""
        written = self._writing.shown(self.written_order)
        return [order for order in self._ran if self._writing.shown(order) != written]

    @property
    def orders(self) -> int:
        return len({self._writing.shown(order) for order in self._ran})

    @property
    def weighted(self) -> bool:
        """Whether the weighted sums say more than the counts."""
        return bool(self.weights) or self.scaled

    def __add__(self, other: Table) -> Table:
        if other.region != self.region or other.cuts != self.cuts:
            raise UsageError(
                f"cutflows add up for the same region: {self.region!r} of {list(self.cuts)} and {other.region!r} of "
                f"{list(other.cuts)} are not"
            )
        members = add_by_key({(one.dataset, one.factor): one} for one in (*self.members, *other.members))
        return replace(
            self,
            dataset=self.dataset if self.dataset == other.dataset else None,
            members=tuple(members.values()),
            scaled=self.scaled or other.scaled,
        )

    def scale(self, factor: float) -> Table:
        """Return the table with weights scaled; what was counted stays as counted."""
        return replace(self, members=tuple(member.scale(factor) for member in self.members), scaled=True)

    # -- in the words and formats of other tools ---------------------------------------------

    @property
    def title(self) -> str:
        return f"{self.region} ({self.dataset or 'all datasets'})"

    @property
    def labels(self) -> list[str]:
        """The cuts as coffea names them, "initial" first, in the order that ran."""
        return [line.label for line in self.executed]

    @property
    def nevcutflow(self) -> list[int]:
        """Rows left after each cut and those before it, as in coffea's cutflow."""
        return [line.passed for line in self._in_one_order("nevcutflow")]

    @property
    def wgtevcutflow(self) -> list[float]:
        """Sums of weights of the rows left after each cut, as in coffea's cutflow."""
        return [line.sumw for line in self._in_one_order("wgtevcutflow")]

    @property
    def nevonecut(self) -> list[int]:
        """Rows that pass each cut alone, as in coffea's cutflow; raises where rows were not shown to all cuts."""
        first, *cuts = self._in_one_order("nevonecut")
        unknown = [line.label for line in cuts if line.applies and line.entered != first.passed]
        if unknown:
            raise UsageError(
                f"nevonecut of region {self.region!r} is not known: rows that an earlier cut removed were never shown "
                f"to {', '.join(map(repr, unknown))}; declare a region of that cut alone to count them"
            )
        return [line.passed if line.applies else first.passed for line in (first, *cuts)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "region": self.region,
            "dataset": self.dataset,
            "passed": self.passed,
            "executed": [line.as_dict() for line in self.executed],
            "written": None if self.written is None else [line.as_dict() for line in self.written],
            "why_no_written": self.why,
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict())

    def root_report(self) -> str:
        """Return the lines that ROOT's ``Report()->Print()`` has for these cuts."""
        return "\n".join(root_lines(self.executed))

    def to_csv(self) -> str:
        """Return the table as CSV, every line saying in which order and what it is; where they differ, both orders."""
        return csv_text(self._in_both_orders())

    def to_latex(self) -> str:
        """Return the table as a LaTeX ``tabular`` (booktabs): the written order if there is one."""
        return latex_table(self.lines, weighted=self.weighted, comment=f"{self.title}: {self.kind}")

    def _grids(self, sign: str = "+-") -> list[Grid]:
        """Return the lines that are shown first and, where they are estimated, those of what ran."""
        several = self.orders > 1
        entered = several and self.written is None
        title = f"{self.title}: {self.kind}"
        found = [cutflow_grid(title, self.lines, weighted=self.weighted, entered=entered, sign=sign)]
        if any(line.kind == "estimated" for line in self.lines):
            ran = "  the order that ran, exact:"
            if several:
                ran = f"  {self.orders} orders ran, exact: rows that reached and passed each cut"
            found.append(cutflow_grid(ran, self.executed, weighted=self.weighted, entered=several, sign=sign))
        return found

    def __str__(self) -> str:
        return "\n".join(grid.text() for grid in self._grids())

    def _repr_html_(self) -> str:
        first, *others = self._grids(sign="±")
        if self.why:
            first = replace(first, title=f"{first.title} — {self.why}")
        return "".join([first.html(), *(folded("the order that ran", grid.html()) for grid in others)])

    # -- inside ------------------------------------------------------------------------------

    @cached_property
    def _counts(self) -> dict[Order, NDArray[np.float64]]:
        return add_by_key(member.counts for member in self.members)

    @cached_property
    def _ran(self) -> dict[Order, NDArray[np.float64]]:
        """What ran in each order, the one with most rows first."""
        ran = [(order, lines) for order, lines in self._counts.items() if order != ANY_ORDER]
        return dict(sorted(ran, key=lambda part: part[1][0, 1], reverse=True))

    @cached_property
    def _writing(self) -> WrittenRegion:
        cuts = {name: self.cuts[name] for name in self.written_order if name in self.cuts}
        return WrittenRegion(cuts, self.written_order, self.weights, self.used or frozenset(self.cuts))

    def _named(self, cut: str | None, numbers: Sequence[float]) -> Line:
        if cut is None:
            return _line(FIRST, numbers)
        applies = not all(cut in member.absent for member in self.members)
        return _line(cut, numbers, applies=applies, inverted=self.cuts[cut])

    def _empty(self, order: Order) -> tuple[Line, ...]:
        return tuple(self._named(name, [0] * len(COLUMNS)) for name in (None, *cuts_in(order, self.cuts)))

    def _in_any_order(self, line: Line, which: int) -> Line:
        """Give a first or last line the sums that are the same bits in all orders, where they are known."""
        sumw, sumw2 = self._counts[ANY_ORDER][which, 4:].tolist()
        return line if math.isnan(sumw) else replace(line, sumw=sumw, sumw2=sumw2)

    def _estimated(self, found: list[Estimate]) -> Iterator[Line]:
        entered = round(found[0].passed)
        names = (None, *self._writing.cuts)
        for name, line in zip(names, found, strict=True):
            passed = round(line.passed)
            undefined, nan = (0, 0) if name is None else self._writing.odd_rows(name, self._ran)
            made = replace(
                self._named(name, [entered, passed, 0, 0, line.sumw, line.sumw2]), undefined=undefined, nan=nan
            )
            entered = passed
            if not line.exact:
                made = replace(
                    made,
                    kind="estimated",
                    passed_error=line.error,
                    interval=(math.floor(line.low), math.ceil(line.high)),
                    sumw_sampling=line.sumw_error,
                    sampled=line.sampled,
                )
            elif name == names[-1]:
                made = self._in_any_order(made, END)
            elif name is None:
                made = self._in_any_order(made, INITIAL)
            yield made

    def _in_one_order(self, name: str) -> tuple[Line, ...]:
        if self.orders > 1:
            raise UsageError(
                f"{name} of region {self.region!r}: its cuts ran in {self.orders} orders, and rows after each cut depend "
                'on the order; cutflow="exact" runs one, cutflow.complete() finds out about the written one'
            )
        return self.executed

    def _in_both_orders(self) -> list[tuple[dict[str, str], tuple[Line, ...]]]:
        """Return the lines in the written order, and in the one that ran if that is another."""
        about = {"region": self.region, "dataset": self.dataset or ""}
        found = [] if self.written is None else [({**about, "order": "written"}, self.written)]
        if self.written != self.executed:
            found.append(({**about, "order": "executed"}, self.executed))
        return found


class Cutflow(RegionTables[Table]):
    """Tables by region: ``cutflow["SR"]`` for all datasets together, ``cutflow["SR", "ttbar"]`` for one."""

    called = "cutflow"

    def __init__(self, tables: Mapping[tuple[str, str], Table], way: Callable[[Any], Cutflow] | None = None) -> None:
        super().__init__(tables)
        self._way = way  #: to complete them, given the analysis if it is at hand

    def __add__(self, other: Cutflow) -> Cutflow:
        return Cutflow(add_by_key((self.tables, other.tables)), partial(_complete_both, self, other))

    def complete(self, analysis: Any = None) -> Cutflow:
        """Return the cutflows with every table of the written order exact, at the price of running it.

        The cuts and weights of the datasets that are not exact run once more, in the written order, over the rows that
        are in the result. A result that was loaded needs the analysis, which must be as it was.
        """
        if all(table.is_exact for table in self.tables.values()):
            return self
        if self._way is None:
            raise UsageError("these cutflows do not know where their rows are: complete those of the run")
        return self._way(analysis)

    def changed(self, change: Callable[[Cutflow], Cutflow]) -> Cutflow:
        """Return what a function makes of them, such that it can still be completed; it must be picklable."""
        return Cutflow(change(self).tables, partial(_complete_changed, self, change))

    def to_json(self) -> str:
        return json.dumps(self.as_dict())

    def root_report(self) -> str:
        """Return ROOT's report lines of every region, each under the region's name."""
        return "\n".join(f"{region}:\n{table.root_report()}" for region, table in self.items())

    def to_csv(self) -> str:
        """Return every table as CSV: by dataset, and all together where there are several."""
        tables = [self[region, dataset] for region in self for dataset in self.datasets]
        if len(self.datasets) > 1:
            tables += self.values()
        return csv_text(part for table in tables for part in table._in_both_orders())

    def to_latex(self) -> str:
        """Return a LaTeX ``tabular`` for every region, all datasets together."""
        return "\n".join(table.to_latex() for table in self.values())

    def _repr_html_(self) -> str:
        return box(folded(region, self[region]._repr_html_(), shown=True) for region in self)


def _complete_both(left: Cutflow, right: Cutflow, analysis: Any) -> Cutflow:
    return left.complete(analysis) + right.complete(analysis)


def _complete_changed(before: Cutflow, change: Callable[[Cutflow], Cutflow], analysis: Any) -> Cutflow:
    return change(before.complete(analysis))


# -- lines in the forms other tools and papers want: ROOT's report line, CSV, LaTeX


CSV_COLUMNS = (
    "region", "dataset", "order", "kind", "cut", "entered", "passed", "passed_error", "of_cut",
    "of_all", "sumw", "sumw_error", "sumw_sampling", "sampled", "undefined", "nan", "applies",
)  # fmt: skip

#: What RCutFlowReport prints for each cut; people and their programs parse it. Names are padded to 10 letters in the
#: source this follows and to 20 by ROOT 6.40; from the colon on the two are the same.
ROOT_LINE = "%-10s: pass=%-10d all=%-10d -- eff=%3.2f %% cumulative eff=%3.2f %%"


def said(line: Line, *, sign: str = "+-") -> str:
    """Say how many rows passed: ``123,456``, or ``~123,400 +- 900`` if that is an estimate."""
    if line.kind == "exact" or not line.passed_error:
        return f"{line.passed:,}"
    digits = min(1 - math.floor(math.log10(line.passed_error)), 0)
    passed, error = (round(value, digits) for value in (line.passed, line.passed_error))
    return f"~{passed:,.0f} {sign} {error:,.0f}"


def remarks(line: Line, *, mixed: bool) -> list[str]:
    """Return what else there is to say of a line; ``mixed``: other lines are of another kind."""
    found = [] if line.applies else ["n/a here"]
    if line.kind == "estimated":
        found.append(f"estimated from {line.sampled:,} rows")
        if line.sumw_sampling and line.sumw != line.passed:
            found.append(f"weighted +- {line.sumw_sampling:.3g} by sampling")
    elif mixed:
        found.append("exact")
    found += [f"{line.undefined:,} undefined"] if line.undefined else []
    return found + ([f"{line.nan:,} with NaN"] if line.nan else [])


def cutflow_grid(title: str, lines: Sequence[Line], *, weighted: bool, entered: bool = False, sign: str = "+-") -> Grid:
    """Make a table for people; ``entered`` says how many rows reached each cut, where the line above does not."""
    mixed = any(line.kind == "estimated" for line in lines)
    heads = ["cut", *(["entered"] if entered else []), "passed", "of cut", "of all"]
    heads += ["weighted", sign, ""] if weighted else [""]
    rows = []
    for line in lines:
        cells = [line.label, *([f"{line.entered:,}"] if entered else []), said(line, sign=sign)]
        cells += [f"{100 * line.passed / whole:.2f}%" if whole else "-" for whole in (line.entered, lines[0].passed)]
        cells += [f"{line.sumw:.6g}", f"{line.error:.4g}"] if weighted else []
        rows.append([*cells, ", ".join(remarks(line, mixed=mixed))])
    return Grid(title, heads, rows, numbers=range(1, len(heads) - 1))


def root_lines(lines: Sequence[Line]) -> list[str]:
    """Return what ROOT's RDataFrame prints for these cuts; the initial line has no line of its own there."""
    initial, *cuts = lines
    return [
        ROOT_LINE
        % (line.label, line.passed, line.entered, _percent(line.passed, line.entered),
           _percent(line.passed, initial.passed))
        for line in cuts
    ]  # fmt: skip


def _percent(part: int, whole: int) -> float:
    # In single precision as ROOT does it, so that the last digit is the same.
    return float(np.float32(100) * np.float32(part) / np.float32(whole)) if whole else math.nan


def csv_text(tables: Iterable[tuple[Mapping[str, Any], Sequence[Line]]]) -> str:
    """Return tables as CSV with one heading; every table comes with its region, dataset and order."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for about, lines in tables:
        for line in lines:
            shares = {"of_cut": _share(line.passed, line.entered), "of_all": _share(line.passed, lines[0].passed)}
            writer.writerow({**about, **line.as_dict(), **shares})
    return stream.getvalue()


def _share(part: int, whole: int) -> str:
    return repr(part / whole) if whole else ""


def latex_table(lines: Sequence[Line], *, weighted: bool, comment: str) -> str:
    r"""Return a ``tabular`` for a paper; it needs ``\usepackage{booktabs}``."""
    columns = "lrrr" + ("r@{$\\,\\pm\\,$}l" if weighted else "")
    head = ["Cut", "Events", r"of cut [\%]", r"of all [\%]"]
    text = [f"% {' '.join(comment.split())}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    row = " & ".join(head) + (r" & \multicolumn{2}{c}{Weighted}" if weighted else "")
    text += [row + r" \\", r"\midrule"]
    for line in lines:
        count = said(line, sign=r"\pm").replace(",", "")
        count = count.replace("~", r"$\sim$$") + "$" if "~" in count else count
        cells = [escaped(line.label), count]
        cells += [_cell(line.passed, line.entered), _cell(line.passed, lines[0].passed)]
        if weighted:
            cells += rounded(line.sumw, math.hypot(line.error, line.sumw_sampling))
        text.append(" & ".join(cells) + r" \\")
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "--"


def rounded(value: float, error: float) -> list[str]:
    """Return a number and its uncertainty, both to the uncertainty's two leading digits."""
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return [f"{value:.6g}", f"{error:.2g}"]
    digits = 1 - math.floor(math.log10(error))
    if digits > 12 or digits < -12:
        return [f"{value:.6g}", f"{error:.2g}"]
    places = max(digits, 0)
    return [f"{round(value, digits):.{places}f}", f"{round(error, digits):.{places}f}"]


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
}  # fmt: skip


def escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
