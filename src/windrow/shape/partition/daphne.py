"""The thirteen partitioners of DAPHNE, with the sequences that its code gives.

DAPHNE, "D5.4 Prototype of the Scheduler" (section 2.3.3), and its integer divisions: STATIC leaves a chunk over, FAC2 halves
a whole number of rows, TFSS is half of GSS, FISS and VISS lose a factor, and AUTO gives chunks of MSTATIC.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState, Rule, Scheme

#: Share of the rows that PLS cuts evenly, and idle workers that PSS expects.
STATIC_SHARE, IDLE = 0.5, 1.5


def static(loop: LoopState) -> Rule:
    return lambda _: loop.rows // loop.workers


def self_scheduling(loop: LoopState) -> Rule:  # noqa: ARG001 - a scheme
    return lambda _: 1


def guided(loop: LoopState) -> Rule:
    return lambda _: -(-loop.left // loop.workers)


def trapezoid(loop: LoopState) -> Rule:
    first, smaller = trapezoid_of(loop)

    def rule(_: LoopState) -> float:
        rows = first - smaller * loop.step
        return rows if rows >= 0 else loop.left  # unsigned there: below zero is very much

    return rule


def trapezoid_of(loop: LoopState) -> tuple[int, int]:
    """Give the first chunk of TSS, and by how much each further one is smaller."""
    first = -(-loop.rows // (2 * loop.workers))
    count = -(-2 * loop.rows // (first + 1))
    return first, (first - 1) // (count - 1) if count > 1 else 0


def factoring2(loop: LoopState) -> Rule:
    return lambda _: math.ceil(0.5 ** (loop.batch + 1) * (loop.rows // loop.workers))


def trapezoid_factoring(loop: LoopState) -> Rule:
    return lambda _: -(-loop.left // (2 * loop.workers))


def fixed_increase(loop: LoopState) -> Rule:
    stages, first = _stages(loop)
    more = math.ceil(2 * loop.rows / (loop.workers * stages * (stages - 1))) if stages > 1 else 0
    return lambda _: first + loop.step * more


def variable_increase(loop: LoopState) -> Rule:
    _, first = _stages(loop)
    return lambda _: first * math.ceil((1 - 0.5**loop.batch) / 0.5)


def _stages(loop: LoopState) -> tuple[int, int]:
    """Count the batches that FAC2 would take; with the first chunk of FISS."""
    share, scheduled, step = loop.rows / loop.workers, 0, 0
    while scheduled < loop.rows:
        scheduled += math.ceil(0.5 ** (step // loop.workers + 1) * share)
        step += 1
    stages = (step - 1) // loop.workers + 1
    return stages, math.ceil(loop.rows / ((2 + stages) * loop.workers))


def performance_based(loop: LoopState) -> Rule:
    evenly = math.ceil(loop.rows * STATIC_SHARE / loop.workers)
    rest = loop.rows - loop.rows * STATIC_SHARE
    return lambda _: evenly if loop.left > rest else -(-loop.left // loop.workers)


def probabilistic(loop: LoopState) -> Rule:
    return lambda _: math.ceil(loop.left / (IDLE * loop.workers))


def modified_static(loop: LoopState) -> Rule:
    return lambda _: -(-(loop.rows // loop.workers) // 4)


def modified_fixed_size(loop: LoopState) -> Rule:
    share = (loop.rows + loop.workers - 1) / loop.workers
    rows = math.ceil(share * math.log(2) / math.log(share)) if share > 1 else 1
    return lambda _: rows


def automatic(loop: LoopState) -> Rule:
    rows = max(-(-(loop.rows // loop.workers) // 4), automatic_grain(loop))
    return lambda _: rows


def automatic_grain(loop: LoopState) -> int:
    share = loop.rows // loop.workers
    doublings = int(0.618 * math.log2(share)) if share else 0
    return max(1, loop.rows // ((2 << doublings) * loop.workers))


SCHEMES: dict[str, Scheme] = {
    "STATIC": static,
    "SS": self_scheduling,
    "GSS": guided,
    "TSS": trapezoid,
    "FAC2": factoring2,
    "TFSS": trapezoid_factoring,
    "FISS": fixed_increase,
    "VISS": variable_increase,
    "PLS": performance_based,
    "MSTATIC": modified_static,
    "MFSC": modified_fixed_size,
    "PSS": probabilistic,
    "AUTO": automatic,
}
