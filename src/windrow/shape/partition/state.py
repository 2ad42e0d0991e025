"""The state of a loop that is being partitioned, as a scheme sees it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class WorkerTimes:
    """What the chunks of one worker took."""

    chunks: int = 0
    rows: int = 0
    seconds: float = 0.0  #: of all its chunks, without what cutting them took
    overhead_s: float = 0.0  #: from asking for the last chunk to its first row
    #: sums in which each chunk counts as often as its number: later ones count more
    weighed_rows: float = 0.0
    weighed_s: float = 0.0
    weighed_all_s: float = 0.0  #: with what cutting took
    mean: float = 0.0  #: of a row, over chunks
    squares: float = 0.0  #: sum of squared deviations from that mean

    def add(self, rows: int, run_s: float, overhead_s: float) -> None:
        self.chunks += 1
        self.rows += rows
        self.seconds += run_s
        self.overhead_s = overhead_s
        self.weighed_rows += self.chunks * rows
        self.weighed_s += self.chunks * run_s
        self.weighed_all_s += self.chunks * (run_s + overhead_s)
        row_s = run_s / rows
        before = row_s - self.mean
        self.mean += before / self.chunks
        self.squares += before * (row_s - self.mean)

    @property
    def sigma(self) -> float:
        """The sample standard deviation of what a row took on average in a chunk."""
        return math.sqrt(self.squares / (self.chunks - 1)) if self.chunks > 1 else 0.0

    def speed(self, *, overhead: bool) -> float:
        """Rows of a second, of late chunks more than of early ones; 0: not known. ``overhead``: cutting takes time too."""
        return self.weighed_rows / max(self.weighed_all_s if overhead else self.weighed_s, 1e-12)


@dataclass(slots=True)
class Costs:
    """What is known of a loop before it begins."""

    mean: float = 0.0  #: seconds of a row; 0: not known
    sigma: float = 0.0  #: standard deviation of that
    overhead: float = 0.0  #: seconds of a chunk beside its rows


@dataclass(slots=True)
class LoopState:
    """What a scheme may know when a worker asks for its next chunk."""

    rows: int  #: of the whole loop
    workers: int
    grain: int = 1  #: rows of a chunk at least
    left: int = 0  #: rows that nobody has yet
    step: int = 0  #: chunks that were cut before
    last: int = 0  #: rows of the chunk before
    worker: int = 0  #: who asks
    now: float = 0.0  #: seconds since the loop began
    given: Costs = field(default_factory=Costs)
    times: list[WorkerTimes] = field(default_factory=list)  #: by worker

    def __post_init__(self) -> None:
        self.left = self.left or self.rows
        self.times = self.times or [WorkerTimes() for _ in range(self.workers)]

    @property
    def batch(self) -> int:
        """The number of times that as many chunks as workers were cut."""
        return self.step // self.workers

    def costs(self) -> Costs:
        """Give what was known before, or else what was measured; a mean of 0: nothing is known yet."""
        seen = [one for one in self.times if one.chunks]
        if self.given.mean or not seen:
            return self.given
        rows = sum(one.rows for one in seen)
        mean = sum(one.seconds for one in seen) / rows
        squares = sum(one.squares + one.chunks * (one.mean - mean) ** 2 for one in seen)
        chunks = sum(one.chunks for one in seen)
        sigma = math.sqrt(squares / (chunks - 1)) if chunks > 1 else self.given.sigma
        return Costs(mean, sigma, sum(one.overhead_s for one in seen) / len(seen) or self.given.overhead)


#: Says how many rows the next chunk gets, before it is bounded by the grain and by what is left.
Scheme = Callable[[LoopState], float]
