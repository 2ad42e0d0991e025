"""Loops of ``partition.py``: the plain one, Windrow's, and those of joblib, Numba and the standard library, in one process."""

from __future__ import annotations

import operator
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import joblib
import numba
import numpy as np
from protocol import serve

import windrow as wr

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "daphne"))
import connected_components as components
import nbody

WORKERS = 2
#: Chunks that peers which have to be told are given: one for each worker, or many.
FEW, MANY = WORKERS, 16 * WORKERS


@numba.njit
def triangular(start, stop, out):
    for row in range(start, stop):
        total = 0.0
        for other in range(row):
            total += 1.0 / (1.0 + other)
        out[row] = total


@numba.njit
def nothing(start, stop, out):
    pass


class Case:
    """A loop: its kernel, the arguments, the rows, and what each row does, counted."""

    def __init__(self, kernel: Any, arguments: tuple[Any, ...], counts: np.ndarray, out: np.ndarray) -> None:
        self.kernel, self.arguments, self.counts, self.out = kernel, arguments, counts, out
        self.rows = len(counts)
        self.plain = numba.njit(nogil=True, fastmath=False)(kernel.py_func)
        self.parallel = _prange(kernel)
        for one in (self.plain, self.parallel):
            one(0, 1, *arguments) if one is self.plain else one(2, *arguments)


def _prange(kernel: Any) -> Any:
    """The same kernel, called for single rows by Numba's own threads: it inlines them."""

    @numba.njit(parallel=True)
    def loop(rows, *arguments):
        for row in numba.prange(rows):
            kernel(row, row + 1, *arguments)

    return loop


@cache
def make(name: str, size: int) -> Case:
    if name.startswith("components"):
        graph = (components.power_law if "power law" in name else components.drifting)(size, 10 * size)
        labels, new = np.arange(size), np.empty(size, dtype=np.int64)
        arguments = (graph.indptr, graph.indices, labels, new)
        return Case(components.largest, arguments, np.diff(graph.indptr) + 2.0, new)
    out = np.zeros(size)
    if name == "triangular":
        return Case(triangular, (out,), np.arange(size) + 1.0, out)
    if name == "nothing":
        return Case(nothing, (out,), np.ones(size), out)
    places, masses, _ = nbody.particles(size)
    forces = np.zeros_like(places)
    return Case(nbody.attract, (places, masses, forces), np.full(size, float(size)), forces)


POOL = ThreadPoolExecutor(WORKERS)


def run(what: str, name: str, size: int, rows: int = 0, **options: Any) -> Any:
    case = make(name, size)
    case.rows = rows or case.rows
    if what == "counts":
        return {"result": case.counts[: case.rows].tolist()}
    report = wr.LoopReport()
    call = {
        "plain": lambda: case.plain(0, case.rows, *case.arguments),
        "windrow": lambda: wr.parallel_for(
            case.kernel, case.rows, args=case.arguments, workers=WORKERS, report=report, **options
        ),
        "numba.prange": lambda: case.parallel(case.rows, *case.arguments),
        "joblib": lambda: joblib.Parallel(n_jobs=WORKERS, prefer="threads")(
            joblib.delayed(case.plain)(start, stop, *case.arguments)
            for start, stop in _chunks(case.rows, options["chunks"])
        ),
        "ThreadPoolExecutor": lambda: [
            future.result()
            for future in [
                POOL.submit(case.plain, start, stop, *case.arguments)
                for start, stop in _chunks(case.rows, options["chunks"])
            ]
        ],
    }[what]
    case.out[:] = 0
    if what == "windrow":
        wr.parallel_for(case.kernel, min(case.rows, 2), args=case.arguments, workers=1)  # compiled before it is timed
    case.out[:] = 0
    begin = perf_counter()
    call()
    seconds = perf_counter() - begin
    chunks = len(report.trace.chunks)
    work = np.zeros(WORKERS)
    for one in report.trace.chunks:
        work[one.worker] += case.counts[one.start : one.stop].sum()
    answer = float(case.out[: case.rows].sum())
    return {
        "seconds": seconds,
        "result": [answer, chunks, operator.truediv(work.max(), work.sum()) if chunks else 0.0, report.engine],
    }


def _chunks(rows: int, count: int) -> list[tuple[int, int]]:
    borders = [rows * number // count for number in range(count + 1)]
    return list(pairwise(borders))


if __name__ == "__main__":
    serve(run, "joblib", "numba", "numpy", "scipy")
