"""Attempts in the queues of workers: launches, ends, and what idle workers take over from busy ones.

A worker runs one chain of launches at a time, under one grant: short tasks with the same needs are queued behind each
other, so that a worker need not wait for the driver between them. Near the end idle workers help: what waits in a
queue is called back, and what takes far longer than it should is run a second time; the first to finish counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from windrow.core.commands import Cancel, Discard, Launch, Recall
from windrow.core.outputs import NOTHING
from windrow.core.records import DRIVER, Handle, make_record
from windrow.core.transitions import AttemptState, TaskState
from windrow.core.workers import MAX_QUEUE

if TYPE_CHECKING:
    from windrow.core.graph import Node
    from windrow.core.records import Grant, Life, Made, Plan
    from windrow.core.resources import NeedsClass
    from windrow.core.scheduler import Scheduler
    from windrow.core.workers import WorkerState

#: Seconds of calls that a worker may have in its queue: waiting for the driver's answer costs more than a short task.
QUEUE_S = 0.05
#: Seconds of a call that may wait behind another one where answers take long (``Options.far``).
FAR_S = 1.0
#: Bytes of outputs that are expected of a worker's queue at most: what is queued runs before what reads them, and frees them.
QUEUE_BYTES = 32_000_000
#: Calling a feeder's task back must save so many seconds: that is many times what the messages take.
STEAL_S = 0.2
#: Seconds between two looks at all workers; a look costs half a microsecond for each.
LOOK_S = 0.02
#: A task is overdue when it took both so many times and so many seconds more than predicted.
OVERDUE_TIMES, OVERDUE_S = 3.0, 2.0
#: A task of which nothing is known is overdue after so long.
UNKNOWN_S = 60.0
#: Seconds until somebody may be free to help where nobody is.
ANSWER_S = 1.0


class Chain:
    """Attempts at one worker that run one after the other, and what they hold together."""

    __slots__ = ("attempts", "cls", "grant")

    def __init__(self, grant: Grant, cls: NeedsClass) -> None:
        self.grant = grant
        self.cls = cls
        self.attempts: dict[int, Attempt] = {}


class Attempt:
    """One try of one task on one worker."""

    __slots__ = (
        "chain", "fresh", "id", "launched", "life", "node", "plan", "queued", "recalled", "reported", "started",
        "state", "taken_in", "void", "worker",
    )  # fmt: skip

    def __init__(
        self, number: int, node: Node, worker: WorkerState, chain: Chain, plan: Plan, now: float, queued: bool
    ) -> None:
        self.id = number
        self.node = node
        self.worker = worker
        self.life = worker.life
        self.chain = chain
        self.plan = plan
        self.queued = queued  #: it runs when those of its chain that were launched before have ended
        self.fresh = not worker.launches  #: its worker had run nothing before
        self.state = AttemptState.LAUNCHED
        self.launched = now
        self.started: float | None = None  #: when
        self.recalled = False  #: its worker was asked to give it back
        self.void = False  #: nobody waits for its end
        self.reported: dict[str, Made] = NOTHING  #: outputs that were told of while it ran
        self.taken_in: tuple[Handle, ...] = ()  #: what it works on in place, which nobody else has


class Queues:
    """All attempts that have not ended: one that is not found has ended, the fence against late and double events."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.queued = 0  #: attempts that were launched behind others
        self.void = 0  #: attempts that nobody waits for
        self.fed_rows = 0  #: of feeders' tasks that run, those of twins once
        self.launch_times = 0.0  #: the sum over feeders' attempts, for estimating what is left of them
        self.fed = 0  #: feeders' attempts
        self.wake: float | None = None  #: when to look again although nothing happened
        self._next_id = count(1).__next__
        self._next_look = 0.0
        self._candidates: deque[Node] = deque()  #: tasks that wait for others, and could be launched behind them
        self._batch = scheduler.batch
        self._resources = scheduler.resources
        self._workers = scheduler.workers
        self._outputs = scheduler.outputs
        self.seconds = scheduler.predict_s  #: how long a task takes; None where nothing is known
        self._options = scheduler.options

    # -- beginnings

    def launch(self, node: Node, worker: WorkerState, plan: Plan) -> None:
        batch, task = self._batch, node.task
        now, life, number = batch.now, worker.life, self._next_id()
        chain = worker.chain
        if chain is None:
            assert node.cls is not None
            chain = worker.chain = Chain(self._resources.reserve(worker, node.cls), node.cls)
            self._resources.set_busy(worker)
            queued = False
        else:
            queued = True
            self.queued += 1
        attempt = self.attempts[number] = chain.attempts[number] = Attempt(
            number, node, worker, chain, plan, now, queued
        )
        node.attempts += (attempt,)
        worker.launches += 1
        if node.fed:
            self.fed += 1
            self.launch_times += now
            if worker.drain is None:
                self._workers.short[worker.id] = worker
            if node.state is not TaskState.RUNNING:
                self.fed_rows += task.size
                node.state = TaskState.RUNNING  # of a feeder's task nobody asks what it waited for
        elif node.state is not TaskState.RUNNING:
            node.move(TaskState.RUNNING, now)
        inputs: tuple[Handle, ...] = ()
        bring: tuple[int, ...] = ()
        mine: tuple[int, ...] = ()
        if task.reads:
            node.ahead = node.missing > 0
            inputs, bring, mine = self._inputs(node, worker)
            if task.consumes:
                attempt.taken_in = inputs
        batch.out.append(
            make_record(
                Launch, (task, number, life, plan, node.limits, inputs, bring, chain.grant, queued, node.ahead, mine)
            )
        )
        if self._options.ahead:
            for output in node.outputs.values():
                if output.readers:
                    self._candidates.extend(output.readers.values())

    def _inputs(self, node: Node, worker: WorkerState) -> tuple[tuple[Handle, ...], tuple[int, ...], tuple[int, ...]]:
        """Give what a task reads, which of it has to be brought, and which is for it alone."""
        found: list[Handle] = []
        bring: list[int] = []
        mine: list[int] = []
        alone = not node.task.retries and not node.task.twin  # else a failed attempt may have changed it
        for place, name in enumerate(node.task.reads):
            output = node.reads[name]
            if not output.made:  # it is being made in the same queue
                found.append(Handle(name, output.maker.attempts[0].id))
            else:
                found.append(make_record(Handle, (name, output.attempt)))
                if not worker.shares and worker.life not in output.holders:
                    self._outputs.add_holder(output, worker.life)  # a copy is sent along, and stays there
                    bring.append(place)
            if node.task.consumes or (alone and output.is_only_for(node)):
                mine.append(place)
        return tuple(found), tuple(bring), tuple(mine)

    # -- ends

    def end(self, attempt: Attempt, state: AttemptState) -> bool:
        """Free what an attempt held; False if its task does not know it any more."""
        node, worker, chain = attempt.node, attempt.worker, attempt.chain
        counts = not attempt.void
        attempt.state = state
        del self.attempts[attempt.id]
        del chain.attempts[attempt.id]
        self.queued -= attempt.queued
        if not chain.attempts:
            worker.chain = None
            if chain.cls.lasting and state is AttemptState.ACCEPTED and counts:
                self._resources.keep(chain.grant, node.outputs)
            else:
                self._resources.free(chain.grant)
            if worker.drain is None:
                self._resources.set_idle(worker)
        if state is not AttemptState.LOST:
            worker.proven = True
            worker.heard = self._batch.now
        if node.fed:
            self.fed -= 1
            self.launch_times -= attempt.launched
            if counts and len(node.attempts) == 1:
                self.fed_rows -= node.task.size
            if worker.drain is None:
                self._workers.short[worker.id] = worker
        if counts:
            node.attempts = () if len(node.attempts) == 1 else _without(node.attempts, attempt)
        else:
            node.void -= 1
            self.void -= 1
        if attempt.taken_in and state is not AttemptState.ACCEPTED:
            holder = DRIVER if worker.shares else worker.life
            self._batch.out += [Discard(handle, (holder,)) for handle in attempt.taken_in]
        return counts

    def call_off(self, node: Node) -> None:
        for attempt in node.attempts:
            self.dismiss(attempt)

    def dismiss(self, attempt: Attempt) -> None:
        node = attempt.node
        attempt.void = True
        node.attempts = _without(node.attempts, attempt)
        node.void += 1
        self.void += 1
        if node.fed and not node.attempts:
            self.fed_rows -= node.task.size
        self.cancel(attempt)

    def cancel(self, attempt: Attempt) -> None:
        if attempt.state is not AttemptState.CANCELLING:
            attempt.state = AttemptState.CANCELLING
            self._batch.out.append(Cancel(attempt.id, attempt.life))

    # -- how long things take

    def is_short(self, node: Node) -> bool:
        """Whether a task is known to take no longer than a queue may."""
        seconds = self.seconds(node)
        return seconds is not None and seconds <= (FAR_S if self._options.far else QUEUE_S)

    def most(self, node: Node) -> int:
        seconds = self.seconds(node)
        size = self._outputs.expected.get(node.task.category, 0)
        if seconds is None:
            return 0
        least = 2 if self._options.far and seconds < FAR_S else 0
        return max(int(min(QUEUE_S / max(seconds, 1e-9), QUEUE_BYTES / max(size, 1), MAX_QUEUE)), least)

    def joinable(self, cls: NeedsClass) -> list[tuple[int, int]]:
        """Give the queues that calls of a class may join, as (tasks in it, worker)."""
        return [
            (len(chain.attempts), worker.id)
            for worker in self._workers.alive.values()
            if (chain := worker.chain) is not None
            and chain.cls is cls
            and worker.drain is None
            and self.is_short(next(iter(chain.attempts.values())).node)
        ]

    def rows_of(self, category: str) -> int:
        """Count the rows of a category that workers have before them."""
        nodes = {one.node.id: one.node.task for one in self.attempts.values() if one.node.fed and not one.void}
        return sum(task.size for task in nodes.values() if task.category == category)

    def rows_ahead(self, row_s: float | None) -> int:
        """Estimate the rows that workers still have before them, given the seconds a row takes."""
        rows = self.fed_rows
        if not row_s:
            return rows
        passed = self._batch.now * self.fed - self.launch_times
        return max(0, rows - int(passed / row_s))

    # -- ahead of what is read

    def may_follow(self, nodes: Iterable[Node]) -> None:
        if self._options.ahead:
            self._candidates.extend(node for node in nodes if node.reads)

    def followers(self, classify: Callable[[Node], NeedsClass]) -> Iterator[tuple[Node, WorkerState]]:
        """Give tasks that can follow what they read in its queue; each is launched before the next is asked for."""
        candidates = self._candidates
        while candidates:
            node = candidates.popleft()
            chain = self._queue_of_all(node)
            if chain is not None and classify(node) is chain.cls:
                yield node, next(iter(chain.attempts.values())).worker

    def _queue_of_all(self, node: Node) -> Chain | None:
        """Find the queue in which all is being made that a task lacks, if it may join that."""
        if node.state is not TaskState.WAITING or node.unended or node.task.pin is not None:
            return None
        chain: Chain | None = None
        # The last first: what is read is mostly made in that order, and one that nobody makes yet is enough to know.
        for output in reversed(node.reads.values()):
            if output.made:
                continue
            maker = output.maker
            if len(maker.attempts) != 1 or not maker.task.restartable or maker.state is not TaskState.RUNNING:
                return None
            attempt = maker.attempts[0]
            if attempt.recalled or attempt.state is AttemptState.CANCELLING or output.name not in maker.task.makes:
                return None
            if (chain is not None and attempt.chain is not chain) or not self.is_short(maker):
                return None
            chain = attempt.chain
        if chain is None or node.task.priority < 0 or node.task.consumes:
            return None
        worker = next(iter(chain.attempts.values())).worker
        if any(output.made and not self._outputs.is_at(output, worker) for output in node.reads.values()):
            return None  # it would have to be brought first
        if worker.drain is not None or len(chain.attempts) >= self.most(node) or self._resources.reserved:
            return None
        return chain

    # -- what idle workers take over

    def may_look(self) -> bool:
        if self._batch.now < self._next_look:
            self.wake = self._next_look
            return False
        return True

    def rebalance(self, idle: int) -> None:
        """Help idle workers, as nothing is ready for them."""
        now = self._batch.now
        self._next_look = now + LOOK_S
        if self.queued:
            self._recall(idle)
        for worker in self._doubled():
            due = self.due(worker)
            if due > now:  # those that are overdue are looked at now
                self.wake_at(max(due, now + LOOK_S))

    def _busy(self) -> list[WorkerState]:
        return [one for one in self._workers.alive.values() if one.chain is not None and one.drain is None]

    def _doubled(self) -> list[WorkerState]:
        """List workers whose tasks may be run twice: a thread, which shares the driver's memory, cannot be ended."""
        return [one for one in self._busy() if not one.shares] if self._options.speculate else []

    def _recall(self, idle: int) -> None:
        """Have given back what waits at one worker although another has room."""
        busy = [one.chain for one in self._busy() if one.chain is not None and one.queue > 1]
        for chain in sorted(busy, key=lambda one: -len(one.attempts))[:idle]:
            *before, last = chain.attempts.values()
            if last.node.fed:
                waiting = [last] if sum(map(self._left_s, before)) > STEAL_S else []
            else:
                waiting = [one for one in chain.attempts.values() if one.queued]
                waiting = waiting[len(waiting) // 2 :] if self._resources.find(chain.cls, []) else []
            self.ask_back(waiting)

    def ask_back(self, waiting: Iterable[Attempt]) -> None:
        """Have given back what has not begun."""
        for attempt in waiting:
            if _may_go(attempt):
                attempt.recalled = True
                self._batch.out.append(Recall(attempt.id, attempt.life))

    def _left_s(self, attempt: Attempt) -> float:
        """Estimate the seconds an attempt still holds its worker; none where that is not known."""
        seconds = self.seconds(attempt.node) or 0.0
        return max(0.0, seconds if attempt.started is None else seconds - (self._batch.now - attempt.started))

    def overdue(self) -> list[Attempt]:
        """List attempts that take far longer than they should, and those that wait behind them."""
        now = self._batch.now
        found = []
        for worker in self._doubled():
            if now >= self.due(worker) and worker.chain is not None:
                found += [
                    one
                    for one in worker.chain.attempts.values()
                    if one.node.task.twin and len(one.node.attempts) == 1 and not one.void
                ]
        return found

    def wake_at(self, time: float) -> None:
        self.wake = time if self.wake is None else min(time, self.wake)

    def due(self, worker: WorkerState) -> float:
        """Say when the task that a worker is at, or should be at, is overdue."""
        assert worker.chain is not None
        attempt = next(iter(worker.chain.attempts.values()))
        since = attempt.started if attempt.started is not None else max(attempt.launched, worker.heard)
        seconds = self.seconds(attempt.node)
        if seconds is None:
            return since + UNKNOWN_S
        return since + max(OVERDUE_TIMES * seconds, OVERDUE_S + seconds)

    def running_at(self, life: Life) -> list[Attempt]:
        worker = self._workers.find(life)
        return [] if worker is None or worker.chain is None else list(worker.chain.attempts.values())


def _without(attempts: tuple[Attempt, ...], attempt: Attempt) -> tuple[Attempt, ...]:
    return tuple([one for one in attempts if one is not attempt])


def _may_go(attempt: Attempt) -> bool:
    """Whether a queued attempt may be called back: not one whose readers are in the queue to read what it makes."""
    node = attempt.node
    return (
        attempt.state is AttemptState.LAUNCHED
        and not (attempt.recalled or attempt.void or node.ahead or len(node.attempts) > 1 or node.task.pin is not None)
        and not any(one.ahead for output in node.outputs.values() for one in output.readers.values())
    )
