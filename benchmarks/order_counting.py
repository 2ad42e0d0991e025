"""Counting what an order of steps costs, knowing everything: what every cut says of every row, and what steps cost.

Evaluations follow from the verdicts, unit by unit and exactly. Unit costs are measured in the pipeline's own calls, which
count processor time. The best and the worst legal order come from a dynamic programme over sets of cuts that shares nothing
with the policies.
"""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from windrow.blocks.probe import terrain
from windrow.core.records import FAILED, PASSED, UNDEFINED, Window
from windrow.order.model import Column, Lane, Situation, Step
from windrow.pipeline.binding.bind import bind
from windrow.pipeline.ordering.situation import constraints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from order_cases import Case

    Order = tuple[str, ...]

WORKERS = 2


# -- what is true of a case ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth:
    """A case's steps and what every cut says of every row."""

    written: Order
    kinds: Mapping[str, str]
    lanes_of: Mapping[str, tuple[int, ...]]
    columns_of: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, tuple[str, ...]]
    lanes: tuple[tuple[tuple[str, bool], ...], ...]
    #: cut -> rows that pass and rows that fail; those that are in neither are undefined
    sides: Mapping[str, tuple[NDArray[np.bool_], NDArray[np.bool_]]]
    starts: NDArray[np.int64]  #: of the inputs, counting the rows of those before
    borders: NDArray[np.int64]  #: of the units
    part: NDArray[np.int64]  #: of each unit: which part of the data it is in

    @property
    def rows(self) -> int:
        return int(self.borders[-1])

    @property
    def units(self) -> int:
        return len(self.borders) - 1

    @property
    def unit_rows(self) -> NDArray[np.int64]:
        return np.diff(self.borders)

    @property
    def cuts(self) -> Order:
        return tuple(name for name in self.written if self.kinds[name] == "cut")

    def keeps(self, lane: int, cut: str) -> NDArray[np.bool_] | None:
        """Which rows a cut leaves in a lane; None where it has no say in it."""
        for name, inverted in self.lanes[lane]:
            if name == cut:
                return self.sides[cut][inverted]
        return None


def truth_of(case: Case) -> Truth:
    """Bind the pipeline and ask every cut about every row, in a run in which each has regions of its own."""
    source = case.data
    pipeline = case.build()
    # A run shows which fields of collections are read.
    pipeline.run(source, order="written", max_rows=2 * case.unit, engine="inline", progress=False)
    definition = pipeline.definition(0)
    infos = [_info(source, number) for number in range(len(source.inputs))]
    item = source.inputs[0]
    program = bind(definition, item.dataset, source.datasets[item.dataset], infos[0], item.label)
    cuts = [name for name in program.written if program.steps[name].kind == "cut"]
    needs = constraints(definition)
    asked = case.build()
    for name in cuts:
        asked.region(f"passes {name}", name)
        asked.region(f"fails {name}", f"!{name}")
    kept = asked.run(source, order="written", workers=WORKERS, progress=False).kept
    starts = np.cumsum([0, *(info.rows for info in infos)])

    def mask(region: str) -> NDArray[np.bool_]:
        result = np.zeros(starts[-1], np.bool_)
        for place, file in enumerate(kept.files):
            result[starts[file.index] + kept.rows(region, place)] = True
        return result

    borders = [info.borders[:-1] + start for info, start in zip(infos, starts, strict=False)]
    ends = np.cumsum(case.part_rows) if len(case.parts) > 1 else starts[-1:]
    every = np.append(np.concatenate(borders), starts[-1])
    return Truth(
        written=program.written,
        kinds={name: step.kind for name, step in program.steps.items()},
        lanes_of={name: step.lanes for name, step in program.steps.items()},
        columns_of={step.name: tuple(name for name, _ in step.columns) for step in terrain(program, infos[0]).steps},
        needs={n: tuple(x for x in needs[n] if x in program.steps) for n in program.written},
        lanes=tuple(tuple(lane.cuts.items()) for lane in program.lanes),
        sides={name: (mask(f"passes {name}"), mask(f"fails {name}")) for name in cuts},
        starts=starts[:-1],
        borders=every,
        part=np.searchsorted(ends, every[:-1], side="right"),
    )


def _info(source: Any, number: int) -> Any:
    reader = source.open(number)
    info = reader.info
    reader.close()
    return replace(info, borders=np.array(info.borders))


# -- unit costs ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What a call and a row of a step cost, and a row of a column; by part of the data."""

    fixed_s: list[dict[str, float]]
    row_s: list[dict[str, float]]
    column_s: dict[str, float]
    column_bytes: dict[str, float]


def unit_costs(case: Case, truth: Truth, rounds: int) -> UnitCosts:
    """Measure every step on few rows and on a unit's, all steps in turn, in the pipeline's own calls."""
    fixed, per_row = [], []
    sizes = (max(case.unit // 16, 32), case.unit)
    for number in range(len(case.parts)):
        data = case.part(number)
        pipeline = case.build()
        times: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for _, rows in itertools.product(range(rounds), sizes):
            _measure(pipeline, data, truth, rows, times)
        fits = {name: _fit([times.get((name, rows), []) for rows in sizes]) for name in truth.written}
        fixed.append({name: fit[0] for name, fit in fits.items()})
        per_row.append({name: fit[1] for name, fit in fits.items()})
    column_s, column_bytes = _column_costs(case, truth, rounds)
    return UnitCosts(fixed, per_row, column_s, column_bytes)


def _measure(
    pipeline: Any, data: Any, truth: Truth, rows: int, times: dict[tuple[str, int], list[tuple[float, float]]]
) -> None:
    """Let every step be the first that runs, apart from those it needs: these see all rows then too."""
    done: set[str] = set()
    for first in reversed(truth.written):
        if first in done:
            continue
        steps = pipeline.run(data, order=[first], max_rows=rows, engine="inline", progress=False).steps
        for name in truth.written:
            if name == first or steps[name].rows_in == rows:
                done.add(name)
                if calls := steps[name].calls:
                    call = (steps[name].rows_in / calls, steps[name].seconds / calls)
                    times.setdefault((name, rows), []).append(call)


def _fit(calls: list[list[tuple[float, float]]]) -> tuple[float, float]:
    """What a call and a row cost: a straight line through the medians of both sizes."""
    points = [tuple(statistics.median(values) for values in zip(*found, strict=True)) for found in calls if found]
    if not points:
        return 0.0, 0.0  # no row gets there
    if len(points) == 1 or points[0][0] >= points[1][0]:
        rows, seconds = points[-1]
        return 0.0, seconds / rows
    (few, little), (many, much) = points
    row_s = max((much - little) / (many - few), 0.0)
    return max(little - row_s * few, 0.0), row_s


def _column_costs(case: Case, truth: Truth, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and stored bytes per row of every column that is read, in the source's own reader."""
    names = sorted({column for columns in truth.columns_of.values() for column in columns})
    times: dict[str, list[float]] = {name: [] for name in names}
    source = case.data
    stop = int(truth.borders[1])
    for _ in range(rounds):
        for name in names:
            reader = source.open(0)
            begin = time.thread_time()
            reader.read([name], 0, stop)
            times[name].append((time.thread_time() - begin) / stop)
            reader.close()
    reader = source.open(0)
    info = reader.info
    stored = {name: info.columns[name].stored_bytes / info.rows for name in names}
    reader.close()
    return {name: statistics.median(values) for name, values in times.items()}, stored


# -- counting --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """What an order costs."""

    rows: NDArray[np.int64]  #: that each step sees: (steps of the order, units)
    seconds: NDArray[np.float64]  #: by unit
    was_read: dict[str, NDArray[np.bool_]]  #: column -> by unit


class Counter:
    """What orders cost, unit by unit, by evaluations that are counted exactly."""

    def __init__(self, truth: Truth, costs: UnitCosts) -> None:
        self.truth = truth
        self.costs = costs
        self._known: dict[Order, Counted] = {}

    def rows(self, order: Order) -> NDArray[np.int64]:
        """Rows that each step sees: (steps of the order, units)."""
        return self._count(order).rows

    def seconds(self, order: Order) -> NDArray[np.float64]:
        """What each unit costs."""
        return self._count(order).seconds

    def bytes(self, order: Order) -> NDArray[np.float64]:
        """What is read of each unit, as it is stored."""
        read = np.zeros(self.truth.units)
        for column, units in self.was_read(order).items():
            read += units * self.truth.unit_rows * self.costs.column_bytes[column]
        return read

    def was_read(self, order: Order) -> dict[str, NDArray[np.bool_]]:
        """Which columns are read of which units."""
        return self._count(order).was_read

    def total(self, order: Order) -> float:
        return float(self.seconds(order).sum())

    def _count(self, order: Order) -> Counted:
        order = tuple(name for name in order if name in self.truth.kinds)
        if order not in self._known:
            self._known[order] = self._counted(order)
        return self._known[order]

    def _counted(self, order: Order) -> Counted:
        truth, costs = self.truth, self.costs
        alive = [np.ones(truth.rows, np.bool_) for _ in truth.lanes]
        seen = np.zeros((len(order), truth.units), np.int64)
        seconds = np.zeros(truth.units)
        was_read = {column: np.zeros(truth.units, np.bool_) for column in costs.column_s}
        for number, name in enumerate(order):
            lanes = truth.lanes_of[name]
            union = alive[lanes[0]]
            for lane in lanes[1:]:
                union = union | alive[lane]
            rows = seen[number] = np.add.reduceat(union, truth.borders[:-1], dtype=np.int64)
            fixed = np.array([part[name] for part in costs.fixed_s])[truth.part]
            per_row = np.array([part[name] for part in costs.row_s])[truth.part]
            seconds += rows * per_row + (rows > 0) * fixed
            for column in truth.columns_of[name]:
                new = (rows > 0) & ~was_read[column]
                was_read[column] |= new
                seconds += new * truth.unit_rows * costs.column_s[column]
            if truth.kinds[name] == "cut":
                for lane in lanes:
                    kept = truth.keeps(lane, name)
                    if kept is not None:
                        alive[lane] = alive[lane] & kept
        return Counted(seen, seconds, was_read)


# -- what policies are shown -----------------------------------------------------------------------


def situation_of(truth: Truth, costs: UnitCosts, windows: tuple[Window, ...]) -> Situation:
    """Put together what a policy looks at; costs of parts are averaged over their rows."""
    share = np.bincount(truth.part, truth.unit_rows) / truth.rows

    def mean(values: Sequence[Mapping[str, float]], name: str) -> float:
        return sum(part[name] * weight for part, weight in zip(values, share, strict=True))

    steps = {
        name: Step(
            name,
            truth.kinds[name],
            truth.lanes_of[name],
            mean(costs.fixed_s, name),
            mean(costs.row_s, name),
            0,
            truth.columns_of[name],
        )
        for name in truth.written
    }
    rows = float(np.median(truth.unit_rows))
    return Situation(
        written=truth.written,
        current=truth.written,
        steps=steps,
        needs=truth.needs,
        lanes=tuple(Lane(cuts) for cuts in truth.lanes),
        windows=windows,
        columns={name: Column(name, seconds, costs.column_bytes[name]) for name, seconds in costs.column_s.items()},
        chunk_rows=rows,
        unit_rows=rows,
    )


def window_of(truth: Truth, unit: int, start: int, stop: int) -> Window:
    """Make the window of some neighbouring rows of a unit."""
    cuts = truth.cuts
    said = np.full((stop - start, len(cuts)), UNDEFINED, np.int8)
    for number, name in enumerate(cuts):
        passed, failed = truth.sides[name]
        said[passed[start:stop], number] = PASSED
        said[failed[start:stop], number] = FAILED
    patterns, counts = np.unique(said, axis=0, return_counts=True)
    rows = int(truth.unit_rows[unit])
    return Window(0, start, stop, unit, rows, cuts, patterns, counts.astype(np.int64))


def all_windows(truth: Truth) -> tuple[Window, ...]:
    """All rows, unit by unit."""
    pairs = itertools.pairwise(truth.borders.tolist())
    return tuple(window_of(truth, unit, *pair) for unit, pair in enumerate(pairs))


# -- the best and the worst order ------------------------------------------------------------------


@numba.njit(cache=True)
def _programme(  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    cuts, before, first, makers, lanes, fixed_s, row_s, alive, units, sign
):
    """Cheapest way from every set of cuts that have run to the full one; which cut comes next.

    A cut's entries are the steps and columns that it brings; one is paid for unless a cut that brings it too has run.
    """
    full = (1 << cuts) - 1
    cost = np.zeros(full + 1)
    following = np.full(full + 1, -1, np.int8)
    for done in range(full - 1, -1, -1):
        best = np.inf
        for cut in range(cuts):
            if done >> cut & 1 or before[cut] & ~done:
                continue
            paid = 0.0
            for entry in range(first[cut], first[cut + 1]):
                if not makers[entry] & done:
                    rows = alive[lanes[entry], done]
                    calls = units * (1 - np.exp(-rows / units))
                    paid += rows * row_s[entry] + calls * fixed_s[entry]
            total = sign * paid + cost[done | 1 << cut]
            if total < best:
                best, following[done] = total, cut
        cost[done] = best
    return following


def extreme_order(truth: Truth, costs: UnitCosts, *, worst: bool = False) -> Order:
    """Find the legal order that costs least, or most, knowing everything about all rows.

    What drops no row runs as late as it can, or as early in the worst order. Whether a unit has any row left, which decides on calls and on columns, is
    taken as if survivors were spread evenly; the order found is counted exactly like any other.
    """
    given = situation_of(truth, costs, ())
    cuts = truth.cuts
    bit = {name: 1 << number for number, name in enumerate(cuts)}
    above: dict[str, frozenset[str]] = {}
    for name in truth.written:
        above[name] = frozenset(truth.needs[name]).union(*(above[x] for x in truth.needs[name]))
    brought = {
        cut: [*(n for n in truth.written if not worst and n in above[cut] and n not in bit), cut] for cut in cuts
    }
    makers: dict[str, int] = {}
    for cut, names in brought.items():
        for name in names:
            makers[name] = makers.get(name, 0) | bit[cut]
    readers: dict[str, int] = {}
    for name, mask in makers.items():
        for column in truth.columns_of[name]:
            readers[column] = readers.get(column, 0) | mask
    sets = sorted({truth.lanes_of[name] for name in makers})
    entries: list[tuple[int, int, float, float]] = []
    first = [0]
    unit_rows = truth.rows / truth.units
    for cut in cuts:
        read: set[str] = set()
        for name in brought[cut]:
            step, lanes = given.steps[name], sets.index(truth.lanes_of[name])
            entries.append((makers[name], lanes, step.fixed_s, step.row_s))
            for column in set(step.columns) - read:
                read.add(column)
                entries.append((readers[column], lanes, given.columns[column].row_s * unit_rows, 0.0))
        first.append(len(entries))
    following = _programme(
        len(cuts),
        np.array([sum(bit[x] for x in above[cut] if x in bit) for cut in cuts], np.int64),
        np.array(first, np.int64),
        np.array([entry[0] for entry in entries], np.int64),
        np.array([entry[1] for entry in entries], np.int64),
        np.array([entry[2] for entry in entries]),
        np.array([entry[3] for entry in entries]),
        np.stack([_alive(truth, lanes) for lanes in sets]),
        float(truth.units),
        -1.0 if worst else 1.0,
    )
    chosen: dict[str, None] = {}
    done = 0
    while done + 1 < 1 << len(cuts):
        if worst:
            chosen.update(
                dict.fromkeys(
                    name
                    for name in truth.written
                    if name not in bit and all(bit.get(x, 0) & ~done == 0 for x in above[name])
                )
            )
        cut = cuts[following[done]]
        chosen.update(dict.fromkeys(brought[cut]))
        done |= bit[cut]
    chosen.update(dict.fromkeys(truth.written))
    return tuple(chosen)


def _alive(truth: Truth, lanes: tuple[int, ...]) -> NDArray[np.float64]:
    """How many rows are in any of the lanes, for every set of cuts that have run."""
    cuts = truth.cuts
    total = np.zeros(1 << len(cuts))
    for count in range(1, len(lanes) + 1):
        for some in itertools.combinations(lanes, count):
            # Rows that are in all of these lanes: for each cut those that no lane loses by it.
            pattern = np.zeros(truth.rows, np.int64)
            for number, cut in enumerate(cuts):
                kept = np.ones(truth.rows, np.bool_)
                for lane in some:
                    side = truth.keeps(lane, cut)
                    if side is not None:
                        kept &= side
                pattern |= kept.astype(np.int64) << number
            rows = np.bincount(pattern, minlength=1 << len(cuts)).astype(np.float64)
            for number in range(len(cuts)):
                # Whoever keeps a row in more cuts keeps it in fewer.
                halves = rows.reshape(-1, 2, 1 << number)
                halves[:, 0] += halves[:, 1]
            total += rows if count % 2 else -rows
    return total
