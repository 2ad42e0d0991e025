"""What all pools of processes are asked to do; needs the standard library and NumPy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2
#: How many tasks are out at a time where a pool is kept busy.
WINDOW = 16
MEGABYTE = 1_000_000 // 8


def tiny(number: int) -> int:
    return number + 1


def make(number: int) -> Any:
    return np.full(MEGABYTE, float(number))


def double(values: Any) -> Any:
    return values * 2.0


def timed(work: Callable[[], Any]) -> dict[str, float]:
    begin = time.perf_counter()
    work()
    return {"seconds": time.perf_counter() - begin}


def ask(pool: Any, what: str, count: int) -> dict[str, float]:
    """Ask an executor of ``concurrent.futures`` or its like."""

    def round_trips() -> None:
        for number in range(count):
            assert pool.submit(tiny, number).result() == number + 1

    def throughput() -> None:
        futures = [pool.submit(tiny, number) for number in range(count)]
        assert sum(future.result() for future in futures) == count * (count + 1) // 2

    def chunked() -> None:
        found = pool.map(tiny, range(count), chunksize=max(1, count // (4 * WORKERS)))
        assert sum(found) == count * (count + 1) // 2

    def out() -> None:
        for number in range(count):
            assert pool.submit(make, number).result().sum() == number * MEGABYTE

    def both() -> None:
        values = np.ones(MEGABYTE)
        for _ in range(count):
            assert pool.submit(double, values).result().sum() == 2 * MEGABYTE

    jobs = {
        "round trips": round_trips,
        "throughput": throughput,
        "chunked": chunked,
        "1 MB out": out,
        "1 MB in and out": both,
    }
    return timed(jobs[what])
