"""Rows of a task, or of a call of a step in it, that fit the memory which a task may use: from the line through what tasks used.

Nothing is known at first: few rows, then at most eight times as many as were seen to fit. Where a whole unit does not fit, its steps are
called for blocks of it, which read nothing twice; where that does not help, as what steps make is what is large, tasks have fewer rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.core.policies import Answer
from windrow.core.records import Measurement, RunRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.policies import TooMuch
    from windrow.shape.allocation.policy import Key
    from windrow.shape.allocation.usage import TaskUsage

#: Rows are taken to use so much before anything is known of them: more than they do in nearly all analyses.
ROW_BYTES = 64_000
#: Share of what a task may use that its rows are chosen for: what a line through a few tasks says is off by a tenth.
ROOM = 0.85
#: Tasks have at most so many times the rows of the largest that was seen: what a line says far beyond that is a guess.
GROWTH = 8
#: More rows than a task ever has.
MOST_ROWS = 1_000_000
#: Every second task has this share of the rows that another would have, so that the line is drawn through more than one size.
VARIED = 0.9
#: Kinds of tasks: whose steps see all their rows at once, or blocks of them.
ROWS, BLOCKS = "rows", "blocks"


@dataclass(slots=True)
class Bound:
    """What was found out about blocks for tasks that are alike."""

    block: int = 0  #: rows of a call; 0: as many as the task has
    helps: bool = True  #: no task that was run in blocks used too much
    exceeded: bool = False  #: one without blocks did


class RowBounds:
    """How many rows tasks have, and calls in them.

    ``guessed``: the user says how many the first tasks have; ``blocks``: tasks consist of calls that may have fewer rows.
    """

    def __init__(
        self,
        usage_of: Callable[[Key], TaskUsage],
        allowed: Callable[[], float],
        most: Callable[[], float],
        *,
        target: float | None,
        threshold: int,
        guessed: bool,
        blocks: bool,
    ) -> None:
        self._usage_of, self._allowed = usage_of, allowed
        self._most = most  #: what a single task may have, if others wait for it
        self._target, self._threshold, self._guessed = target, threshold, guessed
        self._bounds: defaultdict[Key, Bound] = defaultdict(lambda: Bound(helps=blocks))
        self._turn = False

    def at_once(self, key: Key) -> tuple[int, int]:
        """Bound a task's rows, and those of a call; 0: any number. The key is that of tasks without blocks."""
        bound, usage = self._bounds[key], self._usage_of(key)
        if not usage.count and key.moved:  # the same steps, in another order
            usage = self._usage_of(key._replace(moved=False))
        rows = self._fitting(usage, self._aim, bound)
        if not rows:  # what comes with any number of rows is too much: tasks are granted more
            rows = self._fitting(usage, ROOM * self._most(), bound)
            return (rows if rows < MOST_ROWS else 0), 0
        if bound.helps and rows < MOST_ROWS and usage.count >= self._threshold:
            bound.block = bound.block or rows
        block = bound.block if bound.helps else 0
        if block:
            # A block is as large as fits: what comes with each further row has the room that was left.
            blocks = self._usage_of(key._replace(kind=BLOCKS))
            rows = self._fitting(blocks, self._allowed(), bound) if blocks.count else 0
            rows = rows if rows > block else GROWTH * block
        self._turn = not self._turn
        if rows >= MOST_ROWS:
            return 0, block
        return max(int(VARIED * rows) if self._turn else rows, 1), block

    def fewer(self, found: TooMuch, key: Key) -> Answer:
        """Answer a task that used too much and has several rows: smaller blocks, or tasks of fewer rows."""
        task, usage = found.task, self._usage_of(key)
        bound = self._bounds[key._replace(kind=ROWS)]
        bound.exceeded = True
        if found.limit is not None:  # it would have used that and more
            used = Measurement(peak_memory=int(max(found.used, found.limit[1])), baseline=int(usage.idle))
            usage.add(task.size, used, ended=True)
        half = -(-task.size // 2)  # also where the fixed part is all that is known of: few rows would not help then
        rows = min(self._fitting(usage, self._aim, bound) or half, half)
        if key.kind == BLOCKS:
            bound.helps = False
        elif bound.helps and isinstance(task.payload, RunRows) and not task.payload.part:
            bound.block = bound.block or rows
            return Answer("blocks", rows=bound.block)
        return Answer("split", rows=rows)

    def block(self, key: Key) -> int:
        """Give the rows of a call that were found to fit; 0: nothing had to be found."""
        return self._bounds[key].block if key in self._bounds else 0

    @property
    def _aim(self) -> float:
        return min(self._target or self._allowed(), ROOM * self._allowed())

    def _fitting(self, usage: TaskUsage, memory: float, bound: Bound) -> int:
        """Give the rows of a task that is expected to fit; 0: not one."""
        if not usage.count:
            return MOST_ROWS if self._guessed and not bound.exceeded else max(int(memory / ROW_BYTES), 1)
        fit = usage.fit()
        rows = fit.most_rows(memory) if fit is not None else MOST_ROWS
        return min(rows, GROWTH * max(int(usage.most("rows")), 1))
