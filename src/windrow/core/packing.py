"""Named resources: who offers them, what is taken of them, and where the next task fits.

Workers and pools (a machine, a device) are offerers. A need is served by the worker if it offers
that name at all, otherwise by one of its pools. Tasks that need the same are one kind. Each kind
knows the workers whose own offers suffice now, grouped by the pools they share, and its waiting
tasks in order: a placement looks at kinds and groups, never at all tasks or all workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from windrow.core.offerers import ENOUGH, Bench, Grant, Hold, Offerer, Site
from windrow.core.ready import Kind
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windrow.core.records import Needs

__all__ = ["MAX_GUESTS", "Packing"]

#: Tasks that need nothing of a worker itself (they wait for a device) that it may have at a time.
MAX_GUESTS = 16
#: Kinds that are never worth forgetting.
FEW_KINDS = 32

#: Says whether an offerer is to count for so much of a resource.
Enough: TypeAlias = "Callable[[Offerer, str, float], bool]"


def _offered(offerer: Offerer, name: str, amount: float) -> bool:
    return offerer.offers.get(name, 0) >= amount * ENOUGH


class Packing:
    """All offerers of a run, and the kinds of tasks that they are shared out to."""

    def __init__(self, rows: Needs) -> None:
        self.benches: dict[int, Bench] = {}
        self.pools: dict[str, Offerer] = {}
        self.kinds: dict[Needs, Kind] = {}
        self.touched: dict[int, None] = {}  #: workers that may have got or lost room for rows
        self.reservations = 0  #: so far
        self.version = 0  #: grows when somebody offers something else
        self.holding: Hold | None = None
        self._idle: dict[Site, dict[int, Bench]] = {}  #: who has no task, of those who get some
        self._had: dict[Site, bool] = {}  #: whether pools had enough for rows when last looked
        self._sweep_at = FEW_KINDS
        self._rows = self.kind(rows)

    # -- who offers what

    def join(self, worker: int, offers: Needs, pools: tuple[str, ...]) -> None:
        """A worker offers something; a new life of one begins from nothing."""
        self.leave(worker)
        bench = self.benches[worker] = Bench(worker, pools, offers)
        self._idle.setdefault(bench.site, {})[worker] = bench
        self._changed(bench)

    def leave(self, worker: int) -> None:
        """A worker is gone; what its tasks took of pools is freed with their grants."""
        bench = self.benches.pop(worker, None)
        if bench is not None:
            self._withdraw(bench)

    def close(self, worker: int) -> None:
        """A worker gets no more tasks."""
        self._withdraw(self.benches[worker])

    def set_offers(self, worker: int, offers: Needs) -> None:
        """A worker offers more or less."""
        bench = self.benches[worker]
        still_open = bench.open
        self._withdraw(bench)
        bench.open = still_open
        bench.set_offers(offers)
        bench.site = Site(bench.site.pools, tuple(bench.offers))
        idle = self._idle.setdefault(bench.site, {})
        if still_open and not bench.grants:
            idle[worker] = bench
        self._changed(bench)

    def set_pool(self, name: str, offers: Needs) -> None:
        """A pool offers this from now on."""
        self.unhold()
        self._pool(name).set_offers(offers)
        self.version += 1
        self.touched.update(dict.fromkeys(self.benches))

    def _pool(self, name: str) -> Offerer:
        pool = self.pools.get(name)
        if pool is None:
            pool = self.pools[name] = Offerer(name)
        return pool

    def _withdraw(self, bench: Bench) -> None:
        """Let nobody find a worker any more."""
        if self.holding is not None and self.holding.grant.bench is bench:
            self.unhold()
        bench.open = False
        self._idle[bench.site].pop(bench.worker, None)
        for kind in self.kinds.values():
            kind.fits.get(bench.site, {}).pop(bench.worker, None)
        self._changed(bench)

    def _changed(self, bench: Bench) -> None:
        self.version += 1
        self.touched[bench.worker] = None
        for kind in self.kinds.values():
            self._index(kind, bench)

    # -- where tasks fit

    def kind(self, needs: Needs) -> Kind:
        """Find or make the kind of tasks with these needs."""
        kind = self.kinds.get(needs)
        if kind is None:
            if len(self.kinds) >= self._sweep_at:
                self._sweep()
            kind = self.kinds[needs] = Kind(needs)
            for bench in self.benches.values():
                self._index(kind, bench)
        return kind

    def _sweep(self) -> None:
        """Forget kinds of which no task waits: users may give every task needs of its own."""
        for needs, kind in list(self.kinds.items()):
            if not kind.queue and kind is not self._rows:
                kind.gone = True
                del self.kinds[needs]
        self._sweep_at = max(FEW_KINDS, 2 * len(self.kinds))

    def _index(self, kind: Kind, bench: Bench) -> bool:
        """Note whether a worker's own offers suffice for a kind now; True if that is news."""
        own, _ = kind.split(bench.site.names)
        fits = bench.open
        if not own:
            fits = fits and bench.guests < MAX_GUESTS
        elif fits:
            for name, amount in own:  # a generator takes twice as long, twice for every task
                if not bench.has(name, amount):
                    fits = False
                    break
        at = kind.fits.get(bench.site)
        if at is None:
            at = kind.fits[bench.site] = {}
        if fits == (bench.worker in at):
            return False
        if fits:
            at[bench.worker] = bench
        else:
            del at[bench.worker]
        return True

    def _pools_have(self, kind: Kind, site: Site) -> bool:
        _, shared = kind.split(site.names)
        for name, amount in shared:
            for pool in site.pools:
                if self._pool(pool).has(name, amount):
                    break
            else:
                return False
        return True

    def find(self, kind: Kind, prefer: Iterable[int] = (), key: int = -1) -> int | None:
        """Find a worker with room for a task, one of those preferred if possible."""
        hold = self.holding
        mine = hold is not None and hold.key == key
        if mine:
            self.unhold()
        found = self._find(kind, prefer)
        if mine and found is None:
            self._hold(hold)
        return found

    def _find(self, kind: Kind, prefer: Iterable[int]) -> int | None:
        for worker in prefer:
            bench = self.benches.get(worker)
            if bench and worker in kind.fits[bench.site] and self._pools_have(kind, bench.site):
                return worker
        for site, benches in kind.fits.items():
            if benches and self._pools_have(kind, site):
                own, _ = kind.split(site.names)
                return next(iter(benches if own else self._idle[site] or benches))
        return None

    def room_for_rows(self, worker: int, *, more: bool = False) -> bool:
        """Say whether a worker could begin with rows now, or do ``more`` where it does some."""
        bench = self.benches[worker]
        if more:
            cut = bench.cut or any(self._pool(name).cut for name in bench.site.pools)
            return not cut and self.could(worker, self._rows.needs) and not self._contested(bench)
        return worker in self._rows.fits[bench.site] and self._pools_have(self._rows, bench.site)

    def _contested(self, bench: Bench) -> bool:
        """Say whether what rows take at a worker is held for a task."""
        if self.holding is None:
            return False
        own, shared = self._rows.split(bench.site.names)
        return any(
            (name in dict(own) if offerer is bench else name in dict(shared))
            for offerer, name, _ in self.holding.grant.parts
            if offerer is bench or offerer.name in bench.site.pools
        )

    def could(self, worker: int, needs: Needs) -> bool:
        """Say whether a worker and its pools offer enough, whatever is taken of it."""
        bench = self.benches[worker]
        own, shared = self.kind(needs).split(bench.site.names)
        pools = [self._pool(name) for name in bench.site.pools]
        return all(bench.offers[name] >= amount * ENOUGH for name, amount in own) and all(
            any(pool.offers.get(name, 0) >= amount * ENOUGH for pool in pools) for name, amount in shared
        )

    def possible(self, kind: Kind) -> bool:
        """Say whether any worker could ever run such a task with everything idle."""
        if kind.version != self.version:
            kind.version = self.version
            kind.possible = any(bench.open and self.could(worker, kind.needs) for worker, bench in self.benches.items())
        return kind.possible

    def largest(self, name: str) -> float:
        """Say how much of a resource the largest offerer has."""
        offerers: list[Offerer] = [bench for bench in self.benches.values() if bench.open]
        return max((one.offers.get(name, 0) for one in [*offerers, *self.pools.values()]), default=0)

    # -- reservations

    def reserve(self, worker: int, needs: Needs) -> Grant:
        """Take what a task needs, which must be free."""
        bench = self.benches[worker]
        grant = self._grant(bench, needs, Offerer.has)
        offerers = set()
        for offerer, name, amount in grant.parts:
            offerer.take(name, amount)
            if offerer not in offerers:
                offerers.add(offerer)
                offerer.grants += 1
        if grant.guest:
            bench.guests += 1
            bench.grants += 1
        self._idle[bench.site].pop(worker, None)
        self.reservations += 1
        self._refresh(grant)
        return grant

    def free(self, grant: Grant) -> None:
        """Give a reservation back; what a worker took along when it left is gone."""
        bench = grant.bench
        cut = any(offerer.cut for offerer, _, _ in grant.parts)
        for offerer, name, amount in grant.parts:
            offerer.give(name, amount)
        for offerer in {one.name: one for one, _, _ in grant.parts}.values():
            offerer.done()
        if cut:
            self.touched.update(dict.fromkeys(self.benches))
        if grant.guest:
            bench.guests -= 1
            bench.done()
        if bench.open and not bench.grants:
            self._idle[bench.site][bench.worker] = bench
        self._refresh(grant)

    def _grant(self, bench: Bench, needs: Needs, enough: Enough) -> Grant:
        own, shared = self.kind(needs).split(bench.site.names)
        parts: list[tuple[Offerer, str, float]] = []
        for name, amount in own:
            if not enough(bench, name, amount):
                raise InternalError(f"{bench.name} has not enough free for {dict(own)}")
            parts.append((bench, name, amount))
        for name, amount in shared:
            for pool in bench.site.pools:
                found = self._pool(pool)
                if enough(found, name, amount):
                    parts.append((found, name, amount))
                    break
            else:
                raise InternalError(f"{bench.name} and its pools have no {name}={amount:g} free")
        return Grant(bench, tuple(parts))

    def _refresh(self, grant: Grant) -> None:
        """Note who has room now that a worker and perhaps pools have more or less free."""
        bench = grant.bench
        if self.benches.get(bench.worker) is bench:
            for kind in self.kinds.values():
                if self._index(kind, bench) and kind is self._rows:
                    self.touched[bench.worker] = None
        for offerer, _, _ in grant.parts:
            if offerer is not bench:
                self._pool_touched(offerer.name)

    def _pool_touched(self, name: str) -> None:
        """Rows that draw from a pool may have room, or none, at all workers that share it."""
        for site in self._idle:
            if name in site.pools and self._rows.split(site.names)[1]:
                have = self._pools_have(self._rows, site)
                if have != self._had.get(site):
                    self._had[site] = have
                    alike = (one for one, bench in self.benches.items() if bench.site == site)
                    self.touched.update(dict.fromkeys(alike))

    # -- tasks that waited too long

    def hold(self, key: int, kind: Kind) -> None:
        """Keep what a task needs as it becomes free, at the worker that lacks least of it."""
        if self.holding is not None:
            return
        able = [one for one in self.benches if self.benches[one].open and self.could(one, kind.needs)]
        if able:
            worker = min(able, key=lambda one: self.benches[one].grants)
            grant = self._grant(self.benches[worker], kind.needs, _offered)
            self._hold(Hold(key, kind.needs, grant))

    def _hold(self, hold: Hold | None) -> None:
        self.holding = hold
        if hold is not None:
            for offerer, name, amount in hold.grant.parts:
                offerer.held[name] = amount
            self._refresh(hold.grant)
            self.touched.update(dict.fromkeys(self.benches))

    def unhold(self) -> None:
        """Let anybody have what was kept."""
        hold, self.holding = self.holding, None
        if hold is not None:
            for offerer, name, _ in hold.grant.parts:
                offerer.held.pop(name, None)
            self._refresh(hold.grant)
            self.touched.update(dict.fromkeys(self.benches))
