"""Cutflow lines in the forms other tools and papers want: ROOT's report line, CSV, LaTeX.

All of them take a list of lines, whatever table it comes from.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.pipeline.cutflow import Line

__all__ = [
    "CSV_COLUMNS",
    "CutflowFormats",
    "TableFormats",
    "csv_text",
    "escaped",
    "latex_table",
    "one_cut_counts",
    "root_lines",
    "rounded",
]

CSV_COLUMNS = (
    "region", "dataset", "order", "cut", "entered", "passed", "of_cut", "of_all", "sumw",
    "sumw_error", "undefined", "nan", "applies",
)  # fmt: skip

#: What RCutFlowReport prints for each cut; people and their programs parse it. Names are padded to 10 letters in the
#: source this follows and to 20 by ROOT 6.40; from the colon on the two are the same.
ROOT_LINE = "%-10s: pass=%-10d all=%-10d -- eff=%3.2f %% cumulative eff=%3.2f %%"


class _Table(Protocol):
    """What of a table the formats need."""

    @property
    def region(self) -> str: ...
    @property
    def dataset(self) -> str | None: ...
    @property
    def executed(self) -> tuple[Line, ...]: ...
    @property
    def why(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def weighted(self) -> bool: ...
    @property
    def orders(self) -> int: ...


class TableFormats:
    """A table in the words and formats of other tools."""

    __slots__ = ()

    @property
    def labels(self: _Table) -> list[str]:
        """The cuts as coffea names them, "initial" first; in the order that ``kind`` says."""
        return [line.label for line in self.executed]

    @property
    def nevcutflow(self: _Table) -> list[int]:
        """Rows left after each cut and those before it, as in coffea's cutflow."""
        return [line.passed for line in _in_one_order(self, "nevcutflow")]

    @property
    def wgtevcutflow(self: _Table) -> list[float]:
        """Sums of weights of the rows left after each cut, as in coffea's cutflow."""
        return [line.sumw for line in _in_one_order(self, "wgtevcutflow")]

    @property
    def nevonecut(self: _Table) -> list[int]:
        """Rows that pass each cut alone, as in coffea's cutflow; raises where rows were not shown to all cuts."""
        counts, unknown = one_cut_counts(_in_one_order(self, "nevonecut"))
        if unknown:
            raise UsageError(
                f"nevonecut of region {self.region!r} is not known: rows that an earlier cut removed were never shown "
                f"to {', '.join(map(repr, unknown))}; declare a region of that cut alone to count them"
            )
        return counts

    def root_report(self: _Table) -> str:
        """Return the lines that ROOT's ``Report()->Print()`` has for these cuts."""
        return "\n".join(root_lines(self.executed))

    def to_csv(self: _Table) -> str:
        """Return the table as CSV, saying which order it is in."""
        return csv_text([(_about(self), self.executed)])

    def to_latex(self: _Table) -> str:
        """Return the table as a LaTeX ``tabular`` (booktabs)."""
        comment = f"{self.title}: {self.kind}"
        return latex_table(self.executed, weighted=self.weighted, comment=comment)

    def _repr_html_(self) -> str:
        from windrow.pipeline.html import table_html

        return table_html(self)


class CutflowFormats:
    """All tables of a run in the formats of other tools."""

    __slots__ = ()

    def root_report(self: Any) -> str:
        """Return ROOT's report lines of every region, each under the region's name."""
        return "\n".join(f"{region}:\n{table.root_report()}" for region, table in self.items())

    def to_csv(self: Any) -> str:
        """Return every table as CSV: by dataset, and all together where there are several."""
        tables = [self[region, dataset] for region in self for dataset in self.datasets]
        if len(self.datasets) > 1:
            tables += self.values()
        return csv_text((_about(table), table.executed) for table in tables)

    def to_latex(self: Any) -> str:
        """Return a LaTeX ``tabular`` for every region, all datasets together."""
        return "\n".join(table.to_latex() for table in self.values())

    def _repr_html_(self) -> str:
        from windrow.pipeline.html import cutflow_html

        return cutflow_html(self)


def _about(table: _Table) -> dict[str, str]:
    order = "executed" if table.why else "written"
    return {"region": table.region, "dataset": table.dataset or "", "order": order}


def _in_one_order(table: _Table, name: str) -> tuple[Line, ...]:
    if table.orders > 1:
        raise UsageError(
            f"{name} of region {table.region!r}: its cuts ran in {table.orders} orders, and rows after each cut depend "
            'on the order; cutflow="exact" runs one'
        )
    return table.executed


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


def one_cut_counts(lines: Sequence[Line]) -> tuple[list[int], list[str]]:
    """Return how many rows pass each cut alone, and the cuts for which nobody knows.

    A cut that some rows never reached could have passed or failed them.
    """
    everything = lines[0].passed
    unknown = [line.label for line in lines[1:] if line.applies and line.entered != everything]
    return [line.passed if line.applies else everything for line in lines], unknown


def csv_text(tables: Iterable[tuple[Mapping[str, Any], Sequence[Line]]]) -> str:
    """Return tables as CSV with one heading; every table comes with its region, dataset and order."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for about, lines in tables:
        for line in lines:
            writer.writerow(
                {
                    **about,
                    "cut": line.label,
                    "entered": line.entered,
                    "passed": line.passed,
                    "of_cut": _share(line.passed, line.entered),
                    "of_all": _share(line.passed, lines[0].passed),
                    "sumw": repr(line.sumw),
                    "sumw_error": repr(line.error),
                    "undefined": line.undefined,
                    "nan": line.nan,
                    "applies": line.applies,
                }
            )
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
        cells = [escaped(line.label), str(line.passed)]
        cells += [_cell(line.passed, line.entered), _cell(line.passed, lines[0].passed)]
        if weighted:
            cells += rounded(line.sumw, line.error)
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
    """Return text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
