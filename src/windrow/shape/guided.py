"""Task sizes that shrink with what is left, bounded by what a task costs before its first row.

Guided self-scheduling (Polychronopoulos and Kuck 1987, doi:10.1109/TC.1987.5009495) with half the
classic share, as rows differ in cost; at the end the rest is divided so that all workers end
together. The first tasks of a category are smaller: they teach the costs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING

from windrow.shape.costs import are_alike, enough_rows, fit, rows_within, rows_worth, with_first

if TYPE_CHECKING:
    from windrow.core.policies import ShapePolicy, ShapeRequest
    from windrow.core.records import CostSums, StepCost


#: Rows of a task at most: it bounds the memory of a task, and larger ones gain nothing, as the
#: fixed cost of awkward steps is under 5 % there (blocks of 1 M rows ran within a few percent of
#: whole arrays).
MOST_ROWS = 1_000_000

#: Rows of a task at least, while it is not known to take long: an analysis of a dozen awkward
#: operations spends 15 ms per task before its first row, a sixteenth of the time of so many rows.
#: Tasks of half a million rows made a selection over two million 11 % slower.
LEAST_ROWS = 1_000_000

#: Seconds of a task at most, where that is more than a unit: the promise of progress, and of
#: little lost when a worker is.
MOST_S = 2.0

#: Share of the time of a task, or of the steps in a part of a unit, that may go into what it takes whatever its rows: every further
#: one pays for that again.
CALLS = 0.1

#: Tasks may take longer than they are to only where the shortest one took this share of that: else most of it is for rows.
MOSTLY = 0.5

#: Rows of a task at most before anything is known of its cost: two canonical units, so that an
#: analysis of 100 us per row is seen to move after half a minute.
FIRST_ROWS = 262_144

#: The same as a share of all rows, for two workers, and half of it for the very first: what it teaches, and what order follows from
#: it, comes too late for the rows that are under way by then.
FIRST_SHARE = 1 / 8

#: The same where the work is one opaque function, which shows no first rows before: inputs whose rows take ten times as long are met
#: by chance, and a quarter of this share bounds what they hold up (benchmarks/paper_shape.py, the tail: worst of ten runs 2.1 -> 1.2).
OPAQUE_SHARE = 1 / 32

#: Rows of a task of an opaque function at most: it holds columns whole, and arrays of over 32 MB have their pages from the kernel each time.
#: Tasks of a million events of jets took 1.2 times as long as two of half a million (benchmarks/coffea_processor.py).
OPAQUE_ROWS = 1 << 19

#: And so many at least: steps are checked on the first rows, and a handful of them shows nothing.
FIRST_LEAST = 1_024

#: A task takes all that would make the workers end together if that is at most this much larger:
#: crumbs cost a task's fixed price.
CRUMBS = 1.25

#: Seconds of a part that is not divided any further: a task costs about as much.
CRUMB_S = 0.005

#: Seconds of work that a worker may have in its queue. It hides the driver's answer and lets it
#: answer several tasks at once: for every task by itself it would cost 3 % of 5 ms
#: (benchmarks/overhead.py). It is also by how much the workers' ends may differ.
QUEUE_S = 0.08


class Queued:
    """The part of a shape decision that is the same for all: how many tasks a worker may have."""

    def window(self, task_s: float | None) -> int:
        """Say how many jobs a worker may have at a time; one until a task's length is known."""
        if task_s is None or task_s >= QUEUE_S:
            return 1
        return int(QUEUE_S / task_s) if task_s > 1e-9 else 1 << 30


class Guided(Queued):
    """The shape decision of ``chunk="auto"``."""

    def __init__(
        self,
        remembered: Mapping[str, StepCost] | None = None,
        *,
        most_s: float | None = None,
        first_rows: int | None = None,
        opaque: bool = False,
    ) -> None:
        self._remembered = remembered or {}  #: by category: what tasks cost in an earlier run
        self._most_s = MOST_S if most_s is None else most_s
        self._opaque = opaque
        self._first_share = OPAQUE_SHARE if opaque else FIRST_SHARE
        self._first_rows = first_rows  #: of tasks before anything is known of their cost, where the user guesses

    def rows(self, request: ShapeRequest) -> int:
        costs, left = self._known(request), request.known + request.expected
        if not costs.rows_in and self._first_rows is not None:
            return self._first_rows
        # With so many rows each, counting what they are at, all workers would end together.
        level = (left + request.running) / max(request.workers, 1)
        worth = self._rows_of_a_call(request, costs) if self._opaque else 0.0
        least = worth / CALLS if worth else max(enough_rows(costs), LEAST_ROWS)
        want = min(max(left / (2 * max(request.workers, 1)), least), OPAQUE_ROWS if self._opaque else MOST_ROWS)
        if not costs.rows_in:
            want = min(want, self._first(request, left))
        elif request.parts:
            want = min(want, level / 2, rows_within(request, costs, self._most_s))
            want = max(want, rows_within(request, costs, QUEUE_S, CALLS))
        else:
            want = min(want, self._within(request, costs))
        if request.slower > 1:  # a task may take as much longer as half of an even share of the time left allows
            late = (level + request.slow / max(request.workers, 1)) / 2
            want /= max(request.slower / max(late / want, 1.0), 1.0)
        if level < CRUMBS * want:
            crumb = CRUMB_S * costs.rows_in / max(costs.wall, 1e-9) if costs.rows_in and request.parts else 1.0
            want = max(level, min(crumb, left))
        if self._opaque and left - want < max(worth, CALLS * want):  # the rest is not worth what a task takes anyway
            want = left
        # The source snaps down to units, this makes it the nearest.
        return max(int(want), 1) if request.parts else int(want) + request.unit // 2

    def _first(self, request: ShapeRequest, left: int) -> float:
        """Bound a task before anything is known of its cost; the very first has half."""
        share = self._first_share if request.running else self._first_share / 2
        return min(FIRST_ROWS, max(share * 2 / max(request.workers, 2) * left, request.unit, FIRST_LEAST))

    def _within(self, request: ShapeRequest, costs: StepCost | CostSums) -> float:
        """Bound a task of whole units by the seconds that it may take."""
        rows = rows_within(request, costs, self._most_s)
        # Tasks took longer than they are to: by what they take anyway, perhaps. That is no more than the shortest one took.
        if rows * costs.calls < costs.rows_in and request.least_s > MOSTLY * self._most_s:
            rows = max(rows, rows_worth(costs, CALLS, request.least_s))
        return rows

    def _rows_of_a_call(self, request: ShapeRequest, costs: StepCost | CostSums) -> float:
        """Give the rows that take as long as what every task of an opaque function takes anyway; 0 where that is not known."""
        fixed_s = 0.0 if request.parts or are_alike(costs) else min(fit(costs)[0], request.least_s)
        return fixed_s * costs.rows_in / (max(costs.wall - fixed_s * costs.calls, CALLS * costs.wall) or 1.0)

    def _known(self, request: ShapeRequest) -> StepCost | CostSums:
        """Give what tasks of a category cost; where that does not tell calls from rows, with what they cost in an earlier run."""
        costs, before = request.costs, self._remembered.get(request.category)
        if not self._opaque:
            return costs if costs.calls or before is None else before
        costs = with_first(costs, request.cold)
        return before.merge(costs) if before is not None and (not costs.calls or are_alike(costs)) else costs


class CappedUntilReordered:
    """A shape decision whose tasks take at most so long until the order of their category was decided.

    Those that run before it gain nothing from it.
    """

    def __init__(
        self, shape: ShapePolicy, most_s: Callable[[str], float | None], remembered: Container[str] | None = None
    ) -> None:
        self._shape = shape
        #: categories whose cost is known from an earlier run; tasks of others have one unit at first, unless it is None
        self._remembered = remembered
        self._most_s = most_s  #: category -> seconds of a task at most; None: no limit

    def rows(self, request: ShapeRequest) -> int:
        rows = self._shape.rows(request)
        most = self._most_s(request.category)
        costs = request.costs
        if most is None:
            return rows
        if not costs.rows_in:
            # What it teaches comes too late for all that is under way by then.
            known = self._remembered is None or request.category in self._remembered
            return rows if known else min(rows, request.unit)
        return max(int(min(rows, rows_within(request, costs, most))), 1 if request.parts else request.unit)

    def window(self, task_s: float | None) -> int:
        return self._shape.window(task_s)
