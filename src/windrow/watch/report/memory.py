"""The section about memory of a report: what chunks or calls used and were granted, what running out cost, and what to ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.units import format_bytes
from windrow.watch.readlog import DONE, FAILED
from windrow.watch.report.page import chart
from windrow.watch.report.tables import hint, show_percent, table, tiles

if TYPE_CHECKING:
    from windrow.watch.readlog import Log

#: The column of by how much predictions were off.
OFF_BY = ("predictions off by", lambda one: one["off"] / one["used"] if one.get("used") else None, "percent")
#: Chunks that are drawn of those that ran well, and of others.
MOST_CHUNKS = 3_000


def memory_section(data: Mapping[str, Any]) -> str:
    """Write tiles, charts and a line for each dataset; nothing where no memory was limited."""
    told = data["memory"]
    if not told:
        return ""
    keys = ("granted_byte_s", "wasted_byte_s", "most", "too_much", "allowed")
    granted, wasted, most, bad, (allowed, *_) = ([one[key] for one in told.values()] for key in keys)
    whole, lost = sum(data["account"].values()), data["account"].get("attempts that came to nothing", 0.0)
    numbers = (
        (format_bytes(max(most)), "most used"),
        (format_bytes(allowed), "share of a chunk"),
        (show_percent(sum(wasted) / (sum(granted) or 1.0)), "of what was granted", "was not used"),
        (show_percent(lost / (whole or 1.0)), "of the workers' time", "lost to attempts that came to nothing"),
        (f"{sum(bad):,}", "used too much", "more than they might"),
    )
    columns = (
        ("dataset", 0, "name"), ("chunks", "tasks", "count"), ("most rows", "rows", "count"), ("most used", "most", "bytes"),
        ("however few rows", "fixed", "bytes"), ("per row", "per_row", "bytes"),
        OFF_BY, ("granted at most", lambda one: one.get("most_granted"), "bytes"), ("used too much", "became", "words"), ("MB to ask for", "suggested_mem_mb", "count"),
    )  # fmt: skip
    charts = f"""<h3>Rows of chunks over time</h3>{chart("chunk-rows", "Rows of chunks over time")}
<h3>Memory against rows</h3>{chart("chunk-memory", "Memory that chunks used against their rows")}"""
    note = hint("Lines are what was learned of a dataset, dashed: the share of a chunk.")
    lines = table(({0: name, **one} for name, one in told.items()), columns)
    return f'{tiles(numbers)}<div id="chunk-charts">{charts}{note}</div>{lines}'


def calls_table(told: Iterable[Mapping[str, Any]]) -> str:
    """Write what calls were known to use and were granted, by the name of their task; nothing where nothing was measured."""
    lines = [one for one in told if one.get("tasks")]
    if not lines:
        return ""
    columns = (
        ("task", "category", "name"), ("calls measured", lambda one: int(one["tasks"]), "count"), ("most used", "most", "bytes"),
        ("known to use", lambda one: one["predicted"] / one["predictions"] if one.get("predictions") else None, "bytes"),
        OFF_BY, ("granted at most", lambda one: one.get("most_granted") or None, "bytes"),
        ("share of a worker", lambda one: one["allowed"] or None, "bytes"),
        ("used too much", lambda one: int(one.get("larger", 0) + one.get("fail", 0)), "some"),
    )  # fmt: skip
    note = "Memory is granted once calls are known that need more than the share of a worker, or where it is asked for."
    return table(lines, columns) + hint(note)


def chunk_points(data: Mapping[str, Any], log: Log | None) -> dict[str, Any] | None:
    """Give what is drawn of chunks, in columns, with the line of each dataset; None where no memory was limited."""
    told, names = data["memory"], list(data["memory"])
    if log is None or not told:
        return None
    ran = log.attempts
    failed = np.equal(ran.how, FAILED)
    rows = np.where(failed, ran.tried, ran.rows)
    dataset = np.array([names.index(name) if name in told else -1 for name in log.names] or [-1])[ran.name]
    chosen = np.isin(ran.how, (DONE, FAILED)) & (rows > 0) & (ran.limit > 0) & (dataset >= 0)
    bad, well = np.flatnonzero(chosen & failed), np.flatnonzero(chosen & ~failed)
    well = well[np.argsort(-rows[well], kind="stable")][:: len(well) // MOST_CHUNKS + 1]  # with the largest
    place = np.sort(np.concatenate([bad[:MOST_CHUNKS], well]))
    columns = {
        "rows": rows,
        "peak": ran.peak,
        "limit": ran.limit,
        "dataset": dataset,
        "block": ran.block,
        "failed": failed,
    }
    return {
        "time": [round(float(time), 6) for time in ran.end[place]],
        **{name: values[place].tolist() for name, values in columns.items()},
        "names": names,
        "lines": [None if one["fixed"] is None else [one["fixed"], one["per_row"]] for one in told.values()],
        "allowed": told[names[0]]["allowed"],
        "span": log.span,
    }
