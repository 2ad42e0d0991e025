"""The outputs of a run as a report shows them: histograms as plain data to draw, and other values in a line each.

Histograms are those of boost-histogram and hist, whose libraries are not imported unless an output comes from them. What is
too large to draw is joined or left out, and says so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from windrow.watch.report.plain_data import strict

#: Bins of all histograms together: about 8 MB of numbers.
MOST_ALL_BINS = 400_000
#: Bins of one axis in one dimension, more than a wide screen has points to show them.
MOST_BINS = 2_000
#: Bins of each axis of a heat map.
MOST_CELLS = 100
#: Characters of a value that is no histogram.
MOST_TEXT = 300

Outputs = Mapping[str, Mapping[tuple[str, str | None, str], Any]]


def is_data(metadata: Mapping[str, Any]) -> bool | None:
    """Say whether a dataset was measured rather than simulated; None where the metadata do not say."""
    known = {str(key).lower().replace("_", ""): value for key, value in metadata.items()}
    for key, measured in (("ismc", False), ("issimulation", False), ("isdata", True)):
        value = known.get(key)
        if isinstance(value, bool | int):
            return bool(value) is measured
    for key in ("kind", "type"):
        value = str(known.get(key, "")).lower()
        if value in ("data", "mc", "simulation", "signal", "background"):
            return value == "data"
    return None


def drawn_histograms(outputs: Outputs) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every histogram with its name, region, variation and dataset; and notes on what is left out."""
    found: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    bins = 0
    for dataset, values in outputs.items():
        for (output, region, variation), value in values.items():
            for path, histogram in histograms_in(value):
                name = " / ".join((output, *map(str, path)))
                if bins > MOST_ALL_BINS:
                    left_out[name] = "the page has as many bins as it can hold"
                    continue
                try:
                    plain = plain_histograms(histogram)
                except Exception as error:  # noqa: BLE001 - a foreign class; the run's other outputs matter
                    left_out[name] = f"it could not be read ({type(error).__name__}: {error})"
                    continue
                if not plain:
                    left_out[name] = "it has more dimensions or bins than can be drawn"
                for one in plain:
                    projected = one.pop("projected", None)
                    called = name if projected is None else f"{name} on {projected}"
                    place = {"region": region, "variation": variation, "dataset": dataset}
                    found.append({"name": called, **place, **one})
                    bins += np.size(one["values"]) + np.size(one["variances"] or [])
    return found, [f"{name} is not drawn in full: {why}" for name, why in left_out.items()]


def said_values(outputs: Outputs) -> list[dict[str, Any]]:
    """Return every output without a histogram, with a line that says what it is."""
    return [
        {"output": output, "region": region, "variation": variation, "dataset": dataset, "text": _said(value)}
        for dataset, values in outputs.items()
        for (output, region, variation), value in values.items()
        if next(histograms_in(value), None) is None
    ]


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}: {_said(item)}" for key, item in value.items())
    if isinstance(value, bool | str) or value is None:
        text = str(value)
        return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.10g}"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of shape {' x '.join(map(str, shape))}"
    if isinstance(value, list | set | frozenset | tuple):
        return f"{type(value).__name__} of {len(value):,}"
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        return _said(value.item())
    return type(value).__name__


def is_histogram(value: Any) -> bool:
    """Whether a value is a histogram; where no library for them is loaded, nothing is."""
    library = sys.modules.get("boost_histogram")
    return library is not None and isinstance(value, library.Histogram)


def histograms_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Find the histograms of an output: itself, or in the mappings and lists it consists of; each with its way there."""
    if is_histogram(value):
        yield path, value
    elif isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from histograms_in(item, (*path, key))


def plain_histograms(histogram: Any) -> list[dict[str, Any]]:
    """Return a histogram as plain data: one or two dimensions as they are, more as projections.

    Each has ``axes``, ``values``, ``variances`` (None where unknown), ``kind``, and ``notes``;
    in one dimension also ``flow``: what lies below and above.
    """
    axes = [_axis(axis, number) for number, axis in enumerate(histogram.axes)]
    kind = histogram.kind.value.lower()
    values = np.asarray(histogram.values(), dtype=np.float64)
    found = histogram.variances()
    variances = None if found is None else np.asarray(found, dtype=np.float64)
    most = MOST_BINS if len(axes) == 1 else MOST_CELLS
    # Means do not add up without the counts behind them.
    if values.ndim != len(axes) or not axes or (kind != "count" and (len(axes) > 2 or max(values.shape) > most)):
        return []
    if len(axes) <= 2:
        plain = _limited(axes, values, variances, kind, [])
        if len(axes) == 1:
            plain["flow"] = _flow(histogram)
        return [plain]
    projections = []
    for number, axis in enumerate(axes):
        others = tuple(other for other in range(len(axes)) if other != number)
        names = ", ".join(axes[other]["label"] for other in others)
        added = None if variances is None else variances.sum(axis=others)
        note = f"summed over {names}, without what lies outside their bins"
        plain = _limited([axis], values.sum(axis=others), added, kind, [note])
        projections.append({**plain, "flow": None, "projected": axis["label"]})
    return projections


def _limited(axes: list[dict[str, Any]], values: Any, variances: Any, kind: str, notes: list[str]) -> dict[str, Any]:
    most = MOST_BINS if len(axes) == 1 else MOST_CELLS
    axes = list(axes)
    for number, axis in enumerate(axes):
        group = math.ceil(axis["bins"] / most)
        if group <= 1:
            continue
        firsts = np.arange(0, axis["bins"], group)
        axes[number] = {**axis, "bins": len(firsts)}
        if "edges" in axis:
            axes[number]["edges"] = [*(axis["edges"][first] for first in firsts), axis["edges"][-1]]
        else:
            axes[number]["categories"] = [f"{axis['categories'][first]} ..." for first in firsts]
        values, variances = (
            None if one is None else np.add.reduceat(one, firsts, axis=number) for one in (values, variances)
        )
        notes = [*notes, f"{group} bins of {axis['label']} are drawn as one"]
    return {"axes": axes, "values": strict(values), "variances": strict(variances), "kind": kind, "notes": notes}


def _axis(axis: Any, number: int) -> dict[str, Any]:
    label = getattr(axis, "label", "") or getattr(axis, "name", "") or f"axis {number}"
    plain: dict[str, Any] = {"label": str(label), "bins": len(axis)}
    if axis.traits.discrete:
        return {**plain, "categories": [str(axis[place]) for place in range(len(axis))]}
    return {**plain, "edges": _drawable(axis.edges)}


def _drawable(edges: Any) -> list[float]:
    """Give open bins at the ends the width of a neighbour, as infinity has no place on paper."""
    places = [float(edge) for edge in edges]
    inner = [edge for edge in places if math.isfinite(edge)]
    width = (inner[-1] - inner[0]) / (len(inner) - 1) if len(inner) > 1 else 1.0
    low, high = (inner[0], inner[-1]) if inner else (0.0, 0.0)
    return [edge if math.isfinite(edge) else (low - width if edge < 0 else high + width) for edge in places]


def _flow(histogram: Any) -> list[float | None]:
    traits, whole = histogram.axes[0].traits, histogram.values(flow=True)
    ends = (whole[0] if traits.underflow else 0.0, whole[-1] if traits.overflow else 0.0)
    flow: list[float | None] = strict(ends)
    return flow
