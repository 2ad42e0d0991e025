"""The scheduler: a batch of events in, a list of commands out; all state changes happen in ``on``.

It knows no clock, thread or file. A batch costs what its events cost plus one placement pass over the workers that
have room. The same events at the same times give the same commands. There is one kind of task: calls are submitted,
and a feeder makes tasks of rows when a worker has room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.commands import Command, Discard, Resolve, Status, Uncounted, WakeAt
from windrow.core.dispatch import Dispatch
from windrow.core.graph import Graph, Node
from windrow.core.outputs import Batch, Outputs
from windrow.core.policies import LaunchPolicy, Options
from windrow.core.queues import ANSWER_S, Queues
from windrow.core.records import DRIVER, Failure, FailureKind, Handle, Life, Plan, RowsReport, Task
from windrow.core.recovery import Recovery
from windrow.core.resources import Resources
from windrow.core.retry import MOST_LOSSES, OUT_OF_TIME, UNSEEN, exhaustion, too_large, too_late, too_much
from windrow.core.transitions import AttemptState, TaskState
from windrow.core.workers import Workers, WorkerState

if TYPE_CHECKING:
    from windrow.core.queues import Attempt
    from windrow.core.rows import RowFeeder

#: Feeders' tasks that a worker may have at a time at most, however short they are. The driver answers several reports
#: at once for little more than one: its code has left the caches by the time it is woken. Queues of sixteen tasks of
#: 5 ms cost it a quarter of what single ones do (benchmarks/overhead.py); beyond that little is gained.
MAX_WINDOW = 16


class Scheduler:
    """The state of one run."""

    def __init__(
        self, feeder: RowFeeder | None = None, policy: LaunchPolicy | None = None, options: Options | None = None
    ) -> None:
        self.options = options or Options()
        self.feeder = feeder
        self.policy = policy or LaunchPolicy()
        self.status: Status | None = None  #: None until the run is resolved
        self.failure: Failure | None = None  #: that stopped the run
        self.stopping = False
        batch = self.batch = Batch()
        self.resources = Resources()
        self.workers = Workers(self.resources, self.options)
        self.outputs = Outputs(batch, feeder, self.resources, self.options, MOST_LOSSES)
        self.queues = Queues(self)
        self.dispatch = Dispatch(self)
        self.graph = Graph(batch, self.outputs, self.queues, self.dispatch)
        self.recovery = Recovery(self)
        self.closed = not self.options.open
        self._cut_off = False  #: tasks did not run because the run was stopped
        self._to_bring: list[str] = []  #: outputs of the task that ends now
        self._reason = ""  #: of the stop
        self._plans: dict[str, Plan] = {}
        self._window = 0  #: of the feeder, when queues were filled last
        self.times: list[tuple[float, int, bool]] = []  #: heap: when, task, whether a deadline
        self._woken: float | None = None  #: the wake-up that was asked for
        self._handlers: dict[type, Callable[[Any], None]] = {
            happened.Submitted: self._submitted,
            happened.Closed: self._closed,
            happened.Wanted: self._wanted,
            happened.Released: self._released,
            happened.CancelRequested: self._cancel_requested,
            happened.WorkerJoined: self._worker_joined,
            happened.WorkerLost: self._worker_lost,
            happened.DrainRequested: self._drain_requested,
            happened.PoolChanged: self._pool_changed,
            happened.Started: self._started,
            happened.OutputReady: self._output_ready,
            happened.Finished: self._finished,
            happened.Failed: self._failed,
            happened.Exhausted: self._exhausted,
            happened.Cancelled: self._cancelled,
            happened.Held: self._held,
            happened.FetchFailed: self._fetch_failed,
            happened.CopyLost: self._copy_lost,
            happened.Planned: self._planned,
            happened.Published: self._published,
            happened.Tick: self._tick,
        }
        if feeder is not None:
            self.graph.on_lost = feeder.lost
            self.policy.is_moved = feeder.is_moved
            feeder.begin(self)

    def on(self, events: Iterable[happened.Event], now: float) -> list[Command]:
        batch = self.batch
        out = batch.out = []
        batch.now = now
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event)
        if self.status is None:
            graph = self.graph
            if graph.garbage:
                graph.collect_garbage()
            if not self.stopping:
                self._hand_out()
            else:
                self.dispatch.place()  # merges of what is done
            if self.workers.draining:
                self._release_drained()
            if len(self.queues.attempts) <= self.queues.void:  # else something is under way
                if graph.garbage:
                    graph.collect_garbage()
                self._end_if_done()
                if not self.finished and not self.workers.alive:
                    self._fail_without_workers()
        return out

    @property
    def finished(self) -> bool:
        return bool(self.status)

    @property
    def notes(self) -> list[str]:
        return self.workers.notes

    # -- the desk of the feeder

    def submit(self, task: Task) -> None:
        self.graph.add((task,), fed=True)

    def has_room(self, task: Task, life: Life) -> bool:
        """Say whether a task is expected to get by with what a worker can have if it is alone on its node."""
        worker = self.workers.find(life)
        offers = [pool.offers.get("memory", 0.0) for pool in worker.site.pools] if worker is not None else []
        most = max(offers, default=0.0)
        return not most or self.policy.most_memory(task) < most

    def want(self, output: str) -> None:
        self.graph.want(self.graph.outputs[output])

    def bring(self, output: str) -> None:
        """Have a copy of what a task made that ends now brought to the driver; it stays where it is, too."""
        self._to_bring.append(output)

    def withdraw(self, task: Task) -> None:
        """Call off a task of the feeder, which knows about it."""
        node = self.graph.open.get(task.id)
        if node is not None:
            self.recovery.forget_fed(node)

    def release(self, output: str) -> None:
        known = self.graph.outputs.get(output)
        if known is not None:
            self.graph.release(known)

    # -- handing out

    def _hand_out(self) -> None:
        if self.workers.pauses:
            self.workers.resume(self.batch.now, self.batch.out)
        if self.times:
            self._pass_time()
        dispatch, queues = self.dispatch, self.queues
        if dispatch.waits:
            dispatch.place()
        if self.options.ahead:
            for node, worker in queues.followers(dispatch.classify):
                self.launch(node, worker)
        if self.feeder is not None:
            self._feed(self.feeder)
        if dispatch.fresh or self.options.io_workers:
            self._order_workers()
        if dispatch.ready and self._nobody_comes:
            self._give_up_impossible()
        queues.wake = None
        if self.resources.open and queues.attempts and not dispatch.ready:
            self._help_idle()
        if self.times or self.workers.pauses or queues.wake != self._woken:
            self._set_wake()

    def _give_up_impossible(self) -> None:
        """Fail tasks that no worker could run, or none any more, as outputs keep what they need."""
        nodes = self.dispatch.impossible()
        if self.resources.lasting and self.closed and not (self.queues.attempts or self.outputs.fetching):
            nodes = list(self.dispatch.ready.values())
        for node in nodes:
            if node.id in self.graph.open:  # it may have ended with another
                self.recovery.give_up(node, too_large(node, self.resources))

    @property
    def _nobody_comes(self) -> bool:
        """Whether the workers that are there are all that there will be for now."""
        return bool(self.workers.alive) and not (self.workers.starting or self.workers.draining)

    def _feed(self, feeder: RowFeeder) -> None:
        """Ask the feeder for tasks as long as a worker has room: idle ones first, then those with short queues."""
        resources, workers = self.resources, self.workers
        if self.dispatch.fed_waiting:
            return  # one that it gave does not fit yet
        for site in list(resources.open):
            while site.idle and not site.io and site not in resources.reserved:
                if not self._feed_one(feeder, next(iter(site.idle.values()))):
                    return
        window = min(feeder.window, MAX_WINDOW)
        if window > self._window:
            workers.short = {one.id: one for one in workers.alive.values() if one.open}
        self._window = window
        if window < 2:
            return
        queues = [
            (len(worker.chain.attempts), number)
            for number, worker in workers.short.items()
            if worker.chain is not None and not worker.io and worker.site not in resources.reserved
        ]
        heapify(queues)
        while queues and queues[0][0] < min(window, feeder.window):  # the next task may be longer than the last one
            length, number = queues[0]
            if not self._feed_one(feeder, workers.alive[number]):
                return
            heapreplace(queues, (length + 1, number))
        if not resources.reserved:
            workers.short.clear()

    def _feed_one(self, feeder: RowFeeder, worker: WorkerState) -> bool:
        task = feeder.next(worker.life)
        if task is None:
            return False
        node = self.graph.add_fed(task)
        cls = self.dispatch.classify(node)
        chain = worker.chain
        if not (self.resources.fits(cls, worker.site) if chain is None else chain.cls is cls):
            other = self.resources.find(cls, [])  # the worker's node has a place, and too little besides
            if other is None:
                self.dispatch.add(node)
                return False
            worker = other
        self.queues.launch(node, worker, feeder.accounts[task.category].plan)
        return True

    def launch(self, node: Node, worker: WorkerState) -> None:
        self.dispatch.remove(node)
        if node.cls is None:
            self.dispatch.classify(node)
        self.queues.launch(node, worker, self._plan_of(node))
        node.fresh = False
        if node.task.consumes:
            self.graph.consume(node, DRIVER if worker.shares else worker.life)

    def predict_s(self, node: Node) -> float | None:
        if node.fed and self.feeder is not None:
            return self.feeder.predict_s(node.task)
        return self.policy.predict(node.task)

    def _plan_of(self, node: Node) -> Plan:
        category = node.task.category
        if node.fed and self.feeder is not None:
            return self.feeder.accounts[category].plan
        plan = self._plans.get(category)
        if plan is None:
            plan = self._plans[category] = Plan(id=0, category=category)
        return plan

    def _order_workers(self) -> None:
        """Order workers for input and output, and new lives of workers for tasks that need a fresh one."""
        if self.options.io_workers and not self.workers.starting:
            for _ in range(min(self.dispatch.waiting_io, self.options.io_workers)):
                self.workers.start_io(self.batch.out)
        if self.dispatch.fresh and not self.workers.starting and not self.workers.draining:
            able = [one for one in self.workers.alive.values() if not one.io]
            used = [one for one in able if one.launches]
            if not self.options.restart:
                self._take_any_worker()
            elif used and len(used) == len(able):
                worker = min(used, key=lambda one: one.queue)
                self._drain(worker, "a task that used too much is to be tried on a fresh worker", replace=True)

    def _take_any_worker(self) -> None:
        """No fresh worker will ever come: let tasks that wait for one run anywhere."""
        for node in list(self.dispatch.fresh.values()):
            self.dispatch.remove(node)
            node.fresh = False
            self.dispatch.add(node)

    def _help_idle(self) -> None:
        if not self.queues.may_look():
            return
        idle = sum(len(site.idle) for site in self.resources.open if not site.io)
        if not idle:
            return
        self.queues.rebalance(idle)
        for attempt in self.queues.overdue():
            cls = self.dispatch.classify(attempt.node)
            worker = self.resources.find(cls, [])
            if worker is None:
                self.queues.wake_at(self.batch.now + ANSWER_S)
                break
            self.launch(attempt.node, worker)

    def _pass_time(self) -> None:
        """Let delayed tasks run whose time has come, and give up those that are too late."""
        times, graph = self.times, self.graph
        while times and times[0][0] <= self.batch.now:
            _, number, late = heappop(times)
            node = graph.nodes.get(number)
            if node is None:
                continue
            if not late:
                if node.state is TaskState.DELAYED:
                    graph.due(node)
            elif node.id in graph.open and not node.told:
                graph.end(node, TaskState.FAILED, too_late(node))

    def _set_wake(self) -> None:
        due = self.queues.wake
        for heap in (self.times, self.workers.pauses):
            if heap and (due is None or heap[0][0] < due):
                due = heap[0][0]
        if due is not None and due != self._woken:
            self.batch.out.append(WakeAt(due))
        self._woken = due

    # -- what the user says

    def _submitted(self, event: happened.Submitted) -> None:
        if event.inputs:
            assert self.feeder is not None
            self.feeder.submitted(event.inputs)
        if event.tasks:
            self.graph.check(event.tasks)
            for task in event.tasks:
                if task.deadline is not None:
                    heappush(self.times, (task.deadline, task.id, True))
            nodes = self.graph.add(event.tasks)
            self.queues.may_follow(nodes)
            if self.graph.frozen:
                self._cancel(nodes, "the run is ending")

    def _closed(self, _: happened.Closed) -> None:
        self.closed = True

    def _wanted(self, event: happened.Wanted) -> None:
        output = self.graph.outputs.get(event.output)  # else it was released
        if output is not None:
            self.graph.want(output)

    def _released(self, event: happened.Released) -> None:
        known, release = self.graph.outputs, self.graph.release
        for name in event.outputs:
            output = known.get(name)
            if output is not None:
                release(output)

    def _cancel_requested(self, event: happened.CancelRequested) -> None:
        """Launch no more; what runs may finish, and what is held is fetched. Or cancel some tasks."""
        nodes = self.graph.open
        if event.groups is not None:
            self._cancel([one for one in nodes.values() if one.task.group in event.groups], event.reason)
        elif event.task is not None:
            self._cancel([nodes[event.task]] if event.task in nodes else [], event.reason)
        elif not self.stopping:
            self._stop(event.reason)

    def _cancel(self, nodes: Iterable[Node], reason: str) -> None:
        for node in nodes:
            if node.id in self.graph.open:
                message = f"task {node.id} was cancelled: {reason}"
                self.graph.end(node, TaskState.CANCELLED, Failure(FailureKind.USER, "CancelledError", message))

    # -- workers

    def _pool_changed(self, event: happened.PoolChanged) -> None:
        self.resources.set_pool(event.pool, event.offers, event.devices)

    def _worker_joined(self, event: happened.WorkerJoined) -> None:
        life = event.worker.life
        former = self.workers.alive.get(life.worker)
        if former is not None and former.life.incarnation < life.incarnation:
            self.recovery.lose_worker(former, UNSEEN, again=False)
        self.workers.join(event.worker, self.batch.now)

    def _worker_lost(self, event: happened.WorkerLost) -> None:
        worker = self.workers.find(event.life)
        failure = event.failure or UNSEEN
        if worker is not None:
            self.recovery.lose_worker(worker, failure, again=not event.final)
        else:
            out = None if self.stopping or event.final else self.batch.out
            self.workers.failed_to_start(event.life, failure, self.batch.now, out)

    def _drain_requested(self, event: happened.DrainRequested) -> None:
        worker = self.workers.find(event.life)
        if worker is not None:
            self._drain(worker, event.reason, replace=event.replace)

    def _drain(self, worker: WorkerState, reason: str, *, replace: bool) -> None:
        if not self.workers.drain(worker, reason, replace):
            return
        self.queues.ask_back(self.queues.running_at(worker.life))
        if self.feeder is not None:
            self.feeder.draining(worker.life)

    def _release_drained(self) -> None:
        """Bring what drained workers alone hold, and tell those to end that keep nothing any more."""
        for worker in self.workers.draining.values():
            alone = self.outputs.only_here(worker.life)
            for output in alone:
                if not output.fed:
                    self.outputs.fetch(output)
            if not (alone or worker.chain or worker.life in self.dispatch.pinned):
                self.workers.tell_to_end(worker, self.batch.out)

    # -- attempts

    def _live(self, event: happened.AttemptEvent) -> Attempt | None:
        """Find the attempt of an event, unless it has ended or ran in another life of a worker."""
        attempt = self.queues.attempts.get(event.attempt)
        return attempt if attempt is not None and attempt.life == event.life else None

    def _started(self, event: happened.Started) -> None:
        attempt = self.queues.attempts.get(event.attempt)
        if attempt is None or attempt.life != event.life or attempt.started is not None:
            return
        attempt.started = now = self.batch.now
        node = attempt.node
        if node.begun is None and not attempt.void:
            node.begun = now
        if attempt.state is AttemptState.LAUNCHED:
            attempt.state = AttemptState.RUNNING

    def _output_ready(self, event: happened.OutputReady) -> None:
        attempt = self._live(event)
        if attempt is None or attempt.void:
            self.discard(event.attempt, event.life, (event.made,))
        else:
            self.graph.released(attempt, event.made)

    def discard(self, number: int, life: Life, made: Sequence[Any]) -> None:
        """Answer a report that does not count; a second report of what exists is no such."""
        outputs = self.graph.outputs
        stale = [one for one in made if one.output not in outputs or outputs[one.output].attempt != number]
        if stale:  # a merge that waits for its turn has them still
            merging = {handle for one in self.queues.running_at(life) for handle in one.taken_in}
            stale = [one for one in stale if Handle(one.output, number) not in merging]
        worker = self.workers.alive.get(life.worker)
        self.outputs.discard(number, life, stale, shares=worker is not None and worker.shares)

    def _finished(self, event: happened.Finished) -> None:
        number, life, made, measured, report = event
        attempt = self.queues.attempts.get(number)
        if attempt is None or attempt.life != life:
            self.batch.out.append(Uncounted(number))
            self.discard(number, life, made)
            return
        node = attempt.node
        if attempt.void:
            self.batch.out.append(Uncounted(number))
            self.queues.end(attempt, AttemptState.ACCEPTED)
            self.discard(number, life, (*attempt.reported.values(), *made))
            self.graph.attempt_over(node)
            return
        if node.fed:
            assert self.feeder is not None
            if not self.feeder.ended(node.task, event):
                self.queues.end(attempt, AttemptState.DISCARDED)
                self._discard_fed(attempt, event)
                return
        task = node.task
        if isinstance(report, RowsReport) and report.rest is not None:  # that many were not run
            task = task._replace(size=task.size - (report.rest.stop - report.rest.start))
        if self.policy.seen(task, measured):
            like = task.category
            self.dispatch.classify_again([one for one in self.graph.open.values() if one.task.category == like])
        self.queues.end(attempt, AttemptState.ACCEPTED)
        if node.attempts:
            self.queues.call_off(node)  # a twin of it
        if node.fed and not node.reads:
            self.graph.finish_fed(attempt, made)
            while self._to_bring:
                self.outputs.fetch(self.graph.outputs[self._to_bring.pop()])
        else:
            self.graph.finish(attempt, made, measured.wall)
        if measured.baseline and attempt.worker.drain is None:
            story = self.workers.leaks(attempt.worker, measured, self.outputs.held_bytes)
            if story:
                self._drain(attempt.worker, story, replace=True)

    def _discard_fed(self, attempt: Attempt, event: happened.Finished) -> None:
        """The feeder does not want what its task made, nor what a twin of it makes."""
        self.batch.out.append(Uncounted(attempt.id))
        self.discard(attempt.id, attempt.life, event.made)
        if attempt.node.attempts:
            self.queues.call_off(attempt.node)
        self.recovery.forget_fed(attempt.node)

    def _failed(self, event: happened.Failed) -> None:
        attempt = self._live(event)
        if attempt is not None:
            self.recovery.end_badly(attempt, event.failure, AttemptState.FAILED)

    def _exhausted(self, event: happened.Exhausted) -> None:
        attempt = self._live(event)
        if attempt is None:
            return
        if attempt.node.fed:
            kind = OUT_OF_TIME if event.resource == "seconds" else "Exhausted"
            place = "" if self.feeder is None else self.feeder.describe(attempt.node.task)
            failure = Failure(FailureKind.EXHAUSTED, kind, too_much(event), place)
        else:
            failure = exhaustion(attempt.node, event)
        self.recovery.end_badly(attempt, failure, AttemptState.FAILED, event)

    def _cancelled(self, event: happened.Cancelled) -> None:
        """An attempt was stopped or given back; if the scheduler did not ask for that, its task runs again."""
        attempt = self._live(event)
        if attempt is not None and self.recovery.end_attempt(attempt, AttemptState.CANCELLED):
            self.recovery.give_back(attempt.node)

    # -- outputs

    def _held(self, event: happened.Held) -> None:
        output = self.graph.outputs.get(event.handle.output)
        if output is None or output.attempt != event.handle.attempt:
            self.batch.out.append(Discard(event.handle, (event.holder,)))
        elif output.fetching is not None:
            self.graph.arrived(output, event.bytes, event.seconds)

    def _fetch_failed(self, event: happened.FetchFailed) -> None:
        """An output is of no use elsewhere: that is held against its maker, unless it was lost."""
        output = self.graph.outputs.get(event.handle.output)
        if output is None or output.attempt != event.handle.attempt or output.fetching is None:
            return
        if output.fed:
            assert self.feeder is not None
            self.outputs.drop(output)
            if self.feeder.unreadable(output.name, event.failure):
                self.fail_run(event.failure)
        elif event.failure.kind is FailureKind.LOST:
            self.outputs.drop(output)
            self.graph.lose(output)
        else:
            self.batch.out.append(Discard(output.handle, tuple(output.holders)))
            self.graph.fail_fetch(output, event.failure)

    def _copy_lost(self, event: happened.CopyLost) -> None:
        """A copy of an output did not reach a worker; the output is lost if no other worker and not the driver holds it."""
        output = self.graph.outputs.get(event.handle.output)
        if output is None or output.attempt != event.handle.attempt or event.life not in output.holders:
            return
        if self.outputs.leave(output, event.life):
            self.graph.lose(output)

    # -- plans and time

    def _planned(self, event: happened.Planned) -> None:
        assert self.feeder is not None
        self.feeder.planned(event.plan)

    def _published(self, event: happened.Published) -> None:
        self.graph.published(event.task, event.failure)

    def _tick(self, _: happened.Tick) -> None:
        self._woken = None  # time alone is the news: what is due is found later

    # -- the end

    def fail_run(self, failure: Failure) -> None:
        """Stop because of a failure: nothing that is held will be wanted."""
        if not self.stopping:
            self.failure = failure
            self._stop(failure.message)

    def _stop(self, reason: str) -> None:
        """Launch no more; what the user waits for is still brought, unless all is forgotten."""
        forget = self.failure is not None
        self.stopping = True
        self._reason = reason
        graph = self.graph
        graph.frozen = True
        calls = [node for node in graph.open.values() if not node.fed]
        self._cut_off = bool(calls)
        self._cancel(calls, reason)
        if self.feeder is not None:
            self.feeder.stop(forget=forget)
        for node in [one for one in graph.open.values() if one.fed]:
            self._stop_fed(node, forget=forget)
        for output in list(graph.outputs.values()):
            if output.holders and not output.fed and (forget or not output.asked):
                graph.release(output)

    def _stop_fed(self, node: Node, *, forget: bool) -> None:
        """A feeder's task that has not ended: what runs may finish, merges and evaluations of what is done go on."""
        if node.task.reads and not forget:
            return
        if node.attempts:
            for attempt in node.attempts:
                self.queues.cancel(attempt)
            return
        assert self.feeder is not None
        self.recovery.forget_fed(node)
        self.feeder.returned(node.task)

    def _fail_without_workers(self) -> None:
        """No worker is left to do what remains, and none will come: say so instead of waiting."""
        failure = self.workers.no_workers_failure()
        if failure is not None:
            for node in [one for one in self.graph.open.values() if one.fed and self.stopping]:
                self._stop_fed(node, forget=True)  # an evaluation of what is done
            self.fail_run(failure)
            self.graph.collect_garbage()
            self._end_if_done()

    def _end_if_done(self) -> None:
        graph, feeder = self.graph, self.feeder
        queues = self.queues
        if len(queues.attempts) > queues.fed or (feeder is not None and (feeder.busy or queues.fed > queues.void)):
            return
        if any(output.asked for output in self.outputs.fetching.values()):
            return
        if not self.stopping and (not self.closed or graph.open or (feeder is not None and not feeder.exhausted)):
            return
        complete = True if feeder is None else feeder.complete
        if self.failure is not None:
            self.status = "failed"
        elif complete and not (graph.failed or self._cut_off):
            self.status = "complete"
        elif complete is not None and not self._cut_off:
            self.status = "incomplete"
        else:
            self.status = "cancelled"
        graph.frozen = True
        self.batch.out.append(Resolve(self.status, self.failure, self._reason))
