"""The world behind a simulated engine: workers come, work and go; shared things are shared.

Things happen one at a time, in the order of their times; equal times in the order they were foreseen. Reports go to the one who made
the world, at the time they are made.

A stage is a set of chains that run side by side; a chain is steps one after the other: so much of a shared thing, or seconds that
no other job has a hand in. Computing that needs the interpreter lock now and then is cut into slices with and without it, of drawn
lengths that add up exactly. So threads wait for each other as in a network of queues, and a task alone takes what it takes.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

from windrow.core import events as happened
from windrow.core.commands import Cancel, Discard, Fetch, Launch, Recall, StartWorker, StopWorker
from windrow.core.records import (
    DRIVER,
    NO_NEEDS,
    Failure,
    FailureKind,
    Handle,
    Life,
    Made,
    Measurement,
    MergePartials,
    Opened,
    OpenInput,
    RunRows,
    Worker,
    make_record,
)
from windrow.engines.job_runner import joined
from windrow.engines.simulated.devices import FairShare, cores_rate
from windrow.engines.simulated.model import Demand, drawn, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windrow.core.commands import EngineCommand
    from windrow.core.records import Holder, Task
    from windrow.engines.simulated.devices import User
    from windrow.engines.simulated.model import Costs, Model

#: Slices of a task's computing with the lock, and as many without. More are closer to a real
#: interpreter, which changes hands every 5 ms or at every call that lets go, and cost more events.
SLICES = 8

#: (the shared thing, or None for seconds by itself; how much)
Step: TypeAlias = "tuple[FairShare | None, float]"
Chain: TypeAlias = "list[Step]"

#: Of a worker that the model takes away.
LOST = Failure(FailureKind.LOST, "WorkerLost", "its worker went away")


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """One launch or fetch that a worker is at."""

    worker: SimulatedWorker
    command: Any  #: a Launch or a Fetch
    begun: float
    costs: Costs | None = None  #: of a launch
    stages: Iterator[list[Chain]] | None = None
    open: int = 0  #: chains of the stage that are not through
    users: dict[int, tuple[FairShare, User]] = field(default_factory=dict)  #: what its chains use now
    dead: bool = False  #: ended: what is still to come of it counts no more
    share: float = 1.0  #: of its work that is done before it is ended for its memory
    computing_s: float = 0.0
    beside_s: float = 0.0  #: of its other cores, meanwhile
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
        self.tasks += 1
        self.compute_s += job.computing_s
        self.cold_s += job.cold_s
        self.lock_wait_s += job.lock_wait_s
        self.cores_wait_s += job.cores_wait_s
        rest = wall - job.computing_s - job.lock_wait_s - job.cores_wait_s
        self.read_s += max(0.0, rest)
        self.longest_s = max(self.longest_s, wall)
        self.last_task[job.worker.life.worker] = now


class World:
    """All workers and shared things of a simulated run."""

    def __init__(
        self, model: Model, workers: int, seed: int, report: Callable[[happened.Event, float], None], *, apart: bool
    ) -> None:
        self.model, self.seed = model, seed
        self.tally = Tally()
        cores = model.cores
        self.devices = {name: FairShare(device.rate) for name, device in model.devices.items()}
        #: None: every worker has its own
        self._cores = FairShare(cores_rate(cores)) if cores is not None and cores < workers else None
        self._lock = None if apart else FairShare(cores_rate(1))
        self._shared = [*self.devices.values(), *(x for x in (self._cores, self._lock) if x is not None)]
        self._apart = apart  #: workers can be stopped and held to limits
        self._places: dict[int, range] = {}  #: node -> its workers; without nodes each is by itself
        self.size = 0  #: all workers
        for number in range(workers):
            more = model.nodes[number % len(model.nodes)].workers if model.nodes else 1
            self._places[number] = range(self.size, self.size + more)
            self.size += more
        self._home = {worker: number for number, places in self._places.items() for worker in places}
        self._report = report
        #: outputs (rows of partials, nothing of calls) and who has them
        self._values: dict[Handle, tuple[Any, set[Holder]]] = {}
        self._fetch_s: dict[int, float] = {}  #: what bringing an output takes, by attempt that made it
        self._workers: dict[int, SimulatedWorker] = {}
        self._lives: dict[int, int] = {}  #: worker -> its newest incarnation
        self._io: set[int] = set()  #: workers for input and output
        self._lost_at: dict[int, float] = {}  #: worker -> when it was lost last
        self._gone: set[int] = set()  #: workers that left for good
        self._timers: list[tuple[float, int, Callable[..., None], Any]] = []
        self._number = count().__next__
        self._first: FairShare | None = None  #: where the next thing happens; None: a timer
        self._tries: Counter[tuple[int, int]] = Counter()  #: by input and first row

    # -- the passing of time

    def begin(self) -> None:
        fleet, nodes = self.model.fleet, self.model.nodes
        for number, places in self._places.items():
            if nodes:
                self._report(happened.PoolChanged(f"node {number}", nodes[number % len(nodes)].offers()), 0.0)
            for worker in places:
                self._at(fleet.joins[number % len(fleet.joins)], self._join, Life(worker, 0))
        for time, number in fleet.losses:
            self._at(time, self._lose_any, (number, False))
        for time, number in fleet.leaves:
            self._at(time, self._lose_any, (number, True))

    def next_time(self) -> float:
        time = self._timers[0][0] if self._timers else inf
        self._first = None
        for shared in self._shared:
            if shared.next < time:
                time, self._first = shared.next, shared
        return time

    def step(self) -> None:
        if self._first is not None:
            self._used(self._first)
        else:
            time, _, action, argument = heappop(self._timers)
            action(time, argument)

    def take(self, handle: Handle, *, mine: bool) -> Any:
        value, _ = self._values[handle]
        if mine:
            self._discard(handle, (DRIVER,))
        return value

    def end(self, now: float) -> None:
        for worker in list(self._workers.values()):
            self._remove(worker, now)
        self._timers.clear()

    def _at(self, time: float, action: Callable[..., None], argument: Any) -> None:
        heappush(self._timers, (time, self._number(), action, argument))

    # -- workers come and go

    def _join(self, now: float, life: Life) -> None:
        number, incarnation = life
        if number in self._workers or number in self._gone or incarnation <= self._lives.get(number, -1):
            return
        fleet = self.model.fleet
        home = self._home.get(number, number)
        speed = fleet.speeds[home % len(fleet.speeds)]
        self._lives[number] = incarnation
        self._workers[number] = SimulatedWorker(life, speed, now)
        if fleet.life_s is not None:
            first, _ = drawn(self.seed, 4, home, incarnation)
            self._at(now - fleet.life_s * math.log(first), self._lose, life)
        if self.model.nodes and number not in self._io:
            self._report(happened.WorkerJoined(Worker(life, NO_NEEDS, (f"node {home}",))), now)
        else:
            self._report(joined(life, io=number in self._io), now)

    def _start(self, now: float, command: StartWorker) -> None:
        life = command.life
        if command.io:
            self._io.add(life.worker)
        if life.worker in self._gone:
            why = Failure(FailureKind.LOST, "Gone", f"worker {life.worker} left for good")
            self._report(happened.WorkerLost(life, why), now)
            return
        fleet = self.model.fleet
        rested = self._lost_at.get(life.worker, -inf) + (fleet.rejoin_s or 0.0)
        self._at(max(now + fleet.start_s, rested), self._join, life)

    def _lose_any(self, now: float, which: tuple[int, bool]) -> None:
        number, for_good = which
        for one in self._places.get(number, (number,)):
            if for_good:
                self._gone.add(one)
            worker = self._workers.get(one)
            if worker is not None:
                self._lose(now, worker.life)

    def _lose(self, now: float, life: Life) -> None:
        number, incarnation = life
        worker = self._workers.get(number)
        if worker is None or worker.life != life:
            return
        self._remove(worker, now)
        self._lost_at[number] = now
        self._report(happened.WorkerLost(life, LOST), now)
        rejoin = self.model.fleet.rejoin_s
        if rejoin is not None:
            self._at(now + rejoin, self._join, Life(number, incarnation + 1))

    def _remove(self, worker: SimulatedWorker, now: float) -> None:
        if worker.job is not None:
            self._abandon(worker.job, now)
        self.tally.present_s += now - worker.joined
        del self._workers[worker.life.worker]
        for handle in list(self._values):
            self._discard(handle, (worker.life,))

    # -- commands

    def arrive(self, command: EngineCommand, now: float) -> None:
        """Give a command to its worker; one that is no more does not answer."""
        if isinstance(command, Launch):  # by far the most
            life = command.life
        elif isinstance(command, StartWorker):
            self._start(now, command)
            return
        elif isinstance(command, Discard):
            self._discard(command.handle, command.holders)
            return
        else:
            life = command.source if isinstance(command, Fetch) else command.life
        worker = self._workers.get(life.worker)
        if worker is None or worker.life != life:
            return
        if isinstance(command, Launch) and command.bring:
            for place in command.bring:
                self._copy(command.inputs[place], life)
        if isinstance(command, Launch) and worker.job is None:
            self._begin(worker, command, now)
        elif isinstance(command, Cancel):
            self._cancel(worker, command, now)
        elif isinstance(command, Recall):
            self._recall(worker, command, now)
        else:
            worker.inbox.append(command)
            if worker.job is None:
                self._go_on(worker, now)

    def _copy(self, handle: Handle, holder: Holder) -> None:
        if handle in self._values:
            self._values[handle][1].add(holder)

    def _discard(self, handle: Handle, holders: Iterable[Holder]) -> None:
        if handle in self._values:
            left = self._values[handle][1]
            left.difference_update(holders)
            if not left:
                del self._values[handle]

    def _cancel(self, worker: SimulatedWorker, command: Cancel, now: float) -> None:
        job = worker.job
        if job is None or not isinstance(job.command, Launch) or job.command.attempt != command.attempt:
            worker.cancelled.add(command.attempt)
        elif self._apart:
            self._abandon(job, now)
            self._ended(job, happened.Cancelled(command.attempt, worker.life), now)

    def _recall(self, worker: SimulatedWorker, command: Recall, now: float) -> None:
        for one in worker.inbox:
            if isinstance(one, Launch) and one.attempt == command.attempt:
                worker.inbox.remove(one)
                self._report(happened.Cancelled(one.attempt, worker.life), now)
                return

    def _go_on(self, worker: SimulatedWorker, now: float) -> None:
        inbox = worker.inbox
        worker.taking = True
        while inbox and worker.job is None:
            command = inbox.popleft()
            if isinstance(command, Launch):
                self._begin(worker, command, now)
            elif isinstance(command, Fetch):
                worker.job = job = SimulatedJob(worker, command, now)
                self._alone(job, self._fetch_s[command.handle.attempt] / worker.speed)
            elif isinstance(command, StopWorker):
                self._remove(worker, now)
                self._report(happened.WorkerLost(worker.life), now)
                return
        worker.taking = False

    def _begin(self, worker: SimulatedWorker, launch: Launch, now: float) -> None:
        """Begin a launch, unless it was called off or what it reads is not there."""
        number, task = launch.attempt, launch.task
        missing = bool(launch.inputs) and any(handle not in self._values for handle in launch.inputs)
        if number in worker.cancelled or (missing and launch.ahead):
            worker.cancelled.discard(number)
            self._report(happened.Cancelled(number, worker.life), now)
            return
        if missing:
            lost = Failure(FailureKind.LOST, "OutputLost", f"what task {task.id} reads was gone when it began")
            self._report(happened.Failed(number, worker.life, lost), now)
            return
        self._report(make_record(happened.Started, (number, worker.life)), now)
        payload, model = task.payload, self.model
        inputs = isinstance(payload, (OpenInput, MergePartials))
        costs = model.costs[model.inputs[payload.input].category if inputs else task.category]
        worker.job = job = SimulatedJob(worker, launch, now, costs)
        if not inputs:
            self._compute(job, launch, costs)
        elif isinstance(payload, MergePartials):
            merges = len(launch.inputs) - 1
            self._alone(job, costs.merge_s * merges / worker.speed)
        else:
            latency = model.devices[costs.device].latency_s if costs.device is not None else 0.0
            self._alone(job, (costs.inspect_s + latency) / worker.speed)

    def _compute(self, job: SimulatedJob, launch: Launch, costs: Costs) -> None:
        task = launch.task
        demand = self._demand(launch, costs)
        job.memory = demand.memory
        if self._apart and (launch.limits.amounts or self.model.nodes):
            limits = dict(launch.limits.amounts)
            most = min(limits.get("memory", inf), self._node_memory(job.worker))
            if demand.memory > most:
                # Memory is taken to grow evenly with the work.
                job.share, job.memory = most / demand.memory, most
            if "seconds" in limits:
                self._at(job.begun + limits["seconds"], self._too_long, job)
        stages = self._stages(job, demand, costs)
        job.worker.known.add(task.category)
        if isinstance(stages, float):
            for share, name in costs.releases(task.id):
                self._at(job.begun + share * stages, self._release, (job, name))
            self._alone(job, stages)
        else:
            job.stages = iter(stages)
            self._next_stage(job, job.begun)

    def _node_memory(self, worker: SimulatedWorker) -> float:
        nodes = self.model.nodes
        return (nodes[self._home[worker.life.worker] % len(nodes)].memory if nodes else 0.0) or inf

    def _stages(self, job: SimulatedJob, demand: Demand, costs: Costs) -> list[list[Chain]] | float:
        """Lay out a task: requests, reading, then computing with the rest of the reading beside it.

        For a task that uses nothing shared these are just seconds.
        """
        worker, task, share = job.worker, job.command.task, job.share
        speed = worker.speed / share
        free, locked = demand.free_s / speed, demand.locked_s / speed
        if demand.parallel_s:
            cores = sum(part.amount for part in job.command.grant if part.name == "cores")
            shared = demand.parallel_s / max(cores, 1.0) / speed
            job.beside_s = demand.parallel_s / speed - shared
            free += shared
        if task.category not in worker.known:
            job.cold_s = costs.cold_s / speed
            free += job.cold_s
        job.computing_s = free + locked
        job.read = demand.read * share
        wait = demand.blocked_s * share
        compute: Chain
        reads = job.read > 0 and costs.device is not None
        if self._lock is None or not locked:
            if self._cores is None and not reads:
                return wait + job.computing_s
            compute = [(self._cores, job.computing_s)]
        else:
            compute = self._slices(free, locked, task)
        if not reads:
            return [[[(None, wait), *compute]]]
        name = costs.device or ""
        device = self.devices[name]
        wait += costs.requests * self.model.devices[name].latency_s
        late = costs.overlap * job.read
        first: Chain = [(None, wait), (device, job.read - late)]
        return [[first], [compute, [(device, late)]]] if late else [[[*first, *compute]]]

    def _slices(self, free: float, locked: float, task: Task) -> Chain:
        rows = rows_of(task)[0]
        pairs = [drawn(self.seed, 3, rows.input, rows.start, number) for number in range(SLICES)]
        without = [-math.log(first) for first, _ in pairs]
        holding = [-math.log(second) for _, second in pairs]
        per_without, per_holding = free / sum(without), locked / sum(holding)
        chain: Chain = []
        for one, other in zip(without, holding, strict=True):
            chain.append((self._cores, one * per_without))
            chain.append((self._lock, other * per_holding))
        return chain

    def _demand(self, launch: Launch, costs: Costs) -> Demand:
        first, *more = rows_of(launch.task)
        place = first.input, first.start
        tries = self._tries[place]
        self._tries[place] = tries + 1
        demand = costs.demand(first, tries, self.seed)
        for rows in more:
            other = costs.demand(rows, tries, self.seed)
            memory = max(demand.memory, other.memory)
            demand = Demand(*map(add, demand, other))._replace(memory=memory)
        return demand

    def _release(self, now: float, what: tuple[SimulatedJob, str]) -> None:
        job, name = what
        if not job.dead:
            self._keep(job, name, ())
            self._report(happened.OutputReady(job.command.attempt, job.worker.life, Made(name, here=True)), now)

    # -- jobs

    def _alone(self, job: SimulatedJob, seconds: float) -> None:
        """Let a job take a time in which it shares nothing."""
        if seconds > 0:
            self._at(job.begun + seconds, self._finished, job)
        else:
            self._finished(job.begun, job)

    def _next_stage(self, job: SimulatedJob, now: float) -> None:
        chains = next(job.stages, None) if job.stages is not None else None
        if chains is None:
            self._finished(now, job)
            return
        job.open = len(chains)
        for chain in chains:
            chain.reverse()
            self._next_step(now, (job, chain))

    def _next_step(self, now: float, place: tuple[SimulatedJob, Chain]) -> None:
        job, chain = place
        if job.dead:
            return
        while chain:
            shared, amount = chain.pop()
            if amount > 0:
                if shared is None:
                    self._at(now + amount, self._next_step, place)
                else:
                    job.users[id(chain)] = shared, shared.enter(place, amount, now)
                return
        job.open -= 1
        if not job.open:
            self._next_stage(job, now)

    def _used(self, shared: FairShare) -> None:
        now, user = shared.done()
        job, chain = user.what
        del job.users[id(chain)]
        if shared is self._lock:
            job.lock_wait_s += now - user.begun - user.amount
        elif shared is self._cores:
            job.cores_wait_s += now - user.begun - user.amount
        self._next_step(now, user.what)

    def _abandon(self, job: SimulatedJob, now: float) -> None:
        job.dead = True
        for shared, user in job.users.values():
            shared.leave(user, now)
        self.tally.lost_s += now - job.begun

    def _too_long(self, now: float, job: SimulatedJob) -> None:
        if job.dead or job.worker.job is not job:
            return
        self._abandon(job, now)
        limit = dict(job.command.limits.amounts)["seconds"]
        self._ended(
            job, happened.Exhausted(job.command.attempt, job.worker.life, "seconds", limit, now - job.begun), now
        )

    def _finished(self, now: float, job: SimulatedJob) -> None:
        """Say how a job ended that took its time, and keep what it made."""
        if job.dead:
            return
        command, life, tally = job.command, job.worker.life, self.tally
        wall = now - job.begun
        if isinstance(command, Fetch):
            tally.other_s += wall
            self._copy(command.handle, command.to)
            self._ended(job, happened.Held(command.handle), now)
            return
        payload, report = command.task.payload, None
        used: Measurement | None = None
        value: Any = ()
        here = False
        if isinstance(payload, OpenInput):
            tally.other_s += wall
            found = self.model.inputs[payload.input]
            report = Opened(found.rows, found.borders)
        elif isinstance(payload, MergePartials):
            tally.other_s += wall
            tally.last_task[life.worker] = now  # a worker that merges does not wait for the end
            value = tuple([rows for handle in command.inputs for rows in self._values.pop(handle)[0]])
        else:
            if job.share < 1:
                tally.lost_s += wall
                more = job.memory / job.share
                self._ended(job, happened.Exhausted(command.attempt, life, "memory", job.memory, more), now)
                return
            tally.count(job, wall, now)
            lock_wait = max(0.0, wall - job.computing_s - job.cores_wait_s)
            memory = round(job.memory) if self._apart else 0
            used = make_record(
                Measurement, (wall, job.computing_s + job.beside_s, lock_wait, memory, round(job.read), 0, 0.0, 0)
            )  # fmt: skip
            if isinstance(payload, RunRows):
                value = payload.rows
            else:  # outputs of calls travel with the report that they are there, where fetching them would cost nothing
                assert job.costs is not None
                here = not job.costs.fetch_s
        made = tuple(
            [
                self._keep(job, name, value, here=here)
                for name in command.task.makes
                if (name, command.attempt) not in self._values
            ]
        )
        used = used or Measurement(wall)
        self._ended(job, make_record(happened.Finished, (command.attempt, life, made, used, report)), now)

    def _keep(self, job: SimulatedJob, name: str, value: Any, *, here: bool = True) -> Made:
        assert job.costs is not None
        holders: set[Holder] = {job.worker.life, DRIVER} if here else {job.worker.life}
        self._values[make_record(Handle, (name, job.command.attempt))] = value, holders
        self._fetch_s[job.command.attempt] = job.costs.fetch_s
        return make_record(Made, (name, 0, here))

    def _ended(self, job: SimulatedJob, event: happened.Event, now: float) -> None:
        worker = job.worker
        worker.job = None
        job.dead = True
        self._report(event, now)
        if worker.inbox and not worker.taking:  # a job that takes no time ends within the loop that took it up
            self._go_on(worker, now)
