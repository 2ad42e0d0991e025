"""Tasks of a graph in a run: attempts, outputs, deadlines and ends, and what workers are told.

The graph says what must be made, the dispatch where; here reports come in and commands go out. An attempt that is not
found has ended; one that its task does not know any more holds its resources until it returns, and no report of it counts.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING, Any

from windrow.core.ahead import Ahead, expected_inputs
from windrow.core.chains import Chains
from windrow.core.checking import check
from windrow.core.commands import Cancel, Command, Launch, OutputFailed, TaskEnded
from windrow.core.copies import Copies
from windrow.core.delays import BACK_OFF_S
from windrow.core.dispatch import Dispatch
from windrow.core.graph import Graph
from windrow.core.letting_go import let_go
from windrow.core.lost_lives import lose_life
from windrow.core.nodes import TaskAttempt
from windrow.core.patience import Patience, pass_time, review
from windrow.core.provisional import Provisional
from windrow.core.records import Failure, FailureKind, Plan
from windrow.core.routes import route
from windrow.core.transitions import AttemptState, TaskState
from windrow.core.verdicts import Verdict, enlarged, exhaustion, verdict
from windrow.core.whereabouts import Whereabouts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from windrow.core import events as happened
    from windrow.core.commands import TaskEnd
    from windrow.core.crew import Crew
    from windrow.core.nodes import Node, Output
    from windrow.core.options import Options
    from windrow.core.records import Handle, Task
    from windrow.core.state import WorkerState

__all__ = ["Tasks"]

_ENDS: dict[TaskState, TaskEnd] = {TaskState.DONE: "done", TaskState.FAILED: "failed", TaskState.CANCELLED: "cancelled"}


class Tasks:
    """All tasks of graphs in a run."""

    def __init__(self, options: Options, crew: Crew, next_id: Callable[[], int]) -> None:
        self.graph = Graph(self)
        self.places = Whereabouts(crew)
        self.provisional = Provisional(self.graph)
        self.places.unsure, self.graph.held = self.provisional.unsure, self.provisional.held
        self.copies = Copies(self.graph, self.places, self.provisional, options.crashes)
        self.made, self.drop = self.places.made, self.places.drop  #: the graph's hands for outputs
        self.chains = Chains(crew.packing)
        self.dispatch = Dispatch(crew.packing, self._launch, self.places.fetch, self.chains)
        self.attempts: dict[tuple[int, int, int], TaskAttempt] = {}
        self.running: dict[int, TaskAttempt] = {}  #: by task: the attempt that counts
        self.ahead = Ahead(self.running, self.chains, self.dispatch.kind) if options.ahead else None
        self.fatal: Failure | None = None  #: stops the run
        self.failed = self.cancellations = 0  #: tasks that ended so
        self.cut_off = False  #: tasks did not run because the run was stopped
        self.closed = not options.open
        self.out: list[Command] = []
        self.now = 0.0
        self.at: dict[tuple[int, int], dict[int, TaskAttempt]] = {}  #: by life of a worker
        self._ended: list[Node] = []  #: tasks that nobody may need any more
        self._times: list[tuple[float, int, bool]] = []  #: heap: when, task, whether a deadline
        self._patience = Patience(crew.packing)
        self._plans: dict[str, Plan] = {}
        self._options = options
        self._crew = crew
        self._next_id = next_id

    # -- what the user says

    def begin(self, out: list[Command], now: float) -> None:
        """A batch of events comes at this time; commands go there."""
        self.out = self.places.out = out
        self.now = now
        if self._ended:
            let_go(self.graph, self._ended)

    def submit(self, tasks: Sequence[Task], handlers: dict[type, Callable[[Any], None]]) -> None:
        """Take tasks in; UsageError, with nothing changed, if they cannot belong to the run."""
        check(self.graph, tasks)
        if not self.graph.submitted:
            route(handlers, self)
            self._crew.share()
        for task in tasks:
            if task.deadline is not None:
                heappush(self._times, (task.deadline, task.id, True))
        self.graph.add(tasks)
        if self.ahead is not None:
            self.ahead.submitted([self.graph.nodes[task.id] for task in tasks if task.reads])
        if self.graph.frozen:
            self._cancel(self.graph.open.values(), "the run is ending")

    def wanted(self, event: happened.Wanted) -> None:
        """The user waits for an output."""
        if output := self.graph.outputs.get(event.output):  # else it was released
            self.graph.want(output)
            self.places.deliver(output)

    def released(self, event: happened.Released) -> None:
        """The user will not ask for an output any more."""
        output = self.graph.outputs.get(event.output)
        if output is not None:
            output.asked = output.claimed = False
            self.graph.tidy(output)
            if output.maker is not None:
                self._ended.append(output.maker)

    def close(self, _: happened.Closed) -> None:
        """Nothing more will be submitted."""
        self.closed = True

    def cancel_group(self, event: happened.CancelRequested) -> None:
        """Somebody wishes a task, or groups of them, to end."""
        found, groups = self.graph.open, event.groups or ()
        if event.task is None:
            self._cancel([one for one in found.values() if one.task.group in groups], event.reason)
        elif event.task in found:
            self._cancel([found[event.task]], event.reason)

    def stop(self, reason: str, *, forget: bool) -> None:
        """The run ends; what the user waits for is still brought, unless all is forgotten."""
        self.graph.frozen = True
        self.cut_off = bool(self.graph.open)
        self._cancel(self.graph.open.values(), reason)
        for attempt in self.attempts.values():
            self._tell_off(attempt)
        for output in self.graph.outputs.values():
            if output.handle is not None and (forget or not output.asked):
                output.asked = output.claimed = False
                self.graph.tidy(output)

    def _cancel(self, nodes: Iterable[Node], reason: str) -> None:
        for node in list(nodes):
            if node.id in self.graph.open:
                message = f"task {node.id} was cancelled: {reason}"
                failure = Failure(FailureKind.USER, "CancelledError", message)
                self.graph.end(node, TaskState.CANCELLED, failure)

    # -- attempts

    def _launch(self, node: Node, worker_id: int, queued: bool) -> None:
        worker = self._crew.workers[worker_id]
        chain = self.chains.join(worker_id, self.dispatch.kind(node), queued=queued)
        attempt = TaskAttempt(self._next_id(), node, worker, chain, queued=queued)
        self.dispatch.remove(node)
        node.move(TaskState.RUNNING)
        self.attempts[attempt.key] = self.running[node.id] = attempt
        here = self.at.get(attempt.life)
        if here is None:
            here = self.at[attempt.life] = {}
        here[attempt.id] = attempt
        worker.tied += 1
        node.attempts += 1
        task = node.task
        plan = self._plans.get(task.category)
        if plan is None:
            plan = self._plans[task.category] = Plan(id=0, category=task.category)
        limits = chain.kind.limits
        inputs: tuple[Handle, ...] = ()
        mine: tuple[int, ...] = ()
        if task.reads:
            node.ahead = node.missing > 0
            inputs, mine = expected_inputs(node, self.running)
        kept = self.places.kept.get(attempt.life)
        if kept and not self.chains.are_short(task.category):
            self.places.bring_ahead(kept, node)
        self.out.append(Launch(task, *attempt.key, plan, limits, inputs, queued, node.ahead, mine))
        if self.ahead is not None:
            self.ahead.launched(node)

    def started(self, attempt: TaskAttempt, _: happened.Started) -> None:
        """An attempt runs."""
        attempt.started = True
        if attempt.state is AttemptState.LAUNCHED:
            attempt.move(AttemptState.RUNNING)

    def output_ready(self, event: happened.OutputReady) -> None:
        """An output exists although its task still runs; what was released before is final."""
        handle = event.handle
        attempt = self.attempts.get((event.attempt, event.worker, event.incarnation))
        if attempt is None or not self._counts(attempt) or handle.output in attempt.reported:
            self.places.discard(handle)
            return
        attempt.reported = attempt.reported or {}
        attempt.reported[handle.output] = None
        node = attempt.node
        output = node.outputs.get(handle.output) or self.graph.adopt(node, handle.output)
        if not self.graph.make(output, handle):
            self.places.discard(handle)

    def finished(self, attempt: TaskAttempt, event: happened.Finished) -> None:
        """An attempt is done."""
        node, handle = attempt.node, event.handle
        self.chains.took(node.task.category, event.measurement.wall)
        outputs, reported = node.outputs, attempt.reported
        rest = [name for name in outputs if name not in reported] if reported else list(outputs)
        if len(rest) > 1:
            handle = handle._replace(bytes=handle.bytes // len(rest))
        if not self._end(attempt, AttemptState.ACCEPTED):
            self.places.discard_names(handle, rest)
            return
        there = [name for name in rest if outputs[name].handle is not None]
        if there:
            self.places.discard_names(handle, there)
        node.handle = event.handle
        self.graph.finish(node, handle, reported)
        for name in reported:  # what might have been withdrawn while it ran
            self.places.deliver(outputs[name])

    def ended_badly(self, attempt: TaskAttempt, failure: Failure, limit: float = 0.0) -> None:
        """An attempt raised, was ended at a limit, or was lost with its worker."""
        lost = failure.kind in (FailureKind.LOST, FailureKind.CRASHED)
        if self._end(attempt, AttemptState.LOST if lost else AttemptState.FAILED):
            self._settle(attempt.node, failure, limit)

    def exhausted(self, attempt: TaskAttempt, event: happened.Exhausted) -> None:
        """An attempt was ended at a limit; more memory may help, more of anything else does not."""
        node = attempt.node
        node.enlarged = node.enlarged or event.resource != "memory"
        self.ended_badly(attempt, exhaustion(node, event), event.limit)

    def cancelled(self, attempt: TaskAttempt) -> None:
        """An attempt was stopped; if nobody asked for that, it runs again."""
        if self._end(attempt, AttemptState.CANCELLED):
            self.graph.back(attempt.node)

    def _settle(self, node: Node, failure: Failure, limit: float) -> None:
        """Do with the task of a failed attempt what the failure asks for."""
        what = verdict(node, failure, self._options)
        if what is Verdict.LARGER:
            needs = enlarged(node.needs, limit)
            packing = self._crew.packing
            node.enlarged = True
            known = limit or dict(node.needs.amounts).get("memory")
            if known and packing.possible(packing.kind(needs)):
                node.needs, node.kind = needs, None
                what = Verdict.AGAIN
        if what is Verdict.LATER:
            wait = BACK_OFF_S[min(node.io_errors, len(BACK_OFF_S)) - 1]
            heappush(self._times, (self.now + wait, node.id, False))
            self.graph.back(node, delayed=True)
        elif what is Verdict.AGAIN:
            self.graph.back(node)
        else:
            self.provisional.fail(node, failure)
            if failure.kind is FailureKind.INTERNAL:
                self.fatal = failure

    def _counts(self, attempt: TaskAttempt) -> bool:
        return self.running.get(attempt.node.id) is attempt

    def _end(self, attempt: TaskAttempt, state: AttemptState) -> bool:
        """Free what an attempt held; False if its task does not know it any more."""
        node = attempt.node
        counts = self.running.get(node.id) is attempt
        attempt.move(state if counts or state is not AttemptState.ACCEPTED else AttemptState.DISCARDED)
        del self.attempts[attempt.key]
        del self.at[attempt.life][attempt.id]
        self.chains.leave(attempt.chain, attempt)
        attempt.worker.tied -= 1
        node.attempts -= 1
        if state is not AttemptState.LOST:
            attempt.worker.proven = True
        if counts:
            del self.running[node.id]
        else:
            self._ended.append(node)
        return counts

    def _tell_off(self, attempt: TaskAttempt) -> None:
        if attempt.state is not AttemptState.CANCELLING:
            attempt.move(AttemptState.CANCELLING)
            self.out.append(Cancel(*attempt.key))

    # -- workers

    def runs_at(self, worker: int, incarnation: int) -> bool:
        """Say whether an attempt runs in a life of a worker."""
        return any(one.started for one in self.at.get((worker, incarnation), {}).values())

    def lost(self, worker_id: int, failure: Failure) -> None:
        """All lives of a worker but the present one are gone, with what only they had."""
        alive = self._crew.workers.get(worker_id)
        for life in [life for life in {**self.at, **self.places.kept} if life[0] == worker_id]:
            if alive is None or alive.incarnation != life[1]:
                lose_life(self, life, failure)

    # -- time and the end

    @property
    def wake(self) -> float | None:
        """When to look again although nothing happened."""
        times = [self._times[0][0] if self._times else None, self._patience.until]
        return min((time for time in times if time is not None), default=None)

    def before_rows(self, draining: Iterable[WorkerState]) -> bool:
        """Do what is due, and place tasks that come before rows; False if the run must stop."""
        if self.graph.submitted:
            pass_time(self, self._times)
            for worker in draining:  # bring what only it has
                for output in self.places.kept.get((worker.id, worker.incarnation), {}).values():
                    self.places.fetch(output)
            if self.fatal is None:
                self.dispatch.place_before_rows()
                if self.ahead is not None:
                    for node, worker_id in self.ahead.places():
                        self._launch(node, worker_id, queued=True)
        return self.fatal is None

    def after_rows(self, *, idle: bool) -> None:
        """Place the other tasks; with nothing under way at all, give up what cannot run."""
        if self.graph.open:
            self.dispatch.place_rest(self.now)
            review(self, self._patience, idle=idle)
            if self.chains.queued:
                self.chains.recall(self.out)
        else:
            self._patience.end()

    @property
    def under_way(self) -> bool:
        """Whether something will happen by itself, or the user may still say something."""
        return bool(self.attempts or self.places.fetching or self.wake is not None or not self.closed)

    @property
    def outstanding(self) -> bool:
        """Whether something is to come that the run must wait for."""
        asked = any(output.asked for output in self.places.fetching.values())
        if self.graph.frozen:
            return bool(self.attempts) or asked
        return not self.closed or bool(self.attempts) or asked or bool(self.graph.open)

    # -- the hands of the graph

    def ready(self, node: Node) -> None:
        """A task can run."""
        self.dispatch.add(node)

    def unready(self, node: Node) -> None:
        """A task that was ready cannot run, or need not."""
        self.dispatch.remove(node)

    def call_off(self, node: Node) -> None:
        """The attempt of a task is not wanted any more."""
        attempt = self.running.pop(node.id, None)
        if attempt is not None:  # it may be its end that is being settled
            self._tell_off(attempt)

    def ended(self, node: Node) -> bool:
        """Tell the end of a task, or hold it back; that it was made again is nobody's business."""
        state = node.state
        self.dispatch.fetching.pop(node.id, None)
        held = node.fragile and self.provisional.hold(node)
        if not held:
            self._tell(node)
        if not node.task.restartable:
            for one in self.provisional.free(node):
                self._tell(one)
                self.graph.let_follow(one)
                for output in one.outputs.values():
                    self.places.deliver(output)
        self.cancellations += state is TaskState.CANCELLED
        if state is TaskState.FAILED:
            self.failed += 1
            if node.root is None and self._options.on_error == "stop" and self.fatal is None:
                self.fatal = node.failure
        return held

    def failed_output(self, output: Output, failure: Failure) -> None:
        """Tell whoever waits for an output of a stream that it will not come; of others the end of their task tells."""
        if output.asked:
            output.asked = False
            self.out.append(OutputFailed(output.name, failure))

    def _tell(self, node: Node) -> None:
        if node.state is not TaskState.DONE or not node.told:
            self.out.append(TaskEnded(node.id, _ENDS[node.state], node.failure, node.handle))
        node.told, node.handle = True, None
        self._ended.append(node)

    def sure(self, task: int) -> bool:
        """Whether what a task has released will not be taken back."""
        node = self.graph.nodes.get(task)
        return node is not None and not self.provisional.doubtful(node)
