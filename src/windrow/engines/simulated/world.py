"""The world behind a simulated engine: workers come, work and go; shared things are shared.

Things happen one at a time, in the order of their times; equal times in the order they were
foreseen. Reports go to whoever made the world, at the time they are made.
"""

from __future__ import annotations

import math
from collections import Counter
from heapq import heappop, heappush
from itertools import count
from math import inf
from operator import add
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.commands import (
    Cancel,
    Discard,
    Fetch,
    Inspect,
    Launch,
    Merge,
    Recall,
    Shrink,
    StartWorker,
    StopWorker,
)
from windrow.core.records import Failure, FailureKind, Handle, Measurement, Worker
from windrow.engines.simulated.devices import FairShare, cores_rate, lock_rate
from windrow.engines.simulated.jobs import Job, SimulatedWorker, Tally, Things, launch_stages
from windrow.engines.simulated.model import Demand, drawn, releases_of, rows_of
from windrow.engines.simulated.results import Results, sent_along

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.commands import EngineCommand
    from windrow.core.events import Event
    from windrow.engines.base import Workload
    from windrow.engines.simulated.jobs import Chain
    from windrow.engines.simulated.model import Costs, Model

__all__ = ["World"]


class World:
    """All workers and shared things of a simulated run."""

    def __init__(
        self, model: Model, workers: int, seed: int, report: Callable[[Event, float], None], *, apart: bool
    ) -> None:
        self.model, self.seed = model, seed
        self.tally = Tally()
        devices = {name: FairShare(device.rate) for name, device in model.devices.items()}
        cores = model.cores
        self.things = Things(
            devices,
            FairShare(cores_rate(cores)) if cores is not None and cores < workers else None,
            None if apart else FairShare(lock_rate),
        )
        self._shared = [*devices.values(), *(x for x in self.things[1:] if x is not None)]
        self._apart = apart  #: workers can be stopped and held to limits
        self._count = workers
        self._report = report
        self._results = Results(model.inputs)
        self._workers: dict[int, SimulatedWorker] = {}
        self._lives: dict[int, int] = {}  #: worker -> its newest incarnation
        self._lost_at: dict[int, float] = {}  #: worker -> when it was lost last
        self._gone: set[int] = set()  #: workers that left for good
        self._timers: list[tuple[float, int, Callable[..., None], Any]] = []
        self._number = count().__next__
        self._first: FairShare | None = None  #: where the next thing happens; None: a timer
        self._tries: Counter[tuple[int, int]] = Counter()  #: by input and first row
        self._made_by: dict[int, str] = {}  #: the category, by attempt of a graph

    # -- the passing of time

    def begin(self, workload: Workload | None) -> None:
        """Foresee who comes and goes; a workload is run for its results."""
        self._results.workload = workload
        fleet = self.model.fleet
        for number in range(self._count):
            self._at(fleet.joins[number % len(fleet.joins)], self._join, (number, 0))
        for time, number in fleet.losses:
            self._at(time, self._lose_any, (number, False))
        for time, number in fleet.leaves:
            self._at(time, self._lose_any, (number, True))

    def next_time(self) -> float:
        """Say when the next thing happens."""
        time = self._timers[0][0] if self._timers else inf
        self._first = None
        for shared in self._shared:
            if shared.next < time:
                time, self._first = shared.next, shared
        return time

    def step(self) -> None:
        """Let the next thing happen, of which ``next_time`` just told."""
        if self._first is not None:
            self._used(self._first)
        else:
            time, _, action, argument = heappop(self._timers)
            action(time, argument)

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        return self._results.fetched.pop(handle.id)

    def end(self, now: float) -> None:
        """Take out all workers; nothing more happens."""
        for worker in list(self._workers.values()):
            self._remove(worker, now)
        self._timers.clear()

    def _at(self, time: float, action: Callable[..., None], argument: Any) -> None:
        heappush(self._timers, (time, self._number(), action, argument))

    # -- workers come and go

    def _join(self, now: float, life: tuple[int, int]) -> None:
        number, incarnation = life
        if number in self._workers or number in self._gone:
            return
        if incarnation <= self._lives.get(number, -1):
            return
        fleet = self.model.fleet
        speed = fleet.speeds[number % len(fleet.speeds)]
        self._lives[number] = incarnation
        self._workers[number] = SimulatedWorker(number, incarnation, speed, now)
        self._results.join(number, incarnation)
        if fleet.life_s is not None:
            first, _ = drawn(self.seed, 4, number, incarnation)
            self._at(now - fleet.life_s * math.log(first), self._lose, life)
        self._report(happened.WorkerJoined(Worker(number, incarnation)), now)

    def _start(self, now: float, life: tuple[int, int]) -> None:
        """Begin a life when that is possible again, if ever."""
        number = life[0]
        if number in self._gone:
            why = Failure(FailureKind.LOST, "Gone", f"worker {number} left for good")
            self._report(happened.WorkerLost(*life, why), now)
            return
        fleet = self.model.fleet
        rested = self._lost_at.get(number, -inf) + (fleet.rejoin_s or 0.0)
        self._at(max(now + fleet.start_s, rested), self._join, life)

    def _lose_any(self, now: float, which: tuple[int, bool]) -> None:
        number, for_good = which
        if for_good:
            self._gone.add(number)
        worker = self._workers.get(number)
        if worker is not None:
            self._lose(now, (number, worker.incarnation))

    def _lose(self, now: float, life: tuple[int, int]) -> None:
        number, incarnation = life
        worker = self._workers.get(number)
        if worker is None or worker.incarnation != incarnation:
            return
        self._remove(worker, now)
        self._lost_at[number] = now
        self._report(happened.WorkerLost(number, incarnation), now)
        rejoin = self.model.fleet.rejoin_s
        if rejoin is not None:
            self._at(now + rejoin, self._join, (number, incarnation + 1))

    def _remove(self, worker: SimulatedWorker, now: float) -> None:
        """Take a worker out with all it has."""
        if worker.job is not None:
            self._abandon(worker.job, now)
        self.tally.present_s += now - worker.joined
        del self._workers[worker.id]
        self._results.leave(worker.id)

    # -- commands

    def arrive(self, command: EngineCommand, now: float) -> None:
        """Give a command to its worker; one that is no more does not answer."""
        if isinstance(command, StartWorker):
            self._start(now, (command.worker, command.incarnation))
            return
        place = command.handle if isinstance(command, (Fetch, Discard)) else command
        worker = self._workers.get(place.worker)
        if worker is None or worker.life[1] != place.incarnation:
            if isinstance(command, Discard):
                self._results.forget(command.handle)
        elif isinstance(command, Cancel):
            self._cancel(worker, command, now)
        elif not isinstance(command, (Shrink, Recall)):  # which may be left undone
            worker.inbox.append(command)
            if worker.job is None:
                self._go_on(worker, now)

    def _cancel(self, worker: SimulatedWorker, command: Cancel, now: float) -> None:
        job = worker.job
        if job is None or _attempt(job) != command.attempt:
            worker.cancelled.add(command.attempt)
        elif self._apart:
            self._abandon(job, now)
            self._ended(job, happened.Cancelled(command.attempt, *worker.life), now)

    def _go_on(self, worker: SimulatedWorker, now: float) -> None:
        """Take up commands until one takes time."""
        inbox = worker.inbox
        worker.taking = True
        while inbox and worker.job is None:
            command = inbox.popleft()
            if isinstance(command, Launch):
                number = command.attempt
                if number in worker.cancelled:
                    worker.cancelled.discard(number)
                    self._report(happened.Cancelled(number, *worker.life), now)
                    continue
                self._report(happened.Started(number, *worker.life), now)
                worker.job = job = Job(worker, command, now)
                self._launch(job, command)
            elif isinstance(command, (Inspect, Merge, Fetch)):
                worker.job = job = Job(worker, command, now)
                self._alone(job, self._seconds(command) / worker.speed)
            elif isinstance(command, Discard):
                self._results.forget(command.handle)
            elif isinstance(command, StopWorker):
                self._remove(worker, now)
                self._report(happened.WorkerLost(*worker.life), now)
                return
        worker.taking = False

    def _seconds(self, command: Inspect | Merge | Fetch) -> float:
        """Say what a job takes that uses nothing shared."""
        if isinstance(command, Merge):
            costs = self._costs(command.into.rows[0].input)
            return costs.merge_s * (len(command.handles) - 1)
        if isinstance(command, Fetch):
            rows = command.handle.rows
            if not rows:
                return self.model.costs[self._made_by[command.handle.id]].fetch_s
            return self._costs(rows[0].input).fetch_s
        costs = self._costs(command.input)
        latency = self.model.devices[costs.device].latency_s if costs.device is not None else 0.0
        return costs.inspect_s + latency

    def _costs(self, number: int) -> Costs:
        return self.model.costs[self.model.inputs[number].category]

    def _launch(self, job: Job, command: Launch) -> None:
        rows = rows_of(command.task)
        place = rows.input, rows.start
        tries = self._tries[place]
        self._tries[place] = tries + 1
        costs = self.model.costs[command.task.category]
        demand = costs.demand(rows, tries, self.seed)
        for more in command.task.inputs[1:]:
            other = costs.demand(more, tries, self.seed)
            memory = max(demand.memory, other.memory)
            demand = Demand(*map(add, demand, other))._replace(memory=memory)
        job.memory = demand.memory
        if self._apart and command.limits.amounts:
            limits = dict(command.limits.amounts)
            most = limits.get("memory", inf)
            if demand.memory > most:
                # Memory is taken to grow evenly with the work.
                job.share, job.memory = most / demand.memory, most
            if "seconds" in limits:
                self._at(job.begun + limits["seconds"], self._too_long, job)
        tally = self.tally
        tally.memory += job.memory
        if tally.memory > tally.most_memory:
            tally.most_memory = tally.memory
        if not command.task.inputs:
            self._made_by[command.attempt] = command.task.category
        stages = launch_stages(job, command, demand, costs, self.things, self.model, self.seed)
        job.worker.known.add(command.task.category)
        if isinstance(stages, float):
            for share, name in releases_of(costs, command.task):
                self._at(job.begun + share * stages, self._release, (job, name))
            self._alone(job, stages)
        else:
            job.stages = iter(stages)
            self._next_stage(job, job.begun)

    def _release(self, now: float, what: tuple[Job, str]) -> None:
        """A task of a graph has made an output, and goes on."""
        job, name = what
        if not job.dead:
            number = _attempt(job) or 0
            handle = Handle(number, number, *job.worker.life, (), 0, name, here=True)
            self._report(happened.OutputReady(number, *job.worker.life, handle), now)

    # -- jobs

    def _alone(self, job: Job, seconds: float) -> None:
        """Go through with a job that nobody else has a hand in."""
        if seconds > 0:
            self._at(job.begun + seconds, self._through, job)
        else:
            self._finished(job, job.begun)

    def _through(self, now: float, job: Job) -> None:
        if not job.dead:
            self._finished(job, now)

    def _next_stage(self, job: Job, now: float) -> None:
        chains = next(job.stages, None)
        if chains is None:
            self._finished(job, now)
            return
        job.open = len(chains)
        for chain in chains:
            chain.reverse()
            self._next_step(now, (job, chain))

    def _next_step(self, now: float, place: tuple[Job, Chain]) -> None:
        """Go on with a chain; the last one through ends the stage."""
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
        """Somebody is done with a shared thing."""
        now, user = shared.done()
        job, chain = user.what
        del job.users[id(chain)]
        if shared is self.things.lock:
            job.lock_wait_s += now - user.begun - user.amount
        elif shared is self.things.cores:
            job.cores_wait_s += now - user.begun - user.amount
        self._next_step(now, user.what)

    def _abandon(self, job: Job, now: float) -> None:
        """Stop a job where it is."""
        job.dead = True
        for shared, user in job.users.values():
            shared.leave(user, now)
        self.tally.lost_s += now - job.begun
        self.tally.memory -= job.memory

    def _too_long(self, now: float, job: Job) -> None:
        if job.dead or job.worker.job is not job or not isinstance(job.command, Launch):
            return
        self._abandon(job, now)
        limit = dict(job.command.limits.amounts)["seconds"]
        who = job.command.attempt, *job.worker.life
        self._ended(job, happened.Exhausted(*who, "seconds", limit, now - job.begun), now)

    def _finished(self, job: Job, now: float) -> None:
        command, tally = job.command, self.tally
        wall = now - job.begun
        if not isinstance(command, Launch):
            tally.other_s += wall
            self._ended(job, self._results.of(command, job.worker.life), now)
            return
        tally.memory -= job.memory
        if job.share < 1:
            tally.lost_s += wall
            who = command.attempt, *job.worker.life
            used = job.memory / job.share
            self._ended(job, happened.Exhausted(*who, "memory", job.memory, used), now)
            return
        cpu = job.computing_s
        tally.count(job, wall, now)
        lock_wait = max(0.0, wall - cpu - job.cores_wait_s)
        used_memory = round(job.memory) if self._apart else 0
        measured = Measurement(wall, cpu, lock_wait, used_memory, round(job.read))
        event = self._results.of(command, job.worker.life, measured)
        self._ended(job, sent_along(event, command.task, self.model.costs), now)

    def _ended(self, job: Job, event: Event, now: float) -> None:
        worker = job.worker
        worker.job = None
        job.dead = True
        self._report(event, now)
        if not worker.taking:  # a job that takes no time ends within the loop that took it up
            self._go_on(worker, now)


def _attempt(job: Job) -> int | None:
    return job.command.attempt if isinstance(job.command, Launch) else None
