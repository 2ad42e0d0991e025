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
    from windrow.shape.partition.state import LoopState, Rule, Scheme

#: Rows of the first chunk of each worker in AF, and the confidence of TAP.
FIRST_ROWS, ALPHA = 100, 1.0


class Weights:
    """The speeds of workers relative to each other, from what their chunks took; later chunks count more."""

    def __init__(self, loop: LoopState, *, overhead: bool) -> None:
        self._loop = loop
        self._overhead = overhead  #: what cutting a chunk took counts as its time
        self._chunks = [0] * loop.workers
        self._rows = [0.0] * loop.workers
        self._seconds = [0.0] * loop.workers

    def measure(self) -> float:
        """Take in the last chunk of the worker that asks, and give its weight."""
        loop, worker = self._loop, self._loop.worker
        last = loop.times[worker]
        if last.chunks and self._chunks[worker] < last.chunks:
            self._chunks[worker] = number = last.chunks
            self._seconds[worker] += number * (last.run_s + (last.overhead_s if self._overhead else 0.0))
            self._rows[worker] += number * last.last_rows
        return self.of(worker)

    def of(self, worker: int) -> float:
        speeds = [rows / max(s, 1e-12) if rows else 0.0 for rows, s in zip(self._rows, self._seconds, strict=True)]
        known = sum(speed > 0 for speed in speeds)
        return known * speeds[worker] / sum(speeds) if speeds[worker] else 1.0


def _weighted(loop: LoopState, *, batched: bool, overhead: bool) -> Rule:
    weights = Weights(loop, overhead=overhead)
    base, batch = 0, -1

    def rule(_: LoopState) -> float:
        nonlocal base, batch
        weight = weights.measure()
        if not batched:
            left = loop.left if loop.times[loop.worker].chunks else loop.rows  # a worker's first chunk is that of all
            base = -(-left // (2 * loop.workers))
        elif loop.batch != batch:
            # Halved from batch to batch, and not taken from what is left.
            base = -(-base // 2) if base else -(-loop.rows // (2 * loop.workers))
            batch = loop.batch
        return math.ceil(weight * base)

    return rule


def weighted_b(loop: LoopState) -> Rule:
    return _weighted(loop, batched=True, overhead=False)


def weighted_c(loop: LoopState) -> Rule:
    return _weighted(loop, batched=False, overhead=False)


def weighted_d(loop: LoopState) -> Rule:
    return _weighted(loop, batched=True, overhead=True)


def weighted_e(loop: LoopState) -> Rule:
    return _weighted(loop, batched=False, overhead=True)


def adaptive_factoring(loop: LoopState) -> Rule:
    first = min(FIRST_ROWS, -(-loop.rows // (2 * loop.workers)))

    def rule(_: LoopState) -> float:
        given, own = loop.given, loop.times[loop.worker]
        mean, sigma = (given.mean, given.sigma) if given.mean else (own.mean, own.sigma)
        if loop.step < loop.workers or not mean:
            return first
        # Of workers of which nothing is known the same is assumed.
        known = [one if one.chunks and not given.mean else None for one in loop.times]
        return adaptive_factoring_rows(
            loop.left, mean, [(one.mean, one.sigma) if one else (mean, sigma) for one in known]
        )

    return rule


def adaptive_factoring_rows(left: int, mean: float, each: list[tuple[float, float]]) -> int:
    """Give the chunk of AF for a worker whose rows take ``mean``, where ``each`` worker has a mean and a deviation."""
    spread = sum(sigma * sigma / mu for mu, sigma in each)
    together = 1 / sum(1 / mu for mu, _ in each)
    root = math.sqrt(spread * spread + 4 * spread * together * left)
    return math.ceil((spread + 2 * together * left - root) / (2 * mean))


def factoring(loop: LoopState) -> Rule:
    rows = 0

    def rule(_: LoopState) -> float:
        nonlocal rows
        if loop.step % loop.workers == 0:
            known = loop.costs()
            parts = 2.0
            if known.mean:
                b = loop.workers * known.sigma / (2 * known.mean * math.sqrt(loop.left))
                first = 1 + b * b + b * math.sqrt(b * b + 2)
                parts = first if loop.step == 0 else 2 + b * b + b * math.sqrt(b * b + 4)
            rows = math.ceil(loop.left / (parts * loop.workers))
        return rows

    return rule


def taper(loop: LoopState) -> Rule:
    def rule(_: LoopState) -> float:
        known, share = loop.costs(), loop.left / loop.workers
        if not known.mean:
            return math.ceil(share / 2)
        v = ALPHA * known.sigma / known.mean
        return math.ceil(share + v * v / 2 - v * math.sqrt(2 * share + v * v / 4))

    return rule


def fixed_size(loop: LoopState) -> Rule:
    modified = literature.modified_fixed_size(loop)

    def rule(_: LoopState) -> float:
        known, workers = loop.costs(), loop.workers
        if not (known.mean and known.overhead):
            return modified(loop)
        if not known.sigma or workers == 1:
            return -(-loop.rows // workers)
        much = math.sqrt(2) * loop.rows * known.overhead / (known.sigma * workers * math.sqrt(math.log(workers)))
        return float(max(round(much ** (2 / 3)), 1))

    return rule


SCHEMES: dict[str, Scheme] = {
    "AWF-B": weighted_b,
    "AWF-C": weighted_c,
    "AWF-D": weighted_d,
    "AWF-E": weighted_e,
    "AF": adaptive_factoring,
    "FAC": factoring,
    "TAP": taper,
    "FSC": fixed_size,
}
