"""The outputs of a run as a report shows them: histograms to draw, and other values in a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.watch.histograms import find_histograms, plain_histograms

__all__ = ["drawn_histograms", "is_data", "said_values"]

#: Bins of all histograms together: about 8 MB of numbers.
MOST_BINS = 400_000
#: Characters of a value that is no histogram.
MOST_TEXT = 300

Outputs = Mapping[str, Mapping[tuple[str, str | None, str], Any]]


def is_data(metadata: Mapping[str, Any]) -> bool | None:
    """Say whether a dataset was measured rather than simulated; None where nobody says."""
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
            for path, histogram in find_histograms(value):
                name = " / ".join((output, *path))
                if bins > MOST_BINS:
                    left_out[name] = "the page has as many bins as it can hold"
                    continue
                try:
                    plain = plain_histograms(histogram)
                except Exception as error:  # noqa: BLE001 - a foreign class; the run's other outputs matter
                    left_out[name] = f"it could not be read ({type(error).__name__}: {error})"
                    continue
                if not plain:
                    left_out[name] = "it has more dimensions than can be drawn"
                for one in plain:
                    projected = one.pop("projected", None)
                    called = name if projected is None else f"{name} on {projected}"
                    place = {"region": region, "variation": variation, "dataset": dataset}
                    found.append({"name": called, **place, **one})
                    bins += sum(_count(row) for row in (one["values"], one["variances"] or []))
    return found, [f"{name} is not drawn in full: {why}" for name, why in left_out.items()]


def said_values(outputs: Outputs) -> list[dict[str, Any]]:
    """Return every output without a histogram, with a line that says what it is."""
    return [
        {"output": output, "region": region, "variation": variation, "dataset": dataset, "text": _said(value)}
        for dataset, values in outputs.items()
        for (output, region, variation), value in values.items()
        if next(find_histograms(value), None) is None
    ]


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key}: {_said(item)}" for key, item in value.items())
        return _cut(inner)
    if isinstance(value, bool | str) or value is None:
        return _cut(str(value))
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


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


def _count(values: Any) -> int:
    return sum(_count(row) for row in values) if isinstance(values, list) else 1
