"""The pipelines by which orders are judged: random ones from committed seeds, a stream that changes, and the examples.

A case is a way to make a fresh pipeline - what one run remembers must not help another - and its data. The random ones
follow from the seeds in ``order_seeds.toml``. The seeds, and how many cuts and lanes each stands for, were committed before
any policy; what is drawn from them, which is in this file, was written after the policies. How many rows a case may have at
most was raised later still, so that large pipelines that drop nearly everything early run long enough for a decision.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
SEEDS = HERE / "order_seeds.toml"

#: Units that the rows of a case are cut into. Files have units of 131,072 rows and more; here they are smaller, so that a
#: few seconds of work have as many of them as a few minutes would.
UNITS = 64
#: Rows by which it is found out how many rows are wanted, and the fewest and the most there may be.
TRIED, FEWEST, MOST = 16_384, 16_384, 6_000_000

#: The cheapest and the dearest step, in rounds of ``busy``: 10 ns to 3 us per row.
LEAST_ROUNDS, MOST_ROUNDS = 1, 400
#: The share of rows that a cut passes.
LEAST_PASSED, MOST_PASSED = 0.15, 0.97
#: What ``busy`` may add to a value: it must be computed, and decide nothing.
TRACE = 1e-12


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline and its data, which may be in parts that differ; one part follows the other."""

    name: str
    build: Callable[[], wr.Pipeline]
    parts: tuple[Any, ...]  #: mappings of arrays, or one path or fileset
    unit: int  #: rows of a unit

    @property
    def data(self) -> Any:
        """All parts as one input, cut into units of a known size."""
        whole = self.parts[0]
        if len(self.parts) > 1:
            whole = {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}
        return self._opened(whole)

    def part(self, number: int) -> Any:
        """One part by itself."""
        return self._opened(self.parts[number])

    @property
    def from_files(self) -> bool:
        """Whether there are files, of which it is known how many bytes are read."""
        return any(isinstance(one, dict) for part in self.parts for one in part.values())

    @property
    def part_rows(self) -> list[int]:
        """How many rows each part has; only where there are several of them."""
        return [len(next(iter(part.values()))) for part in self.parts]

    def _opened(self, data: Any) -> Any:
        return dataclasses.replace(wr.data.open(data), grid=self.unit)


def sized(make: Callable[[int], Case], seconds: float) -> Case:
    """Make a case of as many rows as take so much processor time in the written order."""
    spent = []
    for rows in (TRIED // 8, TRIED):
        # Two units and as many chunks: what differs between halves is not mixed in one call.
        case = dataclasses.replace(make(rows), unit=rows // 2)
        data, times = case.data, []
        for _ in range(3):  # the first time much is set up that later runs have
            begin = time.process_time()
            case.build().run(data, order="written", chunk=case.unit, engine="inline", progress=False)
            times.append(time.process_time() - begin)
        spent.append(min(times))
    per_row = (spent[1] - spent[0]) / (TRIED - TRIED // 8)
    return make(int(np.clip(seconds / max(per_row, 1e-9), FEWEST, MOST)))


# -- random pipelines ------------------------------------------------------------------------------


def busy(x: Numbers, rounds: int) -> Numbers:
    """Arithmetic that takes as long as it is told to and stays between -1 and 1."""
    y = x
    for _ in range(rounds):
        y = np.sin(y + x)
    return y


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step does, before there is a function for it."""

    name: str
    kind: str
    rounds: int
    reads: tuple[str, ...]  #: the first decides, the others only have to be read
    threshold: float = 0.0


@dataclass(slots=True)
class RandomPipeline:
    """A pipeline drawn from a seed."""

    seed: int
    cuts: int
    rho: float
    lanes: int
    chain: float
    heavier: float = 1.0  #: what all steps cost, as a factor of what was drawn
    steps: list[StepPlan] = field(default_factory=list)
    regions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: file columns: how much of the latent number is in them
    columns: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        chained = set(rng.choice(self.cuts, round(self.chain * self.cuts), replace=False).tolist())
        made: list[StepPlan] = []
        for number in range(self.cuts):
            decides = self._file_column(f"x{number}")
            if number in chained:
                decides = self._made_column(rng, made, decides)
            extra = tuple(self._file_column(f"y{number}_{one}", alone=True) for one in range(int(rng.integers(0, 4))))
            passed = rng.uniform(LEAST_PASSED, MOST_PASSED)
            self.steps.append(
                StepPlan(
                    name=f"cut{number}",
                    kind="cut",
                    rounds=_rounds(rng),
                    reads=(decides, *extra),
                    threshold=float(_quantile(1 - passed)),
                )
            )
        self._draw_regions(rng)

    def _file_column(self, name: str, *, alone: bool = False) -> str:
        self.columns[name] = 0.0 if alone else float(np.sqrt(self.rho))
        return name

    def _made_column(self, rng: np.random.Generator, made: list[StepPlan], column: str) -> str:
        """A column that a step makes: one that is there already, one made of it, or a new one."""
        if made and rng.random() < 0.5:
            shared = made[int(rng.integers(len(made)))]
            if rng.random() < 0.5:
                del self.columns[column]
                return shared.name
            column = shared.name
        step = StepPlan(f"made{len(made)}", "column", _rounds(rng), (column,))
        made.append(step)
        self.steps.append(step)
        return step.name

    def _draw_regions(self, rng: np.random.Generator) -> None:
        names = [step.name for step in self.steps if step.kind == "cut"]
        if self.lanes == 1:
            return
        # A third of the cuts is common to all regions; the others are in a region, or inverted, or left out.
        common = set(rng.choice(names, len(names) // 3, replace=False).tolist())
        picks = {name: rng.choice(["", "!", "-"], self.lanes, p=[0.5, 0.2, 0.3]).tolist() for name in names}
        for name in common:
            picks[name] = [""] * self.lanes
        for mine in picks.values():
            if set(mine) == {"-"}:
                mine[int(rng.integers(self.lanes))] = ""
        for lane in range(self.lanes):
            self.regions[f"region{lane}"] = tuple(
                f"{picks[name][lane]}{name}" for name in names if picks[name][lane] != "-"
            )

    def events(self, rows: int) -> dict[str, Numbers]:
        """Make the rows: numbers that share a latent one as far as ``rho`` says."""
        rng = np.random.default_rng((self.seed, 1))
        latent = rng.standard_normal(rows)
        return {
            name: share * latent + np.sqrt(1 - share**2) * rng.standard_normal(rows)
            for name, share in self.columns.items()
        }

    def build(self, order: Sequence[str] = ()) -> wr.Pipeline:
        """Make the pipeline, written in the order in which it was drawn or in another one."""
        pipeline = wr.Pipeline(f"random {self.seed}")
        by_name = {step.name: step for step in self.steps}
        for step in [by_name[name] for name in order or by_name]:
            names = [f"column{number}" for number in range(len(step.reads))]
            options = {"name": step.name, "reads": dict(zip(names, step.reads, strict=True))}
            rounds = max(round(step.rounds * self.heavier), 1)
            if step.kind == "cut":
                pipeline.cut(_cut(step, len(names), rounds), **options)
            else:
                pipeline.column(_column(rounds), **options)
        for region, cuts in self.regions.items():
            pipeline.region(region, *cuts)
        first = next(iter(self.columns))

        @pipeline.output(reads={"column0": first})
        def selected(column0: Numbers) -> int:
            return len(column0)

        return pipeline


def _rounds(rng: np.random.Generator) -> int:
    """Costs differ by factors, not by amounts."""
    low, high = np.log(LEAST_ROUNDS), np.log(MOST_ROUNDS)
    return round(float(np.exp(rng.uniform(low, high))))


def _quantile(share: float) -> float:
    """The number below which a share of a standard normal distribution is, by bisection."""
    from math import erf

    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        if (1 + erf(middle / 2**0.5)) / 2 < share:
            low = middle
        else:
            high = middle
    return low


def _column(rounds: int) -> Callable[..., Any]:
    def column(column0: Numbers) -> Numbers:
        return column0 + TRACE * busy(column0, rounds)

    return column


def _cut(step: StepPlan, columns: int, rounds: int) -> Callable[..., Any]:
    threshold = step.threshold

    # The names of the arguments are what a step reads, so there is a function for each number of them.
    def one(column0: Numbers) -> Any:
        return column0 + TRACE * busy(column0, rounds) > threshold

    def two(column0: Numbers, column1: Numbers) -> Any:
        return column0 + TRACE * busy(column1, rounds) > threshold

    def three(column0: Numbers, column1: Numbers, column2: Numbers) -> Any:
        return column0 + TRACE * busy(column1 * column2, rounds) > threshold

    def four(column0: Numbers, column1: Numbers, column2: Numbers, column3: Numbers) -> Any:
        return column0 + TRACE * busy(column1 * column2 + column3, rounds) > threshold

    return (one, two, three, four)[columns - 1]


def seeds() -> list[dict[str, Any]]:
    """The committed list."""
    entries: list[dict[str, Any]] = tomllib.loads(SEEDS.read_text())["case"]
    return entries


def seeded(entry: dict[str, Any], rows: int, order: Sequence[str] = ()) -> Case:
    """A random pipeline of the committed list, as it was drawn or written in another order."""
    drawn = RandomPipeline(**entry)
    name = f"{entry['seed']}: {entry['cuts']} cuts, rho {entry['rho']}, {entry['lanes']} lanes"
    if order:
        name += ", written in the best order"
    return Case(name, lambda: drawn.build(order), (drawn.events(rows),), _unit(rows))


def _unit(rows: int) -> int:
    return max(rows // UNITS, 128)


# -- a stream that changes half-way ----------------------------------------------------------------

#: Of the swapping stream: rounds and passed share of what is dear and weak in a half, and of what is not.
DEAR, CHEAP = (240, 0.9), (10, 0.2)


def swapping(rows: int) -> Case:
    """Four cuts; two are cheap and strict in the first half and dear and lax in the second, the others vice versa."""
    names = ("a", "b", "c", "d")
    rng = np.random.default_rng(20260)
    halves = []
    for half in range(2):
        part: dict[str, Any] = {}
        for number, name in enumerate(names):
            rounds, passed = CHEAP if (number + half) % 2 else DEAR
            part[f"value_{name}"] = rng.random(rows // 2) / passed
            part[f"work_{name}"] = np.full(rows // 2, rounds)
        halves.append(part)

    def build() -> wr.Pipeline:
        pipeline = wr.Pipeline("swapping")
        for name in names:
            pipeline.cut(_depending_on_data(), name=name, reads={"value": f"value_{name}", "work": f"work_{name}"})

        @pipeline.output
        def selected(value_a: Numbers) -> int:
            return len(value_a)

        return pipeline

    return Case("swapping stream", build, tuple(halves), _unit(rows))


def _depending_on_data() -> Callable[..., Any]:
    def cut(value: Numbers, work: NDArray[np.int64]) -> Any:
        y = value
        for turn in range(int(work.max(initial=0))):
            # A row takes part in as many turns as it asks for, whatever the others do.
            y = np.where(turn < work, np.sin(y + value), y)
        return value + TRACE * y < 1

    return cut


# -- examples --------------------------------------------------------------------------------------


def example(name: str, module: str) -> Any:
    """Load a module of an example by its path."""
    path = EXAMPLES / name / f"{module}.py"
    unique = f"_example_{name}_{module}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[unique] = loaded
        # An example imports its neighbours, as it does when it is started as a program.
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(loaded)
        finally:
            sys.path.remove(str(path.parent))
    return sys.modules[unique]


#: How much of the paper's sampling is done, the same for all variants: the full one takes milliseconds per event.
TTH_SCALE = 1 / 128
#: Awkward steps take milliseconds per call: with less in a unit their calls would be all that counts.
NANOAOD_UNIT = 16_384
#: Events of the NanoAOD sample: what is timed and what is counted with one region, and what is counted with four.
NANOAOD_ROWS, NANOAOD_MOST = 400_000, 2_000_000


def tth(variant: str, rows: int) -> Case:
    """A variant of the ttH analysis on generated events."""
    analysis, generator = example("tth", "analysis"), example("tth", "events")
    return Case(
        f"ttH {variant}", lambda: analysis.build(variant, scale=TTH_SCALE), (generator.events(rows),), _unit(rows)
    )


def nanoaod(regions: int, directory: Path, rows: int = NANOAOD_ROWS) -> Case:
    """The analysis of NanoAOD-like events, from a Parquet file with a row group for each unit."""
    import pyarrow.parquet

    analysis, generator = example("nanoaod", "analysis"), example("nanoaod", "generate")
    unit = NANOAOD_UNIT
    path = directory / f"nanoaod_{rows}_{unit}.parquet"
    if not path.exists():
        whole = generator.write(path.with_suffix(".whole.parquet"), rows)
        table = pyarrow.parquet.read_table(whole)
        pyarrow.parquet.write_table(table, path, row_group_size=unit, compression="zstd")
        whole.unlink()
    fileset = {"simulation": {"files": [str(path)], "metadata": {"is_mc": True}}}
    name = f"NanoAOD, {regions} region{'s' * (regions > 1)}, {rows:,} events"
    return Case(name, lambda: analysis.build(regions), (fileset,), unit)
