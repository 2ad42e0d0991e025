"""Where and when ready tasks run: the most urgent first, each where most of what it reads is.

Tasks that need the same are one class, with a queue of its own; a pass looks at the first of each class, the most
urgent first, and at a bounded number of those that do not fit. What is missing at the chosen worker is fetched first;
meanwhile the worker is free for other tasks. A task that was overtaken too often, or that waits too long, has its sites
reserved.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from windrow.core.records import Life, Needs
from windrow.core.resources import NeedsClass
from windrow.core.transitions import TaskState
from windrow.core.workers import MAX_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.core.graph import Node
    from windrow.core.scheduler import Scheduler
    from windrow.core.workers import WorkerState

#: Others may begin so often, or for so long, while a task waits for more than is free.
MOST_OVERTAKES = 100
LONGEST_WAIT_S = 60.0

#: Tasks per worker whose inputs may be on their way at a time: the next ones are prepared while these run, and what
#: was fetched does not pile up.
FETCH_AHEAD = 2

#: Classes that do not fit at which a pass looks at most, so that many kinds of needs cost no more than a few.
MOST_LOOKS = 64
#: Classes that are never worth forgetting.
FEW_CLASSES = 32


class Dispatch:
    """The tasks of a run that wait for a worker."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.ready: dict[int, Node] = {}  #: tasks that could run anywhere
        self.fed_waiting = 0  #: of these, from a feeder
        self.fetching: dict[int, Node] = {}  #: tasks whose inputs are on their way
        self.pinned: dict[Life, deque[Node]] = {}  #: tasks that run at one worker and nowhere else
        self.fresh: dict[int, Node] = {}  #: tasks that need a worker which has run nothing
        self._classes: dict[Needs, NeedsClass] = {}
        self._io_classes: dict[Needs, NeedsClass] = {}  #: those of them for input and output
        self._latest: NeedsClass | None = None
        self._unchecked: list[NeedsClass] = []  #: classes of which it is not known whether they are possible
        self._version = -1  #: of the offers for which that is known of all others
        self._heads: list[tuple[int, int, int, NeedsClass]] = []  #: heap: the first task of each class
        self._number = count().__next__
        self._sweep_at = FEW_CLASSES
        self._overtaken: Node | None = None  #: the most urgent task that waits for more than is free
        self._overtaken_at = 0, 0.0  #: grants made before it was found to wait, and when that was
        self._launch = scheduler.launch
        self._batch = scheduler.batch
        self._resources = scheduler.resources
        self._workers = scheduler.workers
        self._outputs = scheduler.outputs
        self._queues = scheduler.queues
        self._grant = scheduler.policy.grant

    # -- what waits

    def classify(self, node: Node) -> NeedsClass:
        """Give the class of a task, of what it needs now, and note its limits."""
        cls = node.cls
        if cls is None:
            needs, node.limits = self._grant(node.task, node.tries)
            cls = self._latest
            if cls is None or cls.needs is not needs:  # most have the needs of the one before
                cls = self._latest = self._class(needs)
            node.cls = cls
        return cls

    def classify_again(self, nodes: Iterable[Node]) -> None:
        """Ask anew what tasks need that have not begun."""
        self._look_at_waiting(None)
        for node in nodes:
            waits = node.id in self.ready
            if waits:
                self.remove(node)
            node.cls = None
            if waits:
                self.add(node)

    def _class(self, needs: Needs) -> NeedsClass:
        cls = self._classes.get(needs)
        if cls is None:
            if len(self._classes) >= self._sweep_at:
                self._classes = {one: cls for one, cls in self._classes.items() if cls.waiting}
                self._sweep_at = max(FEW_CLASSES, 2 * len(self._classes))
                self._latest = None
            cls = self._classes[needs] = NeedsClass(needs)
            self._unchecked.append(cls)
            if cls.io:
                self._io_classes[needs] = cls
        return cls

    @property
    def waiting_io(self) -> int:
        return sum(cls.waiting for cls in self._io_classes.values())

    def is_possible(self, needs: Needs) -> bool:
        return self._resources.possible(self._class(needs))

    def add(self, node: Node) -> None:
        self.fetching.pop(node.id, None)
        cls = self.classify(node)
        if node.fresh:
            self.fresh[node.id] = node
        elif node.task.pin is not None:
            self.pinned.setdefault(node.task.pin, deque()).append(node)
        else:
            self.ready[node.id] = node
            self.fed_waiting += node.fed
            cls.waiting += 1
            node.entry = self._number()
            # What reads comes before what does not, the newest first: it frees what it reads, so that less waits in memory.
            order = -node.id if node.reads else node.id
            entry = (-node.task.priority, order, node.entry, node)
            heappush(cls.queue, entry)
            if cls.listed < 0 or cls.queue[0] is entry:
                cls.listed = cls.queue[0][2]
                heappush(self._heads, (*cls.queue[0][:3], cls))

    def remove(self, node: Node) -> None:
        """A task cannot run, or does; its entry is passed over when it comes up."""
        number = node.id
        if node.entry < 0 and not (node.fresh or node.task.pin or self.fetching):
            return  # it is in no queue
        if self.ready.pop(number, None) is not None:
            assert node.cls is not None
            self.fed_waiting -= node.fed
            node.cls.waiting -= 1
            node.entry = -1
        elif node.fresh and number in self.fresh:
            del self.fresh[number]
        elif node.task.pin is not None and node in (waiting := self.pinned.get(node.task.pin, ())):
            assert isinstance(waiting, deque)
            waiting.remove(node)
            if not waiting:
                del self.pinned[node.task.pin]
        self.fetching.pop(number, None)

    def _head(self, cls: NeedsClass) -> Node | None:
        queue = cls.queue
        while queue and queue[0][3].entry != queue[0][2]:  # type: ignore[attr-defined]
            heappop(queue)
        return queue[0][3] if queue else None  # type: ignore[return-value]

    # -- one pass

    @property
    def waits(self) -> bool:
        """Whether anything waits for a worker, or is kept for what has waited."""
        return bool(self.ready or self.pinned or self.fresh or self._resources.reserved)

    def place(self) -> None:
        if self.fresh:
            self._place_fresh()
        waits = self._place_pinned() if self.pinned else None
        if not self.ready and waits is None:
            self._overtaken = None
            self._resources.reserved.clear()
            return
        self._place_ready(waits)

    def _place_fresh(self) -> None:
        for node in list(self.fresh.values()):
            for site in self._resources.open:
                worker = next((one for one in site.idle.values() if not one.launches), None)
                if worker is not None and self._resources.fits(self.classify(node), site):
                    self._launch(node, worker)
                    break

    def _place_pinned(self) -> Node | None:
        """Place what runs at one worker; return a task that waits there for more than is free, be the worker idle or not."""
        waits = None
        for life, nodes in list(self.pinned.items()):
            worker = self._workers.find(life)
            while worker is not None and nodes:
                cls = self.classify(nodes[0])
                if worker.chain is None:
                    room = self._resources.fits(cls, worker.site)
                    waits = waits if room else nodes[0]
                else:
                    room = worker.chain.cls is cls and worker.queue < MAX_QUEUE
                    has = dict(worker.chain.cls.parts)
                    if any(amount > has.get(name, 0.0) for name, amount in cls.parts):
                        waits = nodes[0]
                if not room:
                    break
                self._launch(nodes[0], worker)
        return waits

    def _place_ready(self, waits: Node | None) -> None:
        """Place what may run anywhere; ``waits``: a task that has been found to wait for more than is free."""
        heads, resources = self._heads, self._resources
        if self._overtaken is not None and self._overtaken.state is not TaskState.READY:
            self._look_at_waiting(None)
        aside: list[tuple[int, int, int, NeedsClass]] = []
        while heads and len(aside) < MOST_LOOKS:
            *_, entry, cls = heads[0]
            node = self._head(cls)
            if entry != cls.listed or node is None or node.entry != entry:
                self._advance(cls, entry)
                continue
            worker = resources.find(cls, self._keepers(node) if node.reads else []) if resources.open else None
            if worker is not None:
                if self._send(node, worker):
                    self._advance(cls, entry)
                    continue
            elif resources.possible(cls):
                waits = waits or node
                if not resources.open:
                    cls.blocked_on = "worker"  # whatever it lacked before
                alone = len(self.ready) == cls.waiting and not resources.reserved
                if alone and self._fill(cls):
                    self._advance(cls, entry)
                    continue
                if not resources.open:
                    break
            aside.append(heappop(heads))
        for one in aside:
            heappush(heads, one)
        self._look_at_waiting(waits)

    def _advance(self, cls: NeedsClass, entry: int) -> None:
        """The first of the heads is out of date: the next task of its class takes its place, if it stood for that."""
        node = self._head(cls)
        if entry != cls.listed or node is None:
            heappop(self._heads)
            cls.listed = cls.listed if node is not None else -1
        else:
            cls.listed = node.entry
            heapreplace(self._heads, (*cls.queue[0][:3], cls))

    def _fill(self, cls: NeedsClass) -> bool:
        """Put tasks into the queues of workers that run tasks of their class; True if the head has changed."""
        head = self._head(cls)
        if head is None or self._queues.most(head) < 2:
            return False  # it may be long, and is alone then
        queues = self._queues.joinable(cls)
        heapify(queues)
        placed = False
        like, most = None, 0
        while queues and (node := self._head(cls)) is not None:
            length, number = queues[0]
            if node.fed or node.task.category is not like:  # most are like the one before
                like, most = node.task.category, self._queues.most(node)
            if length >= most:
                break
            if not self._send(node, self._workers.alive[number]):
                break
            placed = True
            if node.state is TaskState.RUNNING:
                heapreplace(queues, (length + 1, number))
        return placed

    def _send(self, node: Node, worker: WorkerState) -> bool:
        """Let a worker run a task, or have brought what it lacks for that; False if too much is on its way."""
        if node.reads:
            missing = [one for one in node.reads.values() if not self._outputs.is_at(one, worker)]
            if missing:
                if len(self.fetching) >= FETCH_AHEAD * len(self._workers.alive):
                    return False
                self.remove(node)
                node.move(TaskState.FETCHING, self._batch.now)
                self.fetching[node.id] = node
                node.pending = {output.name: output for output in missing}
                for output in missing:
                    self._outputs.fetch(output)
                return True
        self._launch(node, worker)
        return True

    def _keepers(self, node: Node) -> list[WorkerState]:
        """List the workers that hold something a task reads, the one with most of it first."""
        weights: dict[int, int] = {}
        for output in node.reads.values():
            for holder, size in output.holders.items():
                if isinstance(holder, Life):
                    weights[holder.worker] = weights.get(holder.worker, 0) + max(size, 1)
        alive = self._workers.alive
        return [alive[one] for one in sorted(weights, key=lambda one: -weights[one]) if one in alive]

    # -- tasks that wait too long

    def _look_at_waiting(self, node: Node | None) -> None:
        """See to it that no task waits for ever: what it needs is kept as it becomes free."""
        resources, now = self._resources, self._batch.now
        grants, since = self._overtaken_at
        if node is None or node.cls is None:
            self._overtaken = None
            resources.reserved.clear()
        elif self._overtaken is not node:
            resources.reserved.clear()
            self._overtaken, self._overtaken_at = node, (resources.grants, now)
        elif not resources.reserved and (resources.grants - grants >= MOST_OVERTAKES or now - since >= LONGEST_WAIT_S):
            cls, worker = node.cls, None if node.task.pin is None else self._workers.find(node.task.pin)
            sites = resources.sites.values() if worker is None else [worker.site]
            able = [site for site in sites if site.workers and resources.could(cls, site)]
            resources.reserved = dict.fromkeys(able, cls)

    def impossible(self) -> list[Node]:
        """List the tasks that no worker could run with everything idle; of needs that are new, or where offers are."""
        if self._version != self._resources.version:
            self._version = self._resources.version
            self._unchecked = list(self._classes.values())
        classes = [cls for cls in self._unchecked if cls.waiting and not self._resources.possible(cls)]
        self._unchecked = []
        return [node for node in self.ready.values() if node.cls in classes] if classes else []
