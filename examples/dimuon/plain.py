"""The same analysis as a plain sequential program: uproot, awkward and hist, file after file.

It is the oracle: whatever Windrow does, its numbers are these. It must not import Windrow.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import awkward as ak
import numpy as np
import uproot
import vector
from hist import Hist

BINS = {"jpsi": (60, 2.8, 3.4), "upsilon": (60, 8.5, 11.5), "Z": (60, 60, 120), "sideband": (100, 0, 250)}
PILEUP = {2016: (27.0, 25.0), 2018: (37.0, 34.0)}
MUON_FIELDS = ("pt", "eta", "phi", "mass", "charge", "pfRelIso04_all")


def density(interactions: np.ndarray, mean: float) -> np.ndarray:
    return (interactions / mean) ** 11 * np.exp(-12 * interactions / mean) / mean


def pileup(true: np.ndarray, year: int) -> dict[str, np.ndarray]:
    data, simulation = PILEUP[year]
    shifts = {"nominal": 1.0, "pileup_up": 1.046, "pileup_down": 0.954}
    return {name: density(true, shift * data) / density(true, simulation) for name, shift in shifts.items()}


def read(path: str, tree: str) -> ak.Array:
    wanted = [f"Muon_{field}" for field in MUON_FIELDS]
    wanted += ["HLT_IsoMu24", "HLT_IsoTkMu24", "genWeight", "Pileup_nTrueInt"]
    with uproot.open(path) as file:
        return file[tree].arrays(filter_name=wanted)


def one_file(events: ak.Array, metadata: dict[str, Any]) -> dict[str, Any]:
    """Everything one file contributes: spectra, yields per cut and the sum of weights."""
    simulated = metadata["is_mc"]
    gen = ak.to_numpy(events.genWeight) if simulated else np.ones(len(events))
    out: dict[str, Any] = {
        "cutflow": {region: Counter() for region in BINS},
        "spectrum": {},
        "sumw": {"events": len(events), "sumw": float(np.sum(gen))},
    }
    fired = events.HLT_IsoMu24
    if "HLT_IsoTkMu24" in events.fields:
        fired = fired | events.HLT_IsoTkMu24
    steps = {"all": len(events), "trigger": int(ak.sum(fired))}
    events, gen = events[fired], gen[ak.to_numpy(fired)]

    muons = ak.zip(
        {field: events[f"Muon_{field}"] for field in MUON_FIELDS},
        with_name="Momentum4D",
        behavior=vector.backends.awkward.behavior,
    )
    muons = muons[(muons.pt > 5) & (abs(muons.eta) < 2.4) & (muons.pfRelIso04_all < 0.25)]
    for name in ("two_muons", "opposite_charge"):
        if name == "two_muons":
            keep = ak.num(muons) >= 2
        else:
            keep = muons[:, 0].charge != muons[:, 1].charge
        events, muons, gen = events[keep], muons[keep], gen[ak.to_numpy(keep)]
        steps[name] = len(events)

    mass = ak.to_numpy((muons[:, 0] + muons[:, 1]).mass)
    windows = {
        "Z": ("z_window", (mass > 60) & (mass < 120)),
        "upsilon": ("upsilon_window", (mass > 8.5) & (mass < 11.5)),
        "jpsi": ("jpsi_window", (mass > 2.8) & (mass < 3.4)),
        "sideband": ("!z_window", ~((mass > 60) & (mass < 120))),
    }
    weights = {"nominal": gen}
    if simulated:
        true = ak.to_numpy(events.Pileup_nTrueInt).astype(np.float64)
        weights = {name: gen * w for name, w in pileup(true, metadata["year"]).items()}
    for region, (cut, keep) in windows.items():
        out["cutflow"][region].update({**steps, cut: int(np.sum(keep))})
        for variation, weight in weights.items():
            histogram = Hist.new.Reg(*BINS[region], name="mass").Weight()
            out["spectrum"][region, variation] = histogram.fill(mass[keep], weight=weight[keep])
    return out


def plain(fileset: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run over a fileset; per dataset what :func:`one_file` returns, added up over its files."""
    results: dict[str, dict[str, Any]] = {}
    for name, dataset in fileset.items():
        for path, tree in dataset["files"].items():
            part = one_file(read(path, tree), dataset["metadata"])
            if name not in results:
                results[name] = part
                continue
            total = results[name]
            for region, counts in part["cutflow"].items():
                total["cutflow"][region].update(counts)
            for key, histogram in part["spectrum"].items():
                total["spectrum"][key] = total["spectrum"][key] + histogram
            total["sumw"] = {k: total["sumw"][k] + v for k, v in part["sumw"].items()}
    return results


def main() -> None:
    import argparse
    import json
    from pathlib import Path

    parser = argparse.ArgumentParser(description="The dimuon analysis, plain and sequential.")
    parser.add_argument("fileset", nargs="?", default="build/demo/fileset.json", type=Path)
    results = plain(json.loads(parser.parse_args().fileset.read_text()))
    for name, result in results.items():
        print(name, result["sumw"])
        for region, counts in result["cutflow"].items():
            print(f"  {region:10}", dict(counts))


if __name__ == "__main__":
    main()
