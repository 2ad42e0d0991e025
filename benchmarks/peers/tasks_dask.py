"""Tasks for dask.distributed: two worker processes, or two threads of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from protocol import serve
from tasks_common import WORKERS, ask, timed, tiny


def client_of(system: str) -> Any:
    processes = system == "processes"
    cluster = LocalCluster(
        n_workers=WORKERS if processes else 1,
        threads_per_worker=1 if processes else WORKERS,
        processes=processes,
        dashboard_address=None,
        worker_dashboard_address=None,
    )
    return cluster, Client(cluster)


if __name__ == "__main__":
    clients: dict[str, Any] = {}

    def run(system: str, what: str, count: int) -> Any:
        if system not in clients:
            clients[system] = client_of(system)
        client = clients[system][1]

        def submit(function: Any, *arguments: Any) -> Any:
            if arguments and isinstance(arguments[0], np.ndarray):  # as its documentation says
                arguments = (client.scatter(arguments[0], hash=False),)
            return client.submit(function, *arguments, pure=False)

        if what == "no-op":  # its fastest way to many calls
            return timed(lambda: sum(client.gather(client.map(tiny, range(count), pure=False, batch_size=1000))))
        return ask(what, count, submit, client.gather)

    try:
        serve(run, "distributed", "numpy")
    finally:
        for cluster, client in clients.values():
            client.close()
            cluster.close()
