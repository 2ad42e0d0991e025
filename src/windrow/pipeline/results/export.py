"""``result.save("out.root")``: outputs in the formats of the field, each file written whole or not at all.

What a format cannot hold is left out, said in a warning, returned and listed in the file; nothing is dropped in silence.
JSON and NumPy's ``.npz`` are plain data, which is read back without running anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import LeftOutWarning, MissingFileError, UsageError, nearest
from windrow.pipeline.results.histograms import padded
from windrow.watch.report.outputs import is_histogram
from windrow.watch.report.plain_data import strict

if TYPE_CHECKING:
    from windrow.pipeline.results.result import Result

#: What the place of the region is called for outputs over all rows, before any cut.
INCLUSIVE = "inclusive"


def save(result: Result, path: str | os.PathLike[str]) -> list[str]:
    place = Path(path)
    check_suffix(place)
    if not place.parent.is_dir():
        raise MissingFileError(f"no directory {place.parent} to save {place.name} in")
    part = place.with_name(place.name + ".part")
    try:
        left_out = _WRITERS[place.suffix](result, part)
        part.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if left_out:
        warnings.warn(
            f"{place.name}: {place.suffix} cannot hold {', '.join(left_out)}; left out", LeftOutWarning, stacklevel=3
        )
    return left_out


def check_suffix(place: Path) -> None:
    if place.suffix not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise UsageError(
            f"results are saved as {known}, by the end of the name: {place.name!r} has "
            f"{place.suffix or 'none'!r}{nearest(place.suffix, _WRITERS)}"
        )


def entries(result: Result) -> Iterator[tuple[str, str, str, str, Any]]:
    for dataset, values in result.outputs.items():
        for (output, region, variation), value in values.items():
            yield dataset, output, INCLUSIVE if region is None else region, variation, value


def nested(result: Result, convert: Callable[[Any], Any]) -> tuple[dict[str, Any], list[str]]:
    """Return ``{dataset: {output: {region: {variation: value}}}}``, and the names of values that cannot be converted."""
    content: dict[str, Any] = {}
    left_out: list[str] = []
    for dataset, output, region, variation, value in entries(result):
        try:
            converted = convert(value)
        except Exception:  # noqa: BLE001 - whatever a user's object raises
            left_out.append(f"{dataset}/{output}/{region}/{variation}")
            continue
        content.setdefault(dataset, {}).setdefault(output, {}).setdefault(region, {})[variation] = converted
    return content, left_out


def safe_name(text: str) -> str:
    """Return a name that can be part of a path in a file; other characters become "_"."""
    return re.sub(r"[^A-Za-z0-9_.+=-]", "_", text) or "_"


def refuse_twice(names: Iterable[str], taken: Mapping[str, Any]) -> None:
    for name in names:
        if name in taken:
            raise UsageError(
                f"two outputs would be called {name!r} in the file; rename a dataset, region or output so that they differ "
                "in letters, digits or _"
            )


def variation_suffix(variation: str) -> str:
    """Spell a variation as Combine and its kin do: ``pileup_up`` is ``_pileupUp``, the nominal is nothing."""
    if variation == "nominal":
        return ""
    for side, word in (("_up", "Up"), ("_down", "Down")):
        if variation.endswith(side):
            return f"_{variation.removesuffix(side)}{word}"
    return f"_{variation}"


def _pieces(
    value: Any, divide: Callable[[Mapping[Any, Any]], bool], inner: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give the values of nested mappings, with safe names of the way there; mappings that are not divided stay whole."""
    if isinstance(value, Mapping) and divide(value):
        for key, item in value.items():
            yield from _pieces(item, divide, (*inner, safe_name(str(key))))
    else:
        yield inner, value


def _holds_histograms(value: Mapping[Any, Any]) -> bool:
    return any(is_histogram(item) or isinstance(item, Mapping) for item in value.values())


#: Version of the layout of the JSON file.
JSON_FORMAT = 1


class NotPlain(TypeError):
    """A value that the format cannot hold."""


# -- JSON --------------------------------------------------------------------------------------


def _write_json(result: Result, path: Path) -> list[str]:
    outputs, left_out = nested(result, plain)
    document = {
        "format": JSON_FORMAT,
        "summary": json.loads(result.to_json()),
        "datasets": {name: strict(meta, repr) for name, meta in result.datasets.items()},
        "outputs": outputs,
        "left_out": left_out,
    }
    path.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
    return left_out


def plain(value: Any) -> Any:
    """Return a value as JSON has it; raises for what is no plain data and no histogram."""
    return strict(value, _uhi)


def _uhi(histogram: Any) -> Any:
    """Write a histogram in the UHI schema, which uhi, hist and boost-histogram read back; with its flow bins."""
    from boost_histogram.serialization import to_uhi

    if not is_histogram(histogram):
        raise NotPlain(f"{type(histogram).__name__} is no plain data")
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            content = to_uhi(histogram)
    except (TypeError, ValueError) as error:
        raise NotPlain(f"histograms with {histogram.storage_type.__name__} storage") from error
    for part in (content, *content["axes"]):
        part["metadata"] = strict(part.get("metadata", {}), repr)
    return plain(content)


# -- NumPy -------------------------------------------------------------------------------------


def _write_npz(result: Result, path: Path) -> list[str]:
    """Write arrays, numbers and histograms under names with slashes; returns the rest."""
    arrays: dict[str, Any] = {"windrow/summary": np.array(result.to_json())}
    for dataset, output, region, variation, value in entries(result):
        for inner, item in _pieces(value, lambda _: True):
            name = "/".join([*map(safe_name, (dataset, output, region, variation)), *inner])
            if is_histogram(item):
                found = {f"{name}/{part}": numbers for part, numbers in _histogram_arrays(item).items()}
            else:
                found = {name: _as_array(item)}
            refuse_twice(found, arrays)
            arrays.update(found)
    left_out = [name for name, array in arrays.items() if array is None]
    if left_out:
        arrays["windrow/left_out"] = np.array(left_out)
    with path.open("wb") as stream:
        np.savez_compressed(stream, **{name: array for name, array in arrays.items() if array is not None})
    return left_out


def _histogram_arrays(histogram: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for suffix, flow in (("", False), ("_with_flow", True)):
        values = np.asarray(histogram.values(flow=flow))
        if flow and values.shape == found["values"].shape:
            break
        found[f"values{suffix}"] = values
        variances = histogram.variances(flow=flow)
        if variances is not None:
            found[f"variances{suffix}"] = np.asarray(variances)
        if histogram.kind == "MEAN":
            found[f"counts{suffix}"] = np.asarray(histogram.counts(flow=flow))
    for number, axis in enumerate(histogram.axes):
        if type(axis).__name__ in ("StrCategory", "IntCategory"):
            found[f"categories_{number}"] = np.array(list(axis))
        else:
            found[f"edges_{number}"] = np.asarray(axis.edges)
    return found


def _as_array(value: Any) -> Any:
    """Return an array that NumPy reads back without pickle, None if there is none."""
    try:
        if isinstance(value, AbstractSet):
            value = sorted(value)
        elif type(value).__module__.startswith("awkward"):
            import awkward as ak

            value = ak.to_numpy(value, allow_missing=False)
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array if array.dtype.kind in "biufcUSMm" else None


# -- coffea -------------------------------------------------------------------------------------


def _write_coffea(result: Result, path: Path) -> list[str]:
    """Write what ``coffea.util.load`` reads: a pickle in an LZ4 frame."""
    import cramjam

    def picklable(value: Any) -> Any:
        pickle.dumps(value)
        return value

    content, left_out = nested(result, picklable)
    path.write_bytes(bytes(cramjam.lz4.compress(pickle.dumps(content, protocol=4))))
    return left_out


# -- ROOT files ---------------------------------------------------------------------------------

MAX_DIMENSIONS = 3


def _write_root(result: Result, path: Path) -> list[str]:
    """Write histograms as ``region/output/dataset_variation`` and other outputs as JSON; returns the rest.

    uproot's own conversion drops flow bins where an axis has only one of them, so the pieces are put together here.
    """
    import uproot

    histograms: dict[str, Any] = {}
    others: dict[str, Any] = {}
    left_out: list[str] = []
    for dataset, output, region, variation, value in entries(result):
        last = safe_name(dataset + variation_suffix(variation))
        for inner, item in _pieces(value, _holds_histograms):
            name = "/".join([safe_name(region), safe_name(output), *inner, last])
            refuse_twice([name], histograms)
            refuse_twice([name], others)
            try:
                if is_histogram(item):
                    histograms[name] = _model(item)
                else:
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


def _model(histogram: Any) -> Any:
    if not 1 <= histogram.ndim <= MAX_DIMENSIONS or not all(histogram.axes.size):
        raise NotPlain(f"histograms of {histogram.ndim} dimensions, or without bins")
    if histogram.kind == "MEAN" and histogram.ndim == 1:
        return histogram
    if histogram.kind == "MEAN" or np.ndim(histogram.values()) != histogram.ndim:
        raise NotPlain("profiles of several dimensions")
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

    edges = np.asarray(axis.edges, dtype=np.float64)
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


def _sums(values: np.ndarray[Any, Any], variances: np.ndarray[Any, Any] | None, histogram: Any) -> dict[str, float]:
    """ROOT's running sums (fTsumw, fTsumwx, ...), which its mean and standard deviation come from."""
    letters = "xyz"[: histogram.ndim]
    centres = {}
    for number, letter in enumerate(letters):
        edges = np.asarray(histogram.axes[number].edges, dtype=np.float64)
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


_WRITERS: dict[str, Callable[[Result, Path], list[str]]] = {
    ".root": _write_root,
    ".coffea": _write_coffea,
    ".json": _write_json,
    ".npz": _write_npz,
}
