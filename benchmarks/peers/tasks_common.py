"""What all task systems are asked to do; needs the standard library and NumPy.

A system is two functions: ``submit(function, *arguments)`` gives a future, whose like may be an argument of another
``submit``; ``gather(futures)`` gives their values. Systems whose futures cannot be arguments wait for them, as their users
have to.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 2
#: Numbers in ten megabytes.
TEN_MEGABYTES = 10_000_000 // 8
MILLISECOND = 1e-3


def tiny(number: Any) -> int:
    return int(number) + 1


def busy(number: Any) -> int:
    """Compute for a millisecond of processor time."""
    until = time.thread_time() + MILLISECOND
    while time.thread_time() < until:
        pass
    return int(number) + 1


def blocked(number: Any) -> int:
    """Wait a millisecond, as for a disk or a server: the interpreter lock is free."""
    time.sleep(MILLISECOND)
    return int(number) + 1


def add(first: Any, second: Any) -> int:
    return int(first) + int(second)


def total(values: Any) -> float:
    return float(values.sum())


def values_of(futures: Any) -> list[Any]:
    """Wait for futures in the form of ``concurrent.futures``."""
    return [one.result() for one in futures]


def timed(work: Callable[[], Any]) -> dict[str, Any]:
    """The time of the work, and what came of it."""
    begin = time.perf_counter()
    found = work()
    return {"seconds": time.perf_counter() - begin, "found": found}


def ask(what: str, count: int, submit: Any, gather: Any, *, waits: bool = False) -> dict[str, Any]:
    """Do a job with a system; ``waits``: its futures cannot be arguments."""

    def each(function: Any) -> int:
        return int(sum(gather([submit(function, number) for number in range(count)])))

    def chain() -> int:
        last: Any = 0
        for _ in range(count):
            last = submit(tiny, last)
            if waits:
                (last,) = gather([last])
        return int(last if waits else gather([last])[0])

    def tree() -> int:
        """Fan out, then add in pairs."""
        level = [submit(tiny, number) for number in range(count)]
        while len(level) > 1:
            if waits:
                level = gather(level)
            pairs = zip(level[::2], level[1::2], strict=False)
            rest = [(level[-1], 0)] if len(level) % 2 else []
            level = [submit(add, *pair) for pair in (*pairs, *rest)]
        return int(gather(level)[0])

    def large() -> float:
        values = np.ones(TEN_MEGABYTES)
        return float(sum(gather([submit(total, values + number) for number in range(count)])))

    jobs: dict[str, Callable[[], Any]] = {
        "no-op": lambda: each(tiny),
        "1 ms busy": lambda: each(busy),
        "1 ms blocked": lambda: each(blocked),
        "chain": chain,
        "tree": tree,
        "10 MB": large,
    }
    return timed(jobs[what])


def expected(what: str, count: int) -> float:
    """What the job must give."""
    if what == "chain":
        return count
    if what == "10 MB":
        return TEN_MEGABYTES * count * (count + 1) / 2
    return count * (count + 1) // 2
