"""Tiny tasks for ``concurrent.futures.ProcessPoolExecutor``."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import Any

from processes_common import WORKERS, ask
from protocol import serve

if __name__ == "__main__":
    with ProcessPoolExecutor(WORKERS) as pool:

        def run(what: str, count: int) -> Any:
            return ask(pool, what, count)

        serve(run, "numpy")
