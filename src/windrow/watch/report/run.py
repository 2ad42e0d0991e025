"""The report of a pipeline's run, from plain data about the run and its log.

What the data has to hold is made by ``windrow.pipeline.results.report_data``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from windrow.units import format_bytes, format_count, format_rate, format_seconds
from windrow.watch.report.memory import chunk_points, memory_section
from windrow.watch.report.page import build_page, chart, timeline_section
from windrow.watch.report.tables import Html, details, facts, heading, hint, listed, plural, table, tiles, verdict
from windrow.watch.report.timeline import memory_data, shares, throughput, timeline

if TYPE_CHECKING:
    from windrow.watch.readlog import Log
    from windrow.watch.report.tables import Column

SCRIPTS = ("controls.js", "cutflow.js", "histograms.js", "plots.js", "order.js", "timeline.js", "memory.js")

#: Digits of bin contents on the page: more than a screen shows, fewer than the result has.
DIGITS = 7
#: More steps than this are drawn without the columns and weights, which go where the cuts go that need them.
MOST_STEPS = 25
#: Changes of an order that are drawn; the last ones, if there are more.
MOST_CHANGES = 24

_CURVES = {"rows": "Rows per second over time", "read": "Bytes read per second over time"}


def run_page(data: Mapping[str, Any], log: Log | None) -> str:
    memory = memory_section(data)
    sections = (
        ("summary", "Summary", _summary(data, log)),
        ("histograms", "Histograms", _histograms(data)),
        ("cutflow", "Cutflow", _cutflow(data)),
        timeline_section(_CURVES, log),
        *([("predictions", "Predictions", _predictions(data))] if data["predicted"] else []),
        *([("memory", "Memory", memory)] if memory else []),
        ("steps", "Steps", _steps(data)),
        ("order", "Order", order_section(data)),
        ("ledger", "Ledger", _ledger(data)),
        ("decisions", "Decisions", _decisions(data)),
        ("environment", "Environment", environment_facts(data["environment"])),
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
        "chunks": chunk_points(data, log),
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
    if data["tail_s"] and seconds and data["workers"] > 1:
        share = f"{100 * data['tail_s'] / seconds:.0f} % of the run"
        numbers.append((format_seconds(data["tail_s"]), "tail", f"{share}: some workers had nothing left"))
    parts = [verdict(data["state"], data["headline"], data["verdict"]), tiles(numbers)]
    if data["account"]:
        whole = sum(data["account"].values()) or 1.0
        columns = (
            ("", 0, "text"), ("seconds of all workers", 1, "seconds bar"), ("share", lambda one: 100 * one[1] / whole, "%"),
        )  # fmt: skip
        lines = [*((name, seconds) for name, seconds in data["account"].items() if seconds), ("together", whole)]
        parts.append(details("Where the time went", table(lines, columns, name="account"), opened=True))
    if data["problems_total"]:
        parts.append('<p class="hint"><a href="#ledger">What is missing, and why</a></p>')
    return "\n".join(parts)


def _predictions(data: Mapping[str, Any]) -> str:
    columns = (
        ("dataset", 0, "name"), ("chunks predicted", "predicted", "count"), ("predicted", "predicted_s", "seconds"),
        ("used", "used_s", "seconds"), ("predictions off by", lambda one: one["off_s"] / (one["used_s"] or 1.0), "percent"),
    )  # fmt: skip
    lines = table(({0: name, **one} for name, one in data["predicted"].items()), columns)
    return lines + hint(
        "Seconds of chunks, by what a row of earlier ones had taken. Those of which nothing was known are not here."
    )


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


# -- the order of steps: over time, step by step, what it saved and what finding it cost ------------


def order_section(data: Mapping[str, Any]) -> str:
    decided = [told for told in data["ordering"] if told["steps"]]
    parts = []
    if not decided:
        whys = [*(why for _, _, why in data["order"]), *(told.get("why") for told in data["ordering"])]
        reasons = "; ".join(dict.fromkeys(why for why in whys if why)) or "no step ran"
        parts.append(hint(unknown(data) or f"Nothing was decided about the order in this run: {reasons}."))
    elif len(data["ordering"]) > 1:
        parts += [
            details(
                f"<strong>{escape(told['dataset'])}</strong> {escape(told['words'])}",
                _dataset(number, told, data),
                opened=number == 0,
                name="dataset",
            )
            for number, told in enumerate(decided)
        ]
    else:
        words = decided[0]["words"]
        parts.append(f"<p>{escape(words[:1].upper() + words[1:])}.</p>{_dataset(0, decided[0], data)}")
    kept = [told for told in data["ordering"] if told["fixed"]]
    if kept:
        parts.append(heading("Where the order had to stay"))
        parts.append(listed([f"{told['dataset']}: {told['fixed']}" for told in kept]))
    return "\n".join(parts)


def _dataset(number: int, told: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    drawn = _chart_data(told)
    picture = "" if drawn is None else chart(f"order-{number}", drawn["label"]) + hint(" ".join(drawn["words"]))
    return "\n".join((_tiles(told, data), picture, _ordered_steps(told)))


def _tiles(told: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Write what was saved, which is estimated, and what was paid, which is measured."""
    saved, looked = told["saved"], told["looked"]
    numbers: list[tuple[str, ...]] = []
    if told["moved"]:
        if told["share"] is not None:
            numbers.append((f"{100 * told['share']:.0f} %", "of the written order's cost", "at the end, by the model"))
        for name, words, what in (
            ("evaluations", format_count, "evaluations"),
            ("seconds", format_seconds, "processor time"),
            ("bytes", lambda size: format_bytes(int(size)), "reading"),
        ):
            if size := saved[name] or 0.0:
                label = f"{what} saved" if size > 0 else f"more {what}"
                numbers.append((words(abs(size)), label, "against the written order, by the model"))
    at = f"{format_seconds(looked['seconds'])}: {looked['rows']:,} rows in {looked['windows']:,} places"
    numbers.append((_share_of_run(looked["seconds"], data), "of the run for looking", at))
    every = ", all datasets together" if len(data["ordering"]) > 1 else ""
    planned = f"{format_seconds(told['planning_s'])}{every}"
    numbers.append((_share_of_run(told["planning_s"], data), "of the run for planning", planned))
    return tiles(numbers, "tiles small")


def _share_of_run(seconds: float, data: Mapping[str, Any]) -> str:
    whole = (data["seconds"] or 0.0) * max(data["workers"], 1)
    if not whole:
        return format_seconds(seconds)
    share = 100 * seconds / whole
    return f"{share:.1f} %" if share >= 0.05 else "< 0.1 %"


def order_chart_data(data: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """Give for each dataset what its drawing shows: the orders one after the other; None where there was only one."""
    return [_chart_data(told) for told in data["ordering"] if told["steps"]]


def _chart_data(told: Mapping[str, Any]) -> dict[str, Any] | None:
    steps = told["steps"]
    cuts = [step["name"] for step in steps if step["kind"] == "cut"]
    shown, words = [step["name"] for step in steps], []
    if len(shown) > MOST_STEPS and len(cuts) > 1:
        shown = cuts
        words.append("Columns and weights, which are made just before the first cut that needs them, are not drawn.")
    orders, times = _orders(told, frozenset(shown))
    if len(orders) < 2:
        return None
    if len(orders) > MOST_CHANGES + 1:
        words.append(f"The last {MOST_CHANGES} of {len(orders) - 1:,} changes are drawn.")
        orders = [orders[0], *orders[-MOST_CHANGES:]]
        times = [times[0], *times[-MOST_CHANGES:]]
    words.append("Times are the work of all workers at which the order changed.")
    return {
        "orders": orders,
        "times": times,
        "cuts": cuts,
        "words": words,
        "label": f"The order of the steps of {told['dataset']} over time, {plural(len(orders) - 1, 'change')}. "
        f"In the end: {', '.join(orders[-1])}.",
    }


def _orders(told: Mapping[str, Any], shown: frozenset[str]) -> tuple[list[list[str]], list[str]]:
    """List the orders that were in force, from the written one on, as far as they differ, and since when."""

    def only(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in shown]

    written = only([step["name"] for step in sorted(told["steps"], key=lambda step: step["written_place"])])
    found = [(written, "written"), (only(told["began"] or written), "0 s")]
    found += [(only(one["order"]), format_seconds(one["spent_s"])) for one in told["checkpoints"]]
    # A guard that was learned, or the written order again: what made it so has no time of its own.
    found.append((only(told["ended"] or found[-1][0]), "later"))
    orders, times = [written], ["written"]
    for names, time in found:
        if names != orders[-1] and set(names) == set(written):
            orders.append(names)
            times.append(time)
    if only(told["began"] or written) == written:
        times[0] = "0 s"
    return orders, times


def _ordered_steps(told: Mapping[str, Any]) -> str:
    steps = told["steps"]
    explained = any(step["why"] for step in steps)

    def written(step: Mapping[str, Any]) -> Any:
        place = step["written_place"] + 1
        return place if step["place"] == step["written_place"] else Html(f'<span class="moved">{place}</span>')

    def name(step: Mapping[str, Any]) -> Html:
        kind = "" if step["kind"] == "cut" else f' <span class="kind">{escape(step["kind"])}</span>'
        return Html(f"{escape(step['name'])}{kind}")

    columns: list[Column] = [
        ("place", lambda step: step["place"] + 1, "number"),
        ("written", written, "number"),
        ("step", name, "name"),
        ("reached by", "alive", "share"),
        ("passes", lambda step: step["passes"] if step["kind"] == "cut" else None, "percent"),
        ("per call", "fixed_s", "seconds"),
        ("per row", "row_s", "seconds"),
    ]
    columns += [("why", "why", "words")] if explained else []
    return table(steps, columns, name="order") + hint(
        "Which share of the rows reaches a step in this order, and which passes it, is estimated from the rows "
        "that were shown to all cuts."
    )
