"""Results as notebooks show them: plain HTML, everything escaped, no scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.program import NOMINAL
from windrow.pipeline.ordering.summary import order_line
from windrow.pipeline.results.grid import FAINT, Grid, box, bullets, folded, to_html
from windrow.units import format_bytes, format_count, format_seconds
from windrow.watch.report.outputs import histograms_in, is_histogram
from windrow.watch.report.tables import Html

if TYPE_CHECKING:
    from windrow.pipeline.results.result import Result


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
    about = f"{to_html(facts)}<br>{to_html(order)}" if order else to_html(facts)
    parts = [f"<p><b>{to_html(result.name)}</b>{state}<br>{about}</p>", _outputs(result)]
    for region in result.cutflow.regions:
        table = result.cutflow[region]
        title = f"Cutflow {region}: {table.passed:,} of {table.executed[0].passed:,} rows"
        parts.append(folded(title, table._repr_html_()))
    parts += [folded(f"N-1 {region}", result.nminus1[region].grid("±").html()) for region in result.nminus1]
    if not result.ledger.complete:
        problems = result.ledger.problems
        lines = [*map(str, problems[:MOST_LINES]), *_more(len(problems) - MOST_LINES)]
        parts.append(folded("Rows that are not done", bullets(lines), shown=True))
    if result.notes:
        parts.append(folded(f"Notes ({len(result.notes)})", bullets(result.notes)))
    return box(parts)


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
        value = _value(result.outputs[dataset][name, region, shown])
        others = ", ".join(variation for variation in found if variation != NOMINAL)
        rows.append([name, region or "", *([dataset] if several else []), value, others])
    heads = ["output", "region", *(["dataset"] if several else []), "", "variations"]
    return Grid("", heads, rows, _more(len(variations) - len(rows))).html()


def _value(value: Any) -> str:
    if is_histogram(value):
        names = [getattr(axis, "label", "") or getattr(axis, "name", "") or "axis" for axis in value.axes]
        axes = " &times; ".join(to_html(f"{name} ({axis.size})") for name, axis in zip(names, value.axes, strict=True))
        total = f"{np.sum(value.values(flow=True)):.6g}" if value.kind == "COUNT" else "n/a"
        return Html(f'{sparkline(value)} <span style="{FAINT}">sum {total}, {axes}</span>')
    inside = list(histograms_in(value))
    if inside:
        return f"{type(value).__name__} with {len(inside)} histogram{'s' if len(inside) > 1 else ''}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def sparkline(histogram: Any, width: int = 140, height: int = 28) -> str:
    """Draw a 1-D histogram as a small inline SVG; nothing for more dimensions."""
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


def _more(count: int) -> list[str]:
    return [f"and {count:,} more"] if count > 0 else []
