"""Tiny tasks for loky."""

from __future__ import annotations

from typing import Any

import loky
from processes_common import WORKERS, ask
from protocol import serve

if __name__ == "__main__":
    pool = loky.ProcessPoolExecutor(WORKERS)

    def run(what: str, count: int) -> Any:
        return ask(pool, what, count)

    serve(run, "loky", "numpy")
    pool.shutdown()
