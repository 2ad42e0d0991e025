"""Partitioners as they were published: chunks that need no measurement. Those that DAPHNE has the same are not here again.

GSS (Polychronopoulos and Kuck 1987, doi:10.1109/TC.1987.5009495) as LLVM's OpenMP has it (GUIDED); TSS (Tzeng and Ni 1993,
doi:10.1109/71.205655); FAC2 (Hummel, Schonberg and Flynn 1992, doi:10.1145/135226.135232), also recomputed for each batch (FAC2-BATCH);
TFSS (Chronopoulos et al. 2001, doi:10.1109/CLUSTR.2001.959982); FISS and VISS (Philip and Das 1997); PLS (Shih, Yang and Tseng
2007, doi:10.1007/s11227-006-0014-x); PSS (Girkar et al. 2006); MFSC, which needs no profile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windrow.shape.partition.daphne import STATIC_SHARE, automatic_grain, trapezoid_of

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState, Scheme


def static(loop: LoopState) -> float:
    share, more = divmod(loop.rows, loop.workers)
    return share + (loop.step < more)


def guided_llvm(loop: LoopState) -> float:
    last = 2 * loop.workers * (loop.grain + 1)
    return loop.left // (2 * loop.workers) if loop.left >= last else loop.grain


def trapezoid(loop: LoopState) -> float:
    first = max(1, loop.rows // (2 * loop.workers))
    last = min(loop.grain, first)
    count = max(2, -(-2 * loop.rows // (first + last)))
    return max(first - loop.step * ((first - last) // (count - 1)), last)


def factoring2(loop: LoopState) -> int:
    return -(-loop.rows // (2 * loop.workers << loop.batch))


def factoring2_by_batch(loop: LoopState) -> float:
    return loop.last if loop.step % loop.workers else -(-loop.left // (2 * loop.workers))


def trapezoid_factoring(loop: LoopState) -> float:
    first, smaller = trapezoid_of(loop)
    begin = loop.batch * loop.workers
    return sum(max(first - step * smaller, 0) for step in range(begin, begin + loop.workers)) // loop.workers


def fixed_increase(loop: LoopState) -> float:
    rows, workers, stages = loop.rows, loop.workers, max(loop.workers - 1, 1)
    first = rows // ((stages + 2) * workers)
    more = int(2 * rows * (1 - stages / (stages + 2)) / (workers * stages * (stages - 1))) if stages > 1 else 0
    return first + loop.batch * more


def variable_increase(loop: LoopState) -> float:
    first = loop.rows // (loop.workers * loop.workers)
    return int(first * (1 - 0.5 ** (loop.batch + 1)) / 0.5)


def performance_based(loop: LoopState) -> float:
    evenly = math.ceil(loop.rows * STATIC_SHARE / loop.workers)
    if loop.step < loop.workers:
        return evenly
    rest = max(loop.rows - loop.workers * evenly, 0)
    return math.ceil((1 - 1 / loop.workers) ** (loop.step - loop.workers) * rest / loop.workers)


def modified_fixed_size(loop: LoopState) -> float:
    share = -(-loop.rows // loop.workers)
    return int(0.55 + share * math.log(2) / math.log(share)) if share > 1 else 1


SCHEMES: dict[str, Scheme] = {
    "STATIC": static,
    "GUIDED": guided_llvm,
    "TSS": trapezoid,
    "FAC2": factoring2,
    "FAC2-BATCH": factoring2_by_batch,
    "TFSS": trapezoid_factoring,
    "FISS": fixed_increase,
    "VISS": variable_increase,
    "PLS": performance_based,
    "MSTATIC": lambda loop: math.ceil(loop.rows / (4 * loop.workers)),
    "MFSC": modified_fixed_size,
    "AUTO": automatic_grain,  # chunks of one size, as DAPHNE's was meant to be
}
