"""Real NanoAOD files: a whole analysis against an independent uproot and awkward program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot
import vector
from hist import Hist

import windrow as wr

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.samples

FILES = {"dy": "nano_dy.root", "data": "nano_dimuon.root", "v5": "nanoaodv5_sample.root"}
REGIONS = {
    "single": ("trigger", "vertex", "one_muon", "lead", "no_electron"),
    "pair": ("vertex", "one_muon", "lead", "two_muons", "opposite", "low_met"),
    "side": ("one_muon", "two_muons", "!z_window", "jets_there", "!hard_jet"),
}
#: in the order they are written
CUTS = [
    *("trigger", "vertex", "low_met", "no_electron", "one_muon", "lead", "two_muons"),
    *("opposite", "z_window", "jets_there", "hard_jet"),
]


def fileset(samples: Path, names: tuple[str, ...] = ("dy", "data", "v5")) -> dict[str, Any]:
    return {
        name: {"files": {str(samples / FILES[name]): "Events"}, "metadata": {"is_mc": name != "data", "year": 2018}}
        for name in names
    }


# --- the analysis, as a user writes it ------------------------------------------------------------


def make_analysis() -> Any:
    analysis = wr.Pipeline("nano", identity=("run", "luminosityBlock", "event"))
    add_selection(analysis)
    add_outputs(analysis)
    for name, cuts in REGIONS.items():
        analysis.region(name, *cuts)
    return analysis


def add_selection(analysis: Any) -> None:
    @analysis.weight(when="is_mc")
    def generator(genWeight):  # type: ignore[no-untyped-def]
        return np.sign(genWeight.astype(np.float64))

    @analysis.cut
    def trigger(HLT_IsoMu24, HLT_DoubleIsoMu24_eta2p1=False, HLT_IsoMu24_TwoProngs35=False):  # type: ignore[no-untyped-def]
        return HLT_IsoMu24 | HLT_DoubleIsoMu24_eta2p1 | HLT_IsoMu24_TwoProngs35

    @analysis.cut
    def vertex(PV_npvsGood):  # type: ignore[no-untyped-def]
        return PV_npvsGood >= 10

    @analysis.cut
    def low_met(MET):  # type: ignore[no-untyped-def]
        return MET.pt < 60

    @analysis.cut
    def no_electron(Electron):  # type: ignore[no-untyped-def]
        return ak.num(Electron[(Electron.pt > 15) & (abs(Electron.eta) < 2.5)]) == 0

    @analysis.weight(when="is_mc")
    def pileup(Pileup_nTrueInt):  # type: ignore[no-untyped-def]
        nominal = 1.0 + 0.01 * (Pileup_nTrueInt.astype(np.float64) - 25.0)
        return wr.updown(nominal, nominal * 1.05, nominal * 0.9)

    @analysis.column
    def muons(Muon):  # type: ignore[no-untyped-def]
        return Muon[(Muon.pt > 3) & (abs(Muon.eta) < 2.4)]

    @analysis.cut
    def one_muon(muons):  # type: ignore[no-untyped-def]
        return ak.num(muons) >= 1

    @analysis.cut
    def lead(muons):  # type: ignore[no-untyped-def]
        return muons[:, 0].pt > 8

    @analysis.cut
    def two_muons(muons):  # type: ignore[no-untyped-def]
        return ak.num(muons) >= 2

    @analysis.cut
    def opposite(muons):  # type: ignore[no-untyped-def]
        return muons[:, 0].charge != muons[:, 1].charge

    @analysis.column
    def mass(muons):  # type: ignore[no-untyped-def]
        return (muons[:, 0] + muons[:, 1]).mass

    @analysis.cut
    def z_window(mass, *, low=60, high=120):  # type: ignore[no-untyped-def]
        return (mass > low) & (mass < high)

    @analysis.column
    def jets(Jet):  # type: ignore[no-untyped-def]
        return Jet[(Jet.pt > 45) & (abs(Jet.eta) < 2.4)]

    @analysis.cut(each=True)
    def jets_there(nJet):  # type: ignore[no-untyped-def]
        return nJet >= 5

    @analysis.cut
    def hard_jet(jets):  # type: ignore[no-untyped-def]
        return ak.firsts(jets).pt > 60  # None without a jet


def add_outputs(analysis: Any) -> None:
    @analysis.output(regions=["pair", "side"])
    def spectrum(mass, weight):  # type: ignore[no-untyped-def]
        return Hist.new.Reg(40, 0, 120).Weight().fill(mass, weight=weight)

    @analysis.output(regions="*")
    def events(event):  # type: ignore[no-untyped-def]
        return event.tolist()

    @analysis.output(regions="*")
    def scalar_sum(jets, MET_pt, weight):  # type: ignore[no-untyped-def]
        return float(np.sum(ak.to_numpy(ak.sum(jets.pt, axis=1)) * weight) + np.sum(MET_pt * weight))

    @analysis.output(region=None)
    def sumw(genWeight=1.0):  # type: ignore[no-untyped-def]
        return float(np.sum(genWeight.astype(np.float64)))


# --- the plain program ----------------------------------------------------------------------------


class Plain:
    """One file, all rows at once; cuts as plain masks, with None as a third answer."""

    def __init__(self, path: Path, is_mc: bool) -> None:
        vector.register_awkward()
        tree = uproot.open(path)["Events"]
        names = set(tree.keys())
        self.tree, self.names, self.rows = tree, names, tree.num_entries
        self.weights = {"nominal": np.ones(self.rows)}
        self.sumw = float(self.rows)
        if is_mc:
            gen = self.flat("genWeight").astype(np.float64)
            pileup = 1.0 + 0.01 * (self.flat("Pileup_nTrueInt").astype(np.float64) - 25.0)
            self.weights = {
                "nominal": np.sign(gen) * pileup,
                "pileup_up": np.sign(gen) * (pileup * 1.05),
                "pileup_down": np.sign(gen) * (pileup * 0.9),
            }
            self.generator = np.sign(gen)
            self.sumw = float(np.sum(gen))
        else:
            self.generator = np.ones(self.rows)
        self.passes: dict[str, Any] = {}
        self.undefined: dict[str, Any] = {}
        self.select()

    def flat(self, name: str, default: Any = None) -> Any:
        if name not in self.names:
            return np.full(self.rows, default)
        return self.tree[name].array(library="np")

    def records(self, prefix: str, fields: tuple[str, ...]) -> Any:
        parts = {field: self.tree[f"{prefix}_{field}"].array() for field in fields}
        return ak.zip(parts, with_name="Momentum4D")

    def cut(self, name: str, answer: Any) -> None:
        answer = ak.Array(answer)
        self.undefined[name] = ak.to_numpy(ak.is_none(answer))
        self.passes[name] = ak.to_numpy(ak.fill_none(answer, False))

    def select(self) -> None:
        muons = self.records("Muon", ("pt", "eta", "phi", "mass", "charge"))
        muons = muons[(muons.pt > 3) & (abs(muons.eta) < 2.4)]
        electrons = self.records("Electron", ("pt", "eta", "phi", "mass"))
        jets = self.records("Jet", ("pt", "eta", "phi", "mass"))
        self.jets = jets[(jets.pt > 45) & (abs(jets.eta) < 2.4)]
        pairs = ak.pad_none(muons, 2)
        first, second = pairs[:, 0], pairs[:, 1]
        self.mass = (first + second).mass
        self.cut(
            "trigger",
            self.flat("HLT_IsoMu24")
            | self.flat("HLT_DoubleIsoMu24_eta2p1", False)
            | self.flat("HLT_IsoMu24_TwoProngs35", False),
        )
        self.cut("vertex", self.flat("PV_npvsGood") >= 10)
        self.met = self.flat("MET_pt")
        self.cut("low_met", self.met < 60)
        good = (electrons.pt > 15) & (abs(electrons.eta) < 2.5)
        self.cut("no_electron", ak.sum(good, axis=1) == 0)
        self.cut("one_muon", ak.num(muons) >= 1)
        self.cut("lead", first.pt > 8)
        self.cut("two_muons", ak.num(muons) >= 2)
        self.cut("opposite", first.charge != second.charge)
        self.cut("z_window", (self.mass > 60) & (self.mass < 120))
        self.cut("jets_there", self.flat("nJet") >= 5)
        self.cut("hard_jet", ak.firsts(self.jets).pt > 60)

    def cutflow(self, region: str) -> tuple[list[tuple[str, int, float, int]], Any]:
        """Lines in written order, and the rows that are left."""
        wanted = {name.lstrip("!"): name for name in REGIONS[region]}
        alive = np.ones(self.rows, bool)
        lines = [("initial", self.rows, float(np.sum(self.generator)), 0)]
        for cut in CUTS:
            if cut not in wanted:
                continue
            undefined = int(np.sum(alive & self.undefined[cut]))
            inverted = wanted[cut].startswith("!")
            keep = ~self.passes[cut] if inverted else self.passes[cut]
            alive = alive & keep & ~self.undefined[cut]
            # pileup is written below no_electron: it weights the lines from there on
            early = CUTS.index(cut) <= CUTS.index("no_electron")
            weight = self.generator if early else self.weights["nominal"]
            lines.append((wanted[cut], int(alive.sum()), float(np.sum(weight[alive])), undefined))
        return lines, alive


def close(left: float, right: float) -> bool:
    return abs(left - right) <= 1e-12 * max(1.0, abs(left), abs(right)) * 1000


def compare(result: Any, plain: Plain, dataset: str, *, exact: bool) -> int:
    """Compare everything; return the number of selected rows."""
    found = 0
    assert close(result["sumw", "nominal", dataset], plain.sumw)
    for region in REGIONS:
        lines, alive = plain.cutflow(region)
        found += int(alive.sum())
        table = result.cutflow[region, dataset]
        got = [("!" * g.inverted + g.name, g.passed, g.undefined) for g in table.written]
        assert got == [(name, passed, undefined) for name, passed, _, undefined in lines]
        for line, (_, _, sumw, _) in zip(table.written, lines, strict=True):
            assert close(line.sumw, sumw), (region, dataset, line.name)
        events = plain.flat("event")[alive].tolist()
        assert result["events", region, "nominal", dataset] == events
        for variation, weight in plain.weights.items():
            weight = weight[alive]
            total = np.sum(ak.to_numpy(ak.sum(plain.jets[alive].pt, axis=1)) * weight)
            total = float(total + np.sum(plain.met[alive] * weight))
            got_sum = result["scalar_sum", region, variation, dataset]
            assert got_sum == total if exact else close(got_sum, total)
            if region == "single":
                continue
            values = ak.to_numpy(plain.mass[alive], allow_missing=False)
            expected = Hist.new.Reg(40, 0, 120).Weight().fill(values, weight=weight)
            compare_hists(result["spectrum", region, variation, dataset], expected, exact)
    return found


def compare_hists(got: Any, expected: Any, exact: bool) -> None:
    for part in ("value", "variance"):
        left, right = got.view(flow=True)[part], expected.view(flow=True)[part]
        if exact:
            np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


# --- tests ----------------------------------------------------------------------------------------


WAYS = [
    pytest.param({"engine": "inline"}, None, id="inline", marks=pytest.mark.slow),
    pytest.param({"engine": "threads", "workers": 2}, None, id="threads", marks=pytest.mark.slow),
    pytest.param({"engine": "threads", "workers": 3, "chunk": 100}, 17, id="small-units"),
    pytest.param({"engine": "inline", "chunk": 64, "_block_rows": 5}, 64, id="small-blocks", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("options", "grid"), WAYS)
def test_an_analysis_equals_the_plain_program(samples: Path, options: dict[str, Any], grid: int | None) -> None:
    source = wr.data.open(fileset(samples), grid=grid)
    result = make_analysis().run(source, progress=False, **options)
    assert result.complete
    assert result.ledger.total == result.ledger.done == 1080
    selected = {}
    for name, file in FILES.items():
        plain = Plain(samples / file, is_mc=name != "data")
        selected[name] = compare(result, plain, name, exact=grid is None)
    assert all(selected.values()), "the selection must select something to be a test"


@pytest.mark.slow
def test_another_order_gives_the_same_outputs(samples: Path) -> None:
    written = make_analysis().run(wr.data.open(fileset(samples), grid=32), progress=False)
    analysis = make_analysis()
    order = [
        *("jets", "hard_jet", "jets_there", "muons", "mass", "z_window", "opposite", "lead"),
        *("two_muons", "low_met", "one_muon", "no_electron", "vertex", "trigger"),
        *("pileup", "generator"),
    ]
    moved = analysis.run(wr.data.open(fileset(samples), grid=32), order=order, progress=False, chunk=100)
    # mass, opposite and lead raise without the cuts that are written above them.
    assert {step for step, _ in analysis.guards} >= {"mass"}
    for name in FILES:
        for region in REGIONS:
            for output in ("events", "scalar_sum"):
                key = (output, region, "nominal", name)
                assert moved[key] == written[key], key
            last = [r.cutflow[region, name].executed[-1].passed for r in (written, moved)]
            assert last[0] == last[1]
            if region != "single":
                key = ("spectrum", region, "nominal", name)
                compare_hists(moved[key], written[key], exact=True)


@pytest.mark.slow
def test_indexing_by_dataset(samples: Path) -> None:
    result = make_analysis().run(fileset(samples), progress=False)
    by_dataset = result["events", "pair"]
    assert set(by_dataset) == set(FILES)
    assert by_dataset["dy"] == result["events", "pair", "nominal", "dy"]
    alone = make_analysis().run(fileset(samples, ("dy",)), progress=False)
    assert alone["events", "pair"] == by_dataset["dy"]
    total = result.cutflow["pair"].written
    parts = [result.cutflow["pair", name].written for name in FILES]
    assert [line.passed for line in total] == [sum(line.passed for line in same) for same in zip(*parts, strict=True)]


def test_tree_and_rntuple_agree(samples: Path) -> None:
    metadata = {"is_mc": True, "year": 2018}
    tree, ntuple = (
        make_analysis().run({"dy": {"files": {str(samples / name): "Events"}, "metadata": metadata}}, progress=False)
        for name in ("nano_dy.root", "nano_dy_rntuple.root")
    )
    for region in REGIONS:
        assert tree["events", region] == ntuple["events", region]
        for variation in ("nominal", "pileup_up", "pileup_down"):
            pair = [r["scalar_sum", region, variation] for r in (tree, ntuple)]
            assert pair[0] == pytest.approx(pair[1], rel=1e-12)
        lines = [
            [(line.name, line.passed, line.undefined) for line in r.cutflow[region].written] for r in (tree, ntuple)
        ]
        assert lines[0] == lines[1]
        if region != "single":
            compare_hists(tree["spectrum", region], ntuple["spectrum", region], exact=False)
    assert tree["sumw"] == pytest.approx(ntuple["sumw"], rel=1e-12)


def test_an_empty_file_gives_an_empty_result(samples: Path) -> None:
    data = {"dy": {"files": {str(samples / "nano_dy_empty.root"): "Events"}, "metadata": {"is_mc": True, "year": 2018}}}
    result = make_analysis().run(data, progress=False)
    assert result.complete
    assert result.exit_code == 0
    assert result.ledger.total == 0
    for region in REGIONS:
        assert result["events", region] == []
        for variation in ("nominal", "pileup_up", "pileup_down"):
            assert result["scalar_sum", region, variation] == 0.0
        lines = result.cutflow[region].written
        assert ["!" * line.inverted + line.name for line in lines[1:]] == [
            name for cut in CUTS for name in REGIONS[region] if name.lstrip("!") == cut
        ]
        assert {(line.passed, line.sumw) for line in lines} == {(0, 0.0)}
    assert result["spectrum", "pair"].sum(flow=True).value == 0.0
    assert result["sumw"] == 0.0


@pytest.mark.slow
def test_an_empty_file_beside_a_full_one_changes_nothing(samples: Path) -> None:
    metadata = {"is_mc": True, "year": 2018}
    names = ("nano_dy_empty.root", "nano_dy.root")
    both, alone = (
        make_analysis().run(
            {"dy": {"files": {str(samples / n): "Events" for n in part}, "metadata": metadata}}, progress=False
        )
        for part in (names, names[1:])
    )
    for region in REGIONS:
        for output in ("events", "scalar_sum"):
            assert both[output, region] == alone[output, region]
