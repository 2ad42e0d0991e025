"""Tasks for ray on this machine, with two workers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

import numpy as np
import ray
from protocol import serve
from tasks_common import WORKERS, ask

if __name__ == "__main__":
    # Nothing else of it than what runs tasks.
    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=1_500_000_000,
    )
    remote: dict[Any, Any] = {}

    def submit(function: Any, *arguments: Any) -> Any:
        known = remote.get(function)
        if known is None:
            known = remote[function] = ray.remote(num_cpus=1)(function)
        if arguments and isinstance(arguments[0], np.ndarray):
            arguments = (ray.put(arguments[0]),)
        return known.remote(*arguments)

    def run(what: str, count: int) -> Any:
        return ask(what, count, submit, ray.get)

    try:
        serve(run, "ray", "numpy")
    finally:
        ray.shutdown()
        sys.stdout.flush()
