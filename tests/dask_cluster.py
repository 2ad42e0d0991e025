"""Dask clusters on this machine for tests: those that many tests use, made when the first one asks, and those that a test may break.

The former are no children of the process of tests, and their clients are closed after each test (``conftest``): other tests count the
processes, threads and open files of theirs.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_clients: dict[tuple[int, int], Any] = {}  #: by workers and threads: those that are open
_ends: list[int] = []  #: of pipes: clusters end when these are closed, with this process


def local_client(workers: int = 2, threads: int = 1) -> Any:
    """Give a client of a cluster with so many workers, which are processes, and as many threads in each."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'windrow[dask]'")
    found = _clients.get((workers, threads))
    if found is None:
        found = distributed.Client(_address(workers, threads), set_as_default=False)
        _clients[workers, threads] = _begin_threads(found)
    return found


def close_clients() -> None:
    while _clients:
        _clients.popitem()[1].close(timeout=10)


@functools.cache
def _address(workers: int, threads: int) -> str:
    told, tell = os.pipe()
    wait, end = os.pipe()
    _ends.append(end)
    command = [sys.executable, __file__, *map(str, (workers, threads, tell, wait))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    subprocess.run(["sh", "-c", '"$@" &', "sh", *command], pass_fds=(tell, wait), env=environment, check=True)
    os.close(tell)
    os.close(wait)
    with os.fdopen(told) as answer:
        address = answer.read()
    assert address, "the cluster could not be made"
    return address


@contextmanager
def own_client(workers: int = 3, **options: Any) -> Iterator[Any]:
    """Make a cluster that a test has for itself, and may break."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'windrow[dask]'")
    cluster = _make(workers, **options)
    client = distributed.Client(cluster, set_as_default=False)
    try:
        yield _begin_threads(client) if workers else client
    finally:
        client.close(timeout=10)
        cluster.close(timeout=10)
        del client, cluster
        gc.collect()  # connections are closed with those who had them


def _make(workers: int, **options: Any) -> Any:
    from distributed import LocalCluster

    asked = {"threads_per_worker": 1, "memory_limit": 0, "silence_logs": logging.CRITICAL, **options}
    return LocalCluster(
        n_workers=workers, host="127.0.0.1", dashboard_address=":0", worker_dashboard_address=None, **asked
    )


def _begin_threads(client: Any) -> Any:
    """Have a client begin the threads that it begins with its first task."""
    told = threading.Event()
    client.submit(int, 1, pure=False).add_done_callback(lambda _: told.set())
    assert told.wait(30)
    return client


class Executions:
    """What workers of Dask run, also those that come later and those that die."""

    def __init__(self, client: Any, place: Path) -> None:
        from distributed import WorkerPlugin

        class Notes(WorkerPlugin):  # type: ignore[misc] # Dask ships no types here
            name = "executions"

            def setup(self, worker: Any) -> None:
                self.worker = worker

            def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
                if (
                    finish == "executing" and start == "ready"
                ):  # else it goes on, after it was called off and wanted again
                    with place.open("a") as notes:
                        notes.write(f"{key} {self.worker.address}\n")

        place.touch()
        self._place = place
        client.register_plugin(Notes())

    def check(self) -> int:
        """Nothing of ours was run twice; gives how much was run at all."""
        keys = [key for key in self._place.read_text().split()[::2] if key.startswith("windrow-")]
        twice = {key for key, times in Counter(keys).items() if times > 1}
        assert not twice, [line for line in self._place.read_text().splitlines() if line.split()[0] in twice]
        return len(keys)


def main(workers: int, threads: int, tell: int, wait: int) -> None:
    """Have a cluster as long as the process lives that has the other end of ``wait``."""
    with _make(workers, threads_per_worker=threads) as cluster, os.fdopen(tell, "w") as answer:
        answer.write(cluster.scheduler_address)
        answer.close()
        os.read(wait, 1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
