"""Clusters in virtual time: HEP-Frame's servers, ttH on up to 1,024 workers, DAPHNE's nodes; the driver and Dask are charged.

    python benchmarks/paper_clusters.py [--quick] [--json FILE]

The scheduler is that of real runs. Analyses are those of ``models/hepframe_24core.toml``. What a launch and a batch of Dask cost was
measured; what else is not in the papers is assumed, and said where it is set. With ``--quick`` there is one seed.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import harness
from paper_hepframe import CASES

from windrow.core import commands as orders
from windrow.core.policies import Options, Policies
from windrow.core.records import Life, Rows, StepCost
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.engines.simulated.devices import Device, FairShare
from windrow.engines.simulated.engine import SimulatedEngine
from windrow.engines.simulated.model import (
    AffineCosts,
    Costs,
    Demand,
    DriverCosts,
    Model,
    SimulatedInput,
    SimulatedNode,
)
from windrow.engines.simulated.model_files import load_model
from windrow.engines.simulated.world import Chain, SimulatedJob, World
from windrow.run.garbage import collecting_less
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MB = 10**6
#: HEP-Frame's figure 14, 2, 4 and 6 servers against one; of the others the text says "almost linear up to 4" and "less".
SERVERS = (2, 4, 6)
PAPER_SCI = (1.9, 3.9, 5.6)
PAPER_SERVERS = {"sci": "1.9, 3.9, 5.6", "scinp": "almost linear to 4", "as": "less"}
#: Cores of a server: Ivy Bridge, for which the model is written, and KNL, which the figure is of.
CORES = (24, 64)
#: What the file server gives: the paper does not say. 1 and 10 Gbit/s.
FILE_SERVERS = {"1 Gbit/s": 118.0 * MB, "10 Gbit/s": 1180.0 * MB}
#: Events of a unit: Windrow cuts units into parts where they take long, which simulated tasks are not.
UNIT = 50
#: Workers of a node, assumed.
PLACES = 16
WORKERS = (1, 4, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Charges:
    """What the driver and Dask take, in seconds; they do one thing at a time each."""

    launch_s: float = 0.55e-3  #: the driver, measured
    client_s: float = 1.4e-3  #: Dask's client, in the driver's process, for a batch of orders to a node; measured
    scheduler_s: float = 2.3e-3  #: Dask's scheduler, likewise
    latency_s: float = 0.1e-3  #: of a message, assumed


FREE = Charges(0.0, 0.0, 0.0, 0.0)


# -- a cluster ---------------------------------------------------------------------------------


class Servers(World):
    """Nodes of which each sets up what it has got from the one file server."""

    def __init__(self, model: Model, nodes: int, seed: int, report: Callable[..., None], file_server: float) -> None:
        super().__init__(model, nodes, seed, report, apart=True)
        self.file_server = FairShare(Device(streams=(1,), rates=(file_server,)).rate)
        self._own = {name: [FairShare(one.rate) for _ in range(nodes)] for name, one in model.devices.items()}
        self._shared += [self.file_server, *(one for each in self._own.values() for one in each)]

    def _stages(self, job: SimulatedJob, demand: Demand, costs: Costs) -> list[list[Chain]] | float:
        stages = super()._stages(job, demand, costs)
        if isinstance(stages, float) or costs.device is None:
            return stages
        shared, own = self.devices[costs.device], self._own[costs.device][self._home[job.worker.life.worker]]
        return [[self._by_way_of_the_server(chain, shared, own) for chain in chains] for chains in stages]

    def _by_way_of_the_server(self, chain: Chain, shared: FairShare, own: FairShare) -> Chain:
        steps: Chain = []
        for device, amount in chain:
            steps += [(self.file_server, amount), (own, amount)] if device is shared else [(device, amount)]
        return steps


class Cluster(SimulatedEngine):
    """Nodes behind Dask's scheduler: what goes to a node at a time is a batch."""

    def __init__(self, model: Model, nodes: int, seed: int, file_server: float, charges: Charges) -> None:
        super().__init__(model, nodes, seed=seed)
        self.world: Servers = Servers(model, nodes, seed, self._report, file_server)
        self.tally = self.world.tally
        self._charges, self._free = charges, 0.0
        self.batches = 0

    def do(self, commands: Sequence[Any]) -> None:
        batches: dict[int, list[Any]] = {}
        for command in commands:
            if isinstance(command, orders.Discard):  # it goes along with what comes next
                lives = [one.worker for one in command.holders if isinstance(one, Life)]
                node = self.world._home[lives[0]] if lives else 0
            else:
                life = command.source if isinstance(command, orders.Fetch) else command.life
                node = self.world._home[life.worker]
            batches.setdefault(node, []).append(command)
        charges = self._charges
        for batch in batches.values():
            if any(not isinstance(one, orders.Discard) for one in batch):
                launches = sum(isinstance(one, orders.Launch) for one in batch)
                service = launches * charges.launch_s + charges.client_s
                self._now += service
                self.tally.driver_s += service
                self._free = max(self._free, self._now) + charges.scheduler_s
                self.batches += 1
            self._sent += [(max(self._free, self._now) + charges.latency_s, one) for one in batch]


@dataclass
class Done:
    seconds: float
    tasks: int
    driver: float  #: share of the time that it is busy
    dask: float  #: likewise Dask's scheduler
    file_server: float
    end: float  #: share of the workers' time between their last task and the end
    longest_s: float


def go(
    model: Model, nodes: int, seed: int, *, file_server: float, charges: Charges, policies: Policies | None = None
) -> Done:
    engine = Cluster(
        replace(model, driver=DriverCosts(event_s=0.0, command_s=0.0, latency_s=charges.latency_s)),
        nodes,
        seed,
        file_server,
        charges,
    )
    feeder = RowFeeder(model.specs(), policies or Policies(shape=Guided(known(model))))
    nothing: Any = SimpleNamespace(content=attrgetter("payload"))
    with collecting_less():
        outcome = run(
            Scheduler(feeder, None, Options(restart=True, speculate=True)), engine, nothing, clock=engine.clock
        )
    assert outcome.status == "complete"
    wall, tally, size = outcome.wall_s, engine.tally, engine.world.size
    end = sum(wall - tally.last_task.get(worker, 0.0) for worker in range(size)) / size / wall
    return Done(
        wall, tally.tasks, tally.driver_s / wall, engine.batches * charges.scheduler_s / wall,
        engine.world.file_server.busy_s / wall, end, tally.longest_s,
    )  # fmt: skip


def known(model: Model) -> dict[str, StepCost]:
    """What a row costs: real runs know it from first rows, which simulated tasks do not look at."""
    (category,) = {one.category for one in model.inputs}
    costs = model.costs[category]
    assert isinstance(costs, AffineCosts)
    calls = [StepCost.of_call(rows, rows, rows * costs.per_row_s) for rows in (UNIT, 2 * UNIT)]
    return {category: calls[0].merge(calls[1])}


# -- HEP-Frame's servers -----------------------------------------------------------------------


def analysis(case: str, cores: int, seed: int, files: int = 1) -> Model:
    """One of the three analyses on servers of so many cores, with so many times its files."""
    model = load_model("hepframe_24core", seed=seed)
    inputs = tuple(SimulatedInput.even(case, one.rows, UNIT) for one in model.inputs if one.category == case)
    return replace(model, inputs=inputs * files, cores=None, nodes=(SimulatedNode(cores=cores),))


def servers(report: harness.Report, seeds: Sequence[int]) -> None:
    rows = []
    for case in CASES:
        for cores in CORES:
            for name, rate in FILE_SERVERS.items():

                def seconds(nodes: int, case: str = case, cores: int = cores, rate: float = rate) -> list[float]:
                    return [
                        go(analysis(case, cores, seed), nodes, seed, file_server=rate, charges=Charges()).seconds
                        for seed in seeds
                    ]

                alone = seconds(1)
                found = [
                    statistics.median(a / b for a, b in zip(alone, seconds(nodes), strict=True)) for nodes in SERVERS
                ]
                cells = [f"{one:.2f}x" for one in found]
                rows.append(
                    (f"ttH_{case}", cores, name, f"{statistics.median(alone):.1f} s", *cells, PAPER_SERVERS[case])
                )
                if case == "sci":
                    apart = max(max(a / b, b / a) for a, b in zip(found, PAPER_SCI, strict=True))
                    said = f"figure 14: ttH_sci, {cores} cores, {name}: times off the paper's"
                    why = None if apart <= 1.1 else "each worker has few tasks of two seconds: the last ones end apart"
                    report.claim(said, apart, 1.1, better="lower", reason=why)
    report.note("HEP-Frame's figure 14: times as fast as one server; a set-up device for each server, one file server.")
    report.table(("case", "cores", "file server", "one server", *(f"{one} servers" for one in SERVERS), "paper"), rows)


# -- up to 1,024 workers -----------------------------------------------------------------------


def workers(report: harness.Report, seeds: Sequence[int]) -> None:
    ways = {
        "all charged": (FILE_SERVERS["10 Gbit/s"], Charges()),
        "Dask for nothing": (FILE_SERVERS["10 Gbit/s"], replace(Charges(), client_s=0.0, scheduler_s=0.0)),
        "driver and Dask for nothing": (FILE_SERVERS["10 Gbit/s"], FREE),
        "all charged, 1 Gbit/s": (FILE_SERVERS["1 Gbit/s"], Charges()),
    }
    for files in (1, 10):
        rows = []
        base: dict[str, float] = {}
        fell = ""
        for many in WORKERS:
            places = min(many, PLACES)
            found = {
                name: [
                    go(analysis("sci", places, seed, files), many // places, seed, file_server=rate, charges=charges)
                    for seed in seeds
                ]
                for name, (rate, charges) in ways.items()
            }
            walls = {name: statistics.median(one.seconds for one in runs) for name, runs in found.items()}
            base = base or walls
            good = {name: base[name] / many / wall for name, wall in walls.items()}
            first = found["all charged"][0]
            fell = fell or (str(many) if good["all charged"] < 0.9 else "")
            rows.append((
                many, f"{walls['all charged']:.1f} s", first.tasks, f"{good['all charged']:.2f}", f"{first.driver:.0%}",
                f"{first.dask:.0%}", f"{first.file_server:.0%}", f"{first.end:.0%}", f"{first.longest_s:.1f} s",
                *(f"{good[name]:.2f}" for name in list(ways)[1:]),
            ))  # fmt: skip
        report.note(
            f"ttH_sci, {files * 128:,} files, nodes of {PLACES} workers: efficiency against one worker, how busy the driver, Dask's scheduler and the file "
            f"server are, what of the workers' time is after their last task, the longest task. Below 0.9 first with {fell or 'none'}."
        )
        headers = (
            "workers",
            "time",
            "tasks",
            "efficiency",
            "driver",
            "Dask",
            "files",
            "end",
            "longest",
            *list(ways)[1:],
        )
        report.table(headers, rows)


# -- DAPHNE's nodes ----------------------------------------------------------------------------

#: Rows and nonzeros of the matrices of figure 13, as in the SuiteSparse collection.
MATRICES = {
    "amazon0601": (403_394, 3_387_388),
    "wikipedia-20070206": (3_566_907, 45_030_389),
    "ljournal-2008": (5_363_260, 79_023_142),
}
THREADS = 20
#: Of wikipedia-20051105 with 19.75 M nonzeros 27.37 s on one thread become 16.52 s on six (figure 9): 13.0 s of it are
#: parallel; ten iterations are assumed.
NONZERO_S = 13.0 / 19_753_078 / 10
#: Bytes a second of a node's link: 100 Gbit/s, assumed.
LINK = 12.5e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration(Costs):
    """One iteration: a node gets the whole vector, and works on its rows with all threads."""

    row_s: float
    vector: float

    def demand(self, rows: Rows, tries: int, seed: int) -> Demand:  # noqa: ARG002 - nothing varies
        return Demand(free_s=self.row_s * (rows.stop - rows.start), read=self.vector)


def nodes(report: harness.Report) -> None:
    rows = []
    for name, (size, nonzeros) in MATRICES.items():
        costs = Iteration(row_s=NONZERO_S * nonzeros / size / THREADS, vector=8.0 * size, device="memory")
        fast = Device(streams=(1,), rates=(1e15,))
        walls = {}
        for many in range(1, 10):
            unit = -(-size // many)
            model = Model(
                inputs=(SimulatedInput.even("matrix", size, unit),), costs={"matrix": costs}, devices={"memory": fast},
                nodes=(SimulatedNode(cores=1),),
            )  # fmt: skip
            for how, charges in (("Dask", Charges()), ("free", FREE)):
                walls[how, many] = go(
                    model, many, 0, file_server=LINK, charges=charges, policies=Policies(shape=Fixed(unit))
                ).seconds
        for how in ("Dask", "free"):
            ratios = [walls[how, 1] / walls[how, many] for many in range(1, 10)]
            best = 1 + ratios.index(max(ratios))
            rows.append((name, how, f"{1e3 * walls[how, 1]:.0f} ms", *(f"{one:.2f}" for one in ratios[1:]), best))
    report.note(
        "DAPHNE's figure 13: an iteration of connected components on 1 to 9 nodes, times as fast as one; equal chunks, the vector goes to every node."
    )
    report.table(("matrix", "messages", "one node", *map(str, range(2, 10)), "best"), rows)


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    report = harness.Report("Clusters, simulated", harness.machine())
    seeds = range(1 if options.quick else 3)
    servers(report, seeds)
    workers(report, seeds)
    nodes(report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
