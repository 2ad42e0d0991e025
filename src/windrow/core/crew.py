"""The workers and what each of them is doing.

Workers are kept by how many jobs they have, so that one with room is found without a search.
Attempts live here from launch to end: an attempt that is not found has ended, which is the fence
against late, double and stale events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.state import Attempt, Bundle, Feed, WorkerState
from windrow.core.transitions import ATTEMPT_MOVES, AttemptState, move

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.events import AttemptEvent
    from windrow.core.records import Needs, Plan, Task, Worker

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
        self.running_rows = 0
        self.launch_times = 0.0  #: the sum over attempts, for estimating what is left of them
        #: usable workers by how many jobs they have; who came to a level first is served first
        self.levels: list[dict[int, WorkerState]] = [{} for _ in range(MAX_WINDOW + 1)]
        self._lives: dict[int, int] = {}  #: worker id -> newest incarnation ever seen
        self._needs = needs
        self._next_id = next_id

    def find(self, worker_id: int, incarnation: int) -> WorkerState | None:
        """Find a living worker by id and incarnation."""
        worker = self.workers.get(worker_id)
        return worker if worker is not None and worker.incarnation == incarnation else None

    def join(self, worker: Worker) -> bool:
        """Let a worker in; False for a life that was seen before."""
        if worker.incarnation <= self._lives.get(worker.id, -1):
            return False
        self._lives[worker.id] = worker.incarnation
        state = self.workers[worker.id] = WorkerState(worker)
        self.set_offers(state, worker.offers)
        return True

    def leave(self, worker: WorkerState) -> list[Attempt]:
        """Forget a worker; return its attempts, which are lost."""
        self.levels[worker.busy].pop(worker.id, None)
        del self.workers[worker.id]
        lost = [attempt for attempt in self.attempts.values() if attempt.worker is worker]
        for attempt in lost:
            self._move(attempt, AttemptState.LOST)
            del self.attempts[attempt.key]
            self.running_rows -= attempt.task.size
            self.launch_times -= attempt.launched
        return lost

    def set_offers(self, worker: WorkerState, offers: Needs) -> None:
        """Use a worker only while it offers what tasks need."""
        worker.offers = offers
        worker.usable = offers.covers(self._needs)
        if worker.usable:
            self.levels[worker.busy][worker.id] = worker
        else:
            self.levels[worker.busy].pop(worker.id, None)

    def _set_busy(self, worker: WorkerState, busy: int) -> None:
        if worker.usable:
            del self.levels[worker.busy][worker.id]
            self.levels[busy][worker.id] = worker
        worker.busy = busy

    # -- inspections

    def inspect(self, worker: WorkerState, feed: Feed) -> None:
        """A worker opens an input; its next task will come from there."""
        worker.inspecting[feed.spec.id] = worker.feed = feed
        self._set_busy(worker, worker.busy + 1)

    def inspected(self, worker: WorkerState, feed: Feed) -> None:
        """The opening has ended."""
        del worker.inspecting[feed.spec.id]
        self._set_busy(worker, worker.busy - 1)

    # -- attempts

    def launch(
        self,
        worker: WorkerState,
        task: Task,
        bundle: Bundle,
        plan: Plan,
        tries: int,
        now: float,
    ) -> Attempt:
        """Begin an attempt."""
        attempt = Attempt(self._next_id(), task, worker, bundle, plan, tries)
        self.attempts[attempt.key] = attempt
        bundle.running += 1
        worker.feed = bundle.feed
        attempt.launched = now
        self.launch_times += now
        self.running_rows += task.size
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

    def started(self, attempt: Attempt) -> None:
        """An attempt left the queue; one that is told to stop stays so."""
        if attempt.state is AttemptState.LAUNCHED:
            self._move(attempt, AttemptState.RUNNING)

    def cancel(self, attempt: Attempt) -> None:
        """An attempt is told to stop."""
        self._move(attempt, AttemptState.CANCELLING)

    def end(self, attempt: Attempt, state: AttemptState) -> None:
        """An attempt has ended: free what it held."""
        self._move(attempt, state)
        worker = attempt.worker
        del self.attempts[attempt.key]
        attempt.bundle.running -= 1
        self.running_rows -= attempt.task.size
        self.launch_times -= attempt.launched
        self._set_busy(worker, worker.busy - 1)

    def _move(self, attempt: Attempt, state: AttemptState) -> None:
        if state not in ATTEMPT_MOVES[attempt.state]:  # the quick way for the usual case
            move(ATTEMPT_MOVES, attempt.state, state, "attempt", attempt.id)
        attempt.state = state
