"""Where and when the tasks of a graph run: one pass over the kinds of needs that wait.

A task goes to the worker that keeps most of what it reads, if that has room, else to any that has.
What is missing there is fetched first; meanwhile the worker is free for others. A task that others
overtook too often gets its resources reserved as they become free.
"""

from __future__ import annotations

from heapq import heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from windrow.core.commands import NO_LIMITS
from windrow.core.ready import Kind, Ready
from windrow.core.transitions import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.chains import Chains
    from windrow.core.nodes import Node, Output
    from windrow.core.packing import Packing
    from windrow.core.records import Needs

__all__ = ["Dispatch"]

#: Others may begin so often, or for so long, while a task waits for more than is free.
MOST_OVERTAKES = 100
LONGEST_WAIT_S = 60.0

#: Tasks per worker whose inputs may be on their way at a time: the next ones are prepared while
#: these run, and what was fetched does not pile up.
FETCH_AHEAD = 2


class Overtaken(NamedTuple):
    """The first task that waits for more than is free."""

    key: int
    reservations: int  #: made before it was found to wait
    since: float


class Dispatch:
    """The ready tasks of a run."""

    def __init__(
        self,
        packing: Packing,
        launch: Callable[[Node, int, bool], None],
        fetch: Callable[[Output], None],
        chains: Chains,
    ) -> None:
        self.ready = Ready(packing.kinds.values())
        self.fetching: dict[int, Node] = {}  #: tasks whose inputs are on their way
        self.crowded = False  #: a task waits that should come before rows
        self._packing = packing
        self._launch = launch
        self._fetch = fetch
        self._chains = chains
        self._nodes: dict[int, Node] = {}
        self._latest: tuple[Needs, Kind] = (NO_LIMITS, packing.kind(NO_LIMITS))  #: looked up
        #: kinds that are through for this pass -> the first task that waits for more than is free
        self._blocked: dict[Kind, int | None] = {}
        self._overtaken: Overtaken | None = None

    def add(self, node: Node) -> None:
        """A task can run."""
        if self.fetching:
            self.fetching.pop(node.id, None)
        self._nodes[node.id] = node
        self.ready.push(self.kind(node), node.id, node.task.priority, node.number)

    def kind(self, node: Node) -> Kind:
        """Give the kind of a task; looking it up by its needs takes a while."""
        kind = node.kind
        if kind is None or kind.gone:
            # Most have the needs of the one before.
            if node.needs is not self._latest[0] or self._latest[1].gone:
                self._latest = node.needs, self._packing.kind(node.needs)
            kind = node.kind = self._latest[1]
        return kind

    def remove(self, node: Node) -> None:
        """A task cannot run, or does."""
        number = node.id
        self.ready.remove(number)
        self._nodes.pop(number, None)
        if self.fetching:
            self.fetching.pop(number, None)
        hold = self._packing.holding
        if hold is not None and hold.key == node.id:
            self._packing.unhold()

    def place_before_rows(self) -> None:
        """Place tasks of priority 0 and higher; rows come next, then ``place_rest``."""
        self._blocked.clear()
        self._place(0)
        self.crowded = self._first_waiting() is not None

    def place_rest(self, now: float) -> None:
        """Place the others, and see to it that none waits for ever."""
        self._place(None)
        waits = self._first_waiting()
        if waits is None:
            self._overtaken = None
            return
        kind, key = waits
        packing, known = self._packing, self._overtaken
        if known is None or known.key != key:
            self._overtaken = Overtaken(key, packing.reservations, now)
        elif packing.reservations - known.reservations >= MOST_OVERTAKES or now - known.since >= LONGEST_WAIT_S:
            packing.hold(key, kind)

    def _first_waiting(self) -> tuple[Kind, int] | None:
        for kind, key in self._blocked.items():
            if key is not None and self._packing.possible(kind):
                return kind, key
        return None

    def impossible(self) -> list[Node]:
        """List the tasks that no worker could run with everything idle."""
        kinds = [kind for kind in self._packing.kinds.values() if not self._packing.possible(kind)]
        return [self._nodes[key] for kind in kinds for key in self.ready.waiting(kind)]

    def _place(self, floor: int | None) -> None:
        packing, ready, blocked = self._packing, self.ready, self._blocked
        heads = ready.heads(blocked)
        while heads:
            (urgency, _, key, _), kind = heads[0]
            if floor is not None and -urgency < floor:
                return
            node = self._nodes[key]
            worker = packing.find(kind, _keepers(node) if node.reads else (), key)
            if worker is not None:
                self._send(node, kind, worker, queued=False)
            elif packing.holding is None and len(heads) == 1 and not blocked:  # no others wait
                self._fill(kind, floor)
            else:
                blocked[kind] = key
            head = None if kind in blocked else ready.head(kind)
            if head is None:
                heappop(heads)
            else:
                heapreplace(heads, (head, kind))

    def _fill(self, kind: Kind, floor: int | None) -> None:
        """Put tasks into the queues of workers that are at others of their kind, as nobody has room."""
        queues = self._chains.queues(kind)
        while (head := self.ready.head(kind)) is not None:
            if floor is not None and -head[0] < floor:
                return
            node = self._nodes[head[2]]
            length, order, worker = queues[0] if queues else (0, 0, -1)
            if not queues or length >= self._chains.most(node.task.category):
                self._blocked[kind] = node.id
                return
            if not self._send(node, kind, worker, queued=True):
                return
            if node.state is TaskState.RUNNING:
                heapreplace(queues, (length + 1, order, worker))

    def _send(self, node: Node, kind: Kind, worker: int, *, queued: bool) -> bool:
        """Let a worker run a task, or have brought what it lacks for that; False if too much is on its way."""
        if node.reads and not self._bring(node, worker):
            self._blocked[kind] = None
            return False
        if node.state is TaskState.READY:
            self._launch(node, worker, queued)
        return True

    def _bring(self, node: Node, worker: int) -> bool:
        """Have fetched what a task would miss at a worker; False if too much is on its way."""
        missing = [
            output
            for output in node.reads.values()
            if not output.here and (output.handle is None or not output.kept or output.handle.worker != worker)
        ]
        if not missing:
            return True
        if len(self.fetching) >= FETCH_AHEAD * len(self._packing.benches):
            return False
        self.remove(node)
        node.move(TaskState.FETCHING)
        self.fetching[node.id] = node
        node.pending = {}
        for output in missing:
            node.pending[output.name] = output
            self._fetch(output)
        return True


def _keepers(node: Node) -> list[int]:
    """List the workers that keep something a task reads, the one with most of it first."""
    weights: dict[int, int] = {}
    for output in node.reads.values():
        if output.kept and output.handle is not None:
            worker = output.handle.worker
            weights[worker] = weights.get(worker, 0) + max(output.handle.bytes, 1)
    return sorted(weights, key=lambda worker: -weights[worker])
