"""Who offers resources: workers and the pools they share, what is taken of them, and what is reserved for whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from windrow.core.records import Needs

__all__ = ["ENOUGH", "Bench", "Grant", "Hold", "Offerer", "Site"]

#: Sums of fractions are rounded: a need is met by an offer that lacks a billionth of it.
ENOUGH = 1 - 1e-9


class Offerer:
    """A worker or a pool: what it offers, and what of it is taken or held for somebody."""

    __slots__ = ("cut", "grants", "held", "name", "offers", "taken")

    def __init__(self, name: str) -> None:
        self.name = name
        self.offers: dict[str, float] = {}
        self.taken: dict[str, float] = {}
        self.held: dict[str, float] = {}
        self.grants = 0  #: reservations with a part of it
        self.cut = False  #: more is taken than offered, as it offered more before

    def has(self, name: str, amount: float) -> bool:
        """Say whether so much is free."""
        free = self.offers.get(name, 0) - self.taken.get(name, 0) - self.held.get(name, 0)
        return free >= amount * ENOUGH

    def set_offers(self, offers: Needs) -> None:
        """Offer this from now on; what is taken stays taken."""
        self.offers = dict(offers.amounts)
        self.cut = self._overtaken()

    def take(self, name: str, amount: float) -> None:
        """Take some away."""
        self.taken[name] = self.taken.get(name, 0) + amount

    def give(self, name: str, amount: float) -> None:
        """Give some back."""
        self.taken[name] -= amount

    def done(self) -> None:
        """A reservation has ended."""
        self.grants -= 1
        if not self.grants:
            self.taken.clear()  # and with it the rounding of sums
        self.cut = self.cut and self._overtaken()

    def _overtaken(self) -> bool:
        return any(one > self.offers.get(name, 0) for name, one in self.taken.items())


class Site(NamedTuple):
    """What workers must share to be alike but for their amounts."""

    pools: tuple[str, ...]
    names: tuple[str, ...]  #: what they offer themselves


class Bench(Offerer):
    """A worker as an offerer."""

    __slots__ = ("guests", "open", "site", "worker")

    def __init__(self, worker: int, pools: tuple[str, ...], offers: Needs) -> None:
        super().__init__(f"worker {worker}")
        self.worker = worker
        self.guests = 0  #: reservations that take nothing of its own
        self.open = True  #: it gets tasks
        self.set_offers(offers)
        self.site = Site(pools, tuple(self.offers))


class Grant(NamedTuple):
    """What is reserved for one task, or for the queue of rows of a worker."""

    bench: Bench
    parts: tuple[tuple[Offerer, str, float], ...]

    @property
    def guest(self) -> bool:
        """Whether it takes nothing of the worker itself."""
        for offerer, _, _ in self.parts:  # noqa: SIM110 - a generator takes twice as long
            if offerer is self.bench:
                return False
        return True


class Hold(NamedTuple):
    """Resources that are kept for a task that waited too long, as they become free."""

    key: int
    needs: Needs
    grant: Grant
