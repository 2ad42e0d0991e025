"""Partitioners as they were published: chunks that need no measurement.

STATIC and SS; GSS (Polychronopoulos and Kuck 1987, doi:10.1109/TC.1987.5009495), also as LLVM's OpenMP has it (GUIDED); TSS (Tzeng
and Ni 1993, doi:10.1109/71.205655); FAC2 (Hummel, Schonberg and Flynn 1992, doi:10.1145/135226.135232), also recomputed for each batch
(FAC2-BATCH); TFSS (Chronopoulos et al. 2001, doi:10.1109/CLUSTR.2001.959982); FISS and VISS (Philip and Das 1997); PLS (Shih, Yang and
Tseng 2007, doi:10.1007/s11227-006-0014-x); PSS (Girkar et al. 2006); MFSC, which needs no profile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windrow.shape.partition import daphne

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState, Rule, Scheme


def static(loop: LoopState) -> Rule:
    share, more = divmod(loop.rows, loop.workers)
    return lambda _: share + (loop.step < more)


def guided_llvm(loop: LoopState) -> Rule:
    last = 2 * loop.workers * (loop.grain + 1)
    return lambda _: loop.left // (2 * loop.workers) if loop.left >= last else loop.grain


def trapezoid(loop: LoopState) -> Rule:
    first = max(1, loop.rows // (2 * loop.workers))
    last = min(max(1, loop.grain), first)
    count = max(2, -(-2 * loop.rows // (first + last)))
    smaller = (first - last) // (count - 1)
    return lambda _: max(first - loop.step * smaller, last)


def factoring2(loop: LoopState) -> Rule:
    share = loop.rows / loop.workers
    return lambda _: math.ceil(0.5 ** (loop.batch + 1) * share)


def factoring2_by_batch(loop: LoopState) -> Rule:
    rows = 0

    def rule(_: LoopState) -> float:
        nonlocal rows
        if loop.step % loop.workers == 0:
            rows = -(-loop.left // (2 * loop.workers))
        return rows

    return rule


def trapezoid_factoring(loop: LoopState) -> Rule:
    first, smaller = daphne.trapezoid_of(loop)
    workers = loop.workers

    def rule(_: LoopState) -> float:
        top = first - loop.batch * workers * smaller
        return sum(max(top - number * smaller, 0) for number in range(workers)) // workers

    return rule


def fixed_increase(loop: LoopState) -> Rule:
    stages = max(loop.workers - 1, 1)
    first = loop.rows // ((stages + 2) * loop.workers)
    more = 0
    if stages > 1:
        more = int(2 * loop.rows * (1 - stages / (stages + 2)) / (loop.workers * stages * (stages - 1)))
    return lambda _: first + loop.batch * more


def variable_increase(loop: LoopState) -> Rule:
    first = loop.rows // (loop.workers * loop.workers)
    return lambda _: int(first * (1 - 0.5 ** (loop.batch + 1)) / 0.5) if loop.batch else first


def performance_based(loop: LoopState) -> Rule:
    workers = loop.workers
    evenly = math.ceil(loop.rows * daphne.STATIC_SHARE / workers)
    rest = max(loop.rows - workers * evenly, 0)
    shrinking = 1 - 1 / workers
    return lambda _: evenly if loop.step < workers else math.ceil(shrinking ** (loop.step - workers) * rest / workers)


def modified_static(loop: LoopState) -> Rule:
    return lambda _: math.ceil(loop.rows / (4 * loop.workers))


def modified_fixed_size(loop: LoopState) -> Rule:
    share = -(-loop.rows // loop.workers)
    rows = int(0.55 + share * math.log(2) / math.log(share)) if share > 1 else 1
    return lambda _: rows


def automatic(loop: LoopState) -> Rule:
    """Make chunks of one size, as DAPHNE's AUTO was meant to be."""
    rows = daphne.automatic_grain(loop)
    return lambda _: rows


SCHEMES: dict[str, Scheme] = {
    "STATIC": static,
    "SS": daphne.self_scheduling,
    "GSS": daphne.guided,
    "GUIDED": guided_llvm,
    "TSS": trapezoid,
    "FAC2": factoring2,
    "FAC2-BATCH": factoring2_by_batch,
    "TFSS": trapezoid_factoring,
    "FISS": fixed_increase,
    "VISS": variable_increase,
    "PLS": performance_based,
    "MSTATIC": modified_static,
    "MFSC": modified_fixed_size,
    "PSS": daphne.probabilistic,
    "AUTO": automatic,
}
