"""Short tasks that a worker is given several at a time: they run one after the other under one grant.

Waiting for the driver's answer costs more than a short task. So a worker may have some of them in its queue, as long as all
are of one kind and nobody else waits for what they hold.
"""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from windrow.core.commands import Recall
from windrow.core.transitions import AttemptState

if TYPE_CHECKING:
    from windrow.core.commands import Command
    from windrow.core.nodes import Node, TaskAttempt
    from windrow.core.offerers import Grant
    from windrow.core.packing import Packing
    from windrow.core.ready import Kind

__all__ = ["Chain", "Chains"]

#: Seconds of work that a worker may have in its queue, and tasks at most.
QUEUE_S, MOST_TASKS = 0.05, 256
#: How much the latest task counts for what one of its category takes.
LATEST = 0.2


class Chain:
    """Attempts of one kind at one worker, and what all of them hold together."""

    __slots__ = ("attempts", "grant", "kind")

    def __init__(self, grant: Grant, kind: Kind) -> None:
        self.grant = grant
        self.kind = kind
        self.attempts: dict[int, TaskAttempt] = {}


class Chains:
    """All reservations of attempts."""

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._at: dict[Kind, dict[int, Chain]] = {}  #: by kind and worker: the one that others may join
        self._task_s: dict[str, float] = {}  #: by category
        self.queued = 0  #: attempts that were launched behind others

    def took(self, category: str, seconds: float) -> None:
        """A task of a category was done."""
        known = self._task_s.get(category)
        self._task_s[category] = seconds if known is None else known + LATEST * (seconds - known)

    def are_short(self, category: str) -> bool:
        """Whether tasks of a category are known to take no longer than a queue may."""
        return self._task_s.get(category, 1.0) <= QUEUE_S

    def most(self, category: str) -> float:
        """Say how many tasks may be in a queue that one of a category joins: none if it may be long."""
        task_s = self._task_s.get(category)
        return 0 if task_s is None else min(QUEUE_S / max(task_s, 1e-9), MOST_TASKS)

    def queues(self, kind: Kind) -> list[tuple[int, int, int]]:
        """Give the queues that tasks of a kind may join, as a heap of tasks in it, order, worker: none behind a long one."""
        benches = self._packing.benches
        found = [
            (len(chain.attempts), order, worker)
            for order, (worker, chain) in enumerate(self._at.get(kind, {}).items())
            if benches[worker].open and self._is_short(chain)
        ]
        heapify(found)
        return found

    def _is_short(self, chain: Chain) -> bool:
        runs = next(iter(chain.attempts.values()))
        return self.are_short(runs.node.task.category)

    def has_room(self, chain: Chain, worker: int, category: str) -> bool:
        """Whether one more task may join those of a queue."""
        return (
            len(chain.attempts) < self.most(category)
            and self._at[chain.kind].get(worker) is chain
            and self._packing.benches[worker].open
            and self._packing.holding is None
        )

    def join(self, worker: int, kind: Kind, *, queued: bool) -> Chain:
        """Take what an attempt needs; ``queued`` after others it has that already."""
        if queued:
            self.queued += 1
            return self._at[kind][worker]
        chain = Chain(self._packing.reserve(worker, kind.needs), kind)
        self._at.setdefault(kind, {}).setdefault(worker, chain)
        return chain

    def leave(self, chain: Chain, attempt: TaskAttempt) -> None:
        """An attempt has ended; with the last one what they held is free."""
        del chain.attempts[attempt.id]
        self.queued -= attempt.queued
        if chain.attempts:
            return
        chains = self._at[chain.kind]
        worker = attempt.worker.id
        if chains.get(worker) is chain:
            del chains[worker]
            if chain.kind.gone and not chains:
                del self._at[chain.kind]
        self._packing.free(chain.grant)

    def recall(self, out: list[Command]) -> None:
        """Have given back what waits at one worker although another has room: half of the longest queue of a kind."""
        for kind, chains in self._at.items():
            longest = max(chains.values(), key=lambda one: len(one.attempts), default=None)
            if longest is None or len(longest.attempts) < 2 or self._packing.find(kind) is None:
                continue
            later = list(longest.attempts.values())[1:]
            waiting = [
                one
                for one in later
                if one.state is AttemptState.LAUNCHED and not (one.recalled or one.node.ahead or _is_followed(one.node))
            ]
            for attempt in waiting[len(waiting) // 2 :]:
                attempt.recalled = True
                out.append(Recall(*attempt.key))


def _is_followed(node: Node) -> bool:
    """Whether others are in its queue to read what it makes: they would all have to move."""
    return any(one.ahead for output in node.outputs.values() for one in output.readers.values())
