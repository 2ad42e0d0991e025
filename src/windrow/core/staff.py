"""The lives of workers: who joins, is lost, is started again, is drained, and when nobody is left.

A worker that is lost is started again if the run may do so. One that is lost again and again
without bringing a single job to an end pauses before its next life, longer each time, and is
given up at last: whatever ends it will not go away. Before that its task is found to be at fault,
if it is always the same one; such a verdict is the end of a job, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.commands import Command, StartWorker, StopWorker
from windrow.core.delays import Restart
from windrow.core.records import Failure, FailureKind
from windrow.core.state import Drain, Spent, WorkerState

if TYPE_CHECKING:
    from windrow.core.crew import Crew
    from windrow.core.delays import Delays
    from windrow.core.merger import Merger
    from windrow.core.options import Options
    from windrow.core.records import Measurement, Worker
    from windrow.core.safekeeping import Safekeeping

__all__ = ["Staff"]

#: Useless lives in a row that are begun at once: a machine that is short of memory for a moment
#: ends several.
QUICK_LIVES = 5
#: Lives begun after a pause before a worker is given up; all pauses together are half a minute.
SLOW_LIVES = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

#: A worker is replaced when its memory with nothing running has grown by more than this, and has
#: doubled, over so many tasks: caches fill during the first few, leaks never stop.
LEAK_BYTES = 256_000_000
LEAK_TASKS = 8


class Staff:
    """Begins and ends the lives of workers."""

    def __init__(
        self, crew: Crew, merger: Merger, delays: Delays, spent: Spent, options: Options, safe: Safekeeping | None
    ) -> None:
        self.starting: dict[int, int] = {}  #: worker id -> the life that was ordered
        self.draining: dict[int, WorkerState] = {}
        self.notes: list[str] = []
        self._useless: dict[int, int] = {}  #: worker id -> lives in a row that ended no job
        self._last_end = ""  #: of the worker that left last
        self._waiting = not options.restart  #: nobody came yet, and somebody may by themselves
        self._crew = crew
        self._merger = merger
        self._delays = delays
        self._spent = spent
        self._restart = options.restart
        self._safe = safe

    # -- beginnings

    def join(self, worker: Worker) -> None:
        """A worker is ready; a life that was seen before is none."""
        self._waiting = False
        if self.starting.get(worker.id, -1) <= worker.incarnation:
            self.starting.pop(worker.id, None)
        if self._crew.join(worker) and self._safe is not None:
            self._safe.joined(self._crew.workers[worker.id])

    def resume(self, now: float, out: list[Command]) -> None:
        """Begin the lives that were put off."""
        for restart in self._delays.rested(now):
            if not self._crew.seen(*restart):
                self._start(restart, out)

    def _start(self, life: Restart, out: list[Command]) -> None:
        self.starting[life.worker] = life.incarnation
        out.append(StartWorker(*life))

    # -- ends

    def left(self, worker: WorkerState, failure: Failure, now: float, out: list[Command] | None) -> None:
        """A worker is gone; ``out`` is None if no other life of it is wanted."""
        drain = worker.drain
        told = drain is not None and drain.told
        self.draining.pop(worker.id, None)
        if self._safe is not None:
            self._safe.left(worker, lost=not told)
        if told:
            self._last_end = f"worker {worker.id} was told to end ({drain.reason})" if drain else ""
        else:
            self._count(worker.id, failure)
        again = self._restart if drain is None else drain.replace
        useless = 0 if worker.proven or told else self._useless.get(worker.id, 0) + 1
        self._next_life(Restart(worker.id, worker.incarnation + 1), useless, now, out, again)

    def stillborn(self, life: Restart, failure: Failure, now: float, out: list[Command] | None) -> None:
        """A life ended before it began; reports of lives that are over are not news."""
        if not self._crew.bury(*life):
            return
        self.starting.pop(life.worker, None)
        self._count(life.worker, failure)
        useless = self._useless.get(life.worker, 0) + 1
        following = Restart(life.worker, life.incarnation + 1)
        self._next_life(following, useless, now, out, self._restart)

    def _count(self, worker: int, failure: Failure) -> None:
        if failure.kind is FailureKind.CRASHED:
            self._spent.crashes += 1
        else:
            self._spent.losses += 1
        self._last_end = f"worker {worker}: {failure.message}"

    def _next_life(self, life: Restart, useless: int, now: float, out: list[Command] | None, again: bool) -> None:
        self._useless[life.worker] = useless
        slow = useless - QUICK_LIVES
        if out is None or not again or slow >= SLOW_LIVES:
            return
        if slow < 0:
            self._start(life, out)
        else:
            self._delays.pause(now + min(FIRST_PAUSE_S * 2**slow, LONGEST_PAUSE_S), life)

    def deserted(self) -> Failure | None:
        """Say how the last worker ended if there is none and none will come."""
        if self._crew.workers or self.starting or self._delays.pauses:
            return None
        if self._waiting or not self._last_end:
            return None
        story = f"no worker is left; the last to end was {self._last_end}"
        return Failure(FailureKind.INTERNAL, "NoWorkers", story)

    # -- draining

    def drain(self, worker: WorkerState, reason: str, replace: bool, out: list[Command]) -> None:
        """Give a worker no more work, and fetch what it keeps."""
        if worker.drain is not None:
            worker.drain.replace = replace
            return
        worker.drain = Drain(reason, replace)
        self.draining[worker.id] = worker
        self._crew.set_offers(worker, worker.offers)
        self._merger.review_all(worker, out)

    def release(self, out: list[Command]) -> None:
        """Tell workers to end that were drained and keep nothing any more."""
        for worker in self.draining.values():
            drain = worker.drain
            if drain is not None and not (drain.told or worker.busy or worker.bundles or worker.tied):
                drain.told = True
                out.append(StopWorker(worker.id, worker.incarnation))

    def watch(self, worker: WorkerState, measurement: Measurement, out: list[Command]) -> None:
        """Replace a worker whose memory only grows; one at a time, so that work goes on."""
        worker.tasks += 1
        if not worker.baseline:
            worker.baseline, worker.tasks = measurement.baseline, 0
            return
        growth = measurement.baseline - worker.baseline
        leaks = growth > max(LEAK_BYTES, worker.baseline) and worker.tasks >= LEAK_TASKS
        if leaks and self._restart and not self.draining:
            story = (
                f"the memory of worker {worker.id} grew from {worker.baseline / 1e6:.0f} to "
                f"{measurement.baseline / 1e6:.0f} MB over {worker.tasks} tasks"
            )
            self.notes.append(f"{story}; it was replaced")
            self.drain(worker, story, True, out)
