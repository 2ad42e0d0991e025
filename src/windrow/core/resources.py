"""The resource table: what pools offer, what is taken of them, and which workers have a place free.

A node, a device and the own offers of a worker are pools. A worker is one place on its pools: it runs one chain of
launches at a time, under one grant. Workers that draw from the same pools are one site, so that looking for room
costs a check per site and not per worker.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from windrow.core.records import IO, Granted, Needs, make_record
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.outputs import Output
    from windrow.core.records import Grant, Life, Worker
    from windrow.core.workers import WorkerState

#: Sums of fractions are rounded: a need is met by a pool that lacks a billionth of it.
ENOUGH = 1 - 1e-9


class Pool:
    """What is offered under one name, and what of it is taken."""

    __slots__ = ("grants", "name", "offers", "shrunk", "taken", "units")

    def __init__(self, name: str) -> None:
        self.name = name
        self.offers: dict[str, float] = {}
        self.taken: dict[str, float] = {}
        self.units: dict[str, list[int]] = {}  #: heaps of the numbers that are free, of resources that are devices
        self.grants = 0  #: parts of grants that are out
        self.shrunk = False  #: more is taken than offered, as it offered more before

    def take(self, name: str, amount: float, taken: float, until: str) -> Granted:
        """Take an amount of what is offered, of which ``taken`` is taken already."""
        self.taken[name] = taken + amount
        self.grants += 1
        units: tuple[int, ...] = ()
        if self.units and name in self.units:
            units = tuple([heappop(self.units[name]) for _ in range(min(int(amount), len(self.units[name])))])
        return make_record(Granted, (self.name, name, amount, units, until))

    def give(self, part: Granted) -> None:
        _, name, amount, units, _ = part
        self.taken[name] -= amount
        self.grants -= 1
        if not self.grants:
            self.taken.clear()  # and with it the rounding of sums
        for unit in units:
            heappush(self.units[name], unit)
        if self.shrunk:
            self.shrunk = any(one > self.offers.get(name, 0) for name, one in self.taken.items())


class Site:
    """Workers that draw from the same pools, and those of them that have nothing to do."""

    __slots__ = ("idle", "io", "names", "pools", "workers")

    def __init__(self, names: tuple[str, ...], pools: tuple[Pool, ...], io: bool) -> None:
        self.names = names
        self.pools = pools
        self.io = io
        self.idle: dict[int, WorkerState] = {}
        self.workers = 0  #: that get tasks, busy or not


class NeedsClass:
    """Tasks with the same needs: which of them is next, and what they wait for."""

    __slots__ = ("blocked_on", "io", "lasting", "listed", "needs", "parts", "possible", "queue", "version", "waiting")

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.io = any(name == IO for name, _ in needs.amounts)
        self.parts = tuple(part for part in needs.amounts if part[0] != IO)  #: what pools must have
        self.lasting = dict(needs.lasting)  #: by resource: the output with which it is given back
        self.queue: list[tuple[int, int, int, object]] = []  #: heap of the dispatch
        self.listed = -1  #: entry of its queue by which it is known among the first of all classes; -1: none
        self.waiting = 0  #: tasks in the queue
        self.blocked_on = "worker"  #: what the first of them lacked when it was last looked at
        self.possible = False  #: as of ``version``: a worker could run them with everything idle
        self.version = -1


class Resources:
    """All pools and sites of a run."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.sites: dict[tuple[tuple[str, ...], bool], Site] = {}
        self.open: dict[Site, None] = {}  #: sites with an idle worker; who waits longest first
        self.version = 0  #: grows when something else is offered
        self.grants = 0  #: so far
        self.reserved: dict[Site, NeedsClass] = {}  #: nothing else is placed there until the class fits
        self.lasting = 0  #: parts of grants that outputs keep

    # -- who offers what

    def set_pool(self, name: str, offers: Needs, devices: tuple[str, ...] = ()) -> None:
        pool = self._pool(name)
        pool.offers = dict(offers.amounts)
        pool.shrunk = any(taken > pool.offers.get(one, 0) for one, taken in pool.taken.items())
        for one in devices:
            if one not in pool.units:
                pool.units[one] = list(range(int(pool.offers.get(one, 0))))
                heapify(pool.units[one])
        self.version += 1

    def _pool(self, name: str) -> Pool:
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = Pool(name)
        return pool

    def join(self, worker: Worker) -> Site:
        """Find or make the site of a worker; its own offers are a pool."""
        names = worker.pools
        if worker.offers.amounts:
            own = _own(worker.life)
            self.set_pool(own, worker.offers)
            names = (own, *names)
        site = self.sites.get((names, worker.io))
        if site is None:
            site = self.sites[names, worker.io] = Site(names, tuple(map(self._pool, names)), worker.io)
        site.workers += 1
        self.version += 1
        return site

    def close(self, worker: WorkerState) -> None:
        self.set_busy(worker)
        worker.site.workers -= 1
        self.reserved.pop(worker.site, None)
        self.version += 1

    def forget(self, worker: WorkerState) -> None:
        self.pools.pop(_own(worker.life), None)
        if not worker.site.workers:
            self.sites.pop((worker.site.names, worker.site.io), None)

    def set_idle(self, worker: WorkerState) -> None:
        worker.site.idle[worker.id] = worker
        self.open[worker.site] = None

    def set_busy(self, worker: WorkerState) -> None:
        site = worker.site
        if site.idle.pop(worker.id, None) is not None and not site.idle:
            del self.open[site]

    # -- where tasks fit

    def find(self, cls: NeedsClass, prefer: list[WorkerState]) -> WorkerState | None:
        for worker in prefer:
            if worker.id in worker.site.idle and self.fits(cls, worker.site):
                return worker
        for site in self.open:
            if self.fits(cls, site):
                return next(iter(site.idle.values()))
        return None

    def fits(self, cls: NeedsClass, site: Site) -> bool:
        """Say whether the pools of a site have enough for a task now; notes what is lacking."""
        if site.io is not cls.io:
            return False
        if self.reserved and self.reserved.get(site, cls) is not cls:
            cls.blocked_on = "worker"
            return False
        for name, amount in cls.parts:
            for pool in site.pools:
                if pool.offers.get(name, 0) - pool.taken.get(name, 0) >= amount * ENOUGH:
                    break
            else:
                cls.blocked_on = name
                return False
        return True

    def could(self, cls: NeedsClass, site: Site) -> bool:
        return site.io is cls.io and all(
            any(pool.offers.get(name, 0) >= amount * ENOUGH for pool in site.pools) for name, amount in cls.parts
        )

    def possible(self, cls: NeedsClass) -> bool:
        """Say whether any worker could ever run a task with everything idle."""
        if cls.version != self.version:
            cls.version = self.version
            cls.possible = any(site.workers and self.could(cls, site) for site in self.sites.values())
        return cls.possible

    def largest(self, name: str) -> float:
        return max((pool.offers.get(name, 0) for pool in self.pools.values()), default=0)

    # -- grants

    def reserve(self, worker: WorkerState, cls: NeedsClass) -> Grant:
        grant: list[Granted] = []
        for name, amount in cls.parts:
            for pool in worker.site.pools:
                taken = pool.taken.get(name, 0)
                if pool.offers.get(name, 0) - taken >= amount * ENOUGH:
                    grant.append(pool.take(name, amount, taken, cls.lasting.get(name, "") if cls.lasting else ""))
                    break
            else:
                raise InternalError(f"worker {worker.id} and its pools have no {name}={amount:g} free")
        self.grants += 1
        return tuple(grant)

    def free(self, parts: Grant) -> None:
        for part in parts:
            pool = self.pools.get(part.pool)
            if pool is not None:
                pool.give(part)

    def keep(self, parts: Grant, outputs: dict[str, Output]) -> None:
        """A task is done: what lasts as long as an output of it is taken with that, the rest is free."""
        for part in parts:
            output = outputs.get(part.until)
            if output is None:
                self.free((part,))
            else:
                output.grant += (part,)
                self.lasting += 1

    def release(self, output: Output) -> None:
        """An output is gone, and what was taken with it is free."""
        self.lasting -= len(output.grant)
        self.free(output.grant)
        output.grant = ()


def _own(life: Life) -> str:
    return f"worker {life.worker}.{life.incarnation}"
