"""Tasks for ``concurrent.futures``: threads, processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from protocol import serve
from tasks_common import WORKERS, ask, values_of

if __name__ == "__main__":
    with ThreadPoolExecutor(WORKERS) as threads, ProcessPoolExecutor(WORKERS) as processes:
        pools: dict[str, Any] = {"threads": threads, "processes": processes}
        processes.submit(int).result()  # forks before there are threads that matter

        def run(system: str, what: str, count: int) -> Any:
            pool = pools[system]
            return ask(what, count, pool.submit, values_of, waits=True)

        serve(run, "numpy")
