"""The realistic selection as a Windrow pipeline, made anew for every run: nothing is remembered of the one before."""

from __future__ import annotations

import sys
from typing import Any

import awkward as ak
import realistic_common as c
from protocol import serve

import windrow as wr


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("realistic")

    @made.weight
    def generator(genWeight):
        return c.generator_weight(genWeight)

    @made.weight
    def pileup(Pileup_nTrueInt):
        return wr.updown(*(c.pileup_weight(Pileup_nTrueInt, slope) for slope in c.VARIATIONS.values()))

    @made.cut
    def trigger(HLT_IsoMu24, HLT_Ele32_WPTight_Gsf):
        return HLT_IsoMu24 | HLT_Ele32_WPTight_Gsf

    @made.cut
    def clean(Flag_METFilters, PV_npvsGood):
        return Flag_METFilters & (PV_npvsGood >= 4)

    @made.column
    def muons(Muon):
        return c.loose_muons(Muon)

    @made.column
    def electrons(Electron):
        return c.loose_electrons(Electron)

    @made.column
    def leptons(muons, electrons):
        return c.tight_leptons(muons, electrons)

    @made.cut
    def one_lepton(leptons):
        return ak.num(leptons) == 1

    @made.cut
    def no_second(muons, electrons):
        return ak.num(muons) + ak.num(electrons) == 1

    @made.column
    def jets(Jet, leptons):
        return c.clean_jets(Jet, leptons)

    @made.cut
    def three_jets(jets):
        return ak.num(jets) >= 3

    @made.column
    def mass(jets):
        return c.trijet_mass(jets)

    @made.cut
    def b_tag(jets):
        return ak.any(jets.btagDeepB > 0.4184, axis=1)

    @made.cut
    def missing_momentum(MET_pt):
        return MET_pt > 30

    for region, cuts in c.REGIONS.items():
        made.region(region, *c.CUTS[:cuts])

    @made.output(regions="*")
    def trijet(mass, weight):
        return c.fill_trijet(mass, weight)

    @made.output(regions="*")
    def spectrum(jets, weight):
        return c.fill_spectrum(jets, weight)

    @made.output(regions="*")
    def leading(leptons, weight):
        return c.fill_leading(leptons, weight)

    return made


def run(path: str, engine: str = "auto", workers: int = 2, **options: Any) -> dict[str, Any]:
    result = analysis().run(f"{path}:Events", engine=engine, workers=workers, progress=False, **options)
    return c.told(
        {
            (name, region, variation): result[name, region, variation]
            for name in c.HISTOGRAMS
            for region in c.REGIONS
            for variation in c.VARIATIONS
        }
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1], *sys.argv[2:])
    else:
        serve(run, "awkward", "numpy", "uproot", "hist")
