"""Reading ahead of the workers: what queued chunks will need first is read by threads of their own.

One lock guards who may do what: so many threads read ahead and so many process at a time, as a split says, which is told what
everything took. What was read waits in a bounded buffer until its worker comes for it. Whatever goes wrong while reading ahead is
forgotten: the worker then reads by itself and meets the same error where it belongs.
"""

from __future__ import annotations

import threading
from time import monotonic, perf_counter, thread_time
from typing import TYPE_CHECKING, Protocol

from windrow.core.events import Finished
from windrow.core.records import RunRows

if TYPE_CHECKING:
    from windrow.core.commands import Launch
    from windrow.core.events import Event
    from windrow.core.records import Rows
    from windrow.engines.base import Prepared, Reading, WorkerSide, Workload

#: Chunks that may be read, or be about to, for each worker.
CHUNKS_AHEAD = 2


class Split(Protocol):
    """How the threads are shared out; it is only ever asked and told under the lock."""

    @property
    def pool(self) -> tuple[int, int]:
        """Threads that may set up, and threads that may process."""

    @property
    def waits(self) -> bool:
        """Whether a worker waits for what set-up threads read rather than read it itself."""

    def set_up(self, rows: int, wall_s: float, cpu_s: float) -> None:
        """A chunk was set up."""

    def processed(self, rows: int, wall_s: float, reading_s: float, waited_s: float, now: float) -> None:
        """A chunk was processed; ``reading_s`` of its time it read, ``waited_s`` of that it waited."""

    def said(self) -> str:
        """Say what was decided and why."""


class ReadAhead:
    """The threads that read ahead, what they read, and the turns of those that process."""

    def __init__(self, split: Split, workers: int, memory: int) -> None:
        self.split = split
        self.held = 0  #: bytes in the buffer
        self.most_held = 0
        self._workers = workers
        self._memory = memory  #: bytes that the buffer may have
        self._changed = threading.Condition()
        self._pending: dict[int, Launch] = {}  #: by attempt, the oldest first
        self._urgent: set[int] = set()  #: attempts that a worker waits for
        self._at_work: dict[int, bool] = {}  #: attempts being read for, and whether they are still wanted
        self._ready: dict[int, Prepared] = {}
        self._largest: int | None = None  #: bytes of a chunk so far
        self._processing = 0
        self._ending = False
        self._threads: list[_ReaderThread] = []
        self._workload: Workload | None = None

    # -- the driver's side

    def start(self, workload: Workload) -> None:
        self._workload = workload

    def queued(self, launch: Launch) -> None:
        setting_up = self.split.pool[0]
        if not setting_up or self._workload is None or not isinstance(launch.task.payload, RunRows):
            return
        with self._changed:
            if self._ending:
                return
            self._pending[launch.attempt] = launch
            while len(self._threads) < setting_up:
                number = len(self._threads)
                self._threads.append(_ReaderThread(self, self._workload, number, self._workers))
                self._threads[-1].start()
            self._changed.notify_all()

    @property
    def depth(self) -> int:
        """Jobs that a worker should have at a time, so that there is something to set up."""
        return 1 + CHUNKS_AHEAD if self.split.pool[0] else 1

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._pending.clear()
            self._changed.notify_all()

    def join(self) -> dict[int, BaseException | None]:
        """Wait for the threads; return what closing their sides raised, if it did."""
        for thread in self._threads:
            thread.join()
        unclosed = {thread.number: thread.unclosed for thread in self._threads}
        self._threads.clear()
        self._ready.clear()
        self.held = 0
        return unclosed

    # -- the workers' side

    def begin(self, attempt: int) -> list[Prepared]:
        """Wait for one's turn to process; give what was read ahead, or nothing: read by yourself."""
        with self._changed:
            prepared = self._claim(attempt)
            while self._processing >= self._may_process() and not self._ending:
                self._changed.wait()
            self._processing += 1
            self._changed.notify_all()
        return [] if prepared is None else [prepared]

    def done(self, launch: Launch, event: Event | None, reading: Reading) -> None:
        with self._changed:
            self._processing -= 1
            if isinstance(event, Finished):
                used = event.measurement
                # What the interpreter or the machine made it wait for is not waiting for data.
                waited = max(0.0, min(reading.wall - reading.cpu, used.lock_wait))
                self.split.processed(launch.task.size, used.wall, reading.wall, waited, monotonic())
            self._changed.notify_all()

    def forget(self, attempt: int) -> None:
        with self._changed:
            self._pending.pop(attempt, None)
            self._urgent.discard(attempt)
            self._take(attempt)
            if attempt in self._at_work:
                self._at_work[attempt] = False
            self._changed.notify_all()

    def _claim(self, attempt: int) -> Prepared | None:
        while not self._ending:
            if attempt in self._ready:
                return self._take(attempt)
            if attempt in self._pending:
                if not self.split.waits or not self.split.pool[0]:
                    del self._pending[attempt]
                    return None
                if attempt not in self._urgent:  # or those who wait would wake each other for ever
                    self._urgent.add(attempt)
                    self._changed.notify_all()
            elif attempt not in self._at_work:
                return None
            self._changed.wait()
        return None

    def _may_process(self) -> int:
        """How many may process: all of them once nothing is to be set up, or while no thread can."""
        if not self._pending and not self._at_work:
            return self._workers
        processing = self.split.pool[1]
        if self.split.waits:
            return processing
        return max(processing, self._workers - len(self._at_work))

    def _take(self, attempt: int) -> Prepared | None:
        """Take out of the buffer what was read for an attempt, if it was."""
        prepared = self._ready.pop(attempt, None)
        if prepared is not None:
            self.held -= prepared.memory
        return prepared

    # -- the side of the threads that set up

    def next(self, number: int, last: int | None) -> Launch | None:
        """Wait for a launch to set up; None: it is over."""
        with self._changed:
            while not self._ending:
                attempt = self._choose(number, last)
                if attempt is not None:
                    launch = self._pending.pop(attempt)
                    self._urgent.discard(attempt)
                    self._at_work[attempt] = True
                    return launch
                self._changed.wait()
        return None

    def made(self, launch: Launch, prepared: Prepared | None, wall_s: float, cpu_s: float) -> None:
        """Take over what was set up; None: it failed, and the worker will see why."""
        attempt = launch.attempt
        with self._changed:
            wanted = self._at_work.pop(attempt)
            if wanted and prepared is not None and not self._ending:
                self._ready[attempt] = prepared
                self.held += prepared.memory
                self.most_held = max(self.most_held, self.held)
                self._largest = max(self._largest or 0, prepared.memory)
                self.split.set_up(launch.task.size, wall_s, cpu_s)
            self._changed.notify_all()

    def _choose(self, number: int, last: int | None) -> int | None:
        """Choose what a worker waits for, what is in the file that was read last, or the oldest."""
        if number >= self.split.pool[0] or not self._pending:
            return None
        for attempt in self._urgent:
            if attempt in self._pending:
                return attempt
        if not self._has_room():
            return None
        oldest = next(iter(self._pending))
        return next((attempt for attempt, launch in self._pending.items() if _first_input(launch) == last), oldest)

    def _has_room(self) -> bool:
        chunks = len(self._ready) + len(self._at_work)
        if not chunks:
            return True  # or a chunk larger than the buffer would wait for ever
        if self._largest is None:
            return False  # the first one tells how large they are
        expected = self.held + (len(self._at_work) + 1) * self._largest
        return chunks < CHUNKS_AHEAD * self._workers and expected <= self._memory


class _ReaderThread(threading.Thread):
    """Sets up one launch after the other, with readers of its own."""

    def __init__(self, ahead: ReadAhead, workload: Workload, number: int, workers: int) -> None:
        # Daemon: an interpreter that exits must never wait for a file that does not answer.
        super().__init__(name=f"windrow-reader-{number}", daemon=True)
        self.number = workers + number
        self.unclosed: BaseException | None = None
        self._ahead = ahead
        self._workload = workload
        self._place = number
        self._side: WorkerSide | None = None

    def run(self) -> None:
        last: int | None = None
        while (launch := self._ahead.next(self._place, last)) is not None:
            begin, cpu = perf_counter(), thread_time()
            prepared = self._prepared(launch)
            last = _first_input(launch)
            self._ahead.made(launch, prepared, perf_counter() - begin, thread_time() - cpu)
            del launch, prepared  # or it would stay in memory until the next one comes
        try:
            if self._side is not None:
                self._side.close()
        except Exception as error:  # noqa: BLE001 - handed to warn_unclosed
            self.unclosed = error

    def _prepared(self, launch: Launch) -> Prepared | None:
        try:
            if self._side is None:
                self._side = self._workload.open_worker(self.number)
            return self._side.prepare(launch.task, launch.plan)
        except BaseException:  # noqa: BLE001 - the worker reads by itself and meets it again
            return None


def _first_input(launch: Launch) -> int:
    first: Rows = launch.task.payload.rows[0]
    return first.input
