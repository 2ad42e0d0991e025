"""The selection as a coffea processor, with its iterative and its futures executor."""

from __future__ import annotations

import warnings
from typing import Any

import awkward as ak
import loky
import numpy as np
from coffea import processor
from coffea.nanoevents import NanoAODSchema
from hist import Hist
from protocol import serve
from selection_common import BINS, WINDOWS

warnings.filterwarnings("ignore")

_pools: dict[int, Any] = {}


class Dimuon(processor.ProcessorABC):
    def process(self, events: Any) -> Any:
        # NanoAODSchema reads a branch when it is touched; it was as fast as BaseSchema or faster.
        muons = events.Muon[events.HLT.IsoMu24]
        muons = muons[(muons.pt > 5) & (abs(muons.eta) < 2.4) & (muons.pfRelIso04_all < 0.25)]
        muons = muons[ak.num(muons) >= 2]
        muons = muons[muons.charge[:, 0] != muons.charge[:, 1]]
        pt, eta, phi = (
            [ak.to_numpy(values[:, i]).astype(np.float64) for i in (0, 1)]
            for values in (muons.pt, muons.eta, muons.phi)
        )
        mass = np.sqrt(2 * pt[0] * pt[1] * (np.cosh(eta[0] - eta[1]) - np.cos(phi[0] - phi[1])))
        result = {}
        for region, (low, high) in WINDOWS.items():
            inside = mass[(mass > low) & (mass < high)]
            histogram = Hist.new.Reg(BINS, low, high).Int64().fill(inside)
            result[region] = {"rows": len(inside), "histogram": histogram}
        return result

    def postprocess(self, accumulator: Any) -> Any:
        return accumulator


def run(path: str, workers: int, chunksize: int, keep_pool: bool = False) -> dict[str, Any]:
    """``keep_pool`` reuses worker processes from run to run instead of coffea's pool per run."""
    if workers == 1:
        executor: Any = processor.IterativeExecutor(status=False)
    elif keep_pool:
        if workers not in _pools:
            _pools[workers] = loky.ProcessPoolExecutor(workers)
        executor = processor.FuturesExecutor(workers=workers, status=False, pool=_pools[workers])
    else:
        executor = processor.FuturesExecutor(workers=workers, status=False)
    runner = processor.Runner(executor=executor, schema=NanoAODSchema, chunksize=chunksize)
    out = runner({"data": {"files": {path: "Events"}}}, Dimuon())
    return {
        "regions": {
            region: {"rows": found["rows"], "bins": found["histogram"].values().tolist()}
            for region, found in out.items()
        }
    }


if __name__ == "__main__":
    serve(run, "coffea", "awkward", "uproot", "hist", "numpy")
    for pool in _pools.values():
        pool.shutdown()
