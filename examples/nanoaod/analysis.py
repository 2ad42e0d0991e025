"""Top pairs with two leptons in NanoAOD: 12 cuts, a signal region, two control regions and a validation region.

Steps are in the order in which such a selection is usually told: trigger, cleaning, leptons, jets, b-tags, masses, missing
momentum, discriminant. That is not the order of least work: the cleaning of jets and the masses of all combinations are costly
and stand above the cut on the missing momentum, which costs nothing and drops three quarters of all generated events.

    windrow run examples/nanoaod/analysis.py FILESET.json
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import vector
from hist import Hist

import windrow as wr

__all__ = ["CUTS", "REGIONS", "analysis", "build"]

#: in the order they are written
CUTS = (
    *("trigger", "clean", "two_leptons", "opposite_charge", "low_mass", "z_veto", "two_jets"),
    *("b_tag", "lepton_b_mass", "no_wide_pair", "missing_momentum", "discriminant"),
)
common = CUTS[:5]
#: region -> its cuts
REGIONS = {
    "SR": CUTS,
    "CR_top": (*CUTS[:-1], "!discriminant"),
    "CR_Z": (*common, "!z_veto", "no_wide_pair"),
    "VR": (*common, "z_veto", "two_jets", "!b_tag", "no_wide_pair", "missing_momentum"),
}

FEATURES = 9
# A network that nobody trained: what it costs is like that of a small one, what it says is not physics.
random = np.random.default_rng(12)
HIDDEN = random.normal(0, 0.45, (FEATURES, 24))
SECOND = random.normal(0, 0.35, (24, 12))
LAST = random.normal(0, 0.6, 12)


def momenta(particles: Any, **more: Any) -> Any:
    """Records with the kinematics of ``particles`` and other fields."""
    fields = {name: particles[name] for name in ("pt", "eta", "phi", "mass")}
    return ak.zip({**fields, **more}, with_name="Momentum4D", behavior=vector.backends.awkward.behavior)


def number(values: Any, missing: float) -> Any:
    """One float64 per row, where None becomes ``missing``."""
    return np.asarray(ak.fill_none(values, missing), dtype=np.float64)


def layer(values: Any, weights: Any) -> Any:
    """Multiply matrices, always adding in the same order: a library may choose another one for another number of rows."""
    total = np.zeros((len(values), *weights.shape[1:]))
    for column, weight in enumerate(weights):
        total += values[:, column, None] * weight if weights.ndim > 1 else values[:, column] * weight
    return total


# -- trigger and cleaning ----------------------------------------------------------------------


def generator(genWeight):
    return np.sign(genWeight.astype(np.float64))


def trigger(single_muon, single_electron, two_muons, two_electrons, both):
    return single_muon | single_electron | two_muons | two_electrons | both


def clean(PV_npvsGood, Flag_METFilters=True):
    return Flag_METFilters & (PV_npvsGood >= 4)


def pileup(Pileup_nTrueInt):
    true = Pileup_nTrueInt.astype(np.float64)
    nominal, up, down = (1 + slope * (true - 32.0) / 32.0 for slope in (0.3, 0.4, 0.2))
    return wr.updown(nominal, up, down)


# -- leptons -----------------------------------------------------------------------------------


def muons(Muon):
    good = (Muon.pt > 15) & (abs(Muon.eta) < 2.4) & Muon.mediumId & (Muon.pfRelIso04_all < 0.25)
    return Muon[good]


def electrons(Electron):
    return Electron[(Electron.pt > 15) & (abs(Electron.eta) < 2.5) & (Electron.cutBased >= 2)]


def leptons(muons, electrons):
    both = [
        momenta(one, charge=one.charge, flavour=ak.full_like(one.charge, flavour))
        for one, flavour in ((muons, 13), (electrons, 11))
    ]
    every = ak.concatenate(both, axis=1)
    return every[ak.argsort(every.pt, axis=1, ascending=False, stable=True)]


def two_leptons(leptons):
    return (ak.num(leptons) == 2) & (number(ak.firsts(leptons.pt), 0.0) > 25)


def opposite_charge(leptons):
    return ak.sum(leptons.charge, axis=1) == 0


def dilepton_mass(leptons):
    pair = ak.pad_none(leptons, 2)
    return number((pair[:, 0] + pair[:, 1]).mass, np.nan)


def low_mass(dilepton_mass):
    return dilepton_mass > 20


def z_veto(dilepton_mass, leptons):
    same = ak.all(leptons.flavour == 11, axis=1) | ak.all(leptons.flavour == 13, axis=1)
    return ~(same & (np.abs(dilepton_mass - 91.2) < 15))


# -- jets --------------------------------------------------------------------------------------


def jets(Jet, leptons):
    good = Jet[(Jet.pt > 30) & (abs(Jet.eta) < 2.4) & (Jet.jetId >= 2)]
    jet, lepton = ak.unzip(ak.cartesian([good, leptons], nested=True))
    near = jet.deltaR(lepton) < 0.4
    return good[~ak.any(near, axis=2)]


def two_jets(jets):
    return ak.num(jets) >= 2


def b_jets(jets):
    return jets[jets.btagDeepB > 0.4184]


def b_tag(b_jets):
    return ak.num(b_jets) >= 1


# -- masses ------------------------------------------------------------------------------------


def smallest_lepton_b_mass(leptons, b_jets):
    lepton, jet = ak.unzip(ak.cartesian([leptons, momenta(b_jets)]))
    return number(ak.min((lepton + jet).mass, axis=1), np.inf)


def lepton_b_mass(smallest_lepton_b_mass):
    return smallest_lepton_b_mass < 155


def largest_pair_mass(jets):
    one, other = ak.unzip(ak.combinations(momenta(jets), 2))
    return number(ak.max((one + other).mass, axis=1), 0.0)


def no_wide_pair(largest_pair_mass):
    return largest_pair_mass < 400


# -- missing momentum and discriminant ---------------------------------------------------------


def missing_momentum(MET_pt):
    return MET_pt > 50


def score(leptons, jets, b_jets, dilepton_mass, largest_pair_mass, MET_pt, MET_phi):
    """Two hidden layers over what the event looks like."""
    pair = ak.pad_none(leptons, 2)
    first, second = (pair[:, place] for place in range(2))
    turn = number(first.phi, 0.0) - MET_phi.astype(np.float64)
    features = np.stack(
        [
            number(first.pt, 0.0) / 60,
            number(second.pt, 0.0) / 40,
            number(first.eta - second.eta, 0.0),
            np.nan_to_num(dilepton_mass) / 100,
            number(ak.sum(jets.pt, axis=1), 0.0) / 200,
            ak.to_numpy(ak.num(jets)) / 3.0,
            ak.to_numpy(ak.num(b_jets)) * 1.0,
            largest_pair_mass / 300,
            MET_pt.astype(np.float64) / 60 * np.cos(turn),
        ],
        axis=1,
    )
    hidden = np.tanh(layer(features - 1.0, HIDDEN))
    return 1 / (1 + np.exp(-layer(np.tanh(layer(hidden, SECOND)), LAST)))


def discriminant(score):
    return score > 0.25


# -- the pipeline ------------------------------------------------------------------------------


def build(regions: int = 4) -> wr.Pipeline:
    """Make the analysis with the first 1 to 4 of its regions: SR, CR_top, CR_Z, VR."""
    if not 1 <= regions <= len(REGIONS):
        raise ValueError(f"the analysis has 1 to {len(REGIONS)} regions, got {regions}")
    made = wr.Pipeline("top_pairs", identity=("run", "luminosityBlock", "event"))
    made.weight(when="is_mc")(generator)
    made.cut(
        reads={
            "single_muon": "HLT_IsoMu24",
            "single_electron": "HLT_Ele32_WPTight_Gsf",
            "two_muons": "HLT_Mu17_TrkIsoVVL_Mu8_TrkIsoVVL_DZ_Mass8",
            "two_electrons": "HLT_Ele23_Ele12_CaloIdL_TrackIdL_IsoVL",
            "both": "HLT_Mu23_TrkIsoVVL_Ele12_CaloIdL_TrackIdL_IsoVL",
        }
    )(trigger)
    made.cut(clean)
    made.weight(when="is_mc")(pileup)
    for column in (muons, electrons, leptons):
        made.column(column)
    made.cut(two_leptons)
    made.cut(opposite_charge)
    made.column(dilepton_mass)
    made.cut(low_mass)
    made.cut(z_veto)
    made.column(jets)
    made.cut(two_jets)
    made.column(b_jets)
    made.cut(b_tag)
    made.column(smallest_lepton_b_mass)
    made.cut(lepton_b_mass)
    made.column(largest_pair_mass)
    made.cut(no_wide_pair)
    made.cut(missing_momentum)
    made.column(score)
    made.cut(discriminant)
    for name, cuts in list(REGIONS.items())[:regions]:
        made.region(name, *cuts)
    outputs(made)
    return made


def outputs(made: wr.Pipeline) -> None:
    @made.output(regions="*")
    def dilepton(dilepton_mass, weight):
        return Hist.new.Reg(60, 0, 300, name="mass").Weight().fill(dilepton_mass, weight=weight)

    @made.output(regions=["SR"])
    def scores(score, weight):
        return Hist.new.Reg(50, 0, 1, name="score").Weight().fill(score, weight=weight)

    @made.output(regions="*")
    def selected(weight, jets):
        return {"events": len(weight), "sumw": float(np.sum(weight)), "jets": int(ak.sum(ak.num(jets)))}

    @made.output(region=None)
    def total(weight):
        return {"events": len(weight), "sumw": float(np.sum(weight))}


analysis = build()
