"""The same analysis as a plain program: uproot, awkward and hist, one file after the other, every cut a mask over all rows.

It is the oracle: whatever Windrow does, its numbers are these. It must not import Windrow.
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import uproot
import vector
from hist import Hist

CUTS = (
    *("trigger", "clean", "two_leptons", "opposite_charge", "low_mass", "z_veto", "two_jets"),
    *("b_tag", "lepton_b_mass", "no_wide_pair", "missing_momentum", "discriminant"),
)
#: region -> cuts that it leaves out, and the one that it inverts
REGIONS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "SR": ((), None),
    "CR_top": ((), "discriminant"),
    "CR_Z": (("two_jets", "b_tag", "lepton_b_mass", "missing_momentum", "discriminant"), "z_veto"),
    "VR": (("lepton_b_mass", "discriminant"), "b_tag"),
}
FIELDS = {
    "Muon": ("pt", "eta", "phi", "mass", "charge", "mediumId", "pfRelIso04_all"),
    "Electron": ("pt", "eta", "phi", "mass", "charge", "cutBased"),
    "Jet": ("pt", "eta", "phi", "mass", "btagDeepB", "jetId"),
}
PATHS = (
    "HLT_IsoMu24",
    "HLT_Ele32_WPTight_Gsf",
    "HLT_Mu17_TrkIsoVVL_Mu8_TrkIsoVVL_DZ_Mass8",
    "HLT_Ele23_Ele12_CaloIdL_TrackIdL_IsoVL",
    "HLT_Mu23_TrkIsoVVL_Ele12_CaloIdL_TrackIdL_IsoVL",
)


def read(path: str, tree: str, is_mc: bool) -> dict[str, Any]:
    """All columns that are needed, and the collections as records with vector behaviours."""
    wanted = [*PATHS, "Flag_METFilters", "PV_npvsGood", "MET_pt", "MET_phi"]
    wanted += ["genWeight", "Pileup_nTrueInt"] if is_mc else []
    with uproot.open(path) as file:
        rows = file[tree].arrays(wanted, library="np")
        for name, fields in FIELDS.items():
            arrays = file[tree].arrays([f"{name}_{field}" for field in fields])
            rows[name] = vectors({field: arrays[f"{name}_{field}"] for field in fields})
    return rows


def vectors(fields: dict[str, Any]) -> Any:
    return ak.zip(fields, with_name="Momentum4D", behavior=vector.backends.awkward.behavior)


def plain_number(values: Any, missing: float) -> Any:
    return np.asarray(ak.fill_none(values, missing), dtype=np.float64)


def objects(rows: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Leptons by falling pt, jets away from them, and those of the jets that are b-tagged."""
    muon, electron, jet = rows["Muon"], rows["Electron"], rows["Jet"]
    muon = muon[(muon.pt > 15) & (abs(muon.eta) < 2.4) & muon.mediumId & (muon.pfRelIso04_all < 0.25)]
    electron = electron[(electron.pt > 15) & (abs(electron.eta) < 2.5) & (electron.cutBased >= 2)]
    names = ("pt", "eta", "phi", "mass", "charge")
    leptons = ak.concatenate(
        [
            vectors({**{n: one[n] for n in names}, "flavour": ak.full_like(one.charge, flavour)})
            for one, flavour in ((muon, 13), (electron, 11))
        ],
        axis=1,
    )
    leptons = leptons[ak.argsort(leptons.pt, axis=1, ascending=False, stable=True)]
    jets = jet[(jet.pt > 30) & (abs(jet.eta) < 2.4) & (jet.jetId >= 2)]
    pairs = ak.cartesian({"jet": jets, "lepton": leptons}, nested=True)
    jets = jets[~ak.any(pairs.jet.deltaR(pairs.lepton) < 0.4, axis=2)]
    return leptons, jets, jets[jets.btagDeepB > 0.4184]


def network(features: Any) -> Any:
    """Untrained: the numbers of its layers come from a seed."""
    random = np.random.default_rng(12)
    layers = [random.normal(0, s, n) for s, n in ((0.45, (9, 24)), (0.35, (24, 12)), (0.6, (12, 1)))]
    values = features - 1.0
    for number, weights in enumerate(layers):
        total = np.zeros((len(values), weights.shape[1]))
        for column, weight in enumerate(weights):
            total += values[:, column, None] * weight
        values = np.tanh(total) if number < 2 else total
    return 1 / (1 + np.exp(-values[:, 0]))


def select(rows: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(cut -> mask, quantity -> values) of all rows."""
    leptons, jets, b_jets = objects(rows)
    pair = ak.pad_none(leptons, 2)
    first, second = pair[:, 0], pair[:, 1]
    mass = plain_number((first + second).mass, np.nan)
    only = [ak.all(leptons.flavour == flavour, axis=1) for flavour in (11, 13)]
    lepton_b = ak.cartesian({"lepton": leptons, "jet": b_jets})
    lb_mass = plain_number(ak.min((lepton_b.lepton + lepton_b.jet).mass, axis=1), np.inf)
    two = ak.combinations(jets, 2, fields=["one", "other"])
    pair_mass = plain_number(ak.max((two.one + two.other).mass, axis=1), 0.0)
    turn = plain_number(first.phi, 0.0) - rows["MET_phi"].astype(np.float64)
    score = network(
        np.stack(
            [
                plain_number(first.pt, 0.0) / 60,
                plain_number(second.pt, 0.0) / 40,
                plain_number(first.eta - second.eta, 0.0),
                np.nan_to_num(mass) / 100,
                plain_number(ak.sum(jets.pt, axis=1), 0.0) / 200,
                ak.to_numpy(ak.num(jets)) / 3.0,
                ak.to_numpy(ak.num(b_jets)) * 1.0,
                pair_mass / 300,
                rows["MET_pt"].astype(np.float64) / 60 * np.cos(turn),
            ],
            axis=1,
        )
    )
    masks = {
        "trigger": np.any([rows[path] for path in PATHS], axis=0),
        "clean": rows["Flag_METFilters"] & (rows["PV_npvsGood"] >= 4),
        "two_leptons": (ak.num(leptons) == 2) & (plain_number(ak.firsts(leptons.pt), 0.0) > 25),
        "opposite_charge": ak.sum(leptons.charge, axis=1) == 0,
        "low_mass": mass > 20,
        "z_veto": ~((only[0] | only[1]) & (np.abs(mass - 91.2) < 15)),
        "two_jets": ak.num(jets) >= 2,
        "b_tag": ak.num(b_jets) >= 1,
        "lepton_b_mass": lb_mass < 155,
        "no_wide_pair": pair_mass < 400,
        "missing_momentum": rows["MET_pt"] > 50,
        "discriminant": score > 0.25,
    }
    masks = {name: np.asarray(mask) for name, mask in masks.items()}
    return masks, {"mass": mass, "score": score, "jets": ak.to_numpy(ak.num(jets))}


def weights(rows: dict[str, Any], length: int, is_mc: bool) -> dict[str, Any]:
    """variation -> weight of each row"""
    if not is_mc:
        return {"nominal": np.ones(length)}
    sign = np.sign(rows["genWeight"].astype(np.float64))
    true = rows["Pileup_nTrueInt"].astype(np.float64)
    slopes = {"nominal": 0.3, "pileup_up": 0.4, "pileup_down": 0.2}
    return {name: sign * (1 + slope * (true - 32.0) / 32.0) for name, slope in slopes.items()}


def one_file(path: str, tree: str, is_mc: bool) -> dict[str, Any]:
    """Everything one file contributes."""
    rows = read(path, tree, is_mc)
    masks, values = select(rows)
    length = len(values["mass"])
    sign = np.sign(rows["genWeight"].astype(np.float64)) if is_mc else np.ones(length)
    out: dict[str, Any] = {"total": {"events": length, "sumw": float(np.sum(sign))}}
    for region, (left_out, inverted) in REGIONS.items():
        alive = np.ones(length, bool)
        counts = {"initial": length}
        for cut in CUTS:
            if cut in left_out:
                continue
            alive &= ~masks[cut] if cut == inverted else masks[cut]
            counts["!" * (cut == inverted) + cut] = int(alive.sum())
        out["cutflow", region] = counts
        for variation, weight in weights(rows, length, is_mc).items():
            own = weight[alive]
            histogram = Hist.new.Reg(60, 0, 300, name="mass").Weight()
            out["dilepton", region, variation] = histogram.fill(values["mass"][alive], weight=own)
            if region == "SR":
                histogram = Hist.new.Reg(50, 0, 1, name="score").Weight()
                out["scores", region, variation] = histogram.fill(values["score"][alive], weight=own)
            out["selected", region, variation] = {
                "events": len(own),
                "sumw": float(np.sum(own)),
                "jets": int(np.sum(values["jets"][alive])),
            }
    return out


def plain(fileset: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for each dataset what :func:`one_file` says of its one file."""
    results = {}
    for name, dataset in fileset.items():
        ((path, tree),) = dataset["files"].items()
        results[name] = one_file(path, tree, dataset["metadata"]["is_mc"])
    return results
