"""Large arguments for Windrow, in processes."""

from __future__ import annotations

from itertools import count
from typing import Any

from large_common import WORKERS, make, part, timed, whole
from protocol import serve

import windrow as wr

if __name__ == "__main__":
    seeds = count()
    session = wr.Session(engine="processes", workers=WORKERS)
    executor = wr.Executor(WORKERS)

    def run(what: str, megabytes: int, calls: int) -> Any:
        seed = next(seeds)
        values: Any = make(seed, megabytes)
        numbers = range(calls)

        def captured(number: int) -> float:
            return part(values, number, calls)

        def ask() -> list[float]:
            found: list[float]
            if what == "captured":
                found = session.gather([session.submit(captured, number) for number in numbers])
            elif what == "shared":
                shared, size = session.share(values), len(values) // calls
                parts = [shared[number * size : (number + 1) * size] for number in numbers]
                found = session.gather([session.submit(whole, one) for one in parts])
            elif what == "executor.map":
                found = list(executor.map(captured, numbers))
            else:
                found = session.gather([session.submit(part, values, number, calls) for number in numbers])
            return found

        if what in ("again", "changed"):
            ask()
        if what == "changed":
            values[0] -= 1
        if what == "future":
            values = session.submit(make, seed, megabytes)
            session.gather(session.submit(part, values, 0, calls))
        return timed(seed, megabytes, ask)

    try:
        serve(run, "numpy")
    finally:
        session.close()
        executor.shutdown()
