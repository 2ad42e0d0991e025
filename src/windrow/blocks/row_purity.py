"""Asking a step once more about a sample of its rows, in other company: what it said of each must be its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.blocks.answers import checked
from windrow.blocks.purity import first_difference
from windrow.errors import RowPurityError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from windrow.blocks.execute import ChunkRun
    from windrow.blocks.program import BoundStep
    from windrow.blocks.selection import Selection

__all__ = ["check_row_purity"]


def check_row_purity(run: ChunkRun, step: BoundStep, arguments: list[Any], rows: Selection, value: Any) -> None:
    """Raise if a step's answers ``value`` depend on which rows it is asked about together; note that they do not."""

    def ask(positions: NDArray[np.int64]) -> Any:
        again = run.caller.call(step, arguments, rows, positions)
        return checked(step, again, len(positions))

    found = first_difference(value, rows.count, ask, run.program.sample_rows)
    if found is not None:
        row = run.start + int(rows.positions()[found])
        raise RowPurityError(
            f"{step.kind} {step.name!r} is not a function of its own row: asked about row {row} of "
            f"{run.chunk.label} together with other rows, it gave another answer. Something in it looks at all "
            "rows (a mean, a maximum, a length, the row's position, np.random); compute that beforehand and "
            "pass it as a parameter, or use rng(...) for random numbers",
            step=step.name, file=run.chunk.label, start=row, stop=row + 1,
        )  # fmt: skip
    run.program.unchecked.discard(step.name)
