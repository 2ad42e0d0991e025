"""Near the end: what idle workers take over from busy ones when nothing is left to cut.

Three ways, the cheapest first. A task that waits in a queue is called back. A task that runs is
asked to stop half-way through what is left of it. A task that takes far longer than its rows
should is run a second time; whoever is first counts. Only answers move rows, never questions.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from windrow.core.commands import Command, Shrink
from windrow.core.state import NO_TRIES, Account, Attempt, WorkerState
from windrow.core.transitions import AttemptState, InputState

if TYPE_CHECKING:
    from windrow.core.crew import Crew
    from windrow.core.intake import Intake
    from windrow.core.options import Options
    from windrow.core.placement import Placement
    from windrow.core.state import Spent

__all__ = ["Endgame"]

#: Seconds between two looks at all workers; a look costs half a microsecond for each.
LOOK_S = 0.02
#: Calling a queued task back must save so many seconds: that is many times what the messages take.
STEAL_S = 0.2
#: A task is asked to shrink for the sake of so many seconds: opening the input elsewhere is not free.
SHRINK_S = 0.5
#: An idle worker counts on an answer for so long; then it looks for something else.
ANSWER_S = 1.0
#: A task is overdue when it took both so many times and so many seconds more than predicted.
OVERDUE_TIMES, OVERDUE_S = 3.0, 2.0
#: A task of which nothing is known, neither from others nor from itself, is overdue after so long.
UNKNOWN_S = 60.0


class Endgame:
    """Finds work for idle workers among what others have."""

    def __init__(
        self,
        crew: Crew,
        intake: Intake,
        placement: Placement,
        accounts: dict[str, Account],
        options: Options,
        spent: Spent,
    ) -> None:
        self.wake: float | None = None  #: when to look again although nothing happened
        self._next = 0.0  #: not before that
        self._crew = crew
        self._intake = intake
        self._placement = placement
        self._accounts = accounts
        self._speculate = options.speculate
        self._spent = spent

    def look(self, out: list[Command], now: float) -> None:
        """Help idle workers, if there are any and there is nothing else for them."""
        self.wake = None
        crew, intake = self._crew, self._intake
        idle = len(crew.levels[0])
        if not idle or not crew.running_rows or intake.uncut or self._placement.ready:
            return
        if now < self._next:
            self.wake = self._next
            return
        self._next = now + LOOK_S
        busy = [worker for worker in crew.workers.values() if worker.attempts]
        for attempt in crew.attempts.values():
            if attempt.asked is not None and now < attempt.asked + ANSWER_S:
                idle -= 1
        idle -= self._steal(busy, idle, out, now)
        if not intake.unopened:
            idle -= self._shrink(busy, idle, out, now)
        if self._speculate:
            self._copy(busy, idle, out, now)

    # -- what is left of a task

    def _pace(self, attempt: Attempt) -> float | None:
        """Give the seconds a row takes: of its own, if it told, or of recent tasks."""
        if attempt.rows_done and attempt.started is not None and attempt.told > attempt.started:
            return (attempt.told - attempt.started) / attempt.rows_done
        return self._accounts[attempt.task.category].row_s

    def _rows_left(self, attempt: Attempt, pace: float, now: float) -> int:
        if attempt.started is None:
            return attempt.task.size
        since = attempt.told if attempt.rows_done else attempt.started
        done = attempt.rows_done + int((now - since) / pace)
        return max(0, attempt.task.size - done)

    def _left_s(self, attempt: Attempt, now: float) -> float:
        """Estimate the seconds an attempt still holds its worker; none where nobody knows."""
        pace = self._pace(attempt)
        return self._rows_left(attempt, pace, now) * pace if pace else 0.0

    # -- the three ways

    def _steal(self, busy: list[WorkerState], idle: int, out: list[Command], now: float) -> int:
        """Call back the last task of the longest queues."""
        found: list[tuple[float, Attempt]] = []
        for worker in busy:
            *before, last = worker.attempts.values()
            if before and last.state is AttemptState.LAUNCHED and last.twin is None:
                wait = sum(self._left_s(attempt, now) for attempt in before)
                if wait > STEAL_S:
                    found.append((-wait, last))
        chosen = sorted(found, key=_first)[: max(idle, 0)]
        for _, attempt in chosen:
            attempt.asked = now
            self._crew.cancel(attempt, out)
        return len(chosen)

    def _shrink(self, busy: list[WorkerState], idle: int, out: list[Command], now: float) -> int:
        """Ask the tasks that have most left to stop half-way."""
        found: list[tuple[float, Attempt, int]] = []
        for worker in busy:
            attempt = next(iter(worker.attempts.values()))
            pace = self._pace(attempt)
            if not pace or not _may_shrink(attempt):
                continue
            left = self._rows_left(attempt, pace, now)
            stop = _half_way(attempt, left)
            if left * pace > SHRINK_S and stop is not None:
                found.append((-left * pace, attempt, stop))
        chosen = sorted(found, key=_first)[: max(idle, 0)]
        for _, attempt, stop in chosen:
            attempt.asked = now
            out.append(Shrink(*attempt.key, stop))
        return len(chosen)

    def _copy(self, busy: list[WorkerState], idle: int, out: list[Command], now: float) -> None:
        """Run again what a worker has that is overdue; say when the next one will be."""
        for worker in busy:
            due = self._due(worker)
            if now < due:
                self._wake_at(due)
                continue
            helpers = self._crew.levels[0]
            for attempt in list(worker.attempts.values()):
                if attempt.twin is not None or attempt.void:
                    continue
                if idle <= 0 or not helpers:
                    self._wake_at(now + ANSWER_S)  # those who count on an answer may be free then
                    break
                idle -= 1
                self._spent.copies += 1
                helper = next(iter(helpers.values()))
                feed = attempt.bundle.feed
                copy = self._placement.launch(helper, attempt.task, feed, attempt.tries, out)
                self._crew.pair(attempt, copy)

    def _wake_at(self, time: float) -> None:
        self.wake = time if self.wake is None else min(time, self.wake)

    def _due(self, worker: WorkerState) -> float:
        """Say when the task that a worker is at, or should be at, is overdue."""
        attempt = next(iter(worker.attempts.values()))
        row_s = self._accounts[attempt.task.category].row_s or self._pace(attempt)
        since = attempt.started
        if since is None:
            since = max(attempt.launched, worker.heard)
        if row_s is None:
            return since + UNKNOWN_S
        predicted = row_s * attempt.task.size
        return since + max(OVERDUE_TIMES * predicted, OVERDUE_S + predicted)


def _first(entry: tuple[float, *tuple[object, ...]]) -> float:
    return entry[0]


def _may_shrink(attempt: Attempt) -> bool:
    """Say whether rows can be taken away: those that something is counted against stay together."""
    return (
        attempt.state is AttemptState.RUNNING
        and attempt.asked is None
        and attempt.twin is None
        and attempt.tries == NO_TRIES
        and len(attempt.task.inputs) == 1
        and attempt.bundle.feed.state is not InputState.BAD
    )


def _half_way(attempt: Attempt, left: int) -> int | None:
    """Give the unit border nearest to half of the last ``left`` rows; None if there is none."""
    (rows,) = attempt.task.inputs
    borders = attempt.bundle.feed.borders
    at = bisect_left(borders, rows.stop - left // 2)
    for border in (borders[at], borders[at - 1]):
        if rows.stop - left < border < rows.stop:
            return border
    return None
