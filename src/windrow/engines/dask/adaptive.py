"""Clusters of Dask that grow with the work that is left."""

from __future__ import annotations

import math

from distributed import Adaptive as DaskAdaptive

from windrow.engines.dask.cluster import left_s


class Adaptive(DaskAdaptive):  # type: ignore[misc] # Dask ships no types here
    """Ask for as many workers as what is left needs to be done in ``target_duration``: ``cluster.adapt(Adaptive=Adaptive, ...)``.

    Dask by itself sees a few short tasks, however much there is to do, and asks for one worker, or for none.
    """

    async def target(self) -> int:
        asked: int = await super().target()
        info = self.cluster.scheduler_info
        left = left_s.get(info["id"])
        if not left:
            return asked
        threads = [one["nthreads"] for one in info["workers"].values()]
        cores = sum(left.values()) / float(self.target_duration)
        workers: float = cores * max(len(threads), 1) / max(sum(threads), 1)
        return max(asked, math.ceil(workers))
