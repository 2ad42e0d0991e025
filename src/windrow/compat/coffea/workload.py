"""A function of ranges of rows as a workload: inputs opened, ranges given to the function, outputs added up.

The function is opaque: it may be called for any range, and what it gives for two ranges can be added up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from windrow.compat.coffea.sums import Piece, commutes, join_pieces
from windrow.core.records import MergePartials, Opened, OpenInput, Rows
from windrow.engines.base import NO_MEASUREMENT, NO_READING, Outcome
from windrow.engines.processes.startup import tune_malloc
from windrow.errors import CorruptFileError
from windrow.pipeline.run.workload import ambient, classify, restore
from windrow.store.fingerprint.libraries import library_of_module

if TYPE_CHECKING:
    from types import ModuleType

    from windrow.core.records import Failure, Plan, Task
    from windrow.engines.base import Job


class RangesWorkload:
    """What is done with ranges; a kind of it says what inputs are and makes the sides of workers."""

    grid: int | None = None  #: rows of a cell; None: any range is run as a whole
    limited = False  #: in memory: what is freed has to go back at once
    away = False  #: this is a copy in another process

    def __init__(self, name: str) -> None:
        self.name = name  #: of the function, in messages

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "ambient": ambient(), "away": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore(state.pop("ambient"))
        self.__dict__.update(state)

    def label(self, number: int) -> str:
        raise NotImplementedError

    def make_side(self) -> RangesSide:
        raise NotImplementedError

    def open_worker(self, worker: int) -> RangesSide:  # noqa: ARG002 - all workers are alike
        if self.away and not self.limited:
            tune_malloc()
        side = self.make_side()
        side.grid = self.grid
        return side

    def content(self, task: Task) -> Any:
        return task.payload

    def classify(self, error: BaseException) -> Failure:
        return classify(error)

    def describe(self, task: Task) -> str:
        payload = task.payload
        if isinstance(payload, (OpenInput, MergePartials)):
            return f"{'opening' if isinstance(payload, OpenInput) else 'adding up outputs of'} {self.label(payload.input)}"
        return ", ".join(f"rows {r.start}-{r.stop} of {self.label(r.input)}" for r in payload.rows)

    def hear(self, news: Any) -> None:
        """Workers learn nothing that home should know."""

    def is_own(self, module: ModuleType) -> bool:
        return library_of_module(module) is None


class RangesSide:
    """One worker's inputs, and the function called for ranges of them."""

    used: tuple[float, int] | None = None
    reading = NO_READING
    grid: int | None = None
    bytes_read = 0  #: so far

    def open(self, number: int) -> tuple[int, str]:
        """Give the rows of an input, at least one, and what tells it from another of its name."""
        raise NotImplementedError

    def call(self, rows: Rows) -> Any:
        """Give the output of the function for some rows; None: nothing."""
        raise NotImplementedError

    def run(self, job: Job) -> Outcome:
        payload = job.task.payload
        if type(payload) is OpenInput:
            rows, identity = self.open(payload.input)
            return Outcome({}, Opened(rows, self._borders(rows), identity))
        (output,) = job.task.makes
        if type(payload) is MergePartials:
            return Outcome({output: join_pieces(chain(*job.values))})
        (wanted,) = payload.rows
        rows, identity = self.open(wanted.input)
        if payload.identity not in ("", identity):
            raise CorruptFileError(f"input {wanted.input} was replaced while it was read: run again, on files that stay")
        before = self.bytes_read
        made = join_pieces(self._pieces(wanted, rows))
        return Outcome({output: made}, None, NO_MEASUREMENT._replace(bytes_read=self.bytes_read - before))

    def _borders(self, rows: int) -> Sequence[int]:
        return range(rows + 1) if self.grid is None else (*range(0, rows, self.grid), rows)

    def _pieces(self, wanted: Rows, rows: int) -> list[Piece]:
        number, start, stop = wanted
        if self.grid is None:
            end = (number, stop) if stop < rows else (number + 1, 0)
            value = self.call(wanted)
            return [] if value is None else [Piece((number, start), end, value, "any" if commutes(value) else "rows")]
        borders, made = self._borders(rows), []
        for cell in range(bisect_right(borders, start) - 1, bisect_left(borders, stop)):
            value = self.call(Rows(number, max(borders[cell], start), min(borders[cell + 1], stop)))
            if value is not None:
                made.append(Piece((number, cell), (number, cell + 1), value, "cells"))
        return made

    def prepare(self, task: Task, plan: Plan) -> None:  # noqa: ARG002 - what a function will read is not known
        return None

    def news(self) -> None:
        return None

    def close(self) -> None:
        """Release files."""
