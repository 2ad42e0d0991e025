"""The Dask cluster that a user names: a client of it, or the address of its scheduler."""

from __future__ import annotations

import atexit
import logging
import sys
from typing import Any, NamedTuple

from windrow.errors import EngineError, UsageError

#: Beginnings of addresses of schedulers.
ADDRESSES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")
#: Name of the processes that mpiexec has started: one is the scheduler, one goes on with the program, each further one is a worker.
MPI = "dask-mpi"
#: Seconds that a scheduler has to answer.
ANSWER_S = 10.0
#: Seconds after which one that does not answer is taken not to run any more.
HUNG_S = 60.0

#: The message for a user who passes workers= together with a cluster.
ITS_OWN_WORKERS = "workers= is about this machine; a cluster has the workers that it was given: leave workers= out"

#: by scheduler and run: seconds of work of one core that are left, as far as that is known; what is here wants workers
left_s: dict[str, dict[str, float]] = {}

_clients: dict[str, Any] = {}  #: by address: those that we have opened, which Dask closes when the program ends


class Nodes(NamedTuple):
    """What the workers of a cluster have, as far as there are any by now."""

    cores: int
    sizes: tuple[tuple[int, int], ...]  #: of each: bytes of memory, 0 where Dask knows no limit, and threads


class Member(NamedTuple):
    """A worker of Dask."""

    cores: int
    memory: int  #: bytes; 0: Dask knows no limit
    leaving: bool = False  #: it is being retired: Dask moves what it has away, and gives it nothing new


def is_cluster(engine: Any) -> bool:
    """Say whether something names a Dask cluster."""
    if isinstance(engine, str):
        return engine == MPI or engine.startswith(ADDRESSES)
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(engine, (distributed.Client, distributed.deploy.Cluster))


def connect(engine: Any) -> Any:
    """Give a client of the cluster that a user names."""
    if isinstance(engine, str):
        return _mpi_client() if engine == MPI else _client_at(engine)
    from distributed import Client
    from distributed.deploy import Cluster

    client = engine.get_client() if isinstance(engine, Cluster) else engine
    if not isinstance(client, Client):
        raise UsageError(
            f"client= is a Dask client, a cluster of Dask or its address (tcp://...), got {type(engine).__name__}"
        )
    if client.asynchronous:
        raise UsageError("the Dask client is an asynchronous one: make one with Client(...) outside of coroutines")
    if client.status not in ("running", "connecting"):
        raise EngineError(f"the Dask client is {client.status}: make a new one with Client(...)")
    return client


def _client_at(address: str) -> Any:
    try:
        from distributed import Client, Security
    except ImportError as error:
        raise EngineError("Dask is not installed: pip install 'windrow[dask]'") from error
    known = _clients.get(address)
    if known is not None and known.status == "running":
        return known
    if address.startswith("tls://") and Security().get_connection_args("client")["ssl_context"] is None:
        raise UsageError(
            f"{address} wants certificates, and Dask's configuration names none: pass Client(address, security=...)"
        )
    try:
        _clients[address] = Client(address, timeout=ANSWER_S, set_as_default=False)
    except (OSError, ValueError) as error:  # a time-out is an OSError too
        raise EngineError(
            f"no Dask scheduler answers at {address} within {ANSWER_S:.0f} s: is the address right, and may this machine reach it?"
        ) from error
    return _clients[address]


def _mpi_client() -> Any:
    """Make a cluster of the processes that mpiexec has started; only the one that the program goes on in comes back."""
    known = _clients.get(MPI)
    if known is not None and known.status == "running":
        return known
    try:
        import dask_mpi
        from distributed import Client
        from mpi4py import MPI as mpi  # noqa: N811 - it begins MPI
    except (ImportError, RuntimeError) as error:  # the latter where there is no library of MPI
        raise EngineError(
            f"dask-mpi cannot be used ({error}): pip install 'windrow[mpi]', and an MPI itself"
        ) from error
    found = mpi.COMM_WORLD.Get_size()
    if found < 3:
        raise EngineError(
            f"dask-mpi needs 3 processes or more, for the scheduler, the program and a worker each, and there is {found}: "
            "begin it with mpiexec -n 4 windrow run --engine dask-mpi ..."
        )
    logging.getLogger("distributed").setLevel(logging.WARNING)
    dask_mpi.initialize(dashboard=False)
    client = _clients[MPI] = Client(set_as_default=False)
    atexit.register(client.close)  # before dask-mpi ends the processes of scheduler and workers
    client.wait_for_workers(found - 2, timeout=HUNG_S)
    return client


def present(client: Any) -> dict[str, Member]:
    """Ask which workers there are, by address."""
    try:
        # Not ``scheduler_info``: it gives what was heard last, of no workers at all, where the scheduler does not answer.
        found = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=HUNG_S)["workers"]
    except Exception as error:
        raise EngineError(
            f"the Dask scheduler does not answer ({type(error).__name__}: {error}): is it still running? "
            "What was done is kept where rundir= was given, and resume=True goes on with it"
        ) from error
    return {
        address: Member(one["nthreads"], one["memory_limit"] or 0, one["status"] == "closing_gracefully")
        for address, one in found.items()
    }


def nodes_of(client: Any) -> Nodes:
    found = present(client).values()
    return Nodes(sum(one.cores for one in found), tuple((one.memory, one.cores) for one in found))
