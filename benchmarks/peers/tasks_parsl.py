"""Tasks for parsl: its high-throughput executor with two workers, and its threads."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
# It starts programs of its own by name.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor, ThreadPoolExecutor
from parsl.providers import LocalProvider
from protocol import serve
from tasks_common import WORKERS, ask, values_of


def configuration(directory: str) -> Config:
    return Config(
        executors=[
            HighThroughputExecutor(
                label="htex",
                address=socket.gethostbyname("localhost"),
                max_workers_per_node=WORKERS,
                cores_per_worker=1,
                prefetch_capacity=64,
                encrypted=False,
                worker_debug=False,
                provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
            ),
            ThreadPoolExecutor(label="threads", max_threads=WORKERS),
        ],
        run_dir=directory,
        strategy="none",
        usage_tracking=0,
        initialize_logging=False,
    )


if __name__ == "__main__":
    apps: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory() as directory, parsl.load(configuration(directory)):

        def run(system: str, what: str, count: int) -> Any:
            def submit(function: Any, *arguments: Any) -> Any:
                app = apps.get((system, function))
                if app is None:
                    app = apps[system, function] = parsl.python_app(function, executors=[system], cache=False)
                return app(*arguments)

            return ask(what, count, submit, values_of)

        serve(run, "parsl", "numpy")
