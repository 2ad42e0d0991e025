"""What attempts at rows report: results that are accepted or not, what they teach, rows given away.

A result counts all or nothing, and only while somebody waits for it. What an attempt learned counts
only if its rows do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.commands import Command, Discard, Replan
from windrow.core.failures import KILLED
from windrow.core.ledger import covers
from windrow.core.records import FailureKind
from windrow.core.transitions import AttemptState
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.core.crew import Crew
    from windrow.core.events import Finished, Shrunk
    from windrow.core.intake import Intake
    from windrow.core.ledger import Ledger
    from windrow.core.merger import Merger
    from windrow.core.policies import OrderPolicy
    from windrow.core.records import Failure, Handle, Plan
    from windrow.core.staff import Staff
    from windrow.core.state import Account, Attempt

__all__ = ["Reports"]


class Reports:
    """The hand that takes results in."""

    def __init__(
        self,
        ledger: Ledger,
        intake: Intake,
        crew: Crew,
        merger: Merger,
        staff: Staff,
        accounts: dict[str, Account],
        order: OrderPolicy,
    ) -> None:
        self.wanted = True  #: False once the run has failed: no result counts any more
        self.accepted = 0  #: attempts
        self.bytes_read = 0  #: by accepted attempts
        self._ledger = ledger
        self._intake = intake
        self._crew = crew
        self._merger = merger
        self._staff = staff
        self._accounts = accounts
        self._order = order

    def finished(self, attempt: Attempt, event: Finished, out: list[Command]) -> None:
        """Accept the result of an attempt that has not ended, or discard it."""
        crew, merger, handle = self._crew, self._merger, event.handle
        rows, wanted = attempt.task.inputs, self.wanted and not attempt.void
        if wanted and (handle.rows != rows or event.skipped):
            _check_cover(attempt, event)
        if wanted and self._ledger.accept(handle, event.skipped):
            crew.end(attempt, AttemptState.ACCEPTED)
            other = attempt.twin
            if other is not None:
                crew.dismiss(other, out)
                merger.review(other.bundle, out)
            self._learn(attempt, event, out)
            merger.keep(attempt.bundle, handle, 0, out)
            if event.measurement.baseline:
                self._staff.watch(attempt.worker, event.measurement, out)
        else:
            crew.end(attempt, AttemptState.DISCARDED)
            if attempt.twin is None and not attempt.void:
                self._intake.give_back(self._ledger.unowned(rows))
            self.discard(handle, out)
            merger.review(attempt.bundle, out)

    def discard(self, handle: Handle, out: list[Command]) -> None:
        """Answer a report that does not count; a second report of what is held is no such."""
        if handle.id not in self._ledger.held:
            out.append(Discard(handle))

    def _learn(self, attempt: Attempt, event: Finished, out: list[Command]) -> None:
        """Count an accepted attempt's evidence and cost."""
        measured = event.measurement
        self.accepted += 1
        self.bytes_read += measured.bytes_read
        attempt.bundle.unsafe_s += measured.wall
        category = attempt.task.category
        account = self._accounts[category]
        known = attempt.worker.known
        account.count(attempt.task.size, measured.wall, warm=category in known, cpu=measured.cpu)
        known.add(category)
        evidence = event.evidence
        if evidence is not None:
            account.learn(evidence)
            due = self._order.due(category, account.spent_s, len(evidence.windows))
            if due or evidence.guards:
                self._ask_for_plan(account, out, due=due)

    def planned(self, plan: Plan, out: list[Command]) -> None:
        """Put a new plan in force, and ask for the next if more was learned meanwhile."""
        account = self._accounts[plan.category]
        if not account.answer(plan):
            raise InternalError(
                f"{plan} must have an id above {account.plan.id} and keep every guard of {list(account.guards)}"
            )
        self._ask_for_plan(account, out)

    def blame_order(self, attempts: Iterable[Attempt]) -> bool:
        """Hold it against the order, if it was moved, that attempts used too much; say whether it was."""
        blamed = {one.task.category for one in attempts if one.plan.moved and not one.void}
        for category in blamed:
            self._accounts[category].blame_order()
        return bool(blamed)

    def lost(self, attempts: Iterable[Attempt], failure: Failure) -> None:
        """Hold it against the order that a worker ended, where that may have been for want of memory.

        SIGKILL comes from the kernel then, but may come from anybody: the second one at the same task is no chance.
        """
        if failure.kind is FailureKind.CRASHED:
            self.blame_order(attempts)
        elif failure.type == KILLED:
            at_work = [one for one in attempts if one.started is not None][:1]
            self.blame_order(one for one in at_work if one.tries.losses)

    def _ask_for_plan(self, account: Account, out: list[Command], *, due: bool = False) -> None:
        if account.wants_plan(due=due):
            category = account.plan.category
            others_s = sum(
                other.spent_s + other.expected_s(self._left(name))
                for name, other in self._accounts.items()
                if name != category
            )
            out.append(Replan(account.ask(rows_left=self._left(category), others_s=others_s)))

    def _left(self, category: str) -> int:
        return self._intake.left(category) + self._crew.rows_of(category)

    def shrunk(self, attempt: Attempt, event: Shrunk, out: list[Command]) -> None:
        """Take rows from an attempt; what it was never asked, or said before, is no news."""
        rows = attempt.task.inputs[0]
        if attempt.asked is None or attempt.void or event.stop >= rows.stop:
            return  # who gives nothing away is not asked again
        attempt.asked = None
        if event.stop <= rows.start or event.stop not in attempt.bundle.feed.borders:
            raise InternalError(f"{event} is no unit border inside of what it runs: {rows}")
        if attempt.twin is not None:
            self._crew.part(attempt, out)  # the other does all of the rows
        else:
            self._intake.give_back([self._crew.shrink(attempt, event.stop)])
        self._merger.review(attempt.bundle, out)


def _check_cover(attempt: Attempt, event: Finished) -> None:
    left_out = [part for part, _ in event.skipped]
    rows = attempt.task.inputs
    if not event.handle.rows or not covers(rows, [*event.handle.rows, *left_out]):
        raise InternalError(
            f"{event.handle} with {left_out} left out does not cover what attempt {attempt.id} ran: {rows}"
        )
