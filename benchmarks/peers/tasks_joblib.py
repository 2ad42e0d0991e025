"""Tasks for loky, and for joblib on loky, which batches them."""

from __future__ import annotations

from typing import Any

import joblib
import loky
from protocol import serve
from tasks_common import WORKERS, ask, values_of

if __name__ == "__main__":
    pool = loky.ProcessPoolExecutor(WORKERS)
    with joblib.Parallel(n_jobs=WORKERS) as parallel:

        def run(system: str, what: str, count: int) -> Any:
            if system == "loky":
                return ask(what, count, pool.submit, values_of, waits=True)
            # Calls are collected and run when values are wanted: joblib has no futures.
            return ask(what, count, lambda f, *a: joblib.delayed(f)(*a), lambda them: list(parallel(them)), waits=True)

        serve(run, "joblib", "loky", "numpy")
    pool.shutdown()
