"""The scheduler: a batch of events in, a list of commands out; all state changes happen in ``on``.

It knows no clock, thread or file. A batch costs what its events cost plus one placement pass over
the workers that have room. The same events at the same times give the same commands.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.commands import Command, Discard, Resolve, Status, WakeAt
from windrow.core.crew import Crew
from windrow.core.delays import Delays, Restart
from windrow.core.endgame import Endgame
from windrow.core.intake import Intake
from windrow.core.ledger import Ledger
from windrow.core.merger import Merger
from windrow.core.options import Options
from windrow.core.placement import Placement
from windrow.core.policies import AtTheEnd
from windrow.core.records import FailureKind, Plan
from windrow.core.reports import Reports
from windrow.core.routes import graph_handlers
from windrow.core.safekeeping import Safekeeping
from windrow.core.settling import UNSEEN, Settling
from windrow.core.staff import Staff
from windrow.core.standing import Standing, standing
from windrow.core.state import Account, Attempt, Feed, WorkerState
from windrow.core.tasks import Tasks
from windrow.core.transitions import AttemptState
from windrow.core.validate import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windrow.core.policies import Policies
    from windrow.core.records import Failure, InputSpec
    from windrow.core.state import Spent

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
        self.ledger = Ledger()
        self.accounts: dict[str, Account] = {}
        next_id = count(1).__next__  # of attempts and merged handles alike
        options = self.options
        self.intake = Intake(self.ledger, options.row_limit, options.row_limits)
        self.crew = Crew(options.needs, next_id)
        early = not isinstance(policies.safety, AtTheEnd)
        self._safe = Safekeeping(policies.safety) if early else None
        self.merger = Merger(self.ledger, next_id, self._safe)
        self.delays = Delays()
        self.placement = Placement(self.intake, self.crew, self.merger, self.accounts, policies.shape, options)
        ready = self.placement.ready
        self.settling = Settling(self.ledger, self.intake, self.crew, self.merger, self.delays, ready, options)
        spent = self.settling.spent
        self.staff = Staff(self.crew, self.merger, self.delays, spent, options, self._safe)
        self.endgame = Endgame(self.crew, self.intake, self.placement, self.accounts, options, spent)
        self.reports = Reports(
            self.ledger, self.intake, self.crew, self.merger, self.staff, self.accounts, policies.order
        )
        self.tasks = Tasks(options, self.crew, next_id)
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
        self.tasks.begin(out, now)
        if self._safe is not None:
            self._safe.now = now
        handlers = self._handlers
        for event in events:
            handlers[type(event)](event)
        if self.status is None:
            if not self.stopping:
                self._hand_out(out, now)
            if self.tasks.fatal is not None:
                self._fail_run(self.tasks.fatal)
            if self.staff.draining:
                self.staff.release(out)
            self._end_if_done()
            if not self.crew.workers and self.status is None:
                self._fail_if_deserted()
        return out

    def _hand_out(self, out: list[Command], now: float) -> None:
        """Give work to workers that have room, and say when to look again."""
        delays = self.delays
        if delays.heap or delays.pauses:
            self.placement.resume(delays.due(now))
            self.staff.resume(now, out)
        tasks = self.tasks
        if not tasks.before_rows(self.staff.draining.values()):
            return
        self.placement.place(out, now, shallow=tasks.dispatch.crowded)
        tasks.after_rows(idle=not (self._rows_under_way or delays.heap))
        self.endgame.look(out, now)
        times = [time for time in (self.endgame.wake, tasks.wake) if time is not None]
        if delays.heap or delays.pauses or times:
            wake = delays.wake_at(min(times, default=None))
            if wake is not None:
                out.append(WakeAt(wake))

    @property
    def finished(self) -> bool:
        """Whether the run is resolved."""
        return self.status is not None

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the work was cut."""
        return [*self.placement.notes, *self.staff.notes]

    @property
    def bytes_read(self) -> int:
        """Bytes that accepted attempts read."""
        return self.reports.bytes_read

    @property
    def spent(self) -> Spent:
        """What was spent so far on things that went wrong."""
        return self.settling.spent

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
            happened.DrainRequested: self._drain_requested,
            happened.OffersChanged: self._offers_changed,
            happened.Started: self._started,
            happened.Progress: self._progress,
            happened.Finished: self._finished,
            happened.Failed: self._failed,
            happened.Exhausted: self._exhausted,
            happened.Shrunk: self._shrunk,
            happened.Cancelled: self._cancelled,
            happened.Merged: self._merged,
            happened.MergeFailed: self._merge_failed,
            happened.Fetched: self._fetched,
            happened.FetchFailed: self._fetch_failed,
            happened.OutputLost: self._output_lost,
            happened.CancelRequested: self._cancel_requested,
            **graph_handlers(self.tasks, self.crew),
            happened.Planned: lambda event: self.reports.planned(event.plan, self._out),
            happened.Tick: lambda _: None,  # time alone is the news: what is due is found later
        }

    # -- inputs

    def _submitted(self, event: happened.Submitted) -> None:
        for spec in event.inputs:
            if spec.category not in self.accounts:
                plan = self._plans.get(spec.category) or Plan(id=0, category=spec.category)
                self.accounts[spec.category] = Account(plan)
        self.intake.add(event.inputs)
        if event.tasks:
            self.tasks.submit(event.tasks, self._handlers)

    def _discovered(self, event: happened.Discovered) -> None:
        feed = self._inspected(event.input, event.worker, event.incarnation)
        if feed is not None:
            self.intake.known(feed, event.rows, event.borders)

    def _inspect_failed(self, event: happened.InspectFailed) -> None:
        feed = self._inspected(event.input, event.worker, event.incarnation)
        if feed is not None and self.settling.inspect_failed(feed, event.failure, self._now):
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
            self._lose(former, UNSEEN, again=False)
        self.staff.join(event.worker)

    def _worker_lost(self, event: happened.WorkerLost) -> None:
        worker = self.crew.find(event.worker, event.incarnation)
        failure = event.failure or UNSEEN
        if worker is not None:
            self._lose(worker, failure, again=True)
        else:
            life = Restart(event.worker, event.incarnation)
            self.staff.stillborn(life, failure, self._now, None if self.stopping else self._out)

    def _lose(self, worker: WorkerState, failure: Failure, *, again: bool) -> None:
        """Return everything that only this worker had."""
        attempts = self.crew.leave(worker)
        self.reports.lost(attempts, failure)
        if self.settling.lost(worker, attempts, failure, self._now, self._out):
            self._fail_run(failure)
        wanted = again and not self.stopping
        self.staff.left(worker, failure, self._now, self._out if wanted else None)

    def _drain_requested(self, event: happened.DrainRequested) -> None:
        worker = self.crew.find(event.worker, event.incarnation)
        if worker is not None:
            self.staff.drain(worker, event.reason, event.replace, self._out)

    def _offers_changed(self, event: happened.OffersChanged) -> None:
        worker = self.crew.find(event.worker, event.incarnation)
        if worker is not None:
            self.crew.set_offers(worker, event.offers)

    # -- attempts

    def _started(self, event: happened.Started) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self.crew.started(attempt, self._now)

    def _progress(self, event: happened.Progress) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            attempt.rows_done, attempt.told = event.rows, self._now

    def _finished(self, event: happened.Finished) -> None:
        attempt = self.crew.live(event)
        if attempt is None:
            self.reports.discard(event.handle, self._out)
        else:
            attempt.worker.heard = self._now
            self.reports.finished(attempt, event, self._out)

    def _failed(self, event: happened.Failed) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self._ended_badly(attempt, event.failure)

    def _exhausted(self, event: happened.Exhausted) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self._ended_badly(attempt, self.settling.exhausted(attempt, event))

    def _ended_badly(self, attempt: Attempt, failure: Failure) -> None:
        attempt.worker.heard = self._now
        self.crew.end(attempt, AttemptState.FAILED)
        if failure.kind is FailureKind.EXHAUSTED and self.reports.blame_order((attempt,)):
            self.settling.again(attempt)  # the order comes first, then the shape
        elif self.settling.failed(attempt, failure, self._now, self._out):
            self._fail_run(failure)
        self.merger.review(attempt.bundle, self._out)

    def _shrunk(self, event: happened.Shrunk) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            self.reports.shrunk(attempt, event, self._out)

    def _cancelled(self, event: happened.Cancelled) -> None:
        attempt = self.crew.live(event)
        if attempt is not None:
            attempt.worker.heard = self._now
            self.crew.end(attempt, AttemptState.CANCELLED)
            self.settling.again(attempt)
            self.merger.review(attempt.bundle, self._out)

    # -- partials

    def _merged(self, event: happened.Merged) -> None:
        if not self.merger.merged(event.handle, self._out):
            self.reports.discard(event.handle, self._out)

    def _merge_failed(self, event: happened.MergeFailed) -> None:
        if self.settling.merge_failed(event.handle, event.failure, self._out):
            self._fail_run(event.failure)

    def _fetched(self, event: happened.Fetched) -> None:
        if not self.merger.fetched(event.handle, event.seconds, self._out):
            self.reports.discard(event.handle, self._out)

    def _fetch_failed(self, event: happened.FetchFailed) -> None:
        if self.settling.fetch_failed(event.handle, event.failure, self._out):
            self._fail_run(event.failure)

    def _output_lost(self, event: happened.OutputLost) -> None:
        worker = self.crew.find(event.handle.worker, event.handle.incarnation)
        if worker is not None:
            self.intake.give_back(self.merger.output_lost(event.handle, worker))

    # -- the end

    def _cancel_requested(self, event: happened.CancelRequested) -> None:
        """Launch no more; what runs may finish, and what is held is fetched."""
        if event.groups is not None or event.task is not None:
            self.tasks.cancel_group(event)
        elif not self.stopping:
            self._stop(event.reason)
            self.merger.no_more = True
            for worker in self.crew.workers.values():
                self.merger.review_all(worker, self._out)

    def _fail_run(self, failure: Failure) -> None:
        """Stop because of a failure: nothing that is held will be wanted."""
        if self.stopping:
            return
        self.failure = failure
        self.reports.wanted = False
        self._stop(failure.message)
        self._out += [Discard(handle) for handle in self.ledger.held.values()]
        for worker in self.crew.workers.values():
            for bundle in worker.bundles.values():
                self.intake.give_back(self.merger.empty(bundle))

    def _stop(self, reason: str) -> None:
        self.stopping = self.settling.stopping = True
        self._reason = reason
        for attempt in self.crew.attempts.values():
            self.crew.cancel(attempt, self._out)
        self.tasks.stop(reason, forget=self.failure is not None)

    def _fail_if_deserted(self) -> None:
        """Nobody is left to do what remains, and nobody will come: say so instead of waiting."""
        failure = self.staff.deserted()
        if failure is not None:
            self._fail_run(failure)
            self._end_if_done()

    @property
    def _rows_under_way(self) -> bool:
        attempts = len(self.crew.attempts) - self.crew.void
        return bool(attempts or self.ledger.held or self.intake.inspecting)

    def _end_if_done(self) -> None:
        intake = self.intake
        if self._rows_under_way or self.tasks.outstanding:
            return
        if not self.stopping and (intake.unopened or intake.uncut or self.placement.ready or self.delays.heap):
            return
        if self.failure is not None:
            self.status = "failed"
        elif self.ledger.complete and not (self.tasks.failed or self.tasks.cut_off):
            self.status = "complete"
        elif self.ledger.accounted and not self.tasks.cut_off:
            self.status = "incomplete"
        else:
            self.status = "cancelled"
        self.tasks.graph.frozen = True
        self._out.append(Resolve(self.status, self.failure, self._reason))
