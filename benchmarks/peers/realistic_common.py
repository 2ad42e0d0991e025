"""What every program of the realistic benchmark computes, as functions of awkward arrays: objects, cuts, weights, histograms.

One lepton and jets: triggers; quality flags; one tight muon or electron; no second, looser one; at least three jets, none of them
next to the lepton; a b-tag; missing momentum. Regions are stages of it. The mass is that of the three jets with the largest
momentum together. The programs differ in how they read, in which rows they compute what, and in who works side by side.
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
from hist import Hist

#: Cuts in the order they are written, and how many of them make each region.
CUTS = ("trigger", "clean", "one_lepton", "no_second", "three_jets", "b_tag", "missing_momentum")
REGIONS = {"jets": 5, "tagged": 6, "signal": 7}
VARIATIONS = {"nominal": 0.3, "pileup_up": 0.4, "pileup_down": 0.2}
HISTOGRAMS = ("trijet", "spectrum", "leading")
FIELDS = {
    "Muon": ("pt", "eta", "phi", "mediumId", "pfRelIso04_all"),
    "Electron": ("pt", "eta", "phi", "cutBased"),
    "Jet": ("pt", "eta", "phi", "mass", "btagDeepB", "jetId"),
}
FLAT = (
    *("HLT_IsoMu24", "HLT_Ele32_WPTight_Gsf", "Flag_METFilters", "PV_npvsGood", "MET_pt"),
    *("genWeight", "Pileup_nTrueInt"),
)


def loose_muons(muon: Any) -> Any:
    return muon[(muon.pt > 10) & (abs(muon.eta) < 2.4) & (muon.pfRelIso04_all < 0.25)]


def loose_electrons(electron: Any) -> Any:
    return electron[(electron.pt > 10) & (abs(electron.eta) < 2.5) & (electron.cutBased >= 1)]


def tight_leptons(muons: Any, electrons: Any) -> Any:
    """Direction and momentum of the tight ones of both kinds."""
    muons = muons[(muons.pt > 26) & muons.mediumId & (muons.pfRelIso04_all < 0.15)]
    electrons = electrons[(electrons.pt > 34) & (electrons.cutBased >= 2)]
    parts = [ak.zip({name: one[name] for name in ("pt", "eta", "phi")}) for one in (muons, electrons)]
    return ak.concatenate(parts, axis=1)


def clean_jets(jet: Any, leptons: Any) -> Any:
    """Good jets that are no leptons."""
    good = jet[(jet.pt > 25) & (abs(jet.eta) < 2.4) & (jet.jetId >= 2)]
    eta, lepton_eta = ak.unzip(ak.cartesian([good.eta, leptons.eta], nested=True))
    phi, lepton_phi = ak.unzip(ak.cartesian([good.phi, leptons.phi], nested=True))
    turn = (phi - lepton_phi + np.pi) % (2 * np.pi) - np.pi
    near = (eta - lepton_eta) ** 2 + turn**2 < 0.16
    return good[~ak.any(near, axis=2)]


def trijet_mass(jets: Any) -> Any:
    """The mass of the three jets that have the largest transverse momentum together."""
    pt = ak.values_astype(jets.pt, np.float64)
    momenta = ak.zip(
        {"x": pt * np.cos(jets.phi), "y": pt * np.sin(jets.phi), "z": pt * np.sinh(jets.eta), "mass": jets.mass}
    )
    momenta["e"] = np.sqrt(momenta.x**2 + momenta.y**2 + momenta.z**2 + momenta.mass**2)
    one, two, three = ak.unzip(ak.combinations(momenta, 3))
    x, y, z, e = (one[part] + two[part] + three[part] for part in "xyze")
    best = ak.argmax(x**2 + y**2, axis=1, keepdims=True)
    mass = np.sqrt(np.maximum(e**2 - x**2 - y**2 - z**2, 0.0))
    return np.asarray(ak.firsts(mass[best]), dtype=np.float64)


def generator_weight(gen_weight: Any) -> Any:
    return np.sign(np.asarray(gen_weight, dtype=np.float64))


def pileup_weight(true: Any, slope: float) -> Any:
    return 1 + slope * (np.asarray(true, dtype=np.float64) - 32.0) / 32.0


def fill_trijet(mass: Any, weight: Any) -> Any:
    return Hist.new.Reg(60, 0, 1200).Weight().fill(mass, weight=weight)


def fill_spectrum(jets: Any, weight: Any) -> Any:
    """Every jet counts with the weight of its row."""
    repeated = np.repeat(weight, np.asarray(ak.num(jets)))
    return Hist.new.Reg(80, 0, 400).Weight().fill(ak.flatten(jets.pt), weight=repeated)


def fill_leading(leptons: Any, weight: Any) -> Any:
    return Hist.new.Reg(60, 0, 300).Weight().fill(leptons.pt[:, 0], weight=weight)


def fill_all(leptons: Any, jets: Any, mass: Any, weight: Any) -> dict[str, Any]:
    return {
        "trijet": fill_trijet(mass, weight),
        "spectrum": fill_spectrum(jets, weight),
        "leading": fill_leading(leptons, weight),
    }


def told(found: dict[tuple[str, str, str], Any]) -> dict[str, list[list[float]]]:
    """Histograms as lists that can be compared: values and variances, by name, region and variation."""
    return {"/".join(key): [one.values().tolist(), one.variances().tolist()] for key, one in sorted(found.items())}
