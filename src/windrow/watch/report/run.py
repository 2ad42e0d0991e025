"""The report of a pipeline's run, from plain data about the run and its log.

What the data has to hold is made by ``windrow.pipeline.results.report_data``, or by ``unfinished`` for a run that left no result.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from windrow.units import format_bytes, format_count, format_rate, format_seconds
from windrow.watch.report.order import order_chart_data, order_section
from windrow.watch.report.page import Section, build_page, chart, timeline_section
from windrow.watch.report.tables import details, facts, heading, hint, listed, plural, table, tiles, verdict
from windrow.watch.report.timeline import memory_data, shares, throughput, timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.watch.readlog import Log

SCRIPTS = ("controls.js", "cutflow.js", "histograms.js", "plots.js", "order.js", "timeline.js")

#: Digits of bin contents on the page: more than a screen shows, fewer than the result has.
DIGITS = 7

_CURVES = {"rows": "Rows per second over time", "read": "Bytes read per second over time"}


def run_page(data: Mapping[str, Any], log: Log | None) -> str:
    """Return the page; ``data`` is strict JSON, as ``report_data`` makes it."""
    logged = log is not None
    sections = (
        Section("summary", "Summary", _summary(data, log)),
        Section("histograms", "Histograms", _histograms(data)),
        Section("cutflow", "Cutflow", _cutflow(data)),
        timeline_section(
            _CURVES, logged=logged, dropped=log.dropped if log else 0, unreadable=log.unreadable if log else 0
        ),
        Section("steps", "Steps", _steps(data)),
        Section("order", "Order", order_section(data)),
        Section("ledger", "Ledger", _ledger(data)),
        Section("decisions", "Decisions", _decisions(data)),
        Section("environment", "Environment", environment_facts(data["environment"])),
    )
    return build_page(data["name"], sections, _drawn(data, log), SCRIPTS, data["windrow"])


def _drawn(data: Mapping[str, Any], log: Log | None) -> dict[str, Any]:
    return {
        "unfinished": data["state"] == "unfinished",
        "cutflow": data["cutflow"],
        "datasets": data["datasets"],
        "histograms": [
            {**item, "values": _rounded(item["values"]), "variances": _rounded(item["variances"])}
            for item in data["histograms"]
        ],
        "histogram_notes": data["histogram_notes"],
        "orders": order_chart_data(data),
        "timeline": None if log is None else timeline(log),
        "throughput": None if log is None else throughput(log),
        "memory": None if log is None else memory_data(log),
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    if value is None:
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _summary(data: Mapping[str, Any], log: Log | None) -> str:
    crew = shares(log, data["workers"]) if log is not None and len(log.attempts) else None
    done, seconds, size = data["rows"]["done"], data["seconds"], data["bytes_read"]
    numbers: list[tuple[str, ...]] = [(format_count(done), "rows", f"{done:,} exactly" if done >= 1000 else "")]
    if seconds:
        numbers.append((format_seconds(seconds), "elapsed"))
        numbers.append((format_count(done / seconds), "rows/s"))
        numbers.append((format_rate(size / seconds), "read", f"{format_bytes(size)} in all"))
    if data["workers"]:
        where = f"engine: {data['engine']}" if data["engine"] else ""
        numbers.append((str(data["workers"]), "worker" if data["workers"] == 1 else "workers", where))
    if crew and crew["busy"] is not None:
        numbers.append((f"{100 * crew['busy']:.0f} %", "busy", plural(crew["tasks"], "task")))
    if crew and crew["cpu"] is not None:
        waiting = f"{100 * crew['lock']:.0f} % lock or reads, {100 * crew['waiting']:.0f} % no processor"
        numbers.append((f"{100 * crew['cpu']:.0f} %", "computing", waiting))
    parts = [verdict(data["state"], data["headline"], data["verdict"]), tiles(numbers)]
    if data["problems_total"]:
        parts.append('<p class="hint"><a href="#ledger">What is missing, and why</a></p>')
    return "\n".join(parts)


def _histograms(data: Mapping[str, Any]) -> str:
    parts = [
        '<div class="controls" id="histogram-controls"></div>',
        chart("histogram", "Histogram"),
        '<p class="hint" id="histogram-note" aria-live="polite"></p>',
    ]
    if data["values"]:
        columns = (
            ("output", "output", "name"), ("region", lambda one: one["region"] or "all rows", "text"),
            ("variation", "variation", "text"), ("dataset", "dataset", "text"), ("value", "text", "words"),
        )  # fmt: skip
        shown = table(data["values"], columns, total=data["values_total"], things="values")
        parts.append(details("Other outputs", shown, opened=not data["histograms"]))
    return "\n".join(parts)


def _cutflow(data: Mapping[str, Any]) -> str:
    """Write the places of the cutflow, and for each region the rows that pass all cuts but one, datasets together."""
    lines = []
    for region, tables in data["nminus1"].items():
        every = tables["all"]
        rows = []
        for label, count, sumw in zip(every["labels"], every["nev"], every["wgtev"], strict=True):
            why = every["failures"].get(label.removeprefix("N - "), "")
            rows.append((label, count, None, f"n/a: {why}") if count is None else (label, count, sumw, ""))
        shown = table(
            rows, (("", 0, "text"), ("rows", 1, "count"), ("weighted", 2, "digits"), ("", 3, "remark")), name="nminus1"
        )
        lines.append(f"<h4>{escape(region)}</h4>{shown}")
    places = '<div class="controls" id="cutflow-controls"></div>\n<div id="cutflow-table" aria-live="polite"></div>'
    return places + (details("All cuts but one", "".join(lines)) if lines else "")


def _steps(data: Mapping[str, Any]) -> str:
    steps = data["steps"]
    if not steps:
        return hint(unknown(data) or "No step ran.")
    total = sum(step["seconds"] or 0.0 for step in steps) or 1.0

    def passed(step: Mapping[str, Any]) -> float | None:
        return 100 * step["rows_out"] / step["rows_in"] if step["kind"] == "cut" and step["rows_in"] else None

    columns = (
        ("step", "name", "name"), ("kind", "kind", "state"), ("rows in", "rows_in", "count"),
        ("rows out", "rows_out", "count"), ("passed", passed, "exact %"), ("calls", "calls", "count"),
        ("per call", "fixed_s", "seconds"), ("per row", "per_row_s", "seconds"), ("total", "seconds", "seconds bar"),
        ("share", lambda step: 100 * (step["seconds"] or 0.0) / total, "%"), ("read", "bytes_read", "bytes"),
    )  # fmt: skip
    return table(steps, columns, name="steps")


def _ledger(data: Mapping[str, Any]) -> str:
    """Write what became of every file's rows; what is wrong comes first and in words."""
    lines = [f"<p>{escape(data['verdict'])}</p>"]
    if data["problems"]:
        lines.append(heading("Not done"))
        columns = (
            ("file", "file", "name"), ("dataset", "dataset", "text"), ("rows", "rows", "text"), ("state", "state", "state"),
            ("why", "reason", "words"),
        )  # fmt: skip
        lines.append(table(data["problems"], columns, total=data["problems_total"], things="ranges"))
    if data["files"]:
        files = (
            ("file", "file", "name"), ("dataset", "dataset", "text"),
            *((name, name, "count") for name in ("done", "failed", "missing")),
        )  # fmt: skip
        shown = table(
            data["files"], files, name="files", most=len(data["files"]), total=data["files_total"], things="files"
        )
        summary = f"{plural(data['files_total'], 'file')}, {data['rows']['total']:,} rows"
        lines.append(details(summary, shown, opened=len(data["files"]) <= 12))
    if data["saved"]:
        lines.append(heading("Files written"))
        lines.append(facts(data["saved"]))
    return "\n".join(lines)


def _decisions(data: Mapping[str, Any]) -> str:
    """Write what was decided, notes and guards."""
    lines = []
    if data["decisions"]:
        lines.append(listed(data["decisions"]))
    if data["guards"]:
        lines.append(heading("Guards that were learned"))
        lines.append(listed([f"{step} runs after {cut}" for step, cut in data["guards"]]))
    if data["notes"]:
        lines.append(heading("Notes"))
        lines.append(listed(data["notes"], "notes"))
    return "\n".join(lines) or hint(unknown(data) or "Nothing had to be decided.")


def environment_facts(environment: Any) -> str:
    return facts(environment) or hint("Nothing was kept about the environment.")


def unknown(data: Mapping[str, Any]) -> str:
    """Say why a section has nothing, where the run left no result."""
    return "Not known, as the run left no result." if data["state"] == "unfinished" else ""
