"""The run report: one HTML page that needs no network, from plain data about a run and its log.

The page is put together from the files in ``page/``: template, style, scripts, and the chart
library with its licence. What it shows is made here and in ``report_*``; what the data has to hold
is made by ``windrow.pipeline.reporting``.
"""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from windrow.watch import report_tables as tables
from windrow.watch.report_order import order
from windrow.watch.report_timeline import memory_data, shares, throughput, timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.watch.readlog import Log

__all__ = ["build_page", "embedded", "page_file", "page_script"]

SCRIPTS = ("base.js", "controls.js", "cutflow.js", "histograms.js", "plots.js", "timeline.js", "order.js")

#: Digits of bin contents on the page: more than a screen shows, fewer than the result has.
DIGITS = 7


def build_page(data: Mapping[str, Any], log: Log | None) -> str:
    """Return the page; ``data`` is strict JSON, as ``report_data`` makes it."""
    crew = shares(log, data["workers"]) if log is not None and len(log.tasks) else None
    parts = {
        "title": escape(data["name"]),
        "style": page_file("page.css"),
        "charts": page_script("vendor/echarts.min.js"),
        "script": "\n".join(page_script(name) for name in SCRIPTS),
        "data": embedded(_drawn(data, log)),
        "version": escape(data["windrow"]),
        "when": escape(data["when"]),
        "summary": tables.summary(data, crew),
        "nminus1": tables.nminus1(data),
        "steps": tables.steps(data),
        "order": order(data),
        "ledger": tables.ledger(data),
        "decisions": tables.decisions(data),
        "outputs": tables.outputs(data),
        "environment": tables.environment(data),
        "lognote": _about_log(log),
    }
    # All at once: what is put in is not looked at again.
    page = re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], page_file("page.html"))
    # Scripts are plain ASCII by now. So is the page: it reads the same whatever a server calls it.
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _drawn(data: Mapping[str, Any], log: Log | None) -> dict[str, Any]:
    """Collect what the scripts draw."""
    inputs = data["inputs"]

    def colour(source: int, plan: int) -> str:
        return str(inputs[source]["dataset"]) if source < len(inputs) else f"plan {plan}"

    return {
        "unfinished": data["state"] == "unfinished",
        "cutflow": data["cutflow"],
        "datasets": data["datasets"],
        "histograms": [_rounded(item) for item in data["histograms"]],
        "histogram_notes": data["histogram_notes"],
        "timeline": None if log is None else timeline(log, colour),
        "throughput": None if log is None else throughput(log),
        "memory": None if log is None else memory_data(log),
    }


def _about_log(log: Log | None) -> str:
    if log is None:
        return '<p class="hint">There is no event log of this run.</p>'
    words = []
    if log.dropped:
        words.append(f"The last {log.dropped:,} events were not kept; a run directory keeps all.")
    if log.unreadable:
        words.append(
            f"{log.unreadable:,} {'line' if log.unreadable == 1 else 'lines'} of the log could not "
            "be read, as happens when a run is killed."
        )
    return f'<p class="hint">{" ".join(words)}</p>' if words else ""


def _rounded(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **item,
        "values": _short(item["values"]),
        "variances": None if item["variances"] is None else _short(item["variances"]),
    }


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(one) for one in value]
    if value is None:
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def embedded(value: Any) -> str:
    """Write JSON that cannot end the script element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def page_script(name: str) -> str:
    """Return a script in which letters beyond ASCII, all of them within strings, are escaped."""
    return re.sub(r"[^\x00-\x7f]", lambda match: f"\\u{ord(match[0]):04x}", page_file(name))


def page_file(name: str) -> str:
    """Return a file that pages are made of."""
    place = files("windrow.watch").joinpath("page")
    for part in name.split("/"):
        place = place.joinpath(part)
    return place.read_text(encoding="utf-8")
