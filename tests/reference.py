"""The oracle: what an analysis means, in plain NumPy and awkward, one whole file at a time.

It is written from the contract and shares no code with ``windrow.pipeline`` or ``windrow.blocks``.
It has no blocks, chunks, threads, late loading or guards to learn: a step that raises in the order
it is given raises.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from description import Analysis, Dataset, File, Output, Step, UpDown, plain, signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

NOMINAL = "nominal"


# --- what comes out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One line of a cutflow."""

    name: str
    passed: int
    sumw: float
    sumw2: float
    undefined: int = 0
    nan: int = 0
    applies: bool = True

    def __add__(self, other: Line) -> Line:
        assert self.name == other.name
        return Line(
            self.name,
            self.passed + other.passed,
            self.sumw + other.sumw,
            self.sumw2 + other.sumw2,
            self.undefined + other.undefined,
            self.nan + other.nan,
            self.applies or other.applies,
        )


@dataclass
class Answer:
    """Outputs by (name, region, variation, dataset); cutflows and yields by (region, dataset)."""

    outputs: dict[tuple[str, str | None, str, str], Any] = field(default_factory=dict)
    cutflow: dict[tuple[str, str], list[Line]] = field(default_factory=dict)

    def yields(self) -> dict[tuple[str, str], int]:
        return {key: lines[-1].passed for key, lines in self.cutflow.items()}


class StepRaisedError(Exception):
    """A step raised on the rows that the given order shows it."""

    def __init__(self, step: str, cause: Exception) -> None:
        super().__init__(f"{step}: {cause!r}")
        self.step = step


def merge(left: Any, right: Any) -> Any:
    """Add up two partial outputs without changing either."""
    if isinstance(left, Mapping):
        both = {key: merge(left[key], right[key]) if key in right else left[key] for key in left}
        return both | {key: right[key] for key in right if key not in left}
    if isinstance(left, set | frozenset):
        return left | right
    return left + right


def fold(leaves: Sequence[Any]) -> Any:
    """Merge in the fixed tree: maximal aligned subtrees from the left; None is an empty leaf."""

    def both(left: Any, right: Any) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return merge(left, right)

    def node(part: Sequence[Any]) -> Any:
        half = len(part) // 2
        return part[0] if len(part) == 1 else both(node(part[:half]), node(part[half:]))

    total, start = None, 0
    for bit in reversed(range(len(leaves).bit_length())):
        if len(leaves) & (1 << bit):
            total = both(total, node(leaves[start : start + (1 << bit)]))
            start += 1 << bit
    return total


# --- the plan: who needs what ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plan:
    """What is true of an analysis in one dataset, whatever the rows."""

    analysis: Analysis
    dataset: Dataset
    order: tuple[str, ...]

    def applies(self, step: Step) -> bool:
        return step.when is None or bool(eval(step.when, {}, dict(self.dataset.metadata)))

    def outputs(self, lane: str | None) -> Iterator[Output]:
        for output in self.analysis.outputs:
            regions = output.regions
            named = regions is not None and (regions == "*" or lane in regions)
            if regions is None if lane is None else named:
                yield output

    def cuts(self, lane: str | None) -> dict[str, bool]:
        """The lane's cuts, with the answer that keeps a row."""
        names = () if lane is None else self.analysis.regions[lane]
        return {name.lstrip("!"): not name.startswith("!") for name in names}

    def weights(self, lane: str | None) -> list[Step]:
        """The factors of the lane's weight, in the order of definition."""
        steps: Iterable[Step] = self.analysis.steps
        if lane is None:
            first = next((i for i, s in enumerate(self.analysis.steps) if s.kind == "cut"), None)
            steps = self.analysis.steps[:first]
        return [s for s in steps if s.kind == "weight" and self.applies(s)]

    @functools.cache  # noqa: B019 - a plan lives as long as one example
    def needed(self, lane: str | None) -> frozenset[str]:
        """The lane's cuts and weights, and the makers of what these and its outputs read."""
        outputs = list(self.outputs(lane))
        todo: list[Step | Output] = list(outputs)
        todo += [s for s in self.analysis.steps if s.name in self.cuts(lane) and self.applies(s)]
        if lane is not None or any("weight" in signature(out)[0] for out in outputs):
            todo += self.weights(lane)
        makers = {s.name: s for s in self.analysis.steps if s.kind == "column" and self.applies(s)}
        found: set[str] = set()
        while todo:
            what = todo.pop()
            if what.name in found:
                continue
            if isinstance(what, Step):
                found.add(what.name)
            todo += [makers[name] for name in signature(what)[0] if name in makers]
        return frozenset(found)


# --- one file -------------------------------------------------------------------------------------


def take(values: Any, rows: Any) -> Any:
    return None if values is None else values[rows]


def has_nan(values: Any, count: int) -> Any:
    """Which rows hold a NaN."""
    if isinstance(values, ak.Array):
        if values.fields:
            return functools.reduce(np.logical_or, [has_nan(values[f], count) for f in values.fields])
        bad = np.isnan(values)
        if values.ndim > 1:
            bad = ak.any(bad, axis=-1)
        return ak.to_numpy(ak.fill_none(bad, False)) if count else np.zeros(0, bool)
    if values is None or values.dtype.kind != "f":
        return np.zeros(count, bool)
    return np.isnan(values)


def each_row(function: Callable[..., Any], arguments: Mapping[str, Any], count: int, extra: Any) -> Any:
    """Call a function row by row on 64-bit numbers and slices of them."""

    def border(values: Any) -> list[Any]:
        if isinstance(values, ak.Array):
            return [widened(np.asarray(ak.to_numpy(values[row]))) for row in range(count)]
        return [widened(values)[row] for row in range(count)]

    columns = {name: border(values) for name, values in arguments.items()}
    rows = [function(**{k: v[row] for k, v in columns.items()}, **extra) for row in range(count)]
    return np.array(rows)


def widened(values: Any) -> Any:
    """Numbers as they cross the border of ``each=True``."""
    wide = {"f": np.float64, "i": np.int64}.get(values.dtype.kind)
    if values.dtype.kind == "u" and values.dtype.itemsize < 8:
        wide = np.int64
    return values if wide is None else values.astype(wide)


class Execution:
    """One file, all of its rows at once."""

    def __init__(self, plan: Plan, file: File, rng: Callable[[Any], Any]) -> None:
        self.plan, self.file, self.rng = plan, file, rng
        lanes: list[str | None] = list(plan.analysis.regions)
        if any(plan.outputs(None)):
            lanes.append(None)
        self.alive: dict[str | None, Any] = {lane: np.ones(file.rows, bool) for lane in lanes}
        #: column or weight -> (rows it was computed on, values)
        self.made: dict[str, tuple[Any, Any]] = {}
        self.lines: dict[str, list[Line]] = {region: [] for region in plan.analysis.regions}
        self.run()

    def run(self) -> None:
        before: list[str] = []
        used = {cut for region in self.plan.analysis.regions for cut in self.plan.cuts(region)}
        first = next(name for name in self.plan.order if name in used)
        written = [step.name for step in self.plan.analysis.steps]
        top = set(written[: next(n for n, name in enumerate(written) if name in used)])
        for name in self.plan.order:
            step = self.plan.analysis.step(name)
            if name == first:
                # Weighted by what is written above all cuts, as far as it ran.
                above = [weight for weight in before if weight in top]
                for region, lines in self.lines.items():
                    lines.append(Line("initial", self.file.rows, *self.sums(region, above)))
            if self.plan.applies(step):
                self.perform(step)
            if step.kind == "cut":
                self.record(step, before)
            before.append(name)

    def perform(self, step: Step) -> None:
        """Evaluate a step on the rows of the lanes that need it and keep what it says."""
        lanes = [lane for lane in self.alive if step.name in self.plan.needed(lane)]
        if not lanes:
            return
        rows = np.flatnonzero(np.logical_or.reduce([self.alive[lane] for lane in lanes]))
        arguments = self.arguments(step, rows)
        value = self.call(step, arguments, rows, None, NOMINAL)
        if step.kind == "cut":
            nan = [has_nan(values, len(rows)) for values in arguments.values()]
            self.made[f"nan of {step.name}"] = (rows, functools.reduce(np.logical_or, nan, np.zeros(len(rows), bool)))
        self.made[step.name] = (rows, value)

    def record(self, step: Step, before: list[str]) -> None:
        """Apply a cut to its lanes and write their lines."""
        for region, lines in self.lines.items():
            cuts = self.plan.cuts(region)
            if step.name not in cuts:
                continue
            name = step.name if cuts[step.name] else f"!{step.name}"
            undefined = nan = 0
            applies = self.plan.applies(step)
            if applies:
                rows = np.flatnonzero(self.alive[region])
                value = self.column(step.name, rows)
                none = np.zeros(len(rows), bool)
                if isinstance(value, ak.Array):
                    none = ak.to_numpy(ak.is_none(value))
                    value = ak.to_numpy(ak.fill_none(value, False))
                nan = int(self.column(f"nan of {step.name}", rows).sum())
                undefined = int(none.sum())
                self.alive[region] = self.alive[region].copy()
                self.alive[region][rows] = (value == cuts[step.name]) & ~none
            passed = int(self.alive[region].sum())
            lines.append(Line(name, passed, *self.sums(region, before), undefined, nan, applies))

    def sums(self, region: str, before: list[str]) -> tuple[float, float]:
        weight = self.weight(region, np.flatnonzero(self.alive[region]), NOMINAL, before)
        return float(np.sum(weight)), float(np.sum(weight * weight))

    # -- values

    def column(self, name: str, rows: Any, default: Any = inspect.Parameter.empty) -> Any:
        """A column for some rows: made by a step, of the file, a collection, or the default."""
        if name in self.made:
            where, values = self.made[name]
            place = np.searchsorted(where, rows)
            assert np.array_equal(where[place], rows), f"{name}: rows never computed"
            return take(values, place)
        makers = {s.name for s in self.plan.analysis.steps if s.kind == "column"}
        if name not in makers:
            if name in self.file.columns:
                return take(self.file.columns[name], rows)
            if name in self.file.collections:
                fields = self.file.collections[name]
                zipped = {f.removeprefix(f"{name}_"): self.file.columns[f] for f in fields}
                return take(ak.zip(zipped, depth_limit=2), rows)
        assert default is not inspect.Parameter.empty, f"{name}: required and absent"
        return None if default is None else np.full(len(rows), default)

    def arguments(self, what: Step | Output, rows: Any) -> dict[str, Any]:
        reads = signature(what)[0]
        special = isinstance(what, Output)
        return {n: self.column(n, rows, d) for n, d in reads.items() if not (special and n == "weight")}

    def call(self, what: Step | Output, arguments: Any, rows: Any, lane: str | None, variation: str) -> Any:
        known = {"dataset": self.plan.dataset.metadata, "region": lane, "variation": variation}
        extra = {name: known[name] for name in signature(what)[1] if name != "rng"}
        if "rng" in signature(what)[1]:
            extra["rng"] = self.rng([take(self.file.columns[c], rows) for c in self.plan.analysis.identity or ()])
        try:
            if isinstance(what, Step) and what.each:
                return each_row(plain(what), arguments, len(rows), extra)
            return plain(what)(**arguments, **extra)
        except (ValueError, IndexError, ZeroDivisionError, TypeError) as exc:
            raise StepRaisedError(what.name, exc) from exc

    def weight(self, lane: str | None, rows: Any, variation: str, among: Iterable[str] | None = None) -> Any:
        """The product of the lane's factors in the order of definition, one of them shifted."""
        total = np.ones(len(rows))
        for step in self.plan.weights(lane):
            if among is not None and step.name not in among:
                continue
            where, value = self.made[step.name]
            if isinstance(value, UpDown):
                value = {f"{step.name}_up": value.up, f"{step.name}_down": value.down}.get(variation, value.nominal)
            total = total * np.asarray(take(value, np.searchsorted(where, rows)))
        return total

    # -- outputs

    def variations(self, output: Output, lane: str | None) -> list[str]:
        names = [NOMINAL]
        if "weight" in signature(output)[0]:
            for step in self.plan.weights(lane):
                chosen = output.weights == "all" or step.name in (output.weights or ())
                if chosen and isinstance(self.made[step.name][1], UpDown):
                    names += [f"{step.name}_up", f"{step.name}_down"]
        return names

    def evaluate(self, output: Output, lane: str | None, variation: str, rows: Any) -> Any:
        arguments = self.arguments(output, rows)
        if "weight" in signature(output)[0]:
            among = None if output.weights == "all" else output.weights or ()
            arguments["weight"] = self.weight(lane, rows, variation, among)
        return self.call(output, arguments, rows, lane, variation)

    def total(self, output: Output, lane: str | None, variation: str) -> Any:
        """The output over this file; None if the lane has no rows in it."""
        leaves = []
        for start, stop in zip(self.file.borders, self.file.borders[1:], strict=False):
            rows = start + np.flatnonzero(self.alive[lane][start:stop])
            leaves.append(self.evaluate(output, lane, variation, rows) if len(rows) else None)
        return fold(leaves)


def reference(
    analysis: Analysis,
    datasets: Sequence[Dataset],
    *,
    order: Sequence[str] | None = None,
    rng: Callable[[Any], Any] | None = None,
) -> Answer:
    """Run an analysis in the given order of steps (default: as written)."""
    answer = Answer()
    names = tuple(order or [step.name for step in analysis.steps])
    for dataset in datasets:
        plan = Plan(analysis, dataset, names)
        files = [Execution(plan, file, rng or no_numbers) for file in dataset.files]
        for lane in files[0].alive:
            for output in plan.outputs(lane):
                for variation in files[0].variations(output, lane):
                    total = fold([file.total(output, lane, variation) for file in files])
                    if total is None:
                        nothing = np.zeros(0, np.int64)
                        total = files[0].evaluate(output, lane, variation, nothing)
                    answer.outputs[output.name, lane, variation, dataset.name] = total
        for region in analysis.regions:
            lines = [file.lines[region] for file in files]
            answer.cutflow[region, dataset.name] = [
                functools.reduce(Line.__add__, same) for same in zip(*lines, strict=True)
            ]
    return answer


def no_numbers(_identity: Any) -> Any:
    raise AssertionError("the analysis draws random numbers and the oracle was given none")
