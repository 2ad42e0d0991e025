"""Things that are shared fairly by all who use them at a time: a disk, a link, processors, the interpreter lock.

Everybody who uses a shared thing gets the same share of it, and what it gives in all depends on how
many they are. So one clock per thing is enough: it shows how much each of its users has got since
it was idle. A reader is done when the clock has moved on by its amount, whatever other readers do
meanwhile; who is next is the top of a heap (the virtual time of fair queueing: Demers, Keshav and
Shenker 1989, doi:10.1145/75247.75248). Each coming and going costs the logarithm of the users.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A storage device or a link: bytes per second in all, by the number of streams at a time."""

    streams: tuple[int, ...]  #: growing from 1
    rates: tuple[float, ...]  #: bytes per second of all streams together
    latency_s: float = 0.0  #: of each request, during which nothing flows

    def __post_init__(self) -> None:
        grows = all(a < b for a, b in zip(self.streams, self.streams[1:], strict=False))
        if not self.streams or self.streams[0] != 1 or not grows:
            raise UsageError(f"streams of a device grow from 1, such as (1, 2, 4, 8); got {self.streams}")
        if len(self.rates) != len(self.streams) or min(self.rates) <= 0:
            raise UsageError(
                f"a device has one rate above 0 for each of its {len(self.streams)} numbers of "
                f"streams; got {self.rates}"
            )
        if self.latency_s < 0:
            raise UsageError(f"a device's latency is not negative; got {self.latency_s} s")

    def rate(self, users: int) -> float:
        """Give bytes per second in all: straight lines between the known points, then level."""
        streams, rates = self.streams, self.rates
        at = bisect_left(streams, users)
        if at == len(streams):
            return rates[-1]
        if streams[at] == users:
            return rates[at]
        low, high = streams[at - 1], streams[at]
        share = (users - low) / (high - low)
        return rates[at - 1] + share * (rates[at] - rates[at - 1])


def cores_rate(cores: int) -> Callable[[int], float]:
    """Give the rate of so many processors, or of a lock, which is one: seconds of use per second, one each at most."""
    return lambda users: float(min(users, cores))


@dataclass(slots=True, eq=False)
class User:
    """One use of a shared thing."""

    what: Any  #: whatever the one who came in wants to have back
    amount: float
    begun: float
    left: bool = False


class FairShare:
    """A shared thing in use; times must not go backwards."""

    __slots__ = ("_clock", "_heap", "_now", "_number", "_rate", "_share", "busy_s", "next", "users")

    def __init__(self, rate: Callable[[int], float]) -> None:
        self.users = 0
        self.next = inf  #: when the next user is done if nobody comes or goes
        self.busy_s = 0.0  #: time with at least one user
        self._rate = rate
        self._share = 0.0  #: what each user gets per second
        self._clock = 0.0  #: what each user got since the thing was idle
        self._now = 0.0
        self._heap: list[tuple[float, int, User]] = []  #: by what the clock shows when he is done
        self._number = count().__next__  #: equals are done in the order they came

    def enter(self, what: Any, amount: float, now: float) -> User:
        if self.users:
            self._move(now)
        else:
            self._now = now
        user = User(what, amount, now)
        heappush(self._heap, (self._clock + amount, self._number(), user))
        self._count(self.users + 1)
        return user

    def leave(self, user: User, now: float) -> None:
        if not user.left:
            user.left = True
            self._move(now)
            self._count(self.users - 1)

    def done(self) -> tuple[float, User]:
        """Move to ``next``; give that time and who is done then."""
        now = self.next
        self.busy_s += now - self._now
        self._now = now
        mark, _, user = heappop(self._heap)
        self._clock = mark  # exactly, so that rounding never adds up
        user.left = True
        self._count(self.users - 1)
        return now, user

    def _move(self, now: float) -> None:
        passed = now - self._now
        self._clock += passed * self._share
        self.busy_s += passed
        self._now = now

    def _count(self, users: int) -> None:
        """Set the number of users, and with it the pace; the first in the heap is then one who is still there."""
        heap = self._heap
        while heap and heap[0][2].left:
            heappop(heap)
        self.users = users
        if not users:
            self._clock = 0.0
            self.next = inf
            return
        share = self._share = self._rate(users) / users
        ahead = heap[0][0] - self._clock
        self.next = self._now + ahead / share if ahead > 0 else self._now
