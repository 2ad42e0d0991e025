"""One pass of placement: jobs to workers that have room, the idle ones first.

A job is a retry, rows of the input that the worker has open, of one that nobody works on, the
opening of the next input, or rows of any input. Nothing is scanned: each job costs the same
however many tasks and workers there are.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from windrow.core.commands import Command, Inspect, Launch
from windrow.core.crew import MAX_WINDOW
from windrow.core.policies import ShapeRequest
from windrow.core.records import Task
from windrow.core.state import NO_TRIES, Feed, Tries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.core.crew import Crew
    from windrow.core.delays import Retry
    from windrow.core.intake import Intake
    from windrow.core.merger import Merger
    from windrow.core.options import Options
    from windrow.core.policies import ShapePolicy
    from windrow.core.state import Account, Attempt, WorkerState

__all__ = ["Placement"]


class Placement:
    """Cuts tasks and hands them out."""

    def __init__(
        self,
        intake: Intake,
        crew: Crew,
        merger: Merger,
        accounts: dict[str, Account],
        shape: ShapePolicy,
        options: Options,
    ) -> None:
        self.ready: deque[tuple[Task, Tries]] = deque()  #: tasks to try again
        self.notes: list[str] = []
        self._intake = intake
        self._crew = crew
        self._merger = merger
        self._accounts = accounts
        self._shape = shape
        self._options = options
        self._next_task = count(1).__next__
        self._task_s: float | None = None  #: predicted length of the task cut last
        self._now = 0.0

    def place(self, out: list[Command], now: float, *, shallow: bool = False) -> None:
        """Give jobs until there is no room or no job; ``shallow`` queues let others in soon."""
        self._now = now
        self._crew.refit()
        for level, workers in enumerate(self._crew.levels[:MAX_WINDOW]):
            while workers:
                if level and (shallow or level >= self._shape.window(self._task_s)):
                    return
                if not self._give_job(next(iter(workers.values())), out):
                    return

    def resume(self, retries: Iterable[Retry]) -> None:
        """Let what waited for its time be tried again."""
        for what in retries:
            if isinstance(what, Feed):
                self._intake.wait_again(what)
            else:
                self.ready.append(what)

    def _give_job(self, worker: WorkerState, out: list[Command]) -> bool:
        intake = self._intake
        if self.ready:
            task, tries = self.ready.popleft()
            self.launch(worker, task, intake.feeds[task.inputs[0].input], tries, out)
            return True
        feed = worker.feed
        if feed is None or not feed.cutter.rows:
            feed = intake.fresh()
            if feed is None:
                waiting = intake.next_waiting(len(self._crew.workers) + 1)
                if waiting is not None:
                    self._inspect(worker, waiting, out)
                    return True
                feed = intake.any()
                if feed is None:
                    return False
        self.launch(worker, self._cut(feed), feed, NO_TRIES, out)
        if not feed.cutter.rows:
            # Nothing more comes for workers that are through with this input.
            self._merger.review_all(feed, out)
        return True

    def _inspect(self, worker: WorkerState, feed: Feed, out: list[Command]) -> None:
        self._intake.inspect(feed, worker)
        self._crew.inspect(worker, feed)
        out.append(Inspect(feed.spec.id, worker.id, worker.incarnation))

    def launch(self, worker: WorkerState, task: Task, feed: Feed, tries: Tries, out: list[Command]) -> Attempt:
        """Let a worker try a task."""
        plan = self._accounts[task.category].plan
        bundle = self._merger.bundle(worker, feed)
        attempt = self._crew.launch(worker, task, bundle, plan, tries, self._now)
        limits = self._options.limits
        out.append(Launch(task, attempt.id, worker.id, worker.incarnation, plan, limits))
        return attempt

    def _cut(self, feed: Feed) -> Task:
        """Cut the next task from an input."""
        intake = self._intake
        category = feed.spec.category
        account = self._accounts[category]
        unit, units = feed.cutter.next_unit()
        want = self._shape.rows(
            ShapeRequest(
                category,
                len(self._crew.workers),
                unit,
                units,
                intake.uncut,
                intake.expected(),
                self._crew.rows_ahead(account.row_s, self._now),
                account.costs(),
            )
        )
        bound = self._options.chunk
        if bound is not None:
            want = min(want, bound)
            if unit > bound:
                self._note_large_unit(feed, unit, bound)
        rows = intake.cut(feed, want)
        size = rows.stop - rows.start
        self._task_s = None if account.row_s is None else account.row_s * size
        return Task(self._next_task(), category, (rows,), size, self._options.needs)

    def _note_large_unit(self, feed: Feed, unit: int, bound: int) -> None:
        if not self.notes:
            self.notes.append(
                f"chunk={bound} is smaller than a unit of {feed.spec.label or feed.spec.id}, "
                f"which has {unit} rows; tasks are whole units, so some are larger"
            )
