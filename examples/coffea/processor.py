"""A coffea processor of NanoAOD, as its user wrote it: muon pairs, jets and a cutflow, in histograms whose axes grow.

    python examples/coffea/processor.py nano_dy.root nano_dimuon.root

runs it twice, with coffea's own executor and with Windrow, and says whether the answers are the same.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import awkward as ak
import hist
import numpy as np
from coffea import processor
from coffea.analysis_tools import PackedSelection
from coffea.nanoevents import NanoAODSchema

import windrow as wr


class Dimuon(processor.ProcessorABC):
    """Pairs of muons of opposite charge, and the jets beside them."""

    def __init__(self, pt_min: float = 10.0) -> None:
        self.pt_min = pt_min

    def histograms(self) -> dict[str, hist.Hist]:
        dataset = hist.axis.StrCategory([], growth=True, name="dataset")
        region = hist.axis.StrCategory([], growth=True, name="region")
        mass = hist.axis.Regular(60, 60, 120, name="mass", label="m [GeV]")
        pt = hist.axis.Variable([0, 10, 20, 30, 45, 60, 100, 200], name="pt")
        eta = hist.axis.Regular(24, -2.4, 2.4, name="eta")
        counts = hist.axis.IntCategory([], growth=True, name="muons")
        return {
            "mass": hist.Hist(dataset, region, mass, storage="weight"),
            "muon": hist.Hist(dataset, pt, eta, storage="weight"),
            "jet_pt": hist.Hist(dataset, region, pt, storage="weight"),
            "muons": hist.Hist(dataset, counts, storage="int64"),
            "met": hist.Hist(hist.axis.Regular(40, 0, 200, name="met"), storage="int64"),
        }

    def process(self, events: ak.Array) -> dict[str, object]:
        name = events.metadata["dataset"]
        weight = np.sign(events.genWeight) if "genWeight" in events.fields else np.ones(len(events))
        out = self.histograms()

        muons = events.Muon[(events.Muon.pt > self.pt_min) & (abs(events.Muon.eta) < 2.4)]
        jets = events.Jet[(events.Jet.pt > 20) & (abs(events.Jet.eta) < 2.4)]
        jets = jets[ak.fill_none(ak.all(jets.metric_table(muons) > 0.4, axis=-1), True)]

        selection = PackedSelection()
        selection.add("two muons", ak.num(muons) >= 2)
        leading = ak.pad_none(muons, 2)
        selection.add("opposite", ak.fill_none(leading[:, 0].charge * leading[:, 1].charge < 0, False))
        selection.add("jets", ak.num(jets) > 0)
        regions = {"pairs": ["two muons", "opposite"], "pairs with jets": ["two muons", "opposite", "jets"]}

        for region, cuts in regions.items():
            mask = selection.all(*cuts)
            pair = leading[mask][:, 0] + leading[mask][:, 1]
            out["mass"].fill(dataset=name, region=region, mass=pair.mass, weight=weight[mask])
            pts, weights = ak.broadcast_arrays(jets[mask].pt, weight[mask])
            out["jet_pt"].fill(dataset=name, region=region, pt=ak.flatten(pts), weight=ak.flatten(weights))

        each = ak.broadcast_arrays(weight, muons.pt)[0]
        out["muon"].fill(name, ak.flatten(muons.pt), ak.flatten(muons.eta), weight=ak.flatten(each))
        out["muons"].fill(dataset=name, muons=ak.num(muons))
        out["met"].fill(met=events.MET.pt)

        cutflow = {"all": len(events)}
        for count in range(1, len(selection.names) + 1):
            cuts = selection.names[:count]
            cutflow[cuts[-1]] = int(ak.sum(selection.all(*cuts)))
        return {
            **out,
            "cutflow": {name: cutflow},
            "sumw": {name: float(ak.sum(weight))},
            "runs": {int(run) for run in np.unique(ak.to_numpy(events.run))},
            "leading_pt": processor.column_accumulator(ak.to_numpy(ak.fill_none(leading[:, 0].pt, -1.0))),
        }

    def postprocess(self, accumulator: dict[str, object]) -> dict[str, object]:
        accumulator["datasets"] = sorted(accumulator["cutflow"])
        return accumulator


def main(files: list[str]) -> None:
    warnings.filterwarnings("ignore", module="coffea")
    NanoAODSchema.warn_missing_crossrefs = False
    fileset = {Path(file).stem: [file] for file in files}
    # As it was:
    run = processor.Runner(processor.IterativeExecutor(status=False), schema=NanoAODSchema, chunksize=1_000)
    before = run(fileset, Dimuon(), treename="Events")
    # With Windrow: no executor and no chunk size to choose.
    after = wr.run_processor(Dimuon(), fileset)
    same = before["cutflow"] == after["cutflow"] and np.allclose(before["mass"].values(), after["mass"].values())
    print("cutflow:", after["cutflow"])
    print("the same answer:", bool(same))


if __name__ == "__main__":
    main(sys.argv[1:])
