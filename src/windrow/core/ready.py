"""Tasks that wait for a worker, by what they need: the order among them costs no search."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from windrow.core.commands import NO_LIMITS
from windrow.core.records import Needs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from windrow.core.offerers import Bench, Site

__all__ = ["Kind", "Ready"]

Amounts: TypeAlias = "tuple[tuple[str, float], ...]"
#: -priority, order, key, ticket
Entry: TypeAlias = "tuple[int, int, int, int]"


class Kind:
    """Tasks with the same needs: where they fit, and which of them is next."""

    __slots__ = ("_splits", "fits", "gone", "limits", "needs", "possible", "queue", "version")

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        memory = dict(needs.amounts).get("memory")
        self.limits = Needs((("memory", memory),)) if memory else NO_LIMITS  #: for its attempts
        self.fits: dict[Site, dict[int, Bench]] = {}  #: workers whose own offers suffice now
        self.queue: list[Entry] = []  #: heap
        self.gone = False  #: nobody waited: it was forgotten, and its needs may have another
        self.possible = False  #: as of ``version``: a worker could run it with everything idle
        self.version = -1
        self._splits: dict[tuple[str, ...], tuple[Amounts, Amounts]] = {}

    def split(self, names: tuple[str, ...]) -> tuple[Amounts, Amounts]:
        """Say what a worker that offers these names serves itself, and what its pools must."""
        found = self._splits.get(names)
        if found is None:
            own = tuple(one for one in self.needs.amounts if one[0] in names)
            shared = tuple(one for one in self.needs.amounts if one[0] not in names)
            found = self._splits[names] = own, shared
        return found


class Ready:
    """All waiting tasks, known by a number of their own: higher priority first, then the older."""

    def __init__(self, kinds: Collection[Kind]) -> None:
        self._kinds = kinds
        self._tickets: dict[int, int] = {}  #: key -> the entry that counts; others are stale
        self._next = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, key: int) -> bool:
        return key in self._tickets

    def push(self, kind: Kind, key: int, priority: int, order: int) -> None:
        """A task waits."""
        self._next += 1
        self._tickets[key] = self._next
        heappush(kind.queue, (-priority, order, key, self._next))

    def remove(self, key: int) -> None:
        """A task waits no longer; its entry is passed over when it comes up."""
        self._tickets.pop(key, None)

    def heads(self, without: Collection[Kind] = ()) -> list[tuple[Entry, Kind]]:
        """Give the next task of each kind, leaving out some kinds, as a heap: the very next is the first."""
        found = [(head, kind) for kind in self._kinds if (head := self.head(kind)) is not None and kind not in without]
        if len(found) > 1:
            heapify(found)
        return found

    def head(self, kind: Kind) -> Entry | None:
        """Give the entry of the next task of a kind."""
        queue = kind.queue
        while queue and self._tickets.get(queue[0][2]) != queue[0][3]:
            heappop(queue)
        return queue[0] if queue else None

    def waiting(self, kind: Kind) -> Iterable[int]:
        """List the tasks of a kind in order."""
        live = [one for one in sorted(kind.queue) if self._tickets.get(one[2]) == one[3]]
        return [key for _, _, key, _ in live]
