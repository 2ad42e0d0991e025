"""The queues of a loop: which chunk a worker takes next, and from whom it steals when its own queue is empty. Pure.

DAPHNE's layouts (one queue, one for each group, one for each worker), its round-robin and pre-partitioned filling and its four
ways to choose a victim ("D5.4 Prototype of the Scheduler", 2.3.4 and 2.3.5); and the stealing of ranges as LLVM's OpenMP has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from windrow.place.loop_trace import LoopChunk
    from windrow.place.topology import Topology

LAYOUTS = ("centralized", "pergroup", "percpu")
VICTIMS = ("seq", "seqpri", "random", "randompri")


class Taken(NamedTuple):
    """Rows that a worker has taken, and from whose queue."""

    start: int
    stop: int
    queue: int = 0
    stolen: int = 0  #: chunks that were stolen at once; 0: its own
    far: bool = False  #: stolen from another group


class Cutter(Protocol):
    """A partitioner of the rows of one queue."""

    @property
    def said(self) -> Sequence[str]: ...

    def cut(self, worker: int = 0, now: float = 0.0) -> tuple[int, int] | None: ...

    def rest(self) -> list[tuple[int, int]]: ...

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float = 0.0) -> None: ...


class Chunks(deque[tuple[int, int]]):
    """A cutter of rows that were cut before the loop began."""

    said = ()

    def cut(self, *_: float) -> tuple[int, int] | None:
        return self.popleft() if self else None

    def rest(self) -> list[tuple[int, int]]:
        return list(iter(self.cut, None))

    def done(self, *_: float) -> None:
        pass


class Thief:
    """The victims of a worker once its own queue is empty: first those near it, if they come first, and then all."""

    def __init__(self, victims: str, home: int, count: int, near: set[int], draw: Callable[[int], int]) -> None:
        around = [(home + offset) % count for offset in range(1, count)]
        self._draw = draw if victims.startswith("random") else None  #: None: in their order
        if self._draw is not None:
            around.append(home)  # it is drawn too, as by DAPHNE
        self._phases = [[one for one in around if one in near] if victims.endswith("pri") else [], around]

    def victim(self) -> int | None:
        """Say whose queue to look at; None: all were seen to be empty."""
        for left in self._phases:
            if left:
                return left[self._draw(len(left)) if self._draw is not None else 0]
        return None

    def is_empty(self, queue: int) -> None:
        """Remember that nothing is left in a queue: nothing comes after that."""
        for left in self._phases:
            if queue in left:
                left.remove(queue)
                if self._draw is None:  # in their order near ones come twice, as DAPHNE has it
                    return


class FilledQueues:
    """Queues that are full in the beginning, from whose front owners and thieves take alike.

    A cutter is made for so many rows from some row on; ``draw`` gives a random number below another.
    """

    def __init__(
        self,
        rows: int,
        topology: Topology,
        cutter: Callable[[int, int], Cutter],
        *,
        layout: str = "centralized",
        victims: str = "seq",
        pre_partition: bool = False,
        draw: Callable[[int], int],
    ) -> None:
        groups, workers = topology.groups, range(len(topology))
        owners, homes = {
            "centralized": ([0], [0] * len(topology)),
            "pergroup": (range(max(groups) + 1), groups),
            "percpu": (groups, workers),
        }[layout]
        self._groups, self._owners, self._homes = groups, owners, homes  #: of workers; of queues; by worker its queue
        count = len(owners)
        near = {group: {queue for queue in range(count) if owners[queue] == group} for group in groups}
        self._thieves = [Thief(victims, homes[one], count, near[groups[one]], draw) for one in workers]
        self._queues: list[Cutter]
        if pre_partition or count == 1:
            self._queues = [cutter(stop - start, start) for start, stop in pre_partitioned(rows, count)]
        else:
            chunks = list(iter(cutter(rows, 0).cut, None))
            self._queues = [Chunks(chunks[number::count]) for number in range(count)]

    @property
    def said(self) -> Sequence[str]:
        """Decisions that users are told of."""
        return [text for queue in self._queues for text in queue.said]

    def take(self, worker: int, now: float) -> Taken | None:
        """Give a worker its next rows; None: there is nothing left for it."""
        home = self._homes[worker]
        rows = self._queues[home].cut(worker, now)
        if rows is not None:
            return Taken(*rows, home)
        thief = self._thieves[worker]
        while (queue := thief.victim()) is not None:
            rows = self._queues[queue].cut(worker, now)
            if rows is not None:
                return Taken(*rows, queue, stolen=1, far=self._owners[queue] != self._groups[worker])
            thief.is_empty(queue)
        return None

    def rest(self) -> list[tuple[int, int]]:
        """Give all rows that nobody has taken, for who goes on alone."""
        return sorted(one for queue in self._queues for one in queue.rest() if one[0] < one[1])

    def done(self, chunk: LoopChunk) -> None:
        """Take in what a chunk took, for schemes that measure."""
        rows, run_s = chunk.stop - chunk.start, chunk.end - chunk.begin
        self._queues[chunk.queue].done(chunk.worker, rows, run_s, chunk.begin - chunk.asked)


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
        own, queue, stolen = self._ranges[worker], worker, 0
        if own[0] == own[1]:
            queue, stolen = self._steal(worker)
            if not stolen:
                return None
        begin = own[0] * self._grain
        own[0] += 1
        far = self._groups[queue] != self._groups[worker]
        return Taken(begin, min(begin + self._grain, self._rows), queue, stolen, far)

    def _steal(self, worker: int) -> tuple[int, int]:
        """Make chunks of another worker those of this one; give whose they were and how many."""
        workers = len(self._ranges)
        for _ in range(workers - 1):
            victim = self._victims[worker]
            theirs = self._ranges[victim]
            left = theirs[1] - theirs[0]
            if left >= 2:
                count = max(left // 4, 1)
                theirs[1] -= count
                self._ranges[worker][:] = [theirs[1], theirs[1] + count]
                return victim, count
            others = (one % workers for one in (victim + 1, victim + 2))
            self._victims[worker] = next(one for one in others if one != worker)
        return worker, 0

    def rest(self) -> list[tuple[int, int]]:
        left = [(begin * self._grain, min(end * self._grain, self._rows)) for begin, end in self._ranges]
        for own in self._ranges:
            own[0] = own[1]
        return sorted(one for one in left if one[0] < one[1])

    def done(self, chunk: LoopChunk) -> None:
        pass


Queues = FilledQueues | RangeQueues


def pre_partitioned(rows: int, count: int) -> list[tuple[int, int]]:
    """Divide rows among queues; the first one gets what is left over."""
    share, more = divmod(rows, count)
    return list(pairwise([0, *(share * number + more for number in range(1, count + 1))]))
