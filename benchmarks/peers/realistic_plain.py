"""The realistic selection in plain uproot and awkward, in steps of 100,000 rows: one process, or a pool of two that is kept.

It reads the branches it needs, computes objects in stages on the rows that are left, and adds histograms up.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import awkward as ak
import numpy as np
import realistic_common as c
import uproot
from protocol import serve

STEP = 100_000
BRANCHES = [*c.FLAT, *(f"{name}_{field}" for name, fields in c.FIELDS.items() for field in fields)]


def step(columns: dict[str, Any], out: dict[tuple[str, str, str], Any]) -> None:
    """Select the rows of one step and add what they fill."""
    fired = columns["HLT_IsoMu24"] | columns["HLT_Ele32_WPTight_Gsf"]
    alive = np.asarray(fired & columns["Flag_METFilters"] & (columns["PV_npvsGood"] >= 4))
    muon, electron, jet = (
        ak.zip({field: columns[f"{name}_{field}"] for field in fields})[alive] for name, fields in c.FIELDS.items()
    )
    flat = {name: np.asarray(columns[name])[alive] for name in ("MET_pt", "genWeight", "Pileup_nTrueInt")}
    muons, electrons = c.loose_muons(muon), c.loose_electrons(electron)
    leptons = c.tight_leptons(muons, electrons)
    one = np.asarray((ak.num(leptons) == 1) & (ak.num(muons) + ak.num(electrons) == 1))
    leptons, jet = leptons[one], jet[one]
    flat = {name: values[one] for name, values in flat.items()}
    jets = c.clean_jets(jet, leptons)
    three = np.asarray(ak.num(jets) >= 3)
    leptons, jets = leptons[three], jets[three]
    flat = {name: values[three] for name, values in flat.items()}
    mass = c.trijet_mass(jets)
    tagged = np.asarray(ak.any(jets.btagDeepB > 0.4184, axis=1))
    weight = c.generator_weight(flat["genWeight"])
    weights = {name: weight * c.pileup_weight(flat["Pileup_nTrueInt"], s) for name, s in c.VARIATIONS.items()}
    masks = {"jets": None, "tagged": tagged, "signal": tagged & (flat["MET_pt"] > 30)}
    for region, mask in masks.items():
        kept = [leptons, jets, mass] if mask is None else [leptons[mask], jets[mask], mass[mask]]
        for variation, values in weights.items():
            own = values if mask is None else values[mask]
            for name, histogram in c.fill_all(*kept, own).items():
                key = name, region, variation
                out[key] = out[key] + histogram if key in out else histogram


def part(path: str, start: int, stop: int) -> dict[tuple[str, str, str], Any]:
    out: dict[tuple[str, str, str], Any] = {}
    with uproot.open(path) as file:
        for columns in file["Events"].iterate(
            BRANCHES, step_size=STEP, entry_start=start, entry_stop=stop, library="ak", how=dict
        ):
            step(columns, out)
    return out


def rows_of(path: str) -> int:
    with uproot.open(path) as file:
        return int(file["Events"].num_entries)


def run(path: str, processes: int) -> dict[str, Any]:
    rows = rows_of(path)
    if processes == 1:
        return c.told(part(path, 0, rows))
    # A border that steps and clusters share.
    half = rows // processes // STEP * STEP if rows >= processes * STEP else rows // processes
    first, second = _pool.starmap(part, [(path, 0, half), (path, half, rows)])
    return c.told({key: first[key] + second[key] for key in first})


if __name__ == "__main__":
    _pool = multiprocessing.get_context("fork").Pool(2)
    if len(sys.argv) > 1:
        run(sys.argv[1], 2)
    else:
        serve(run, "uproot", "awkward", "hist", "numpy")
    _pool.terminate()
