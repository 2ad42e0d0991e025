"""The workers and what each of them is doing.

Workers are kept by how many jobs they have, so that one with room is found without a search.
Attempts live here from launch to end: an attempt that is not found has ended, which is the fence
against late, double and stale events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.commands import Cancel, Command
from windrow.core.packing import Packing
from windrow.core.state import Attempt, Bundle, Feed, Tries, WorkerState
from windrow.core.transitions import ATTEMPT_MOVES, AttemptState, move

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.events import AttemptEvent
    from windrow.core.records import Needs, Plan, Rows, Task, Worker

__all__ = ["MAX_WINDOW", "Crew"]

#: Jobs a worker may have at a time at most, however short they are. The driver answers several
#: reports at once for little more than one: its code has left the caches by the time it is woken.
#: Queues of sixteen tasks of 5 ms cost it a quarter of what single ones do
#: (benchmarks/overhead.py); beyond that little is gained.
MAX_WINDOW = 16


class Crew:
    """All living workers and all attempts that have not ended."""

    def __init__(self, needs: Needs, next_id: Callable[[], int]) -> None:
        self.workers: dict[int, WorkerState] = {}
        #: by attempt, worker and incarnation: whoever does not name all three finds nothing
        self.attempts: dict[tuple[int, int, int], Attempt] = {}
        self.running_rows = 0  #: those of twins once
        self.running: dict[str, int] = {}  #: the same by category
        self.void = 0  #: attempts that nobody waits for
        self.launch_times = 0.0  #: the sum over attempts, for estimating what is left of them
        #: usable workers by how many jobs they have; who came to a level first is served first
        self.levels: list[dict[int, WorkerState]] = [{} for _ in range(MAX_WINDOW + 1)]
        self._lives: dict[int, int] = {}  #: worker id -> newest incarnation ever seen
        self.packing = Packing(needs)
        self._shared = False  #: rows and others draw from the same resources
        self._needs = needs
        self._next_id = next_id

    def find(self, worker_id: int, incarnation: int) -> WorkerState | None:
        """Find a living worker by id and incarnation."""
        worker = self.workers.get(worker_id)
        return worker if worker is not None and worker.incarnation == incarnation else None

    def join(self, worker: Worker) -> bool:
        """Let a worker in; False for a life that was seen before."""
        if self.seen(worker.id, worker.incarnation):
            return False
        self._lives[worker.id] = worker.incarnation
        state = self.workers[worker.id] = WorkerState(worker)
        self.packing.join(worker.id, worker.offers, worker.pools)
        if worker.pools:
            self.share()
        self._fit(state)
        return True

    def leave(self, worker: WorkerState) -> list[Attempt]:
        """Forget a worker; return its attempts, which are lost."""
        self.levels[worker.busy].pop(worker.id, None)
        del self.workers[worker.id]
        self._vacate(worker)
        self.packing.leave(worker.id)
        lost = list(worker.attempts.values())
        for attempt in lost:
            self._move(attempt, AttemptState.LOST)
            self._forget(attempt)
        return lost

    def seen(self, worker_id: int, incarnation: int) -> bool:
        """Say whether this life of a worker, or a later one, has begun."""
        return incarnation <= self._lives.get(worker_id, -1)

    def bury(self, worker_id: int, incarnation: int) -> bool:
        """A life ended before it began; False if it did begin, or a later one did."""
        if self.seen(worker_id, incarnation):
            return False
        self._lives[worker_id] = incarnation
        return True

    def set_offers(self, worker: WorkerState, offers: Needs) -> None:
        """Use a worker only while it offers what tasks need."""
        worker.offers = offers
        self.packing.set_offers(worker.id, offers)
        if worker.drain is not None:
            self.packing.close(worker.id)
        self._fit(worker)

    def _fit(self, worker: WorkerState) -> None:
        """Let a worker be found for rows if it has room for them."""
        room = self.packing.room_for_rows(worker.id, more=worker.busy > 0)
        worker.usable = worker.drain is None and room
        if worker.usable:
            self.levels[worker.busy][worker.id] = worker
        else:
            self.levels[worker.busy].pop(worker.id, None)

    def refit(self) -> None:
        """Look again at workers that got or lost room for rows."""
        touched = list(self.packing.touched)
        self.packing.touched.clear()
        for number in touched:
            worker = self.workers.get(number)
            if worker is not None:
                self._fit(worker)

    def share(self) -> None:
        """From now on others draw from the same resources as rows: account for both."""
        if not self._shared:
            self._shared = True
            for worker in self.workers.values():
                if worker.busy and self.packing.room_for_rows(worker.id):
                    worker.grant = self.packing.reserve(worker.id, self._needs)

    def _vacate(self, worker: WorkerState) -> None:
        grant, worker.grant = worker.grant, None
        if grant is not None:
            self.packing.free(grant)
            self.packing.touched[worker.id] = None

    def _set_busy(self, worker: WorkerState, busy: int) -> None:
        if worker.usable:
            del self.levels[worker.busy][worker.id]
            self.levels[busy][worker.id] = worker
        if self._shared and not (worker.busy and busy):
            if busy:  # a queue takes what one task needs: they run one after the other
                worker.grant = self.packing.reserve(worker.id, self._needs)
            else:
                self._vacate(worker)
        worker.busy = busy
        if self.packing.touched:
            self.refit()

    # -- inspections

    def inspect(self, worker: WorkerState, feed: Feed) -> None:
        """A worker opens an input; its next task will come from there."""
        worker.inspecting[feed.spec.id] = worker.feed = feed
        self._set_busy(worker, worker.busy + 1)

    def inspected(self, worker: WorkerState, feed: Feed) -> None:
        """The opening has ended."""
        del worker.inspecting[feed.spec.id]
        worker.proven = True
        self._set_busy(worker, worker.busy - 1)

    # -- attempts

    def launch(self, worker: WorkerState, task: Task, bundle: Bundle, plan: Plan, tries: Tries, now: float) -> Attempt:
        """Begin an attempt."""
        attempt = Attempt(self._next_id(), task, worker, bundle, plan, tries)
        self.attempts[attempt.key] = worker.attempts[attempt.id] = attempt
        bundle.running += 1
        worker.feed = bundle.feed
        attempt.launched = now
        self.launch_times += now
        self._count(task, task.size)
        self._set_busy(worker, worker.busy + 1)
        return attempt

    def live(self, event: AttemptEvent) -> Attempt | None:
        """Find the attempt of an event, unless it has ended or ran in another life of a worker."""
        return self.attempts.get((event.attempt, event.worker, event.incarnation))

    def rows_ahead(self, row_s: float | None, now: float) -> int:
        """Estimate the rows that workers still have before them, given the seconds a row takes."""
        if not row_s:
            return self.running_rows
        passed = now * len(self.attempts) - self.launch_times
        return max(0, self.running_rows - int(passed / row_s))

    def rows_of(self, category: str) -> int:
        """Count the rows of a category that workers have before them."""
        return self.running.get(category, 0)

    def _count(self, task: Task, rows: int) -> None:
        self.running_rows += rows
        self.running[task.category] = self.running.get(task.category, 0) + rows

    def started(self, attempt: Attempt, now: float) -> None:
        """An attempt left the queue; one that is told to stop stays so."""
        if attempt.started is None:
            attempt.started = now
            if attempt.state is AttemptState.LAUNCHED:
                self._move(attempt, AttemptState.RUNNING)

    def cancel(self, attempt: Attempt, out: list[Command]) -> None:
        """Tell an attempt to stop, once."""
        if attempt.state is not AttemptState.CANCELLING:
            self._move(attempt, AttemptState.CANCELLING)
            out.append(Cancel(*attempt.key))

    def pair(self, attempt: Attempt, copy: Attempt) -> None:
        """Two attempts have the same rows from now on; the first to finish keeps them."""
        attempt.twin, copy.twin = copy, attempt
        self._count(copy.task, -copy.task.size)

    def part(self, attempt: Attempt, out: list[Command]) -> None:
        """Leave the rows of two attempts to the other one."""
        other = attempt.twin
        assert other is not None
        attempt.twin = other.twin = None
        self._count(attempt.task, attempt.task.size)
        self.dismiss(attempt, out)

    def dismiss(self, attempt: Attempt, out: list[Command]) -> None:
        """The rows of an attempt are settled without it: it holds its worker, but nothing else."""
        attempt.void = True
        attempt.bundle.running -= 1
        self.void += 1
        self._count(attempt.task, -attempt.task.size)
        self.cancel(attempt, out)

    def shrink(self, attempt: Attempt, stop: int) -> Rows:
        """An attempt will do its rows only up to ``stop``; return the others."""
        (rows,) = attempt.task.inputs
        rest = rows._replace(start=stop)
        size = stop - rows.start
        attempt.task = attempt.task._replace(inputs=(rows._replace(stop=stop),), size=size)
        self._count(attempt.task, stop - rest.stop)
        return rest

    def end(self, attempt: Attempt, state: AttemptState) -> None:
        """An attempt has ended: free what it held."""
        self._move(attempt, state)
        worker = attempt.worker
        worker.proven = True
        if not attempt.void:
            attempt.bundle.running -= 1
        self._forget(attempt)
        self._set_busy(worker, worker.busy - 1)

    def _forget(self, attempt: Attempt) -> None:
        del self.attempts[attempt.key]
        del attempt.worker.attempts[attempt.id]
        self.launch_times -= attempt.launched
        if attempt.void:
            self.void -= 1
        elif attempt.twin is not None:
            attempt.twin.twin = None  # it has the rows alone now
        else:
            self._count(attempt.task, -attempt.task.size)

    def _move(self, attempt: Attempt, state: AttemptState) -> None:
        if state not in ATTEMPT_MOVES[attempt.state]:  # the quick way for the usual case
            move(ATTEMPT_MOVES, attempt.state, state, "attempt", attempt.id)
        attempt.state = state
