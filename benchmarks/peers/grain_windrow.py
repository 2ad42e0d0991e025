"""Rows that take long: an analysis of one file with Windrow, and the plain program in two processes, each half of the rows."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numba
import numpy as np
import pyarrow.parquet as pq
from hist import Hist
from protocol import serve

import windrow as wr

SORTED = np.random.default_rng(1).random(2_000)


def burn_python(x: float, count: int) -> float:
    total = 0.0
    for number in range(count):
        total += x * number % 7.0
    return total


@numba.njit(nogil=True)
def burn_compiled(x: float, count: int) -> float:
    total = 0.0
    for number in range(count):
        total += np.sin(x * number)
    return total


def burn_numpy(x: float, count: int) -> float:
    for _ in range(count):
        np.sort(SORTED)
    return x


BURN = {"Python": burn_python, "compiled": burn_compiled, "NumPy": burn_numpy}


def calibrate(kind: str, seconds: float) -> int:
    """Find the count with which a row takes so long."""
    burn = BURN[kind]
    burn(0.5, 10)
    count = 10
    while True:
        begin = time.perf_counter()
        burn(0.5, count)
        spent = time.perf_counter() - begin
        if spent > 0.05:
            return max(int(count * seconds / spent), 1)
        count *= 2


def analysis(kind: str, count: int) -> wr.Pipeline:
    made = wr.Pipeline("grain")
    burn = BURN[kind]
    if kind == "compiled":

        @made.column(each=True)
        def slow(x, *, count=count):
            return burn_compiled(x, count)
    else:

        @made.column
        def slow(x):
            return np.array([burn(value, count) for value in x.tolist()])

    @made.cut
    def some(slow, x):
        return (x > 0.2) & np.isfinite(slow)

    made.region("some", "some")

    @made.output
    def spectrum(x):
        return Hist.new.Reg(20, 0, 1).Double().fill(x)

    return made


def half(path: str, kind: str, count: int, part: int) -> list[float]:
    x = pq.read_table(path)["x"].to_numpy()
    mine = x[: len(x) // 2] if part == 0 else x[len(x) // 2 :]
    burn = BURN[kind]
    slow = np.array([burn(value, count) for value in mine.tolist()])
    passed = mine[(mine > 0.2) & np.isfinite(slow)]
    return Hist.new.Reg(20, 0, 1).Double().fill(passed).values().tolist()


def do(what: str, kind: str, path: str = "", count: int = 0, seconds: float = 0.0) -> Any:
    if what == "calibrate":
        return calibrate(kind, seconds)
    if what == "plain":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            first, second = pool.starmap(half, [(path, kind, count, part) for part in range(2)])
        return np.add(first, second).tolist()
    return analysis(kind, count).run(path, workers=2, progress=False)["spectrum", "some"].values().tolist()


if __name__ == "__main__":
    serve(do, "numpy", "numba", "pyarrow", "hist")
