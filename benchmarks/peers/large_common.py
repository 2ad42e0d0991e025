"""What is asked of a large array; needs the standard library and NumPy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2


def make(seed: int, megabytes: int) -> np.ndarray:
    return np.arange(megabytes * 125_000, dtype=np.float64) + seed


def part(values: np.ndarray, number: int, calls: int) -> float:
    """Add up one part of several."""
    size = len(values) // calls
    return float(values[number * size : (number + 1) * size].sum())


def whole(values: np.ndarray) -> float:
    return float(values.sum())


def expected(what: str, seed: int, megabytes: int, calls: int) -> list[float]:
    values = make(seed, megabytes)
    if what == "changed":
        values[0] -= 1
    return [part(values, number, calls) for number in range(calls)]


def timed(seed: int, megabytes: int, work: Callable[[], Any]) -> dict[str, Any]:
    """Time the work. Memory that a virtual machine has not used for a while costs its host a microsecond a kilobyte: it is used first."""
    np.ones(megabytes * 375_000)
    begin = time.perf_counter()
    found = work()
    return {"seconds": time.perf_counter() - begin, "found": found, "seed": seed}
