"""The scheduler: a batch of events in, a list of commands out; all state changes happen in ``on``.

It knows no clock, thread or file. A batch costs what its events cost plus one placement pass over
the workers that have room. The same events at the same times give the same commands.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.commands import Cancel, Command, Discard, Replan, Resolve, Status, WakeAt
from windrow.core.crew import Crew
from windrow.core.delays import Delays
from windrow.core.failures import Answer, answer
from windrow.core.intake import Intake
from windrow.core.ledger import Ledger
from windrow.core.merger import Merger
from windrow.core.options import Options
from windrow.core.placement import Placement
from windrow.core.records import Plan
from windrow.core.standing import Standing, standing
from windrow.core.state import Account, Attempt, Feed, WorkerState
from windrow.core.transitions import AttemptState
from windrow.core.validate import validate
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windrow.core.policies import Policies
    from windrow.core.records import Failure, Handle, InputSpec, Rows

__all__ = ["Options", "Scheduler", "Standing"]


class Scheduler:
    """The state of one run."""

    def __init__(
        self,
        inputs: Sequence[InputSpec],
        policies: Policies,
        options: Options | None = None,
        plans: Mapping[str, Plan] | None = None,
    ) -> None:
        self.policies = policies
        self.options = options or Options()
        self.status: Status | None = None  #: None until the run is resolved
        self.failure: Failure | None = None  #: that stopped the run
        self.stopping = False
        self.accepted = 0  #: attempts
        self.bytes_read = 0  #: by accepted attempts
        self.ledger = Ledger()
        self.accounts: dict[str, Account] = {}
        next_id = count(1).__next__  # of attempts and merged handles alike
        self.intake = Intake(self.ledger, self.options.row_limit)
        self.crew = Crew(self.options.needs, next_id)
        self.merger = Merger(self.ledger, next_id)
        self.delays = Delays()
        self.placement = Placement(
            self.intake, self.crew, self.merger, self.accounts, policies.shape, self.options
        )
        self._plans = dict(plans or {})
        self._reason = ""  #: of the stop
        self._out: list[Command] = []
        self._now = 0.0
        self._handlers = self._make_handlers()
        self._submitted(happened.Submitted(tuple(inputs)))

    def on(self, events: Iterable[happened.Event], now: float) -> list[Command]:
        """Take a batch of events and give the commands that follow."""
        out = self._out = []
        self._now = now
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event)
        if self.status is None:
            if not self.stopping:
                if self.delays.heap:
                    self._release_due()
                self.placement.place(out, now)
            self._end_if_done()
        return out

    @property
    def finished(self) -> bool:
        """Whether the run is resolved."""
        return self.status is not None

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the work was cut."""
        return self.placement.notes

    def standing(self) -> Standing:
        """Say how far the run is."""
        return standing(self)

    def validate(self) -> None:
        """Check every invariant; raises InternalError with the story."""
        validate(self)

    def _make_handlers(self) -> dict[type, Callable[[Any], None]]:
        return {
            happened.Submitted: self._submitted,
            happened.Discovered: self._discovered,
            happened.InspectFailed: self._inspect_failed,
            happened.WorkerJoined: self._worker_joined,
            happened.WorkerLost: self._worker_lost,
            happened.OffersChanged: self._offers_changed,
            happened.Started: self._started,
            happened.Progress: self._progress,
            happened.Finished: self._finished,
            happened.Failed: self._failed,
            happened.Cancelled: self._cancelled,
            happened.Merged: self._merged,
            happened.MergeFailed: self._merge_failed,
            happened.Fetched: self._fetched,
            happened.OutputLost: self._output_lost,
            happened.CancelRequested: self._cancel_requested,
            happened.Planned: self._planned,
            happened.Tick: self._tick,
        }

    # -- inputs

    def _submitted(self, event: happened.Submitted) -> None:
        for spec in event.inputs:
            if spec.category not in self.accounts:
                plan = self._plans.get(spec.category) or Plan(id=0, category=spec.category)
                self.accounts[spec.category] = Account(plan)
        self.intake.add(event.inputs)

    def _discovered(self, event: happened.Discovered) -> None:
        feed = self._inspected(event.input, event.worker, event.incarnation)
        if feed is not None:
            self.intake.known(feed, event.rows, event.borders)

    def _inspect_failed(self, event: happened.InspectFailed) -> None:
        feed = self._inspected(event.input, event.worker, event.incarnation)
        if feed is None:
            return
        what = self._answer(event.failure, feed.tries)
        if what is Answer.LATER:
            self.intake.delay(feed)
            self.delays.push(self._now, feed.tries, feed)
        elif what in (Answer.GIVE_UP, Answer.GIVE_UP_INPUT):
            self.intake.give_up(feed, event.failure)
        else:
            self.intake.wait_again(feed)
            if what is Answer.STOP:
                self._fail_run(event.failure)

    def _inspected(self, input_id: int, worker_id: int, incarnation: int) -> Feed | None:
        """Free the slot of an inspection; None if nobody waits for it."""
        feed = self.intake.feeds[input_id]
        worker = self.intake.inspected(feed, worker_id, incarnation)
        if worker is None:
            return None
        self.crew.inspected(worker, feed)
        return feed

    # -- workers

    def _worker_joined(self, event: happened.WorkerJoined) -> None:
        former = self.crew.workers.get(event.worker.id)
        if former is not None and former.incarnation < event.worker.incarnation:
            self._lose(former)
        self.crew.join(event.worker)

    def _worker_lost(self, event: happened.WorkerLost) -> None:
        worker = self.crew.find(event.worker, event.incarnation)
        if worker is not None:
            self._lose(worker)

    def _lose(self, worker: WorkerState) -> None:
        """Return everything that only this worker had."""
        lost = self.crew.leave(worker)
        for feed in worker.inspecting.values():
            self.intake.inspected(feed, worker.id, worker.incarnation)
            self.intake.wait_again(feed)
        for attempt in lost:
            self.intake.give_back(attempt.task.inputs)
        self.intake.give_back(self.merger.forget(worker))

    def _offers_changed(self, event: happened.OffersChanged) -> None:
        worker = self.crew.find(event.worker, event.incarnation)
        if worker is not None:
            self.crew.set_offers(worker, event.offers)

    # -- attempts

    def _started(self, event: happened.Started) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self.crew.started(attempt)

    def _progress(self, event: happened.Progress) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            attempt.rows_done = event.rows

    def _finished(self, event: happened.Finished) -> None:
        handle = event.handle
        attempt = self.crew.live(event)
        if attempt is None:
            self._discard(handle)
            return
        rows = attempt.task.inputs
        if handle.rows != rows:
            raise InternalError(f"{handle} does not cover what attempt {attempt.id} ran: {rows}")
        if self.failure is None and self.ledger.accept(handle):
            self.crew.end(attempt, AttemptState.ACCEPTED)
            self._learn(attempt, event)
            self.merger.keep(attempt.bundle, handle, 0, self._out)
        else:
            self.crew.end(attempt, AttemptState.DISCARDED)
            self.intake.give_back(self.ledger.unowned(rows))
            self._discard(handle)
            self.merger.review(attempt.bundle, self._out)

    def _learn(self, attempt: Attempt, event: happened.Finished) -> None:
        """Count an accepted attempt's evidence and cost."""
        self.accepted += 1
        self.bytes_read += event.measurement.bytes_read
        category = attempt.task.category
        account = self.accounts[category]
        known = attempt.worker.known
        account.count(attempt.task.size, event.measurement.wall, warm=category in known)
        known.add(category)
        evidence = event.evidence
        if evidence is not None:
            account.learn(evidence)
            if evidence.guards:
                self._ask_for_plan(account)

    def _failed(self, event: happened.Failed) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self.crew.end(attempt, AttemptState.FAILED)
            self._settle_failure(attempt, event.failure)
            self.merger.review(attempt.bundle, self._out)

    def _settle_failure(self, attempt: Attempt, failure: Failure) -> None:
        """Do with the rows of a failed attempt what the failure asks for."""
        task, feed = attempt.task, attempt.bundle.feed
        units = sum(feed.cutter.units(part) for part in task.inputs)
        what = self._answer(failure, attempt.tries, units)
        if what is Answer.LATER:
            tries = attempt.tries + 1
            self.delays.push(self._now, tries, (task, tries))
        elif what in (Answer.GIVE_UP, Answer.GIVE_UP_INPUT):
            self._give_up(task.inputs, failure)
            if what is Answer.GIVE_UP_INPUT:
                self.intake.give_up(feed, failure)
                self.merger.review_all(feed, self._out)
        else:
            self.intake.give_back(task.inputs, single=what is Answer.SMALLER)
            if what is Answer.STOP:
                self._fail_run(failure)

    def _answer(self, failure: Failure, tries: int, units: int = 1) -> Answer:
        """Say what to do; while the run ends, rows are only kept apart from those done."""
        if self.stopping:
            return Answer.AGAIN
        return answer(failure.kind, self.options, tries=tries, units=units)

    def _give_up(self, rows: Iterable[Rows], failure: Failure) -> None:
        for part in rows:
            self.ledger.fail(part, failure)

    def _cancelled(self, event: happened.Cancelled) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self.crew.end(attempt, AttemptState.CANCELLED)
            self.intake.give_back(attempt.task.inputs)
            self.merger.review(attempt.bundle, self._out)

    # -- partials

    def _discard(self, handle: Handle) -> None:
        """Answer a report that does not count; a second report of what is held is no such."""
        if handle.id not in self.ledger.held:
            self._out.append(Discard(handle))

    def _merged(self, event: happened.Merged) -> None:
        if not self.merger.merged(event.handle, self._out):
            self._discard(event.handle)

    def _merge_failed(self, event: happened.MergeFailed) -> None:
        found = self.merger.merge_failed(event.handle, self._out)
        if found is None:
            return
        bundle, rows = found
        what = self._answer(event.failure, self.options.retries)  # its inputs are gone: no retry
        if what in (Answer.GIVE_UP, Answer.GIVE_UP_INPUT):
            self._give_up(rows, event.failure)
        else:
            self.intake.give_back(rows)
            if what is Answer.STOP:
                self._fail_run(event.failure)
        self.merger.review(bundle, self._out)

    def _fetched(self, event: happened.Fetched) -> None:
        if not self.merger.fetched(event.handle, self._out):
            self._discard(event.handle)

    def _output_lost(self, event: happened.OutputLost) -> None:
        worker = self.crew.find(event.handle.worker, event.handle.incarnation)
        if worker is not None:
            self.intake.give_back(self.merger.output_lost(event.handle, worker))

    # -- plans

    def _ask_for_plan(self, account: Account) -> None:
        job = account.ask()
        if job is not None:
            self._out.append(Replan(job))

    def _planned(self, event: happened.Planned) -> None:
        account = self.accounts[event.plan.category]
        if not account.answer(event.plan):
            raise InternalError(
                f"{event.plan} must have an id above {account.plan.id} and keep every guard of "
                f"{list(account.guards)}"
            )
        self._ask_for_plan(account)

    # -- time

    def _tick(self, event: happened.Tick) -> None:
        """Time alone is the news; what is due is found before the placement pass."""

    def _release_due(self) -> None:
        for what in self.delays.due(self._now):
            if isinstance(what, Feed):
                self.intake.wait_again(what)
            else:
                self.placement.ready.append(what)
        wake = self.delays.wake_at()
        if wake is not None:
            self._out.append(WakeAt(wake))

    # -- the end

    def _cancel_requested(self, event: happened.CancelRequested) -> None:
        """Launch no more; what runs may finish, and what is held is fetched."""
        if not self.stopping:
            self._stop(event.reason)
            self.merger.no_more = True
            for worker in self.crew.workers.values():
                self.merger.review_all(worker, self._out)

    def _fail_run(self, failure: Failure) -> None:
        """Stop because of a failure: nothing that is held will be wanted."""
        if self.stopping:
            return
        self.failure = failure
        self._stop(failure.message)
        self._out += [Discard(handle) for handle in self.ledger.held.values()]
        for worker in self.crew.workers.values():
            for bundle in worker.bundles.values():
                self.intake.give_back(self.merger.empty(bundle))

    def _stop(self, reason: str) -> None:
        self.stopping = True
        self._reason = reason
        for attempt in self.crew.attempts.values():
            self.crew.cancel(attempt)
            worker = attempt.worker
            self._out.append(Cancel(attempt.id, worker.id, worker.incarnation))

    def _end_if_done(self) -> None:
        intake = self.intake
        if self.crew.attempts or self.ledger.held or intake.inspecting:
            return
        if not self.stopping and (
            intake.unopened or intake.uncut or self.placement.ready or self.delays.heap
        ):
            return
        if self.failure is not None:
            self.status = "failed"
        elif self.ledger.complete:
            self.status = "complete"
        elif self.ledger.accounted:
            self.status = "incomplete"
        else:
            self.status = "cancelled"
        self._out.append(Resolve(self.status, self.failure, self._reason))
