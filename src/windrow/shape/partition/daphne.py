"""The thirteen partitioners of DAPHNE, with the sequences that its code gives.

DAPHNE, "D5.4 Prototype of the Scheduler" (section 2.3.3), and its integer divisions: STATIC leaves a chunk over, FAC2 halves
a whole number of rows, TFSS is half of GSS, FISS and VISS lose a factor, and AUTO gives chunks of MSTATIC.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState, Scheme

#: Share of the rows that PLS cuts evenly, and idle workers that PSS expects.
STATIC_SHARE, IDLE = 0.5, 1.5


def trapezoid(loop: LoopState) -> float:
    first, smaller = trapezoid_of(loop)
    rows = first - smaller * loop.step
    return rows if rows >= 0 else loop.left  # unsigned there: below zero is very much


def trapezoid_of(loop: LoopState) -> tuple[int, int]:
    """Give the first chunk of TSS, and by how much each further one is smaller."""
    first = -(-loop.rows // (2 * loop.workers))
    count = -(-2 * loop.rows // (first + 1))
    return first, (first - 1) // (count - 1) if count > 1 else 0


def fixed_increase(loop: LoopState) -> float:
    stages, first = stages_of(loop.rows, loop.workers)
    more = math.ceil(2 * loop.rows / (loop.workers * stages * (stages - 1))) if stages > 1 else 0
    return first + loop.step * more


def variable_increase(loop: LoopState) -> float:
    _, first = stages_of(loop.rows, loop.workers)
    return first * math.ceil((1 - 0.5**loop.batch) / 0.5)


@lru_cache(64)
def stages_of(rows: int, workers: int) -> tuple[int, int]:
    """Count the batches that FAC2 would take; with the first chunk of FISS."""
    stages, scheduled = 0, 0
    while scheduled < rows:
        stages += 1
        scheduled += workers * math.ceil(0.5**stages * (rows / workers))
    return stages, math.ceil(rows / ((2 + stages) * workers))


def performance_based(loop: LoopState) -> float:
    if loop.left > loop.rows - loop.rows * STATIC_SHARE:
        return math.ceil(loop.rows * STATIC_SHARE / loop.workers)
    return -(-loop.left // loop.workers)


def modified_fixed_size(loop: LoopState) -> float:
    share = (loop.rows + loop.workers - 1) / loop.workers
    return math.ceil(share * math.log(2) / math.log(share)) if share > 1 else 1


def modified_static(loop: LoopState) -> int:
    return -(-(loop.rows // loop.workers) // 4)


def automatic_grain(loop: LoopState) -> int:
    share = loop.rows // loop.workers
    doublings = int(0.618 * math.log2(share)) if share else 0
    return max(1, loop.rows // ((2 << doublings) * loop.workers))


SCHEMES: dict[str, Scheme] = {
    "STATIC": lambda loop: loop.rows // loop.workers,
    "SS": lambda _: 1,
    "GSS": lambda loop: -(-loop.left // loop.workers),
    "TSS": trapezoid,
    "FAC2": lambda loop: math.ceil(0.5 ** (loop.batch + 1) * (loop.rows // loop.workers)),
    "TFSS": lambda loop: -(-loop.left // (2 * loop.workers)),
    "FISS": fixed_increase,
    "VISS": variable_increase,
    "PLS": performance_based,
    "MSTATIC": modified_static,
    "MFSC": modified_fixed_size,
    "PSS": lambda loop: math.ceil(loop.left / (IDLE * loop.workers)),
    "AUTO": lambda loop: max(modified_static(loop), automatic_grain(loop)),
}
