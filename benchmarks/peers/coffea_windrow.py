"""A coffea processor in three ways: coffea's futures executor with a kept pool, Windrow's executor, and ``run_processor``.

The hungry processor holds 20 KB for each row and lets its process have 300 MB more than it had before its first row.
"""

from __future__ import annotations

import resource
from typing import Any

import loky
import numpy as np
import psutil
import realistic_coffea
import realistic_common as c
from coffea import processor
from coffea.nanoevents import NanoAODSchema
from protocol import serve

import windrow as wr
from windrow.compat.coffea import Executor

NanoAODSchema.warn_missing_crossrefs = False

ROW_BYTES, MORE_BYTES = 20_000, 300_000_000


class Hungry(processor.ProcessorABC):
    def process(self, events: Any) -> Any:
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            most = psutil.Process().memory_info().vms + MORE_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        return {"rows": len(events), "ones": int(np.ones((len(events), ROW_BYTES // 8)).sum())}

    def postprocess(self, accumulator: Any) -> Any:
        return accumulator


def run(path: str, workers: int, how: str, what: str = "selection", chunksize: int = 100_000) -> Any:
    work = Hungry() if what == "hungry" else realistic_coffea.Selection()
    fileset = {"data": {"files": {path: "Events"}}}
    if how == "run_processor":
        out = wr.run_processor(work, fileset, workers=workers, engine="processes", progress=False)
    else:
        if how == "executor":
            executor: Any = Executor(workers=workers, engine="processes", status=False)
        else:
            pool = loky.get_reusable_executor(workers, timeout=600)
            executor = processor.FuturesExecutor(workers=workers, status=False, pool=pool)
        runner = processor.Runner(executor=executor, schema=NanoAODSchema, chunksize=chunksize)
        try:
            out = runner(fileset, work)
        except Exception as error:
            if what == "hungry":
                return f"{type(error).__name__}: {str(error)[-200:]}"
            raise
    return out if what == "hungry" else c.told({tuple(key.split("/")): one for key, one in out.items()})


if __name__ == "__main__":
    serve(run, "coffea", "awkward", "uproot", "hist", "numpy")
    loky.get_reusable_executor().shutdown(kill_workers=True)
