"""Units of rows that were cut into parts: when all parts of a unit are there, a task evaluates the unit from them.

A part is an output that holds its rows in the ledger. It is brought to the driver at once, so that its worker may go.
When a unit is evaluated its partial takes over the rows of its parts, as a merge does; a part that is lost returns its
rows, and the evaluation that would have read it is called off.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from windrow.core.records import EvaluateUnit, Rows, Task

if TYPE_CHECKING:
    from windrow.core.inputs import Input
    from windrow.core.ledger import Ledger
    from windrow.core.records import Failure, Made, Needs
    from windrow.core.scheduler import Scheduler

#: Rows of a unit that are left out because no worker can run them, each after some attempts; where there are more, the unit is.
MOST_UNMADE = 8

Key = tuple[int, int]  #: the number of an input, and the first row
Skipped = Sequence[tuple[Rows, "Failure"]]


class SplitUnit:
    """One unit that is run in parts; where the run wants a range of its rows only, that range."""

    __slots__ = ("input", "missing", "outputs", "skipped", "start", "stop", "task", "unmade")

    def __init__(self, one: Input, start: int, stop: int) -> None:
        self.input = one
        self.start, self.stop = start, stop
        self.missing = stop - start  #: rows of which there is no part
        self.outputs: dict[str, Rows] = {}  #: parts
        self.skipped: dict[str, Skipped] = {}  #: by part: rows of it that were left out
        self.unmade: set[str] = set()  #: parts that nothing came of: a row each, which no worker can run
        self.task: Task | None = None  #: that evaluates it


class Parts:
    """All units of a run that are in parts."""

    def __init__(self, ledger: Ledger, needs: Needs, next_task: Callable[[], int]) -> None:
        self.units: dict[Key, SplitUnit] = {}
        self.where: dict[str, SplitUnit] = {}  #: by part
        self._carried: dict[str, tuple[int, int]] = {}  #: by category: bytes and rows of all parts so far
        self.desk: Scheduler
        self._ledger = ledger
        self._needs = needs
        self._next_task = next_task

    def unit(self, one: Input, rows: Rows) -> SplitUnit:
        """Give the unit of rows that were cut from it, or are to be."""
        at = bisect_right(one.borders, rows.start)
        wanted = self._ledger.books[one.spec.id].everything
        first, last = next(found for found in wanted if found[0] <= rows.start < found[1])
        start, stop = max(one.borders[at - 1], first), min(one.borders[at], last)
        unit = self.units.get((one.spec.id, start))
        if unit is None:
            unit = self.units[one.spec.id, start] = SplitUnit(one, start, stop)
        return unit

    def bytes_per_row(self, category: str) -> float:
        """Say what a row hands over, as far as it is known: what is small comes uncounted."""
        size, count = self._carried.get(category, (0, 1))
        return size / count

    def keep(self, one: Input, made: Made, rows: Rows, skipped: Skipped) -> Task | None:
        """A part was accepted, which holds its rows; return the task that evaluates its unit if it was the last."""
        unit = self.unit(one, rows)
        unit.outputs[made.output] = rows
        unit.skipped[made.output] = skipped
        unit.missing -= rows.stop - rows.start
        self.where[made.output] = unit
        size, count = self._carried.get(one.spec.category, (0, 0))
        self._carried[one.spec.category] = size + made.bytes, count + rows.stop - rows.start
        return None if unit.missing else self.evaluate(unit)

    def evaluate(self, unit: SplitUnit) -> Task:
        number, spec = self._next_task(), unit.input.spec
        outputs = sorted(unit.outputs, key=unit.outputs.__getitem__)
        rows = tuple(unit.outputs[output] for output in outputs)
        payload = EvaluateUnit(rows, unit.input.identity)
        made = tuple(output for output in outputs if output not in unit.unmade)
        unit.task = Task(
            number, spec.category, 0, payload, made, makes=(f"rows {number}",), needs=self._needs
        )  # fmt: skip
        return unit.task

    def evaluated(self, task: Task, skipped: Skipped) -> Input:
        """A unit was evaluated: its partial takes over the rows of its parts, which go, but those that were left out."""
        unit = self.where[task.reads[0]]
        self._ledger.replace(unit.outputs, task.makes[0])
        self._ledger.leave_out(task.makes[0], [one for listed in (*unit.skipped.values(), skipped) for one in listed])
        self._drop(unit)
        return unit.input

    def lost(self, output: str) -> tuple[Rows, ...]:
        """A part is gone; return its rows, which have no owner now."""
        unit = self.where.pop(output)
        rows = unit.outputs.pop(output)
        unit.missing += rows.stop - rows.start
        unit.task = None
        del unit.skipped[output]
        return self._ledger.release(output)

    def give_up(self, units: Iterable[SplitUnit]) -> list[Rows]:
        """Units will not be evaluated; return the rows of their parts, which have no owner now."""
        rows: list[Rows] = []
        for unit in list(units):
            rows += [part for output in unit.outputs for part in self._ledger.release(output)]
            self._drop(unit)
        return rows

    def _drop(self, unit: SplitUnit) -> None:
        for output in unit.outputs:
            del self.where[output]
            self.desk.release(output)
        del self.units[unit.input.spec.id, unit.start]
