"""``result.compare(other)``: which outputs, cutflow lines and rows are not the same in two runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import UsageError
from windrow.pipeline.results.compare_rows import ChangedRow, Changes, changed_rows
from windrow.pipeline.results.histograms import is_histogram
from windrow.pipeline.results.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Sums of weights that are this close may have been added in another order.
ROUNDING = 1e-12

#: What differs between two values: in words, absolutely and relatively; None where it is no matter of numbers.
Difference = tuple[str, float | None, float | None]


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
        return self.relative is not None and self.relative < ROUNDING

    def __str__(self) -> str:
        where = "" if self.region is None else f" in {self.region}"
        shift = "" if self.variation == "nominal" else f", {self.variation}"
        note = " (rounding)" if self.rounding else ""
        return f"{self.output}{where} ({self.dataset}{shift}): {self.what}{note}"


@dataclass(frozen=True, slots=True)
class LineDifference:
    """A line of a cutflow that is not the same in two results; None where one has no such line."""

    region: str
    dataset: str
    cut: str
    first: int | None  #: rows that passed
    second: int | None
    sumw: tuple[float, float] | None = None  #: sums of weights, where only they differ

    def __str__(self) -> str:
        if self.sumw is not None:
            text = f"weighted {self.sumw[0]:.10g} -> {self.sumw[1]:.10g}"
        else:
            one, two = ("none" if n is None else f"{n:,}" for n in (self.first, self.second))
            text = f"{one} -> {two}"
        return f"{self.region} ({self.dataset}) {self.cut}: {text}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two results; ``print`` it, or look at its parts."""

    outputs: tuple[OutputDifference, ...]
    cutflow: tuple[LineDifference, ...]
    changes: Changes

    @property
    def rows(self) -> tuple[ChangedRow, ...]:
        """The first rows that changed side, with their identity where it could be read."""
        return self.changes.shown

    @property
    def changed(self) -> int | None:
        """How many times a row left or entered a region; None where rows could not be compared."""
        return self.changes.count

    @property
    def same(self) -> bool:
        """Whether outputs, cutflows and rows are equal, outputs to the last bit."""
        return not (self.outputs or self.cutflow or self.changes.count)

    def __str__(self) -> str:
        if self.same:
            text = ["the results are the same"]
        else:
            text = [f"{len(self.outputs)} outputs differ"]
            text += [f"  {difference}" for difference in self.outputs]
            text.append(f"{len(self.cutflow)} cutflow lines differ")
            text += [f"  {difference}" for difference in self.cutflow]
        return "\n".join([*text, *self.changes.text()])

    def __repr__(self) -> str:
        return str(self)


def compare(first: Result, second: Result, *, rows: int = 20) -> Comparison:
    """Compare two results; ``rows`` is how many changed rows are shown, all of them are counted."""
    if not isinstance(second, Result):
        raise UsageError(f"compare takes another result, got {type(second).__name__}")
    if rows < 0:
        raise UsageError(f"rows= is how many changed rows to show, got {rows!r}")
    return Comparison(
        tuple(_output_differences(first, second)),
        tuple(_cutflow_differences(first, second)),
        changed_rows(first, second, rows),
    )


def _cutflow_differences(first: Result, second: Result) -> Iterator[LineDifference]:
    flows = first.cutflow, second.cutflow
    keys = dict.fromkeys((region, d) for flow in flows for region in flow.regions for d in flow.datasets)
    for region, dataset in keys:
        one, two = (
            flow[region, dataset] if region in flow.regions and dataset in flow.datasets else None for flow in flows
        )
        if one is None or two is None or one.labels != two.labels:
            # Lines of another order count other rows: only the ends can be compared then.
            ends = [None if table is None else table.passed for table in (one, two)]
            if ends[0] != ends[1]:
                yield LineDifference(region, dataset, "selected", ends[0], ends[1])
            continue
        for mine, theirs in zip(one.executed, two.executed, strict=True):
            if mine.passed != theirs.passed:
                yield LineDifference(region, dataset, mine.label, mine.passed, theirs.passed)
            elif not math.isclose(mine.sumw, theirs.sumw, rel_tol=ROUNDING):
                sums = (mine.sumw, theirs.sumw)
                yield LineDifference(region, dataset, mine.label, mine.passed, theirs.passed, sums)


# -- outputs -----------------------------------------------------------------------------------


def _output_differences(first: Result, second: Result) -> Iterator[OutputDifference]:
    for dataset in dict.fromkeys([*first.outputs, *second.outputs]):
        mine, theirs = first.outputs.get(dataset, {}), second.outputs.get(dataset, {})
        for key in dict.fromkeys([*mine, *theirs]):
            change: Difference | None = (f"only in the {'first' if key in mine else 'second'} result", None, None)
            if key in mine and key in theirs:
                change = difference(mine[key], theirs[key])
            if change is not None:
                yield OutputDifference(dataset, *key, *change)


def difference(left: Any, right: Any) -> Difference | None:
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


def _others(left: Any, right: Any) -> Difference | None:
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


def _arrays(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], what: str) -> Difference | None:
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


def _histograms(left: Any, right: Any) -> Difference | None:
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


def _mappings(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> Difference | None:
    changes: list[Difference] = []
    for key in dict.fromkeys([*left, *right]):
        if key not in left or key not in right:
            changes.append((f"{key!r} only in the {'first' if key in left else 'second'}", None, None))
            continue
        change = difference(left[key], right[key])
        if change is not None:
            changes.append((f"{key!r}: {change[0]}", *change[1:]))
    if not changes:
        return None
    words, absolute, relative = zip(*changes, strict=True)
    text = "; ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    if None in absolute:
        return text, None, None
    return text, max(absolute), max(relative)
