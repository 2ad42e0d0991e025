"""Outputs as a ROOT file: histograms where datacards look for them, everything else as JSON text.

uproot's own conversion drops flow bins where an axis has only one of them, so the pieces are put together here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.pipeline.results.export import NotPlain, entries, plain, refuse_twice, safe_name, variation_suffix
from windrow.pipeline.results.histograms import is_histogram, padded

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.pipeline.results.result import Result


MAX_DIMENSIONS = 3


def write_root(result: Result, path: Path) -> list[str]:
    """Write histograms as ``region/output/dataset_variation`` and other outputs as JSON; returns the rest."""
    import uproot

    histograms: dict[str, Any] = {}
    others: dict[str, Any] = {}
    left_out: list[str] = []
    for dataset, output, region, variation, value in entries(result):
        last = safe_name(dataset + variation_suffix(variation))
        for inner, item in _pieces(value):
            name = "/".join([safe_name(region), safe_name(output), *inner, last])
            refuse_twice(name, histograms, others)
            if is_histogram(item):
                model = _model(item)
                if model is None:
                    left_out.append(name)
                else:
                    histograms[name] = model
                continue
            try:
                others[name] = plain(item)
            except NotPlain:
                left_out.append(name)
    with uproot.recreate(path) as file:
        for name, model in histograms.items():
            file[name] = model
        file["windrow/summary"] = result.to_json()
        file["windrow/outputs"] = json.dumps(others, allow_nan=False)
        file["windrow/left_out"] = json.dumps(left_out)
    return left_out


def _pieces(value: Any, inner: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Mappings become directories where they hold histograms; other mappings stay whole."""
    if isinstance(value, Mapping) and any(is_histogram(item) or isinstance(item, Mapping) for item in value.values()):
        for key, item in value.items():
            yield from _pieces(item, (*inner, safe_name(str(key))))
    else:
        yield inner, value


def _model(histogram: Any) -> Any:
    """Return what uproot writes, None if ROOT has nothing for it."""
    if not 1 <= histogram.ndim <= MAX_DIMENSIONS or not all(histogram.axes.size):
        return None
    if histogram.kind == "MEAN":
        return histogram if histogram.ndim == 1 else None
    if np.ndim(histogram.values()) != histogram.ndim:
        return None
    from uproot.writing import identify

    values, variances = padded(histogram)
    inside = (slice(1, -1),) * histogram.ndim
    axes = [_axis(axis, name) for axis, name in zip(histogram.axes, _AXES, strict=False)]
    sums = _sums(values[inside], None if variances is None else variances[inside], histogram)
    make = (identify.to_TH1x, identify.to_TH2x, identify.to_TH3x)[histogram.ndim - 1]
    return make(
        fName=None,
        fTitle=getattr(histogram, "label", None) or getattr(histogram, "name", None) or "",
        # ROOT runs through x first.
        data=values.T.reshape(-1).astype(">f8"),
        fEntries=float(values.sum()),
        fSumw2=None if variances is None else variances.T.reshape(-1).astype(">f8"),
        **sums,
        **dict(zip(("fXaxis", "fYaxis", "fZaxis"), axes, strict=False)),
    )


_AXES = ("xaxis", "yaxis", "zaxis")


def _axis(axis: Any, name: str) -> Any:
    from uproot.writing import identify

    edges = _edges(axis)
    regular = type(axis).__name__ == "Regular" and getattr(axis, "transform", None) is None
    labels = None
    if type(axis).__name__ in ("StrCategory", "IntCategory"):
        labels = identify.to_THashList([identify.to_TObjString(str(label)) for label in axis])
        for number, label in enumerate(labels, start=1):
            label._bases[0]._members["@fUniqueID"] = number  # the bin it belongs to
    return identify.to_TAxis(
        fName=name,
        fTitle=getattr(axis, "label", None) or getattr(axis, "name", None) or "",
        fNbins=axis.size,
        fXmin=float(edges[0]),
        fXmax=float(edges[-1]),
        fXbins=None if regular else edges.astype(">f8"),
        fLabels=labels,
    )


def _edges(axis: Any) -> np.ndarray[Any, Any]:
    return np.asarray(axis.edges, dtype=np.float64)


def _sums(values: np.ndarray[Any, Any], variances: np.ndarray[Any, Any] | None, histogram: Any) -> dict[str, float]:
    """ROOT's running sums (fTsumw, fTsumwx, ...), which its mean and standard deviation come from."""
    letters = "xyz"[: histogram.ndim]
    centres = {}
    for number, letter in enumerate(letters):
        edges = _edges(histogram.axes[number])
        shape = [1] * histogram.ndim
        shape[number] = -1
        centres[letter] = ((edges[1:] + edges[:-1]) / 2).reshape(shape)
    squares = values if variances is None else variances
    sums = {"fTsumw": float(values.sum()), "fTsumw2": float(squares.sum())}
    for letter in letters:
        sums[f"fTsumw{letter}"] = float((values * centres[letter]).sum())
        sums[f"fTsumw{letter}2"] = float((values * centres[letter] ** 2).sum())
    for one, two in ("xy", "xz", "yz"):
        if two in letters:
            sums[f"fTsumw{one}{two}"] = float((values * centres[one] * centres[two]).sum())
    return sums
