"""Large arguments for joblib on loky."""

from __future__ import annotations

from itertools import count
from typing import Any

import joblib
from large_common import WORKERS, make, part, timed
from protocol import serve

if __name__ == "__main__":
    seeds = count()
    with joblib.Parallel(n_jobs=WORKERS) as parallel:

        def run(what: str, megabytes: int, calls: int) -> Any:
            seed = next(seeds)
            values = make(seed, megabytes)

            def captured(number: int) -> float:
                return part(values, number, calls)

            def ask() -> list[float]:
                if what == "captured":
                    return list(parallel(joblib.delayed(captured)(number) for number in range(calls)))
                return list(parallel(joblib.delayed(part)(values, number, calls) for number in range(calls)))

            if what == "again":
                ask()
            return timed(seed, megabytes, ask)

        serve(run, "joblib", "numpy")
