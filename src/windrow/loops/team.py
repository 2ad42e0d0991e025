"""A team of threads that run one loop: the caller and helpers, which take chunks from the same queues.

Helpers are kept for the next loop. Where threads wait for the interpreter's lock they gain nothing: the caller goes on alone,
or leaves the rest to processes.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from time import perf_counter, thread_time
from typing import TYPE_CHECKING

from windrow.loops.kernel import Failed
from windrow.place.loop_trace import LoopChunk, LoopTrace
from windrow.place.queues import Taken

if TYPE_CHECKING:
    from concurrent.futures import Future

    from windrow.loops.kernel import RangeFunction
    from windrow.place.queues import Queues

#: Chunks of each thread by which it is judged whether they wait for the lock, and the share of their time that they may.
JUDGED, COMPUTING = 2, 0.75
#: Seconds that these chunks must have taken together: shorter ones say nothing.
JUDGED_S = 0.002

#: Share of the rows by which a loop may be found to be short; the first chunk that tries it is this part of them, and each
#: further one so many times larger: the first rows may be the heaviest.
SEEN, FIRST, LARGER = 0.05, 2048, 4

#: Threads that help, of all loops that run at a time: what more loops want is done by those who called them.
MOST_HELPERS = 1024


class Team:
    """The threads of one loop; ``judged``: they may wait for the interpreter's lock. Each is pinned to a core where these are given."""

    def __init__(self, call: RangeFunction, workers: int, *, judged: bool, cores: tuple[int, ...] = ()) -> None:
        self.trace = LoopTrace(workers)
        self.began = perf_counter()
        self.held = False  #: threads waited for the interpreter's lock: the rest was not run
        self.queues: Queues | None = None  #: of the rows that no pilot has run
        self._call = call
        self._cores = cores
        self._lock = threading.Lock()
        self._over = False  #: nobody takes any more
        self._failures: list[Failed] = []
        self._judged = judged and workers > 1
        self._seen = [0.0, 0.0, 0]  #: seconds and processor time of chunks that were judged, and their number

    def pilot(self, rows: int, until_s: float, small_s: float) -> tuple[int, float]:
        """Run first rows in the calling thread; give their number, and the seconds that the rest takes if rows go on as the last ones.

        It ends after ``until_s``, or when some of the rows were seen and the rest takes less than ``small_s``.
        """
        seen, size, rest_s = 0, max(rows // FIRST, 1), small_s
        while seen < rows and perf_counter() - self.began < until_s and (rest_s >= small_s or seen < SEEN * rows):
            last = self.call(0, Taken(seen, min(seen + size, rows)))
            seen, size = last.stop, size * LARGER
            rest_s = (rows - seen) * (last.end - last.begin) / (last.stop - last.start)
        return seen, rest_s

    def run(self) -> None:
        """Run all that is left, on all threads; raises ``Failed``."""
        self._seen = [0.0, 0.0, 0]
        helpers = [_pool().submit(self._work, worker) for worker in range(1, self.trace.workers)]
        try:
            self._work(0)
            _wait(helpers)
        except BaseException:  # Ctrl-C too: chunks that are under way are finished, and no more are taken
            self._over = True
            _wait(helpers)
            raise
        if self._failures:
            raise min(self._failures, key=lambda one: one.start)
        if not self.held:
            self.alone()  # what was left to a helper that did not begin in time
        self.trace.chunks.sort(key=lambda one: one.end)

    def alone(self) -> None:
        """Run the rest in the calling thread, in as few chunks as it can."""
        self._judged = False
        assert self.queues is not None
        for start, stop in self.queues.rest():
            self.call(0, Taken(start, stop))

    def _work(self, worker: int) -> None:
        before = os.sched_getaffinity(0) if self._cores else None
        if self._cores:
            os.sched_setaffinity(0, {self._cores[worker]})
        try:
            while self._take(worker) and not (self._judged and self._judge()):
                pass
        except Failed as failed:
            self._over = True
            self._failures.append(failed)
        except BaseException:
            self._over = True
            raise
        finally:
            if before is not None:
                os.sched_setaffinity(0, before)

    def _take(self, worker: int) -> bool:
        """Take and run one chunk, if there is one."""
        asked = perf_counter() - self.began
        assert self.queues is not None
        with self._lock:
            taken = None if self._over else self.queues.take(worker, asked)
        if taken is not None:
            self.call(worker, taken, asked)
        return taken is not None

    def call(self, worker: int, taken: Taken, asked: float | None = None) -> LoopChunk:
        """Run the kernel for some rows; raises ``Failed``."""
        start, stop, queue, stolen, _ = taken
        used = thread_time() if self._judged else 0.0
        begin = perf_counter() - self.began
        try:
            self._call(start, stop)
        except Failed:
            raise
        except Exception as error:
            raise Failed(start, stop) from error
        end = perf_counter() - self.began
        chunk = LoopChunk(worker, start, stop, begin, end, begin if asked is None else asked, queue, stolen)
        with self._lock:
            self.trace.chunks.append(chunk)
            if self.queues is not None:
                self.queues.done(chunk)
            if self._judged:
                self._seen[0] += end - begin
                self._seen[1] += thread_time() - used
                self._seen[2] += 1
        return chunk

    def _judge(self) -> bool:
        """Say whether threads wait for the lock, once enough was seen of all; nothing more is run then."""
        wall, used, count = self._seen
        workers = self.trace.workers
        if count < JUDGED * workers or wall < JUDGED_S:
            return self._over
        self._judged = False
        if used < COMPUTING * wall and used * workers < 1.2 * wall:
            self.held = self._over = True
        return self.held


def _wait(helpers: list[Future[None]]) -> None:
    for helper in helpers:
        if not helper.cancel():
            helper.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Give threads that help all loops, one after the other; it makes them as they are needed."""
    return ThreadPoolExecutor(MOST_HELPERS, thread_name_prefix="windrow-loop")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not come along
