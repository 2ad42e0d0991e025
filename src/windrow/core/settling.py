"""What becomes of rows whose attempt, merge, fetch or worker ended badly.

The rule itself is in ``failures``; here it is carried out, and what it cost is counted. Methods
return True if the run must stop. A task that is tried again stays the same task, so that what was
counted against it is not forgotten; rows that nothing was counted against go back to be cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.amounts import too_much
from windrow.core.failures import Answer, answer, lost_too_often
from windrow.core.records import Failure, FailureKind
from windrow.core.state import NO_TRIES, Attempt, Bundle, Feed, Spent, Tries, WorkerState

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable

    from windrow.core.commands import Command
    from windrow.core.crew import Crew
    from windrow.core.delays import Delays
    from windrow.core.events import Exhausted
    from windrow.core.intake import Intake
    from windrow.core.ledger import Ledger
    from windrow.core.merger import Merger
    from windrow.core.options import Options
    from windrow.core.records import Handle, Rows, Task

__all__ = ["OUT_OF_TIME", "UNSEEN", "Settling"]

_GIVEN_UP = (Answer.GIVE_UP, Answer.GIVE_UP_INPUT)

#: The type of a failure of rows that took too long.
OUT_OF_TIME = "OutOfTime"

#: Stands for the end of a worker of which nothing was told.
UNSEEN = Failure(FailureKind.LOST, "WorkerLost", "it went away")


class Settling:
    """The hand that carries out what failures ask for."""

    def __init__(
        self,
        ledger: Ledger,
        intake: Intake,
        crew: Crew,
        merger: Merger,
        delays: Delays,
        ready: deque[tuple[Task, Tries]],
        options: Options,
    ) -> None:
        self.spent = Spent()
        self.stopping = False  #: while the run ends, rows are only kept apart from those done
        self._ledger = ledger
        self._intake = intake
        self._crew = crew
        self._merger = merger
        self._delays = delays
        self._ready = ready
        self._options = options

    def _answer(self, failure: Failure, tries: Tries, units: int = 1) -> Answer:
        if self.stopping:
            return Answer.AGAIN
        return answer(failure.kind, self._options, tries=tries.of(failure.kind), units=units)

    # -- attempts

    def failed(self, attempt: Attempt, failure: Failure, now: float, out: list[Command]) -> bool:
        """An attempt has ended badly."""
        if attempt.void:
            return False
        tries = attempt.tries.after(failure.kind)
        other = attempt.twin
        if other is not None:
            # The other goes on and decides; but it may hang, and then the second such end does.
            if failure.kind is FailureKind.LOST or other.doubt is None:
                other.tries = tries
                if failure.kind is not FailureKind.LOST:
                    other.doubt = failure
                return False
            self._crew.dismiss(other, out)
            self._merger.review(other.bundle, out)
        task, feed = attempt.task, attempt.bundle.feed
        units = sum(feed.cutter.units(part) for part in task.inputs)
        what = self._answer(failure, attempt.tries, units)
        if what is not Answer.AGAIN:
            attempt.worker.proven = True  # it has brought a job to an end, if a bad one
        if what is Answer.LATER:
            self.spent.retries += 1
            self._delays.push(now, tries.reads, (task, tries))
        elif what in _GIVEN_UP:
            self._give_up(task.inputs, failure)
            if what is Answer.GIVE_UP_INPUT:
                self._intake.give_up(feed, failure)
                self._merger.review_all(feed, out)
        elif what is Answer.AGAIN:
            # Before all others: a task that ends workers is found out before they are given up.
            self._again(task, tries, first=True)
        else:
            self._intake.give_back(task.inputs, single=what is Answer.SMALLER)
        return what is Answer.STOP

    def again(self, attempt: Attempt) -> None:
        """An attempt ended through no fault of its own; its twin, if there is one, has the rows."""
        if not attempt.void and attempt.twin is None:
            self._again(attempt.task, attempt.tries)

    def _again(self, task: Task, tries: Tries, *, first: bool = False) -> None:
        if self.stopping or tries == NO_TRIES:
            self._intake.give_back(task.inputs)
        elif first:
            self._ready.appendleft((task, tries))
        else:
            self._ready.append((task, tries))

    def exhausted(self, attempt: Attempt, event: Exhausted) -> Failure:
        """Say in words what an attempt used too much of."""
        self.spent.exhaustions += 1
        place = ", ".join(
            f"{attempt.bundle.feed.spec.label or f'input {part.input}'} rows {part.start} to {part.stop}"
            for part in attempt.task.inputs
        )
        kind = OUT_OF_TIME if event.resource == "seconds" else "Exhausted"
        return Failure(FailureKind.EXHAUSTED, kind, too_much(event), place)

    def _give_up(self, rows: Iterable[Rows], failure: Failure) -> None:
        if failure.kind is FailureKind.LOST:
            failure = lost_too_often(failure)
        for part in rows:
            self._ledger.fail(part, failure)

    # -- inputs

    def inspect_failed(self, feed: Feed, failure: Failure, now: float) -> bool:
        """An input could not be opened."""
        what = self._answer(failure, feed.tries)
        feed.tries = feed.tries.after(failure.kind)
        if what is Answer.LATER:
            self.spent.retries += 1
            self._intake.delay(feed)
            self._delays.push(now, feed.tries.reads, feed)
        elif what in _GIVEN_UP:
            self._intake.give_up(feed, failure)
        else:
            self._intake.wait_again(feed)
        return what is Answer.STOP

    # -- partials

    def merge_failed(self, handle: Handle, failure: Failure, out: list[Command]) -> bool:
        """A merge raised."""
        found = self._merger.merge_failed(handle, out)
        return found is not None and self._partials_lost(*found, failure, out)

    def fetch_failed(self, handle: Handle, failure: Failure, out: list[Command]) -> bool:
        """A partial cannot leave its worker."""
        found = self._merger.fetch_failed(handle, out)
        return found is not None and self._partials_lost(*found, failure, out)

    def _partials_lost(self, bundle: Bundle, rows: Iterable[Rows], failure: Failure, out: list[Command]) -> bool:
        """Partials are gone: there is nothing to try again, except that they vanished unseen."""
        often = max(self._options.retries, self._options.crashes)
        what = self._answer(failure, Tries(reads=often, crashes=often))
        if what in _GIVEN_UP:
            self._give_up(rows, failure)
        else:
            self._intake.give_back(rows)
        self._merger.review(bundle, out)
        return what is Answer.STOP

    # -- workers

    def lost(
        self, worker: WorkerState, attempts: list[Attempt], failure: Failure, now: float, out: list[Command]
    ) -> bool:
        """Settle all that a worker had, and hold its end against what it was doing."""
        crashed = failure.kind is FailureKind.CRASHED
        feeds = list(worker.inspecting.values())
        at_work = next((one for one in attempts if one.started is not None), None)
        stop = False
        if at_work is None and feeds:
            stop = self._inspection_lost(feeds.pop(0), worker, failure, now)
        elif at_work is None and crashed:
            partial = self._merger.at_work(worker, attempts[0].id if attempts else None)
            if partial is not None:
                stop = self._partial_crashed(partial, failure, out)
            elif attempts:
                at_work = attempts[0]
        for feed in feeds:
            self._intake.inspected(feed, worker.id, worker.incarnation)
            self._intake.wait_again(feed)
        for attempt in attempts:
            if attempt is at_work:
                stop = self.failed(attempt, failure, now, out) or stop
            else:
                self.again(attempt)
        self._intake.give_back(self._merger.forget(worker))
        return stop

    def _inspection_lost(self, feed: Feed, worker: WorkerState, failure: Failure, now: float) -> bool:
        self._intake.inspected(feed, worker.id, worker.incarnation)
        if self._answer(failure, feed.tries) is not Answer.AGAIN:
            worker.proven = True  # as in ``failed``
        return self.inspect_failed(feed, failure, now)

    def _partial_crashed(self, partial: tuple[Handle, Feed], failure: Failure, out: list[Command]) -> bool:
        """A merge or a fetch ended its worker: after a few times its rows are at fault."""
        handle, feed = partial
        feed.tries = feed.tries.after(FailureKind.CRASHED)
        if feed.tries.crashes < self._options.crashes:
            return False
        if handle.id in self._merger.merging:
            return self.merge_failed(handle, failure, out)
        return self.fetch_failed(handle, failure, out)
