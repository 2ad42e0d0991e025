"""The parts of a report that are text and tables: HTML from plain data, everything escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from windrow.units import format_bytes, format_count, format_rate, format_seconds
from windrow.watch.report_pieces import hint, listed, more, share_bar, table, tile, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["decisions", "environment", "ledger", "nminus1", "outputs", "steps", "summary"]

#: Lines of a table that are shown at once; the others are counted.
MOST_LINES = 400


def summary(data: Mapping[str, Any], shares: Mapping[str, Any] | None) -> str:
    """Write the heading: whose run, complete or not, and the numbers one looks for first."""
    state = data["state"]
    tiles = [tile(format_count(data["rows"]["done"]), "rows", _exactly(data["rows"]["done"]))]
    seconds = data["seconds"]
    if seconds:
        tiles.append(tile(format_seconds(seconds), "elapsed"))
        tiles.append(tile(format_count(data["rows"]["done"] / seconds), "rows/s"))
        tiles.append(
            tile(format_rate(data["bytes_read"] / seconds), "read", f"{format_bytes(data['bytes_read'])} in all")
        )
    if data["workers"]:
        where = f"engine: {data['engine']}" if data["engine"] else ""
        tiles.append(tile(str(data["workers"]), "worker" if data["workers"] == 1 else "workers", where))
    if shares and shares["busy"] is not None:
        tiles.append(tile(f"{100 * shares['busy']:.0f} %", "busy", f"{shares['tasks']:,} tasks"))
    words = f"<strong>{escape(data['headline'])}</strong> {escape(data['verdict'])}"
    parts = [
        f'<p class="verdict {escape(state)}">{words}</p>',
        f'<div class="tiles">{"".join(tiles)}</div>',
        _share_bar(shares),
    ]
    if data["problems_total"]:
        parts.append('<p class="hint"><a href="#ledger">What is missing, and why</a></p>')
    return "\n".join(parts)


def _exactly(count: int) -> str:
    return f"{count:,} exactly" if count >= 1000 else ""


def _share_bar(shares: Mapping[str, Any] | None) -> str:
    """Draw where the workers' time went."""
    if not shares or shares["cpu"] is None:
        return ""
    kinds = (
        ("cpu", "computing", "processor time"),
        ("lock", "lock or reads", "waiting for the interpreter lock or for reads"),
        ("waiting", "no processor", "waiting for a processor"),
    )
    return share_bar("Time of the tasks", ((kind, what, why, shares[kind]) for kind, what, why in kinds))


def steps(data: Mapping[str, Any]) -> str:
    """Write the table of steps: what went in and out, and what it cost."""
    found = data["steps"]
    if not found:
        return hint(unknown(data) or "No step ran.")
    spent = [step["seconds"] or 0.0 for step in found]
    longest, total = max(spent) or 1.0, sum(spent) or 1.0
    heads = ("step", "kind", "rows in", "rows out", "passed", "calls", "per call", "per row")
    rows = []
    for step, mine in zip(found, spent, strict=True):
        passed = "-"
        if step["kind"] == "cut" and step["rows_in"]:
            passed = f"{100 * step['rows_out'] / step['rows_in']:.2f} %"
        share = 100 * mine / longest
        rows.append(
            f'<tr><th scope="row">{escape(step["name"])}</th>'
            f'<td class="left"><span class="kind">{escape(step["kind"])}</span></td>'
            f"<td>{step['rows_in']:,}</td><td>{step['rows_out']:,}</td><td>{passed}</td>"
            f"<td>{step['calls']:,}</td><td>{_time(step['fixed_s'])}</td>"
            f"<td>{_time(step['per_row_s'])}</td>"
            f'<td class="barcell"><span class="bar" style="width:{share:.1f}%"></span>'
            f"<span>{_time(step['seconds'])}</span></td>"
            f"<td>{100 * mine / total:.0f} %</td>"
            f"<td>{escape(format_bytes(step['bytes_read']))}</td></tr>"
        )
    return table((*heads, "total", "share", "read"), rows, left=2, name="steps")


def nminus1(data: Mapping[str, Any]) -> str:
    """Write for each region the rows that pass all cuts but one, all datasets together."""
    lines = []
    for region, tables in data["nminus1"].items():
        every = tables["all"]
        rows = []
        for label, count, sumw in zip(every["labels"], every["nev"], every["wgtev"], strict=True):
            why = every["failures"].get(label.removeprefix("N - "), "")
            numbers = (
                f'<td colspan="2" class="left hint">n/a: {escape(why)}</td>'
                if count is None
                else f"<td>{count:,}</td><td>{sumw:.6g}</td>"
            )
            rows.append(f'<tr><td class="left">{escape(label)}</td>{numbers}</tr>')
        lines.append(f"<h4>{escape(region)}</h4>")
        lines.append(table(("", "rows", "weighted"), rows, left=1, name="nminus1"))
    if not lines:
        return ""
    return f"<details><summary>All cuts but one</summary>{''.join(lines)}</details>"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else escape(format_seconds(seconds))


def ledger(data: Mapping[str, Any]) -> str:
    """Write what became of every file's rows; what is wrong comes first and in words."""
    counts = data["rows"]
    lines = [f"<p>{escape(data['verdict'])}</p>"]
    if data["problems"]:
        rows = [
            f'<tr><th scope="row">{escape(p["file"])}</th><td class="left">{escape(p["dataset"])}</td>'
            f'<td class="left">{escape(p["rows"])}</td>'
            f'<td class="left"><span class="kind {escape(p["state"])}">{escape(p["state"])}</span></td>'
            f'<td class="left words">{escape(p["reason"])}</td></tr>'
            for p in data["problems"]
        ]
        lines.append("<h3>Not done</h3>")
        lines.append(table(("file", "dataset", "rows", "state", "why"), rows, left=5))
        lines.append(more(data["problems_total"] - len(data["problems"]), "ranges"))
    files = data["files"]
    if files:
        rows = [
            f'<tr><th scope="row">{escape(f["file"])}</th><td class="left">{escape(f["dataset"])}</td>'
            f"<td>{f['done']:,}</td><td>{f['failed']:,}</td><td>{f['missing']:,}</td></tr>"
            for f in files
        ]
        shown = table(("file", "dataset", "done", "failed", "missing"), rows, left=2, name="files")
        rest = more(data["files_total"] - len(files), "files")
        opened = " open" if len(files) <= 12 else ""
        lines.append(
            f"<details{opened}><summary>{data['files_total']:,} "
            f"{'file' if data['files_total'] == 1 else 'files'}, {counts['total']:,} rows</summary>"
            f"{shown}{rest}</details>"
        )
    if data["saved"]:
        lines.append("<h3>Files written</h3>")
        lines.append(_facts(data["saved"]))
    return "\n".join(lines)


def decisions(data: Mapping[str, Any]) -> str:
    """Write what was decided, the orders that ran with their reasons, notes and guards."""
    lines = []
    if data["decisions"]:
        lines.append(listed(data["decisions"]))
    if data["order"]:
        orders = _alike(data["order"])
        rows = [
            f'<tr><td class="left words">{escape(", ".join(datasets))}</td>'
            f'<td class="left words">{" ".join(f"<code>{escape(step)}</code>" for step in order)}</td>'
            f'<td class="left words">{escape(why)}</td></tr>'
            for datasets, order, why in orders[:MOST_LINES]
        ]
        lines.append("<h3>Orders, as they were issued</h3>")
        lines.append(table(("datasets", "order", "why"), rows, left=3))
        lines.append(more(len(orders) - MOST_LINES, "orders"))
    if data["guards"]:
        lines.append("<h3>Guards that were learned</h3>")
        lines.append(listed(f"{step} runs after {cut}" for step, cut in data["guards"]))
    if data["notes"]:
        lines.append("<h3>Notes</h3>")
        lines.append(listed(data["notes"][:MOST_LINES]))
        lines.append(more(len(data["notes"]) - MOST_LINES, "notes"))
    return "\n".join(lines) or hint(unknown(data) or "Nothing had to be decided.")


def _alike(orders: Sequence[Sequence[Any]]) -> list[tuple[list[str], list[str], str]]:
    """Join neighbours that have the same order for the same reason."""
    joined: list[tuple[list[str], list[str], str]] = []
    for dataset, order, why in orders:
        if joined and joined[-1][1:] == (order, why):
            joined[-1][0].append(dataset)
        else:
            joined.append(([dataset], order, why))
    return joined


def outputs(data: Mapping[str, Any]) -> str:
    """Write the outputs that are no histograms, as far as they can be said in a line."""
    found = data["values"]
    if not found:
        return ""
    rows = [
        f'<tr><th scope="row">{escape(v["output"])}</th><td class="left">{escape(v["region"] or "all rows")}</td>'
        f'<td class="left">{escape(v["variation"])}</td><td class="left">{escape(v["dataset"])}</td>'
        f'<td class="left words">{escape(v["text"])}</td></tr>'
        for v in found
    ]
    shown = table(("output", "region", "variation", "dataset", "value"), rows, left=5)
    rest = more(data["values_total"] - len(found), "values")
    opened = "" if data["histograms"] else " open"
    return f"<details{opened}><summary>Other outputs</summary>{shown}{rest}</details>"


def environment(data: Mapping[str, Any]) -> str:
    """Write what the run ran with."""
    return _facts(data["environment"]) or hint("Nothing was kept about the environment.")


def _facts(value: Any, name: str = "") -> str:
    """Write nested plain data as lists of names and values."""
    if isinstance(value, dict):
        if not value:
            return ""
        items = "".join(
            f"<dt>{escape(str(key))}</dt><dd>{_facts(item, str(key))}</dd>"
            for key, item in list(value.items())[:MOST_LINES]
        )
        return f"<dl>{items}</dl>"
    if isinstance(value, list):
        if all(isinstance(item, str | int | float) for item in value):
            return escape(", ".join(map(str, value[:MOST_LINES])))
        return "".join(f'<div class="fact">{_facts(item)}</div>' for item in value[:MOST_LINES])
    if name in ("memory", "bytes") and isinstance(value, int):
        return escape(format_bytes(value, binary=name == "memory"))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return escape("-" if value is None else str(value))
