"""What becomes of tasks whose attempt, worker or limit came to a bad end.

The rules are in ``retry``; here they are carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappush
from typing import TYPE_CHECKING

from windrow.core.graph import count_try
from windrow.core.policies import NO_TRIES, TooMuch
from windrow.core.records import Failure, FailureKind
from windrow.core.retry import BACK_OFF_S, EXPLAINED, KILLED, UNTOUCHED, hopeless, is_forgiven
from windrow.core.transitions import AttemptState, TaskState

if TYPE_CHECKING:
    from windrow.core import events as happened
    from windrow.core.graph import Node
    from windrow.core.policies import Answer, Tries
    from windrow.core.queues import Attempt
    from windrow.core.records import Life
    from windrow.core.scheduler import Scheduler
    from windrow.core.workers import WorkerState


class Recovery:
    """The hand of a scheduler that settles bad ends."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._graph = scheduler.graph
        self._queues = scheduler.queues
        self._outputs = scheduler.outputs
        self._feeder = scheduler.feeder
        self._options = scheduler.options

    # -- workers

    def lose_worker(self, worker: WorkerState, failure: Failure, *, again: bool) -> None:
        """Return everything that only a worker had; what ran is blamed, else what was being sent, else what came next.

        No task is blamed if the worker was ended because of an attempt that is over already.
        """
        life = worker.life
        attempts = self._queues.running_at(life)
        running = [one for one in attempts if one.started is not None]
        crashed = failure.kind is FailureKind.CRASHED
        suspects = running
        if not running and failure.type != EXPLAINED:
            suspects = [] if self._blame_fetch(life, failure) else attempts[:1]
        if crashed and attempts:
            worker.proven = True  # that brings a task nearer to its end, however many such tasks there are
        self._blame_order(attempts if crashed else suspects, failure)
        if self._feeder is not None:
            self._feeder.partials.losing(life)
        for output in self._outputs.lose(life):
            if output.attempt and not output.holders:
                self._graph.lose(output)
        for node in list(self._scheduler.dispatch.pinned.get(life, ())):
            self.give_back(node)
        for attempt in attempts:
            self.end_badly(attempt, failure if attempt in suspects else UNTOUCHED, AttemptState.LOST)
        self._scheduler.workers.leave(
            worker,
            failure,
            self._scheduler.batch.now,
            self._scheduler.batch.out if again and not self._scheduler.stopping else None,
        )
        if self._feeder is not None:
            self._feeder.left(life)

    def _blame_fetch(self, life: Life, failure: Failure) -> bool:
        """A worker is gone that ran nothing: say whether it was sending an output, which may be the reason."""
        found = self._outputs.blame(life, failure)
        if found is None:
            return False
        output, story = found
        if output.fed:
            assert self._feeder is not None
            if failure.kind is FailureKind.CRASHED and self._feeder.crashed(output.name, failure):
                self._scheduler.fail_run(failure)
        elif story:
            self._outputs.forget(output)
            self._graph.fail_fetch(output, Failure(failure.kind, failure.type, story))
        return True

    def _blame_order(self, attempts: Sequence[Attempt], failure: Failure) -> None:
        """Hold it against the order that a worker ended, where that may have been for want of memory.

        SIGKILL comes from the kernel then, but may come from anybody: the second one at the same task is no chance.
        """
        if self._feeder is None:
            return
        if failure.type == KILLED:
            attempts = [one for one in attempts if one.node.tries.losses]
        elif failure.kind is not FailureKind.CRASHED:
            return
        for category in {one.node.task.category for one in attempts if one.plan.moved and not one.void}:
            self._feeder.blame_order(category)

    # -- attempts

    def end_attempt(self, attempt: Attempt, state: AttemptState) -> bool:
        """An attempt came to nothing; False if its task need not care: it has another, or does not know it any more."""
        counts = self._queues.end(attempt, state)
        node = attempt.node
        if not counts or not node.task.restartable:
            self._scheduler.discard(attempt.id, attempt.life, tuple(attempt.reported.values()))
        if not counts:
            self._graph.attempt_over(node)
        return counts and not node.attempts

    def give_back(self, node: Node) -> None:
        if not node.fed:
            self._graph.back(node)
        elif node.task.consumes or node.tries == NO_TRIES or self._scheduler.stopping:
            assert self._feeder is not None
            self.forget_fed(node)
            self._feeder.returned(node.task)
        else:
            self._graph.back(node)

    def forget_fed(self, node: Node) -> None:
        for output in node.outputs.values():
            output.claimed = False
        failure = Failure(FailureKind.LOST, "Returned", "it was given back")
        self._graph.end(node, TaskState.CANCELLED, failure)

    def end_badly(
        self, attempt: Attempt, failure: Failure, state: AttemptState, limit: happened.Exhausted | None = None
    ) -> None:
        """An attempt raised, was ended at a limit, or was lost with its worker: do what the failure asks for."""
        node = attempt.node
        tries = node.tries
        if not attempt.void and failure is not UNTOUCHED:
            tries = count_try(tries, failure)._replace(fresh=attempt.fresh)
        if not attempt.void and len(node.attempts) > 1 and not self._decides(attempt, failure, tries):
            self._queues.end(attempt, state)
            return
        if not self.end_attempt(attempt, state):
            return
        if node.fed and (node.task.consumes or self._scheduler.stopping):
            if failure.kind is FailureKind.EXHAUSTED:
                why = self._ask(attempt, limit).why  # it cannot be tried again, but the policy learns from it
                failure = hopeless(node, failure, limit, why) if why else failure
            self._give_up_fed(node, failure)
            return
        if failure is UNTOUCHED:
            self.give_back(node)
            return
        node.tries = tries
        node.cls = None  # the policy is asked anew
        if failure.kind is FailureKind.EXHAUSTED:
            self._settle_exhausted(attempt, failure, limit)
            return
        if not is_forgiven(failure, tries, node.task.retries, self._options, divisible=self._is_divisible(node)):
            attempt.worker.proven = True  # it has brought a task to an end, if a bad one
            self.give_up(node, failure)
        elif failure.kind is FailureKind.TRANSIENT_IO:
            pause_s = BACK_OFF_S[min(tries.reads, len(BACK_OFF_S)) - 1]
            heappush(self._scheduler.times, (self._scheduler.batch.now + pause_s, node.id, False))
            self._graph.back(node, delayed=True)
        else:
            self._graph.back(node)

    def _is_divisible(self, node: Node) -> bool:
        return node.fed and self._feeder is not None and self._feeder.is_divisible(node.task)

    def _decides(self, attempt: Attempt, failure: Failure, tries: Tries) -> bool:
        """Of two attempts the other goes on and decides; but it may hang, and then the second such end does."""
        node = attempt.node
        node.tries = tries
        if failure.kind is FailureKind.LOST or node.doubt is None:
            if failure.kind is not FailureKind.LOST:
                node.doubt = failure
            return False
        for other in node.attempts:
            if other is not attempt:
                self._queues.dismiss(other)
        return True

    def _ask(self, attempt: Attempt, limit: happened.Exhausted | None) -> Answer:
        """Ask the launch policy about a task that used too much."""
        node, feeder = attempt.node, self._feeder
        allowed = None if limit is None else (limit.resource, limit.limit)
        moved = attempt.plan.moved and node.task.twin and feeder is not None
        by_rows = node.fed and feeder is not None and feeder.can_cut_rows(node.task)
        used = 0.0 if limit is None else limit.used
        found = TooMuch(node.task, node.tries, moved, self._is_divisible(node), allowed, by_rows, used)
        return self._scheduler.policy.exhausted(found)

    def _settle_exhausted(self, attempt: Attempt, failure: Failure, limit: happened.Exhausted | None) -> None:
        """A task used too much: do what the launch policy answers; the feeder divides what is given up."""
        node = attempt.node
        task, tries = node.task, node.tries
        act, needs, why, rows = self._ask(attempt, limit)
        if act == "written" and self._feeder is not None:
            self._feeder.blame_order(task.category)
            node.tries = tries._replace(exhaustions=tries.exhaustions - 1)  # the order's fault
        elif act == "blocks" and self._feeder is not None:
            node.task = task._replace(payload=task.payload._replace(block=rows))
        elif act == "split" and rows and self._feeder is not None:
            self.forget_fed(node)
            self._feeder.cut_smaller(task, rows)
            return
        elif act == "fresh":
            node.fresh = True
        elif act == "larger" and needs is not None and self._scheduler.dispatch.is_possible(needs):
            node.task = task._replace(needs=needs)
        else:
            attempt.worker.proven = True
            self.give_up(node, hopeless(node, failure, limit, why) if why else failure)
            return
        self._graph.back(node)

    def give_up(self, node: Node, failure: Failure) -> None:
        if node.fed:
            self._give_up_fed(node, failure)
            return
        self._graph.end(node, TaskState.FAILED, failure)
        if failure.kind is FailureKind.INTERNAL:
            self._scheduler.fail_run(failure)

    def _give_up_fed(self, node: Node, failure: Failure) -> None:
        """A feeder's task is given up: the feeder divides it, leaves it out, or has the run stopped."""
        assert self._feeder is not None
        self.forget_fed(node)
        if self._scheduler.stopping and not node.task.consumes:
            self._feeder.returned(node.task)
        elif self._feeder.failed(node.task, failure):
            self._scheduler.fail_run(failure)
