"""A loop on a machine that is not here: what rows take is given, and what cutting, stealing and far stealing cost."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from windrow.place.loop_trace import LoopChunk, LoopTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.place.queues import Queues


def simulate_loop(
    queues: Queues,
    sums: Sequence[float],
    workers: int,
    *,
    overhead_s: float = 0.0,
    steal_s: float = 0.0,
    far_steal_s: float = 0.0,
    slower: Sequence[float] | None = None,
) -> LoopTrace:
    """Run a loop in which the rows before number ``i`` take ``sums[i]`` seconds together.

    A chunk costs ``overhead_s`` before its first row, a stolen one ``steal_s`` more, and from a queue of another group
    ``far_steal_s`` more. ``slower`` is how many times as long each worker takes.
    """
    slower = slower or [1.0] * workers
    trace = LoopTrace(workers)
    waiting: list[tuple[float, int, LoopChunk | None]] = [(0.0, worker, None) for worker in range(workers)]
    while waiting:
        now, worker, chunk = heapq.heappop(waiting)
        if chunk is not None:
            queues.done(chunk)
        taken = queues.take(worker, now)
        if taken is None:
            continue
        begin = now + overhead_s + steal_s * (taken.stolen > 0) + far_steal_s * taken.far
        end = begin + float(sums[taken.stop] - sums[taken.start]) * slower[worker]
        chunk = LoopChunk(worker, taken.start, taken.stop, begin, end, now, taken.queue, taken.stolen)
        trace.chunks.append(chunk)
        heapq.heappush(waiting, (end, worker, chunk))
    trace.chunks.sort(key=lambda one: one.end)
    return trace
