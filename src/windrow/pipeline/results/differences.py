"""How far two outputs are apart: equal to the bit, by how much, or in what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from windrow.pipeline.results.histograms import is_histogram


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An output that is not the same in two results."""

    dataset: str
    output: str
    region: str | None
    variation: str
    what: str  #: in words
    absolute: float | None = None  #: the largest difference of two numbers
    relative: float | None = None  #: the largest one, relative to the larger number

    @property
    def rounding(self) -> bool:
        """Whether it may be the order of additions alone."""
        return self.relative is not None and self.relative < 1e-12

    def __str__(self) -> str:
        where = "" if self.region is None else f" in {self.region}"
        shift = "" if self.variation == "nominal" else f", {self.variation}"
        note = " (rounding)" if self.rounding else ""
        return f"{self.output}{where} ({self.dataset}{shift}): {self.what}{note}"


def output_differences(
    left: Mapping[str, Mapping[Any, Any]], right: Mapping[str, Mapping[Any, Any]]
) -> list[OutputDifference]:
    """Compare the outputs of two results, dataset by dataset."""
    found: list[OutputDifference] = []
    for dataset in dict.fromkeys([*left, *right]):
        mine, theirs = left.get(dataset, {}), right.get(dataset, {})
        for key in dict.fromkeys([*mine, *theirs]):
            change: tuple[str, float | None, float | None] | None
            if key in mine and key in theirs:
                change = difference(mine[key], theirs[key])
            else:
                change = f"only in the {'first' if key in mine else 'second'} result", None, None
            if change is not None:
                name, region, variation = key
                found.append(OutputDifference(dataset, name, region, variation, *change))
    return found


def difference(left: Any, right: Any) -> tuple[str, float | None, float | None] | None:
    """Return what differs in words, absolutely and relatively; None if nothing does."""
    if is_histogram(left) and is_histogram(right):
        return _histograms(left, right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return _mappings(left, right)
    numbers = _numbers(left), _numbers(right)
    if numbers[0] is not None and numbers[1] is not None:
        return _arrays(numbers[0], numbers[1], "numbers" if numbers[0].ndim else "value")
    if type(left) is not type(right):
        return f"{type(left).__name__} and {type(right).__name__}", None, None
    if isinstance(left, list | tuple) and len(left) != len(right):
        return f"{len(left)} and {len(right)} items", None, None
    if isinstance(left, set | frozenset):
        gone, new = len(left - right), len(right - left)
        return (f"{gone} items gone, {new} new", None, None) if gone or new else None
    return _others(left, right)


def _others(left: Any, right: Any) -> tuple[str, float | None, float | None] | None:
    if hasattr(left, "to_list"):  # awkward arrays compare item by item
        left, right = left.to_list(), right.to_list()
    try:
        same = bool(left == right)
    except Exception:  # noqa: BLE001 - whatever a user's object raises
        return "cannot be compared", None, None
    return None if same else ("differ", None, None)


def _numbers(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, bool | int | float | complex | np.generic | np.ndarray | list):
        try:
            array = np.asarray(value)
        except ValueError:  # lists of unequal length
            return None
        return array if array.dtype.kind in "biufc" else None
    return None


def _arrays(
    left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], what: str
) -> tuple[str, float | None, float | None] | None:
    if left.shape != right.shape:
        return f"shapes {left.shape} and {right.shape}", None, None
    same = (left == right) | ((left != left) & (right != right))  # NaN is as good as NaN
    if same.all():
        return None
    one, two = left[~same].astype(complex), right[~same].astype(complex)
    with np.errstate(all="ignore"):
        apart = np.abs(one - two)
        relative = apart / np.maximum(np.abs(one), np.abs(two))
    absolute, most = float(np.max(apart)), float(np.max(relative))
    if what == "value" and not left.ndim:
        return f"{left.item()!r} and {right.item()!r}", absolute, most
    count = int((~same).sum())
    words = f"{count} of {left.size} {what} differ, by up to {absolute:.6g} ({100 * most:.3g}%)"
    return words, absolute, most


def _histograms(left: Any, right: Any) -> tuple[str, float | None, float | None] | None:
    if list(left.axes) != list(right.axes):
        return "histograms with other axes", None, None
    if left.storage_type is not right.storage_type:
        names = left.storage_type.__name__, right.storage_type.__name__
        return f"{names[0]} and {names[1]} storage", None, None
    change = _arrays(left.values(flow=True), right.values(flow=True), "bins")
    if change is not None:
        return change
    one, two = left.variances(flow=True), right.variances(flow=True)
    if one is None or two is None:
        return None
    return _arrays(np.asarray(one), np.asarray(two), "variances")


def _mappings(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> tuple[str, float | None, float | None] | None:
    words: list[str] = []
    sizes: list[tuple[float | None, float | None]] = []
    for key in dict.fromkeys([*left, *right]):
        if key not in left or key not in right:
            words.append(f"{key!r} only in the {'first' if key in left else 'second'}")
            sizes.append((None, None))
            continue
        change = difference(left[key], right[key])
        if change is not None:
            words.append(f"{key!r}: {change[0]}")
            sizes.append(change[1:])
    if not words:
        return None
    known = all(size[0] is not None for size in sizes)
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    text = "; ".join(words[:3]) + more
    if not known:
        return text, None, None
    return text, max(s[0] or 0.0 for s in sizes), max(s[1] or 0.0 for s in sizes)
