"""HEFT as it was published, tasks on processors, and what becomes of its schedule when events are dropped on the way.

H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE
Transactions on Parallel and Distributed Systems 13 (2002) 260, doi:10.1109/71.993206: tasks by decreasing upward rank, each on the
processor where it ends first, in a gap between others if it fits there. StarPU's "dm" is its like without a plan: a task is given to
the processor where it is expected to end first at the moment in which all that it needs is there, and waits there for its turn.

Both think that every task runs. An ``Execution`` is where they meet events: a task takes its seconds for each event of its group that no
proposition has dropped by then, and none when there is none left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from itertools import product
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from windrow.order.published.heft import upward_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray


Task: TypeAlias = tuple[int, int]  #: (group of events, proposition)


class Placed(NamedTuple):
    """Where and when a task is to run."""

    processor: int
    begin: float
    end: float


def heft(seconds: Mapping[Any, Sequence[float]], needs: Mapping[Any, Mapping[Any, float]]) -> dict[Any, Placed]:
    """Place tasks on processors; the result is in the sequence in which they were placed.

    ``seconds`` has what a task takes on each processor; ``needs`` the tasks it needs, and what sending from them to another
    processor takes. Tasks are given after those they need; of equals the first is placed first.
    """
    placed: dict[Any, Placed] = {}
    processors = [Gaps() for _ in next(iter(seconds.values()), ())]
    rank = upward_ranks({task: fmean(each) for task, each in seconds.items()}, needs)
    for task in sorted(seconds, key=lambda one: -rank[one]):
        before = [(*placed[need], sending_s) for need, sending_s in needs[task].items()]
        best = Placed(0, inf, inf)
        for number, gaps in enumerate(processors):
            there = 0.0
            for where, _, end, sending_s in before:
                there = max(there, end if where == number else end + sending_s)
            begin = gaps.first(there, seconds[task][number])
            if begin + seconds[task][number] < best.end:
                best = Placed(number, begin, begin + seconds[task][number])
        processors[best.processor].take(best.begin, best.end)
        placed[task] = best
    return placed


class Gaps:
    """The times at which a processor has nothing to do; the last gap has no end."""

    def __init__(self) -> None:
        self._begins, self._ends = [0.0], [inf]

    def first(self, there: float, seconds: float) -> float:
        """Say when a task can begin at the earliest that has what it needs at ``there``."""
        at = bisect_right(self._ends, there)
        while max(self._begins[at], there) + seconds > self._ends[at]:
            at += 1
        return max(self._begins[at], there)

    def take(self, begin: float, end: float) -> None:
        at = bisect_right(self._ends, begin)
        left = [(b, e) for b, e in ((self._begins[at], begin), (end, self._ends[at])) if b < e]
        self._begins[at : at + 1] = [b for b, _ in left]
        self._ends[at : at + 1] = [e for _, e in left]


class Floor:
    """Propositions with what each takes for an event and needs, events of which each passes some, and processors.

    A task is a proposition on a group of events; events are grouped as they come.
    """

    def __init__(
        self,
        seconds: Sequence[float],
        needs: Sequence[Iterable[int]],
        passes: NDArray[np.bool_],
        *,
        group: int,
        processors: int,
    ) -> None:
        self.seconds, self.needs = seconds, [tuple(one) for one in needs]
        self.events = [passes[start : start + group] for start in range(0, len(passes), group)]
        self.processors = processors

    def tasks(self) -> Iterable[Task]:
        return product(range(len(self.events)), range(len(self.seconds)))

    def whole_s(self, task: Task) -> float:
        """Say what a task takes if nothing was dropped."""
        return len(self.events[task[0]]) * self.seconds[task[1]]

    def plan(self) -> dict[Task, Placed]:
        """Plan all tasks by HEFT."""
        seconds = {task: (self.whole_s(task),) * self.processors for task in self.tasks()}
        needs = {(group, number): {(group, need): 0.0 for need in self.needs[number]} for group, number in self.tasks()}
        return heft(seconds, needs)

    def run(self, plan: Mapping[Task, Placed] | None) -> Execution:
        """Go through a plan, each processor in its sequence; None: as tasks get ready."""
        execution = Execution(self, plan)
        execution.go()
        return execution


class Execution:
    """Tasks as they run on a floor, with what is dropped on the way."""

    def __init__(self, floor: Floor, plan: Mapping[Task, Placed] | None) -> None:
        self.floor, self.plan = floor, plan
        self.now = 0.0
        self.ran: list[tuple[Task, Placed]] = []
        self._queues: list[deque[Task]] = [deque() for _ in range(floor.processors)]
        self._where: dict[Task, int] = {}
        for task, placed in sorted((plan or {}).items(), key=lambda one: one[1].begin):
            self._queues[placed.processor].append(task)
            self._where[task] = placed.processor
        self._expected = [0.0] * floor.processors  #: when each has done what it was given, if nothing is dropped
        self._alive = [np.ones(len(events), bool) for events in floor.events]
        self._left = {task: len(floor.needs[task[1]]) for task in floor.tasks()}
        self._readers: list[list[int]] = [[] for _ in floor.seconds]
        for number, needed in enumerate(floor.needs):
            for need in needed:
                self._readers[need].append(number)
        self._busy = [False] * floor.processors
        self._ending: list[tuple[float, int, Task]] = []
        self._woken: deque[int] = deque()

    def go(self) -> None:
        for task in self.floor.tasks():
            if not self._left[task]:
                self._make_ready(task)
        while True:
            while self._woken:
                self._begin(self._woken.popleft())
            if not self._ending:
                return
            self.now, number, task = heappop(self._ending)
            self._busy[number] = False
            self._end(task)
            self._woken.append(number)

    def _make_ready(self, task: Task) -> None:
        if self.plan is None:
            if not self._alive[task[0]].any():
                return
            number = min(range(self.floor.processors), key=self._expected.__getitem__)
            self._expected[number] = max(self._expected[number], self.now) + self.floor.whole_s(task)
            self._where[task] = number
            self._queues[number].append(task)
        self._woken.append(self._where[task])

    def _begin(self, number: int) -> None:
        """Let a processor begin the next of its tasks that has something to do, if that has what it needs."""
        queue = self._queues[number]
        while not self._busy[number] and queue and not self._left[queue[0]]:
            task = queue.popleft()
            rows = int(np.count_nonzero(self._alive[task[0]]))
            if rows:
                self._busy[number] = True
                end = self.now + rows * self.floor.seconds[task[1]]
                self.ran.append((task, Placed(number, self.now, end)))
                heappush(self._ending, (end, number, task))
            else:
                self._end(task)

    def _end(self, task: Task) -> None:
        group, number = task
        self._alive[group] &= self.floor.events[group][:, number]
        for reader in self._readers[number]:
            self._left[group, reader] -= 1
            if not self._left[group, reader]:
                self._make_ready((group, reader))
