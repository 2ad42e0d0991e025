"""The realistic selection as a coffea processor, with its futures executor and a pool that is kept."""

from __future__ import annotations

import warnings
from typing import Any

import awkward as ak
import loky
import numpy as np
import realistic_common as c
from coffea import processor
from coffea.nanoevents import NanoAODSchema
from protocol import serve

warnings.filterwarnings("ignore")

_pools: dict[int, Any] = {}


class Selection(processor.ProcessorABC):
    def process(self, events: Any) -> Any:
        # NanoAODSchema reads a branch when it is touched, for all rows of the chunk.
        fired = events.HLT.IsoMu24 | events.HLT.Ele32_WPTight_Gsf
        events = events[fired & events.Flag.METFilters & (events.PV.npvsGood >= 4)]
        muons, electrons = c.loose_muons(events.Muon), c.loose_electrons(events.Electron)
        leptons = c.tight_leptons(muons, electrons)
        one = (ak.num(leptons) == 1) & (ak.num(muons) + ak.num(electrons) == 1)
        events, leptons = events[one], leptons[one]
        jets = c.clean_jets(events.Jet, leptons)
        three = ak.num(jets) >= 3
        events, leptons, jets = events[three], leptons[three], jets[three]
        mass = c.trijet_mass(jets)
        tagged = np.asarray(ak.any(jets.btagDeepB > 0.4184, axis=1))
        weight = c.generator_weight(events.genWeight)
        weights = {name: weight * c.pileup_weight(events.Pileup.nTrueInt, s) for name, s in c.VARIATIONS.items()}
        every = np.ones(len(tagged), dtype=bool)
        masks = {"jets": every, "tagged": tagged, "signal": tagged & np.asarray(events.MET.pt > 30)}
        return {
            f"{name}/{region}/{variation}": histogram
            for region, mask in masks.items()
            for variation, values in weights.items()
            for name, histogram in c.fill_all(leptons[mask], jets[mask], mass[mask], values[mask]).items()
        }

    def postprocess(self, accumulator: Any) -> Any:
        return accumulator


def run(path: str, workers: int, chunksize: int) -> dict[str, Any]:
    if workers not in _pools:
        _pools[workers] = loky.ProcessPoolExecutor(workers)
    executor = processor.FuturesExecutor(workers=workers, status=False, pool=_pools[workers])
    runner = processor.Runner(executor=executor, schema=NanoAODSchema, chunksize=chunksize)
    out = runner({"data": {"files": {path: "Events"}}}, Selection())
    return c.told({tuple(key.split("/")): histogram for key, histogram in out.items()})


if __name__ == "__main__":
    serve(run, "coffea", "awkward", "uproot", "hist", "numpy")
    for pool in _pools.values():
        pool.shutdown()
