"""The task-shaping paper in virtual time: chunk sizes and memory per task on 40 workers, figures 6 to 10.

    python benchmarks/paper_shape.py [--quick] [--json FILE]

"Dynamic Task Shaping for High Throughput Data Analysis Applications in High Energy Physics" (Tovar and others 2022,
doi:10.1109/IPDPS53621.2022.00041). The files, the times and the memory of tasks are those of ``models/events.toml``, calibrated from
its means and peaks; the scheduler is that of real runs. What the paper calls a worker is a node here. A ``Way`` is how tasks are cut
and what they are given: ``scenarios`` that take one give the same books of a whole run for each, all lost time included. Nothing is
tuned between figures, and sizes are chosen on other seeds than they are scored on. ``--quick`` has fewer seeds.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import harness
import numpy as np

from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.policies import LaunchPolicy, Options, Policies, ShapePolicy, ShapeRequest
from windrow.core.records import Life, Measurement, Needs, Rows, RunRows, Task
from windrow.core.rows import RowOptions
from windrow.engines.simulated.model import AffineCosts, Fleet, Model, SimulatedInput, SimulatedNode
from windrow.engines.simulated.model_files import load_model
from windrow.run.simulate import Simulated, simulate
from windrow.shape.allocation.policy import Allocation, NodeSize
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided, Queued

K, MB, GB = 1024, 10**6, 10**9

#: Section V: 40 workers of 4 cores and 8 GB; figure 6 has 16 GB.
NODES = 40
NODE = SimulatedNode(cores=4, memory=8 * GB)

#: Figure 6: chunk in events, cores and memory of a task; seconds of a task, tasks and seconds of the whole run as printed.
FIGURE_6 = {
    "A": (128 * K, 1, 4 * GB, 181.73, 803, 1066.49),
    "B": (512 * K, 4, 8 * GB, 409.68, 219, 2674.87),
    "C": (1 * K, 1, 2 * GB, 23.76, 49_784, 9374.88),
    "D": (1 * K, 4, 8 * GB, 20.91, 49_784, 29350.68),
    "E": (512 * K, 1, 2 * GB, None, 219, None),
}

#: Sizes of the sweep of fixed chunks.
SWEEP = tuple(K * size for size in (16, 32, 64, 96, 112, 128, 192, 256, 512))


# -- chunk sizes of coffea -------------------------------------------------------------------------
# Section IV, with the details that coffea 0.7 has: a fit of events on memory and time, in powers of two.


class TaskReport(NamedTuple):
    """What one task used."""

    rows: int
    seconds: float
    memory: float  #: megabytes


class Targets(NamedTuple):
    """What a task is to use; None: no matter."""

    seconds: float | None = None
    memory: float | None = None  #: megabytes


def next_chunk_size(base: int, targets: Targets, reports: Sequence[TaskReport]) -> int:
    """Give the rows of the next tasks, a power of two."""
    if not reports:
        return base
    found = []
    for target, used in (
        (targets.seconds, [one.seconds for one in reports]),
        (targets.memory, [one.memory for one in reports]),
    ):
        rows = _rows_for(target, used, [one.rows for one in reports]) if target else None
        if rows is not None:
            found.append(rows)
    size = min(found, default=float(base))
    return 1 << int(math.log2(size)) if size >= 1 else 1


def _rows_for(target: float, used: Sequence[float], rows: Sequence[int]) -> float | None:
    if len(rows) < 2 or used[0] < 0:
        return None
    per_unit = np.asarray(rows) / np.maximum(1, used)
    low, median = np.quantile(per_unit, [0.25, 0.5], method="nearest")
    kept = per_unit >= low
    x, y = np.asarray(used, dtype=float)[kept], np.asarray(rows, dtype=float)[kept]
    slope, intercept = float(median), 0.0
    spread = float(((x - x.mean()) ** 2).sum())
    if spread > 0:
        steep = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
        level = float(y.mean() - steep * x.mean())
        if steep >= 0 and level <= 0:  # else a negative time or memory for no rows
            slope, intercept = steep, level
    return slope * target + intercept or None


class CoffeaChunks(Queued):
    """The shape decision of coffea: the same for all rows, until a task reports what it used."""

    def __init__(self, base: int, targets: Targets) -> None:
        self.size = base
        self._base, self._targets = base, targets
        self._reports: dict[str, list[TaskReport]] = {}
        self._asked = 0

    def report(self, category: str, report: TaskReport) -> None:
        reports = self._reports.setdefault(category, [])
        reports.append(report)
        self.size = next_chunk_size(self._base, self._targets, reports)

    def rows(self, request: ShapeRequest) -> int:
        self._asked += 1
        size = max(self.size - self._asked % 2, 1)  # c and c - 1, so that the fit has more than one size
        return min(size, max(request.known, 1))


# -- ways and books --------------------------------------------------------------------------------


@dataclass
class Setup:
    """The decisions of one run; what learns is made anew for every run."""

    shape: ShapePolicy
    launches: LaunchPolicy
    needs: Needs = field(default_factory=lambda: Needs.of({"cores": 1}))
    observers: Sequence[Callable[..., None]] = ()


@dataclass(frozen=True)
class Way:
    """How tasks are cut and what they are given, by name."""

    name: str
    #: from the nodes and the rows of the first tasks (None: as the way likes)
    make: Callable[[Sequence[SimulatedNode], int | None], Setup]


def fixed_needs(cores: float, memory: float) -> tuple[Needs, LaunchPolicy]:
    """What each task asks for, and the policy that holds it to that."""
    return Needs.of({"cores": cores, "memory": memory}), LaunchPolicy(Needs.of({"memory": memory}))


def fixed(rows: int, memory: float, cores: float = 1) -> Way:
    """Chunks of so many rows that are given so much, by somebody who knows."""

    def make(_: Sequence[SimulatedNode], __: int | None) -> Setup:
        needs, launches = fixed_needs(cores, memory)
        return Setup(Fixed(rows), launches, needs)

    return Way(f"fixed {rows // K} K, {memory / GB:.2g} GB", make)


def guided_shares() -> Way:
    """Tasks that shrink towards the end, each with an equal share of a node's memory: nothing of memory is learned."""

    def make(nodes: Sequence[SimulatedNode], start: int | None) -> Setup:
        needs, launches = fixed_needs(1, min(one.memory / one.workers for one in nodes))
        return Setup(Guided() if start is None else Fixed(start), launches, needs)

    return Way("equal shares", make)


def learned() -> Way:
    """What Windrow does by itself: sizes by time and memory, memory by what tasks of their size used."""

    def make(nodes: Sequence[SimulatedNode], start: int | None) -> Setup:
        sizes = [NodeSize(one.memory, one.workers) for one in nodes]
        return Setup(
            Guided(first_rows=start, opaque=True), Allocation(nodes=sizes, guessed=start is not None, blocks=False)
        )

    return Way("auto", make)


class Coffea(Allocation):
    """Memory as Work Queue grants it, and chunk sizes as coffea takes them, for 85 % of an equal share of a node."""

    def __init__(self, nodes: Sequence[NodeSize], start: int | None) -> None:
        share = min(one.memory / one.places for one in nodes)
        super().__init__(nodes=nodes, ladder="workqueue", strategy="max-seen", cap=share)
        self.chunks = CoffeaChunks(start or 128 * K, Targets(memory=0.85 * share / MB))

    def seen(self, task: Task, measured: Measurement) -> bool:
        if task.twin:
            self.chunks.report(task.category, TaskReport(task.size, measured.wall, measured.peak_memory / MB))
        return super().seen(task, measured)


def coffea() -> Way:
    def make(nodes: Sequence[SimulatedNode], start: int | None) -> Setup:
        policy = Coffea([NodeSize(one.memory, one.workers) for one in nodes], start)
        return Setup(policy.chunks, policy)

    return Way("coffea, Work Queue", make)


class Books:
    """An observer that keeps, for a whole run, what every task used, how nodes were packed, and all time that was lost."""

    def __init__(self, nodes: Sequence[SimulatedNode]) -> None:
        self.sizes: list[int] = []  #: rows of tasks, in the order in which they ended
        self.peaks: list[float] = []  #: their memory
        self.granted: list[float] = []  #: what they were given
        self.exhausted = 0
        self.lost = Counter[str]()  #: core seconds, by how they were lost
        self.most = Counter[int]()  #: by node: tasks of rows at a time
        self.reach = 0.0  #: rows that were submitted before the first task ended well
        self._nodes = nodes
        self._present: dict[Life, tuple[float, float]] = {}  #: since when, and its share of the cores
        self._past = 0.0  #: core seconds that they were there
        self._running: dict[int, tuple[float, orders.Launch]] = {}
        self._at = Counter[int]()  #: by node: tasks of rows that run
        self._stops: dict[int, int] = {}  #: by input: rows that were submitted

    def __call__(self, events: Sequence[Any], commands: Sequence[Any], now: float) -> None:
        for event in events:
            if isinstance(event, happened.WorkerJoined):
                node = self._nodes[node_of(event.worker.pools) % len(self._nodes)]
                self._present[event.worker.life] = now, node.cores / node.workers
            elif isinstance(event, happened.WorkerLost):
                self._leave(event.life, now, "nodes")
            elif isinstance(event, happened.Started):
                known = self._running.get(event.attempt)
                if (
                    known is not None and known[1].queued
                ):  # others began when launched; that is told later, with other news
                    self._running[event.attempt] = now, known[1]
            elif isinstance(event, happened.Finished | happened.Exhausted | happened.Cancelled):
                self._end(event, now)
        for command in commands:
            if isinstance(command, orders.Launch):
                self._begin(command, now)

    def _begin(self, launch: orders.Launch, now: float) -> None:
        self._running[launch.attempt] = now, launch
        payload = launch.task.payload
        if isinstance(payload, RunRows):
            node = node_of([part.pool for part in launch.grant])
            self._at[node] += 1
            self.most[node] = max(self.most[node], self._at[node])
            if not self.sizes:
                for part in payload.rows:
                    self._stops[part.input] = max(self._stops.get(part.input, 0), part.stop)
                self.reach = sum(self._stops.values())

    def _end(self, event: Any, now: float) -> None:
        if event.attempt not in self._running:
            return
        begun, launch = self._pop(event.attempt)
        spent = (now - begun) * granted(launch, "cores")
        if isinstance(event, happened.Exhausted):
            self.exhausted += 1
            self.lost["memory"] += spent
        elif isinstance(event, happened.Cancelled):
            self.lost["twins"] += spent
        elif is_rows(launch):
            self.sizes.append(launch.task.size)
            self.peaks.append(event.measurement.peak_memory)
            self.granted.append(granted(launch, "memory"))

    def _pop(self, attempt: int) -> tuple[float, orders.Launch]:
        begun, launch = self._running.pop(attempt)
        if is_rows(launch):
            self._at[node_of([part.pool for part in launch.grant])] -= 1
        return begun, launch

    def _leave(self, life: Life, now: float, why: str) -> None:
        since, cores = self._present.pop(life, (now, 0.0))
        self._past += (now - since) * cores
        for attempt in [number for number, (_, one) in self._running.items() if one.life == life]:
            begun, launch = self._pop(attempt)
            self.lost[why] += (now - begun) * granted(launch, "cores")

    def close(self, end: float) -> None:
        """The run is over: what runs still is a second attempt at something that is done."""
        for life in list(self._present):
            self._leave(life, end, "twins")

    def lost_share(self, *ways: str) -> float:
        """The share of all workers' time that was lost, in these ways or in all."""
        return sum(self.lost[way] for way in ways or self.lost) / self._past

    @property
    def wasted(self) -> float:
        """The share of the memory that tasks were given and did not use."""
        return 1 - sum(self.peaks) / max(sum(self.granted), 1.0)


def node_of(pools: Sequence[str]) -> int:
    return int(pools[0].removeprefix("node ")) if pools else 0


def is_rows(launch: orders.Launch) -> bool:
    return isinstance(launch.task.payload, RunRows)


def granted(launch: orders.Launch, name: str) -> float:
    return sum(part.amount for part in launch.grant if part.name == name)


# -- scenarios -------------------------------------------------------------------------------------


@dataclass
class Done:
    """A run with its books."""

    run: Simulated
    books: Books

    @property
    def seconds(self) -> float:
        return self.run.seconds

    @property
    def complete(self) -> bool:
        return self.run.outcome.status == "complete"

    @property
    def lost(self) -> float:
        return self.books.lost_share("memory")


def events(
    seed: int, *nodes: SimulatedNode, heavy: float = 1.0, fleet: Fleet | None = None, sigma: float | None = None
) -> Model:
    """The files of the paper, their tasks on such nodes.

    ``heavy`` is how much more memory a row takes, ``sigma`` how much times differ if not as in the model.
    """
    model = load_model("events", seed=seed)
    costs = model.costs["signal"]
    assert isinstance(costs, AffineCosts)
    costs = replace(costs, memory_per_row=heavy * costs.memory_per_row, sigma=costs.sigma if sigma is None else sigma)
    return replace(model, costs={"signal": costs}, nodes=nodes, fleet=fleet or Fleet())


def go(model: Model, nodes: int, way: Way, seed: int, *, start: int | None = None, speculate: bool = True) -> Done:
    """Run a model in one way on so many nodes."""
    setup = way.make([model.nodes[number % len(model.nodes)] for number in range(nodes)], start)
    books = Books(model.nodes)
    run = simulate(
        model,
        nodes,
        seed=seed,
        rows=RowOptions(needs=setup.needs, halves=True),
        policies=Policies(shape=setup.shape),
        launches=setup.launches,
        options=Options(restart=True, speculate=speculate),
        observers=[books, *setup.observers],
    )
    books.close(run.seconds)
    return Done(run, books)


def figure_6(name: str, seed: int, sigma: float | None = None) -> Done:
    """Opaque tasks, each an equal part of a file, as few as there can be: none can be divided, as their processor is one call."""
    chunk, cores, memory, *_ = FIGURE_6[name]
    model = events(seed, SimulatedNode(cores=4, memory=16 * GB), sigma=sigma)
    inputs = tuple(
        SimulatedInput.even(one.category, one.rows, math.ceil(one.rows / math.ceil(one.rows / chunk)))
        for one in model.inputs
    )
    return go(replace(model, inputs=inputs), NODES, fixed(1, memory, cores), seed, speculate=False)


def figure_7(way: Way, seed: int) -> Done:
    """Chunks of 128 K on 40 workers of 4 cores and 8 GB, at most 2.1 GB each."""
    return go(events(seed, NODE), NODES, way, seed, start=128 * K)


def figure_8a(way: Way, seed: int) -> Done:
    """The first tasks have 1 K events."""
    return go(events(seed, NODE), NODES, way, seed, start=1 * K)


def figure_8b(way: Way, seed: int) -> Done:
    """The first tasks have 512 K events, on 40 workers of one core and 1 GB, and one of 2 GB."""
    small, large = SimulatedNode(cores=1, memory=1 * GB), SimulatedNode(cores=1, memory=2 * GB)
    return go(events(seed, *[small] * NODES, large), NODES + 1, way, seed, start=512 * K)


def figure_8c(way: Way, seed: int) -> Done:
    """An option that takes 8 times the memory: 2 GB are 16 K events, where they were 128 K, with which it begins."""
    return go(events(seed, NODE, heavy=8.0), NODES, way, seed, start=128 * K)


def figure_9(way: Way, seed: int) -> Done:
    """10 workers, 40 more after 300 s, all gone after 1,000 s, 30 of them back 300 s later; the times are read off the figure."""
    fleet = Fleet(
        joins=(0.0,) * 10 + (300.0,) * 40,
        losses=tuple((1000.0, node) for node in range(30)),
        leaves=tuple((1000.0, node) for node in range(30, 50)),
        rejoin_s=300.0,
    )
    return go(events(seed, NODE, fleet=fleet), 50, way, seed)


def auto(way: Way, seed: int, nodes: int = NODES) -> Done:
    """The whole run as a user begins it, who says nothing."""
    return go(events(seed, NODE), nodes, way, seed)


def skewed(way: Way, seed: int, late_s: float = 0.0) -> tuple[Done, float]:
    """16 workers, one half as fast that may join late, inputs whose rows differ in cost by far; and the least that can take."""
    costs = AffineCosts(fixed_s=0.05, per_row_s=1e-3, sigma=0.0, input_sigma=1.0)
    node = SimulatedNode(cores=1, memory=2 * GB)
    speeds = (0.5,) + (1.0,) * 15
    files = tuple(
        SimulatedInput.even("data", one.rows // 8, 128) for one in load_model("events", seed=seed).inputs[:64]
    )
    model = Model(
        inputs=files, costs={"data": costs}, nodes=(node,), fleet=Fleet(speeds=speeds, joins=(late_s, *(0.0,) * 15))
    )
    work = sum(costs.demand(Rows(number, 0, one.rows), 0, seed).free_s for number, one in enumerate(files))
    return go(model, 16, way, seed), (work + speeds[0] * late_s) / sum(speeds)


# -- tables ----------------------------------------------------------------------------------------


def configurations(report: harness.Report, seeds: Sequence[int]) -> None:
    """Figure 6: what bad configurations cost."""
    found = {name: [figure_6(name, seed) for seed in seeds] for name in FIGURE_6}
    rows = []
    for name, (chunk, cores, memory, task_s, tasks, total_s) in FIGURE_6.items():
        runs = found[name]
        ended = all(one.complete for one in runs)
        tally = [one.run.tally for one in runs]
        mean_s = statistics.median(one.compute_s / max(one.tasks, 1) for one in tally)
        rows.append((
            name, f"{chunk // K} K", f"{cores}, {memory // GB} GB",
            f"{mean_s:.1f}" if ended else "-", f"{task_s or '-'}",
            f"{statistics.median(one.tasks for one in tally):.0f}" if ended else "-", tasks,
            f"{statistics.median(one.seconds for one in runs):.0f}" if ended else "fails", total_s or "fails",
        ))  # fmt: skip
    report.note(f"Figure 6: {NODES} workers of 4 cores and 16 GB, medians of {len(seeds)} seeds; beside it the paper.")
    headers = ("", "chunk", "task: cores, memory", "task s", "paper", "tasks", "paper", "whole run s", "paper")
    report.table(headers, rows)
    total = {name: [one.seconds for one in runs] for name, runs in found.items()}
    ordered = all(a < b < c < d for a, b, c, d in zip(*[total[name] for name in "ABCD"], strict=True))
    report.claim("figure 6: A < B < C < D, every seed", float(ordered), 1.0)
    worst = {name: min(one / a for one, a in zip(total[name], total["A"], strict=True)) for name in "CD"}
    report.claim("figure 6: C / A, least of the seeds (paper: 8.8)", worst["C"], 5.0)
    report.claim("figure 6: D / A, least of the seeds (paper: 27.5)", worst["D"], 20.0)
    failed = [one.run.outcome.failure for one in found["E"]]
    for_memory = all(one is not None and "of memory" in one.message for one in failed)
    report.claim("figure 6: E fails for want of memory, every seed", float(for_memory), 1.0)
    report.note(f"E: {failed[0].message if failed[0] is not None else 'did not fail'}.")


def noise(report: harness.Report) -> None:
    """Figure 6 by how much times of tasks of one size differ, which the paper does not tell in numbers."""
    c, d = (figure_6(name, 0).seconds for name in "CD")  # so many tasks take the same on average, whatever that is
    rows = []
    for sigma in (0.0, 0.1, 0.2, 0.35, 0.5):
        a, b = (figure_6(name, 0, sigma).seconds for name in "AB")
        rows.append((sigma, f"{a:.0f}", f"{b:.0f}", f"{c / a:.1f}", f"{d / a:.1f}"))
    report.note(
        "Whole runs of figure 6 by the standard deviation of the logarithm of times, which is assumed; one seed."
    )
    report.table(("sigma", "A, s", "B, s", "C / A", "D / A"), [*rows, ("paper", 1066, 2675, "8.8", "27.5")])


def whole_files(report: harness.Report, seeds: Sequence[int]) -> None:
    """Figure 4: the memory of whole files."""
    rows = []
    for seed in seeds:
        model = events(seed, NODE)
        costs = model.costs["signal"]
        memory = [costs.demand(Rows(n, 0, one.rows), 0, seed).memory / MB for n, one in enumerate(model.inputs[:21])]
        rows.append((seed, *(f"{one:.0f}" for one in (min(memory), statistics.median(memory), max(memory)))))
    report.note("Figure 4: MB of 21 tasks of a whole file each.")
    report.table(("seed", "least", "median", "most"), [*rows, ("paper", 128, "about 1,500", "4,000")])


def shaped(report: harness.Report, ways: Sequence[Way], seeds: Sequence[int]) -> None:
    """Figures 7 and 8: packing, splitting and growing, with what was lost in the whole run."""
    cases: dict[str, tuple[Callable[[Way, int], Done], str]] = {
        "7": (figure_7, "3 at a time; with a 2 GB cap 2 splits"),
        "8a": (figure_8a, "0 splits"),
        "8b": (figure_8b, "up to 3 splits of a task, 19 % lost, 1/5 submitted first"),
        "8c": (figure_8c, "chunk 16 K, 32 % lost"),
    }
    rows = []
    for case, (scenario, paper) in cases.items():
        for way in ways:
            runs = [scenario(way, seed) for seed in seeds]
            books = [one.books for one in runs]
            total = sum(one.rows for one in events(seeds[0], NODE).inputs)
            late = [size for book in books for size in book.sizes[len(book.sizes) // 4 : -len(book.sizes) // 4]]
            rows.append((
                case, way.name, f"{statistics.median(one.seconds for one in runs):.0f}",
                f"{statistics.median(len(book.sizes) for book in books):.0f}",
                f"{max(max(book.most.values(), default=0) for book in books)}",
                f"{statistics.median(book.exhausted for book in books):.0f}",
                f"{statistics.median(one.lost for one in runs):.1%}",
                f"{statistics.median(book.reach for book in books) / total:.0%}",
                f"{statistics.median(late) / K:.0f} K" if late else "-",
                f"{statistics.median(book.wasted for book in books):.0%}", paper,
            ))  # fmt: skip
            ended = sum(one.complete for one in runs) / len(runs)
            report.claim(f"figure {case}, {way.name}: share of runs that end well", ended, 1.0)
            worst = max(one.lost for one in runs)
            report.claim(f"figure {case}, {way.name}: lost for memory, worst seed", worst, 0.05, better="lower")
    report.note(
        f"Figures 7 and 8, medians of {len(seeds)} seeds: tasks at a time on a node at most, tasks that ran out of memory, the share of all "
        "workers' time that was lost with them, the rows submitted before the first task ended well, the usual size of the middle "
        "half of tasks, and what of the memory tasks were given they did not use."
    )
    headers = ("figure", "way", "s", "tasks", "at a time", "ran out", "lost", "submitted", "chunk", "unused", "paper")
    report.table(headers, rows)


def comings_and_goings(report: harness.Report, ways: Sequence[Way], seeds: Sequence[int]) -> None:
    """Figure 9: workers that come, go and come back."""
    rows = []
    for way in ways:
        for seed in seeds:
            done = figure_9(way, seed)
            ledger, all_rows = done.run.outcome.ledger, sum(one.rows for one in events(seed, NODE).inputs)
            kept = ledger.done_rows / all_rows if done.complete else 0.0
            lost = done.books.lost_share("nodes")
            rows.append((way.name, seed, f"{done.seconds:.0f}", f"{kept:.0%}", f"{lost:.0%}", f"{done.lost:.1%}"))
            report.claim(f"figure 9, {way.name}, seed {seed}: share of the rows that are done", kept, 1.0)
    report.note("Figure 9: 10 workers, 50 after 300 s, none after 1,000 s, 30 after 1,300 s.")
    report.table(("way", "seed", "s", "rows", "running, lost with workers", "lost for memory"), rows)


def sweep(report: harness.Report, ways: Sequence[Way], seeds: Sequence[int]) -> None:
    """Fixed sizes against ways that choose by themselves, on seeds on which the best size was not chosen; and figure 10."""
    costs = events(0, NODE).costs["signal"]
    assert isinstance(costs, AffineCosts)
    # Who knows gives a chunk what hardly any task of it exceeds; what does not fit on a worker is not swept.
    memory = {size: 1.02 * (costs.memory_fixed + costs.memory_per_row * size) for size in SWEEP}
    knowing = [fixed(size, memory[size]) for size in SWEEP if memory[size] <= NODE.memory]
    every = {way.name: [auto(way, seed) for seed in seeds] for way in (*knowing, *ways)}
    chosen, scored = slice(0, None, 2), slice(1, None, 2)

    def seconds(name: str, which: slice) -> float:
        return statistics.median(one.seconds if one.complete else math.inf for one in every[name][which])

    best = min((way.name for way in knowing), key=lambda name: seconds(name, chosen))
    rows = [
        (name, f"{seconds(name, chosen):.0f}", f"{seconds(name, scored):.0f}", f"{max(one.lost for one in runs):.1%}",
         "best" if name == best else "")
        for name, runs in every.items()
    ]  # fmt: skip
    report.note(f"{NODES} workers of 4 cores and 8 GB; the best fixed size is chosen on half of the seeds.")
    report.table(("way", "s, chosen on", "s, scored on", "lost, at most", ""), rows)
    for way in ways:
        ratio = seconds(way.name, scored) / seconds(best, scored)
        report.claim(f"sweep, {way.name}: time / best fixed size, held-out seeds", ratio, 1.05, better="lower")
    rows = []
    fixed_way = next(way for way in knowing if way.name == best)
    for nodes in (10, 20, NODES, 80):
        against = [auto(fixed_way, seed, nodes).seconds for seed in seeds]
        cells = [spread(against)]
        for way in ways:
            mine = [auto(way, seed, nodes).seconds for seed in seeds]
            cells += [spread(mine), f"{statistics.median(mine) / statistics.median(against):.3f}"]
            if nodes == NODES:
                ratio = statistics.median(mine) / statistics.median(against)
                report.claim(f"figure 10, {way.name}: time / {best}", ratio, 1.05, better="lower")
        rows.append((nodes, *cells))
    report.note(f"Figure 10: medians of {len(seeds)} runs, and the quickest and the slowest of them.")
    report.table(("workers", best, *(cell for way in ways for cell in (way.name, "/ fixed"))), rows)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def tails(report: harness.Report, ways: Sequence[Way], seeds: Sequence[int], held_out: Sequence[int]) -> None:
    """16 workers, one half as fast, skewed tasks: how far the end is from the least possible."""
    rows = []
    for way in ways:
        for name, which in (("worst seed", seeds), ("worst held-out seed", held_out)):
            ratios = []
            for seed in which:
                done, least = skewed(way, seed)
                ratios.append(done.seconds / least)
            rows.append(
                (way.name, name.removeprefix("worst "), f"{statistics.median(ratios):.3f}", f"{max(ratios):.3f}")
            )
            report.claim(f"tail, {way.name}: time / lower bound, {name}", max(ratios), 1.10, better="lower")
    report.note(
        "16 workers, one half as fast; inputs whose rows differ in cost (log-normal, sigma 1); lower bound: all work by all."
    )
    report.table(("way", "seeds", "time / lower bound", "worst"), rows)


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    report = harness.Report("Task shaping on 40 workers, simulated", harness.machine())
    few, many = (range(1), range(4)) if options.quick else (range(3), range(10))
    ways = [learned(), coffea()]
    configurations(report, few)
    if not options.quick:
        noise(report)
    whole_files(report, few)
    shaped(report, ways, few)
    comings_and_goings(report, ways, few)
    sweep(report, ways, many)
    tails(report, ways, many, [1000 + seed for seed in many])
    report.finish(options.json)


if __name__ == "__main__":
    main()
