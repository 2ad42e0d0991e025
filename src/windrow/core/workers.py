"""Workers and their lives: who joins, is lost, is started again, is drained, and when none is left.

A worker that is lost is started again if the run may do so. One that is lost again and again without bringing a
single task to an end pauses before its next life, longer each time, and is given up at last: whatever ends it will
not go away. Before that its task is found to be at fault, if it is always the same one; such a verdict is the end of
a task, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from windrow.core.commands import Command, StartWorker, StopWorker
from windrow.core.records import Failure, FailureKind, Life

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.policies import Options
    from windrow.core.queues import Chain
    from windrow.core.records import Measurement, Worker
    from windrow.core.resources import Resources

#: Useless lives in a row that are begun at once: a machine that is short of memory for a moment ends several.
QUICK_LIVES = 5
#: Lives begun after a pause before a worker is given up; all pauses together are half a minute.
SLOW_LIVES = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

#: A worker is replaced when its memory with nothing running has grown by more than this, and has doubled, over so
#: many tasks: caches fill during the first few, leaks never stop.
LEAK_BYTES = 256_000_000
LEAK_TASKS = 8

#: Launches that a worker may have at a time at most, however short they are.
MAX_QUEUE = 256


@dataclass(slots=True)
class Drain:
    """Why a worker gets no more work, and what is to come after it."""

    reason: str
    replace: bool
    told: bool = False  #: it keeps nothing any more and was told to end


class WorkerState:
    """A living worker and what it is doing."""

    __slots__ = (
        "baseline", "chain", "drain", "heard", "id", "io", "joined", "launches", "life", "proven", "shares", "site",
        "tasks",
    )  # fmt: skip

    def __init__(self, worker: Worker, resources: Resources, now: float) -> None:
        self.life = worker.life
        self.id = worker.life.worker
        self.io, self.shares = worker.io, worker.shares
        self.site = resources.join(worker)
        self.chain: Chain | None = None  #: what it has to do
        self.drain: Drain | None = None  #: set when it is to get no more work
        self.launches = 0  #: so far
        self.proven = False  #: it has brought a task to an end, good or bad
        self.joined = self.heard = now  #: when an attempt of it ended last
        self.baseline = 0  #: memory after its first task
        self.tasks = 0  #: since then

    @property
    def open(self) -> bool:
        return self.drain is None

    @property
    def queue(self) -> int:
        return 0 if self.chain is None else len(self.chain.attempts)


class Workers:
    """All living workers, and the lives that are to come."""

    def __init__(self, resources: Resources, options: Options) -> None:
        self.alive: dict[int, WorkerState] = {}
        self.short: dict[int, WorkerState] = {}  #: open workers whose queue a feeder has perhaps not filled
        self.draining: dict[int, WorkerState] = {}
        self.starting: dict[int, Life] = {}  #: by worker: the life that was ordered
        self.notes: list[str] = []
        self.losses = 0  #: of workers that were not told to end
        self.past_s = 0.0  #: the sum of the lifetimes of those that are gone
        self._resources = resources
        self._options = options
        self.pauses: list[tuple[float, Life, bool]] = []  #: heap: when a life may begin
        self._lives: dict[int, int] = {}  #: by worker: the newest incarnation ever seen
        self._useless: dict[int, int] = {}  #: by worker: lives in a row that ended no task
        self._last_end = ""  #: of the worker that left last
        self._anybody = options.restart  #: somebody came, or can be ordered
        self._next_io = 0

    def find(self, life: Life) -> WorkerState | None:
        worker = self.alive.get(life.worker)
        return worker if worker is not None and worker.life == life else None

    # -- beginnings

    def join(self, worker: Worker, now: float) -> bool:
        life = worker.life
        self._anybody = True
        if life.incarnation <= self._lives.get(life.worker, -1):
            return False
        self._lives[life.worker] = life.incarnation
        self.starting.pop(life.worker, None)
        state = self.alive[life.worker] = WorkerState(worker, self._resources, now)
        self._resources.set_idle(state)
        return True

    def start_io(self, out: list[Command]) -> None:
        if self._next_io < self._options.io_workers:
            number = max([*self._lives, *self.starting, self._options.first_io - 1]) + 1
            self._next_io += 1
            self._start(Life(number, 0), True, out)

    def resume(self, now: float, out: list[Command]) -> None:
        while self.pauses and self.pauses[0][0] <= now:
            _, life, io = heappop(self.pauses)
            if life.incarnation > self._lives.get(life.worker, -1):
                self._start(life, io, out)

    def _start(self, life: Life, io: bool, out: list[Command]) -> None:
        self.starting[life.worker] = life
        out.append(StartWorker(life, io))

    # -- ends

    def leave(self, worker: WorkerState, failure: Failure, now: float, out: list[Command] | None) -> None:
        """A worker is gone; ``out`` is None if no other life of it is wanted."""
        del self.alive[worker.id]
        drain = worker.drain
        if drain is None:
            self._resources.close(worker)
        self._resources.forget(worker)
        self.draining.pop(worker.id, None)
        self.short.pop(worker.id, None)
        self.past_s += now - worker.joined
        told = drain is not None and drain.told
        if told:
            assert drain is not None
            self._last_end = f"worker {worker.id} was told to end ({drain.reason})"
        else:
            self.losses += 1
            self._last_end = f"worker {worker.id}: {failure.message}"
        again = self._options.restart if drain is None else drain.replace
        useless = 0 if worker.proven or told else self._useless.get(worker.id, 0) + 1
        following = Life(worker.id, worker.life.incarnation + 1)
        self._next_life(following, worker.io, useless, now, out if again else None)

    def failed_to_start(self, life: Life, failure: Failure, now: float, out: list[Command] | None) -> None:
        """A life ended before it began; reports of lives that are over are not news."""
        if life.incarnation <= self._lives.get(life.worker, -1):
            return
        self._lives[life.worker] = life.incarnation
        self.starting.pop(life.worker, None)
        self._last_end = f"worker {life.worker}: {failure.message}"
        useless = self._useless.get(life.worker, 0) + 1
        following = Life(life.worker, life.incarnation + 1)
        self._next_life(following, False, useless, now, out if self._options.restart else None)

    def _next_life(self, life: Life, io: bool, useless: int, now: float, out: list[Command] | None) -> None:
        self._useless[life.worker] = useless
        slow = useless - QUICK_LIVES
        if out is None or slow >= SLOW_LIVES:
            return
        if slow < 0:
            self._start(life, io, out)
        else:
            heappush(self.pauses, (now + min(FIRST_PAUSE_S * 2**slow, LONGEST_PAUSE_S), life, io))

    def no_workers_failure(self) -> Failure | None:
        """Say how the last worker ended if there is none and none will come."""
        if (
            self.alive
            or self.starting
            or self.pauses
            or not self._anybody
            or not self._last_end
            or self._options.elastic
        ):
            return None
        story = f"no worker is left; the last to end was {self._last_end}"
        return Failure(FailureKind.INTERNAL, "NoWorkers", story)

    def mean_life_s(self, now: float) -> float | None:
        if not self.losses:
            return None
        return (self.past_s + sum(now - one.joined for one in self.alive.values())) / self.losses

    # -- draining

    def drain(self, worker: WorkerState, reason: str, replace: bool) -> bool:
        if worker.drain is not None:
            worker.drain.replace = replace
            return False
        self._resources.close(worker)
        self.short.pop(worker.id, None)
        worker.drain = Drain(reason, replace)
        self.draining[worker.id] = worker
        return True

    def tell_to_end(self, worker: WorkerState, out: list[Command]) -> None:
        if worker.drain is not None and not worker.drain.told:
            worker.drain.told = True
            out.append(StopWorker(worker.life))

    def leaks(self, worker: WorkerState, measurement: Measurement, held: Callable[[Life], int]) -> str:
        """Tell the story of a worker whose memory only grows, if it is to be replaced; one at a time.

        ``held`` counts the bytes of outputs that it has, which are no leak.
        """
        worker.tasks += 1
        if not worker.baseline:
            worker.baseline, worker.tasks = measurement.baseline, 0
            return ""
        growth = measurement.baseline - worker.baseline
        leaks = growth > max(LEAK_BYTES, worker.baseline) and worker.tasks >= LEAK_TASKS
        if not leaks or not self._options.restart or self.draining:
            return ""
        if growth - held(worker.life) <= max(LEAK_BYTES, worker.baseline):
            worker.tasks = 0  # it is counted again after some tasks
            return ""
        story = (
            f"the memory of worker {worker.id} grew from {worker.baseline / 1e6:.0f} to "
            f"{measurement.baseline / 1e6:.0f} MB over {worker.tasks} tasks"
        )
        self.notes.append(f"{story}; it was replaced")
        return story
