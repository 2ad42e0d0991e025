"""The section about memory of a report: what chunks used and were granted, what running out cost, and what to ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.units import format_bytes
from windrow.watch.readlog import DONE, FAILED
from windrow.watch.report.page import chart
from windrow.watch.report.tables import hint, show_percent, table, tiles

if TYPE_CHECKING:
    from windrow.watch.readlog import Log

#: Chunks that are drawn; of those that ran well some are left out above that.
MOST_CHUNKS = 3_000
#: How a chunk is drawn, by number: run as it is, its steps called for blocks of it, more memory than it might have.
WHOLE, IN_BLOCKS, TOO_MUCH = range(3)


def memory_section(data: Mapping[str, Any], log: Log | None) -> str:
    """Write tiles, charts and a line for each dataset; nothing where no memory was limited."""
    told = _limited(data)
    if not told:
        return ""
    name, most = max(told.items(), key=lambda item: item[1]["most"])
    granted, wasted = (sum(one[key] for one in told.values()) for key in ("granted_byte_s", "wasted_byte_s"))
    whole = sum(data["account"].values())
    numbers: list[tuple[str, ...]] = [
        (format_bytes(most["most"]), "most used", f"by a task of {name}" if len(told) > 1 else ""),
        (format_bytes(most["allowed"]), "allowed", "for each worker, unless others leave theirs"),
    ]
    if granted:
        numbers.append((show_percent(wasted / granted), "of what was granted", "was not used"))
    if whole:
        lost = data["account"].get("attempts that came to nothing", 0.0)
        numbers.append((show_percent(lost / whole), "of the workers' time", "lost to attempts that came to nothing"))
    numbers.append((f"{sum(one['too_much'] for one in told.values()):,}", "used too much", "more than they might"))
    columns = (
        ("dataset", 0, "name"), ("chunks", "tasks", "count"), ("most rows", "rows", "count"), ("most used", "most", "bytes"),
        ("however few rows", "fixed", "bytes"), ("per row", "per_row", "bytes"), ("predictions off by", "off", "percent"),
        ("used too much", "became", "words"), ("to ask for", "ask", "number"),
    )  # fmt: skip
    lines = [{0: name, "fixed": None, "per_row": None, **one, **_words(one)} for name, one in told.items()]
    charts = ""
    if chunk_points(data, log):
        charts = f"<h3>Rows of chunks over time</h3>{chart('chunk-rows', 'Rows of chunks over time')}"
        charts += f"<h3>Memory against rows</h3>{chart('chunk-memory', 'Memory that chunks used against their rows')}"
        charts += hint("Lines are what was learned of a dataset, dashed: what a worker may use.")
    pins = [f"{name}: {pin_words(one['pin'])}" for name, one in told.items() if one["pin"]]
    shown = hint(f"To begin with what was learned: {'; '.join(pins)}.") if pins else ""
    return f"{tiles(numbers)}{charts}{table(lines, columns, name='memory')}{shown}"


def pin_words(pin: Mapping[str, int]) -> str:
    """Write settings as a run takes them."""
    return f'chunk={pin["chunk"]}, task_memory="{pin["task_memory"] // 10**6} MB"'


def _limited(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: facts for name, facts in data["memory"].items() if facts["limited"]}


def _words(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "off": one["off"] / one["used"] if one["used"] else None,
        "ask": f"{one['suggested_mem_mb']:,} MB",
        "became": one["became"] or None,
    }


def chunk_points(data: Mapping[str, Any], log: Log | None) -> dict[str, Any] | None:
    """Give what is drawn of chunks, in columns, with the line of each dataset; None where there is nothing to draw."""
    told = _limited(data)
    if log is None or not told:
        return None
    all_of = log.attempts
    rows = np.where(all_of.how == FAILED, all_of.tried, all_of.rows)
    number = {name: place for place, name in enumerate(told)}
    dataset = np.array([number.get(name, -1) for name in log.names] or [-1])[all_of.name]
    chosen = np.isin(all_of.how, (DONE, FAILED)) & (rows > 0) & (all_of.limit > 0) & (all_of.peak > 0) & (dataset >= 0)
    kind = np.where(
        all_of.how == FAILED, TOO_MUCH, np.where((all_of.block > 0) & (all_of.block < rows), IN_BLOCKS, WHOLE)
    )
    bad, well = np.flatnonzero(chosen & (kind == TOO_MUCH)), np.flatnonzero(chosen & (kind != TOO_MUCH))
    largest_first = well[np.argsort(-rows[well], kind="stable")]
    place = np.sort(np.concatenate([bad[:MOST_CHUNKS], largest_first[:: len(well) // MOST_CHUNKS + 1]]))
    if not len(place):
        return None
    return {
        "time": [round(float(time), 6) for time in all_of.end[place]],
        **{
            name: values[place].tolist()
            for name, values in (("rows", rows), ("peak", all_of.peak), ("limit", all_of.limit))
        },
        "dataset": dataset[place].tolist(),
        "kind": kind[place].tolist(),
        "names": list(told),
        "lines": [[one["fixed"], one["per_row"]] if "fixed" in one else None for one in told.values()],
        "allowed": max(one["allowed"] for one in told.values()),
        "span": log.span,
    }
