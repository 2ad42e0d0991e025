"""Results, cutflows and comparisons as notebooks show them: plain HTML, everything escaped, no scripts.

Colours are those of the page: text inherits, lines are a translucent grey, so light and dark themes both work.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.program import NOMINAL
from windrow.pipeline.cutflow.formats import remarks, said
from windrow.pipeline.ordering.text import order_line
from windrow.pipeline.results.histograms import histograms_in, is_histogram
from windrow.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.pipeline.cutflow.nminus1 import NMinusOne
    from windrow.pipeline.cutflow.table import Line
    from windrow.pipeline.results.compare import Comparison
    from windrow.pipeline.results.ledger import Ledger
    from windrow.pipeline.results.result import Result


_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"padding:.15em .8em .15em 0;border-bottom:{_LINE};text-align:"
_FAINT = "opacity:.65"
_BLUE = "#4c8bd6"  #: readable on white and on black

#: Outputs shown before the rest is only counted: a notebook cell is no report.
MOST_OUTPUTS = 60
#: Rows of other long lists.
MOST_LINES = 20


def result_html(result: Result) -> str:
    """Return a result: what was done, its outputs with small pictures of histograms, its cutflows and notes."""
    state = "" if result.complete else " &#9888; incomplete"
    facts = (
        f"{result.ledger.summary()} in {format_seconds(result.seconds)} "
        f"({format_count(result.rows_per_second)} rows/s), {format_bytes(result.bytes_read)} read, "
        f"{result.engine} with {result.workers} worker{'s' if result.workers != 1 else ''}"
    )
    order = order_line(result.ordering)
    about = f"{_text(facts)}<br>{_text(order)}" if order else _text(facts)
    parts = [f"<p><b>{_text(result.name)}</b>{state}<br>{about}</p>", _outputs(result)]
    for region in result.cutflow.regions:
        table = result.cutflow[region]
        title = f"Cutflow {region}: {table.passed:,} of {table.executed[0].passed:,} rows"
        parts.append(_folded(title, table_html(table)))
    parts += [_folded(f"N-1 {region}", nminus1_html(result.nminus1[region])) for region in result.nminus1]
    if not result.ledger.complete:
        parts.append(_folded("Rows that are not done", ledger_html(result.ledger), shown=True))
    if result.notes:
        parts.append(_folded(f"Notes ({len(result.notes)})", _list(result.notes)))
    return _box(parts)


def _outputs(result: Result) -> str:
    """One line for each output, region and dataset: its nominal, and which variations there are."""
    variations: dict[tuple[str, str, str | None], list[str]] = {}
    for dataset, values in result.outputs.items():
        for name, region, variation in values:
            variations.setdefault((dataset, name, region), []).append(variation)
    several = len(result.outputs) > 1
    rows: list[list[str]] = []
    for (dataset, name, region), found in list(variations.items())[:MOST_OUTPUTS]:
        shown = NOMINAL if NOMINAL in found else found[0]
        others = ", ".join(variation for variation in found if variation != NOMINAL)
        head = [name, region or "", *([dataset] if several else [])]
        value = _value(result.outputs[dataset][name, region, shown])
        rows.append([*map(_text, head), value, _text(others)])
    heads = ["output", "region", *(["dataset"] if several else []), "", "variations"]
    more = len(variations) - len(rows)
    text = f'<p style="{_FAINT}">and {more:,} more</p>' if more else ""
    return _table(heads, rows) + text


def _value(value: Any) -> str:
    if is_histogram(value):
        axes = " &times; ".join(f"{_text(_axis_name(axis))} ({axis.size})" for axis in value.axes)
        total = f'<span style="{_FAINT}">sum {_total(value)}, {axes}</span>'
        return f"{sparkline(value)} {total}"
    inside = list(histograms_in(value))
    if inside and not is_histogram(value):
        return f"{type(value).__name__} with {len(inside)} histogram{'s' if len(inside) > 1 else ''}"
    text = " ".join(repr(value).split())
    return _text(text if len(text) <= 80 else f"{text[:77]}...")


def _axis_name(axis: Any) -> str:
    return str(getattr(axis, "label", "") or getattr(axis, "name", "") or "axis")


def _total(histogram: Any) -> str:
    values = np.asarray(histogram.values(flow=True), dtype=np.float64)
    return f"{values.sum():.6g}" if histogram.kind == "COUNT" else "n/a"


def sparkline(histogram: Any, width: int = 140, height: int = 28) -> str:
    """Draw a 1-D histogram as a small inline SVG; nothing for others."""
    if histogram.ndim != 1 or not histogram.axes[0].size:
        return ""
    values = np.asarray(histogram.values(), dtype=np.float64)
    if values.ndim != 1:
        return ""
    values = np.where(np.isfinite(values), values, 0.0)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    span = high - low or 1.0
    edges = np.asarray(histogram.axes[0].edges, dtype=np.float64)
    if not np.isfinite(edges).all():
        edges = np.arange(len(values) + 1, dtype=np.float64)
    x = (edges - edges[0]) / (edges[-1] - edges[0]) * width
    y = height - (values - low) / span * height
    base = height - (0.0 - low) / span * height
    path = [f"M{x[0]:.1f} {base:.1f}"]
    for number, level in enumerate(y):
        path.append(f"V{level:.1f}H{x[number + 1]:.1f}")
    path.append(f"V{base:.1f}Z")
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="histogram" style="vertical-align:middle"><path d="{"".join(path)}" fill="{_BLUE}" '
        f'fill-opacity=".55" stroke="{_BLUE}" stroke-width=".8"/></svg>'
    )


# -- tables ------------------------------------------------------------------------------------


def table_html(table: Any) -> str:
    """Return the cutflow of a region, every line saying what it is; where that is estimated, the executed one too."""
    why = f" &mdash; {_text(table.why)}" if table.why else ""
    caption = f"{_text(table.title)}: {_text(table.kind)}{why}"
    lines = table.lines
    shown = _cutflow_lines(lines, weighted=table.weighted, caption=caption)
    if any(line.kind == "estimated" for line in lines):
        executed = _cutflow_lines(table.executed, weighted=table.weighted, caption="exact")
        shown += _folded("the order that ran", executed)
    return shown


def _cutflow_lines(lines: Sequence[Line], *, weighted: bool, caption: str) -> str:
    mixed = any(line.kind == "estimated" for line in lines)
    heads = ["cut", "passed", "of cut", "of all"] + (["weighted", "&plusmn;"] if weighted else [])
    rows = []
    for line in lines:
        row = [_text(line.label), said(line, sign="&plusmn;"), _share(line.passed, line.entered)]
        row.append(_share(line.passed, lines[0].passed))
        if weighted:
            row += [f"{line.sumw:.6g}", f"{line.error:.4g}"]
        rows.append([*row, _text(", ".join(remarks(line, mixed=mixed)))])
    return _table([*heads, ""], rows, caption=caption, numbers=range(1, len(heads)))


def cutflow_html(cutflow: Any) -> str:
    """Return the cutflows of all regions."""
    return _box(_folded(region, table_html(cutflow[region]), shown=True) for region in cutflow)


def nminus1_html(table: NMinusOne) -> str:
    """Return the N-1 table of a region."""
    rows = []
    for label, count in zip(table.labels, table.counts, strict=True):
        if count is None:
            why = _text(table.failures[label.removeprefix("N - ")])
            rows.append([_text(label), "n/a", "", "", why])
        else:
            cells = [f"{count.rows:,}", f"{count.sumw:.6g}", f"{count.error:.4g}"]
            rows.append([_text(label), *cells, ""])
    caption = f"{_text(table.region)} ({_text(table.dataset or 'all datasets')}): N-1, exact"
    heads = ["", "rows", "weighted", "&plusmn;", ""]
    return _table(heads, rows, caption=caption, numbers=range(1, 4))


def ledger_html(ledger: Ledger) -> str:
    """Return what became of the rows, and everything that is not done."""
    problems = ledger.problems
    rows = [
        [_text(e.file), "?" if e.stop is None else f"{e.start:,}&ndash;{e.stop:,}", _text(e.state), _text(e.reason)]
        for e in problems[:MOST_LINES]
    ]  # fmt: skip
    text = f"<p>{_text(ledger.summary())}</p>"
    if rows:
        text += _table(["file", "rows", "", "why"], rows)
    if len(problems) > MOST_LINES:
        text += f'<p style="{_FAINT}">and {len(problems) - MOST_LINES:,} more</p>'
    return _box([text])


def comparison_html(comparison: Comparison) -> str:
    """Return what differs between two results."""
    parts = ["<p><b>The results are the same.</b></p>" if comparison.same else ""]
    for title, items in (("outputs differ", comparison.outputs), ("cutflow lines differ", comparison.cutflow)):
        if items:
            more = [f"and {len(items) - MOST_LINES:,} more"] if len(items) > MOST_LINES else []
            lines = [*map(str, items[:MOST_LINES]), *more]
            parts.append(_folded(f"{len(items):,} {title}", _list(lines), shown=True))
    changes = comparison.changes
    if changes.count:
        names = list(dict.fromkeys(name for row in changes.shown for name in row.identity))
        rows = [
            [_text(row.change), _text(row.file), f"{row.row:,}", *(_text(str(row.identity.get(n, ""))) for n in names)]
            for row in changes.shown
        ]  # fmt: skip
        text = _table(["change", "file", "row", *map(_text, names)], rows)
        hidden = changes.count - len(changes.shown)
        if hidden:
            text += f'<p style="{_FAINT}">and {hidden:,} more</p>'
        parts.append(_folded(changes.headline, text, shown=True))
    if changes.notes:
        parts.append(_folded("Notes", _list(changes.notes), shown=True))
    return _box(parts)


# -- pieces ------------------------------------------------------------------------------------


def _text(text: str) -> str:
    return html.escape(str(text), quote=True)


def _box(parts: Iterable[str]) -> str:
    inner = "".join(parts)
    return f'<div style="font-size:.95em;line-height:1.4;overflow-x:auto">{inner}</div>'


def _folded(title: str, inner: str, *, shown: bool = False) -> str:
    state = " open" if shown else ""
    summary = f'<summary style="cursor:pointer">{_text(title)}</summary>'
    return f'<details{state} style="margin:.3em 0">{summary}{inner}</details>'


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(item)}</li>" for item in items) + "</ul>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", numbers: Any = ()) -> str:
    """Heads and cells are HTML already; columns in ``numbers`` are set to the right."""
    side = ["right" if number in numbers else "left" for number in range(len(heads))]
    head = "".join(f'<th style="{_CELL}{where}">{text}</th>' for text, where in zip(heads, side, strict=True))
    body = "".join(
        "<tr style='background:none'>"
        + "".join(f'<td style="{_CELL}{w}">{c}</td>' for c, w in zip(row, side, strict=True))
        + "</tr>"
        for row in rows
    )
    above = f'<caption style="text-align:left;{_FAINT}">{caption}</caption>' if caption else ""
    return (
        f'<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">{above}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "-"
