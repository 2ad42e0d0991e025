"""What a checkout's own ``simulator.py`` and ``overhead.py`` measure, one number for each request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from protocol import serve

_kept: dict[str, Any] = {}


def measured(what: str, size: int) -> float:
    import overhead
    import simulator

    if what == "simulator":
        return float(simulator.seconds_of(simulator.many_tasks(size, None), size))
    if what == "simulator with a disk":
        return float(simulator.seconds_of(simulator.many_tasks(size, "disk"), size))
    if what == "scheduler alone":
        return float(overhead.pure_us_per_task(size))
    if what == "first row":
        return float(overhead.seconds_to_first_row())
    if what == "empty tasks":
        return float(overhead.driver_us_per_task(overhead.Sorting(0), size, logged=True))
    work = _kept.setdefault("chunks", None) or overhead.calibrated()
    _kept["chunks"] = work
    return float(overhead.driver_us_per_task(work, size, logged=True))


def do(checkout: str, what: str, size: int) -> float:
    place = str(Path(checkout) / "benchmarks")
    if place not in sys.path:
        sys.path.insert(0, place)
    return measured(what, size)


if __name__ == "__main__":
    serve(do, "numpy")
