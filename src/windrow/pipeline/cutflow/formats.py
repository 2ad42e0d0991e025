"""Cutflow lines in the forms other tools and papers want: ROOT's report line, CSV, LaTeX.

All of them take a list of lines, whatever table it comes from.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.pipeline.results.grid import Grid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.pipeline.cutflow.table import Line

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
        cells = [escaped(line.label), _latex_count(line)]
        cells += [_cell(line.passed, line.entered), _cell(line.passed, lines[0].passed)]
        if weighted:
            cells += rounded(line.sumw, math.hypot(line.error, line.sumw_sampling))
        text.append(" & ".join(cells) + r" \\")
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_count(line: Line) -> str:
    if line.kind == "exact" or not line.passed_error:
        return str(line.passed)
    return said(line, sign=r"\pm").replace(",", "").replace("~", r"$\sim$$") + "$"


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
