"""Partitioners that measure while the loop runs, or are given what rows take.

AWF-B, -C, -D and -E weigh workers by what their chunks took (Carino and Banicescu 2008, doi:10.1007/s10586-007-0049-4), as LB4OMP has them
(Korndoerfer et al. 2022, doi:10.1109/TPDS.2021.3107775); AF sizes chunks by mean and variance of each worker (Banicescu and Liu 2000). FAC
(Hummel, Schonberg and Flynn 1992, doi:10.1145/135226.135232), TAP (Lucco 1992, doi:10.1145/143095.143125) and FSC (Kruskal and Weiss
1985, doi:10.1109/TSE.1985.231547) take mean, deviation and overhead as given, or as measured so far.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windrow.shape.partition import literature

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState, Scheme

#: Rows of the first chunk of each worker in AF, and the confidence of TAP.
FIRST_ROWS, ALPHA = 100, 1.0


def weight(loop: LoopState, *, overhead: bool = False) -> float:
    """Give the speed of the worker that asks, relative to the others; ``overhead``: what cutting took counts as time of rows."""
    speeds = [one.speed(overhead=overhead) for one in loop.times]
    known = sum(speed > 0 for speed in speeds)
    own = speeds[loop.worker]
    return known * own / sum(speeds) if own else 1.0


def weighted_by_batch(loop: LoopState, *, overhead: bool = False) -> float:
    """Halve chunks from batch to batch, and do not take them from what is left."""
    return math.ceil(weight(loop, overhead=overhead) * literature.factoring2(loop))


def weighted_by_chunk(loop: LoopState, *, overhead: bool = False) -> float:
    left = loop.left if loop.times[loop.worker].chunks else loop.rows  # a worker's first chunk is that of all
    return math.ceil(weight(loop, overhead=overhead) * -(-left // (2 * loop.workers)))


def adaptive_factoring(loop: LoopState) -> float:
    given, own = loop.given, loop.times[loop.worker]
    mean, sigma = (given.mean, given.sigma) if given.mean else (own.mean, own.sigma)
    if loop.step < loop.workers or not mean:
        return min(FIRST_ROWS, -(-loop.rows // (2 * loop.workers)))
    each = [(mean, sigma)] * loop.workers  # of workers of which nothing is known the same is assumed
    if not given.mean:
        each = [(one.mean, one.sigma) if one.chunks else (mean, sigma) for one in loop.times]
    return adaptive_factoring_rows(loop.left, mean, each)


def adaptive_factoring_rows(left: int, mean: float, each: list[tuple[float, float]]) -> int:
    """Give the chunk of AF for a worker whose rows take ``mean``, where ``each`` worker has a mean and a deviation."""
    spread = sum(sigma * sigma / mu for mu, sigma in each)
    together = 1 / sum(1 / mu for mu, _ in each)
    root = math.sqrt(spread * spread + 4 * spread * together * left)
    return math.ceil((spread + 2 * together * left - root) / (2 * mean))


def factoring(loop: LoopState) -> float:
    if loop.step % loop.workers:
        return loop.last
    known, parts = loop.costs(), 2.0
    if known.mean:
        b = loop.workers * known.sigma / (2 * known.mean * math.sqrt(loop.left))
        first = 1 + b * b + b * math.sqrt(b * b + 2)
        parts = first if loop.step == 0 else 2 + b * b + b * math.sqrt(b * b + 4)
    return math.ceil(loop.left / (parts * loop.workers))


def taper(loop: LoopState) -> float:
    known, share = loop.costs(), loop.left / loop.workers
    if not known.mean:
        return math.ceil(share / 2)
    v = ALPHA * known.sigma / known.mean
    return math.ceil(share + v * v / 2 - v * math.sqrt(2 * share + v * v / 4))


def fixed_size(loop: LoopState) -> float:
    known, workers = loop.costs(), loop.workers
    if not (known.mean and known.overhead):
        return literature.modified_fixed_size(loop)
    if not known.sigma or workers == 1:
        return -(-loop.rows // workers)
    much = math.sqrt(2) * loop.rows * known.overhead / (known.sigma * workers * math.sqrt(math.log(workers)))
    return float(max(round(much ** (2 / 3)), 1))


SCHEMES: dict[str, Scheme] = {
    "AWF-B": weighted_by_batch,
    "AWF-C": weighted_by_chunk,
    "AWF-D": lambda loop: weighted_by_batch(loop, overhead=True),
    "AWF-E": lambda loop: weighted_by_chunk(loop, overhead=True),
    "AF": adaptive_factoring,
    "FAC": factoring,
    "TAP": taper,
    "FSC": fixed_size,
}
