"""The trace of a loop: its chunks, who ran each of them and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class LoopChunk(NamedTuple):
    """A chunk that was run: by whom, when, and whose it was."""

    worker: int
    start: int
    stop: int
    begin: float  #: seconds since the loop began
    end: float
    asked: float  #: when the worker asked for it
    queue: int = 0
    stolen: int = 0  #: chunks that were stolen with it; 0: it was the worker's own


@dataclass(slots=True)
class LoopTrace:
    """All chunks of a loop, in the order in which they ended."""

    workers: int
    chunks: list[LoopChunk] = field(default_factory=list)

    @property
    def makespan(self) -> float:
        return max((one.end for one in self.chunks), default=0.0)

    @property
    def steals(self) -> int:
        return sum(one.stolen > 0 for one in self.chunks)

    def busy(self) -> list[float]:
        """Seconds in rows, by worker."""
        found = [0.0] * self.workers
        for one in self.chunks:
            found[one.worker] += one.end - one.begin
        return found

    def idle(self) -> list[float]:
        """Seconds between its last chunk and the end of the loop, by worker."""
        ends = [0.0] * self.workers
        for one in self.chunks:
            ends[one.worker] = max(ends[one.worker], one.end)
        return [self.makespan - end for end in ends]
