"""Histograms as data: axes, the columns that fill them and a storage, where otherwise an output is a function.

What is said rather than programmed can be shared: the bin of an entry is found once for all regions and variations. The
sums are boost-histogram's own, over the same entries in the same order as in ``Hist(...).fill(...)``. Awkward is imported
where it is used: writing an analysis takes none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.selection import union
from windrow.errors import DefinitionError, nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundOutput
    from windrow.blocks.selection import Selection

#: Storages whose sums are those of the entries one by one.
_STORAGES = ("Weight", "Double", "Int64")

#: Bytes of bins that a chunk keeps for its other regions: what columns of a few hundred thousand rows take.
MOST_KEPT = 64_000_000


def hist(*what: Any, storage: Any = "Weight") -> HistogramSpec:
    """Describe a histogram, as an output in place of a function.

    Parameters
    ----------
    what
        Axes of hist or boost-histogram, each after the name of what fills it: a column, one that a step makes, or a field
        (``"jets.pt"``). Without a name it is the column that the axis is called after. Columns with lists fill an entry
        for each element; those with a number for each row go along with them, as the weight does.
    storage
        "Weight" (sums and their variances), "Double" (sums) or "Int64" (counts, unweighted), or such an object of hist.
    """
    from boost_histogram.axis import Axis
    from hist import Hist

    axes: list[Any] = []
    columns: list[Any] = []
    for thing in what:
        if not isinstance(thing, Axis):
            columns.append(thing)
            continue
        axes.append(thing)
        if len(columns) < len(axes):
            columns.append(getattr(thing, "name", None))
    if not axes or len(axes) != len(columns) or not all(column and isinstance(column, str) for column in columns):
        raise DefinitionError(
            'wr.hist takes axes, each with a name or after the name of what fills it, as in wr.hist("mass", '
            f"Regular(60, 0, 240)); got {', '.join(map(repr, what)) or 'nothing'}"
        )
    kind = storage.capitalize() if isinstance(storage, str) else type(storage).__name__
    if kind not in _STORAGES:
        raise DefinitionError(f"wr.hist has storage {', '.join(_STORAGES)}, not {storage!r}; fill others in a function")
    spec = HistogramSpec(Hist(*axes, storage=storage), tuple(columns))
    spec.__module__ = sys._getframe(1).f_globals.get("__name__", "")  # whose output it is, as of a function
    return spec


class HistogramSpec:
    """A histogram to be filled: an empty one, and what fills its axes. Called with columns, it fills a new one."""

    def __init__(self, empty: Any, columns: tuple[str, ...]) -> None:
        self.empty = empty
        self.columns = columns  #: by axis
        self.is_weighted = empty.storage_type.__name__ != "Int64"
        sources = [column.rpartition(".")[0] or column for column in columns]
        self.reads = tuple(dict.fromkeys(sources))  #: columns and collections, each once
        self._fields = [
            (self.reads.index(one), column[len(one) + 1 :]) for one, column in zip(sources, columns, strict=True)
        ]
        axes = ", ".join(f"{column!r}, {axis!r}" for column, axis in zip(columns, empty.axes, strict=True))
        self.__doc__ = f"wr.hist({axes}, storage={empty.storage_type.__name__!r})"

    def __repr__(self) -> str:
        return str(self.__doc__)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "__module__"}  # it is the same everywhere

    @property
    def __signature__(self) -> Signature:
        names = [f"x{number}" for number in range(len(self.reads))] + ["weight"] * self.is_weighted
        return Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def __call__(self, *arguments: Any) -> Any:
        """Fill a new histogram with the columns of some rows and, unless it counts, their weights."""
        values, counts = self.entries(arguments[: len(self.reads)])
        filled = self.empty.copy(deep=False)
        if not self.is_weighted:
            return filled.fill(*values)
        weight = np.asarray(arguments[-1], dtype=np.float64)
        return filled.fill(*values, weight=weight if counts is None else np.repeat(weight, counts))

    def entries(self, arguments: Sequence[Any]) -> tuple[list[NDArray[Any]], NDArray[np.int64] | None]:
        """Return the values of each axis, and how many entries each row has; None: one."""
        import awkward as ak

        found = []
        for column, (number, field) in zip(self.columns, self._fields, strict=True):
            values = arguments[number]
            if field and not hasattr(values, field):
                hint = nearest(field, ak.fields(values)) or f" among {', '.join(ak.fields(values)) or 'none'}"
                raise TypeError(f"{column!r} fills an axis: there is no such field{hint}")
            found.append(_flat(column, getattr(values, field) if field else values))
        jagged = [
            (column, counts) for column, (_, counts) in zip(self.columns, found, strict=True) if counts is not None
        ]
        for (one, mine), (other, theirs) in pairwise(jagged):
            if not np.array_equal(mine, theirs):
                row = int(np.flatnonzero(mine != theirs)[0])
                raise TypeError(
                    f"{one!r} and {other!r} fill axes of one histogram and have different numbers of entries: "
                    f"{mine[row]} and {theirs[row]} in row {row} of those that were given"
                )
        if not jagged:
            return [values for values, _ in found], None
        every = jagged[0][1]
        return [np.repeat(values, every) if counts is None else values for values, counts in found], every

    def bins(self, arguments: Sequence[Any], rows: Selection) -> RowBins | None:
        """Return the bins of the entries of some rows; None where they cannot be told without filling."""
        from boost_histogram import Histogram
        from boost_histogram.axis import Integer

        values, counts = self.entries(arguments)
        total = np.zeros(len(values[0]), dtype=np.int32)
        outside = np.zeros(len(values[0]), dtype=bool)
        for axis, mine in zip(self.empty.axes, values, strict=True):
            index = _index(axis, mine)
            if index is None:
                return None
            index = index + np.int32(axis.traits.underflow)
            outside |= (index < 0) | (index >= axis.extent)
            total = total * np.int32(axis.extent) + index
        total[outside] = -1
        owners = None if counts is None else np.repeat(np.arange(rows.count), counts)
        every = Integer(0, self.empty.view(flow=True).size, underflow=False, overflow=False)
        return RowBins(rows, total, owners, self.empty, Histogram(every, storage=self.empty.storage_type()))

    def is_shared(self, arguments: Sequence[Any]) -> bool:
        """Say whether it pays to find bins once for all: not where that takes less than what is done with them."""
        return any(one.ndim > 1 for one in arguments) or not all(_is_quick(axis) for axis in self.empty.axes)


def _flat(column: str, values: Any) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Return a column as plain values, and how many each row has; None: one."""
    import awkward as ak

    wrong = f"{column!r} fills an axis: it has one number or one list of numbers for each row and none missing"
    hint = "name a field of records (jets.pt), and fill missing values with ak.fill_none in a column of its own"
    counts, flat = None, values
    try:
        if values.ndim == 2:
            flat = ak.flatten(ak.Array(values))
            counts = ak.to_numpy(ak.num(values), allow_missing=False)
        if isinstance(flat, ak.Array):
            flat = ak.to_numpy(flat, allow_missing=False)
    except ValueError as error:  # rows are missing, or lists are in lists
        raise ValueError(f"{wrong}, got {ak.type(values)}; {hint}") from error
    if flat.ndim != 1 or flat.dtype.kind not in "biufU":
        raise TypeError(f"{wrong}, got {ak.type(values)}; {hint}")
    return flat, counts


def _index(axis: Any, values: NDArray[Any]) -> NDArray[np.int32] | None:
    """Return the number of each value's bin, as filling finds it; None where that cannot be said beforehand."""
    from boost_histogram.axis import Boolean, IntCategory, Integer, StrCategory

    if axis.traits.growth or (values.dtype.kind == "U") != isinstance(axis, StrCategory):
        return None
    if isinstance(axis, (Boolean, IntCategory, Integer)) and not _are_whole(values):
        return None  # as filling refuses them
    if not isinstance(axis, (IntCategory, StrCategory)):
        return np.asarray(axis.index(values))
    known = np.array([axis.bin(number) for number in range(axis.size)])
    sorting = np.argsort(known)
    place = sorting[np.minimum(np.searchsorted(known, values, sorter=sorting), axis.size - 1)]
    found: NDArray[np.int32] = np.where(known[place] == values, place, axis.size).astype(np.int32)
    return found


def _are_whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind != "f" and bool(not values.size or -(2**31) <= values.min() <= values.max() < 2**31)


def _is_quick(axis: Any) -> bool:
    from boost_histogram.axis import Boolean, Integer, Regular

    return isinstance(axis, (Boolean, Integer)) or (isinstance(axis, Regular) and axis.transform is None)


@dataclass(frozen=True, slots=True)
class RowBins:
    """The bins of the entries of some rows of a chunk."""

    rows: Selection
    bins: NDArray[np.int32]  #: one number over all axes; -1: no bin takes the entry
    owners: NDArray[np.int64] | None  #: the row of each entry, as a place among ``rows``; None: one entry for each
    empty: Any  #: histogram
    sums: Any  #: histogram with all bins of the other in one axis

    def of(self, selection: Selection) -> RowBins:
        """Return those of some of the rows."""
        where = selection.within(self.rows)
        if where is None:
            return self
        if self.owners is None:
            return replace(self, rows=selection, bins=self.bins[where])
        places = np.full(self.rows.count, -1)
        places[where] = np.arange(len(where))
        owners = places[self.owners]
        mine = np.flatnonzero(owners >= 0)
        return replace(self, rows=selection, bins=self.bins[mine], owners=owners[mine])

    def fill(self, weight: NDArray[np.float64] | None, start: int, stop: int) -> Any:
        """Return a histogram of the rows from the ``start``-th to before the ``stop``-th."""
        mine = slice(start, stop) if self.owners is None else slice(*np.searchsorted(self.owners, (start, stop)))
        if weight is not None:
            weight = np.asarray(weight, dtype=np.float64)[mine if self.owners is None else self.owners[mine]]
        filled = self.empty.copy(deep=False)
        view = filled.view(flow=True)
        view[...] = self.sums.reset().fill(self.bins[mine], weight=weight).view().reshape(view.shape)
        return filled


class BinFinder:
    """Finds the bins of a chunk's histograms: once for all regions that fill the same one, as far as there is room."""

    def __init__(self, run: ChunkRun) -> None:
        self._run = run
        self._lanes: dict[str, list[int]] = {}  #: with rows, by output
        for output in run.program.outputs:
            if run.selections[output.lane].count:
                self._lanes.setdefault(output.name, []).append(output.lane)
        self._unions: dict[tuple[int, ...], Selection] = {}
        self._kept: dict[str, RowBins | None] = {}
        self._room = MOST_KEPT

    def find(self, output: BoundOutput, selection: Selection) -> RowBins | None:
        """Return the bins of an output's entries in the rows of its region; None: it has to be called."""
        if not isinstance(output.function, HistogramSpec) or self._run.forced:
            return None
        if output.name in self._kept:
            found = self._kept[output.name]
        else:
            lanes = tuple(self._lanes[output.name]) if self._room > 0 else (output.lane,)
            if lanes not in self._unions:
                self._unions[lanes] = union([self._run.selections[lane] for lane in lanes])
            found = self._bins(output, self._unions[lanes], lanes)
            if len(lanes) > 1:
                self._kept[output.name] = found
                self._room -= 0 if found is None else 3 * found.bins.nbytes  # with the owners
        return found and found.of(selection)

    def _bins(self, output: BoundOutput, rows: Selection, lanes: tuple[int, ...]) -> RowBins | None:
        spec: Any = output.function
        caller = self._run.caller
        caller.prepare(output.name, output.arguments, rows)
        arguments = caller.gather([a for a in output.arguments if a.kind != "weight"], rows, lanes)
        try:
            found: RowBins | None = spec.bins(arguments, rows) if spec.is_shared(arguments) else None
        except Exception:  # noqa: BLE001 - the call fails in the same way, and there it is said for which rows
            return None
        return found
