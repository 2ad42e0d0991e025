"""The beginning of worker processes: the workload they get, and the modules they most likely need."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

from windrow.engines.processes.messages import WORKLOAD
from windrow.engines.processes.serialize import culprit
from windrow.engines.processes.transport import Parcel, pack
from windrow.errors import EngineError

if TYPE_CHECKING:
    from windrow.engines.base import Workload

#: Libraries that take long to import and are safe to fork: imported once, before the workers are made, if we have them.
HEAVY: tuple[str, ...] = (
    "numpy", "awkward", "uproot", "pyarrow", "numba", "vector", "boost_histogram", "hist", "cramjam", "fsspec", "scipy",
)  # fmt: skip
#: What every worker needs, with what that imports; the driver does not.
WORKER = "windrow.engines.processes.worker"
#: What every call of a task needs.
FOR_TASKS = (WORKER, "windrow.tasks.worker")
#: Workers that import for themselves what calls turn out to need.
FEW = 8
#: glibc's malloc in a worker of rows: arrays of up to 32 MB come from the heap, which keeps up to 1 GB of what was freed and grows by 64 MB.
#: Else each array of a step has pages of its own, which the kernel clears and takes back: 228,000 page faults became 32,000 and 0.6 s
#: of system time 0.1 in a selection over 1.5 million rows, with the same peak of memory. Options and values of mallopt(3).
MALLOC = ((-3, 32 << 20), (-1, 1 << 30), (-2, 64 << 20))


def pack_workload(workload: Workload) -> Parcel:
    """Pack a workload; one that came packed from another machine is sent on as it is."""
    there = getattr(workload, "parcel", None)
    if isinstance(there, Parcel):
        return there
    try:
        return pack(workload, WORKLOAD, by_value=True, own=workload.is_own)
    except Exception as error:
        raise EngineError(
            f"the analysis cannot be sent to worker processes: {culprit(workload, 'workload')} cannot be pickled "
            f'({type(error).__name__}: {error}); make it inside the function that needs it, or use engine="threads"'
        ) from error


def preload() -> list[str]:
    """What workers will most likely need: what this process has loaded of Windrow and of the heavy libraries."""
    dask = "windrow.engines.dask."  # with what Dask registers for pickling
    ours = [name for name in sys.modules if name.startswith("windrow.") and not name.startswith(dask)]
    return [*(name for name in HEAVY if name in sys.modules), *ours, WORKER]


def preload_for_tasks(workers: int) -> list[str]:
    """The same for workers that may or may not need what this process has loaded, as what tasks will do is not known.

    A few workers import what they need at the same time, and only that: all of it took 1.5 s before the first task. Many
    would read the same files at once, and each would have a copy in memory.
    """
    if workers > FEW:
        return preload()
    return [*FOR_TASKS, *(name for name in ("numpy",) if name in sys.modules)]


def tune_malloc() -> bool:
    """Let this process keep the memory that it has freed; False where malloc has no such options."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    return tune is not None and all(tune(option, value) for option, value in MALLOC)
