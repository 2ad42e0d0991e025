"""What results do to histograms of boost-histogram and hist: scaling them, and taking them apart."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from windrow.watch.report.outputs import histograms_in, is_histogram


def map_histograms(value: Any, change: Any, path: tuple[Any, ...] = ()) -> Any:
    """Return an output with ``change(path, histogram)`` in place of each histogram; the rest is the same object."""
    if is_histogram(value):
        return change(path, value)
    if next(histograms_in(value), None) is None:
        return value
    if isinstance(value, Mapping):
        return {key: map_histograms(item, change, (*path, key)) for key, item in value.items()}
    return [map_histograms(item, change, (*path, number)) for number, item in enumerate(value)]


def scaled(histogram: Any, factor: float, *, variances: bool) -> Any:
    """Return a histogram as if every entry had had a weight ``factor`` times as large; the original is left alone.

    Counts and sums become weighted sums, so that their variances stay right (times the factor squared); with
    ``variances`` false, where they are not known, sums stay sums. A profile keeps its means.
    """
    from boost_histogram import storage

    kind, view = histogram.storage_type, histogram.view(flow=True)
    made: Any = storage.Weight
    if issubclass(kind, storage.Weight):
        fields = [view["value"] * factor, view["variance"] * factor**2]
    elif issubclass(kind, storage.Mean | storage.WeightedMean):
        made = storage.WeightedMean
        weights, squares, deltas = "sum_of_weights", "sum_of_weights_squared", "_sum_of_weighted_deltas_squared"
        if issubclass(kind, storage.Mean):
            weights, squares, deltas = "count", "count", "_sum_of_deltas_squared"
        fields = [view[weights] * factor, view[squares] * factor**2, view["value"], view[deltas] * factor]
    elif not issubclass(kind, storage.Int64 | storage.AtomicInt64 | storage.Unlimited | storage.Double):
        return histogram * factor
    elif variances:
        numbers = np.asarray(view, dtype=np.float64)
        fields = [numbers * factor, numbers * factor**2]
    else:
        new = _like(histogram, storage.Double())
        new.view(flow=True)[...] = np.asarray(view, dtype=np.float64) * factor
        new._variance_known = False
        return new
    new = _like(histogram, made())
    target = new.view(flow=True)
    for name, numbers in zip(target.dtype.names, fields, strict=True):
        target[name] = numbers
    return new


def _like(histogram: Any, storage: Any) -> Any:
    """An empty histogram of the same type, axes, name and label with another storage."""
    new = type(histogram)(*(copy(axis) for axis in histogram.axes), storage=storage)
    new.__dict__.update({k: v for k, v in histogram.__dict__.items() if k != "_variance_known"})
    return new


def padded(histogram: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Return values and variances with an underflow and an overflow bin on every axis, empty where it has none."""
    values = np.asarray(histogram.values(flow=True), dtype=np.float64)
    variances = histogram.variances(flow=True)
    widths = [(0 if axis.traits.underflow else 1, 0 if axis.traits.overflow else 1) for axis in histogram.axes]
    squares = None if variances is None else np.pad(np.asarray(variances, np.float64), widths)
    return np.pad(values, widths), squares
