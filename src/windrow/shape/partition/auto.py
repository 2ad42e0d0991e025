"""Our own partitioner: factoring, begun with small chunks, and another scheme where measurements say that it gains.

Begun small, since the first rows may be the heaviest; and no smaller than what cutting them is worth: where that is more than what
is left for a worker, the rest is cut once, as STATIC has it. Where some workers are faster than others, by more than measurements differ by
chance, chunks are those of AWF-C.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windrow.shape.partition.adaptive import weight

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState

#: The first chunks are this share of a worker's share of the rows, and each further batch may be so many times larger.
FIRST, LARGER = 1 / 1024, 4
#: Once it is known what cutting takes, chunks need not stay shorter than is worth it; but no more than this share of a worker's.
SECOND = 1 / 4
#: And then this share of what is left for each worker: half of it, as FAC2 has, is too much where the first rows are the heaviest.
SHARE = 1 / 3
#: A chunk takes at least so many times what cutting it takes.
WORTH = 20
#: Chunks of each worker from which on its speed is judged, by how much speeds must differ, and by how many standard errors.
CHUNKS, FASTER, ERRORS = 3, 1.2, 3.0
#: Share of the rows that is still to come when they are cut once: nearer to the end it gains nothing.
MUCH = 0.4
#: With less than this share of the rows left, who is faster does not matter any more.
LITTLE = 0.1


class Auto:
    """The scheme of one loop; ``said`` has why it changed."""

    def __init__(self) -> None:
        self.name = "factoring"
        self.said: list[str] = []
        self._evenly = 0  #: rows of all further chunks

    def __call__(self, loop: LoopState) -> float:
        known, each, share = loop.costs(), loop.rows / loop.workers, loop.left / loop.workers
        # What cutting takes, in rows; that of the worker for whom it took least, as more of it is chance.
        overhead_s = min((one.overhead_s for one in loop.times if one.chunks), default=known.overhead)
        cut = overhead_s / known.mean if known.mean else 0.0
        if self.name == "factoring":
            self._look_at_speeds(loop)
            much = loop.step >= CHUNKS * loop.workers and loop.left > MUCH * loop.rows
            if self.name == "factoring" and WORTH * cut > share and much:
                self._change("STATIC", loop, f"cutting a chunk takes as long as {cut:,.0f} rows")
                self._evenly = math.ceil(share)
        if self._evenly:
            return self._evenly
        # Small chunks cost what cutting takes, large ones on average half of the last one: their sum is least at the root.
        least = min(WORTH * cut, math.sqrt(2 * cut * each), each)
        begun = max(FIRST * each * LARGER ** min(loop.batch, 30), 1.0, min(WORTH * cut, SECOND * each))
        rows = SHARE * share * (weight(loop) if self.name == "AWF-C" else 1.0)
        return float(math.ceil(min(max(rows, least), begun)))

    def _change(self, name: str, loop: LoopState, why: str) -> None:
        self.name = name
        self.said.append(f"{name} from row {loop.rows - loop.left:,} on: {why}")

    def _look_at_speeds(self, loop: LoopState) -> None:
        if loop.workers == 1 or loop.left < LITTLE * loop.rows or any(one.chunks < CHUNKS for one in loop.times):
            return
        means = [one.seconds / one.rows for one in loop.times]
        fast, slow = min(means), max(means)
        ends = (loop.times[means.index(mean)] for mean in (fast, slow))
        chance = ERRORS * math.hypot(*(one.sigma / math.sqrt(one.chunks) for one in ends))
        if fast and slow > FASTER * fast and slow - fast > chance:
            times = f"{slow / fast:.1f} times"
            self._change("AWF-C", loop, f"rows take {times} as long on the slowest worker as on the fastest")
