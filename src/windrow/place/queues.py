"""The queues of a loop: which chunk a worker takes next, and from whom it steals when its own queue is empty. Pure.

DAPHNE's layouts (one queue, one for each group, one for each worker), its round-robin and pre-partitioned filling and its four
ways to choose a victim ("D5.4 Prototype of the Scheduler", 2.3.4 and 2.3.5); and the stealing of ranges as LLVM's OpenMP has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

from windrow.errors import UnknownNameError, alternatives

if TYPE_CHECKING:
    from windrow.place.topology import Topology

LAYOUTS = ("centralized", "pergroup", "percpu")
VICTIMS = ("seq", "seqpri", "random", "randompri")


class Taken(NamedTuple):
    """Rows that a worker has taken, and from whose queue."""

    start: int
    stop: int
    queue: int
    stolen: bool = False
    chunks: int = 1  #: that were stolen at once
    far: bool = False  #: from another group


class Queues(Protocol):
    """The queues of one loop."""

    @property
    def said(self) -> Sequence[str]:
        """Decisions that users are told of."""

    def take(self, worker: int, now: float) -> Taken | None:
        """Give a worker its next rows; None: there is nothing left for it."""

    def rest(self) -> list[tuple[int, int]]:
        """Give all rows that nobody has taken, for who goes on alone."""

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float) -> None:
        """Take in what a chunk took, for schemes that measure."""


class Cutter(Protocol):
    """A partitioner of the rows of one queue."""

    @property
    def said(self) -> Sequence[str]: ...

    def cut(self, worker: int = 0, now: float = 0.0) -> tuple[int, int] | None: ...

    def rest(self) -> list[tuple[int, int]]: ...

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float = 0.0) -> None: ...


def fill_queues(
    rows: int,
    topology: Topology,
    cutter: Callable[[int, int], Cutter],
    *,
    layout: str = "centralized",
    victims: str = "seq",
    pre_partition: bool = False,
    draw: Callable[[int], int],
) -> FilledQueues:
    """Cut a loop's rows for workers at the places of a topology; a cutter is made for so many rows from some row on.

    ``draw`` gives a random number below another.
    """
    layout, victims = known("layout of queues", layout, LAYOUTS), known("way to choose victims", victims, VICTIMS)
    workers = len(topology)
    count = {"centralized": 1, "pergroup": max(topology.groups) + 1, "percpu": workers}[layout]
    queues: list[Cutter]
    if pre_partition or count == 1:
        queues = [cutter(stop - start, start) for start, stop in pre_partitioned(rows, count)]
    else:
        chunks = list(iter(cutter(rows, 0).cut, None))
        queues = [Chunks(chunks[number::count]) for number in range(count)]
    groups = topology.groups
    homes = [0] * workers if count == 1 else list(groups) if layout == "pergroup" else list(range(workers))
    #: of each queue the group
    theirs = list(range(count)) if layout == "pergroup" else list(groups)
    thieves = []
    for worker, home in enumerate(homes) if count > 1 else ():
        near = {queue for queue in range(count) if layout == "percpu" and theirs[queue] == groups[worker]}
        thieves.append(Thief(victims, home, count, near, draw))
    far = [{queue for queue in range(count) if theirs[queue] != group} for group in groups]
    return FilledQueues(queues, homes, thieves, far)


def pre_partitioned(rows: int, count: int) -> list[tuple[int, int]]:
    """Divide rows among queues; the first one gets what is left over."""
    share, more = divmod(rows, count)
    return list(pairwise([0, *(share * number + more for number in range(1, count + 1))]))


def known(what: str, name: str, names: tuple[str, ...]) -> str:
    """Give a name as it is known, or refuse it."""
    if str(name).lower() not in names:
        raise UnknownNameError(f"there is no {what} {name!r}{alternatives('known', name, names)}")
    return str(name).lower()


class Chunks:
    """A cutter of rows that were cut before the loop began."""

    said: Sequence[str] = ()

    def __init__(self, chunks: Sequence[tuple[int, int]]) -> None:
        self._chunks = deque(chunks)

    def cut(self, worker: int = 0, now: float = 0.0) -> tuple[int, int] | None:  # noqa: ARG002 - a Protocol's
        return self._chunks.popleft() if self._chunks else None

    def rest(self) -> list[tuple[int, int]]:
        left = list(self._chunks)
        self._chunks.clear()
        return left

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float = 0.0) -> None:
        pass


class Thief:
    """The order in which a worker looks for others' work once its own queue is empty."""

    def __init__(self, victims: str, home: int, count: int, near: set[int], draw: Callable[[int], int]) -> None:
        self._empty: set[int] = set()  #: queues that were seen to be empty: nothing comes after that
        self._count = count
        self._draw = draw
        around = [(home + offset) % count for offset in range(1, count)]
        first = near if victims.endswith("pri") else set[int]()
        if victims.startswith("seq"):
            self._steps: Iterator[int] = iter([*(one for one in around if one in first), *around])
            self._victim = next(self._steps, None)
        else:
            self._steps = iter(())
            self._victim = None
        #: among these the next is drawn, until all are empty
        self._drawn = [] if victims.startswith("seq") else [sorted(first), list(range(count))]

    def victim(self) -> int | None:
        """Say whose queue to look at; None: all were seen to be empty."""
        if not self._drawn:
            return self._victim
        for queues in self._drawn:
            left = [one for one in queues if one not in self._empty]
            if left:
                return left[self._draw(len(left))]
        return None

    def is_empty(self, queue: int) -> None:
        """Remember that nothing is left in a queue."""
        self._empty.add(queue)
        if queue == self._victim:
            self._victim = next(self._steps, None)


class FilledQueues:
    """Queues that are full in the beginning, from whose front owners and thieves take alike."""

    def __init__(
        self, queues: Sequence[Cutter], homes: Sequence[int], thieves: Sequence[Thief], far: Sequence[set[int]]
    ) -> None:
        self._queues = queues
        self._homes = homes
        self._thieves = thieves
        self._far = far  #: by worker: queues of other groups
        self._last = [0] * len(homes)  #: by worker: the queue of its last chunk

    @property
    def said(self) -> Sequence[str]:
        return [text for queue in self._queues for text in queue.said]

    def take(self, worker: int, now: float) -> Taken | None:
        home = self._homes[worker]
        rows = self._queues[home].cut(worker, now)
        if rows is not None:
            self._last[worker] = home
            return Taken(*rows, home)
        if not self._thieves:
            return None
        thief = self._thieves[worker]
        while (queue := thief.victim()) is not None:
            rows = self._queues[queue].cut(worker, now)
            if rows is not None:
                self._last[worker] = queue
                return Taken(*rows, queue, stolen=True, far=queue in self._far[worker])
            thief.is_empty(queue)
        return None

    def rest(self) -> list[tuple[int, int]]:
        return sorted(one for queue in self._queues for one in queue.rest() if one[0] < one[1])

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float) -> None:
        self._queues[self._last[worker]].done(worker, rows, run_s, overhead_s)


class RangeQueues:
    """Ranges of rows, as many chunks for each worker; who has none left takes a quarter of what another has, from its end."""

    said: Sequence[str] = ()

    def __init__(self, rows: int, groups: Sequence[int], grain: int) -> None:
        workers = len(groups)
        count = -(-rows // grain)
        if count < workers or workers == 1:
            grain, count = max(-(-rows // workers), 1), min(workers, rows)
        share, more = divmod(count, workers)
        self._rows, self._grain, self._groups = rows, grain, groups
        begins = [number * share + min(number, more) for number in range(workers + 1)]
        self._ranges = [list(pair) for pair in pairwise(begins)]
        self._victims = [(number + 1) % workers for number in range(workers)]

    def take(self, worker: int, now: float) -> Taken | None:  # noqa: ARG002 - as of other queues
        own = self._ranges[worker]
        if own[0] < own[1]:
            return self._front(worker, worker)
        workers = len(self._ranges)
        for _ in range(workers - 1):
            victim = self._victims[worker]
            theirs = self._ranges[victim]
            left = theirs[1] - theirs[0]
            if left >= 2:
                count = left // 4 if left > 3 else 1
                theirs[1] -= count
                own[:] = [theirs[1], theirs[1] + count]
                return self._front(worker, victim, count)
            self._victims[worker] = (victim + 1) % workers
            if self._victims[worker] == worker:
                self._victims[worker] = (worker + 1) % workers
        return None

    def _front(self, worker: int, queue: int, stolen: int = 0) -> Taken:
        own = self._ranges[worker]
        number = own[0]
        own[0] += 1
        stop = min((number + 1) * self._grain, self._rows)
        far = self._groups[queue] != self._groups[worker]
        return Taken(number * self._grain, stop, queue, bool(stolen), max(stolen, 1), far)

    def rest(self) -> list[tuple[int, int]]:
        left = [(begin * self._grain, min(end * self._grain, self._rows)) for begin, end in self._ranges]
        for own in self._ranges:
            own[0] = own[1]
        return sorted(one for one in left if one[0] < one[1])

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float) -> None:
        pass
