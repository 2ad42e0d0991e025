"""Task sizes that the user decides: so many rows for ``chunk=N``, or as a partitioner of loops has them for ``partition=``.

They are to compare with what is chosen by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.shape.guided import Queued
from windrow.shape.partition.partitioner import Partitioner
from windrow.shape.partition.schemes import STATIC_STEAL, known_as
from windrow.shape.partition.state import Costs

if TYPE_CHECKING:
    from windrow.core.policies import ShapeRequest


def check_scheme(scheme: Any) -> Any:
    """Refuse what no run can be cut by."""
    name = known_as(scheme)
    if name == STATIC_STEAL or name.startswith("AWF"):
        raise UsageError(
            f"partition={name!r} is for loops (wr.parallel_for): in a run, rows are cut without knowing for whom"
        )
    return scheme


class Fixed(Queued):
    """The shape decision of a user who knows better."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def rows(self, request: ShapeRequest) -> int:  # noqa: ARG002 - nothing of it matters here
        return self._rows


class ByScheme(Queued):
    """The shape decision of a named partitioner; all rows of the run are one loop, and tasks are whole units."""

    def __init__(self, scheme: Any, workers: int) -> None:
        self._scheme, self._workers = scheme, workers
        self._partitioner: Partitioner | None = None

    def rows(self, request: ShapeRequest) -> int:
        left = request.known + request.expected
        if self._partitioner is None:
            self._partitioner = Partitioner(self._scheme, left, self._workers)
        loop = self._partitioner.loop
        loop.rows += max(left - loop.left, 0)  # of inputs that had more than was expected
        loop.left = left
        if request.costs.rows_in:
            loop.given = Costs(request.costs.wall / request.costs.rows_in)
        start, stop = self._partitioner.cut() or (0, 1)
        return stop - start if request.parts else stop - start + request.unit // 2
