"""Jobs of simulated workers: what a job goes through, one stage after the other, and what it took.

A stage is a set of chains that run side by side; a chain is steps one after the other: so much of a shared thing, or seconds that
no other job has a hand in. Computing that needs the interpreter lock now and then is cut into slices with and without it, of drawn
lengths that add up exactly. So threads wait for each other as in a network of queues, and a task alone takes what it takes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from windrow.engines.simulated.model import drawn, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.core.commands import EngineCommand, Launch
    from windrow.core.records import Life
    from windrow.engines.simulated.devices import FairShare, User
    from windrow.engines.simulated.model import Costs, Demand, Model

#: Slices of a task's computing with the lock, and as many without. More are closer to a real
#: interpreter, which changes hands every 5 ms or at every call that lets go, and cost more events.
SLICES = 8

#: (the shared thing, or None for seconds by itself; how much)
Step: TypeAlias = "tuple[FairShare | None, float]"
Chain: TypeAlias = "list[Step]"
Stages: TypeAlias = "list[list[Chain]]"


class SharedThings(NamedTuple):
    """The shared things of a run."""

    devices: dict[str, FairShare]
    cores: FairShare | None  #: None: everybody has his own
    lock: FairShare | None  #: None: everybody has his own


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """One launch or fetch that a worker is at."""

    worker: SimulatedWorker
    command: Any  #: a Launch or a Fetch
    begun: float
    stages: Iterator[list[Chain]] = field(default_factory=lambda: iter(()))
    open: int = 0  #: chains of the stage that are not through
    users: dict[int, tuple[FairShare, User]] = field(default_factory=dict)  #: what its chains use now
    dead: bool = False  #: ended: what is still to come of it counts no more
    share: float = 1.0  #: of its work that is done before it is ended for its memory
    computing_s: float = 0.0
    cold_s: float = 0.0  #: of it, as the worker's first of its kind
    lock_wait_s: float = 0.0  #: while others had the lock
    cores_wait_s: float = 0.0  #: while others had the processors
    read: float = 0.0
    memory: float = 0.0


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """One life of a worker."""

    life: Life
    speed: float
    joined: float
    inbox: deque[EngineCommand] = field(default_factory=deque)
    job: SimulatedJob | None = None
    taking: bool = False  #: it is about to take up jobs
    cancelled: set[int] = field(default_factory=set)  #: attempts that are not to begin
    known: set[str] = field(default_factory=set)  #: categories it has run; the first run is slower


@dataclass(slots=True)
class Tally:
    """Where the workers' and the driver's time went: seconds, summed over all of them."""

    tasks: int = 0
    compute_s: float = 0.0
    cold_s: float = 0.0  #: of computing, by the first tasks of workers
    read_s: float = 0.0  #: waiting for what is read and not hidden by computing
    lock_wait_s: float = 0.0
    cores_wait_s: float = 0.0
    lost_s: float = 0.0  #: by what was ended early or lost with its worker
    other_s: float = 0.0  #: opening inputs, merging, fetching
    present_s: float = 0.0  #: from joining to leaving
    driver_s: float = 0.0  #: the driver's own
    longest_s: float = 0.0  #: of all tasks
    last_task: dict[int, float] = field(default_factory=dict)  #: when each worker was done with its last one

    def count(self, job: SimulatedJob, wall: float, now: float) -> None:
        """Count a task that was done."""
        self.tasks += 1
        self.compute_s += job.computing_s
        self.cold_s += job.cold_s
        self.lock_wait_s += job.lock_wait_s
        self.cores_wait_s += job.cores_wait_s
        rest = wall - job.computing_s - job.lock_wait_s - job.cores_wait_s
        self.read_s += max(0.0, rest)
        self.longest_s = max(self.longest_s, wall)
        self.last_task[job.worker.life.worker] = now


def launch_stages(
    job: SimulatedJob, command: Launch, demand: Demand, costs: Costs, things: SharedThings, model: Model, seed: int
) -> Stages | float:
    """Lay out a task: requests, reading, then computing with the rest of the reading beside it.

    For a task that uses nothing shared these are just seconds.
    """
    worker, share = job.worker, job.share
    speed = worker.speed / share
    free, locked = demand.free_s / speed, demand.locked_s / speed
    if command.task.category not in worker.known:
        job.cold_s = costs.cold_s / speed
        free += job.cold_s
    job.computing_s = free + locked
    job.read = demand.read * share
    wait = demand.blocked_s * share
    compute: Chain
    reads = job.read > 0 and costs.device is not None
    if things.lock is None or not locked:
        if things.cores is None and not reads:
            return wait + job.computing_s
        compute = [(things.cores, job.computing_s)]
    else:
        compute = _slices(free, locked, command, things, seed)
    if not reads:
        return [[[(None, wait), *compute]]]
    name = costs.device or ""
    device = things.devices[name]
    wait += costs.requests * model.devices[name].latency_s
    late = costs.overlap * job.read
    first: Chain = [(None, wait), (device, job.read - late)]
    return [[first], [compute, [(device, late)]]] if late else [[[*first, *compute]]]


def _slices(free: float, locked: float, command: Launch, things: SharedThings, seed: int) -> Chain:
    rows = rows_of(command.task)[0]
    pairs = [drawn(seed, 3, rows.input, rows.start, number) for number in range(SLICES)]
    without = [-math.log(first) for first, _ in pairs]
    holding = [-math.log(second) for _, second in pairs]
    per_without, per_holding = free / sum(without), locked / sum(holding)
    chain: Chain = []
    for one, other in zip(without, holding, strict=True):
        chain.append((things.cores, one * per_without))
        chain.append((things.lock, other * per_holding))
    return chain
