"""A Dask cluster on this machine for tests: made once for each process of tests, when the first one asks."""

from __future__ import annotations

import atexit
import functools
import threading
from typing import Any

import pytest


@functools.cache
def local_client(workers: int = 2, threads: int = 1) -> Any:
    """Give a client of a cluster with so many workers, which are processes, and as many threads in each."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'windrow[dask]'")
    cluster = distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        dashboard_address=":0",
        host="127.0.0.1",
        worker_dashboard_address=None,
        memory_limit=0,
    )
    client = distributed.Client(cluster)
    atexit.register(cluster.close, timeout=10)
    atexit.register(client.close, timeout=10)
    told = threading.Event()
    client.submit(int, 1, pure=False).add_done_callback(lambda _: told.set())  # a thread begins with the first of these
    assert told.wait(30)
    return client
