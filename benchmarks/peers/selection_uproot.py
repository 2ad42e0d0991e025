"""The selection in plain uproot and awkward: one process, the needed branches of the whole file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import awkward as ak
import numpy as np
import uproot
from hist import Hist
from protocol import serve
from selection_common import BINS, MUON, WINDOWS

BRANCHES = ["HLT_IsoMu24", *(f"Muon_{field}" for field in MUON)]

_pool = ThreadPoolExecutor(2)


def run(path: str, threads: int = 1) -> dict[str, Any]:
    # With threads, uproot decompresses and interprets baskets in parallel: its own option for that.
    executors = {} if threads == 1 else {"decompression_executor": _pool, "interpretation_executor": _pool}
    with uproot.open(path) as file:
        columns = file["Events"].arrays(BRANCHES, how=dict, **executors)
    fired = ak.to_numpy(columns.pop("HLT_IsoMu24"))
    muons = ak.zip({field: columns[f"Muon_{field}"] for field in MUON})[fired]
    muons = muons[(muons.pt > 5) & (abs(muons.eta) < 2.4) & (muons.pfRelIso04_all < 0.25)]
    muons = muons[ak.num(muons) >= 2]
    muons = muons[muons.charge[:, 0] != muons.charge[:, 1]]
    pt, eta, phi = (
        [ak.to_numpy(values[:, i]).astype(np.float64) for i in (0, 1)] for values in (muons.pt, muons.eta, muons.phi)
    )
    mass = np.sqrt(2 * pt[0] * pt[1] * (np.cosh(eta[0] - eta[1]) - np.cos(phi[0] - phi[1])))
    result = {}
    for region, (low, high) in WINDOWS.items():
        inside = mass[(mass > low) & (mass < high)]
        histogram = Hist.new.Reg(BINS, low, high).Int64().fill(inside)
        result[region] = {"rows": len(inside), "bins": histogram.values().tolist()}
    return {"regions": result}


if __name__ == "__main__":
    serve(run, "uproot", "awkward", "hist", "numpy")
