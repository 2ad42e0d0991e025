"""The dimuon analysis: three peaks and a sideband, in data and simulation of two years.

windrow run examples/dimuon/analysis.py build/demo/fileset.json
"""

from __future__ import annotations

import awkward as ak
import numpy as np
from hist import Hist

import windrow as wr

#: region -> bins, low and high edge of its mass spectrum (GeV)
BINS = {"jpsi": (60, 2.8, 3.4), "upsilon": (60, 8.5, 11.5), "Z": (60, 60, 120), "sideband": (100, 0, 250)}

analysis = wr.Pipeline("dimuon", identity=("run", "luminosityBlock", "event"))


@analysis.weight(when="is_mc")
def generator(genWeight):
    return genWeight


@analysis.cut
def trigger(HLT_IsoMu24, HLT_IsoTkMu24=False):  # the second path exists in the first year only
    return HLT_IsoMu24 | HLT_IsoTkMu24


@analysis.column
def muons(Muon):
    good = (Muon.pt > 5) & (abs(Muon.eta) < 2.4) & (Muon.pfRelIso04_all < 0.25)
    return Muon[good]


@analysis.cut
def two_muons(muons):
    return ak.num(muons) >= 2


@analysis.cut
def opposite_charge(muons):
    return muons[:, 0].charge != muons[:, 1].charge


@analysis.column
def mass(muons):
    return (muons[:, 0] + muons[:, 1]).mass


@analysis.cut
def z_window(mass, *, low=60, high=120):
    return (mass > low) & (mass < high)


@analysis.cut
def upsilon_window(mass, *, low=8.5, high=11.5):
    return (mass > low) & (mass < high)


@analysis.cut
def jpsi_window(mass, *, low=2.8, high=3.4):
    return (mass > low) & (mass < high)


def density(interactions, mean):
    """Gamma distribution of the true number of interactions, up to a constant factor."""
    return (interactions / mean) ** 11 * np.exp(-12 * interactions / mean) / mean


@analysis.weight(when="is_mc")
def pileup(Pileup_nTrueInt, *, dataset):
    true = np.asarray(Pileup_nTrueInt, dtype=np.float64)
    data, simulation = {2016: (27.0, 25.0), 2018: (37.0, 34.0)}[dataset["year"]]
    # The cross section behind the number of interactions is known to 4.6 %.
    nominal, up, down = (density(true, shift * data) / density(true, simulation) for shift in (1.0, 1.046, 0.954))
    return wr.updown(nominal, up, down)


common = ("trigger", "two_muons", "opposite_charge")
analysis.region("Z", *common, "z_window")
analysis.region("upsilon", *common, "upsilon_window")
analysis.region("jpsi", *common, "jpsi_window")
analysis.region("sideband", *common, "!z_window")


@analysis.output(regions="*")
def spectrum(mass, weight, *, region):
    return Hist.new.Reg(*BINS[region], name="mass").Weight().fill(mass, weight=weight)


@analysis.output(region=None)
def sumw(weight):
    return {"events": len(weight), "sumw": float(np.sum(weight))}
