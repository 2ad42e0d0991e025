"""A function of ranges of rows as a workload: it may be called for any range, and what it gives for two ranges can be added up."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from windrow.compat.coffea.sums import Piece, check_output, commutes, join_pieces
from windrow.core.records import MergePartials, Opened, OpenInput, Rows
from windrow.engines.base import NO_MEASUREMENT, NO_READING, Outcome
from windrow.engines.processes.startup import tune_malloc
from windrow.errors import CorruptFileError, MergeError
from windrow.pipeline.run.workload import RowsWorkload, ambient, restore

if TYPE_CHECKING:
    from windrow.core.records import Plan, Task
    from windrow.engines.base import Job


class RangesWorkload(RowsWorkload):
    """A function and its inputs; ``side`` is made in each worker and knows how to open and call."""

    side: type[RangesSide]
    limited = False  #: in memory: what is freed has to go back at once
    fatal = (MergeError,)  #: other rows would have the same, down to single ones

    def __init__(self, name: str, function: Callable[[Any], Any], grid: int | None) -> None:
        self.name = name  #: of the function, in messages
        self.function = function
        self.grid = grid  #: rows of a cell; None: any range is run as a whole
        #: what tells the function from others, but for what it works with: of a processor that was changed nothing is known
        self.key = name, getattr(getattr(function, "__func__", function), "__code__", None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "key": None, "ambient": ambient()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore(state.pop("ambient"))
        self.__dict__.update(state)
        if not self.limited:
            tune_malloc()

    def open_worker(self, worker: int) -> RangesSide:  # noqa: ARG002 - all workers are alike
        return self.side(self)

    def hear(self, news: Any) -> None:
        """Workers learn nothing that home should know."""


class RangesSide:
    """One worker's inputs, and the function called for ranges of them."""

    used: tuple[float, int] | None = None
    reading = NO_READING
    bytes_read = 0  #: so far

    def __init__(self, work: Any) -> None:
        self.work = work

    def open(self, number: int) -> tuple[int, str]:
        """Give the rows of an input, and what tells it from another of its name."""
        raise NotImplementedError

    def call(self, rows: Rows) -> Any:
        """Give the output of the function for some rows; None: nothing."""
        raise NotImplementedError

    def run(self, job: Job) -> Outcome:
        payload = job.task.payload
        if type(payload) is OpenInput:
            rows, identity = self.open(payload.input)
            # As with coffea the function sees empty inputs too: a row stands for theirs.
            return Outcome({}, Opened(max(rows, 1), self._borders(rows), identity, free=not rows))
        (output,) = job.task.makes
        if type(payload) is MergePartials:
            return Outcome({output: join_pieces(chain(*job.values))})
        before, pieces = self.bytes_read, list[Piece]()
        for wanted, known in zip(payload.rows, payload.identities, strict=True):
            rows, identity = self.open(wanted.input)
            if known not in ("", identity):
                label = self.work.label(wanted.input)
                raise CorruptFileError(
                    f"{label} was replaced while it was read: run again, on files that stay as they are"
                )
            for piece in self._pieces(wanted, rows):
                check_output(piece.value, f"[{self.work.label(wanted.input)}, rows {wanted.start} to {wanted.stop}]")
                pieces.append(piece)
        made = join_pieces(pieces)
        return Outcome({output: made}, None, NO_MEASUREMENT._replace(bytes_read=self.bytes_read - before))

    def _borders(self, rows: int) -> Sequence[int]:
        grid, rows = self.work.grid, max(rows, 1)
        return range(rows + 1) if grid is None else (*range(0, rows, grid), rows)

    def _pieces(self, wanted: Rows, rows: int) -> Iterator[Piece]:
        number, start, stop = wanted
        if self.work.grid is None:
            end = (number, stop) if stop < rows else (number + 1, 0)
            if (value := self.call(wanted)) is not None:
                yield Piece((number, start), end, value, "any" if commutes(value) else "rows")
            return
        borders = self._borders(rows)
        for cell in range(bisect_right(borders, start) - 1, bisect_left(borders, stop)):
            value = self.call(Rows(number, max(borders[cell], start), min(borders[cell + 1], stop)))
            if value is not None:
                end = (number, cell + 1) if cell + 2 < len(borders) else (number + 1, 0)
                yield Piece((number, cell), end, value, "cells")

    def prepare(self, task: Task, plan: Plan) -> None:  # noqa: ARG002 - what a function will read is not known
        return None

    def news(self) -> None:
        return None

    def close(self) -> None:
        """Release files."""
