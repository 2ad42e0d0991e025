"""Outputs as JSON and as NumPy's ``.npz``: plain data that is read back without running anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import UsageError
from windrow.pipeline.results.export import entries, safe_name
from windrow.pipeline.results.histograms import is_histogram

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.pipeline.results.result import Result


#: Version of the layout of the JSON file.
FORMAT = 1


class NotPlain(TypeError):
    """A value that the format cannot hold."""


# -- JSON --------------------------------------------------------------------------------------


def write_json(result: Result, path: Path) -> list[str]:
    """Write everything JSON can hold; returns the rest."""
    outputs: dict[str, Any] = {}
    left_out: list[str] = []
    for dataset, output, region, variation, value in entries(result):
        try:
            content = plain(value)
        except NotPlain:
            left_out.append(f"{dataset}/{output}/{region}/{variation}")
            continue
        by_region = outputs.setdefault(dataset, {}).setdefault(output, {})
        by_region.setdefault(region, {})[variation] = content
    document = {
        "format": FORMAT,
        "summary": json.loads(result.to_json()),
        "datasets": {name: _metadata(meta) for name, meta in result.datasets.items()},
        "outputs": outputs,
        "left_out": left_out,
    }
    path.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")
    return left_out


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in metadata.items():
        try:
            found[str(key)] = plain(value)
        except NotPlain:
            found[str(key)] = repr(value)
    return found


def plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays as lists, sets as sorted lists, NaN and infinity as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_histogram(value):
        return _uhi(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, AbstractSet):
        items = [plain(item) for item in value]
        try:
            return sorted(items)
        except TypeError:
            return sorted(items, key=repr)
    if isinstance(value, np.generic | np.ndarray):
        if value.dtype.kind not in "biufU":
            raise NotPlain(f"arrays of {value.dtype}")
        return plain(value.tolist())
    if hasattr(value, "to_list") and type(value).__module__.startswith("awkward"):
        return plain(value.to_list())
    raise NotPlain(type(value).__name__)


def _plain_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str | int | float | np.generic):
            raise NotPlain(f"keys such as {key!r}")
        if str(key) in found:
            raise NotPlain(f"two keys that read {key}")
        found[str(key)] = plain(item)
    return found


def _uhi(histogram: Any) -> dict[str, Any]:
    """Write a histogram in the UHI schema, which uhi, hist and boost-histogram read back; with its flow bins."""
    view = histogram.view(flow=True)
    names = {
        "Int64": "int", "AtomicInt64": "int", "Double": "double", "Unlimited": "double",
        "Weight": "weighted", "Mean": "mean", "WeightedMean": "weighted_mean",
    }  # fmt: skip
    kind = names.get(histogram.storage_type.__name__)
    if kind is None:
        raise NotPlain(f"histograms with {histogram.storage_type.__name__} storage")
    storage: dict[str, Any] = {"type": kind}
    if kind in ("int", "double"):
        storage["values"] = plain(np.asarray(view))
    else:
        fields = {
            "weighted": ("values", "variances"),
            "mean": ("counts", "values", "variances"),
            "weighted_mean": ("sum_of_weights", "sum_of_weights_squared", "values", "variances"),
        }[kind]
        attribute = {"values": "value", "variances": "variance", "counts": "count"}
        with np.errstate(divide="ignore", invalid="ignore"):
            for field in fields:
                numbers = np.asarray(getattr(view, attribute.get(field, field)))
                storage[field] = plain(numbers)
    return {
        "uhi_schema": 1,
        "axes": [_axis(axis) for axis in histogram.axes],
        "storage": storage,
        "metadata": _described(histogram),
    }


def _axis(axis: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"metadata": _described(axis)}
    kind = type(axis).__name__
    if kind == "Boolean":
        return {"type": "boolean", **about}
    if kind in ("StrCategory", "IntCategory"):
        name = "category_str" if kind == "StrCategory" else "category_int"
        return {"type": name, "categories": list(axis), "flow": axis.traits.overflow, **about}
    flow = {name: bool(getattr(axis.traits, name)) for name in ("underflow", "overflow", "circular")}
    if kind == "Variable" or getattr(axis, "transform", None) is not None:
        return {"type": "variable", "edges": plain(axis.edges), **flow, **about}
    lower, upper = float(axis.edges[0]), float(axis.edges[-1])
    return {"type": "regular", "lower": lower, "upper": upper, "bins": axis.size, **flow, **about}


def _described(thing: Any) -> dict[str, Any]:
    found = {}
    for key in ("name", "label"):
        value = getattr(thing, key, None)
        if isinstance(value, str) and value:
            found[key] = value
    return found


# -- NumPy -------------------------------------------------------------------------------------


def write_npz(result: Result, path: Path) -> list[str]:
    """Write arrays, numbers and histograms under names with slashes; returns the rest."""
    arrays: dict[str, Any] = {"windrow/summary": np.array(result.to_json())}
    left_out: list[str] = []
    for dataset, output, region, variation, value in entries(result):
        base = "/".join(safe_name(part) for part in (dataset, output, region, variation))
        left_out += _add_arrays(arrays, base, value)
    if left_out:
        arrays["windrow/left_out"] = np.array(left_out)
    with path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    return left_out


def _add_arrays(arrays: dict[str, Any], base: str, value: Any) -> list[str]:
    if is_histogram(value):
        for name, numbers in _histogram_arrays(value).items():
            _put(arrays, f"{base}/{name}", numbers)
        return []
    if isinstance(value, Mapping):
        found = []
        for key, item in value.items():
            found += _add_arrays(arrays, f"{base}/{safe_name(str(key))}", item)
        return found
    array = _as_array(value)
    if array is None:
        return [base]
    _put(arrays, base, array)
    return []


def _put(arrays: dict[str, Any], name: str, value: Any) -> None:
    if name in arrays:
        raise UsageError(
            f"two outputs would be called {name!r} in the file; rename a dataset, region or output so that they differ "
            "in letters, digits or _"
        )
    arrays[name] = value


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
    if isinstance(value, AbstractSet):
        try:
            value = sorted(value)
        except TypeError:
            return None
    if not isinstance(value, str | bool | int | float | complex | list | tuple | np.generic | np.ndarray):
        if not type(value).__module__.startswith("awkward"):
            return None
        import awkward as ak

        try:
            value = ak.to_numpy(value, allow_missing=False)
        except (TypeError, ValueError):
            return None
    try:
        array = np.asarray(value)
    except ValueError:
        return None
    return array if array.dtype.kind in "biufcUSMm" else None
