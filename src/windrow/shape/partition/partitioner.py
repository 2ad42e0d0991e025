"""A loop's rows, cut into chunks one after the other as workers ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.shape.partition.schemes import find, known_as
from windrow.shape.partition.state import Costs, LoopState

if TYPE_CHECKING:
    from collections.abc import Sequence


class Partitioner:
    """The chunks of one loop, or of the part of it that is in one queue.

    A chunk has what the scheme says, at least the grain, and at most what is left.
    """

    def __init__(
        self,
        scheme: Any,
        rows: int,
        workers: int,
        *,
        grain: int = 1,
        flavour: str = "daphne",
        costs: Costs | None = None,
        start: int = 0,
    ) -> None:
        for what, value, least in (("rows", rows, 0), ("workers", workers, 1), ("grain", grain, 1)):
            if not hasattr(value, "__index__") or value < least:
                raise UsageError(f"{what}= is a whole number, {least} or more; got {value!r}")
        self.name = known_as(scheme)
        self.loop = LoopState(rows, workers, grain, given=costs or Costs())
        self._rule = find(scheme, flavour)
        self._at = start

    @property
    def left(self) -> int:
        return self.loop.left

    @property
    def said(self) -> Sequence[str]:
        """Why a scheme of ours changed."""
        return getattr(self._rule, "said", ())

    def cut(self, worker: int = 0, now: float = 0.0) -> tuple[int, int] | None:
        """Give the first row of the next chunk and the one behind its last; None: all rows are given away."""
        loop = self.loop
        if not loop.left:
            return None
        loop.worker, loop.now = worker, now
        rows = min(max(int(self._rule(loop)), loop.grain), loop.left)
        loop.left -= rows
        loop.step += 1
        loop.last = rows
        start, self._at = self._at, self._at + rows
        return start, self._at

    def rest(self) -> list[tuple[int, int]]:
        """Give all that is left at once."""
        start, self._at = self._at, self._at + self.loop.left
        self.loop.left = 0
        return [(start, self._at)]

    def done(self, worker: int, rows: int, run_s: float, overhead_s: float = 0.0) -> None:
        """Take in what a chunk took."""
        self.loop.times[worker].add(rows, run_s, overhead_s)


def partition(
    rows: int,
    workers: int,
    scheme: Any = "auto",
    *,
    grain: int = 1,
    flavour: str = "daphne",
    costs: Costs | None = None,
) -> list[int]:
    """Give the chunks of a loop whose rows all take the same: those that each worker asks for when it is through with the last.

    ``costs`` are what is known beforehand, for the schemes that want it.
    """
    made = Partitioner(scheme, rows, workers, grain=grain, flavour=flavour, costs=costs)
    row_s, overhead_s = made.loop.given.mean or 1.0, made.loop.given.overhead
    ends, last = [0.0] * workers, [0] * workers
    found = []
    while made.left:
        worker = min(range(workers), key=ends.__getitem__)
        if last[worker]:
            made.done(worker, last[worker], row_s * last[worker], overhead_s)
        start, stop = made.cut(worker, ends[worker]) or (0, 0)
        last[worker] = stop - start
        ends[worker] += overhead_s + row_s * last[worker]
        found.append(last[worker])
    return found
